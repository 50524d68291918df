"""The support vector machine of a fitted regression: its attributes, computed from the mode when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import find_mode
from bsvr_pp.estimators.many_rows import joblib_threads
from bsvr_pp.model.priors import BIAS

if TYPE_CHECKING:
    from bsvr_pp.estimators.fitted import Fitted
    from bsvr_pp.estimators.weighted_rows import Rows
    from bsvr_pp.model.problem import Problem

__all__ = ["SupportVectors"]

Array = NDArray[np.float64]


class _Machine(NamedTuple):
    dual_coef: Array
    intercept: float
    support: NDArray[np.intp]


class SupportVectors:
    """Attributes that the most probable latent function has; the mode is found on the processor."""

    n_jobs: int | None
    mean_: Array
    scale_: Array
    location_: float
    unit_: float
    _rows: Rows
    _fitted: Fitted
    _machine: _Machine | None = None

    def _problem(self) -> Problem:
        raise NotImplementedError

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the rows, (n,)."""
        return self._support_vector_machine().dual_coef

    @property
    def intercept_(self) -> float:
        """Value where the kernel vanishes."""
        return self._support_vector_machine().intercept

    @property
    def support_(self) -> NDArray[np.intp]:
        """Rows that are support vectors."""
        return self._support_vector_machine().support

    @property
    def support_vectors_(self) -> Array:
        """Their inputs."""
        vectors: Array = self.mean_ + self.scale_ * self._rows.X[self._rows.place[self.support_]]
        return vectors

    @property
    def n_support_(self) -> int:
        """Their number."""
        return int(self.support_.size)

    def _support_vector_machine(self) -> _Machine:
        check_is_fitted(self)
        if self._machine is None:
            problem, rows = self._problem(), self._rows
            with threads_for(problem.targets.size), joblib_threads(self.n_jobs):
                K, mean, noise = problem.at(self._fitted.points[0])
                mode = find_mode(K, problem.targets, noise, mean=mean)
            dual_coef = np.where(mode.support > 0, mode.dual_coef, 0.0)
            intercept = self.location_ + self.unit_ * BIAS * float(dual_coef.sum())
            support = np.flatnonzero((rows.place >= 0) & (mode.support > 0)[rows.place])
            self._machine = _Machine(rows.spread(dual_coef) / self.unit_, intercept, support)
        return self._machine
