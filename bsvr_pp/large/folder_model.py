"""A fitted model in a folder: plain arrays and JSON, opened without being read.

The rows are sorted by block, so that the rows of a block are one piece of each file. A prediction maps the pieces of
the blocks that it needs into memory, one after another: the blocks that may hold nearest rows of its inputs, or the own
blocks (`bsvr_pp.large.stored_rows`).

- ``inputs.npy``, ``targets.npy``: standardised rows; ``row.npy``: their numbers in the data;
- ``dual_coef.npy``, ``site_precision.npy``: the posterior of each block, from which its factor is computed when needed;
- ``regions.npz``: where the blocks begin, their sizes and evidences, and regions that assign new inputs;
- ``model.json``: options, scales, encoding of the columns, hyperparameters, and seals of the files, with a checksum;
- ``added-1``, ``added-2``, ...: the same arrays for the blocks that `extend_folder` has solved again.

Each file ends in checksums of its pieces (`bsvr_pp._atomic_write.seal`). Opening checks ``model.json``, the index, and
the first piece of each file; a prediction checks the pieces that hold its rows when it first reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bsvr_pp._arrays import Array, Rows
from bsvr_pp._checks import check_fields, check_positive, numbers
from bsvr_pp.estimators.base import blocks_from, from_options
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.estimators.target_predictions import TargetPredictions
from bsvr_pp.estimators.training_data import as_given, encoded
from bsvr_pp.inference.prediction.component import CHUNK, Component, component
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.inference.prediction.joint import JointTargets
from bsvr_pp.inference.prediction.neighbours import NoiseScales, moments_given
from bsvr_pp.inference.prediction.predictive import distribution_of
from bsvr_pp.large.sources import open_rows
from bsvr_pp.large.stored_rows import StoredRows
from bsvr_pp.large.tasks import read_record
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.problem import Problem
from bsvr_pp.tables.columns import Encoding, table_of

FORMAT = "bsvr_pp folder 3"
_SEARCHED = 5000  # new inputs whose nearest rows are searched together
_FIELDS = ("format", "run", "data", "point", "at_size", "neighbours", "noise_scales", "added", "files")
_DATA = ("rows", "names", "columns", "target", "notes", "mean", "scale", "location", "unit")


class FolderModel(TargetPredictions):
    """A support vector regression in a folder, made by `fit_folder` and opened by `open_folder`.

    It predicts as `BayesianSVR` does. New inputs are arrays, or tables with the columns of the training data.

    Attributes
    ----------
    folder : Path
        The folder.
    target : str
        Name of the target; empty if the data were arrays.
    encoding_ : Encoding or None
        Encoding of the columns of a table.
    names : tuple of str
        Names of the encoded inputs.
    blocks, noise_scales
        Options of predictions, as in `BayesianSVR`; they may be set.
    C_, epsilon_, beta_, noise_variance_, neighbours_, noise_scales_, lengthscale_, relevance_, log_evidence_,
    converged_
        As in `BayesianSVR`.
    dual_coef_ : (n,) array
        Dual coefficients of the mean of f on the standardised scale, in the order of the data; for mean field they are
        not sparse.
    at_size : dict
        How the hyperparameters were found.
    """

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        name = str(folder / "model.json")
        data = check_fields(f"data of {name}", check_fields(name, record, _FIELDS)["data"], _DATA)
        self._estimator = estimator = estimator_of(record)
        self.folder, self.run, self._record = folder, record["run"], record
        self.noise, self.log_targets, self.kernel = estimator.noise, estimator.log_targets, estimator.kernel
        self.blocks, self.noise_scales = blocks_from(estimator.blocks), estimator.noise_scales
        self.names, self.target, self.notes = tuple(data["names"]), data["target"], tuple(data["notes"])
        self.encoding_, self.beta_, self.n_features_in_ = estimator.encoding_, estimator.beta_, len(self.names)
        self.mean_, self.scale_ = (numbers(f"{each} of {name}", data[each], (len(self.names),)) for each in _DATA[5:7])
        self.location_, self.unit_ = (float(numbers(f"{each} of {name}", data[each], ())) for each in _DATA[7:])
        check_positive(f"scale and unit of {name}", np.append(self.scale_, self.unit_))
        self._point = {each: numbers(f"{each} of {name}", value) for each, value in record["point"].items()}
        self._stored = StoredRows.opened(folder, record["files"])
        if self._stored.size.sum() != data["rows"]:
            raise ValueError(f"rows of {name} must be {self._stored.size.sum()}, as in its files, got {data['rows']}")
        found, self.neighbours_ = record["noise_scales"], record["neighbours"]
        self.noise_scales_ = None if found is None else NoiseScales.from_record(found)
        self.log_evidence_ = float(self._stored.log_evidence.sum() - self._stored.size.sum() * np.log(self.unit_))
        self.at_size = record["at_size"]
        self.converged_ = bool(self._stored.converged.all() and self.at_size["converged"])
        self._made = self._problem_of(self._stored.of(0))
        self._set_hyperparameters(self._made.noise_at(self._point), self._point["inverse_lengthscale"])

    @cached_property
    def blocks_(self) -> Blocks:
        """The blocks; the rows are in their order, as in the files of the fit."""
        return self._stored.in_blocks()[1]

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the mean of f, in the order of the data."""
        rows, _ = self._stored.in_blocks()
        return self._stored.read("dual_coef.npy", rows)[np.argsort(self._stored.read("row.npy", rows))]

    def _problem_of(self, rows: Rows, blocks: Blocks | None = None) -> Problem:
        """The problem of some rows, which are read."""
        data = as_given(*(self._stored.read(name, rows) for name in ("inputs.npy", "targets.npy")))
        return self._estimator._standard_model(data, blocks).problem

    def _components(self, X: Array | None = None) -> list[Component]:
        """The posterior of f in the blocks that hold inputs, or in all, which are read."""
        own = () if X is None else (np.unique(self._stored.regions.assign(X)),)
        rows, blocks = self._stored.in_blocks(*own)
        vectors = (self._stored.read(name, rows) for name in ("dual_coef.npy", "site_precision.npy"))
        return [component(self._problem_of(rows, blocks), self._point, *vectors)]

    def _joint(self, inputs: Array) -> JointTargets:
        return JointTargets(lambda: map(self._part, self._components(inputs)), inputs)

    def _at(self, inputs: Array) -> PredictiveDistribution:
        part = self._part(Component(self._made, self._point, tuple))
        with self._local().threads():
            return distribution_of([part], inputs, joint=self._joint(inputs), **self._units())

    def _part(self, own: Component) -> Component:
        """A component with the moments, and scales of the noise, that the options ask for."""
        count = self._local().neighbours_of(self.neighbours_)
        scales = self.noise_scales_ if self.noise_scales and count is not None else None

        def moments(X: Array) -> tuple[Array, ...]:
            size, order = _SEARCHED if count else CHUNK, np.argsort(self._stored.regions.assign(X), kind="stable")
            near = (X[order[at : at + size]] for at in range(0, order.size, size))
            found = [each for some in near for each in self._moments(some, count, scales)]
            return tuple(np.concatenate(each)[np.argsort(order)] for each in zip(*found, strict=True))

        return replace(own, moments=moments, scales=scales, apart=count is not None)

    def _moments(self, X: Array, count: int | None, scales: NoiseScales | None) -> Iterator[tuple[Array, ...]]:
        """Moments of f, and densities of nearest rows, at inputs that are near to one another, part by part."""
        if count is None:
            yield self._components(X)[0].moments(X)
            return
        near, factors = self._stored.nearest(X, count), None if scales is None else scales.factors
        for at in range(0, len(X), CHUNK):
            rows, places = np.unique(near[at : at + CHUNK], return_inverse=True)
            yield moments_given(self._problem_of(rows), self._point, X[at : at + CHUNK], places, factors)

    def _encoded(self, X: ArrayLike) -> Array:
        """New inputs as numbers, those of a table encoded."""
        if hasattr(X, "compute"):
            X = X.compute()
        if self.encoding_ is not None and (table := table_of(X)) is not None:
            X = encoded(self.encoding_, table)
        return numbers("X", np.asarray(X), ("n_new", self.n_features_in_))

    def _standardised(self, X: ArrayLike) -> Array:
        return np.asarray((self._encoded(X) - self.mean_) / self.scale_)


