"""Shared by the estimators: checks of options, blocks of rows, several targets, and saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import joblib
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bsvr_pp.core.arrays import (
    Array,
    check_count,
    check_fields,
    check_flag,
    check_no_times,
    check_order,
    check_positive,
    check_share,
    check_unmasked,
    checked_weights,
    numbers,
    warn,
)
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.core.docs import shared
from bsvr_pp.estimators.matrices import PairwiseKernel, SparseInputs, is_matrix
from bsvr_pp.estimators.training_data import TrainingData
from bsvr_pp.estimators.validation import Columns, Learned, RandomState, checked_labels
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.netcdf import load, save
from bsvr_pp.inference.protocol import Integrates, Method, Normalises, Samples, to_record, warn_unconverged
from bsvr_pp.inference.sampling.nuts import NUTS
from bsvr_pp.methods import from_record
from bsvr_pp.model.blocks import mostly_repeated
from bsvr_pp.model.priors import check_ard, check_kernel
from bsvr_pp.tables.columns import Encoding

_DENSE = 2000  # largest number of rows of a dense fit by default,
_REPEATED = 5000  # also where most inputs are repeated
_ROWS = 1000  # of a block
_NEAREST = 64, 128, 256, 512  # with blocks, numbers of rows of the fit of each prediction
_METHODS: dict[str, Method] = {
    "mean_field": MeanField(),
    "laplace": Laplace(),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}
_RECIPE = ("estimator", "options", "learned", "names", "columns", "contents")


def copied(attributes: Learned) -> Learned:
    """Return attributes with arrays of their own, so that what is written into them changes no prediction."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in attributes.items()}


def check_prior(estimator: BaseEstimator) -> None:
    """Check the kernel of an estimator, and that ``ard`` has an effect."""
    kernel, ard = estimator.kernel, estimator.ard
    if not isinstance(kernel, PairwiseKernel):
        check_kernel(kernel, "auto", "precomputed")
    if not (isinstance(ard, str) and ard == type(estimator).ard):  # "auto", where that is the default
        check_flag("ard", ard)
    check_ard(kernel, ard)


def check_model_options(estimator: BaseEstimator, methods: dict[str, Method]) -> Method:
    """Check kernel, ard, restarts and inference; return its method, also one of ``methods``."""
    check_prior(estimator)
    if estimator.restarts is not None:
        check_count("restarts", estimator.restarts, 1)
    method, methods = estimator.inference, _METHODS | methods
    found = methods.get(method) if isinstance(method, str) else method
    if not isinstance(found, Method) or isinstance(found, Normalises) or found.latent is None:
        raise ValueError(f"inference must be one of {', '.join(methods)} or a method, got {method!r}")
    return found


def seeded(random_state: RandomState) -> np.random.Generator:
    """Return the generator of a random_state as in scikit-learn."""
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise ValueError(
            f"random_state must be an integer of at least 0, a RandomState or None, got {random_state!r}"
        ) from None


def warn_unless_converged(fitted: Fitted, method: Method, where: str = "") -> None:
    """Warn that an optimum was not found; NUTS warns itself."""
    if not fitted.converged and fitted.draws is None:
        warn_unconverged(f"{where}{method.name} did not converge: {fitted.message}")


@shared
class CentralIntervals:
    """An estimator that predicts quantiles, and so central intervals."""

    predict_quantiles: Callable[..., Array]

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, **given: ArrayLike | None) -> Array:
        """Predict the central interval that contains a new target with the given probability.

        <new_inputs>
        coverage : float
            Probability, between 0 and 1.
        **given
            Other arguments of `predict_quantiles`.

        Returns
        -------
        (n_new, 2) array
            Lower and upper end.

        Raises
        ------
        ValueError
            If coverage is out of range.
        """
        check_share("coverage", coverage)
        return np.asarray(self.predict_quantiles(X, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], **given))


