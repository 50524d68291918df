"""NUTS as a method: over hyperparameters and latent function, or with the latent function integrated out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pymc as pm

from bsvr_pp._checks import check_count, check_share
from bsvr_pp.inference import sample
from bsvr_pp.inference.optimize import check_continuous
from bsvr_pp.inference.protocol import Approximation, Capabilities, Options, can
from bsvr_pp.inference.solution import Draws
from bsvr_pp.model.graphs import copying
from bsvr_pp.model.problem import ModelError, Point, Problem, read_model

__all__ = ["NUTS"]

_MOST_ROWS = 2000  # of full NUTS with blocks, for which the prior covariance of all rows is one dense matrix
_SAMPLERS = ("nutpie", "pymc", "numpyro", "blackjax")


@dataclass(frozen=True, slots=True)
class NUTS:
    """The No-U-Turn sampler, over hyperparameters and latent function or over the hyperparameters only.

    Parameters
    ----------
    latent : Laplace, MeanField or another approximation, optional
        Method that integrates the latent function out; by default it is sampled as well.
    draws, tune : int
        Numbers of draws and of adaptation steps, per chain.
    chains : int
        Number of chains, at least 1; convergence can be judged with 2 or more.
    sampler : {"nutpie", "pymc", "numpyro", "blackjax"}, optional
        Sampler; by default nutpie.
    target_accept : float
        Target acceptance rate of the adaptation.

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

    latent: Approximation | None = None
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    sampler: str | None = None
    target_accept: float = 0.9

    capabilities: ClassVar[Capabilities] = Capabilities(draws=True, gradient_based=True)

    def __post_init__(self) -> None:
        if self.latent is not None and not can(self.latent, "integrates"):
            raise TypeError(
                f"latent must be None or integrate f out, as Laplace() and MeanField() do, got {self.latent!r}"
            )
        for name, least in (("draws", 1), ("tune", 1), ("chains", 1)):
            check_count(name, getattr(self, name), least)
        check_share("target_accept", self.target_accept)
        if self.sampler not in (None, *_SAMPLERS):
            raise ValueError(f"sampler must be nutpie, pymc, numpyro or blackjax, got {self.sampler!r}")

    @property
    def name(self) -> str:
        """Name in tables."""
        return "NUTS" if self.latent is None else f"NUTS ({self.latent.name})"

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Draws:
        """Sample the variables that are not given."""
        rows = problem.targets.size
        if self.latent is None and problem.blocks is not None and rows > _MOST_ROWS:
            raise ModelError(
                f"NUTS() samples f at each of {rows} rows, and takes at most {_MOST_ROWS} rows in blocks: "
                "use NUTS(latent=MeanField())"
            )
        if given:
            with copying():
                problem = read_model(pm.do(problem.model, dict(given)))
        if self.sampler != "pymc":  # which takes other steps for discrete variables
            check_continuous(problem, given)
        samples = sample.draw(problem, self, rng, options)
        return Draws(problem, samples, given, sample.diagnosis(samples, problem.hyperparameters, self.draws))
