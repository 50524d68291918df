"""A fitted regression as a model of BoTorch, for Bayesian optimisation.

The posterior of f is that of a Gaussian process with Gaussian pseudo-targets, one a row: f_i + a_i/τ_i with the
variance 1/τ_i, from dual coefficients a and site precisions τ. An outlier may have τ_i = 0: its site is linear in f, and
adds k(x, x_i)·a_i to the prior mean instead. Kernels are read from the model of PyMC, from which gradients follow by
autograd. Errors are raised before BoTorch is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bsvr_pp import cov
from bsvr_pp._checks import load_extra
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.inference.fitted import is_mode, read_fitted
from bsvr_pp.inference.result import check_match
from bsvr_pp.model.gp import localize
from bsvr_pp.model.problem import read_model

Array = NDArray[np.float64]

_LINEAR = 1e-10  # site precision times cavity variance, below which a site is linear

# Kernels with a form in `bsvr_pp.integrations.botorch_model`, and their parameters.
PARAMETERS: dict[Any, tuple[str, ...]] = {
    cov.MainEffects: ("amplitude", "ls"),
    cov.RationalQuadratic: ("ls", "inverse_alpha", "variance"),
    pm.gp.cov.Constant: ("c",),
    pm.gp.cov.ExpQuad: ("ls",),
    pm.gp.cov.Linear: ("c",),
    pm.gp.cov.Matern12: ("ls",),
    pm.gp.cov.Matern32: ("ls",),
    pm.gp.cov.Matern52: ("ls",),
    pm.gp.cov.RatQuad: ("ls", "alpha"),
}


class Term(NamedTuple):
    """A kernel as data: its form, parameters and columns (all, if there are none), and the kernels of which it is made."""

    form: str
    parameters: dict[str, Array]
    columns: Sequence[int] = ()
    parts: tuple[Term, ...] = ()


class Pseudo(NamedTuple):
    """Rows with pseudo-targets and their variances, linear sites, prior, and variance of the noise, in given units."""

    X: Array
    targets: Array
    variance: Array
    linear: Array
    dual_coef: Array
    kernel: Term
    mean: float
    noise_variance: float


def to_botorch(fitted: Any, model: pm.Model | None = None) -> Any:
    """Make a model of BoTorch whose posterior of f is that of a fitted regression, in the units of its data.

    Parameters
    ----------
    fitted : BayesianSVR or DataTree
        A fitted estimator, or a result of `bp.fit`, by mean field or Laplace. The hyperparameters are fixed.
    model : pm.Model, optional
        The model of a result; by default that of the surrounding ``with``.

    Returns
    -------
    botorch.models.SingleTaskGP
        Mean and variance of f, in double precision and differentiable by the inputs, for any acquisition function.
        New observations, also those of ``observation_noise=True`` and of fantasies, have the variance of the noise (the
        fit's, without ``noise_scales``) and the mean f; their noise is Gaussian. Its training targets are
        pseudo-targets: the best value so far is the largest posterior mean of the rows.

    Raises
    ------
    TypeError
        If fitted is neither, or an estimator comes with a model.
    ValueError
        If f is not one Gaussian process of real targets (a committee, draws, a mode, blocks, ``log_targets``, classes),
        the noise has a value for each row, a site precision is negative, or kernel or mean function have no known form.
    ImportError
        If BoTorch is not installed.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> from bsvr_pp.integrations.botorch import to_botorch
    >>> X = np.linspace(-3, 3, 30)[:, None]
    >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> to_botorch(svr)  # doctest: +SKIP
    FixedGP(...)
    """
    found = _pseudo(fitted, model)
    load_extra("botorch", "botorch")
    return load_extra("bsvr_pp.integrations.botorch_model", "botorch").FixedGP(found)


def _pseudo(fitted: Any, model: pm.Model | None) -> Pseudo:
    """The posterior of f as a Gaussian process with pseudo-targets."""
    if isinstance(fitted, BayesianSVR) and model is None:
        check_is_fitted(fitted)
        problem, found, logarithm, mode = fitted._problem(), fitted._fitted, fitted.log_targets, False
        centre, width, location, unit = fitted.mean_, fitted.scale_, fitted.location_, fitted.unit_
    elif isinstance(fitted, xr.DataTree):
        problem = read_model(model)
        check_match(problem, fitted)
        found, logarithm, mode = read_fitted(problem, fitted), False, is_mode(fitted)
        centre, width, location, unit = np.zeros(problem.n_inputs), np.ones(problem.n_inputs), 0.0, 1.0
    else:
        raise TypeError(f"fitted must be a BayesianSVR, or a result of bp.fit with its model, got {fitted!r}")
    for refused, got, cure in (
        (found.draws is not None, "draws", "use inference by mean field"),
        (mode, "only the mode of f", "use bp.MeanField()"),
        (len(found.points) > 1, f"a committee of {len(found.points)} optima", "use inference by mean field"),
        (problem.blocks is not None, "blocks of rows", "use blocks=None"),
        (logarithm, "log_targets=True", "fit the logarithms as targets"),
        (problem.ends.kind == "ordinal" or bool(problem.loss.targets.values), "classes", "use real targets"),
    ):
        if refused:
            raise ValueError(f"fitted must have one Gaussian process of real targets, got {got}: {cure}")
    point, posterior = found.points[0], found.posteriors[0]
    noise, a, precision = problem.noise_at(point), posterior.dual_coef, posterior.site_precision
    if noise.n_points is not None:
        raise ValueError("fitted has noise with a value for each training point, which says nothing about new ones")

    def value(graph: Any) -> Array:
        (found,) = problem.compile([localize(pt.as_tensor_variable(graph), problem.model)])(*problem.arguments(point))
        return np.asarray(found, dtype=np.float64)

    strength = precision * posterior.cavity_variance
    if (strength < -_LINEAR).any():
        raise ValueError(f"fitted has a site of negative precision, {precision.min():g}, whose variance is not positive")
    mean, kernel = problem.prior.mean_func, _term(problem.prior.cov_func, value)
    if not isinstance(mean, pm.gp.mean.Zero | pm.gp.mean.Constant):
        raise ValueError(f"fitted must have the prior mean Zero or Constant, got {type(mean).__name__}")
    standardised = Term("Affine", {"slope": np.diag(1.0 / width), "offset": -centre / width}, parts=(kernel,))
    X, linear = centre + width * problem.inputs, strength < _LINEAR
    variance = 1.0 / precision[~linear]
    return Pseudo(
        X=X[~linear],
        targets=location + unit * (posterior.mean[~linear] + a[~linear] * variance),
        variance=unit**2 * (variance + problem.prior.jitter),
        linear=X[linear],
        dual_coef=a[linear] / unit,
        kernel=Term("Prod", {}, parts=(Term("Constant", {"c": np.array(unit**2)}), standardised)),
        mean=location + unit * float(value(mean.c) if isinstance(mean, pm.gp.mean.Constant) else 0.0),
        noise_variance=unit**2 * float(noise.variance),
    )


def _term(kernel: Any, value: Callable[[Any], Array]) -> Term:
    """A kernel of PyMC as data, whose parameters have values; a factor of a product may be a number."""
    name = type(kernel).__name__
    if isinstance(kernel, pm.gp.cov.Add | pm.gp.cov.Prod):
        return Term(name, {}, parts=tuple(_term(part, value) for part in kernel._factor_list))
    if not isinstance(kernel, pm.gp.cov.BaseCovariance) and np.ndim(number := value(kernel)) == 0:
        return Term("Constant", {"c": number})
    columns = [int(i) for i in getattr(kernel, "active_dims", [])]
    if type(kernel) is pm.gp.cov.WarpedInput:
        points = np.vstack([np.zeros(len(columns)), np.eye(len(columns)), np.linspace(2.0, 3.0, len(columns))])
        origin, *corners, probe = value(kernel.w(pt.constant(points), kernel.args))
        slope = np.array(corners) - origin
        if np.allclose(probe, origin + points[-1] @ slope, rtol=1e-9):
            return Term("Affine", {"slope": slope, "offset": origin}, columns, (_term(kernel.cov_func, value),))
    if type(kernel) not in PARAMETERS:
        known = ", ".join(each.__name__ for each in PARAMETERS)
        raise ValueError(f"fitted must have a kernel of sums and products of {known}, got {name}")
    return Term(name, {each: value(getattr(kernel, each)) for each in PARAMETERS[type(kernel)]}, columns)
