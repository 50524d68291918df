"""A comparison for readers: one self-contained HTML page, for a phone or on paper, and lines in a terminal.

The template of the page is ``report.html`` in this folder; Jinja escapes all inserted text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bsvr_pp._docs import shared
from bsvr_pp.assess.verdict import Comparison
from bsvr_pp.show.words import UNITS, duration, evidence_words, point_words, sections, summary
from bsvr_pp.version import __version__

_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")
_ENVIRONMENT = Environment(
    loader=PackageLoader("bsvr_pp", "show"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_ENVIRONMENT.filters["minus"] = lambda text: _MINUS.sub("−", text)
_ENVIRONMENT.filters["base64"] = lambda data: base64.b64encode(data).decode("ascii")
_ENVIRONMENT.filters["duration"] = duration
_ENVIRONMENT.filters["point"] = point_words


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture for the report page: title, explanation for the reader, and the image."""

    title: str
    caption: str
    png: bytes


@shared
def report_page(
    table: pd.DataFrame,
    *,
    title: str,
    description: str = "",
    pictures: Sequence[Picture] = (),
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> str:
    """Write a comparison as one self-contained HTML page that begins with the verdict.

    Parameters
    ----------
    table : ComparisonTable
        Result of `compare`.
    title, description : str
        Title and description of the data.
    pictures : sequence of Picture
        The pictures, in order: `bsvr_pp.show.report.Picture(title, caption, png)`, with the bytes of a PNG file.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.
    skipped : dict, optional
        Methods that were not run, with the reason.

    Returns
    -------
    str
        The page; it needs no other files and no network.

    Raises
    ------
    ValueError
        If the table is not of `compare`.
    TypeError
        If a picture is not a `Picture`.

    <sinc_model>
    >>> results = {"mean field": bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)}
    >>> page = bp.report_page(bp.compare(results, model=model), title="sinc")
    >>> page.startswith("<!doctype html>")
    True
    """
    comparison = getattr(table, "comparison", None)
    if not isinstance(comparison, Comparison) or "verdict" not in table:
        found = f"columns {list(table.columns)}" if isinstance(table, pd.DataFrame) else type(table).__name__
        raise ValueError(f"table must be of compare(), with all columns, got {found}")
    if not all(isinstance(picture, Picture) for picture in pictures):
        raise TypeError(f"pictures must be of Picture(title, caption, png), got {pictures!r}")
    return _ENVIRONMENT.get_template("report.html").render(
        title=str(title),
        description=description,
        summary=summary(comparison),
        comparison=comparison,
        skipped=skipped or {},
        evidence=evidence_words(comparison),
        sections=sections(comparison, names),
        pictures=pictures,
        version=__version__,
    )


def print_comparison(
    console: Console,
    comparison: Comparison,
    *,
    title: str,
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> None:
    """Print a comparison, with verdicts and summary at the end, where they are seen first.

    ``names`` are those of the entries of a vector hyperparameter, ``skipped`` the methods that were not run, with the
    reason. Four methods fit into 80 columns; with more methods, values with errors use two lines.
    """
    shown = sections(comparison, names, brief=True)
    lines = [line for section in shown for line in section.lines]
    label = min(max(len(line.label) for line in lines), console.width // 3)
    share = (console.width - label) // len(comparison.results) - 1
    widths = [
        min(max(len(text) for text in (*name.split(), *(line.cells[i] for line in lines))), share)
        for i, name in enumerate(comparison.results)
    ]
    console.print(f"\n{escape(title)}", soft_wrap=True)
    for i, section in enumerate(shown):
        console.print(f"\n[bold]{escape(section.title)}[/]", soft_wrap=True)
        block = Table(box=None, show_header=i == 0, pad_edge=False, padding=(0, 1, 0, 0))
        block.add_column("", width=label)
        for name, width in zip(comparison.results, widths, strict=True):
            block.add_column(escape(name), justify="right", width=width)
        for line in section.lines:
            block.add_row(escape(line.label), *map(escape, line.cells))
        console.print(block)
    console.print()
    for name, why in (skipped or {}).items():
        console.print(f"{escape(name)}: {escape(why)}", soft_wrap=True)
    for name in comparison.results:
        console.print(f"[bold]{escape(name)}[/]: {escape('; '.join(comparison.clauses(name)))}", soft_wrap=True)
    if comparison.mixed:
        console.print(escape(UNITS), soft_wrap=True)
    console.print(f"[bold]{escape(summary(comparison))}[/]", soft_wrap=True)