@dataclass(frozen=True, slots=True)
class LocalBlocks:
    """Options for many rows: blocks of near rows, between which the function is independent a priori.

    Parameters
    ----------
    size : int, "auto" or None
        Largest number of rows of a block. "auto" is a dense fit up to 2000 rows, or 5000 if twelve rows share an input
        in the mean, and blocks of 1000 rows above; None is always a dense fit.
    neighbours : int, "auto" or None
        With blocks, number of nearest rows on which each prediction is fitted, as in `bp.predict`. "auto" is 64, or
        128, 256 or 512 if these predict training rows much better (``neighbours_``). For labels, sampled
        hyperparameters and mostly repeated inputs it is None. None predicts from the block of the new row.
    n_jobs : int, optional
        Number of threads that solve blocks, or fit classes from the fourth on, or targets from the second on. -1 is one
        for each processor. The default is the number of a surrounding ``joblib.parallel_config``, or 1. The results do
        not depend on it.
    progressbar : bool
        Whether to show the progress of the fit.

    Raises
    ------
    ValueError
        If an option is out of range.
    """

    size: int | Literal["auto"] | None = "auto"
    neighbours: int | Literal["auto"] | None = "auto"
    n_jobs: int | None = None
    progressbar: bool = False

    def __post_init__(self) -> None:
        for name, least in (("size", 2), ("neighbours", 1)):
            if not _is_count(given := getattr(self, name), least):
                raise ValueError(f"{name} must be 'auto', None or an integer of at least {least}, got {given!r}")
        n_jobs = self.n_jobs
        if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
            raise ValueError(f"n_jobs must be a whole number other than 0, or None, got {n_jobs!r}")
        check_flag("progressbar", self.progressbar)

    @property
    def rows(self) -> int:
        """Largest number of rows of a block, if there are blocks."""
        assert self.size is not None
        return _ROWS if self.size == "auto" else int(self.size)

    def divides(self, n: int) -> bool:
        """Return whether n rows are fitted in blocks instead of densely."""
        return self.size is not None and n > (_DENSE if self.size == "auto" else self.size)

    def divided(
        self, rows: TrainingData, method: Method, *, classes: bool = False, undivided: str = ""
    ) -> tuple[TrainingData, int | None]:
        """Return the rows as they are fitted, and the largest number of rows of a block; None if the fit is dense.

        Warns of blocks that were not asked for. ``classes`` says that the targets are ordered classes, and
        ``undivided`` why the inputs have no blocks.
        """
        n = len(rows.y)
        small = self.size == "auto" and n <= _REPEATED and not undivided
        if not self.divides(n) or (small and mostly_repeated(rows.X)):
            return rows, None
        if undivided:
            raise ValueError(f"{n} rows of {undivided}")
        if isinstance(method, Integrates):
            raise ValueError(f"{method.name} takes a dense fit, and {n} rows need blocks: use blocks=None")
        if isinstance(method, Samples) and (classes or not (rows.exact and rows.counted)):
            raise ValueError(
                f"{method.name} in blocks takes exact targets without sample_weight, and no classes: use blocks=None, "
                "or inference='mean_field'"
            )
        rows = rows.unmerged() if isinstance(method, Samples) else rows
        if self.size == "auto":
            warn(
                f"{len(rows.y)} rows are fitted in local blocks, between which the function is independent: "
                "blocks=None fits all rows densely, in n² memory and n³ time"
            )
        return rows, self.rows

    def counts(self) -> tuple[int, ...]:
        """Return numbers of nearest rows between which a fit in blocks chooses."""
        if self.neighbours == "auto":
            return _NEAREST
        return () if self.neighbours is None else (int(self.neighbours),)

    def neighbours_of(self, chosen: int | None) -> int | None:
        """Return the number of nearest rows on which each prediction is fitted; "auto" has ``chosen`` it."""
        return chosen if self.neighbours == "auto" else next(iter(self.counts()), None)

    def threads(self) -> AbstractContextManager[object]:
        """Return a context in which this number of threads solves blocks."""
        return nullcontext() if self.n_jobs is None else joblib.parallel_config(n_jobs=self.n_jobs)

    def each_fit[Fit](self, fit: Callable[[int], Fit], count: int, *, first: int, together: bool) -> list[Fit]:
        """Return fits 0 to ``count`` - 1: the ``first`` ones in turn, and the others ``together`` in these threads."""
        rest = range(first, count)
        with self.threads():
            fits = [fit(k) for k in range(min(first, count))]
            if together and joblib.effective_n_jobs(None) > 1:
                return fits + each_block(lambda i: fit(rest[i]), len(rest))
            return [*fits, *map(fit, rest)]


