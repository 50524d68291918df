"""The methods of inference: small settings that are passed to `fit`, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.approximations import AnnealedPosterior, LatentPosterior, annealed, laplace, mean_field
from bsvr_pp.checks import check_count, check_share
from bsvr_pp.losses import NoiseModel

__all__ = ["MAP", "NUTS", "Annealed", "Approximation", "Laplace", "MeanField", "from_record", "to_record"]

Array = NDArray[np.float64]


class Approximation(Protocol):
    """A method that integrates the latent function out at given hyperparameters."""

    @property
    def name(self) -> str:
        """Name in tables."""

    @property
    def operation(self) -> str:
        """Key of `approximations.linked.APPROXIMATIONS`."""

    def solve(self, K: Array, y: Array, noise: NoiseModel, mean: Array) -> LatentPosterior:
        """Posterior of the latent function."""


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace's approximation around the mode (Chu, Keerthi & Ong 2004).

    Parameters
    ----------
    curvature : {"exact", "local"}
        "exact" as in the paper: sparse, but the evidence jumps in the hyperparameters; "local" integrates each site
        along the tilt of the prior: dense and continuous.

    Raises
    ------
    ValueError
        If curvature is neither.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Laplace().name, bp.Laplace(curvature="local").name
    ('Laplace', 'Laplace (local)')
    """

    curvature: Literal["exact", "local"] = "exact"

    def __post_init__(self) -> None:
        if self.curvature not in ("exact", "local"):
            raise ValueError(f"curvature must be 'exact' or 'local', got {self.curvature!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "Laplace" if self.curvature == "exact" else "Laplace (local)"

    @property
    def operation(self) -> str:
        """Key of `approximations.linked.APPROXIMATIONS`."""
        return "laplace" if self.curvature == "exact" else "laplace_local"

    def solve(self, K: Array, y: Array, noise: NoiseModel, mean: Array, jitter: float = 0.0) -> LatentPosterior:
        """Posterior of the latent function."""
        return laplace(K, y, noise, mean=mean, curvature=self.curvature, jitter=jitter)


@dataclass(frozen=True, slots=True)
class MeanField:
    """Mean field, or TAP (Gao, Gunn & Harris 2002), as expectation propagation: a smooth and accurate evidence.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.MeanField().name
    'mean field'
    """

    @property
    def name(self) -> str:
        """Name in tables."""
        return "mean field"

    @property
    def operation(self) -> str:
        """Key of `approximations.linked.APPROXIMATIONS`."""
        return "mean_field"

    def solve(self, K: Array, y: Array, noise: NoiseModel, mean: Array, jitter: float = 0.0) -> LatentPosterior:
        """Posterior of the latent function."""
        return mean_field(K, y, noise, mean=mean, jitter=jitter)


@dataclass(frozen=True, slots=True)
class Annealed:
    """Annealed estimate of the evidence at given hyperparameters: the yardstick of the approximations.

    Parameters
    ----------
    particles : int
        Particles in each group, at least 2.
    groups : int
        Independent groups, at least 2; their spread gives the standard error.
    moves : int
        Elliptical slice moves of each particle at each power of the path, at least 1.
    efficiency : float
        Effective share of the particles that a pilot run keeps from one power to the next, between 0 and 1.

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

    def __post_init__(self) -> None:
        for name, least in (("particles", 2), ("groups", 2), ("moves", 1)):
            check_count(name, getattr(self, name), least)
        check_share("efficiency", self.efficiency)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "annealed"

    def solve(self, K: Array, y: Array, noise: NoiseModel, mean: Array, rng: np.random.Generator) -> AnnealedPosterior:
        """Evidence with its standard error, and draws of the latent function."""
        return annealed(
            K,
            y,
            noise,
            mean=mean,
            particles=self.particles,
            groups=self.groups,
            moves=self.moves,
            efficiency=self.efficiency,
            random_seed=rng,
        )


@dataclass(frozen=True, slots=True)
class MAP:
    """The most probable latent function: the dual of support vector regression, without error bars of its own.

    It has no evidence: hyperparameters that are not given are those of the Laplace evidence.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.MAP().name
    'MAP'
    """

    @property
    def name(self) -> str:
        """Name in tables."""
        return "MAP"

    @property
    def operation(self) -> str:
        """Key of `approximations.linked.APPROXIMATIONS` for the hyperparameters."""
        return "laplace"

    def solve(self, K: Array, y: Array, noise: NoiseModel, mean: Array, jitter: float = 0.0) -> LatentPosterior:
        """Mode of the latent function, with the sites of Laplace's approximation (which MAP does not use)."""
        return laplace(K, y, noise, mean=mean, jitter=jitter)


@dataclass(frozen=True, slots=True)
class NUTS:
    """The No-U-Turn sampler, over hyperparameters and latent function or over the hyperparameters alone.

    Parameters
    ----------
    latent : Laplace or MeanField, optional
        How to integrate the latent function out; by default it is sampled as well.
    draws, tune : int
        Draws kept and draws of adaptation, per chain.
    chains : int
        Number of chains, at least 1; convergence can be judged from 2 on.
    sampler : {"nutpie", "pymc", "numpyro", "blackjax"}, optional
        By default nutpie.
    target_accept : float
        Acceptance rate that adaptation aims at.

    Raises
    ------
    ValueError
        If a number is out of range.
    TypeError
        If latent is not an approximation.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.NUTS(draws=200).name, bp.NUTS(latent=bp.MeanField()).name
    ('NUTS', 'NUTS (mean field)')
    """

    latent: Laplace | MeanField | None = None
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    sampler: str | None = None
    target_accept: float = 0.9

    def __post_init__(self) -> None:
        if self.latent is not None and not isinstance(self.latent, Laplace | MeanField):
            raise TypeError(f"latent must be Laplace(), MeanField() or None, got {self.latent!r}")
        for name, least in (("draws", 1), ("tune", 1), ("chains", 1)):
            check_count(name, getattr(self, name), least)
        check_share("target_accept", self.target_accept)
        if self.sampler not in (None, "nutpie", "pymc", "numpyro", "blackjax"):
            raise ValueError(f"sampler must be nutpie, pymc, numpyro or blackjax, got {self.sampler!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "NUTS" if self.latent is None else f"NUTS ({self.latent.name})"


def to_record(method: Laplace | MeanField | NUTS) -> dict[str, Any]:
    """A method as names and numbers, for a file."""
    record: dict[str, Any] = {"method": type(method).__name__, **asdict(method)}
    if isinstance(method, NUTS) and method.latent is not None:
        record["latent"] = to_record(method.latent)
    return record


def from_record(record: dict[str, Any]) -> Laplace | MeanField | NUTS:
    """The method that `to_record` wrote down."""
    options = {name: value for name, value in record.items() if name != "method"}
    if options.get("latent") is not None:
        options["latent"] = from_record(options["latent"])
    kinds: dict[str, Any] = {"Laplace": Laplace, "MeanField": MeanField, "NUTS": NUTS}
    method: Laplace | MeanField | NUTS = kinds[record["method"]](**options)
    return method
