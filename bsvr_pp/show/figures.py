"""The figures of a comparison: their columns in the table, and the sections and lines in which readers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bsvr_pp.assess.assessment import Assessment, Estimate, Hyperparameter
from bsvr_pp.assess.verdict import GOOD_R_HAT, Comparison
from bsvr_pp.assess.verify import GOOD_K
from bsvr_pp.show.words import MISSING, cell, loo_kind

__all__ = ["Figure", "Line", "Section", "Value", "groups", "sections"]

_NATS = 3  # decimals of errors of a log evidence: less decides nothing
Value = Estimate | float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that is shown for every result, as ``of`` reads it from an `Assessment`: None if it was not computed.

    ``column`` is its column in the table, with the suffix ``error`` for the standard error of an `Estimate`, which has
    at most so many ``decimals``. ``label`` is for readers; ``{}`` in it is replaced by the name of ``entry``, the
    hyperparameter that it describes. A ``distance`` from the reference is not shown if it is zero, a ``detail`` not in
    the terminal.
    """

    column: str
    label: str
    of: Callable[[Assessment], Value]
    entry: Hyperparameter | None = None
    error: str = "se"
    decimals: int = 6
    distance: bool = False
    detail: bool = False


class Line(NamedTuple):
    """One number for every method: its label, and a cell for each method."""

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section[T: (Figure, Line)]:
    """Numbers that answer one question, as they are read or as they are written, with a title and an explanation."""

    title: str
    explanation: str
    lines: Sequence[T]


def groups(comparison: Comparison) -> list[Section[Figure]]:
    """List all figures of a comparison, in the order of their columns."""
    hidden: dict[str, Any] = {"distance": True, "detail": True}
    entries = list(dict.fromkeys(e for found in comparison.results.values() for e in found.hyperparameters))
    return [
        Section(
            "Predictions on test data",
            "Log predictive density: larger is better. CRPS and errors: smaller is better. Calibration error: mean "
            "distance between predicted and observed shares, 0 at best.",
            _scores(comparison),
        ),
        Section(
            "Evidence",
            "Log evidence of each method, and its difference from annealing, which is exact up to its standard error, "
            "at the common hyperparameters θ, and at the hyperparameters of each result (for draws, their mean), where "
            "the result is judged. log p(y) has θ integrated out. LOO density: expected log density of each target "
            "given the others; compare only those that are computed in the same way.",
            [
                Figure("evidence at theta", "at common θ", _at("evidence.common"), decimals=2),
                Figure("error at theta", "its error", _at("evidence.common_error"), decimals=_NATS),
                Figure("log_evidence", "at its own θ", _at("evidence.own")),
                Figure("evidence error", "its error there", _at("evidence.error"), decimals=_NATS),
                Figure("p(y)", "log p(y)", _at("integrated")),
                Figure("elpd", "LOO density", _at("loo.elpd")),
                Figure("elpd kind", "LOO by", lambda a: None if a.loo is None else loo_kind(a.loo)),
            ],
        ),
        Section(
            "Hyperparameters",
            "Value of a point estimate, or mean ± standard deviation of draws.",
            [Figure(e.label, "{}", _at("hyperparameters", e), e, "sd") for e in entries],
        ),
        Section(
            f"Distance from {comparison.reference}",
            "Largest difference of means, in standard deviations of f and of y. Wasserstein distance of marginals, "
            "in standard deviations, and their KL divergence, in nats; those of f are averages over the inputs.",
            [
                Figure("f differs", "mean of f", _at("distances.mean_f")),
                Figure("y differs", "mean of y", _at("distances.mean_y")),
                Figure("W f", "Wasserstein, f", _at("distances.wasserstein_f"), distance=True),
                *[
                    Figure(f"W {e.label}", "Wasserstein, {}", _at("distances.wasserstein", e), e, **hidden)
                    for e in entries
                ],
                Figure("KL f", "KL divergence, f", _at("distances.kl_f"), distance=True),
                *[Figure(f"KL {e.label}", "KL divergence, {}", _at("distances.kl", e), e, **hidden) for e in entries],
            ],
        ),
        Section(
            "Diagnostics and cost",
            f"k-hat up to {GOOD_K}: the joint approximation of all of f is close enough to the exact posterior for its "
            f"draws to be reweighted; k-hat grows with the number of rows. R-hat up to {GOOD_R_HAT}: chains agree. "
            "Off-bound support vectors (SVs) lie at the edge of the tube, on-bound ones outside. "
            "Seconds include compilation.",
            [
                Figure("converged", "converged", _at("converged")),
                Figure("k-hat", "k-hat", _at("k_hat")),
                Figure("R-hat", "R-hat", _at("sampling.r_hat")),
                Figure("ESS", "effective draws", _at("sampling.ess")),
                Figure("ESS/s", "draws per second", _at("draws_per_second")),
                Figure("divergences", "divergences", _at("sampling.divergences")),
                Figure("off-bound", "SVs, off-bound", _at("off_bound")),
                Figure("on-bound", "SVs, on-bound", _at("on_bound")),
                Figure("seconds", "seconds", _at("seconds")),
            ],
        ),
    ]


def _scores(comparison: Comparison) -> list[Figure]:
    scores = [found.scores for found in comparison.results.values() if found.scores is not None]
    covered = dict.fromkeys(probability for each in scores for probability in each.coverage or {})
    percent = {p: f"{100 * p:.0f} %" for p in covered}
    return [
        Figure("mlpd", "log density", _at("scores.log_density")),
        Figure("crps", "CRPS", _at("scores.crps")),
        Figure("ase", "squared error", _at("scores.squared_error")),
        Figure("aae", "absolute error", _at("scores.absolute_error")),
        Figure("error rate", "error rate", _at("scores.error_rate")),
        *[Figure(f"coverage {text}", f"in {text} interval", _at("scores.coverage", p)) for p, text in percent.items()],
        Figure("calibration error", "calibration error", _at("scores.calibration_error")),
    ]


def _at(path: str, entry: Any = None) -> Callable[[Assessment], Any]:
    """A function that reads the value at a path of attributes, or its entry; None where a part was not computed."""

    def read(found: Assessment) -> Any:
        value: Any = found
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        return value if value is None or entry is None else value.get(entry)

    return read


def sections(
    comparison: Comparison, names: Mapping[str, Sequence[str]] | None = None, *, brief: bool = False
) -> list[Section[Line]]:
    """Arrange a comparison for readers, in those sections that have figures.

    ``names`` are those of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``. If it is
    ``brief``, the distances of each hyperparameter are omitted.
    """
    out = []
    for group in groups(comparison):
        lines = [_line(comparison, figure, names or {}) for figure in group.lines if not (brief and figure.detail)]
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
