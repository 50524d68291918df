"""A comparison arranged in sections and lines, with one cell for each method, for both the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bsvr_pp.assess.assessment import Estimate
from bsvr_pp.assess.compare import Comparison
from bsvr_pp.show.figures import Figure, Value, groups
from bsvr_pp.show.words import MISSING, cell

__all__ = ["Line", "Section", "sections"]


@dataclass(frozen=True, slots=True)
class Line:
    """One number for every method.

    Attributes
    ----------
    label : str
        Label of the number.
    cells : tuple of str
        Its values, one for each method.
    """

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that answer one question.

    Attributes
    ----------
    title, explanation : str
        The question, and an explanation of the figures.
    lines : tuple of Line
        The figures.
    """

    title: str
    explanation: str
    lines: tuple[Line, ...]


def sections(
    comparison: Comparison, names: Mapping[str, Sequence[str]] | None = None, *, brief: bool = False
) -> list[Section]:
    """Arrange a comparison for readers.

    Parameters
    ----------
    comparison : Comparison
        Result of `bsvr_pp.assess.compare.assess`.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.
    brief : bool
        Whether to omit the distances of each hyperparameter.

    Returns
    -------
    list of Section
        Those that have figures.

    Examples
    --------
    >>> from bsvr_pp.assess.assessment import Assessment, EvidenceFigures
    >>> from bsvr_pp.assess.compare import Comparison
    >>> from bsvr_pp.show.sections import sections
    >>> found = Assessment("mean field", False, False, True, 2.0, "", {}, {}, EvidenceFigures(-3.5))
    >>> [(s.title, s.lines[0].cells) for s in sections(Comparison({"mean field": found}, {}, {}))]
    [('Evidence', ('-3.5',)), ('Diagnostics and cost', ('yes',))]
    """
    out = []
    for group in groups(comparison):
        lines = [_line(comparison, figure, names or {}) for figure in group.figures if not (brief and figure.detail)]
        out.append(Section(group.title, group.explanation, tuple(line for line in lines if line is not None)))
    return [section for section in out if section.lines]


def _line(comparison: Comparison, figure: Figure, names: Mapping[str, Sequence[str]]) -> Line | None:
    """Return one number for every method, or None if it contains no information."""
    cells = tuple(_cell(figure.of(found), figure.decimals) for found in comparison.results.values())
    # Only the distance of the reference from itself: no information.
    nothing = {MISSING, "0"} if figure.distance else {MISSING}
    return None if set(cells) <= nothing else Line(_label(figure, names), cells)


def _label(figure: Figure, names: Mapping[str, Sequence[str]]) -> str:
    """Return the label, in which for example lengthscale[3] is replaced by the name of that input."""
    entry = figure.entry
    if entry is None:
        return figure.label
    if entry.position is None or entry.name not in names:
        return figure.label.format(entry.label)
    return figure.label.format(f"{entry.name} {names[entry.name][entry.position]}")


def _cell(value: Value, most: int) -> str:
    """Format a value; an estimate is rounded to its standard error."""
    if not isinstance(value, Estimate):
        return cell(value)
    text = cell(value.value)
    if text == MISSING or not value.error > 0:
        return text
    if not np.isfinite(value.error):
        return f"{text} ± ?"
    decimals = 1 - int(np.floor(np.log10(value.error)))
    if decimals < 0 or value.error < 0.5 * 10.0**-most:
        return f"{text} ± {value.error:.2g}"
    decimals = min(decimals, most)
    return f"{value.value:.{decimals}f} ± {value.error:.{decimals}f}"
