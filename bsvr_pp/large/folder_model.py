"""A fitted model in a folder: plain arrays and JSON, opened without being read.

The rows are sorted by block, so that the rows of a block are one piece of each file, and a prediction that combines
blocks reads the pieces of those that it needs:

- ``inputs.npy``, ``targets.npy``: standardised rows; ``row.npy``: their numbers in the data;
- ``dual_coef.npy``, ``site_precision.npy``: the posterior of each block, from which its factor is computed when needed;
- ``regions.npz``: sizes of the blocks, and regions that assign new inputs;
- ``model.json``: options, scales, encoding of the columns, hyperparameters, and digests of the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.estimators.base import blocks_from, central_levels, from_options
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.estimators.target_predictions import TargetPredictions
from bsvr_pp.estimators.training_data import as_given, encoded
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from bsvr_pp.large.sources import open_rows, tables_of
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.problem import Problem
from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding, table_of

Array = NDArray[np.float64]

FORMAT = "bsvr_pp folder 1"
ARRAYS = ("inputs.npy", "targets.npy", "row.npy", "dual_coef.npy", "site_precision.npy", "regions.npz")
_ENDS = 2**22  # bytes at either end of a file that make its digest


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
        Options of predictions, as in `BayesianSVR`; they may be set. For own fits on nearest rows the inputs of all
        rows are in memory; with ``blocks=bp.LocalBlocks(neighbours=None)`` only those of the blocks that are needed.
    C_, epsilon_, beta_, noise_variance_, noise_scales_, lengthscale_, relevance_, log_evidence_, blocks_, converged_
        As in `BayesianSVR`.
    dual_coef_ : (n,) array
        Dual coefficients of the mean of f on the standardised scale, in the order of the data; for mean field they are
        not sparse.
    at_size : dict
        How the hyperparameters were found.
    """

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        estimator = from_options(BayesianSVR, record["run"]["recipe"])
        self.folder, self.run = folder, record["run"]
        self.noise, self.log_targets, self.kernel = estimator.noise, estimator.log_targets, estimator.kernel
        self.blocks, self.noise_scales = blocks_from(estimator.blocks), estimator.noise_scales
        data = record["data"]
        self.names, self.target, self.notes = tuple(data["names"]), data["target"], tuple(data["notes"])
        self.encoding_ = None if data["columns"] is None else Encoding.from_json(data["columns"])
        self.mean_, self.scale_ = np.array(data["mean"]), np.array(data["scale"])
        self.location_, self.unit_ = data["location"], data["unit"]
        self.beta_, self.n_features_in_ = record["beta"], len(self.names)
        point = {name: np.asarray(value) for name, value in record["point"].items()}
        with np.load(folder / "regions.npz") as saved:
            regions = dict(saved)
        label = np.repeat(np.arange(regions["sizes"].size), regions.pop("sizes"))
        self.blocks_: Blocks = Blocks.from_arrays({"label": label, **regions})
        estimator.encoding_ = self.encoding_
        estimator._check_options()
        self._made = problem_in(folder, estimator, blocks=self.blocks_)
        found = record["noise_scales"]
        self.noise_scales_ = None if found is None else NoiseScales.from_record(found)
        self.log_evidence_, self.converged_ = record["log_evidence"], record["converged"]
        self.at_size = record["at_size"]
        # Predictions from blocks need no more of a posterior.
        vectors: Any = SimpleNamespace(
            dual_coef=open_rows(folder / "dual_coef.npy"), site_precision=open_rows(folder / "site_precision.npy")
        )
        ended = self.converged_, "", self.log_evidence_
        self._fitted = Fitted([point], [vectors], np.ones(1), [], *ended, scales=self.noise_scales_)
        self._set_hyperparameters(self._made.noise_at(point), point["inverse_lengthscale"])

    def _problem(self) -> Problem:
        return self._made

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the mean of f, in the order of the data."""
        out = np.empty(self._made.targets.size)
        out[open_rows(self.folder / "row.npy")] = self._fitted.posteriors[0].dual_coef
        return out

    def predict_parts(self, data: Any, coverage: float = 0.9) -> Iterator[pd.DataFrame]:
        """Predict for a table that is read part by part.

        Parameters
        ----------
        data : path or data frame
            A Parquet file, a folder of them, or a data frame of pandas or Dask; other columns than the inputs are
            ignored.
        coverage : float
            Coverage of the central interval, between 0 and 1.

        Yields
        ------
        DataFrame
            The predictions of a part, as those of `predict_table`.

        Raises
        ------
        ValueError
            If the model is one of arrays, or the table lacks a column.
        """
        central_levels(coverage)
        if self.encoding_ is None:
            raise ValueError("data must be arrays for predict, as those of the fit were: the model has no columns")
        source = Path(data) if isinstance(data, str | Path) else data
        for table in tables_of(source, list(self.encoding_.kinds)):
            yield self.predict_table(table, coverage, self.target)

    def _standardised(self, X: ArrayLike) -> Array:
        if hasattr(X, "compute"):
            X = X.compute()
        if self.encoding_ is not None and (table := table_of(X)) is not None:
            X = encoded(self.encoding_, table)
        inputs = numbers("X", np.asarray(X), ("n_new", self.n_features_in_))
        return np.asarray((inputs - self.mean_) / self.scale_)


def open_folder(folder: str | Path) -> FolderModel:
    """Open the model of a folder, which may have been copied.

    Parameters
    ----------
    folder : str or Path
        A folder that `fit_folder` has written.

    Raises
    ------
    ValueError
        If it is not such a folder, its fit has not ended, or a file is missing or damaged.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.open_folder("no-such-folder")
    Traceback (most recent call last):
    ValueError: no-such-folder: is not the folder of a model: it has no model.json
    """
    if not isinstance(folder, str | Path):
        raise ValueError(f"folder must be a path, got {folder!r}")
    path = Path(folder)
    if not (path / "model.json").is_file():
        if (path / "work" / "run.json").is_file():
            raise ValueError(f"{path}: the fit of this model has not ended: the same call of fit continues it")
        raise ValueError(f"{path}: is not the folder of a model: it has no model.json")
    try:
        record = json.loads((path / "model.json").read_text())
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']!r}, and this version reads {FORMAT!r}")
        for name, wanted in record["files"].items():
            if not (path / name).is_file():
                raise ValueError(f"{name} is missing")
            if digest(path / name) != wanted:
                raise ValueError(f"{name} is not the file that was written")
        return FolderModel(path, record)
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        reason = error if type(error) in (ValueError, DataError) else repr(error)
        raise ValueError(f"{path}: the folder cannot be read, it is damaged or of another version: {reason}") from None


def problem_in(
    folder: Path, estimator: BayesianSVR, rows: slice = slice(None), blocks: Blocks | None = None
) -> Problem:
    """The problem of some rows of the files of a folder, with the model of an estimator."""
    inputs, targets = (open_rows(folder / name)[rows] for name in ("inputs.npy", "targets.npy"))
    return estimator._standard_model(as_given(inputs, targets), blocks).problem


def digest(path: Path) -> str:
    """Digest of the size and both ends of a file, which takes the same time for any size."""
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        found.update(file.read(_ENDS))
        file.seek(max(size - _ENDS, 0))
        found.update(file.read())
    return found.hexdigest()
