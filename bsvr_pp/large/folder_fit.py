"""Fit of many rows into a folder, block by block.

Each stage leaves files in the folder ``work``: a killed fit continues where it stopped, and a stage with damaged files
is computed again. The results do not depend on how many tasks run at once, or where they run.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core import __version__
from bsvr_pp.core.arrays import Rows
from bsvr_pp.core.atomic_write import LOCK, SealedFile, check_writable, locked
from bsvr_pp.estimators.base import LocalBlocks, blocks_from, seeded
from bsvr_pp.estimators.matrices import is_matrix
from bsvr_pp.estimators.regression_fit import RegressionSpec, choose_scale, warn_of_few_values
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.inference.prediction.neighbours import solved_rows
from bsvr_pp.inference.protocol import IntegratesLatent, warn_unconverged
from bsvr_pp.inference.search.at_size import search_in_blocks
from bsvr_pp.large import folder_model
from bsvr_pp.large.folder_model import FolderModel, rows_in
from bsvr_pp.large.parts import (
    NO_THREADS,
    Data,
    Record,
    Records,
    Source,
    all_whole,
    checksum,
    encode,
    open_rows,
    run_tasks,
    saved,
    source_of,
    write_arrays,
    write_rows,
)
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.problem import Point

_ROWS = 50_000  # rows that are sorted together


def fit_folder(
    estimator: BayesianSVR,
    data: Data,
    y: NDArray[np.generic] | None = None,
    *,
    folder: str | Path,
    target: str | None = None,
    sample_weight: ArrayLike | None = None,
) -> FolderModel:
    """Fit support vector regression to data that may be larger than memory, into a folder.

    The model is as by ``estimator.fit`` with ``blocks``, except that gross errors are kept. `FolderModel.solve` solves
    the blocks, which predictions from nearest rows do not need. The same call continues an interrupted one. A second
    call on a folder at the same time is refused. Blocks are solved in ``n_jobs`` threads of `bp.LocalBlocks`, or on the
    workers of a surrounding ``joblib.parallel_config("dask")``, which must see the folder under the same path.

    Parameters
    ----------
    estimator : BayesianSVR
        The options; the estimator is not fitted. ``blocks="auto"`` means blocks of 1000 rows.
    data : path, data frame or array
        A Parquet file, a folder of them, or a CSV file; a data frame of pandas or Dask; or inputs (n, d) as an array of
        NumPy or Dask or a `numpy.memmap`. `bsvr_pp.tables.columns` encodes the columns of tables.
    y : (n,) array, (n, 2) array or structured array, optional
        Targets if the inputs are an array; or intervals or times, as in `BayesianSVR.fit`.
    folder : str or Path
        The folder, which is created.
    target : str, optional
        Column to predict of a table; by default the last one.
    sample_weight : (n,) array, optional
        Weights of exact targets, > 0; other ones than 1 choose other random rows than `fit`. Equal rows are not merged.

    Returns
    -------
    FolderModel

    Raises
    ------
    ValueError
        If an option or the data are not usable, the folder has other files, or another process writes into it.

    Warns
    -----
    ConvergenceWarning
        If the search for hyperparameters did not converge.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(0, 9, 60)[:, None]
    >>> svr = bp.BayesianSVR(blocks=30, restarts=1, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = bp.fit_folder(svr, X, np.sin(X[:, 0]), folder=folder + "/model")
    ...     bool(abs(model.predict([[4.0]])[0] - np.sin(4.0)) < 0.1)
    ...     model.predict_into(X[:5], folder + "/predictions.csv")
    True
    5
    """
    if not isinstance(estimator, BayesianSVR):
        raise ValueError(f"estimator must be a BayesianSVR in a folder, got {type(estimator).__name__}: fit in memory")
    spec = estimator._check_options()
    local = spec.local
    if spec.monotone:
        raise ValueError("monotone takes a dense fit in memory, not a folder: leave it out")
    if spec.shared:
        raise ValueError("shared=True takes several targets in memory, not a folder: use shared=False")
    if local.size is None or callable(estimator.kernel) or is_matrix(estimator.kernel):
        raise ValueError("estimator must have blocks and a kernel of inputs with a name in a folder")
    if not isinstance(spec.method, IntegratesLatent):
        raise ValueError(f"inference must be mean field or Laplace in a folder, got {estimator.inference!r}")
    if not isinstance(folder, str | Path):
        raise ValueError(f"folder must be a path, got {folder!r}")
    rng = seeded(estimator.random_state)
    source = source_of(data, y, target, sample_weight, estimator.intervals)
    path = check_writable("folder", folder, folder=True).absolute()
    run = _run_of(estimator, source)
    with local.threads(), locked(path):
        begun = _begun(path, run)
        model = begun if isinstance(begun, FolderModel) else _run_stages(spec, local, source, begun, path, rng)
    if model.neighbours_ is None:  # predictions use the block of the new row
        model.blocks = local
        model.solve()
    return model


def _begun(path: Path, run: Record) -> FolderModel | Records:
    """Return the model of this fit if it has ended, else its records; anything else in the folder is refused."""
    ended = (path / "model.json").is_file()
    model, work = FolderModel(path) if ended else None, Records(path / "work")
    found, what = (work.get("run", {}), "files") if model is None else (model.run, "a model")
    if any(file.name != LOCK for file in path.iterdir()) and found != run:
        version = found.get("version", __version__)
        by = "" if version == __version__ else f", by version {version} of bsvr_pp"
        raise ValueError(f"{path}: has {what} of other data or options{by}: choose another folder, or remove it")
    if model is not None:
        if "solve" not in work or model._stored.log_evidence is not None:  # left by a process that was killed
            shutil.rmtree(work.folder, ignore_errors=True)
        return model
    work["run"] = run
    return work


def _run_of(estimator: BayesianSVR, source: Source) -> Record:
    """Return everything that a fit depends on, as plain data."""
    recipe = estimator._options(estimator.get_params(deep=False))
    seed = recipe["options"]["random_state"]
    shown = {"blocks": {"blocks": asdict(blocks_from(estimator.blocks)) | NO_THREADS}, "random_state": None}
    run = {
        "format": folder_model.FORMAT,
        "version": __version__,
        "data": source.identity,
        "target": source.target,
        "recipe": recipe | {"options": recipe["options"] | shown},
        "random_state": checksum(seed) if isinstance(seed, dict) else seed,
    }
    return json.loads(json.dumps(run))


def _run_stages(
    spec: RegressionSpec, local: LocalBlocks, source: Source, work: Records, path: Path, rng: np.random.Generator
) -> FolderModel:
    """Run all stages whose files are missing."""
    try:
        if "data" not in work or not all_whole(work.folder / "inputs.npy", work.folder / "targets.npy"):
            own = replace(spec, local=replace(local, size=local.rows), set_aside=False)  # divided, and keeps errors
            choose = partial(choose_scale, spec=own, rng=rng)
            work["data"] = encode(source, work.folder, rows=local.rows, scale_of=lambda *given: choose(*given)[0])
    except ValueError:
        shutil.rmtree(work.folder)
        raise
    spec, data = folder_model.spec_of(work)[0], work["data"]
    if "kernel" not in work:
        rows = rows_in(work.folder)
        model = replace(spec.with_noise([rows]).model, kernel=spec.kernel_for(data["rows"]))
        warn_of_few_values(rows, model.noise)
        model = model.suited(rows, warping=spec.warping, automatic=spec.automatic)
        work["kernel"] = {name: getattr(model, name) for name in ("noise", "kernel", "levels", "warping", "pairs")}
        spec = folder_model.spec_of(work)[0]
    if "hyperparameters" not in work or not all_whole(work.folder / "partition.npz"):
        for name in ("row.npy", "solved.npy"):
            (path / name).unlink(missing_ok=True)
        assert isinstance(spec.method, IntegratesLatent)  # as `fit_folder` checks
        problem = spec.model.problem(rows_in(work.folder))
        options = spec.options._replace(progressbar=local.progressbar)
        found = search_in_blocks(problem, spec.method, rows=local.rows, options=options, rng=rng)
        write_arrays(work.folder / "partition.npz", **found.blocks.to_arrays())
        work["hyperparameters"] = {
            "point": found.optima[0].record()["point"],
            "at_size": json.loads(found.record()),
            "partition": SealedFile(work.folder / "partition.npz").seal,
        }
    with np.load(work.folder / "partition.npz") as arrays:
        blocks = Blocks.from_arrays(dict(arrays))
    if not all_whole(*(path / name for name in ("row.npy", "inputs.npy", "targets.npy"))):
        for name in ("inputs.npy", "targets.npy"):
            values = open_rows(work.folder / name)
            write_rows(path / name, (values[blocks.order[at : at + _ROWS]] for at in range(0, blocks.n, _ROWS)))
        write_rows(path / "row.npy", [blocks.order])  # sorted by block, in their own order within a block
    assert blocks.regions is not None
    if not all_whole(path / "solved.npy"):
        write_rows(work.folder / "offsets.npy", [blocks.offsets])
        files = run_tasks(_solve, work, len(blocks), "small blocks" if local.progressbar else "")
        write_rows(path / "solved.npy", saved(files, "solved"))
    if "predictions" not in work:
        point, solved = work["hyperparameters"]["point"], np.empty((data["rows"], 4))
        solved[open_rows(path / "row.npy")] = open_rows(path / "solved.npy")  # rows in their own order
        problem = spec.model.problem(rows_in(work.folder))
        solved_rows(problem, point, known=solved)
        neighbours, scales = spec.choose_neighbours(problem, point)
        work["predictions"] = {"neighbours": neighbours, "noise_scales": scales.record() if scales.several else None}
    write_arrays(path / "regions.npz", size=blocks.sizes, **vars(blocks.regions))
    record = {
        "format": folder_model.FORMAT,
        "run": work["run"],
        "data": data,
        "kernel": work["kernel"],
        **{name: work["hyperparameters"][name] for name in ("point", "at_size")},
        **work["predictions"],
        "files": {name: SealedFile(path / name).seal for name in folder_model.ARRAYS},
    }
    return _finish(path, record, work.folder)


def _finish(path: Path, record: Record, work: Path) -> FolderModel:
    """Write the record of the model, which ends a fit, and remove the files of the work."""
    Records(path)["model"] = record
    for rest in (work, *path.glob(".bsvr-pp-*")):  # the latter are from calls killed while writing
        shutil.rmtree(rest, ignore_errors=True)
    model = FolderModel(path)
    if not model.at_size["converged"]:
        warn_unconverged(f"{model._spec.method.name} did not converge: {model.at_size['message']}")
    return model


@lru_cache(maxsize=4)
def _open(work: str, stamp: str) -> tuple[RegressionSpec, Point, Rows]:
    """Return the model, hyperparameters and first rows of the blocks; ``stamp`` changes with the fit."""
    records = Records(Path(work))
    return folder_model.spec_of(records)[0], records["hyperparameters"]["point"], np.load(Path(work) / "offsets.npy")


def _solve(work: str, stamp: str, block: int) -> dict[str, NDArray[np.generic]]:
    """Solve a block in small blocks."""
    spec, point, offsets = _open(work, stamp)
    part = spec.model.problem(rows_in(Path(work).parent, slice(offsets[block], offsets[block + 1])))
    return {"solved": np.column_stack(solved_rows(part, point))}
