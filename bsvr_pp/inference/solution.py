"""The output of a method, which is converted to a result: a posterior at one point, or draws."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.inference.optimize import Optimum
from bsvr_pp.inference.result import from_latent, from_samples
from bsvr_pp.model.problem import Point, Problem

__all__ = ["AtPoint", "Draws"]


class AtPoint(NamedTuple):
    """Posterior of the latent function at one point of the hyperparameters; with ``plug_in`` it is only its mode.

    ``optima`` are the end points of all starts of the optimiser, best first; none if all hyperparameters were given.
    ``diagnostics`` are attributes of the result, besides those below or in their place.
    """

    point: Point
    posterior: LatentPosterior
    optima: list[Optimum]
    plug_in: bool = False
    diagnostics: Mapping[str, Any] = MappingProxyType({})

    def diagnosis(self) -> dict[str, Any]:
        """Log evidence, convergence and the message of the optimiser."""
        converged = self.posterior.converged and (not self.optima or self.optima[0].converged)
        return {
            "log_evidence": float(self.posterior.log_evidence),
            "converged": int(converged),
            "message": self.optima[0].message if self.optima else "hyperparameters were given",
            **self.diagnostics,
        }

    def tree(self, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator) -> xr.DataTree:
        """The result."""
        return from_latent(problem, self.point, self.posterior, self.optima, attributes, plug_in=self.plug_in, rng=rng)


class Draws(NamedTuple):
    """Draws of f and of the hyperparameters that were not given, as PyMC returns them, and attributes of the result.

    The problem is the model that was sampled, without the given hyperparameters.
    """

    problem: Problem
    samples: xr.DataTree
    given: Point
    diagnostics: dict[str, Any]

    def diagnosis(self) -> dict[str, Any]:
        """R-hat, effective sample size and other diagnostics of the sampler."""
        return self.diagnostics

    def tree(self, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator) -> xr.DataTree:
        """The result."""
        return from_samples(self.problem, self.samples, self.given, attributes, rng)
