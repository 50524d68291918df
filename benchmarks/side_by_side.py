"""Common code of all timings: alternating calls, medians, tables for the screen and ``benchmarks/results.md``."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info

__all__ = ["Timing", "medians", "publish", "threads"]

RESULTS = Path(__file__).parent / "results.md"
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "pymc", "pytensor", "nutpie")
_HEADER = """# Benchmarks

Every time is compared with that of another package, measured in the same run with alternating calls; the numbers are
medians. `python -m benchmarks` makes this page, `python -m benchmarks NAME --save` one part of it.
"""


@dataclass
class Timing:
    """One table: the comparison, the setting, and the numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: str = ""

    def add(self, *cells: object) -> None:
        """Add a row."""
        self.rows.append(tuple(str(cell) for cell in cells))

    def show(self) -> None:
        """Print."""
        table = Table(title=self.title, caption=self.notes or None)
        for column in self.columns:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(*row)
        Console(width=160).print(table)

    def markdown(self) -> str:
        """Format the table for results.md."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + "---:|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines + (["", self.notes] if self.notes else []))


def threads() -> int:
    """Return the number of threads of BLAS."""
    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Measure the median seconds of each function, with alternating calls, after one call that compiles."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def publish(name: str, tables: list[Timing], save: bool) -> None:
    """Print the tables; with ``save`` replace the section of that name in results.md."""
    for table in tables:
        table.show()
    if not save:
        return
    text = RESULTS.read_text() if RESULTS.exists() else _HEADER
    packages = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    where = (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}, {packages}"
    )
    body = "\n\n".join(table.markdown() for table in tables)
    section = f"<!-- {name} -->\n## {name}\n\n{body}\n\n<small>{where}; {threads()} BLAS threads by default.</small>\n"
    pattern = re.compile(rf"<!-- {name} -->\n.*?(?=<!-- |\Z)", re.DOTALL)
    text = pattern.sub(lambda _: section + "\n", text) if pattern.search(text) else f"{text.rstrip()}\n\n{section}"
    RESULTS.write_text(text)
