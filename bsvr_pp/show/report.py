"""A comparison for readers: its judgements in words, a self-contained HTML page, and lines in a terminal.

The sentences are in ``words.txt``, titles and lines of numbers in ``sections.toml``, and the page, for a phone or on
paper, is ``report.html``; Jinja escapes all text in the page. The table of a comparison has the same numbers.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import floor, isfinite, log10, nan
from typing import NamedTuple, TypedDict

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bsvr_pp._docs import shared
from bsvr_pp.assess.assessment import Numbers, Plain, Value
from bsvr_pp.assess.reweighting import GOOD_K
from bsvr_pp.assess.verdict import GOOD_R_HAT, Comparison
from bsvr_pp.version import __version__


class _Text(TypedDict):
    """A section of the file of sections."""

    title: str
    explanation: str
    error: str
    columns: dict[str, str]


_MISSING = "–"
_DECIMALS = {"evidence at theta": 2, "error at theta": 3, "evidence error": 3}  # at most: less decides nothing
_TEXTS: list[_Text] = tomllib.loads((files(__package__) / "sections.toml").read_text("utf-8"))["section"]
_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")
UNITS = (
    "Exact targets have densities and intervals have probabilities: log evidences depend on the unit of y, and "
    "only their differences on the same data have a meaning."
)


def summary(comparison: Comparison) -> str:
    """State which result to use, in one to three sentences."""
    return _said("summary", comparison)


def evidence_words(comparison: Comparison) -> str:
    """State whether the evidences at the common hyperparameters agree, and what their values depend on."""
    return _said("evidence", comparison, UNITS)


def _said(macro: str, *facts: object) -> str:
    """A sentence of the file of sentences."""
    return str(getattr(_ENVIRONMENT.get_template("words.txt").module, macro)(*facts))


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


def point_words(point: Mapping[str, Plain]) -> str:
    """Write hyperparameters, numbers or lists of them, in one line."""
    return ", ".join(f"{name} = {_entries(value)}" for name, value in point.items())


def duration(seconds: float) -> str:
    """Write a time to two digits, in seconds, minutes or hours."""
    for unit, size, least in (("h", 3600.0, 5400.0), ("min", 60.0, 99.5)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


class Line(NamedTuple):
    """One number for every result: its label, and a cell for each result."""

    label: str
    cells: tuple[str, ...]


class Section(NamedTuple):
    """Numbers that answer one question, with a title and an explanation."""

    title: str
    explanation: str
    lines: Sequence[Line]


def sections(
    comparison: Comparison, names: Mapping[str, Sequence[str]] | None = None, *, brief: bool = False
) -> list[Section]:
    """Arrange a comparison for readers, in those sections that have figures.

    ``names`` are those of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``. If it is
    ``brief``, the distances of each hyperparameter are omitted.
    """
    facts = {"reference": comparison.reference, "k_hat": GOOD_K, "r_hat": GOOD_R_HAT}
    named = {f"{name}[{i}]": f"{name} {x}" for name, each in (names or {}).items() for i, x in enumerate(each)}
    out = []
    for text in _TEXTS:
        lines = []
        for key, label in text["columns"].items():
            distance = key.startswith(("W ", "KL "))
            if brief and distance and "{}" in key:
                continue
            nothing = {_MISSING, "0"} if distance else {_MISSING}  # the reference has distance 0 from itself
            error, most = f"{key} {text['error']}", _DECIMALS.get(key, 6)
            for entry, rows in _rows(comparison, key).items():
                cells = tuple(cell(row.get(key), row.get(error), most) for row in rows)
                if not set(cells) <= nothing:
                    lines.append(Line(label.format(named.get(entry, entry)), cells))
        if lines:
            out.append(Section(text["title"].format(**facts), text["explanation"].format(**facts), lines))
    return out


def columns(comparison: Comparison) -> dict[str, list[Value]]:
    """Return the columns of the table: numbers that were computed for a result, and their errors."""
    out = {}
    for key, error in ((key, text["error"]) for text in _TEXTS for key in text["columns"]):
        for entry, rows in _rows(comparison, key).items():
            for column in (key, f"{key} {error}"):
                if any(column in row for row in rows):
                    out[column.format(entry)] = [row.get(column, nan) for row in rows]
    return out


def _rows(comparison: Comparison, key: str) -> dict[str, list[Numbers]]:
    """Numbers of every result in which to find a key, by the hyperparameters that take the place of ``{}`` in it."""
    results = comparison.results.values()
    if "{}" not in key:
        return {"": [found.numbers for found in results]}
    entries = dict.fromkeys(entry for found in results for entry in found.hyperparameters)
    return {entry: [found.hyperparameters.get(entry, {}) for found in results] for entry in entries}


def cell(value: Value | None, error: Value | None = None, most: int = 6) -> str:
    """Write one value with four digits, or "–" if there is no value; an unknown value is never written as 0.

    A value with an error is rounded to the error, to at most so many decimals.
    """
    if isinstance(value, str):
        return value or _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or not isfinite(value):
        return _MISSING
    text = f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e6 else f"{value:.4g}"
    spread = float(error or 0)
    if not spread > 0:
        return text
    if not isfinite(spread):
        return f"{text} ± ?"
    decimals = 1 - floor(log10(spread))
    if decimals < 0 or spread < 0.5 * 10.0**-most:
        return f"{text} ± {spread:.2g}"
    decimals = min(decimals, most)
    return f"{value:.{decimals}f} ± {spread:.{decimals}f}"


def _entries(value: Plain) -> str:
    return "(" + ", ".join(map(_entries, value)) + ")" if isinstance(value, list) else cell(value)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


_ENVIRONMENT = Environment(
    loader=PackageLoader("bsvr_pp", "show"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
)
_ENVIRONMENT.filters |= {
    "minus": lambda text: _MINUS.sub("−", text),
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "duration": duration,
    "point": point_words,
    "listed": _listed,
}
