"""Judgements and numbers in words, for the table, the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bsvr_pp.assess.assessment import LeaveOneOut
from bsvr_pp.assess.verdict import (
    GOOD_R_HAT,
    ChainsDisagree,
    Comparison,
    Coverage,
    EvidenceIsOff,
    FarFromReference,
    JointWeights,
    NoErrorBars,
    NotConverged,
    Reason,
    Recommendation,
    Status,
    Verdict,
    WeightsDegenerate,
)
from bsvr_pp.assess.verify import GOOD_K

__all__ = [
    "MISSING",
    "cell",
    "duration",
    "evidence_sentence",
    "evidence_words",
    "loo_kind",
    "point_words",
    "reason_words",
    "recommendation_sentence",
    "shared_sentence",
    "summary",
    "unit_sentence",
    "verdict_clauses",
    "verdict_words",
]

MISSING = "–"
_NO_PROBLEM = "no problem was found"


def reason_words(reason: Reason) -> str:
    """Express a reason in one clause."""
    match reason:
        case NotConverged(message):
            return f"not converged: {message or 'no message'}"
        case ChainsDisagree(r_hat):
            return f"R-hat {r_hat:.3f} > {GOOD_R_HAT}: the chains do not agree"
        case EvidenceIsOff(error, spread):
            return f"its log evidence is {abs(error):.2f} ± {spread:.2f} nats too {'high' if error > 0 else 'low'}"
        case WeightsDegenerate(k_hat):
            return f"k-hat {k_hat:.2f} > {GOOD_K}: too far from the exact posterior for its draws to be reweighted"
        case Coverage(probability, share):
            way = "narrow" if reason.narrow else "wide"
            return (
                f"{100 * probability:.0f} % intervals are too {way}: they hold {100 * share:.0f} % of the test targets"
            )
        case FarFromReference(shift):
            return f"the mean of f is up to {shift:.2g} posterior sd off the reference"
        case NoErrorBars():
            return "f has no error bars"
        case JointWeights(k_hat):
            return f"its evidence is right, but k-hat {k_hat:.2f} > {GOOD_K} for all of f at once"


def verdict_clauses(verdict: Verdict) -> list[str]:
    """Express a verdict in clauses."""
    clauses = [reason_words(reason) for reason in verdict.reasons]
    if verdict.status is Status.REJECTED:
        return clauses
    link = ", but " if verdict.status is Status.NO_ERROR_BARS else ": "
    return [link.join([_NO_PROBLEM, *clauses])]


def verdict_words(verdict: Verdict) -> str:
    """Express a verdict in one line."""
    return "; ".join(verdict_clauses(verdict))


def summary(comparison: Comparison) -> str:
    """State which result to use, in one to three sentences."""
    seconds = {name: found.seconds for name, found in comparison.results.items()}
    said = [recommendation_sentence(comparison.recommendation, seconds)]
    if comparison.shared is not None:
        said.append(shared_sentence(comparison.shared))
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


def shared_sentence(shared: Coverage) -> str:
    """State that the intervals of every method are wrong."""
    return f"Under every method {reason_words(shared)}. Look at the noise model or the split."


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


def loo_kind(loo: LeaveOneOut) -> str:
    """State how a leave-one-out density was computed."""
    if loo.kind is None:
        return ""
    if loo.kind == "cavities":
        return "cavities, θ fixed"
    return loo.kind + (f", {loo.unreliable} of {loo.n} not reliable" if loo.unreliable else "")


def duration(seconds: float) -> str:
    """Write a time to two digits, in seconds, minutes or hours."""
    for unit, size, least in (("h", 3600.0, 5400.0), ("min", 60.0, 99.5)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def cell(value: Any) -> str:
    """Write one value with four digits, or "–" if there is no value; an unknown value is never written as 0."""
    if isinstance(value, str):
        return value or MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or not np.isfinite(float(value)):
        return MISSING
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.4g}"


def _entries(value: Any) -> str:
    return "(" + ", ".join(map(_entries, value)) + ")" if isinstance(value, list) else cell(value)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
