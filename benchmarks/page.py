"""``python -m benchmarks page`` writes the tables of ``docs/how-good-is-it.md`` from the committed files of results."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from benchmarks import outliers, uci
from benchmarks.side_by_side import Timing

PAGE = Path(__file__).parent.parent / "docs" / "how-good-is-it.md"
PARTS = {"uci": uci, "outliers": outliers}


def table_of(name: str) -> str:
    """The tables of a benchmark in Markdown, and the commits behind them."""
    part = PARTS[name]
    rows = pd.read_csv(part.FILE)
    tables: list[Timing] = part.summary(rows)
    commits = ", ".join(f"`{commit}`" for commit in rows["commit"].unique())
    text = "\n\n".join(table.markdown() for table in tables).replace(" ± nan", "")  # one split has no standard error
    return f"{text}\n\n<small>Commit {commits}.</small>"


def filled(text: str) -> str:
    """The text of the page with its tables made anew."""
    return re.sub(
        r"(<!-- (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{table_of(found[2])}\n{found[3]}",
        text,
        flags=re.S,
    )


def main() -> None:
    """Write the tables of the page on how good the package is."""
    PAGE.write_text(filled(PAGE.read_text()))
