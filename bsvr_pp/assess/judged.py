"""A result together with its model: what judgements need of both, in the terms of the result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from rich.progress import track

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.inference.fitted import latent_posterior
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.result import check_match, check_result, points_of
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, read_model

__all__ = ["Judged"]

Array = NDArray[np.float64]


class Judged:
    """A result of `fit`, and its model (by default that of the surrounding ``with``); `check` compares the two."""

    def __init__(self, result: xr.DataTree, model: pm.Model | None = None) -> None:
        check_result("result", result)
        self._problem = problem = read_model(model)
        self.result = result
        self.model, self.target, self.targets = problem.model, problem.target, problem.targets
        self.hyperparameters, self.loss = problem.hyperparameters, problem.loss
        self.n_blocks = 1 if problem.blocks is None else len(problem.blocks)

    @property
    def method(self) -> Any:
        """The method of the result."""
        return method_of(self.result)

    def check(self, name: str = "result") -> None:
        """Raise a ValueError unless the result was computed from the model with its current data."""
        check_match(self._problem, self.result, name)

    def checked(self, given: Any) -> Point:
        """Check hyperparameters that a user gives, and convert them to arrays."""
        return self._problem.checked(given)

    def at_its_point(self) -> tuple[LatentPosterior, NoiseModel]:
        """Gaussian posterior of f and the noise, of a result at one point of the hyperparameters."""
        return latent_posterior(self._problem, self.result)

    def noise_at(self, point: Point) -> NoiseModel:
        """Noise of a new target."""
        return self._problem.noise_at(point)

    @cached_property
    def points(self) -> list[Point]:
        """The hyperparameters of each draw, chain after chain."""
        return points_of(self.result["posterior"].to_dataset(), self.hyperparameters)

    def rows_of(self, group: str, variable: str) -> Array:
        """A variable with a value for each draw and training point, as a (draws, n) array."""
        return np.reshape(self.result[group].to_dataset()[variable].values, (-1, self.targets.size))

    @property
    def f(self) -> Array:
        """Draws (draws, n) of the latent function."""
        return self.rows_of("posterior", self._problem.prior.name)

    def evenly(self, most: int) -> NDArray[np.intp]:
        """Positions of at most so many draws, evenly spaced among all."""
        total = len(self.points)
        return np.unique(np.linspace(0, total - 1, min(most, total)).astype(int))

    def at_draws(
        self, chosen: NDArray[np.intp], description: str = "", progressbar: bool = False
    ) -> Iterator[tuple[Any, Array, NoiseModel]]:
        """Prior covariance, prior mean and noise of the training rows at each of these draws of the hyperparameters."""
        for s in track(chosen, description=description, disable=not progressbar, transient=True):
            yield self._problem.at(self.points[s])
