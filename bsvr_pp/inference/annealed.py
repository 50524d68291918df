"""Annealing as a method: an unbiased evidence with a standard error, the reference for the approximations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import check_count, check_share, numbers
from bsvr_pp.approximations import AnnealedPosterior, BlockDiagonal, annealed, reverse_annealed
from bsvr_pp.approximations.smc import LogLikelihood
from bsvr_pp.inference.protocol import Capabilities, Evidence
from bsvr_pp.losses import NoiseModel

__all__ = ["Annealed"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Annealed:
    """Annealed estimate of the evidence at given hyperparameters: the reference for the approximations.

    Parameters
    ----------
    particles : int
        Number of particles in each group, at least 2.
    groups : int
        Number of independent groups, at least 2; their variation gives the standard error.
    moves : int
        Number of elliptical slice moves of each particle at each power of the path, at least 1.
    efficiency : float
        Ratio of the effective to the actual number of particles from one power to the next in the pilot run, between
        0 and 1.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Annealed(particles=200).name
    'annealed'
    """

    particles: int = 1000
    groups: int = 8
    moves: int = 5
    efficiency: float = 0.8

    capabilities: ClassVar[Capabilities] = Capabilities(runs=False, evidence=True, takes_draws=True)

    def __post_init__(self) -> None:
        for name, least in (("particles", 2), ("groups", 2), ("moves", 1)):
            check_count(name, getattr(self, name), least)
        check_share("efficiency", self.efficiency)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "annealed"

    def posterior(
        self,
        K: Any,
        y: Array | None,
        likelihood: NoiseModel | LogLikelihood,
        mean: Array,
        rng: np.random.Generator,
    ) -> AnnealedPosterior:
        """Draws of f and the log evidence; the arguments are those of `bsvr_pp.approximations.annealed`."""
        return annealed(
            K,
            y,
            likelihood,
            mean=mean,
            particles=self.particles,
            groups=self.groups,
            moves=self.moves,
            efficiency=self.efficiency,
            random_seed=rng,
        )

    def evidence(
        self,
        K: Any,
        y: Array,
        noise: NoiseModel,
        mean: Array,
        rng: np.random.Generator,
        draws: ArrayLike | None = None,
    ) -> Evidence:
        """Estimate the log evidence with its standard error.

        From exact ``draws`` (draws, n) of f, if given, the annealed path is followed in reverse: the expectation of
        that estimate is above the log evidence, that of the forward run below it.
        """
        if isinstance(K, BlockDiagonal):
            return self._by_block(K, y, noise, mean, rng, draws)
        forwards = self.posterior(K, y, noise, mean, rng)
        if draws is None:
            return Evidence(forwards.log_evidence, forwards.standard_error, True)
        value, error = reverse_annealed(
            draws, K, y, noise, forwards.powers, mean=mean, moves=self.moves, random_seed=rng
        )
        return Evidence(value, error, True)

    def _by_block(
        self, K: BlockDiagonal, y: Array, noise: NoiseModel, mean: Array, rng: np.random.Generator, draws: Any
    ) -> Evidence:
        """`evidence` as the sum of the estimates of all blocks, which are independent."""
        f = None if draws is None else numbers("draws", draws, ("draws", K.size))
        found = [
            self.evidence(K.part(b), y[rows], noise, mean[rows], rng, None if f is None else f[:, rows])
            for b, rows in enumerate(K.rows)
        ]
        error = float(np.sqrt(sum(each.standard_error**2 for each in found)))
        return Evidence(float(sum(each.value for each in found)), error, True)
