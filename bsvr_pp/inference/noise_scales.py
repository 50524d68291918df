"""Noise of several scales, chosen by the nearest rows of a new input.

One noise serves all rows of a model. In many data it is wider in some regions than in others, or most targets are
nearly exact and some are far off. Hyperparameters that have to serve all rows then give intervals that are too narrow
in one place and too wide in another. Here the noise of a new target is that of the model, wider by one of the factors
s = 1/16, 1/8, ..., 16, with the probability

    w_s ∝ π_s · exp(c · mean over the nearest rows of log p_s(y_i | the other rows)).

The weights π say how frequent a scale is apart from what the neighbours show, and c, the number of rows that count, how
far neighbours share it: with c = 0 the noise is one mixture for all rows, a density with another shape than that of the
model. Both maximise the log density of random training rows, each given its nearest rows without itself; or of all
rows, each given the others, if one posterior has all rows. The latent function stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from bsvr_pp._checks import check_count, check_positive, generator, is_number, numbers
from bsvr_pp.approximations.posterior import LatentPosterior
from bsvr_pp.inference.neighbours import moments_of_rows, nearest_others, nearest_rows, sample_weights
from bsvr_pp.inference.predictive import log_density
from bsvr_pp.inference.result import check_match, points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.noise import widened
from bsvr_pp.model.problem import Point, Problem, read_model

__all__ = [
    "NoiseScales",
    "check_scales",
    "densities_near",
    "densities_of_rows",
    "learn_noise_scales",
    "scales_at",
    "scales_of_posterior",
]

Array = NDArray[np.float64]

_FACTORS: Array = 2.0 ** np.arange(-4.0, 5.0)
_SHARED = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_ROWS = 2000  # training rows from which the weights are learned,
_PRIOR, _LEAST = 10.0, 0.1  # rows that stand for the noise of the model itself, and for each other scale beforehand,
_RARE = 1e-3  # and mean probability below which a scale is left out
_NONE = 1e-5  # probability at an input that counts as 0
_TINY = 1e-300  # smallest weight
_FEWEST, _NEAREST = 200, 64  # rows of a posterior of all rows, and nearest rows whose densities choose there


@dataclass(frozen=True, slots=True)
class NoiseScales:
    """Scales of the noise and their probabilities.

    Attributes
    ----------
    factors : (s,) array
        Factors of the width of the noise.
    weights : (s,) array
        Weight of each apart from what the neighbours show; the sum is one.
    shared : float
        Number of rows of a neighbourhood that count when their densities choose between the scales.

    Raises
    ------
    ValueError
        If factors and weights are not positive, or differ in number, or shared is negative.
    """

    factors: Array
    weights: Array
    shared: float

    def __post_init__(self) -> None:
        factors = numbers("factors", self.factors, ("s",))
        check_positive("factors", factors)
        check_positive("weights", numbers("weights", self.weights, (factors.size,)))
        if not (is_number(self.shared) and self.shared >= 0):
            raise ValueError(f"shared must be a number of at least 0, got {self.shared!r}")

    def at(self, log_density: Array) -> Array:
        """Probabilities (s, n_new) of the scales, from the mean log densities (n_new, s) of the nearest rows.

        Where these are not finite, since a solve failed, the probabilities are the weights.
        """
        known = np.where(np.isfinite(log_density).all(axis=1, keepdims=True), log_density, 0.0)
        probability = np.exp(log_softmax(np.log(self.weights) + self.shared * known, axis=1)).T
        probability[probability < _NONE] = 0.0
        return np.asarray(probability / probability.sum(axis=0))

    def record(self) -> dict[str, Any]:
        """The scales as plain data."""
        return {"factors": self.factors.tolist(), "weights": self.weights.tolist(), "shared": float(self.shared)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Make the scales from `record`."""
        return cls(np.array(record["factors"]), np.array(record["weights"]), float(record["shared"]))


def learn_noise_scales(
    result: xr.DataTree,
    *,
    model: pm.Model | None = None,
    neighbours: int = 64,
    random_seed: int | np.random.Generator | None = 0,
    progressbar: bool = False,
) -> NoiseScales:
    """Learn the scales of the noise for predictions from nearest rows, ``bp.predict(neighbours=, noise_scales=)``.

    2000 random training rows, each given its nearest rows without itself, choose the scales.

    Parameters
    ----------
    result : DataTree
        Result of an approximation that integrates f out at one point of the hyperparameters.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    neighbours : int
        Number of nearest rows.
    random_seed : int or Generator
        Random seed, of the choice of rows.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    NoiseScales

    Raises
    ------
    ValueError
        If the result has draws, is a mode, or does not belong to the model, or the model has weights, intervals or
        labels.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 20, 150)[:, None]
    >>> y = np.sin(X[:, 0]) + np.where(X[:, 0] < 10, 0.1, 0.8) * rng.normal(size=150)
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=pm.LogNormal("C", 1, 1), epsilon=0.1, beta=0.8, observed=y)
    ...     result = bp.fit(bp.MeanField(), hyperparameters={"C": 4.0}, progressbar=False)
    ...     scales = bp.learn_noise_scales(result, neighbours=20)
    ...     found = bp.predict(result, [[5.0], [15.0]], neighbours=20, noise_scales=scales)
    >>> bool(2 * found["y_variance"][0] < found["y_variance"][1])
    True
    """
    problem = read_model(model)
    check_match(problem, result)
    check_count("neighbours", neighbours, 1)
    rng = generator(random_seed)
    latent = result["latent_posterior"].to_dataset()
    if "dual_coef" not in latent or not latent["variance"].values.any():
        raise ValueError("result must be of an approximation that integrates f out, not draws or MAP")
    labels = problem.loss.targets.refusal("scales of the noise")
    if labels or problem.weight is not None or problem.ends.kind != "exact":
        raise ValueError("model must have exact targets without weights: scales of the noise are learned from them")
    (point,) = points_of(result["posterior"].to_dataset().isel(chain=[0], draw=[0]), problem.hyperparameters)
    return scales_at(problem, point, neighbours, rng, progress="scales of the noise" if progressbar else "")


