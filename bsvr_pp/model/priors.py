"""Default priors, which follow the scale of the data, and the default model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.gp.cov import BaseCovariance
from scipy.stats import norm

from bsvr_pp.core.arrays import (
    Array,
    check_choice,
    check_order,
    check_share,
    check_spread,
    check_varies,
    names_of,
    numbers,
)
from bsvr_pp.core.losses import LOSSES
from bsvr_pp.core.losses.registry import NOISES
from bsvr_pp.model.blocks import Blocks, Partition
from bsvr_pp.model.distributions import observe
from bsvr_pp.model.gp import GP
from bsvr_pp.model.inputs import AS_GIVEN, Levels, Warped, Warping, WithLevels, columns_of_few_values, columns_to_warp
from bsvr_pp.model.kernels import MainEffects, RationalQuadratic
from bsvr_pp.model.matrices import OfProducts, ProductKernel
from bsvr_pp.model.row_kinds import Interval

Tied = tuple[int, ...] | None  # for each input the number of its hyperparameter group; None: each has its own; (): none
Kernel = (
    Literal["main_effects", "rational_quadratic", "rbf", "matern32", "matern52", "linear"]
    | Callable[[Array], BaseCovariance]
    | ProductKernel
)


class Inputs(NamedTuple):
    """Inputs X (n, d) of a model, and the data of its kernel on them.

    ``width`` (d,) are their standard deviations. With ``ard`` each has a lengthscale, shared by inputs with one number
    in ``tied``; ``levels`` are values that are also categories. With ``pairs`` main effects have products of two.
    """

    X: Array
    width: Array
    ard: bool
    tied: Tied = None
    levels: Levels = Levels()
    warping: Warping = AS_GIVEN
    pairs: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def standardised(cls, X: Array, **known: Any) -> Inputs:
        """Make inputs with standard deviations of one."""
        return cls(X, np.ones(X.shape[1]), **known)

    @property
    def first(self) -> NDArray[np.intp]:
        """The first input of each lengthscale."""
        return np.arange(self.width.size) if self.tied is None else np.unique(self.tied, return_index=True)[1]

    def made_by(self, function: Callable[[Array], BaseCovariance]) -> BaseCovariance:
        """Return the kernel that a function of the inputs makes."""
        made = function(self.X)
        if not isinstance(made, BaseCovariance):
            raise TypeError(f"kernel must return a kernel of pm.gp.cov, got {made!r}")
        return made

    def seen(self, kernel: BaseCovariance) -> BaseCovariance:
        """Convert a kernel of the inputs on their scales, and of the levels, to a kernel of the inputs."""
        d, q = self.width.size, len(self.levels.columns)
        if self.warping.columns:
            kernel = Warped(d + q, kernel, self.warping)
        return WithLevels(d, kernel, self.levels) if q else kernel


def _rational_quadratic(inputs: Inputs, ls: Any, variance: Any, scale: float) -> BaseCovariance:
    inverse_alpha = pm.HalfNormal("inverse_alpha", 1.0) + _LEAST
    return RationalQuadratic(inputs.width.size, ls, inverse_alpha, variance)


def _main_effects(inputs: Inputs, ls: Any, variance: Any, scale: float) -> BaseCovariance:
    width, levels = inputs.width, inputs.levels
    d, n, q = width.size, inputs.first.size, len(levels.columns)
    if n == 1:
        return _rational_quadratic(inputs, ls, variance, scale)
    sigma = _EFFECT * scale / np.sqrt(n)
    amplitude = of_inputs(pm.HalfStudentT("effect_amplitude", nu=3.0, sigma=sigma, shape=n), inputs.tied)
    inverse = pm.HalfStudentT("effect_inverse_lengthscale", nu=_TAIL, sigma=_SHORT)
    detail = pm.HalfNormal("effect_detail", 1.0)
    of_levels, rate = None, None
    if q:
        of_levels = pm.HalfStudentT("level_amplitude", nu=3.0, sigma=sigma, shape=q)
        rate = pm.HalfNormal("level_inverse_lengthscale", 1.0 / np.sqrt(n), shape=q) ** 2
    inverse_alpha = pm.HalfNormal("inverse_alpha", 1.0) + _LEAST
    product = RationalQuadratic(d + q, ls, inverse_alpha, variance, level_rate=rate)
    pairs = pm.HalfNormal("effect_pairs", 1.0) / sigma if inputs.pairs else 0.0
    effects = MainEffects(d + q, amplitude, width / inverse, detail=detail, level_amplitude=of_levels, pairs=pairs)
    return product + effects


def taken_by_main_effects(
    X: Array, tied: Tied, weight: ArrayLike, warping: bool, *, together: bool = False
) -> tuple[tuple[int, ...], Warping, bool]:
    """Return data of main effects from rows: columns of levels, scales of inputs, whether to have products."""
    scales = Warping.of(X, columns_to_warp(X, tied), weight, together=together) if warping else AS_GIVEN
    return columns_of_few_values(X, tied), scales, len(X) >= _OF_PAIRS


def _linear(inputs: Inputs, ls: Any, variance: Any, scale: float) -> BaseCovariance:
    d, q = inputs.width.size, len(inputs.levels.columns)
    product = pm.gp.cov.Linear(d, c=0.0)
    return variance * pm.gp.cov.WarpedInput(d + q, product, lambda x, ls: x / ls, args=(ls,), active_dims=range(d))


def _of_pymc(kernel: Any) -> Callable[..., BaseCovariance]:
    return lambda inputs, ls, variance, scale: variance * kernel(inputs.width.size, ls=ls)


# Kernels of inputs, a lengthscale and a variance; their own priors are relative to a scale. Tied inputs, such as the
# indicators of one column, share an amplitude of main effects, as they share a lengthscale.
KERNELS: dict[str, Callable[..., BaseCovariance]] = {
    "main_effects": _main_effects,
    "rational_quadratic": _rational_quadratic,
    "rbf": _of_pymc(pm.gp.cov.ExpQuad),
    "matern32": _of_pymc(pm.gp.cov.Matern32),
    "matern52": _of_pymc(pm.gp.cov.Matern52),
    "linear": _linear,
}


def covariance_of(kernel: str | ProductKernel, inputs: Inputs, ls: Any, variance: Any, scale: float) -> BaseCovariance:
    """Return the kernel of a name, or of inner products."""
    if isinstance(kernel, str):
        return KERNELS[kernel](inputs, ls, variance, scale)
    alpha = pm.HalfNormal("inverse_alpha", 1.0) + _LEAST if kernel.name == "rational_quadratic" else None
    return OfProducts(kernel, ls, variance, alpha)


_MEDIAN = 0.5
BIAS = 100.0  # variance of the constant kernel, relative to the mean square of the target
BETA = 0.8  # smooth fraction of the soft insensitive loss
_OF_NOISE = {"beta": BETA, "quantile": _MEDIAN}
_LEAST = 1e-4  # smallest inverse exponent of the rational quadratic kernel
_EFFECT, _SHORT = 0.7, 1.5  # scales of the amplitudes of main effects, and of their inverse lengthscale
_TAIL = 20.0  # degrees of freedom of inverse lengthscales: normal near 0, but f may oscillate often
_OF_PAIRS = 400  # number of rows from which main effects have products of two
_FEWEST = 10  # targets, below which equal ones have no meaning
_QUANTILES = (25.0, 10.0, 5.0)  # of the target, for its scale


def quantiles_of(values: Array, levels: ArrayLike, weight: ArrayLike = 1.0) -> Array:
    """Return quantiles of n values with weights > 0, by w/Σw; with equal weights as `numpy.quantile`.

    The quantile function of the weights is a step function. The quantile at level q is its mean over the levels from
    q·(1 - 1/n) to q·(1 - 1/n) + 1/n. Quantiles of -values are therefore mirror images.
    """
    q = np.asarray(levels, dtype=np.float64)
    times = np.broadcast_to(weight, values.shape)
    if (times == 1).all():
        return np.asarray(np.quantile(values, q))
    order = np.argsort(values)
    edges = np.append(0.0, np.cumsum(times[order]))
    low = q[..., None] * (1.0 - 1.0 / len(values))
    share = np.diff(np.clip(edges / edges[-1], low, low + 1.0 / len(values)), axis=-1)
    first = values[order[np.argmax(share > 0, axis=-1)]]  # differences from it keep their digits
    return np.asarray(first + (share * (values[order] - first[..., None])).sum(axis=-1) / share.sum(axis=-1))


def mostly_equal(y: Array, weight: ArrayLike = 1.0) -> bool:
    """Return whether a third or more of at least 10 targets have one value: no noise around f describes them."""
    times = np.bincount(np.unique(y, return_inverse=True)[1], np.broadcast_to(weight, y.shape))
    return len(y) >= _FEWEST and bool(times.max() >= (1.0 / 3.0 - 1e-9) * times.sum())


def location_and_scale(y: Array, weight: ArrayLike = 1.0) -> tuple[float, float]:
    """Return median, and standard deviation of a Gaussian with the same interquartile range (robust to errors).

    If half of the targets are equal, wider ranges of quantiles are used, and finally the standard deviation.
    """
    smallest, middle = 1e-12 * float(np.max(np.abs(y))), float(quantiles_of(y, 0.5, weight))
    for q in _QUANTILES:
        low, high = quantiles_of(y, [q / 100.0, 1.0 - q / 100.0], weight)
        if high - low > smallest:
            return middle, float(high - low) / float(-2.0 * norm.ppf(q / 100.0))
    times = np.broadcast_to(weight, y.shape)
    return middle, float(np.sqrt(np.average((y - np.average(y, weights=times)) ** 2, weights=times)))


def default_priors(X: ArrayLike, y: ArrayLike, *, ard: bool = True, noise: str = "soft_insensitive") -> dict[str, Any]:
    """Make the default hyperparameters in the surrounding model.

    With s the robust scale of y (`location_and_scale`) and w the standard deviation of an input, over d inputs:

    - ``amplitude`` ~ HalfStudentT(3, s), the standard deviation of f;
    - ``inverse_lengthscale`` ~ HalfStudentT(20, 1/(w·√d)), one per input with ``ard``; ``lengthscale`` is the inverse;
    - ``C`` ~ LogNormal(log(5/s), 1.5): the scale √2/C of the noise has the median 0.3 s and may be up to twenty times
      smaller or larger; if the loss grows as r², as for Gaussian noise of variance 1/C, LogNormal(log(12/s²), 2);
    - ``epsilon`` ~ LogNormal(log(0.1·s), 1.0), if the loss has this parameter.

    The priors of the noise are rows of `bsvr_pp.core.losses.registry.PARAMETERS`; docs/defaults.md explains them.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Targets.
    ard : bool
        Whether every input has its own lengthscale.
    noise : str
        Noise, as in `default_model`.

    Returns
    -------
    dict
        The amplitude, the lengthscale (a Deterministic) and the parameters of the noise by name.

    Raises
    ------
    ValueError
        If the shapes do not fit, y is constant, or the noise is unknown.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model() as model:
    ...     priors = bp.default_priors(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20.0))
    >>> sorted(priors), sorted(v.name for v in model.free_RVs)
    (['C', 'amplitude', 'epsilon', 'lengthscale'], ['C', 'amplitude', 'epsilon', 'inverse_lengthscale'])
    """
    inputs, targets = _regression_data(X, y, ard)
    check_choice("noise", noise, NOISES)
    ls, (_, scale) = lengthscales(inputs), location_and_scale(targets)
    return {"amplitude": _amplitude(scale), "lengthscale": ls} | _noise_priors(scale, noise)


def _amplitude(scale: float) -> Any:
    return pm.HalfStudentT("amplitude", nu=3.0, sigma=scale)


def of_inputs(values: Any, tied: Tied) -> Any:
    """Return a value for each input from a value for each lengthscale."""
    return values if tied is None else values[np.array(tied)]


def lengthscales(inputs: Inputs) -> Any:
    """Make inverse lengthscales with their prior in the surrounding model, and return the lengthscales."""
    first = inputs.first
    scale = 1.0 / (inputs.width[first] * np.sqrt(first.size))
    if inputs.ard and first.size > 1:
        inverse = of_inputs(
            pm.HalfStudentT("inverse_lengthscale", nu=_TAIL, sigma=scale, shape=first.size), inputs.tied
        )
    else:
        inverse = pm.HalfStudentT("inverse_lengthscale", nu=_TAIL, sigma=float(np.exp(np.mean(np.log(scale)))))
    return pm.Deterministic("lengthscale", 1.0 / inverse)


def _noise_priors(scale: float, noise: str) -> dict[str, Any]:
    priors = {}
    for name in LOSSES[noise].parameters:
        parameter = LOSSES[noise].parameter(name)
        if parameter.prior is not None:
            median, sd = parameter.prior
            priors[name] = pm.LogNormal(name, np.log(median * scale**parameter.power), sd)
    return priors


def default_model(
    X: ArrayLike,
    y: ArrayLike,
    *,
    ard: bool = True,
    noise: str = "soft_insensitive",
    kernel: Kernel = "rational_quadratic",
    beta: float | None = None,
    quantile: float = _MEDIAN,
    warping: bool = True,
    blocks: Blocks | None = None,
) -> pm.Model:
    """Make a support vector model with default priors: y = f(X) + noise.

    The kernel is amplitude²·k(x, x') plus a constant of 100 times a robust mean square of y. (Chu, Keerthi & Ong 2004,
    (41), fix the amplitude.) k is 1 at distance 0. For "linear", k is x·x' of the scaled inputs, without amplitude. The
    rational quadratic kernel has ``inverse_alpha`` ~ HalfNormal(1). The other priors are as in `default_priors`.

    Parameters
    ----------
    X, y, ard
        As in `default_priors`.
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "absolute", "gaussian", "pinball"}
        A loss of residuals of `bsvr_pp.losses.LOSSES`. "pinball" is `pm.AsymmetricLaplace`: f is a quantile of y.
    kernel : {"rational_quadratic", "main_effects", "rbf", "matern32", "matern52", "linear"} or callable
        With several inputs "main_effects" adds `bp.cov.MainEffects` to the rational quadratic kernel. It has an
        amplitude ``effect_amplitude`` ~ HalfStudentT(3, 0.7·s/√d) for each input, one lengthscale w/u with u =
        ``effect_inverse_lengthscale`` ~ HalfStudentT(20, 1.5), and ``effect_detail`` ~ HalfNormal(1). Products of two,
        from 400 rows, have ρ = ``effect_pairs``·√d/(0.7·s), ``effect_pairs`` ~ HalfNormal(1). A function is called
        inside the model with the inputs, and returns a kernel of `pm.gp.cov` with priors; only the constant kernel is
        added.
    beta : float, optional
        Smooth fraction, only for the soft insensitive loss; by default 0.8.
    quantile : float
        Level of the quantile between 0 and 1, only for pinball noise.
    warping : bool
        Whether a kernel with main effects has scales of the inputs. Each input x with at least three values becomes x +
        w·(g(x) - x), with ``warping`` w ~ Uniform(0, 1) and its Yeo-Johnson transform g (docs/defaults.md).
    blocks : Blocks, optional
        Blocks of rows between which f is independent, as from `bp.local_blocks`, for many rows.

    Returns
    -------
    pm.Model
        The model with the data X, targets (and beta), and the variables amplitude, inverse_lengthscale, inverse_alpha,
        C, epsilon, f, y.

    Raises
    ------
    ValueError
        If the data or an option are invalid.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> model = bp.default_model(np.linspace(0, 1, 20)[:, None], np.sin(np.arange(20.0)))
    >>> sorted(v.name for v in model.free_RVs)
    ['C', 'amplitude', 'epsilon', 'f_rotated_', 'inverse_alpha', 'inverse_lengthscale']
    """
    known, targets = _regression_data(X, y, ard)
    check_choice("noise", noise, NOISES)
    check_kernel(kernel)
    check_ard(kernel, ard)
    if beta is not None:
        check_share("beta", beta, closed=True)
    check_share("quantile", quantile)
    check_unused(noise, beta=beta, quantile=quantile)
    if kernel == "main_effects":
        levels, scales, pairs = taken_by_main_effects(known.X, None, 1.0, warping)
        known = known._replace(levels=Levels.of(known.X, levels), warping=scales, pairs=pairs)
    of_noise = {"beta": BETA if beta is None else beta, "quantile": quantile}
    return standard_model(known, targets, noise, kernel, of_noise=of_noise, blocks=blocks)


def standard_model(
    inputs: Inputs,
    y: Array,
    noise: str = "soft_insensitive",
    kernel: Kernel = "rational_quadratic",
    *,
    of_noise: Mapping[str, float] = _OF_NOISE,
    scale: tuple[float, float] | None = None,
    blocks: Partition | None = None,
    of_targets: Mapping[str, Array] = {},
) -> pm.Model:
    """Make `default_model` without checks, of inputs that may be tied.

    ``of_noise`` has the beta and the quantile; the noise uses its own parameters. ``scale`` is the robust standard
    deviation and mean square of the targets, by default of y. ``of_targets`` has sample weights, "weight", or the ends
    of intervals, "lower" and "upper"; y is then one number of each interval.
    """
    if scale is None:
        location, unit = location_and_scale(y)
        scale = unit, location**2 + unit**2
    unit, square = scale
    with pm.Model() as model:
        at = pm.Data("X", inputs.X)
        if callable(kernel):
            covariance = inputs.made_by(kernel)
        else:
            variance = unit**2 if getattr(kernel, "name", kernel) == "linear" else _amplitude(unit) ** 2
            covariance = inputs.seen(covariance_of(kernel, inputs, lengthscales(inputs), variance, unit))
        gp = GP(cov_func=covariance + pm.gp.cov.Constant(BIAS * square))
        f = gp.prior("f", X=at, blocks=blocks, jitter=1e-6 * unit**2, columns=inputs.names)
        parameters = {**of_noise, **_noise_priors(unit, noise)}
        if "beta" in LOSSES[noise].parameters:
            parameters["beta"] = pm.Data("beta", float(of_noise["beta"]))
        named = {name: parameters[name] for name in LOSSES[noise].parameters}
        observed = pm.Data("targets", y)
        known = {name: pm.Data(name, values) for name, values in of_targets.items()}
        if "lower" in known:
            Interval("y", f, **known, **named, noise=noise, observed=observed)
        else:
            observe("y", noise, f, named, observed, known)
    return model


def check_unused(noise: str, *, beta: Any, quantile: float) -> None:
    """Check that no option is given that the noise would ignore."""
    if beta not in (None, "auto") and "beta" not in LOSSES[noise].parameters:
        raise ValueError(f"beta is an option of soft_insensitive noise, got beta={beta!r} with {noise} noise")
    if quantile != _MEDIAN and "quantile" not in LOSSES[noise].parameters:
        raise ValueError(f"quantile is an option of pinball noise, got quantile={quantile!r} with {noise} noise")


def check_kernel(kernel: Any, *more: str) -> None:
    """Check that a kernel is a name, also one of ``more``, or a function."""
    names = [*more, *KERNELS]
    if not callable(kernel) and not (isinstance(kernel, str) and kernel in names):
        raise ValueError(f"kernel must be {', '.join(names)} or a function of the inputs, got {kernel!r}")


def check_ard(kernel: object, ard: object) -> None:
    """Check that ``ard`` has an effect: a kernel function or matrix ignores it."""
    if not ard and kernel not in (*KERNELS, "auto"):
        raise ValueError(f"ard is an option of kernels with lengthscales, got ard=False with kernel={kernel!r}")


def _regression_data(X: ArrayLike, y: ArrayLike, ard: bool) -> tuple[Inputs, Array]:
    """Return checked inputs, and targets that are not classes."""
    inputs, targets = checked_data(X, y, ard)
    check_spread("y", targets)
    check_varies("y", targets)
    return inputs, targets


def checked_data(X: ArrayLike, y: ArrayLike, ard: bool) -> tuple[Inputs, Array]:
    """Return checked inputs, with the standard deviation of each, 1 for a constant one, and targets."""
    inputs = numbers("X", X, ("n", "d"))
    targets = numbers("y", y, (len(inputs),))
    check_order(X, y=y)
    check_spread("X", inputs)
    width = np.std(inputs, axis=0)
    return Inputs(inputs, np.where(width > 0, width, 1.0), ard, names=names_of(X)), targets
