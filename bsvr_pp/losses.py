"""Support vector losses and the noise models that they define.

Each loss is a table of convex quadratic pieces (`bsvr_pp.tables`); its noise density is exp(-C·loss(r)) divided by
the normaliser, and `NoiseModel` derives everything else from the table. One function a loss makes its noise model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp import _noise
from bsvr_pp.checks import generator, numbers
from bsvr_pp.pieces import Pieces, tilted_moments
from bsvr_pp.tables import LOSSES, Loss

__all__ = [
    "LOSSES",
    "Loss",
    "NoiseModel",
    "epsilon_insensitive",
    "gaussian",
    "hinge",
    "huber",
    "laplace",
    "pinball",
    "soft_insensitive",
]

Array = NDArray[np.float64]

_ALLOWED: dict[str, tuple[str, Callable[[Array], NDArray[np.bool_]]]] = {
    "C": ("> 0", lambda x: x > 0),
    "epsilon": (">= 0", lambda x: x >= 0),
    "beta": ("between 0 and 1", lambda x: (x >= 0) & (x <= 1)),
    "quantile": ("strictly between 0 and 1", lambda x: (x > 0) & (x < 1)),
}


def _checked(name: str, given: ArrayLike) -> float | Array:
    """A parameter as a float or a (n,) array, or a ValueError that says what is allowed."""
    try:
        value = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an (n,) array, got {given!r}") from None
    if value.ndim > 1 or value.size == 0:
        raise ValueError(f"{name} must be a number or an (n,) array, got shape {value.shape}")
    allowed, holds = _ALLOWED[name]
    bad = ~(np.isfinite(value) & holds(value))
    if bad.any():
        raise ValueError(f"{name} must be finite and {allowed}, got {np.atleast_1d(value)[np.atleast_1d(bad)][0]}")
    return float(value) if value.ndim == 0 else value


@dataclass(frozen=True)
class NoiseModel:
    """A loss with its parameters: the density exp(-C·loss(r))/Z of the residual r = y - f.

    Made by `soft_insensitive`, `epsilon_insensitive`, `huber`, `laplace`, `gaussian`, `pinball` and `hinge`. All
    methods work elementwise; where a parameter is an (n,) array the last axis of the argument runs over the n
    points. `hinge` describes labels, not residuals: its `loss` is max(0, r) with r = 1 - y·f, and it has neither
    cdf nor variance.

    Attributes
    ----------
    name : str
        Name of the loss.
    parameters : dict
        Name to float or (n,) array.

    Raises
    ------
    ValueError
        If a parameter is outside its range or the arrays differ in length.
    """

    kind: Loss
    parameters: Mapping[str, float | Array]

    def __post_init__(self) -> None:
        checked = {name: _checked(name, value) for name, value in self.parameters.items()}
        sizes = {name: np.size(value) for name, value in checked.items() if np.ndim(value)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"parameters of {self.name} must be numbers or arrays of one length, got {sizes}")
        object.__setattr__(self, "parameters", checked)

    @property
    def name(self) -> str:
        """Name of the loss, a key of `LOSSES`."""
        return self.kind.name

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{k}={v:g}" if np.ndim(v) == 0 else f"{k}=array of {np.size(v)}" for k, v in self.parameters.items()
        )
        return f"{self.name}({inside})"

    @property
    def n_points(self) -> int | None:
        """Length of the vector parameters, None if all are numbers."""
        return next((np.size(v) for v in self.parameters.values() if np.ndim(v)), None)

    def stacked_parameters(self) -> Array:
        """The parameters as a (p, k) array, k = 1 if all are numbers."""
        return np.ascontiguousarray(
            np.stack(np.broadcast_arrays(*(np.atleast_1d(v) for v in self.parameters.values())))
        ).astype(np.float64)

    def sites(self, y: ArrayLike) -> Pieces:
        """Energies of the data points, one row for all or a row a point.

        Parameters
        ----------
        y : (n,) array
            Targets; for `hinge` labels -1 and +1.

        Raises
        ------
        ValueError
            If y is not a finite vector of the parameters' length, or not labels for `hinge`.
        """
        targets = numbers("y", y, ("n",))
        if self.n_points not in (None, 1, targets.size):
            raise ValueError(
                f"parameters of {self.name} have {self.n_points} values, y has {targets.size}: they must agree"
            )
        if self.kind.classification and not np.isin(targets, (-1.0, 1.0)).all():
            odd = targets[~np.isin(targets, (-1.0, 1.0))][0]
            raise ValueError(f"y must hold the labels -1 and +1 for the {self.name} loss, got {odd}")
        return self.kind.table(self.stacked_parameters(), targets)

    @cached_property
    def _pieces(self) -> Pieces:
        """The table in the residual (hinge: in 1 - y·f)."""
        return self.kind.table(self.stacked_parameters(), np.ones(self.n_points or 1))

    def _rows(self, values: Array) -> tuple[Array, NDArray[np.intp], tuple[int, ...]]:
        """Flat argument, the row of the table for each element, and the shape to give back."""
        n, shape = self.n_points, self._shape(values)
        if n is None:
            return np.ravel(values), np.zeros(values.size, dtype=np.intp), shape
        return np.ravel(np.broadcast_to(values, shape)), np.ravel(np.broadcast_to(np.arange(n), shape)), shape

    def _shape(self, values: Array) -> tuple[int, ...]:
        """Shape of a result: that of the argument, its last axis running over the points where there are any."""
        n = self.n_points
        if n is not None and values.ndim and values.shape[-1] not in (1, n):
            raise ValueError(f"parameters of {self.name} have {n} values, the argument has shape {values.shape}")
        return values.shape if n is None else np.broadcast_shapes(values.shape, (n,))

    def _elementwise(self, function: Callable[..., Array], values: Array) -> Array:
        flat, rows, shape = self._rows(values)
        return np.reshape(function(flat, rows, self._pieces), shape)

    def _needs_residual(self, what: str) -> None:
        if self.kind.classification:
            raise TypeError(f"{self.name} is a loss of labels and has no {what}; use one of the regression losses")

    def loss(self, r: ArrayLike) -> Array:
        """Loss of the residual, without the factor C."""
        return self._elementwise(_noise.energies, numbers("r", r)) / self.parameters["C"]

    def derivative(self, r: ArrayLike) -> Array:
        """Derivative of the loss (the right-hand one at a kink)."""
        return self._elementwise(_noise.slopes, numbers("r", r)) / self.parameters["C"]

    def curvature(self, r: ArrayLike) -> Array:
        """Second derivative of the loss (the right-hand one at a knot; a kink counts as 0)."""
        return self._elementwise(_noise.curvatures, numbers("r", r)) / self.parameters["C"]

    def log_density(self, r: ArrayLike) -> Array:
        """Log density of the residual; for `hinge` the log of Q(y|f) of Sollich 2002, (4), at r = 1 - y·f."""
        return -self._elementwise(_noise.energies, numbers("r", r)) - self.log_normalizer

    @property
    def log_normalizer(self) -> float | Array:
        """Log of the integral of exp(-C·loss); for `hinge` log(1 + exp(-2C))."""
        value = self._pieces.log_normalizer
        return float(value[0]) if self.n_points is None else value

    @cached_property
    def _mean_variance(self) -> tuple[Array, Array]:
        self._needs_residual("mean or variance")
        moments: tuple[Array, Array] = _noise.mean_variance(self._pieces)
        return moments

    @property
    def mean(self) -> float | Array:
        """Mean of the noise; 0 but for `pinball`."""
        value = self._mean_variance[0]
        return float(value[0]) if self.n_points is None else value

    @property
    def variance(self) -> float | Array:
        """Variance of the noise (Chu, Keerthi & Ong 2004, (15))."""
        value = self._mean_variance[1]
        return float(value[0]) if self.n_points is None else value

    def cdf(self, r: ArrayLike) -> Array:
        """Probability that the residual is at most r."""
        self._needs_residual("cdf")
        return self._elementwise(_noise.cdf, numbers("r", r, infinite=True))

    def quantile(self, q: ArrayLike) -> Array:
        """Residual below which lies the probability q, 0 <= q <= 1.

        Raises
        ------
        ValueError
            If q is not between 0 and 1.
        """
        self._needs_residual("quantile")
        levels = numbers("q", q)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"q must be between 0 and 1, got {levels[~((levels >= 0) & (levels <= 1))].flat[0]}")
        return self._elementwise(_noise.quantile, levels)

    def predictive_cdf(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Probability that f + noise is at most y, for Gaussian f; only with parameters that are numbers.

        Parameters
        ----------
        y, mean, variance : (n,) arrays or numbers
            Targets, and mean and variance (>= 0) of f.
        """
        self._needs_residual("cdf")
        if self.n_points is not None:
            raise ValueError(f"predictive_cdf takes numbers as parameters, {self.name} has {self.n_points} values")
        t, m, v = _aligned(y=y, mean=mean, variance=variance)
        if not (v >= 0).all():
            raise ValueError(f"variance must be >= 0, got {v[~(v >= 0)].flat[0]}")
        flat = _noise.convolved_cdf(np.ravel(t), np.ravel(m), np.sqrt(np.ravel(v)), self._pieces)
        return np.reshape(flat, t.shape)

    def sample(
        self, size: int | tuple[int, ...] | None = None, random_seed: int | np.random.Generator | None = None
    ) -> Array:
        """Draws of the residual, by inversion of the cdf.

        Parameters
        ----------
        size : int or tuple, optional
            Shape of the result; with vector parameters its last axis runs over the points. By default one draw,
            or one a point.
        random_seed : int or Generator, optional
            Same seed, same draws.
        """
        self._needs_residual("sampler")
        if size is None:
            size = () if self.n_points is None else (self.n_points,)
        return self.quantile(generator(random_seed).random(size))

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Gaussian times site: log of its mass, and mean and variance of f under it.

        Parameters
        ----------
        mean, variance : (n,) arrays or numbers
            Of the Gaussian (the cavity) of f; variance > 0.
        y : (n,) array or number
            Targets.

        Returns
        -------
        log_mass, tilted_mean, tilted_variance : (n,) arrays
            log of Z = ∫ N(f; mean, variance) p(y|f) df (so the predictive density of y), and the moments of
            N(f)p(y|f)/Z. Chu et al. 2004 call for the first in (34); Gao et al. 2002 for all three in (3.7).

        Examples
        --------
        >>> from bsvr_pp.losses import gaussian
        >>> log_mass, mean, variance = gaussian(C=1.0).tilted(0.0, 1.0, 2.0)
        >>> round(float(mean), 10), round(float(variance), 10)
        (1.0, 0.5)
        """
        m, v, t = _aligned(mean=mean, variance=variance, y=y)
        if not (v > 0).all():
            raise ValueError(f"variance must be > 0, got {v[~(v > 0)].flat[0]}")
        n, shape = self.n_points, self._shape(m)
        m, v, t = (np.ravel(np.broadcast_to(a, shape)) for a in (m, v, t))
        if self.kind.classification or n is not None:
            noise = NoiseModel(
                self.kind,
                {k: np.ravel(np.broadcast_to(p, shape)) if np.ndim(p) else p for k, p in self.parameters.items()},
            )
            pieces = noise.sites(t)
        else:
            pieces = self._pieces
        log_mass, _, residual, tilted_variance, _ = tilted_moments(t - m, v, pieces)
        return (
            np.reshape(log_mass, shape),
            np.reshape(t - residual, shape),
            np.reshape(tilted_variance, shape),
        )


def _make(loss: str, **parameters: Any) -> NoiseModel:
    return NoiseModel(LOSSES[loss], parameters)


def _aligned(**given: ArrayLike) -> list[Array]:
    """Arguments as arrays of one shape."""
    arrays = {name: numbers(name, value) for name, value in given.items()}
    try:
        return [*np.broadcast_arrays(*arrays.values())]
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape, got {shapes}") from None


def soft_insensitive(C: ArrayLike, epsilon: ArrayLike, beta: ArrayLike) -> NoiseModel:
    """Soft insensitive loss (SILF) of Chu, Keerthi & Ong 2004, (11).

    With t = clip(|r| - (1-beta)·epsilon, 0, 2·beta·epsilon) the loss is
    t²/(4·beta·epsilon) + max(|r| - (1+beta)·epsilon, 0): zero in the tube, quadratic at its rim, linear outside.

    Parameters
    ----------
    C : float or (n,) array
        Inverse noise scale, > 0, in one over the target's units.
    epsilon : float or (n,) array
        Half-width of the tube, >= 0, in the target's units.
    beta : float or (n,) array
        Smooth fraction of the tube, 0 (ε-insensitive) to 1 (Huber).

    Raises
    ------
    ValueError
        If a parameter is outside its range or the arrays differ in length.

    Examples
    --------
    >>> from bsvr_pp.losses import soft_insensitive
    >>> noise = soft_insensitive(C=10.0, epsilon=0.1, beta=0.3)
    >>> round(noise.variance, 6)
    0.026785
    """
    return _make("soft_insensitive", C=C, epsilon=epsilon, beta=beta)


def epsilon_insensitive(C: ArrayLike, epsilon: ArrayLike) -> NoiseModel:
    """Vapnik's ε-insensitive loss max(|r| - epsilon, 0); parameters as in `soft_insensitive`.

    Examples
    --------
    >>> from bsvr_pp.losses import epsilon_insensitive
    >>> epsilon_insensitive(C=10.0, epsilon=0.1).loss([0.05, 0.3]).round(6).tolist()
    [0.0, 0.2]
    """
    return _make("epsilon_insensitive", C=C, epsilon=epsilon)


def huber(C: ArrayLike, epsilon: ArrayLike) -> NoiseModel:
    """Huber's loss as in Chu, Keerthi & Ong 2004, (10): r²/(4·epsilon) up to 2·epsilon, |r| - epsilon beyond.

    Examples
    --------
    >>> from bsvr_pp.losses import huber
    >>> huber(C=1.0, epsilon=0.5).loss([0.5, 2.0]).tolist()
    [0.125, 1.5]
    """
    return _make("huber", C=C, epsilon=epsilon)


def laplace(C: ArrayLike) -> NoiseModel:
    """Absolute loss |r|: Laplace noise of scale 1/C.

    Examples
    --------
    >>> from bsvr_pp.losses import laplace
    >>> round(laplace(C=2.0).variance, 12)
    0.5
    """
    return _make("laplace", C=C)


def gaussian(C: ArrayLike) -> NoiseModel:
    """Squared loss ½r²: Gaussian noise of precision C = 1/σ².

    Examples
    --------
    >>> from bsvr_pp.losses import gaussian
    >>> round(gaussian(C=4.0).variance, 12)
    0.25
    """
    return _make("gaussian", C=C)


def pinball(C: ArrayLike, quantile: ArrayLike) -> NoiseModel:
    """Pinball loss of quantile regression: quantile·r above 0, (quantile - 1)·r below; f is that quantile of y.

    The noise is the asymmetric Laplace density q(1-q)C·exp(-C·loss); its mean is not 0. Posteriors under it are
    a device to estimate a quantile and not calibrated statements of noise.

    Examples
    --------
    >>> from bsvr_pp.losses import pinball
    >>> round(float(pinball(C=3.0, quantile=0.2).cdf(0.0)), 12)
    0.2
    """
    return _make("pinball", C=C, quantile=quantile)


def hinge(C: ArrayLike) -> NoiseModel:
    """Hinge loss max(0, 1 - y·f) of labels y = ±1 (Sollich 2002, (4)), normalised by 1 + exp(-2C).

    Examples
    --------
    >>> from bsvr_pp.losses import hinge
    >>> hinge(C=2.0).loss([-0.5, 0.5]).tolist()
    [0.0, 0.5]
    """
    return _make("hinge", C=C)
