"""A comparison for readers: its judgements in words, and its numbers in lines and sections, which the table shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bsvr_pp.assess import verdict as reasons
from bsvr_pp.assess.assessment import Assessment, Estimate, Hyperparameter, LeaveOneOut
from bsvr_pp.assess.reweighting import GOOD_K
from bsvr_pp.assess.verdict import GOOD_R_HAT, Comparison, Reason, Recommendation, Status, Verdict

Value = Estimate | float | int | bool | str | None

_MISSING = "–"
_NO_PROBLEM = "no problem was found"
_NATS = 3  # decimals of errors of a log evidence: less decides nothing


def reason_words(reason: Reason) -> str:
    """Express a reason in one clause."""
    match reason:
        case reasons.NotConverged(message):
            return f"not converged: {message or 'no message'}"
        case reasons.ChainsDisagree(r_hat):
            return f"R-hat {r_hat:.3f} > {GOOD_R_HAT}: the chains do not agree"
        case reasons.EvidenceIsOff(error, spread):
            return f"its log evidence is {abs(error):.2f} ± {spread:.2f} nats too {'high' if error > 0 else 'low'}"
        case reasons.WeightsDegenerate(k_hat):
            return f"k-hat {k_hat:.2f} > {GOOD_K}: too far from the exact posterior for its draws to be reweighted"
        case reasons.Coverage(probability, share):
            way = "narrow" if reason.narrow else "wide"
            return (
                f"{100 * probability:.0f} % intervals are too {way}: they hold {100 * share:.0f} % of the test targets"
            )
        case reasons.FarFromReference(shift):
            return f"the mean of f is up to {shift:.2g} posterior sd off the reference"
        case reasons.NoErrorBars():
            return "f has no error bars"
        case reasons.JointWeights(k_hat):
            return f"its evidence is right, but k-hat {k_hat:.2f} > {GOOD_K} for all of f at once"


def verdict_words(verdict: Verdict) -> str:
    """Express a verdict in one line."""
    return "; ".join(_verdict_clauses(verdict))


def _verdict_clauses(verdict: Verdict) -> list[str]:
    said = [reason_words(reason) for reason in verdict.reasons]
    if verdict.status is Status.REJECTED:
        return said
    link = ", but " if verdict.status is Status.NO_ERROR_BARS else ": "
    return [link.join([_NO_PROBLEM, *said])]


def clauses(comparison: Comparison, name: str) -> list[str]:
    """Express the verdict on a result in clauses, with a warning if it is far from the reference."""
    said = _verdict_clauses(comparison.verdicts[name])
    if name in comparison.far:
        said.append(f"compared with {comparison.reference}, {reason_words(comparison.far[name])}")
    return said


def summary(comparison: Comparison) -> str:
    """State which result to use, in one to three sentences."""
    seconds = {name: found.seconds for name, found in comparison.results.items()}
    said = [recommendation_sentence(comparison.recommendation, seconds)]
    if comparison.shared is not None:
        said.append(f"Under every method {reason_words(comparison.shared)}. Look at the noise model or the split.")
    return " ".join(said)


def recommendation_sentence(chosen: Recommendation, seconds: Mapping[str, float]) -> str:
    """State which result to use, in one or two sentences; ``seconds`` are the running times of all results."""
    if chosen.best is None:
        if len(chosen.warned) == len(seconds):
            return "None of these results can be trusted as it is: see the warnings for each."
        plain = [name for name in seconds if name not in chosen.warned]
        out = f"No problem was found with {_listed(plain)}, but there are no error bars of f."
    else:
        out = f"Use {chosen.best}: no problem was found, and it took {duration(seconds[chosen.best])}"
        out += f" ({_listed(chosen.others)} can be trusted as well)." if chosen.others else "."
    return f"{out} See the warnings for {_listed(chosen.warned)}." if chosen.warned else out


def evidence_sentence(evidence: Mapping[str, tuple[float, float, bool]]) -> str:
    """State whether the evidences (value, standard error, convergence) at one point agree; empty for fewer than two."""
    if len(evidence) < 2:
        return ""
    reference = "annealed" if "annealed" in evidence else "mean field"
    value, error, _ = evidence[reference]
    parts = [
        f"{name} is off by {other - value:+.2f} nats" if converged else f"{name} did not converge"
        for name, (other, _, converged) in evidence.items()
        if name != reference
    ]
    spread = f" ± {error:.2f}" if error else ""
    return f"Against the {reference} log evidence of {value:.2f}{spread}, {_listed(parts)}."


def unit_sentence(comparison: Comparison) -> str:
    """State that the evidences depend on the unit of y, if some targets are exact and others intervals; else empty."""
    if not comparison.mixed:
        return ""
    return (
        "Exact targets have densities and intervals have probabilities: log evidences depend on the unit of y, and "
        "only their differences on the same data have a meaning."
    )


def evidence_words(comparison: Comparison) -> str:
    """State whether the evidences agree, and what their values depend on."""
    return " ".join(filter(None, (evidence_sentence(comparison.evidence), unit_sentence(comparison))))


def point_words(point: Mapping[str, Any]) -> str:
    """Write hyperparameters, numbers or lists of them, in one line."""
    return ", ".join(f"{name} = {_entries(value)}" for name, value in point.items())


def duration(seconds: float) -> str:
    """Write a time to two digits, in seconds, minutes or hours."""
    for unit, size, least in (("h", 3600.0, 5400.0), ("min", 60.0, 99.5)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


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
                Figure("elpd kind", "LOO by", lambda found: None if found.loo is None else _loo_kind(found.loo)),
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
    cells = tuple(cell(figure.of(found), figure.decimals) for found in comparison.results.values())
    # Only the distance of the reference from itself: no information.
    nothing = {_MISSING, "0"} if figure.distance else {_MISSING}
    return None if set(cells) <= nothing else Line(_label(figure, names), cells)


def _label(figure: Figure, names: Mapping[str, Sequence[str]]) -> str:
    """Return the label, in which for example lengthscale[3] is replaced by the name of that input."""
    entry = figure.entry
    if entry is None:
        return figure.label
    if entry.position is None or entry.name not in names:
        return figure.label.format(entry.label)
    return figure.label.format(f"{entry.name} {names[entry.name][entry.position]}")


def _loo_kind(loo: LeaveOneOut) -> str:
    """State how a leave-one-out density was computed."""
    if loo.kind == "cavities":
        return "cavities, θ fixed"
    return (loo.kind or "") + (f", {loo.unreliable} of {loo.n} not reliable" if loo.unreliable else "")


def cell(value: Value, most: int = 6) -> str:
    """Write one value with four digits, or "–" if there is no value; an unknown value is never written as 0.

    An estimate is rounded to its standard error, to at most so many decimals.
    """
    if isinstance(value, Estimate):
        return _estimate(value, most)
    if isinstance(value, str):
        return value or _MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or not np.isfinite(float(value)):
        return _MISSING
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.4g}"


def _estimate(found: Estimate, most: int) -> str:
    text = cell(found.value)
    if text == _MISSING or not found.error > 0:
        return text
    if not np.isfinite(found.error):
        return f"{text} ± ?"
    decimals = 1 - int(np.floor(np.log10(found.error)))
    if decimals < 0 or found.error < 0.5 * 10.0**-most:
        return f"{text} ± {found.error:.2g}"
    decimals = min(decimals, most)
    return f"{found.value:.{decimals}f} ± {found.error:.{decimals}f}"


def _entries(value: Any) -> str:
    return "(" + ", ".join(map(_entries, value)) + ")" if isinstance(value, list) else cell(value)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
