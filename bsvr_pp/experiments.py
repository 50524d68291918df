"""Common code of the experiments of the papers: tables with the printed values, parts saved on disk, and the list.

An experiment is a file of ``models/`` with a docstring, the constant ``MINUTES`` (quick, full) and a function
``run(job: Job) -> Report``. It computes its expensive parts one by one with `Job.each`, so that an interrupted run
continues where it stopped.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Memory
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bsvr_pp.version import __version__

__all__ = ["Experiment", "Job", "Report", "Table", "cache_folder", "find_experiments", "summarize"]

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Table:
    """A table to print and to write as CSV.

    Attributes
    ----------
    name : str
        Name of its file, such as "table-1".
    title : str
        Title: the content, and the corresponding table of the paper.
    frame : DataFrame
        The values. A column "X sd" is the standard deviation of "X" over our seeds; "X paper" is the printed value.
    note : str
        Remarks for the reader.
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
    """One run of an experiment: its size, its seed, and the folder of its saved parts.

    Attributes
    ----------
    name : str
        Name of the experiment.
    quick : bool
        Whether to use fewer repeats, and the other reductions that the experiment describes.
    seed : int
        Random seed; the same seed gives the same result.
    cache : Path
        Folder of the saved parts.
    fresh : bool
        Whether to ignore saved parts and compute everything again.
    progressbar : bool
        Whether to show progress.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bsvr_pp.experiments import Job
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

        Parameters
        ----------
        function : callable
            The function; its result must be picklable.
        settings : iterable of dict
            Keyword arguments, which identify the part. A part is computed again if they, the code of the function or
            the version of the package change.
        label : str
            Label of the progress bar; by default the name of the function.

        Returns
        -------
        list
            The results, in the order of the settings.
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

    Parameters
    ----------
    rows : iterable of dict
        Results: each has the columns ``by``, which identify the row of the table, and numbers.
    by : str or list of str
        Columns that identify the row.
    paper : DataFrame, optional
        The printed numbers, with the same index and column names.

    Returns
    -------
    DataFrame
        The table, with the columns "X", "X sd" and "X paper".

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.experiments import summarize
    >>> printed = pd.DataFrame({"error": [1.1]}, index=pd.Index([50], name="n"))
    >>> summarize([{"n": 50, "error": 1.0}, {"n": 50, "error": 2.0}], "n", printed).columns.tolist()
    ['error', 'error sd', 'error paper']
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
    """A file of ``models/`` that reproduces results of a paper."""

    name: str
    title: str
    minutes: tuple[float, float]
    path: Path

    def run(self, job: Job) -> Report:
        """Load the file and run it."""
        folder = str(self.path.parent)
        if folder not in sys.path:
            sys.path.append(folder)  # experiments of one paper share a file
        spec = importlib.util.spec_from_file_location(self.path.stem, self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        report: Report = module.run(job)
        return report


def find_experiments(folder: Path | None = None) -> dict[str, Experiment]:
    """Find the experiments by name, without running anything.

    Parameters
    ----------
    folder : Path, optional
        Folder of the files; by default ``models`` in the source tree.

    Returns
    -------
    dict
        Name to experiment. It is empty if the folder does not exist: an installed package does not contain it.
    """
    if folder is None:
        folder = _ROOT / "models"
        if not (_ROOT / "pyproject.toml").is_file():
            return {}
    found = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["MINUTES"]:
                name = path.stem.replace("_", "-")
                title = (ast.get_docstring(tree) or "").split("\n")[0]
                found[name] = Experiment(name, title, ast.literal_eval(node.value), path)
    return found
