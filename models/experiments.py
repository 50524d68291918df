"""Common code of the experiments: tables with the printed values, parts saved on disk, and the list.

An experiment is a file of this folder with a docstring, the constant ``MINUTES`` (quick, full) and a function
``run(job: Job) -> Report``. It computes its expensive parts one by one with `Job.each`, so that an interrupted run
continues where it stopped.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Memory
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bsvr_pp.core import __version__

__all__ = ["Experiment", "Job", "Report", "Table", "cache_folder", "find_experiments", "summarize"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table to print, and to write as ``name``.csv.

    A column "X sd" is the standard deviation of "X" over our seeds; "X paper" is the printed value.
    """

    name: str
    title: str
    frame: pd.DataFrame
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of an experiment: its tables, and its matplotlib figures by file name."""

    tables: Sequence[Table]
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of an experiment; ``quick`` asks for fewer repeats, ``fresh`` computes saved parts again.

    Examples
    --------
    >>> import tempfile
    >>> job = Job("powers", quick=True, seed=0, cache=Path(tempfile.mkdtemp()), progressbar=False)
    >>> job.each(pow, [{"base": 2, "exp": 3}, {"base": 3, "exp": 2}])
    [8, 9]
    """

    name: str
    quick: bool
    seed: int
    cache: Path
    fresh: bool = False
    progressbar: bool = True

    def each(self, function: Callable[..., Any], settings: Iterable[Mapping[str, Any]], label: str = "") -> list[Any]:
        """Call a function with each of the settings, or load the result that an earlier run saved.

        Results must be picklable. A part is computed again if the settings, the code of the function or the version of
        the package change.
        """
        wanted = list(settings)
        saved = Memory(self.cache / __version__ / self.name, verbose=0).cache(function)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, transient=True, disable=not self.progressbar) as progress:
            task = progress.add_task(label or function.__name__, total=len(wanted))
            results = []
            for arguments in wanted:
                results.append(saved.call(**arguments)[0] if self.fresh else saved(**arguments))
                progress.advance(task)
        return results


def cache_folder() -> Path:
    """Return the folder of saved parts: the environment variable BSVR_PP_CACHE, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BSVR_PP_CACHE") or Path(home) / "bsvr-pp")


def summarize(
    rows: Iterable[Mapping[str, Any]], by: str | list[str], paper: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Compute mean and standard deviation of our results over seeds, and join the printed values.

    The columns ``by`` identify the row of the table; ``paper`` has the same index, and columns of the same names. The
    table has the columns "X", "X sd" and "X paper".
    """
    groups = pd.DataFrame(list(rows)).groupby(by, sort=False)
    mean, spread = groups.mean(), groups.std()
    columns = {}
    for name in mean.columns:
        columns[name] = mean[name]
        if spread[name].notna().any():
            columns[f"{name} sd"] = spread[name]
        if paper is not None and name in paper.columns:
            columns[f"{name} paper"] = paper[name].reindex(mean.index)
    return pd.DataFrame(columns, index=mean.index)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A file that reproduces results of a paper, in so many minutes (quick, full)."""

    name: str
    title: str
    minutes: tuple[float, float]
    path: Path

    def run(self, job: Job) -> Report:
        """Load the file and run it."""
        spec = importlib.util.spec_from_file_location(self.path.stem, self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        report: Report = module.run(job)
        return report


def find_experiments(folder: Path = Path(__file__).parent) -> dict[str, Experiment]:
    """Find the experiments of a folder by name, without running anything."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["MINUTES"]:
                name = path.stem.replace("_", "-")
                title = (ast.get_docstring(tree) or "").split("\n")[0]
                found[name] = Experiment(name, title, ast.literal_eval(node.value), path)
    return found
