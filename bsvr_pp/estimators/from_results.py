"""Estimators from the plain data that their results carry: options, learned attributes, names of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bsvr_pp.inference.methods import from_record

__all__ = ["from_options", "from_recipe"]


def from_options[E](cls: Callable[..., E], recipe: Mapping[str, Any]) -> E:
    """Make an estimator that is not fitted, from its options and inference."""
    method = recipe["inference"]
    return cls(**recipe["options"], inference=method if isinstance(method, str) else from_record(method))


def from_recipe[E](cls: Callable[..., E], text: str) -> E:
    """Make an estimator with its learned attributes from the JSON of a result; the fit itself is not in it.

    Raises
    ------
    ValueError
        If its kernel was a function.
    """
    recipe = json.loads(text)
    if recipe["options"] is None:
        raise ValueError("result has a kernel function, which is not saved with it: pickle the estimator instead")
    estimator = from_options(cls, recipe)
    for name, value in recipe["learned"].items():
        setattr(estimator, name, np.array(value) if isinstance(value, list) else value)
    if recipe["names"] is not None:
        estimator.feature_names_in_ = np.array(recipe["names"], dtype=object)  # type: ignore[attr-defined]
    return estimator
