"""Estimators that are made again from their results: options, learned attributes, names of columns as plain data."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr

from bsvr_pp.estimators.local_blocks import LocalBlocks
from bsvr_pp.inference.methods import from_record, to_record
from bsvr_pp.inference.netcdf import load, save

__all__ = ["SavedEstimator", "from_options"]


class SavedEstimator(ABC):
    """An estimator with ``result_``, from which `from_result` makes it again; `save` and `load` do so with files.

    A class names its options and its learned attributes; a kernel that is a function is not saved.
    """

    _options_saved: ClassVar[tuple[str, ...]]
    _learned: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def result_(self) -> xr.DataTree:
        """The result, with all that `from_result` needs."""

    @abstractmethod
    def _restore(self, result: xr.DataTree) -> None:
        """Set the fitted state; options and learned attributes are there."""

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator to a netCDF file, which `load` and `bp.load` read.

        Parameters
        ----------
        path : str or Path
            The file. An older file of that name is replaced.

        Raises
        ------
        ValueError
            If it is not fitted, or the file cannot be written.
        """
        save(self.result_, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Make the fitted estimator from a file of `save`.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        ValueError
            If it is not the file of such an estimator, or it is damaged.
        """
        return cls.from_result(load(path))

    @classmethod
    def from_result(cls, result: xr.DataTree) -> Self:
        """Make the fitted estimator from its ``result_``.

        Parameters
        ----------
        result : DataTree
            The ``result_``, or what `bp.load` reads from its file.

        Raises
        ------
        ValueError
            If it is not the result of such an estimator, or its kernel was a function.
        """
        attributes = getattr(result, "attrs", {})
        with _reading():
            recipe = json.loads(attributes.get("recipe", '{"estimator": null}'))
            if recipe["estimator"] != cls.__name__:
                raise ValueError(f"result must be the result_ of a {cls.__name__}, it carries no recipe of one")
            if recipe["options"] is None:
                raise ValueError(
                    "result has a kernel function, which is not saved with it: pickle the estimator instead"
                )
            estimator = from_options(cls, recipe)
            for name, value in recipe["learned"].items():
                setattr(estimator, name, np.array(value) if isinstance(value, list) else value)
            if recipe["names"] is not None:
                estimator.feature_names_in_ = np.array(recipe["names"], dtype=object)  # type: ignore[attr-defined]
            estimator._restore(result)
        return estimator

    def _recipe_text(self) -> str:
        """Options and learned attributes as JSON, the attribute ``recipe`` of a result."""
        names = getattr(self, "feature_names_in_", None)
        learned = {name: np.asarray(getattr(self, name)).tolist() for name in self._learned}
        return json.dumps(
            self._options() | {"learned": learned, "names": None if names is None else [str(name) for name in names]}
        )

    def _options(self) -> dict[str, Any]:
        """The options as plain data, from which `from_options` makes the estimator; None for a kernel function."""
        options = None
        if not callable(getattr(self, "kernel", None)):
            options = {name: _plain(getattr(self, name)) for name in self._options_saved}
        return {"estimator": type(self).__name__, "options": options}


def from_options[E](cls: Callable[..., E], recipe: Mapping[str, Any]) -> E:
    """Make an estimator that is not fitted, from its options as plain data."""
    return cls(**{name: _object(value) for name, value in recipe["options"].items()})


def _plain(value: Any) -> Any:
    """An option as plain data."""
    if isinstance(value, LocalBlocks):
        return {"blocks": value.record()}
    if isinstance(value, np.generic):
        return value.item()
    return to_record(value) if hasattr(value, "capabilities") else value


def _object(value: Any) -> Any:
    """The option of its plain data."""
    if not isinstance(value, dict):
        return value
    return LocalBlocks(**value["blocks"]) if "blocks" in value else from_record(value)


@contextmanager
def _reading() -> Iterator[None]:
    """Read a saved estimator: what is missing or of another kind is one sentence."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"result carries a recipe that cannot be read ({error!r}): it is damaged, or of another version"
        ) from None
