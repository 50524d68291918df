"""Fit of many rows into a folder, block by block.

Each stage leaves files in the folder ``work``: a fit that was killed goes on where it was, and a stage whose files are
damaged is computed again. The numbers do not depend on how many tasks run at once, nor on where they run.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.core import __version__
from bsvr_pp.core.arrays import Array, Rows
from bsvr_pp.core.atomic_write import LOCK, SealedFile, check_writable, locked
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.estimators.base import LocalBlocks, blocks_from, seeded
from bsvr_pp.estimators.regression_fit import RegressionSpec
from bsvr_pp.estimators.svr import BayesianSVR
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.protocol import ConvergenceWarning, IntegratesLatent
from bsvr_pp.inference.search.at_size import search_in_blocks
from bsvr_pp.large import folder_model
from bsvr_pp.large.folder_model import FolderModel
from bsvr_pp.large.parts import (
    NO_THREADS,
    Data,
    Record,
    Records,
    Source,
    all_whole,
    encode,
    open_rows,
    run_tasks,
    source_of,
    write_array,
    write_arrays,
    writing_rows,
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
) -> FolderModel:
    """Fit support vector regression to data that may be larger than memory, into a folder.

    The model is as by ``estimator.fit`` with ``blocks``, except that gross errors are kept. If the call is
    interrupted, the same call continues it. A folder takes one call at a time; another is refused. Blocks are solved in
    ``n_jobs`` threads of `bp.LocalBlocks`, or on the workers of a surrounding ``joblib.parallel_config("dask")``, which
    see the folder under the same path.

    Parameters
    ----------
    estimator : BayesianSVR
        The options; it is not fitted itself. ``blocks="auto"`` is blocks of 1000 rows.
    data : path, data frame or array
        A Parquet file, a folder of them, or a CSV file; a data frame of pandas or Dask; or inputs (n, d) as a NumPy
        array, a `numpy.memmap` or a Dask array. The columns of tables are encoded as `bsvr_pp.tables.columns` says.
    y : (n,) array, optional
        Targets for inputs that are an array.
    folder : str or Path
        The folder, which is made.
    target : str, optional
        Column to predict of a table; by default the last one.

    Returns
    -------
    FolderModel

    Raises
    ------
    ValueError
        If an option or the data cannot serve, the folder has other files, or another process writes into it.

    Warns
    -----
    ConvergenceWarning
        If blocks, or the search for hyperparameters, did not converge.

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
    spec = estimator._check_options()
    local = spec.local
    if local.size is None or callable(estimator.kernel):
        raise ValueError("estimator must have blocks and a kernel with a name in a folder")
    if not isinstance(spec.method, IntegratesLatent):
        raise ValueError(f"inference must be mean field or Laplace in a folder, got {estimator.inference!r}")
    if not isinstance(folder, str | Path):
        raise ValueError(f"folder must be a path, got {folder!r}")
    rng, source = seeded(estimator.random_state), source_of(data, y, target)
    path = check_writable("folder", folder, folder=True).absolute()
    run = _run_of(estimator, source)
    with local.threads(), locked(path):
        if (path / "model.json").is_file():
            model = FolderModel(path)
            _check_same(path, "a model", model.run, run)
            return model
        work = Records(path / "work")
        if any(file.name != LOCK for file in path.iterdir()):
            _check_same(path, "files", work.get("run", {}), run)
        work["run"] = run
        try:
            if "data" not in work or not all_whole(work.folder / "inputs.npy", work.folder / "targets.npy"):
                work["data"] = encode(source, work.folder, rows=local.rows, log_targets=spec.logarithm)
        except ValueError:
            shutil.rmtree(work.folder)
            raise
        return _run_stages(local, work, path, rng)


def _run_of(estimator: BayesianSVR, source: Source) -> Record:
    """What a fit depends on, as plain data."""
    seed, recipe = estimator.random_state, estimator._options(estimator.get_params(deep=False))
    shown = {"blocks": {"blocks": asdict(blocks_from(estimator.blocks)) | NO_THREADS}, "random_state": None}
    run = {
        "format": folder_model.FORMAT,
        "version": __version__,
        "data": source.identity,
        "target": source.target,
        "recipe": recipe | {"options": recipe["options"] | shown},
        "random_state": int(seed) if isinstance(seed, int | np.integer) else None,
    }
    return json.loads(json.dumps(run))


def _check_same(path: Path, what: str, found: Record, run: Record) -> None:
    """Check that what is in a folder is of the same data, options and version."""
    if found != run:
        version = found.get("version", __version__)
        by = "" if version == __version__ else f", by version {version} of bsvr_pp"
        raise ValueError(f"{path}: has {what} of other data or options{by}: choose another folder, or remove it")


