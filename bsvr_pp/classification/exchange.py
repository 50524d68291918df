"""Sampling hyperparameters from hyperprior times conditional evidence, without the normaliser N(X).

The exchange algorithm (Murray, Ghahramani & MacKay 2006): with a proposal go labels Y' drawn from the model at the
proposal, given that all are known, and in the acceptance ratio

    Q(Y|θ') Q(Y'|θ) / (Q(Y|θ) Q(Y'|θ'))

the normalisers of θ and θ' cancel. Labels are drawn by restarts, as Sollich (2002, section 2) draws his data, which
is exact; where that would take too long, by elliptical slices of one particle that is kept from step to step.
The naive evidences Q are those of mean field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from bsvr_pp.approximations import mean_field
from bsvr_pp.checks import check_count, generator
from bsvr_pp.classification.chaining import Path, prior_factor
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.kernel import LabelPrior
from bsvr_pp.classification.probability import label_probability
from bsvr_pp.compiler import threads_for
from bsvr_pp.losses import hinge

__all__ = ["ExchangeSamples", "exchange"]

Array = NDArray[np.float64]

_TARGET = 0.3  # share of proposals to accept, which the warm-up aims at


@dataclass(frozen=True, slots=True)
class ExchangeSamples:
    """Result of `exchange`.

    Attributes
    ----------
    logs : (draws, k) array
        Hyperparameters, as `LabelPrior` takes them.
    acceptance : float
        Share of the proposals that were accepted.
    exact : float
        Share of the auxiliary labels that were drawn by restarts.
    """

    logs: Array
    acceptance: float
    exact: float


def exchange(
    X: Array,
    y: Array,
    hyperprior: tuple[Array, Array],
    *,
    start: Array | None = None,
    draws: int = 500,
    warmup: int = 250,
    slices: int = 20,
    restarts: int = 2000,
    random_seed: int | np.random.Generator | None = None,
) -> ExchangeSamples:
    """Sample the hyperparameters of `LabelPrior`.

    Parameters
    ----------
    X : (n, d) array
        Inputs.
    y : (n,) array
        Labels -1 and +1.
    hyperprior : pair of arrays
        Mean and covariance of the logs of the hyperparameters.
    start : (k,) array, optional
        Where to begin, such as the end of `ascend`; the mean of the hyperprior by default.
    draws, warmup : int
        Steps that are kept, and steps before them, in which the size of the proposals adapts.
    slices : int
        Moves of the particle that draws labels where restarts fail.
    restarts : int
        Functions tried before that.
    random_seed : int or Generator, optional
        Same seed, same result.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.classification.ascent import default_logs
    >>> from bsvr_pp.classification.exchange import exchange
    >>> X = np.linspace(-1, 1, 6)[:, None]
    >>> found = exchange(X, np.sign(X[:, 0]), default_logs(1, True), draws=20, warmup=10, random_seed=1)
    >>> found.logs.shape, found.exact
    ((20, 5), 1.0)
    """
    for name, value, least in (("draws", draws, 1), ("warmup", warmup, 0), ("slices", slices, 1)):
        check_count(name, value, least)
    rng = generator(random_seed)
    center, covariance = hyperprior
    precision = np.linalg.inv(covariance)
    logs = np.array(center if start is None else start, dtype=np.float64)
    shape, log_scale = np.linalg.cholesky(covariance), np.log(0.5)
    labels = _Labels(y.size, slices, restarts, rng)

    def level(at: Array, prior: LabelPrior, K: Array) -> float:
        off = at - center
        return _naive(K, prior.C, y) - 0.5 * float(off @ precision @ off)

    with threads_for(y.size):
        prior = LabelPrior(logs)
        K = prior.covariance(X)
        present, accepted, kept = level(logs, prior, K), 0, np.empty((draws, logs.size))
        for step in range(-warmup, draws):
            moved = logs + np.exp(log_scale) * shape @ rng.standard_normal(logs.size)
            other = LabelPrior(moved)
            K_moved = other.covariance(X)
            proposed = level(moved, other, K_moved)
            ratio = -np.inf
            if np.isfinite(proposed):
                auxiliary = labels.draw(K_moved, other.C)
                ratio = proposed - present + _naive(K, prior.C, auxiliary) - _naive(K_moved, other.C, auxiliary)
            accept = np.log(rng.random()) < ratio
            if accept:
                logs, prior, K, present = moved, other, K_moved, proposed
            if step < 0:
                log_scale += (float(accept) - _TARGET) / np.sqrt(step + warmup + 1)
            else:
                kept[step] = logs
                accepted += int(accept)
    return ExchangeSamples(kept, accepted / draws, labels.exact)


def _naive(K: Array, C: float, y: Array) -> float:
    """Log naive evidence by mean field; -inf where it did not converge."""
    found = mean_field(K, y, hinge(C))
    return float(found.log_evidence) if found.converged else -np.inf


class _Labels:
    """Labels of the model at given hyperparameters, conditional on none being unknown."""

    def __init__(self, n: int, slices: int, restarts: int, rng: np.random.Generator) -> None:
        self.slices, self.restarts, self.rng = slices, restarts, rng
        self.white = rng.standard_normal((1, n))
        self.by_restart, self.total = 0, 0

    @property
    def exact(self) -> float:
        """Share of the draws by restarts."""
        return self.by_restart / max(self.total, 1)

    def draw(self, K: Array, C: float) -> Array:
        """Labels -1 and +1, (n,)."""
        L, factors = prior_factor(K), Factors("survival", C)
        f = self.rng.standard_normal((max(self.restarts, 1), len(K))) @ L.T
        survives = np.flatnonzero(np.log(self.rng.random(len(f))) < factors.log(f))
        self.total += 1
        if self.restarts and survives.size:
            self.by_restart += 1
            found = f[survives[:1]]
        else:
            found = self.white @ L.T
            found, _ = Path(L, factors, None).move(found, factors.log(found), 1.0, self.slices, self.rng)
        self.white = solve_triangular(L, found.T, lower=True).T
        return np.where(self.rng.random(len(K)) < label_probability(found[0], C), 1.0, -1.0)
