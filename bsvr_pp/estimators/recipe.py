"""Compiled default models of the estimators: one per model structure, used with any data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.inference.optimize import initial_point
from bsvr_pp.model.label_model import default_label_model
from bsvr_pp.model.priors import Kernel, standard_model
from bsvr_pp.model.problem import Problem, read_model

__all__ = ["Recipe"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The structure of a model of standardised data: everything except the data."""

    noise: str
    kernel: Kernel
    ard: bool
    n_inputs: int
    quantile: float
    intervals: bool = False

    def problem(self, X: Array, y: Array, beta: float, ends: Array | None = None) -> Problem:
        """The model with these standardised data, read; ``ends`` (n, 2) where targets are intervals."""
        if callable(self.kernel):  # the function may look at the inputs
            return read_model(self.model(X, y, beta, ends))
        known = {} if ends is None else {"lower": ends[:, 0], "upper": ends[:, 1]}
        return _structure(self).with_data(X, y, beta=beta, **known)

    def model(self, X: Array, y: Array, beta: float, ends: Array | None = None) -> pm.Model:
        """A PyMC model with these standardised data, whose priors are the same for all data."""
        if self.noise == "hinge":
            return default_label_model(X, y, ard=self.ard)
        return standard_model(
            X, y, noise=self.noise, kernel=self.kernel, ard=self.ard, beta=beta, quantile=self.quantile, ends=ends
        )


@lru_cache(maxsize=64)
def _structure(recipe: Recipe) -> Problem:
    """The problem of a structure, with data that do not matter."""
    Z, t = np.tile([[1.0], [-1.0]], (1, recipe.n_inputs)), np.array([1.0, -1.0])
    ends = np.stack([t, t], axis=1) if recipe.intervals else None
    problem = read_model(recipe.model(Z, t, 0.5, ends))
    initial_point(problem)  # kept for all data
    return problem
