"""The default models of labels and of ordered classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from scipy.stats import norm

from bsvr_pp.classification.svm_label import KnownLabel, SVMLabel
from bsvr_pp.core.arrays import Array, Tensor, check_choice
from bsvr_pp.core.losses import LOSSES
from bsvr_pp.core.losses.registry import LABELS, NOISES
from bsvr_pp.model.blocks import Partition
from bsvr_pp.model.distributions import observe_weighted
from bsvr_pp.model.gp import GP
from bsvr_pp.model.marginalize import unit_variance
from bsvr_pp.model.matrices import ProductKernel
from bsvr_pp.model.priors import Inputs, Kernel, check_kernel, checked_data, covariance_of, lengthscales, of_inputs
from bsvr_pp.model.row_kinds import Ordinal

_COMMON = 9.0  # of labels, variance of the logarithm of a factor of all d lengthscales,
_OWN, _OF_FEW = 0.1, 1.0  # and of each near equal ones: the first of many inputs, and the second over d more
_START = 3.0  # of these variances: at the mean of their prior, 900, mean field does not converge with wrong labels
_REACH = 6.0  # of labels, median of the distance over which their log odds grow beyond |f| = 1
# Equal rows share one jitter, but not those with the other label: with 1e-5 known labels had the evidence of two
# functions. Sollich's evidences factor the covariance alone.
_JITTER, _JITTER_TOGETHER = 1e-12, 1e-5
DEVIATION = 10.0**0.5  # of f for labels, at the median of the prior of its variance
AMPLITUDE = 3.0  # of classes, scale of the prior of the amplitude, in standard deviations of the noise
_SPREAD = 1.0  # prior standard deviation of the mean cut point, and of the logs of the gaps
OF_CLASSES = [name for name in NOISES if name != "pinball"]  # noises
_SMOOTH = {"soft_insensitive": 1.0, "huber": 1.0, "epsilon_insensitive": 0.0}  # smooth fraction of the tube
_LIGHT = 0.02  # noise with a smooth tube is Gaussian there, up to ten standard deviations


def default_label_model(
    X: ArrayLike, y: ArrayLike, *, ard: bool = True, kernel: Kernel = "rbf", known: bool = False
) -> pm.Model:
    """Make a support vector classifier with default priors, for inputs of any scale.

    With u = x/lengthscale, and one lengthscale per input or one for all, the kernel is

        amplitude·k(u, u') + linear·u·u' + offset,

    where k is exp(-½|u - u'|²) or another kernel with k(u, u) = 1. Without the linear part a smooth boundary requires a
    large amplitude and long lengthscales, and the evidence hardly depends on these lengthscales. All hyperparameters
    are log-normal, except lengthscales:

    - ``C`` around log 2 within a factor e: there ν, the probability that a label is known, is 0.8 both at f = 0 and for
      large |f|, and the model is nearest to a model with sigmoid labels;
    - ``amplitude`` and ``linear`` around 10 within e³, so that log odds are a few units;
    - ``reach`` of `KnownLabel` around 6 within a factor e: far from the boundary 0.4 % of the labels are wrong;
    - ``offset``, the variance B² of Sollich 2002, (3), around 1 within e;
    - ``log_lengthscale``: the lengthscales are around w·√(2d), with the standard deviation w of each of d inputs. They
      have a t distribution with d degrees of freedom. Near its mode it is the normal distribution with a common factor
      of variance 9, and variances of .1 + 1/d around it; far from it all may differ more.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Labels -1 and +1.
    ard : bool
        Whether every input has its own lengthscale.
    kernel : {"rbf", "main_effects", "rational_quadratic", "matern32", "matern52", "linear"} or callable
        The kernel k; with "linear" there is only the linear part. A function is called inside the model with the
        inputs, and returns a kernel of `pm.gp.cov` with priors; only the offset is added.
    known : bool
        Whether the labels are `KnownLabel`, normalised at each point, instead of `SVMLabel`.

    Returns
    -------
    pm.Model
        The model with the data X and targets, and the variables C, amplitude, linear, offset, log_lengthscale, f, y;
        for known labels also reach.

    Raises
    ------
    ValueError
        If the data are invalid.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-1, 1, 10)[:, None]
    >>> model = bp.classification.default_label_model(X, np.sign(X[:, 0]))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'amplitude', 'f_rotated_', 'linear', 'log_lengthscale', 'offset']
    """
    inputs, labels = checked_data(X, y, ard)
    if (unlike := LABELS.unlike(labels)).size:
        raise ValueError(f"y must hold the {LABELS.words}, got {unlike[0]}")
    check_kernel(kernel)
    return standard_label_model(inputs, labels, kernel, known=known)


def standard_label_model(
    inputs: Inputs,
    y: Array,
    kernel: Kernel,
    *,
    known: bool = False,
    of_targets: Mapping[str, Array] = {},
    C: float | None = None,
    blocks: Partition | None = None,
) -> pm.Model:
    """Make `default_label_model` without checks; a given C is not learned, ``of_targets`` may have "weight" (n,)."""
    label = KnownLabel if known else SVMLabel
    with pm.Model() as model:
        penalty = pm.LogNormal("C", np.log(np.log(2.0)), 1.0) if C is None else pm.Data("C", float(C))
        parameters = {"C": penalty} | ({"reach": pm.LogNormal("reach", np.log(_REACH), 1.0)} if known else {})
        covariance = inputs.made_by(kernel) if callable(kernel) else _label_covariance(kernel, inputs)
        offset = pm.LogNormal("offset", 0.0, 1.0)
        jitter = _JITTER if known else _JITTER_TOGETHER
        f = GP(cov_func=covariance + pm.gp.cov.Constant(offset)).prior(
            "f", X=pm.Data("X", inputs.X), blocks=blocks, jitter=jitter, columns=inputs.names
        )
        targets = pm.Data("targets", y)
        if "weight" in of_targets:
            observe_weighted("y", label.dist(f=f, **parameters), pm.Data("weight", of_targets["weight"]), targets)
        else:
            label("y", f=f, **parameters, observed=targets)
    return model


def _label_covariance(kernel: str | ProductKernel, inputs: Inputs) -> pm.gp.cov.BaseCovariance:
    """Return the linear part and the deviation, with their priors."""
    d = inputs.first.size
    centre = np.log(inputs.width[inputs.first] * np.sqrt(2.0 * d))
    product = "linear" if isinstance(kernel, str) else replace(kernel, name="linear")
    amplitude = pm.LogNormal("amplitude", np.log(10.0), 3.0, initval=_START) if kernel != product else None
    linear = pm.LogNormal("linear", np.log(10.0), 3.0, initval=_START)
    if inputs.ard and d > 1:
        own = (_OWN + _OF_FEW / d) * np.eye(d)
        factor = np.linalg.cholesky(2.0 * (_COMMON + own))  # twice, for this curvature at the mode
        lengthscale = pm.MvStudentT("log_lengthscale", nu=float(d), mu=centre, chol=factor)
        lengthscale = pm.math.exp(of_inputs(lengthscale, inputs.tied))
    else:
        lengthscale = pm.math.exp(pm.Normal("log_lengthscale", centre.mean(), np.sqrt(_COMMON)))
    line = covariance_of(product, inputs, lengthscale, linear, 1.0)
    if amplitude is None:
        return line
    return inputs.seen(covariance_of(kernel, inputs, lengthscale, amplitude, DEVIATION) + line)


def default_ordinal_model(
    X: ArrayLike,
    y: ArrayLike,
    *,
    ard: bool = True,
    noise: str = "soft_insensitive",
    kernel: Kernel = "rational_quadratic",
) -> pm.Model:
    """Make a model of ordered classes with default priors: the number of cut points below f(X) + noise.

    The noise has standard deviation 1, and f has mean 0 and no constant kernel (docs/how-to/ordinal.md). f is amplitude
    times a function of variance 1, with amplitude ~ HalfStudentT(3, 3). Lengthscales are as in `default_priors`. The
    shape of the noise is learned: tails ~ Uniform(0.02, 1), with the tube C·epsilon = 1/tails - 1 and beta = 1. It is
    Laplace noise at tails = 1, and nearly Gaussian at 0.02. The cut points are

        √(1 + amplitude²)·(mean_cutpoint + s - mean(s)),   s = (0, cutpoint_gaps[0], ...) cumulated:

    in units of the standard deviation of the latent target. mean_cutpoint is normal and the gaps are log-normal,
    around the values that give each class its share in y, within 1 and within a factor e.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array of int
        Classes 0, 1, ..., m; a class that does not occur is possible.
    ard : bool
        Whether every input has its own lengthscale.
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "absolute", "gaussian"}
        A symmetric loss of residuals of `bsvr_pp.losses.LOSSES`. Here "huber" equals the soft insensitive noise, and
        the last two have no shape to learn.
    kernel : {"rational_quadratic", "main_effects", "rbf", "matern32", "matern52", "linear"} or callable
        A function is called inside the model with the inputs, and returns a kernel of `pm.gp.cov` for the whole f, with
        priors.

    Returns
    -------
    pm.Model
        The model with the data X, targets and thresholds, and the variables amplitude, inverse_lengthscale,
        inverse_alpha, mean_cutpoint, cutpoint_gaps, cutpoints, tails, C, epsilon, f, y.

    Raises
    ------
    ValueError
        If the data or an option are invalid.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-2, 2, 30)[:, None]
    >>> model = bp.classification.default_ordinal_model(X, np.digitize(X[:, 0], [-1.0, 0.5]))
    >>> result = bp.fit(bp.MeanField(), model, restarts=1, progressbar=False)
    >>> result["posterior"]["cutpoints"].shape[2:], result.attrs["converged"]
    ((2,), 1)
    """
    inputs, classes = checked_data(X, y, ard)
    odd = (classes < 0) | (classes != np.round(classes))
    if odd.any():
        raise ValueError(f"y must hold classes 0, 1, ..., got {classes[odd][0]:g}")
    if classes.min() == classes.max():
        raise ValueError(f"y must hold at least two classes, got only {classes[0]:g}")
    check_choice("noise of classes", noise, OF_CLASSES)
    check_kernel(kernel)
    return standard_ordinal_model(inputs, classes, int(classes.max()), noise, kernel)


def standard_ordinal_model(
    inputs: Inputs, y: Array, m: int, noise: str, kernel: Kernel, blocks: Partition | None = None
) -> pm.Model:
    """Make `default_ordinal_model` without checks: for a number m of cut points all data have one structure."""
    with pm.Model() as model:
        at, z = pm.Data("X", inputs.X), pm.Data("thresholds", class_thresholds(y, m))
        if callable(kernel):
            covariance, scale = inputs.made_by(kernel), 1.0
        else:
            amplitude = pm.HalfStudentT("amplitude", nu=3.0, sigma=AMPLITUDE)
            covariance = inputs.seen(covariance_of(kernel, inputs, lengthscales(inputs), amplitude**2, AMPLITUDE))
            scale = pt.sqrt(1.0 + amplitude**2)
        f = GP(cov_func=covariance).prior("f", X=at, blocks=blocks, jitter=1e-6, columns=inputs.names)
        middle = pm.Normal("mean_cutpoint", z.mean(), _SPREAD)
        points = middle[None]
        if m > 1:
            gaps = pm.LogNormal("cutpoint_gaps", pt.log(pt.diff(z)), _SPREAD, shape=m - 1)
            steps = pt.concatenate([[0.0], pt.cumsum(gaps)])
            points = middle + steps - steps.mean()  # the same in the reverse order
        cutpoints = pm.Deterministic("cutpoints", scale * points)
        observed = pm.Data("targets", y)
        Ordinal("y", mu=f, cutpoints=cutpoints, noise=noise, observed=observed, **shaped_noise(noise))
    return model


def class_thresholds(classes: Array, m: int) -> Array:
    """Return standard normal quantiles (m,) between the shares of the classes, with half a point more in each."""
    counts = np.bincount(classes.astype(np.intp), minlength=m + 1) + 0.5
    return np.asarray(norm.ppf(np.cumsum(counts)[:-1] / counts.sum()))


def shaped_noise(noise: str) -> dict[str, float | Tensor]:
    """Return parameters of noise of variance 1 in the surrounding model; its tails are free if there is a tube."""
    if noise not in _SMOOTH:
        return {"C": 1.0 if LOSSES[noise].degree == 2 else 2.0**0.5}
    tails = pm.Uniform("tails", _LIGHT, 1.0)
    tube, beta = 1.0 / tails - 1.0, _SMOOTH[noise]
    C = pm.Deterministic("C", pt.sqrt(unit_variance(tube, beta)))
    epsilon = pm.Deterministic("epsilon", tube / C)
    return {"C": C, "epsilon": epsilon} | ({"beta": beta} if "beta" in LOSSES[noise].parameters else {})
