"""Long benchmarks: each finished part is in a file, with the commit and the versions behind it, and is kept."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from rich.progress import track

HERE = Path(__file__).parent
PACKAGES = "numpy", "scipy", "numba", "pymc", "ngboost", "catboost", "lightgbm", "botorch"
Row = Mapping[str, Any]


def commit() -> str:
    """The commit of the code that runs, with a plus sign where files are changed."""
    call = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=9", "--dirty=+", "--exclude=*"]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip() or "no commit"


def finished(file: Path, parts: Iterable[Row], measure: Callable[..., Row | list[Row]]) -> pd.DataFrame:
    """Measure the parts that the file does not have, and append a row for each, or several; all rows of the file.

    A part is named by strings and numbers, which are the first columns of its rows and the arguments of ``measure``.
    All rows have the same columns. Warnings of the packages are ignored.
    """
    wanted = list(parts)
    if not wanted:
        return pd.read_csv(file)
    names = list(wanted[0])
    known = set() if not file.exists() else set(pd.read_csv(file)[names].itertuples(index=False, name=None))
    code = {"commit": commit(), "versions": " ".join(f"{name}-{version(name)}" for name in PACKAGES if find_spec(name))}
    for part in track([part for part in wanted if tuple(part.values()) not in known], description=file.stem):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measure(**part)
        rows = pd.DataFrame([{**part, **row, **code} for row in (found if isinstance(found, list) else [found])])
        rows.to_csv(file, mode="a", header=not file.exists(), index=False)
    return pd.read_csv(file)
