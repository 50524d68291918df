"""A fitted model in a folder, as plain arrays and JSON that are opened without reading all, and its predictions.

Rows are sorted by block: a prediction maps the pieces of the blocks that it needs into memory, one after another. Each
file ends in checksums of its pieces (`core.atomic_write.seal`); each piece is checked when it is first read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from bsvr_pp.core.arrays import (
    Array,
    Mask,
    Rows,
    check_fields,
    check_flag,
    check_positive,
    check_share,
    check_size,
    numbers,
)
from bsvr_pp.core.atomic_write import PIECE, DamagedError, SealedFile, atomic_write, check_writable, locked
from bsvr_pp.estimators.base import LocalBlocks, copied, from_options
from bsvr_pp.estimators.regression_fit import RegressionSpec
from bsvr_pp.estimators.standard_fit import StandardModel
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.estimators.target_predictions import TargetPredictions, hyperparameters
from bsvr_pp.estimators.training_data import TrainingData, Units
from bsvr_pp.estimators.validation import Columns, encoded
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.prediction.component import Component, Member, component, mixture_of
from bsvr_pp.inference.prediction.distribution import CHUNK, PredictiveDistribution
from bsvr_pp.inference.prediction.neighbours import (
    NoiseScales,
    few,
    moments_given,
    nearest_in,
    search_in,
    solved_rows,
    some_uncensored,
    with_uncensored,
)
from bsvr_pp.inference.protocol import IntegratesLatent, warn_unconverged
from bsvr_pp.large.parts import (
    NO_THREADS,
    Data,
    Record,
    Records,
    Source,
    all_whole,
    checksum,
    new_rows_of,
    open_rows,
    read_record,
    rows_of,
    run_tasks,
    saved,
    with_index,
    write_arrays,
    write_rows,
)
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks, Partition, Regions
from bsvr_pp.model.inputs import Warping
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.tables import of_file
from bsvr_pp.tables.columns import Encoding, table_of
from bsvr_pp.tables.files import writing_predictions

FORMAT = "bsvr_pp folder 8"
ARRAYS = ("inputs.npy", "targets.npy", "row.npy", "solved.npy", "regions.npz")
POSTERIOR = ("dual_coef.npy", "site_precision.npy", "blocks.npz")  # of all blocks, once solved
_TASK = 5000  # rows of a task of `FolderModel.predict_into`,
_ROWS = 50_000  # and rows written together
_TOGETHER = 100_000  # rows of blocks that are searched together
_SEARCHED = 5000  # new inputs whose nearest rows are searched together
_FIELDS = ("format", "run", "data", "kernel", "point", "at_size", "neighbours", "noise_scales", "files")
_OTHER = "{}: has another model than the one that was given: FolderModel reads it"
_UNITS = ("mean", "scale", "location", "unit")
_DATA = ("rows", "names", "columns", "target", "notes", *_UNITS, "target_scale", "log_jacobian")


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows in the files of a folder, sorted by block; only the needed blocks are read."""

    folder: Path
    regions: Regions
    size: Rows
    files: Mapping[str, SealedFile]
    log_evidence: Array | None = None  # of the blocks, None if they are not solved
    converged: NDArray[np.bool_] | None = None

    @classmethod
    def opened(cls, folder: Path, seals: Mapping[str, str]) -> Self:
        """Read the index, and check the seals of the files and the pieces that were read."""
        files = _opened(folder, "model.json", seals, ARRAYS)
        with np.load(files["regions.npz"].check().path) as held:
            arrays = dict(held)
        regions = Regions(**{name: arrays.pop(name) for name in Regions.__dataclass_fields__})
        return cls(folder, regions, **arrays, files=files)

    def with_posterior(self, seals: Mapping[str, str]) -> Self:
        """Return the same with the posteriors of all blocks."""
        files = _opened(self.folder, "posterior.json", seals, POSTERIOR)
        with np.load(files["blocks.npz"].check().path) as arrays:
            return replace(self, files={**self.files, **files}, **dict(arrays))

    def check_solved(self, refusal: type[Exception]) -> Array:
        """Check that the blocks are solved, and return their log evidences."""
        if self.log_evidence is None:
            cure = "FolderModel.solve, or bsvr-pp solve before the folder is opened, solves them"
            raise refusal(f"{self.folder}: its blocks are not solved, which this needs: {cure}")
        return self.log_evidence

    def of(self, *blocks: int) -> Rows:
        """Return ascending numbers of the rows of some blocks."""
        ends = np.cumsum(self.size)
        return np.concatenate([np.arange(ends[b] - self.size[b], ends[b]) for b in sorted(blocks)])

    def read(self, name: str, rows: Rows) -> Array:
        """Return values of rows with ascending numbers from a file; check its pieces, and unmap it."""
        if not (self.folder / name).is_file():
            raise DamagedError(f"{self.folder / name}: is missing")
        found = open_rows(self.folder / name)
        if SealedFile(self.folder / name).seal != self.files[name].seal:
            raise DamagedError(_OTHER.format(self.folder))
        first, last = (((found.offset + (rows + i) * found.strides[0] - i) // PIECE) for i in (0, 1))
        opened = np.bincount(first, minlength=last[-1] + 2) - np.bincount(last + 1, minlength=last[-1] + 2)
        self.files[name].check(np.flatnonzero(np.cumsum(opened)).tolist())
        return np.asarray(found[rows])

    def in_blocks(self, used: Rows | None = None) -> tuple[Rows, Blocks]:
        """Return row numbers of some ascending blocks (default: all), and the renumbered blocks with regions."""
        used = np.arange(self.size.size) if used is None else used
        number = np.zeros(self.size.size, dtype=np.int64)
        number[used] = np.arange(used.size)
        place = self.regions.side
        side = np.where(place < 0, -1 - number[np.maximum(-1 - place, 0)], place)
        label = np.repeat(np.arange(used.size), self.size[used])
        return self.of(*used), Blocks(label, replace(self.regions, side=side))

    def nearest(self, X: Array, count: int) -> Rows:
        """Return numbers (m, count) of rows as `nearest_rows` does; blocks with near centres bound the distances."""
        few = 1 + int(np.searchsorted(np.cumsum(np.sort(self.size)), count))  # any few blocks have enough rows
        wanted = np.arange(1, min(max(few, 2), self.size.size) + 1)
        first = np.unique(cKDTree(self.regions.middle).query(X / self.regions.lengthscale, wanted)[1])
        unit = self.regions.lengthscale
        radius = self._nearest_in(first, X, count)[0][:, -1] * (1 + 1e-9)
        near = self._nearest_in(self.regions.within(X, radius), X, count)[1]
        if open_rows(self.folder / "targets.npy").shape[1] < 3:  # no ends
            return near
        censored, row = self.ends
        spread = row[some_uncensored(censored[row], count)]  # as of rows in their own order

        def nearest_of(half: int, rows: Rows) -> Rows:
            return rows[search_in(self.read("inputs.npy", rows) / unit)(X / unit, half)[1]]

        return with_uncensored(near, censored, spread, nearest_of)

    @cached_property
    def ends(self) -> tuple[Mask, Rows]:
        """Which rows have an infinite end, and the numbers here of the rows of the data."""
        every = np.arange(self.size.sum())
        return np.isinf(self.read("targets.npy", every)).any(axis=1), np.argsort(self.read("row.npy", every))

    def _nearest_in(self, blocks: Rows, X: Array, count: int) -> tuple[Array, Rows]:
        groups = np.split(blocks, np.flatnonzero(np.diff(np.cumsum(self.size[blocks]) // _TOGETHER)) + 1)
        rows_of, unit = (self.of(*group) for group in groups), self.regions.lengthscale
        return nearest_in(((rows, self.read("inputs.npy", rows) / unit) for rows in rows_of), X / unit, count)


def _opened(folder: Path, record: str, seals: Mapping[str, str], names: tuple[str, ...]) -> dict[str, SealedFile]:
    """Return the files of a record, whose seals are checked, and the first piece of each."""
    files = dict[str, SealedFile]()
    for name, seal in check_fields(f"files of {folder / record}", seals, names).items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path}: is missing")
        files[name] = SealedFile(path)
        if files[name].seal != seal or not path.resolve().is_relative_to(folder.resolve()):
            raise DamagedError(f"{path}: is not the file that was written")
        files[name].check([0])
    return files


@dataclass(frozen=True)
class FolderFit:
    """The fit of a folder, like a `RegressionFit`; its rows are read when needed."""

    model: StandardModel
    units: Units
    stored: StoredRows
    point: Point
    neighbours: int | None
    scales: NoiseScales

    @cached_property
    def first(self) -> Problem:
        """The problem of the first block, which has the noise."""
        return self.problem_of(self.stored.of(0))

    def problem_of(self, rows: Rows, blocks: Partition = ONE_BLOCK) -> Problem:
        """Read some rows, and return their problem."""
        data = rows_of(*(self.stored.read(name, rows) for name in ("inputs.npy", "targets.npy")))
        return self.model.problem(data, blocks)

    def components(self, X: Array | None = None) -> list[Component]:
        """Read the blocks that contain inputs, or all, and return the posterior of f there."""
        self.stored.check_solved(ValueError)
        own = () if X is None else (np.unique(self.stored.regions.assign(X)),)
        rows, blocks = self.stored.in_blocks(*own)
        dual, precision = (self.stored.read(name, rows) for name in ("dual_coef.npy", "site_precision.npy"))
        return [component(self.problem_of(rows, blocks), Member(self.point, dual, precision))]

    function = components  # for effects

    def predictive(self, X: Array, local: LocalBlocks, noise_scales: bool) -> PredictiveDistribution:
        """Return the distribution of new targets at standardised inputs, in units of the target."""
        part = partial(self._part, local=local, noise_scales=noise_scales)
        own = part(Component(self.first, self.point, tuple))
        with local.threads():
            return mixture_of([own], X, jointly=lambda: map(part, self.components(X)), **self.units.of_targets)[0]

    def _part(self, own: Component, local: LocalBlocks, noise_scales: bool) -> Component:
        """Return a component with the moments, and scales of the noise, of the options."""
        count = local.neighbours_of(self.neighbours)
        scales = self.scales if noise_scales else NoiseScales.one()

        def moments(X: Array) -> tuple[Array, Array, Array]:
            size, order = _SEARCHED if count else CHUNK, np.argsort(self.stored.regions.assign(X), kind="stable")
            parts = (X[order[at : at + size]] for at in range(0, order.size, size))
            found = [each for some in parts for each in self._moments(some, count, scales)]
            mean, variance, near = (np.concatenate(each)[np.argsort(order)] for each in zip(*found, strict=True))
            return mean, variance, near

        return replace(own, moments=moments, scales=scales, apart=count is not None)

    def _moments(self, X: Array, count: int | None, scales: NoiseScales) -> Iterator[tuple[Array, Array, Array]]:
        """Yield moments of f and densities of nearest rows, for parts of inputs near to one another."""
        if count is None and not scales.several:
            yield self.components(X)[0].moments(X)
            return
        near = self.stored.nearest(X, few(int(self.stored.size.sum())) if count is None else count)
        for at in range(0, len(X), CHUNK):
            new, (rows, places) = X[at : at + CHUNK], np.unique(near[at : at + CHUNK], return_inverse=True)
            problem, places = self.problem_of(rows), places.reshape(len(new), -1)
            solved = solved_rows(problem, self.point, known=self.stored.read("solved.npy", rows))
            own = moments_given(problem, self.point, new, places) if count else self.components(new)[0].moments(new)
            yield *own[:2], scales.of_rows(problem, self.point, solved).near(places)


class FolderModel(TargetPredictions):
    """A support vector regression in a folder, with the predictions of `BayesianSVR`.

    New inputs are arrays, or tables with the columns of the training data.

    Parameters
    ----------
    folder : str or Path
        A folder written by `fit_folder`, or a copy of it.

    Raises
    ------
    ValueError
        If it is not such a folder, its fit has not ended, or a file is missing or damaged. Parts of large files that
        are not read here are checked when a prediction first reads them.

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
        Options of predictions, as in `BayesianSVR`; they may be changed.
    C_, epsilon_, beta_, noise_variance_, target_scale_, neighbours_, noise_scales_, lengthscale_, relevance_,
    log_evidence_, converged_
        As in `BayesianSVR`.
    dual_coef_ : (n,) array
        Dual coefficients of the mean of f on the standardised scale, in the order of the data; with mean field they are
        not sparse.
    at_size : dict
        How the hyperparameters were found.
    """

    def __init__(self, folder: str | Path) -> None:
        path, record = _record_of(folder)
        name = str(path / "model.json")
        data = check_fields(f"data of {name}", check_fields(name, record, _FIELDS)["data"], _DATA)
        self._spec, self._columns = spec_of(record)
        self.folder, self.run, self._record = path, record["run"], record
        self.blocks, self.noise_scales = self._spec.local, self._spec.noise_scales
        self.intervals = bool(self.run["recipe"]["options"]["intervals"])
        self.names, self.target, self.notes = tuple(data["names"]), data["target"], tuple(data["notes"])
        self.encoding_, self.beta_, self.n_features_in_ = self._columns.encoding, self._spec.model.beta, len(self.names)
        mean, scale = (numbers(f"{each} of {name}", data[each], (len(self.names),)) for each in _UNITS[:2])
        location, unit = (float(numbers(f"{each} of {name}", data[each], ())) for each in _UNITS[2:])
        check_positive(f"scale and unit of {name}", np.append(scale, unit))
        target_scale = self._spec.read_scale(f"target_scale of {name}", data["target_scale"])
        units = Units(mean, scale, location, unit, target_scale)
        self._log_jacobian = float(numbers(f"log_jacobian of {name}", data["log_jacobian"], ()))
        point = {each: numbers(f"{each} of {name}", value) for each, value in record["point"].items()}
        self._stored = stored = StoredRows.opened(path, record["files"])
        if stored.size.sum() != data["rows"]:
            raise ValueError(f"rows of {name} must be {stored.size.sum()}, as in its files, got {data['rows']}")
        found, self.neighbours_ = record["noise_scales"], record["neighbours"]
        self.noise_scales_ = NoiseScales.from_record(found) if found else NoiseScales.one()
        self.at_size = record["at_size"]
        if (solved := path / "posterior.json").is_file():
            posterior = check_fields(str(solved), read_record(solved), ("model", "files"))
            if posterior["model"] == checksum(record):  # otherwise from an earlier fit
                self._stored = stored = stored.with_posterior(posterior["files"])
        self._fit = FolderFit(self._spec.model, units, stored, point, self.neighbours_, self.noise_scales_)
        noise, inverse = self._fit.first.noise_at(point), point["inverse_lengthscale"]
        vars(self).update(copied(hyperparameters(noise, inverse, units, self._columns)))

    def __reduce__(self) -> tuple[object, ...]:
        """The folder, which is opened again if it has the same model, and the options of predictions."""
        options = {"blocks": self.blocks, "noise_scales": self.noise_scales}
        return _reopened, (self.folder, checksum(self._record)), options

    def _checked(self) -> FolderFit:
        check_flag("noise_scales", self.noise_scales)
        return self._fit

    @cached_property
    def blocks_(self) -> Blocks:
        """The blocks; the rows are in their order, as in the files of the fit."""
        return self._stored.in_blocks()[1]

    @property
    def converged_(self) -> bool:
        """Whether the search for the hyperparameters converged, and any solves of the blocks."""
        solved = self._stored.converged
        return bool(self.at_size["converged"] and (solved is None or solved.all()))

    @property
    def log_evidence_(self) -> float:
        """Log evidence of the targets."""
        return float(self._stored.check_solved(AttributeError).sum() + self._log_jacobian)

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the mean of f, in the order of the data."""
        self._stored.check_solved(AttributeError)
        rows, _ = self._stored.in_blocks()
        return self._stored.read("dual_coef.npy", rows)[np.argsort(self._stored.read("row.npy", rows))]

    def solve(self) -> None:
        """Solve all blocks, if they are not solved yet.

        `log_evidence_`, `dual_coef_`, effects, joint draws and predictions from the block of a row need it. The same
        call continues an interrupted one. Blocks are solved where `fit_folder` solves them.

        Raises
        ------
        ValueError
            If another process writes into the folder.

        Warns
        -----
        ConvergenceWarning
            If blocks did not converge.
        """
        if self._stored.log_evidence is not None:
            return
        path, local = self.folder, self._local()
        with local.threads(), locked(path):
            work, model = Records(path / "work"), checksum(self._record)
            if checksum(_record_of(path)[1]) != model:
                raise ValueError(_OTHER.format(path))
            work["solve"] = {"model": model}
            files = run_tasks(_solve, work, self._stored.size.size, "blocks" if local.progressbar else "")
            for name in ("dual_coef", "site_precision"):
                write_rows(path / f"{name}.npy", saved(files, name))
            evidence, converged = (np.array(list(saved(files, name))) for name in ("log_evidence", "converged"))
            write_arrays(path / "blocks.npz", log_evidence=evidence, converged=converged)
            seals = {name: SealedFile(path / name).seal for name in POSTERIOR}
            Records(path)["posterior"] = {"model": model, "files": seals}
            shutil.rmtree(work.folder, ignore_errors=True)
        self._stored = self._stored.with_posterior(seals)
        self._fit = replace(self._fit, stored=self._stored)
        if not converged.all():
            failed = f"the solves of {np.count_nonzero(~converged)} of {converged.size} blocks"
            warn_unconverged(f"{self._spec.method.name} did not converge: {failed}")

    def predict_into(
        self,
        data: Data,
        out: str | Path,
        *,
        coverage: float = 0.9,
        times: ArrayLike | None = None,
    ) -> int:
        """Predict for any number of rows, into a file.

        The memory holds the rows of a task, the blocks that they need, and some integers for each new row. The same
        call continues an interrupted one. Tasks run where `fit_folder` solves blocks.

        Parameters
        ----------
        data : path, data frame or array
            New inputs, as in `fit_folder`; other columns of tables are ignored.
        out : str or Path
            The file (Parquet by its ending, otherwise CSV), with the columns of `predict_table`.
        coverage, times
            As in `predict_table`.

        Returns
        -------
        int
            Number of rows.

        Raises
        ------
        ValueError
            If an option or the data are not usable.
        """
        values = None if times is None else self._checked_times(times).tolist()
        check_share("coverage", coverage)
        if Path(out).resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"out must lie outside the folder of the model, {self.folder}, got {out}")
        path = check_writable("out", out, read=[data], model=False).absolute()
        source, local = new_rows_of(data, self.encoding_), self._local()
        run = {
            "model": str(self.folder),
            "checksum": checksum(self._record),
            "solved": self._stored.log_evidence is not None,
            "data": source.identity,
            "blocks": asdict(local) | NO_THREADS,
            "noise_scales": bool(self.noise_scales),
            "task": _TASK,
            "options": {"coverage": float(coverage), "target": self.target or "y", "times": values},
        }
        place = path.parent / f".bsvr-pp-{path.name}"
        with local.threads(), locked(place):
            work = Records(place)
            if work.get("run") != run and work.pop("order", {}):
                (place / "order.json").unlink()
            work["run"] = run
            if "order" not in work or not all_whole(place / "inputs.npy", place / "order.npy"):
                with of_file(source.name):
                    _order(self, source, work)
            rows = int(work["order"]["rows"])
            files = run_tasks(_predict, work, -(-rows // _TASK), "predictions" if local.progressbar else "")
            _join(files, path, rows)
            shutil.rmtree(place, ignore_errors=True)
        return rows

    def _encoded(self, X: ArrayLike) -> Array:
        """Return new inputs as numbers; a table is encoded."""
        if hasattr(X, "compute"):
            X = X.compute()
        if self.encoding_ is not None and hasattr(X, "columns"):
            X = encoded(self.encoding_, table_of(with_index(X)))
        found = numbers("X", X, ("n_new", self.n_features_in_))
        check_size("X", found)
        return found

    def _standardised(self, X: ArrayLike) -> Array:
        return self._fit.units.inputs(self._encoded(X))


def _record_of(folder: str | Path) -> tuple[Path, Record]:
    """Return the path and record of the model of a folder, whose fit has ended."""
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
    return path, record


def _solve(work: str, stamp: str, block: int) -> dict[str, NDArray[np.generic]]:
    model = _model(str(Path(work).parent), stamp)
    assert isinstance(model._spec.method, IntegratesLatent)  # as `fit_folder` checks
    found = solve_at(model._fit.problem_of(model._stored.of(block)), model._spec.method, model._fit.point)
    return {name: getattr(found, name) for name in ("dual_coef", "site_precision", "log_evidence", "converged")}


@lru_cache(maxsize=2)
def _model(folder: str, stamp: str) -> FolderModel:
    """Return the model of a folder; ``stamp`` changes with it."""
    return FolderModel(folder)


def _order(model: FolderModel, source: Source, work: Records) -> None:
    """Write the encoded inputs, and the order of their blocks."""
    own = list[Rows]()

    def encoded() -> Iterator[Array]:
        for inputs, _ in source.parts():
            X = model._encoded(inputs)
            own.append(model._stored.regions.assign(model._standardised(X)))
            yield X

    write_rows(work.folder / "inputs.npy", encoded())
    order = np.argsort(np.concatenate(own), kind="stable")
    write_rows(work.folder / "order.npy", [order])
    work["order"] = {"rows": order.size}


def _reopened(folder: str | Path, record: object) -> FolderModel:
    """Open the folder of a model whose record has this checksum."""
    model = FolderModel(folder)
    if checksum(model._record) != record:
        raise ValueError(_OTHER.format(model.folder))
    return model


@lru_cache(maxsize=2)
def _open(folder: str, stamp: str) -> tuple[FolderModel, Record]:
    """Return the model and options; ``stamp`` changes with them."""
    run = Records(Path(folder))["run"]
    model = _reopened(run["model"], run["checksum"])
    model.blocks, model.noise_scales = LocalBlocks(**run["blocks"]), run["noise_scales"]
    return model, run


def _predict(folder: str, stamp: str, part: int) -> dict[str, NDArray[np.generic]]:
    model, run = _open(folder, stamp)
    rows = open_rows(Path(folder) / "order.npy")[part * run["task"] :][: run["task"]]
    table = model.predict_table(open_rows(Path(folder) / "inputs.npy")[rows], **run["options"])
    return {"rows": rows, "values": table.to_numpy(), "names": table.columns.to_numpy(dtype=str)}


def _join(parts: list[Path], path: Path, n: int) -> None:
    """Write the predictions in the order of the rows."""
    names = next(saved(parts, "names")).tolist()
    found = np.lib.format.open_memmap(parts[0].with_name("found.npy"), "w+", float, (n, len(names)))
    for rows, values in zip(saved(parts, "rows"), saved(parts, "values"), strict=True):
        found[rows] = values
    with atomic_write(path) as fresh, writing_predictions(path, fresh) as add:
        for at in range(0, n, _ROWS):
            add(pd.DataFrame(found[at : at + _ROWS], columns=names))


def spec_of(record: Mapping[str, Record]) -> tuple[RegressionSpec, Columns]:
    """Return the checked options of a fit, and the columns of its inputs."""
    data = record["data"]
    encoding = None if data["columns"] is None else Encoding.from_json(data["columns"], len(data["names"]))
    columns = Columns(len(data["names"]), None, encoding)
    spec = from_options(BayesianSVR, record["run"]["recipe"])._check_options()
    found = dict(record.get("kernel", {}))  # with its data from the rows
    if found:
        found |= {"levels": tuple(found["levels"]), "warping": Warping.of_array(np.column_stack(found["warping"][:2]))}
    return replace(spec, model=replace(spec.model, tied=columns.tied, **found), size=spec.local.rows), columns


def rows_in(folder: Path, rows: slice = slice(None)) -> TrainingData:
    """Return some rows of the files of a folder."""
    return rows_of(*(open_rows(folder / name)[rows] for name in ("inputs.npy", "targets.npy")))
