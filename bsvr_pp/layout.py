"""Which figures of a comparison to show, in which order and under which names: for terminal and page alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bsvr_pp.verdict import GOOD_K, GOOD_R_HAT

__all__ = ["Line", "Section", "cell", "sections"]

MISSING = "–"
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One figure under every method.

    Attributes
    ----------
    label : str
        Its name.
    cells : tuple of str
        Its values, one a method.
    """

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that answer one question.

    Attributes
    ----------
    title, explanation : str
        The question, and how to read the figures.
    lines : tuple of Line
        The figures.
    """

    title: str
    explanation: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class _Figure:
    column: str
    label: str


_PREDICTIONS = (
    _Figure("mlpd", "log density"),
    _Figure("crps", "CRPS"),
    _Figure("ase", "squared error"),
    _Figure("aae", "absolute error"),
    _Figure("error rate", "error rate"),
    _Figure("coverage 80 %", "in 80 % interval"),
    _Figure("coverage 95 %", "in 95 % interval"),
    _Figure("calibration error", "calibration error"),
)
_EVIDENCE = (
    _Figure("evidence at theta", "log p(y|θ)"),
    _Figure("evidence error", "its error"),
    _Figure("log_evidence", "at its optimum"),
    _Figure("p(y)", "log p(y)"),
    _Figure("elpd", "LOO density"),
    _Figure("elpd kind", "LOO by"),
)
_DIAGNOSTICS = (
    _Figure("converged", "converged"),
    _Figure("k-hat", "k-hat"),
    _Figure("R-hat", "R-hat"),
    _Figure("ESS", "effective draws"),
    _Figure("ESS/s", "the same a second"),
    _Figure("divergences", "divergences"),
    _Figure("off-bound", "SVs, off-bound"),
    _Figure("on-bound", "SVs, on-bound"),
    _Figure("seconds", "seconds"),
)


def sections(
    table: pd.DataFrame, names: Mapping[str, Sequence[str]] | None = None, *, brief: bool = False
) -> list[Section]:
    """Arrange a comparison for readers.

    Parameters
    ----------
    table : DataFrame
        Of `compare`.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.
    brief : bool
        Whether to leave out the distances of each hyperparameter.

    Returns
    -------
    list of Section
        Those that have figures.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.layout import sections
    >>> table = pd.DataFrame({"mlpd": [-1.0, -1.2], "seconds": [2.0, 90.0]}, index=["mean field", "NUTS"])
    >>> [(s.title, s.lines[0].cells) for s in sections(table)]
    [('Predictions on test data', ('-1', '-1.2')), ('Diagnostics and cost', ('2', '90'))]
    """
    parameters = [str(c)[:-3] for c in table.columns if str(c).endswith(" sd")]
    labels = {p: _entry(p, names or {}) for p in parameters}
    distances = [_Figure("f differs", "mean of f"), _Figure("y differs", "mean of y")]
    marginals = {"f": "f"} if brief else {"f": "f", **labels}
    distances += [_Figure(f"{of} {p}", f"{of} {label}") for of in ("W", "KL") for p, label in marginals.items()]
    reference = table.attrs.get("reference")
    parts = [
        (
            "Predictions on test data",
            "Log predictive density: larger is better. CRPS and errors: smaller is better. Calibration error: mean "
            "distance between predicted and observed shares, 0 at best.",
            _PREDICTIONS,
        ),
        (
            "Evidence",
            "Log evidence of each method at one common θ, and its error against annealing, which is exact up to its "
            "standard error. log p(y) has θ integrated out. LOO density: expected log density of each target given "
            "the others; compare only those that are computed alike.",
            _EVIDENCE,
        ),
        (
            "Hyperparameters",
            "Value of a point, or mean ± standard deviation of draws.",
            [_Figure(p, label) for p, label in labels.items()],
        ),
        (
            f"Distance from {reference}",
            "Largest difference of means, in standard deviations of f and of y. W: Wasserstein distance of marginals, "
            "in standard deviations. KL: divergence of marginals, in nats.",
            distances,
        ),
        (
            "Diagnostics and cost",
            f"k-hat up to {GOOD_K}: the approximation, of all of f at once, is close enough to the exact posterior to "
            f"be reweighted; it grows with the number of rows. R-hat up to {GOOD_R_HAT}: chains agree. Support vectors "
            "(SVs) off-bound lie on the rim of the tube, on-bound ones outside it. Seconds include compilation.",
            _DIAGNOSTICS,
        ),
    ]
    out = [
        Section(title, text, tuple(_line(table, f) for f in figures if _shown(table, f)))
        for title, text, figures in parts
    ]
    return [section for section in out if section.lines]


def cell(value: Any) -> str:
    """Write one value: four digits, "–" where there is none, and never 0 for what is not known."""
    if isinstance(value, str):
        return value or MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or not np.isfinite(float(value)):
        return MISSING
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.4g}"


def _entry(parameter: str, names: Mapping[str, Sequence[str]]) -> str:
    """lengthscale[3] as lengthscale of the input of that name."""
    name, _, index = parameter.rstrip("]").partition("[")
    return f"{name} {names[name][int(index)]}" if index and name in names else parameter


def _shown(table: pd.DataFrame, figure: _Figure) -> bool:
    # Distances of the reference from itself alone say nothing.
    nothing = (MISSING, "0") if figure.column.startswith(("W ", "KL ")) else (MISSING,)
    return figure.column in table and any(cell(value) not in nothing for value in table[figure.column])


def _line(table: pd.DataFrame, figure: _Figure) -> Line:
    values = list(table[figure.column])
    spread = next((c for c in (f"{figure.column} sd", f"{figure.column} se") if c in table), None)
    errors = [np.nan] * len(values) if spread is None else [float(error) for error in table[spread]]
    return Line(figure.label, tuple(_with_error(v, e) for v, e in zip(values, errors, strict=True)))


def _with_error(value: Any, error: float) -> str:
    """A value to the digits that its error leaves."""
    text = cell(value)
    if text == MISSING or not error > 0:
        return text
    if not np.isfinite(error):
        return f"{text} ± ?"
    decimals = 1 - int(np.floor(np.log10(error)))
    if not 0 <= decimals <= _DECIMALS:
        return f"{text} ± {error:.2g}"
    return f"{float(value):.{decimals}f} ± {error:.{decimals}f}"
