"""Ascent of the evidence by gradients that are posterior averages (Sollich 2002, end of section 5).

The gradient of the naive part is that of mean field, whose sites go from step to step. That of a normaliser is an
average over its own density of f, held as a cloud of particles that is moved by a few elliptical slices after each
step, and chained anew now and then and whenever C has moved: where C is large slices are slow, and a cloud that lags
behind would let C run away. The steps are Adam's (Kingma & Ba 2015), shrinking; the result is the average of the last
third of them. A step costs O(n³).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from bsvr_pp.approximations import EvidencePath
from bsvr_pp.checks import generator
from bsvr_pp.classification.chaining import Path, cloud, prior_factor
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.gradient import MassGradient, mass_gradient
from bsvr_pp.classification.kernel import LabelPrior
from bsvr_pp.losses import hinge

__all__ = ["NORMALIZERS", "ascend", "default_logs"]

Array = NDArray[np.float64]
Kind = Literal["naive", "conditional", "joint"]

NORMALIZERS = {"conditional": "survival", "joint": "mean_survival"}
_SLICES = 4  # moves of each particle a step
_RENEWAL = 10  # steps after which the particles are chained anew,
_DRIFT = 0.4  # or change of log C
_DECAY, _DECAY_SQUARE = 0.8, 0.95


def default_logs(n_inputs: int, ard: bool) -> tuple[Array, Array]:
    """Mean and covariance of the normal hyperprior of the logs, for inputs of unit variance.

    C lies around log 2 within a factor e: there ν, the probability of a label to be known, has at f = 0 the 0.8 that
    it has far out, and the model is nearest to one of plain sigmoid labels. The amplitude and the variance of the
    slopes lie around 10 within e³, which puts log odds at a few units, and the variance of the offset around 1 within
    e; the length scales around the typical distance √(2d) within e³, and around each other within √e.
    """
    m = n_inputs if ard else 1
    center = np.concatenate([np.log([np.log(2.0), 10.0, 1.0, 10.0]), np.full(m, 0.5 * np.log(2.0 * n_inputs))])
    covariance = np.diag(np.concatenate([[1.0, 9.0, 1.0, 9.0], np.full(m, 0.25)]))
    covariance[4:, 4:] += 9.0
    return center, covariance


def ascend(
    X: Array,
    y: Array,
    hyperprior: tuple[Array, Array],
    *,
    kind: Kind = "conditional",
    steps: int = 50,
    particles: int = 100,
    rate: float = 0.2,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[LabelPrior, Array]:
    """Maximise evidence times hyperprior.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Labels -1 and +1.
    hyperprior : pair of arrays
        Mean and covariance of the logs of the hyperparameters; the mean is the start.
    kind : {"conditional", "joint", "naive"}
        The evidence.
    steps, particles : int
        Steps of the ascent, and particles of the normaliser.
    rate : float
        Size of the first steps, in logs.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    LabelPrior, (steps, k) array
        The optimum, and the path that led there.
    """
    rng = generator(random_seed)
    center, precision = hyperprior[0], np.linalg.inv(hyperprior[1])
    logs, first, second = center.copy(), np.zeros(center.size), np.zeros(center.size)
    white: Array = np.empty((0, y.size))
    trace = np.empty((steps, center.size))
    renewed, log_C, posterior = -_RENEWAL, logs[0], EvidencePath("mean_field")
    for step in range(steps):
        prior = LabelPrior(logs)
        K, C = prior.covariance(X), prior.C
        value, found = posterior.gradient(K, y, hinge(C), jitter=prior.jitter)
        total = MassGradient(found.K, found.parameters["C"])
        if kind != "naive":
            factors = Factors(NORMALIZERS[kind], C)
            if step - renewed >= _RENEWAL or abs(logs[0] - log_C) > _DRIFT:
                renewed, log_C = step, logs[0]
                f = cloud(K, factors, particles, 0.8, rng)
                white = solve_triangular(prior_factor(K), f.T, lower=True).T
            normalizer, white = _normalizer_gradient(K, factors, white, rng)
            total = total.minus(normalizer)
        gradient = precision @ (center - logs)
        if np.isfinite(value):
            gradient += prior.gradient(X, total)
        first += (1 - _DECAY) * (gradient - first)
        second += (1 - _DECAY_SQUARE) * (gradient**2 - second)
        unbiased = first / (1 - _DECAY ** (step + 1))
        size = np.sqrt(second / (1 - _DECAY_SQUARE ** (step + 1))) + 1e-12
        logs = logs + rate * min(1.0, 2.0 * (1.0 - step / steps)) * unbiased / size
        trace[step] = logs
    return LabelPrior(trace[-max(steps // 3, 1) :].mean(axis=0)), trace


def _normalizer_gradient(
    K: Array, factors: Factors, white: Array, rng: np.random.Generator
) -> tuple[MassGradient, Array]:
    """Gradient of log N from the particles, which stand whitened, so that they follow a change of K."""
    L = prior_factor(K)
    f = white @ L.T
    f, _ = Path(L, factors, None).move(f, factors.log(f), 1.0, _SLICES, rng)
    return mass_gradient(K, factors, f), solve_triangular(L, f.T, lower=True).T
