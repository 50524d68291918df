"""A comparison for readers: its judgements in words, and its numbers in lines and sections, which the table shares."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import floor, isfinite, log10, nan
from typing import Any, NamedTuple

from bsvr_pp.assess.assessment import Numbers, Value
from bsvr_pp.assess.reweighting import GOOD_K
from bsvr_pp.assess.verdict import GOOD_R_HAT, Comparison

_MISSING = "–"
_DECIMALS = {"evidence at theta": 2, "error at theta": 3, "evidence error": 3}  # at most: less decides nothing
_TEXTS: list[dict[str, Any]] = tomllib.loads((files(__package__) / "sections.toml").read_text("utf-8"))["section"]
UNITS = (
    "Exact targets have densities and intervals have probabilities: log evidences depend on the unit of y, and "
    "only their differences on the same data have a meaning."
)


def summary(comparison: Comparison) -> str:
    """State which result to use, in one to three sentences."""
    results, (best, others, warned) = comparison.results, comparison.recommendation
    warnings = f" See the warnings for {_listed(warned)}." if warned else ""
    if best is not None:
        also = f" ({_listed(others)} can be trusted as well)" if others else ""
        took = duration(results[best].number("seconds"))
        said = f"Use {best}: no problem was found, and it took {took}{also}.{warnings}"
    elif len(warned) == len(results):
        said = "None of these results can be trusted as it is: see the warnings for each."
    else:
        plain = _listed([name for name in results if name not in warned])
        said = f"No problem was found with {plain}, but there are no error bars of f.{warnings}"
    if comparison.shared is None:
        return said
    return f"{said} Under every method {comparison.shared}. Look at the noise model or the split."


def evidence_words(comparison: Comparison) -> str:
    """State whether the evidences at the common hyperparameters agree, and what their values depend on."""
    said, evidence = [], comparison.evidence
    if len(evidence) > 1:
        reference = "annealed" if "annealed" in evidence else "mean field"
        value, error, _ = evidence[reference]
        parts = [
            f"{name} is off by {other - value:+.2f} nats" if converged else f"{name} did not converge"
            for name, (other, _, converged) in evidence.items()
            if name != reference
        ]
        spread = f" ± {error:.2f}" if error else ""
        said.append(f"Against the {reference} log evidence of {value:.2f}{spread}, {_listed(parts)}.")
    return " ".join([*said, UNITS] if comparison.mixed else said)


def point_words(point: Mapping[str, Any]) -> str:
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


def _entries(value: Any) -> str:
    return "(" + ", ".join(map(_entries, value)) + ")" if isinstance(value, list) else cell(value)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