def checked(model: Any) -> FolderModel:
    """Check that something is the model of a folder."""
    if not isinstance(model, FolderModel):
        raise ValueError(f"model must be a FolderModel, as fit_folder and open_folder return, got {model!r}")
    return model


def open_folder(folder: str | Path) -> FolderModel:
    """Open the model of a folder, which may have been copied.

    Parameters
    ----------
    folder : str or Path
        A folder that `fit_folder` has written.

    Raises
    ------
    ValueError
        If it is not such a folder, its fit has not ended, or a file is missing or damaged; the parts of large files
        that are not read here are checked when a prediction first reads them.
    """
    if not isinstance(folder, str | Path):
        raise ValueError(f"folder must be a path, got {folder!r}")
    path = Path(folder).absolute()
    if not (path / "model.json").is_file():
        if (path / "work" / "run.json").is_file():
            raise ValueError(f"{path}: the fit of this model has not ended: the same call of fit continues it")
        raise ValueError(f"{path}: is not the folder of a model: it has no model.json")
    record = read_record(path / "model.json")
    if record.get("format") != FORMAT:
        raise ValueError(f"{path}: its format is {record.get('format')!r}, and this version reads {FORMAT!r}")
    return FolderModel(path, record)


def estimator_of(record: Mapping[str, Any]) -> BayesianSVR:
    """The estimator of a fit, with what it knows of the data, but without posteriors."""
    estimator, columns = from_options(BayesianSVR, record["run"]["recipe"]), record["data"]["columns"]
    estimator.encoding_ = None if columns is None else Encoding.from_json(columns, len(record["data"]["names"]))
    estimator._check_options()  # which finds beta_
    return estimator


def problem_in(folder: Path, estimator: BayesianSVR, rows: slice = slice(None)) -> Problem:
    """The problem of some rows of the files of a folder, with the model of an estimator."""
    inputs, targets = (open_rows(folder / name)[rows] for name in ("inputs.npy", "targets.npy"))
    return estimator._standard_model(as_given(inputs, targets)).problem
