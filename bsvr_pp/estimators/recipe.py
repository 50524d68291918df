"""The models behind the estimators: one a structure, built and compiled once, read with whatever data come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from bsvr_pp.priors import Kernel, default_model
from bsvr_pp.problem import Problem, read_model

__all__ = ["Recipe"]

Array = NDArray[np.float64]

_MODELS: dict[Recipe, pm.Model] = {}
_LOCK = RLock()  # the models' data are shared by all threads


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that tells one model of standardised data from another but for the data."""

    noise: str
    kernel: Kernel
    ard: bool
    n_inputs: int
    quantile: float

    @contextmanager
    def problem(self, X: Array, y: Array, beta: float) -> Iterator[Problem]:
        """The model with these standardised data, read; only inside the ``with``."""
        with _LOCK:
            model = self._model(X)
            data: dict[str, Any] = {"X": X, "targets": y}
            if self.noise == "soft_insensitive":
                data["beta"] = beta
            for name, value in data.items():
                model[name].set_value(np.asarray(value, dtype=np.float64))
            yield read_model(model)

    def _model(self, X: Array) -> pm.Model:
        # On standardised data the default priors are the same whatever the data.
        Z, t = np.tile([[1.0], [-1.0]], (1, self.n_inputs)), np.array([1.0, -1.0])
        options: dict[str, Any] = {"ard": self.ard, "loss": self.noise, "quantile": self.quantile}
        if callable(self.kernel):  # the function may look at the inputs
            kernel = self.kernel
            return default_model(Z, t, kernel=lambda _: kernel(X), **options)
        if self not in _MODELS:
            _MODELS[self] = default_model(Z, t, kernel=self.kernel, **options)
        return _MODELS[self]