def _run_stages(local: LocalBlocks, work: Records, path: Path, rng: np.random.Generator) -> FolderModel:
    """Run the stages after the first."""
    spec, data = folder_model.spec_of(work)[0], work["data"]
    if "hyperparameters" not in work or not all_whole(work.folder / "partition.npz"):
        (path / "row.npy").unlink(missing_ok=True)
        _find_hyperparameters(spec, work, local, rng)
    with np.load(work.folder / "partition.npz") as saved:
        blocks = Blocks.from_arrays(dict(saved))
    if not all_whole(*(path / name for name in ("row.npy", "inputs.npy", "targets.npy"))):
        _sort(work.folder, path, blocks)
    assert blocks.regions is not None
    evidence, converged = _solve_blocks(path, work, blocks.sizes, local)
    of_blocks = {"size": blocks.sizes, "log_evidence": evidence, "converged": converged}
    write_arrays(path / "regions.npz", **of_blocks, **vars(blocks.regions))
    record = {
        "format": folder_model.FORMAT,
        "run": work["run"],
        "data": data,
        **{name: value for name, value in work["hyperparameters"].items() if name != "partition"},
        "files": {name: SealedFile(path / name).seal for name in folder_model.ARRAYS},
    }
    return _finish(path, record, work.folder, converged)


def _finish(path: Path, record: Record, work: Path, converged: NDArray[np.bool_]) -> FolderModel:
    """Write what the model of a folder is, which ends a fit, and remove the files of the work."""
    Records(path)["model"] = record
    for rest in (work, *path.glob(".bsvr-pp-*")):  # the latter of calls that were killed while they wrote
        shutil.rmtree(rest, ignore_errors=True)
    model = FolderModel(path)
    if not (converged.all() and model.at_size["converged"]):
        failed, name = np.count_nonzero(~converged), model._spec.method.name
        why = f"the solves of {failed} of {converged.size} blocks" if failed else model.at_size["message"]
        warnings.warn(f"{name} did not converge: {why}", ConvergenceWarning, stacklevel=4)
    return model


def _find_hyperparameters(spec: RegressionSpec, work: Records, local: LocalBlocks, rng: np.random.Generator) -> None:
    """Find hyperparameters and blocks, with the random numbers of the first start of this fit."""
    stages = Records(work.folder / "stages")
    rng.bit_generator.state = stages.setdefault("random numbers", dict(rng.bit_generator.state))
    problem = folder_model.problem_in(work.folder, spec.model)
    options = spec.options._replace(progressbar=local.progressbar)
    assert isinstance(spec.method, IntegratesLatent)  # as `fit_folder` checks
    found = search_in_blocks(problem, spec.method, rows=local.rows, options=options, rng=rng, saved=stages)
    write_arrays(work.folder / "partition.npz", **found.blocks.to_arrays())
    neighbours, scales = spec.choose_neighbours(problem, found.point)
    work["hyperparameters"] = {
        "point": found.optima[0].record()["point"],
        "at_size": json.loads(found.record()),
        "neighbours": neighbours,
        "noise_scales": scales.record() if scales.several else None,
        "partition": SealedFile(work.folder / "partition.npz").seal,
    }


def _sort(source: Path, path: Path, blocks: Blocks) -> None:
    """Write the rows sorted by block, in their own order within a block."""
    n = blocks.n
    for name in ("inputs.npy", "targets.npy"):
        values = open_rows(source / name)
        with writing_rows(path / name) as add:
            for at in range(0, n, _ROWS):
                add(values[blocks.order[at : at + _ROWS]])
    write_array(path / "row.npy", blocks.order)


def _solve_blocks(path: Path, work: Records, sizes: Rows, local: LocalBlocks) -> tuple[Array, NDArray[np.bool_]]:
    """Solve the blocks of the sorted rows of a folder, each in a task; their log evidences, and which converged."""
    write_array(work.folder / "offsets.npy", np.append(0, np.cumsum(sizes)))
    files = run_tasks(_solve, work, sizes.size, "blocks" if local.progressbar else "")
    evidence, converged = np.empty(sizes.size), np.empty(sizes.size, dtype=bool)
    with writing_rows(path / "dual_coef.npy") as add_coef, writing_rows(path / "site_precision.npy") as add_precision:
        for block, file in enumerate(files):
            with np.load(file) as found:
                add_coef(found["dual_coef"])
                add_precision(found["site_precision"])
                evidence[block], converged[block] = found["log_evidence"], found["converged"]
    return evidence, converged


@lru_cache(maxsize=4)
def _open(work: str, stamp: str) -> tuple[RegressionSpec, Point, Rows]:
    """Model, hyperparameters and first rows of the blocks; ``stamp`` changes with the fit."""
    records = Records(Path(work))
    return folder_model.spec_of(records)[0], records["hyperparameters"]["point"], np.load(Path(work) / "offsets.npy")


def _solve(work: str, stamp: str, block: int) -> dict[str, NDArray[np.generic]]:
    """Solve a block."""
    spec, point, offsets = _open(work, stamp)
    assert isinstance(spec.method, IntegratesLatent)
    part = folder_model.problem_in(Path(work).parent, spec.model, slice(offsets[block], offsets[block + 1]))
    with threads_for(1):
        found = solve_at(part, spec.method, point)
    return {name: getattr(found, name) for name in ("dual_coef", "site_precision", "log_evidence", "converged")}
