"""Sampling of the hyperparameters of labels without the normaliser N(X) (docs/explanation/normalisation.md).

The exchange algorithm (Murray et al. 2006) has the acceptance ratio p(θ') Q(Y|θ') Q(Y'|θ) / (p(θ) Q(Y|θ) Q(Y'|θ')). For
labels Y' drawn at θ' the normalisers cancel. The draws are exact by restarts (Sollich 2002, section 2), or else by
slice moves of a function. Proposals are adaptive random walks (Haario, Saksman & Tamminen 2001).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from arviz_base import from_dict
from rich.progress import Progress

from bsvr_pp.classification.normalised_evidence import LabelPrior
from bsvr_pp.classification.normaliser import EvidenceKind, Known
from bsvr_pp.core.approximations import mean_field, smc
from bsvr_pp.core.arrays import Array, check_count
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import Covariance
from bsvr_pp.core.losses import hinge
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.fitted import Fitted, fitted_draws
from bsvr_pp.inference.protocol import Options, attributes_of
from bsvr_pp.inference.recover import recover
from bsvr_pp.inference.result import from_samples
from bsvr_pp.inference.sampling.nuts import diagnosis
from bsvr_pp.model.problem import Point, Problem

_ACCEPTED = 0.3  # target acceptance rate of the tuning
_RIDGE = 1e-3  # variance that is added to the covariance of the proposals
_BLOCK = 250  # number of functions tried together
_LEAST_ESS = 100  # smallest number of effective draws per chain


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange algorithm: hyperparameters of labels under their conditional evidence (Sollich 2002, (25)).

    Parameters
    ----------
    draws, tune : int
        Numbers of draws and of adaptation steps, per chain.
    chains : int
        Number of chains, at least 1; convergence can be judged with 2 or more.
    steps : int
        Number of proposals for each draw.
    restarts : int
        Number of functions tried to draw exact labels; 0 uses only slice moves.
    slices : int
        Number of slice moves of the function that draws labels if restarts fail.

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    ``sample_stats`` of the result has three numbers for each draw. ``acceptance_rate`` is the share of accepted
    proposals, ``exact`` the share of auxiliary labels from restarts, and ``lp`` the log of hyperprior times naive
    evidence. ``converged`` requires an R-hat of at most 1.01 and 100 effective draws per chain.

    References
    ----------
    Murray I., Ghahramani Z. & MacKay D. (2006). "MCMC for doubly-intractable distributions". UAI.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.classification.Exchange(draws=200).name
    'exchange'
    """

    draws: int = 500
    tune: int = 500
    chains: int = 4
    steps: int = 5
    restarts: int = 2000
    slices: int = 20

    name: ClassVar[str] = "exchange"
    latent: ClassVar[MeanField] = MeanField()  # integrates the latent function out
    kind: ClassVar[EvidenceKind] = "conditional"

    def __post_init__(self) -> None:
        least = {"draws": 1, "tune": 0, "chains": 1, "steps": 1, "restarts": 0, "slices": 1}
        for name, value in least.items():
            check_count(name, getattr(self, name), value)

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Fitted:
        """Sample the hyperparameters that are not given, and f."""
        free = [name for name in problem.hyperparameters if name not in given]
        if not free:
            raise ValueError("hyperparameters must leave something to sample, got a value for each of them")
        prior = LabelPrior(problem, given, self.latent)
        chains = []
        with Progress(transient=True, disable=not options.progressbar) as progress, threads_for(problem.targets.size):
            task = progress.add_task("exchange", total=self.chains * (self.tune + self.draws))
            for child in rng.spawn(self.chains):
                chains.append(_chain(prior, problem.targets, self, child, lambda: progress.advance(task)))
        groups = {
            group: {name: np.stack([chain[group][name] for chain in chains]) for name in found}
            for group, found in chains[0].items()
        }
        samples = recover(problem, from_dict(groups), self.latent, rng, options.progressbar)
        found = diagnosis(samples, free, self.draws, _LEAST_ESS * self.chains) | attributes_of(self)
        return fitted_draws(problem, from_samples(problem, samples, {}, found, rng))


class _State(NamedTuple):
    """A state of a chain: unconstrained hyperparameters, covariance, C, and log of prior times naive evidence."""

    x: Array
    K: Covariance
    C: float
    log_posterior: float