def blocks_from(blocks: LocalBlocks | int | Literal["auto"] | None) -> LocalBlocks:
    """Return the option ``blocks`` of an estimator: `LocalBlocks`, or their size."""
    if isinstance(blocks, LocalBlocks):
        return blocks
    if not _is_count(blocks, 2):
        raise ValueError(f"blocks must be 'auto', None, an integer of at least 2 or LocalBlocks, got {blocks!r}")
    return LocalBlocks(blocks)


def _is_count(value: object, least: int) -> bool:
    """Return whether a value is "auto", None or a number of rows of at least ``least``."""
    if value is None or isinstance(value, str):
        return value in (None, "auto")
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


class FitsOfTargets(NamedTuple):
    """The fits of several targets, and the names of these."""

    names: tuple[str, ...]
    fits: tuple[Any, ...]

    def predictions(self, parts: Sequence[Any]) -> Any:
        """Join what each target predicts for the rows: targets are the second axis, or columns of a DataFrame."""
        first = parts[0]
        if isinstance(first, tuple):
            return tuple(self.predictions(part) for part in zip(*parts, strict=True))
        if isinstance(first, pd.DataFrame):
            return pd.concat(parts, axis=1, keys=self.names)
        return np.stack(parts, axis=1) if isinstance(first, np.ndarray) else list(parts)


def predicts_each[Method: Callable[..., Any]](method: Method) -> Method:
    """Return a method that predicts by one target, for all targets of an estimator."""

    @wraps(method)
    def of_each(self: Any, *args: Any, **options: Any) -> Any:
        fit = self._checked()
        if not isinstance(fit, FitsOfTargets):
            return method(self, *args, **options)
        return fit.predictions([method(one, *args, **options) for one in self._each(fit)])

    return cast(Method, of_each)


