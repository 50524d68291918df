"""Compiled default models of the estimators: one per model structure, used with any data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.classification.default_models import standard_label_model
from bsvr_pp.inference.optimize import initial_point
from bsvr_pp.model.blocks import Blocks
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

    def problem(
        self,
        X: Array,
        y: Array,
        beta: float,
        weight: Array | None = None,
        ends: Array | None = None,
        blocks: Blocks | None = None,
    ) -> Problem:
        """The model with these standardised data, sample weights, and ends (n, 2) of intervals, read."""
        if callable(self.kernel):  # the function may look at the inputs
            return read_model(self.model(X, y, beta, weight, ends, blocks))
        given = {} if weight is None else {"weight": weight}
        if ends is not None:
            given |= {"lower": ends[:, 0], "upper": ends[:, 1]}
        return _structure(self, weight is not None, ends is not None).with_data(X, y, blocks=blocks, beta=beta, **given)

    def model(
        self,
        X: Array,
        y: Array,
        beta: float,
        weight: Array | None = None,
        ends: Array | None = None,
        blocks: Blocks | None = None,
    ) -> pm.Model:
        """A PyMC model with these standardised data, whose priors are the same for all data."""
        if self.noise == "hinge":
            return standard_label_model(X, y, ard=self.ard, kernel=self.kernel, weight=weight)
        options: dict[str, Any] = {"noise": self.noise, "kernel": self.kernel, "ard": self.ard, "weight": weight}
        return standard_model(X, y, beta=beta, quantile=self.quantile, ends=ends, blocks=blocks, **options)


@lru_cache(maxsize=64)
def _structure(recipe: Recipe, weighted: bool, intervals: bool) -> Problem:
    """The problem of a structure, with data that do not matter."""
    Z, t = np.tile([[1.0], [-1.0]], (1, recipe.n_inputs)), np.array([1.0, -1.0])
    ends = np.stack([t, t], axis=1) if intervals else None
    problem = read_model(recipe.model(Z, t, 0.5, np.ones(2) if weighted else None, ends))
    initial_point(problem)  # kept for all data
    return problem