def _chain(
    prior: LabelPrior, y: Array, method: Exchange, rng: np.random.Generator, report: Callable[[], None]
) -> dict[str, dict[str, Array]]:
    """Run one chain; return groups of hyperparameters and statistics."""
    labels = _Labels(y.size, method, rng)

    def state(x: Array) -> _State:
        K, C, log_prior = prior.at(x)
        return _State(x, K, C, log_prior + _naive(K, C, y) if np.isfinite(log_prior) else -np.inf)

    # Chains start from different points.
    starts = [prior.start + spread * rng.uniform(-1.0, 1.0, prior.start.size) for spread in (1.0, 0.5, 0.1, 0.0)]
    present = next((s for s in map(state, starts) if np.isfinite(s.log_posterior)), state(prior.start))
    walk = _RandomWalk(prior.start.size, rng)
    points: list[Point] = []
    stats = np.empty((3, method.draws))
    for draw in range(-method.tune, method.draws):
        accepted, exact = 0, 0
        for _ in range(method.steps):
            moved, ratio = state(walk.proposal(present.x)), -np.inf
            if np.isfinite(moved.log_posterior):
                auxiliary, by_restart = labels.draw(moved.K, moved.C)
                exact += by_restart
                exchanged = _naive(present.K, present.C, auxiliary) - _naive(moved.K, moved.C, auxiliary)
                ratio = moved.log_posterior - present.log_posterior + exchanged
            else:
                exact += 1  # labels are not needed here
            accept = bool(np.log(rng.random()) < ratio)
            present, accepted = (moved if accept else present), accepted + accept
            if draw < 0:
                walk.learn(present.x, accept)
        if draw >= 0:
            points.append(prior.unpack(present.x))
            stats[:, draw] = accepted / method.steps, exact / method.steps, present.log_posterior
        report()
    posterior = {name: np.array([point[name] for point in points]) for name in points[0]}
    return {"posterior": posterior, "sample_stats": dict(zip(("acceptance_rate", "exact", "lp"), stats, strict=True))}


def _naive(K: Covariance, C: float, y: Array) -> float:
    """Return the log naive evidence by mean field; -inf if it did not converge."""
    found = mean_field(K, y, hinge(C))
    return float(found.log_evidence) if found.converged else -np.inf


class _RandomWalk:
    """Normal proposals, whose size and covariance are adapted to the chain so far."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._factor, self._rng = np.eye(size), rng
        self._log_scale, self._since = np.log(0.5), 0
        self._history: list[Array] = []
        self._next = 20 * size

    def proposal(self, x: Array) -> Array:
        return x + np.exp(self._log_scale) * self._factor @ self._rng.standard_normal(x.size)

    def learn(self, x: Array, accepted: bool) -> None:
        """Adapt the size to the acceptance rate, and at regular intervals the covariance to the chain."""
        self._since += 1
        self._log_scale += (accepted - _ACCEPTED) / np.sqrt(self._since)
        self._history.append(x)
        if len(self._history) == self._next:
            recent = np.array(self._history[self._next // 2 :])
            covariance = np.atleast_2d(np.cov(recent.T)) + _RIDGE * np.eye(x.size)
            self._factor, self._next = np.linalg.cholesky(covariance), 2 * self._next
            self._log_scale, self._since = np.log(2.38 / np.sqrt(x.size)), 0


class _Labels:
    """Draws of labels at given hyperparameters, given that all are known."""

    def __init__(self, n: int, method: Exchange, rng: np.random.Generator) -> None:
        self._method, self._rng = method, rng
        self._white = rng.standard_normal((n, 1))

    def draw(self, K: Covariance, C: float) -> tuple[Array, bool]:
        """Draw labels -1 and +1, (n,), and return whether they are exact."""
        path, exact = smc.Path(Known(C), np.zeros(K.size), K), False
        for tried in range(0, self._method.restarts, _BLOCK):  # functions from the prior until all labels are known
            f = path.draw(min(_BLOCK, self._method.restarts - tried), self._rng)
            found = np.flatnonzero(np.log(self._rng.random(len(f))) < path.log_ratio(f))
            if found.size:
                f, exact = f[found[:1]], True
                break
        else:
            f = np.ascontiguousarray(K.unwhiten(self._white).T)
            f, _ = path.move(f, path.log_ratio(f), 1.0, self._method.slices, self._rng)
        self._white = K.whiten(f.T)
        return np.where(self._rng.random(K.size) < label_probability(f[0], C), 1.0, -1.0), exact