class HoldsFit:
    """An estimator with its fit, a value, and the options of the fit; ``_of_predictions`` may change after it."""

    get_params: Callable[..., dict[str, Any]]
    __sklearn_tags__: Callable[..., Tags]
    _attributes: Callable[..., Learned]
    _of_predictions: ClassVar[tuple[str, ...]] = ()
    _fit: Any
    _given: dict[str, Any]
    _columns: Columns

    def _checked(self) -> Any:
        """Return the fit, with checked options of predictions; NotFittedError if there is none."""
        check_is_fitted(self)
        self._check_predictions()
        return self._fit

    def _check_predictions(self) -> None:
        """Check the options that may change after the fit."""

    def _each(self, fits: FitsOfTargets, **options: bool) -> list[Self]:
        """Return an estimator of each target, with some other options."""
        columns, given = replace(self._columns, targets=None), {**self._given, **options}
        found = [copy(self)._keep(one, columns, given) for one in fits.fits]
        for each in found:
            vars(each).update(options)
        return found

    def _alone(self, what: str, error: type[Exception] = ValueError) -> Any:
        """Return the fit if there is one target; with several, ``what`` is refused."""
        fit = self._checked()
        if isinstance(fit, FitsOfTargets):
            raise error(f"{what} of one target, got {len(fit.fits)}: take one of estimators_")
        return fit

    def _keep(self, fit: Any, columns: Columns, given: Mapping[str, Any] | None = None) -> Self:
        """Replace all that an earlier fit has learned, in one statement: an error before it changes nothing."""
        options = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        learned = columns.attributes
        if not isinstance(fit, FitsOfTargets):
            learned |= self._attributes(fit, columns)
        private = {"_fit": fit, "_given": given or self.get_params(deep=False), "_columns": columns}
        self.__dict__ = options | copied(learned) | private
        return self

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination of the predictions."""
        check_order(X, y=y, sample_weight=sample_weight)
        check_unmasked("y", y)
        check_no_times("y", np.asarray(y).dtype)
        weight = checked_weights(sample_weight, np.size(y))
        return float(super().score(X, y, weight))  # type: ignore[misc]  # of the mixin


class SavedEstimator(HoldsFit):
    """An estimator with ``result_``; ``_read`` makes its fit from rows, learned attributes and columns."""

    _learned: ClassVar[tuple[str, ...]]
    _check_options: Callable[[], object]
    _read: Callable[..., object]

    @property
    def result_(self) -> xr.DataTree:
        """The result, with all that `from_result` needs."""
        fit, columns = self._checked(), self._columns
        if isinstance(fit, FitsOfTargets):
            tree = xr.DataTree(children={f"target_{j}": one.result_ for j, one in enumerate(self._each(fit))})
            tree.attrs["recipe"] = json.dumps({"estimator": type(self).__name__, "targets": fit.names})
            return tree
        learned = {name: np.asarray(getattr(self, name)).tolist() for name in self._learned}
        more: dict[str, object] = {"learned": learned, "columns": columns.encoding and columns.encoding.to_json()}
        more["names"] = None if columns.names is None else [str(name) for name in columns.names]
        tree = fit.result().copy(deep=True)  # what is changed there changes no prediction
        tree["rows"] = xr.DataTree(fit.rows.dataset().copy(deep=True))
        if isinstance(columns.matrix, SparseInputs):
            tree["sparse"] = xr.DataTree(columns.matrix.dataset())
        more["contents"] = _contents(tree)
        given = self._given | {name: getattr(self, name) for name in self._of_predictions}
        tree.attrs["recipe"] = json.dumps(self._options(given) | more)
        return tree

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator to a netCDF file, as `bp.save` does; `load` and `bp.load` read it."""
        result = self.result_
        if self._options(self._given)["options"] is None:
            raise ValueError(f"{path} cannot have the kernel, a function: pickle the estimator instead")
        save(result, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Make the fitted estimator from a file of `save`, as `from_result` does."""
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
            If it is not the result of such an estimator, is damaged, or its kernel was a function.
        """
        try:
            recipe = json.loads(getattr(result, "attrs", {}).get("recipe", '{"estimator": null}'))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"result carries a recipe that cannot be read ({error}): it is damaged, or of another version"
            ) from None
        if not isinstance(recipe, dict) or recipe.get("estimator") != cls.__name__:
            raise ValueError(f"result must be the result_ of a {cls.__name__}, it carries no recipe of one")
        if "targets" in recipe:
            names = check_fields("recipe of result", recipe, ("estimator", "targets"))["targets"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) < 2:
                raise ValueError(f"targets of result must be the names of several targets, got {names!r}")
            trees = check_fields("result", dict(result.children), [f"target_{j}" for j in range(len(names))])
            parts = [cls.from_result(tree.copy()) for tree in trees.values()]
            columns = replace(parts[0]._columns, targets=tuple(names))
            return parts[0]._keep(FitsOfTargets(tuple(names), tuple(one._fit for one in parts)), columns)
        recipe, result = check_fields("recipe of result", recipe, _RECIPE), result.copy(deep=True)
        known = [name for name in _contents(result) if name in recipe["contents"]]
        check_fields("result", dict.fromkeys(known), recipe["contents"])
        if recipe["options"] is None:
            raise ValueError("result has a kernel function, which is not saved with it: pickle the estimator instead")
        estimator = from_options(cls, recipe)
        estimator._check_options()
        kernel = estimator.get_params(deep=False)["kernel"]
        rows = TrainingData.of_dataset(result["rows"].to_dataset())
        learned: Learned = {}
        d = rows.X.shape[1]
        any_length = dict.fromkeys(("outliers_", "levels_", "target_scale_"))
        shapes = {"mean_": (d,), "scale_": (d,), **any_length}  # the others are numbers
        for name, value in check_fields("learned attributes of result", recipe["learned"], cls._learned).items():
            if name == "kernel_":
                check_kernel(value, *(["precomputed"] if is_matrix(kernel) else []))
            elif name != "classes_" and (value is not None or name != "neighbours_"):
                found = numbers(f"{name} of result", value, shapes.get(name, ()))
                if name in ("scale_", "unit_"):
                    check_positive(f"{name} of result", found)
            learned[name] = np.array(value) if isinstance(value, list) else value
        names = None if recipe["names"] is None else np.array(recipe["names"], dtype=object)
        encoding = None if recipe["columns"] is None else Encoding.from_json(recipe["columns"], d)
        matrix: SparseInputs | list[object] | None = list[object]() if is_matrix(kernel) else None
        if "sparse" in result.children:
            matrix = SparseInputs.of_dataset(result["sparse"].to_dataset())
        columns = Columns(learned["n_features_in_"], names, encoding, matrix)
        return estimator._keep(estimator._read(rows, learned, columns, result), columns)

    def _options(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return options as plain data for `from_options`; None for a kernel function."""
        options = None
        if not callable(given.get("kernel")) and not isinstance(given.get("kernel"), PairwiseKernel):
            options = {name: _plain(value) for name, value in given.items()}
        return {"estimator": type(self).__name__, "options": options}


class SavedClassifier(SavedEstimator):
    """A classifier with probabilities, and so with their logs."""

    _probabilities: Callable[..., Array]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of the labels y (n,) that are predicted at inputs (n, d), with weights if given."""
        check_order(X, y=y, sample_weight=sample_weight)
        return super().score(X, checked_labels(y), sample_weight)

    def predict_proba(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Array:
        """Predict the probability (n_new, n_classes) of each of ``classes_`` at inputs (n_new, d).

        With ``kernel="precomputed"`` the ``diagonal`` is as in `BayesianSVR.predict`.
        """
        return self._probabilities(X, diagonal)

    def predict_log_proba(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Array:
        """Predict the logs (n_new, n_classes) of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, diagonal))


def _contents(tree: xr.DataTree) -> list[str]:
    """Return names of all variables and attributes of a result."""
    return [f"{node.path.rstrip('/')}/{name}" for node in tree.subtree for name in (*node.data_vars, *node.attrs)]


def from_options[E: BaseEstimator](cls: type[E], recipe: Mapping[str, object]) -> E:
    """Make an estimator that is not fitted, from its options as plain data."""
    options = check_fields("options of result", recipe["options"], cls._get_param_names())
    return cls(**{name: _object(value) for name, value in options.items()})


def _plain(value: object) -> object:
    """Return an option as plain data."""
    if isinstance(value, LocalBlocks):
        return {"blocks": asdict(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict | pd.Series):  # weights of classes, or directions of columns
        return {"classes": [[_plain(label), _plain(weight)] for label, weight in value.items()]}
    if isinstance(value, np.random.RandomState):
        kind, key, *rest = value.get_state()
        return {"state": [kind, np.asarray(key).tolist(), *rest]}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return None if value is np.random else to_record(value) if isinstance(value, Method) else value


def _object(value: object) -> object:
    """Make an option from its plain data."""
    if not isinstance(value, dict):
        return value
    if "blocks" in value:
        return LocalBlocks(**check_fields("blocks of result", value["blocks"], [f.name for f in fields(LocalBlocks)]))
    if "classes" in value:
        return {label: weight for label, weight in value["classes"]}
    if "state" in value:
        state = np.random.RandomState()
        state.set_state(value["state"])
        return state
    return from_record(value)
