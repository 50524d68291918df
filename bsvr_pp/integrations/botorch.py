"""A fitted regression as a BoTorch model, for Bayesian optimisation.

f has the posterior of a Gaussian process with one Gaussian pseudo-target for each row: f_i + a_i/τ_i with variance
1/τ_i, from dual coefficients a and site precisions τ. An outlier may have τ_i = 0: its site is linear in f, and adds
k(x, x_i)·a_i to the prior mean instead. Nearly all errors are raised before BoTorch is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from bsvr_pp.core.arrays import Array
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.inference.fitted import read_fitted
from bsvr_pp.inference.monotone import GivenSlopes
from bsvr_pp.inference.prediction.distribution import UNSCALED
from bsvr_pp.inference.result import is_mode
from bsvr_pp.model.gp import localize
from bsvr_pp.model.reader import read_model

if TYPE_CHECKING:
    from botorch.models import SingleTaskGP
    from pytensor.tensor import TensorLike

__all__ = ["to_botorch"]

_LINEAR = 1e-10  # site precision times cavity variance, below which a site is linear


def to_botorch(fitted: BayesianSVR | xr.DataTree, model: pm.Model | None = None) -> SingleTaskGP:
    """Make a BoTorch model with the posterior of f of a fitted regression, in the units of its data.

    Parameters
    ----------
    fitted : BayesianSVR or DataTree
        A fitted estimator, or a result of `bp.fit`, by mean field or Laplace. The hyperparameters are fixed,
        at their optimum if they are integrated out.
    model : pm.Model, optional
        The model of a result; by default the model of the surrounding ``with``.

    Returns
    -------
    botorch.models.SingleTaskGP
        Mean and variance of f in double precision, differentiable with respect to the inputs (n_new, d). New targets
        (``observation_noise=True``, fantasies) have mean f and Gaussian noise of the fit's variance, without
        ``noise_scales``. Its training targets are pseudo-targets: use the largest posterior mean as the best value so
        far. Variances in GPyTorch are at least 1e-10, so targets should vary by about one unit.

    Raises
    ------
    TypeError
        If fitted is neither, or an estimator comes with a model.
    ValueError
        If f is not one Gaussian process of real targets (draws, a mode, blocks, ``log_targets``, classes). Also if the
        noise has a value for each row, a site precision is negative, or kernel or prior mean cannot be converted.
    ImportError
        If BoTorch is not installed.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> from bsvr_pp.integrations.botorch import to_botorch
    >>> X = np.linspace(-3, 3, 30)[:, None]
    >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model = to_botorch(svr)  # doctest: +SKIP
    """
    if isinstance(fitted, BayesianSVR) and model is None:
        fit = fitted._alone("a model of BoTorch is")
        problem, found, mode = fit.problem, fit.fitted, False
        units, scale = fit.units, fit.units.target_scale
        centre, width, location, unit = units.mean, units.scale, units.location, units.unit
    elif isinstance(fitted, xr.DataTree):
        problem = read_model(model)
        found, scale, mode = read_fitted(problem, fitted), UNSCALED, is_mode(fitted)
        centre, width, location, unit = np.zeros(problem.n_inputs), np.ones(problem.n_inputs), 0.0, 1.0
    else:
        raise TypeError(f"fitted must be a BayesianSVR, or a result of bp.fit with its model, got {fitted!r}")
    point, prior, m = found.points[0], problem.prior, problem.prior.mean_func
    noise, known = problem.noise_at(point), isinstance(m, pm.gp.mean.Zero | pm.gp.mean.Constant)
    for refused, got, cure in (
        (not found.posteriors, "draws", "fit by mean field"),
        (mode, "only the mode of f", "fit by mean field"),
        (problem.blocks.several, "blocks of rows", "use blocks=None"),
        (isinstance(problem, GivenSlopes), "inputs in which f is monotone", "fit without monotone"),
        (scale.is_log, "log_targets=True", "fit the logarithms as targets"),
        (scale != UNSCALED, "roots of the targets", "use warping=False"),
        (bool(problem.ends.cutpoints or problem.loss.targets.values), "classes", "use real targets"),
        (noise.n_points is not None, "noise with a value for each training point", "give it numbers"),
        (problem.composite is not None, "a sum of processes", "add the kernels of one process"),
        (not known, f"the prior mean {type(m).__name__}", "use pm.gp.mean.Zero or Constant"),
    ):
        if refused:
            raise ValueError(f"fitted must have one Gaussian process of real targets, got {got}: {cure}")
    posterior = found.posteriors[0]
    a, precision = posterior.dual_coef, posterior.site_precision
    strength = precision * posterior.cavity_variance
    if (strength < -_LINEAR).any():
        raise ValueError(f"fitted must have sites of positive variance, got the precision {precision.min():g}")

    def value(graph: TensorLike) -> Array:
        (number,) = problem.compile([localize(pt.as_tensor_variable(graph), problem.model)])(*problem.arguments(point))
        return np.asarray(number, dtype=np.float64)

    from bsvr_pp.integrations._botorch_model import FixedGP, LinearSites, fixed, in_units

    linear = strength < _LINEAR
    X, a, f, variance = centre + width * problem.inputs, a / unit, posterior.mean[~linear], 1.0 / precision[~linear]
    mean = location + unit * (float(value(m.c)) if isinstance(m, pm.gp.mean.Constant) else 0.0)
    kernel = in_units(fixed(prior.cov_func, value, problem.inputs), centre, width, unit)
    return FixedGP(
        X[~linear],
        location + unit * f + unit**2 * variance * a[~linear],
        unit**2 * (variance + prior.jitter),  # the jitter of the training rows
        LinearSites(mean, kernel, X[linear], a[linear]),
        unit**2 * float(noise.variance),
    )