def check_scales(scales: Any, neighbours: int | None) -> None:
    """Check the option of a prediction: TypeError if it is something else, ValueError without neighbours."""
    if scales is not None and not isinstance(scales, NoiseScales):
        raise TypeError(f"noise_scales must be what learn_noise_scales returns, or None, got {scales!r}")
    if scales is not None and neighbours is None:
        raise ValueError("noise_scales needs neighbours: scales of the noise are chosen by the nearest rows")


def scales_at(
    problem: Problem, point: Point, neighbours: int, rng: np.random.Generator, *, progress: str = ""
) -> NoiseScales:
    """Learn the scales of the noise from random training rows, each given its nearest rows without itself.

    The targets must be exact, without weights. Scales of which the mean probability is below 0.001 are left out.
    """
    n = problem.targets.size
    rows = np.sort(rng.choice(n, min(_ROWS, n), replace=False))
    mean, variance, of_others = moments_of_rows(problem, point, rows, neighbours, _FACTORS, progress=progress)
    noise, targets = problem.noise_at(point).at(rows), problem.targets[rows]
    own = _densities(mean, variance, noise, targets, _FACTORS)
    return _learned(own, of_others, np.ones(rows.size))


def scales_of_posterior(problem: Problem, point: Point, posterior: LatentPosterior) -> NoiseScales | None:
    """Learn the scales of the noise from a posterior of all rows, whose cavities predict each row from the others.

    The targets must be exact, in one block. None if there are fewer than 200 rows, of which little can be learned, or
    one scale is enough.
    """
    n = problem.targets.size
    if n < _FEWEST:
        return None
    own = densities_of_rows(problem, point, posterior, _FACTORS)
    near = nearest_others(problem, point, np.arange(n), min(_NEAREST, n // 4))
    weight = sample_weights(problem, point)
    found = _learned(own, own[near].mean(axis=1), np.ones(n) if weight is None else weight)
    return None if found.factors.size == 1 and found.factors[0] == 1.0 else found


def densities_of_rows(problem: Problem, point: Point, posterior: LatentPosterior, factors: Array) -> Array:
    """Log density (n, s) of each row given the others, if the noise were wider by each factor."""
    variance = np.maximum(posterior.cavity_variance, 0.0)
    return _densities(posterior.cavity_mean, variance, problem.noise_at(point), problem.targets, factors)


def _densities(mean: Array, variance: Array, noise: NoiseModel, targets: Array, factors: Array) -> Array:
    """Log densities (n, s) of targets for f of given moments; NaN where these are not finite."""
    out = np.full((mean.size, factors.size), np.nan)
    known = np.isfinite(mean + variance)
    given = mean[known], variance[known]
    for i, factor in enumerate(factors):
        out[known, i] = log_density(*given, widened(noise.at(known), factor), targets[known])
    return out


def densities_near(problem: Problem, point: Point, X: Array, densities: Array) -> Array:
    """Mean log densities (n_new, s) of the rows that are nearest to new inputs, from those of all rows."""
    near = nearest_rows(problem, point, X, min(_NEAREST, len(densities) // 4))
    return np.asarray(densities[near].mean(axis=1))


def _learned(own: Array, of_others: Array, weight: Array) -> NoiseScales:
    """The scales that maximise the log density of rows, ``own`` (m, s), given the mean of those near, ``of_others``.

    Rows whose solve failed are left out.
    """
    solved = np.isfinite(own + of_others).all(axis=1)
    own, of_others, weight = own[solved], of_others[solved], weight[solved]
    prior = np.where(_FACTORS == 1.0, _PRIOR, _LEAST)

    def loss(logits: Array, shared: float) -> tuple[float, Array]:
        """Minus the log density of the rows and the log prior, and its gradient."""
        chosen = log_softmax(logits + shared * of_others, axis=1)
        joint, log_weights = chosen + own, log_softmax(logits)
        total = logsumexp(joint, axis=1)
        gradient = weight @ (np.exp(joint - total[:, None]) - np.exp(chosen))
        gradient += prior - prior.sum() * np.exp(log_weights)
        return -float(weight @ total + prior @ log_weights), -gradient

    found = [minimize(loss, np.log(prior), args=(shared,), jac=True, method="L-BFGS-B") for shared in _SHARED]
    best = int(np.argmin([each.fun for each in found]))
    every = NoiseScales(_FACTORS, np.maximum(np.exp(log_softmax(found[best].x)), _TINY), _SHARED[best])
    kept = every.at(np.vstack([of_others, np.zeros(_FACTORS.size)])).mean(axis=1) >= _RARE
    return NoiseScales(_FACTORS[kept], every.weights[kept] / every.weights[kept].sum(), every.shared)
