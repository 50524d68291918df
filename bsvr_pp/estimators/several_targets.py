"""Several targets of one estimator: a fit of each, and how predictions and attributes of each become those of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd


class FitsOfTargets(NamedTuple):
    """The fits of several targets, and the names of these."""

    names: tuple[str, ...]
    fits: tuple[Any, ...]

    def predictions(self, parts: Sequence[Any]) -> Any:
        """What the rows of the inputs have by each target: targets are the second axis, or columns of a DataFrame."""
        first = parts[0]
        if isinstance(first, tuple):
            return tuple(self.predictions(part) for part in zip(*parts, strict=True))
        if isinstance(first, pd.DataFrame):
            return pd.concat(parts, axis=1, keys=self.names)
        return np.stack(parts, axis=1) if isinstance(first, np.ndarray) else list(parts)

    def attributes(self, parts: Sequence[Any]) -> Any:
        """What each target has: arrays (k,) of numbers and (k, d) of vectors, rows of a DataFrame, or a list."""
        first = parts[0]
        if isinstance(first, dict):
            return {name: self.attributes([part[name] for part in parts]) for name in first}
        if isinstance(first, pd.Series):
            return pd.DataFrame(list(parts), index=list(self.names))
        if isinstance(first, pd.DataFrame):
            return pd.concat(parts, keys=self.names)
        numbers = all(isinstance(part, bool | int | float | np.number) for part in parts)
        vectors = isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype.kind == "f"
        return np.array(parts) if numbers or vectors else list(parts)


def _joined(join: Callable[[FitsOfTargets, Sequence[Any]], Any]) -> Any:
    def decorate[Method: Callable[..., Any]](method: Method) -> Method:
        @wraps(method)
        def of_each(self: Any, *args: Any, **options: Any) -> Any:
            fit = self._checked()
            if not isinstance(fit, FitsOfTargets):
                return method(self, *args, **options)
            return join(fit, [method(one, *args, **options) for one in self._each(fit)])

        return cast(Method, of_each)

    return decorate


predicts_each = _joined(FitsOfTargets.predictions)  # a method that predicts by one target, of all targets
attribute_of_each = _joined(FitsOfTargets.attributes)  # an attribute of one target, of all
