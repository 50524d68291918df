"""Judgements on results, as data: which results can be trusted, and the reasons against the others.

The verdict on a result uses only its own numbers; `Comparison` has the distance from a reference, and common problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from bsvr_pp.assess.assessment import COVERAGES, Assessment, Plain
from bsvr_pp.assess.evidence import GOOD_K
from bsvr_pp.inference.protocol import Evidence

GOOD_R_HAT = 1.01  # Vehtari et al. 2021
_NATS = 0.3  # smaller errors of the log evidence do not change a decision
_SIGMAS = 3.0
_SHIFT = 1.0  # limit of the shift at the worst point, in posterior standard deviations of f
_RARE = 0.01  # probability of a coverage at least as wrong if the intervals are right


class Status(Enum):
    """Outcome of a verdict."""

    TRUSTED = "trusted"
    RESERVED = "trusted with a reservation"
    NO_ERROR_BARS = "no error bars"
    REJECTED = "rejected"


class Kind(Enum):
    """Kinds of reasons, each with the template of its clause; the last two are remarks on a result without problems."""

    NOT_CONVERGED = "not converged: {}"
    CHAINS_DISAGREE = f"R-hat {{:.3f}} > {GOOD_R_HAT}: the chains do not agree"
    EVIDENCE_IS_OFF = "its log evidence is {:.2f} ± {:.2f} nats too {}"
    WEIGHTS_DEGENERATE = f"k-hat {{:.2f}} > {GOOD_K}: too far from the exact posterior for its draws to be reweighted"
    COVERAGE = "{:.0f} % intervals are too {}: they hold {:.0f} % of the test targets"
    FAR_FROM_REFERENCE = "the mean of f is up to {:.2g} posterior sd off the reference"
    NO_ERROR_BARS = "f has no error bars"
    JOINT_WEIGHTS = f"its evidence is right, but k-hat {{:.2f}} > {GOOD_K} for all of f at once"


_REMARKS = {Kind.NO_ERROR_BARS: Status.NO_ERROR_BARS, Kind.JOINT_WEIGHTS: Status.RESERVED}


class Reason(NamedTuple):
    """A reason for a rejection, or a remark: its kind, and the values for the template."""

    kind: Kind
    values: tuple[float | str, ...] = ()

    def __str__(self) -> str:
        return self.kind.value.format(*self.values)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement on one result: the reasons for a rejection, and remarks."""

    reasons: tuple[Reason, ...] = ()

    @property
    def status(self) -> Status:
        """Outcome: a remark does not lead to a rejection."""
        found = [_REMARKS.get(reason.kind, Status.REJECTED) for reason in self.reasons]
        return Status.REJECTED if Status.REJECTED in found else found[0] if found else Status.TRUSTED

    @property
    def clauses(self) -> list[str]:
        """The verdict in words."""
        said = [str(reason) for reason in self.reasons]
        if self.status is Status.REJECTED:
            return said
        return [(", but " if self.status is Status.NO_ERROR_BARS else ": ").join(["no problem was found", *said])]

    def __str__(self) -> str:
        return "; ".join(self.clauses)


class Recommendation(NamedTuple):
    """Which result to use: the fastest that can be trusted, the others that can be, and those with problems."""

    best: str | None
    others: tuple[str, ...]
    warned: tuple[str, ...]


def judge(found: Assessment) -> Verdict:
    """Judge one result by its own numbers."""
    converged, r_hat, k_hat = bool(found.number("converged")), found.number("R-hat"), found.number("k-hat")
    error, spread = found.number("evidence error"), found.number("evidence error se")
    bound = max(_NATS, _SIGMAS * spread)  # _NATS for a NaN
    # For many values of f jointly the weights degenerate even if each marginal is right; then an accurate evidence
    # decides. For the few hyperparameters of draws they do not degenerate.
    verified = abs(error) <= bound and not found.sampled
    wrong_share = _wrong_share(found)
    reasons = (
        (not converged, Kind.NOT_CONVERGED, (found.message or "no message",)),
        (converged and r_hat > GOOD_R_HAT, Kind.CHAINS_DISAGREE, (r_hat,)),
        (abs(error) > bound, Kind.EVIDENCE_IS_OFF, (abs(error), spread, "high" if error > 0 else "low")),
        (k_hat > GOOD_K and not verified, Kind.WEIGHTS_DEGENERATE, (k_hat,)),
        (wrong_share, Kind.COVERAGE, wrong_share),
        (found.plug_in, Kind.NO_ERROR_BARS, ()),
        (k_hat > GOOD_K and verified and not found.plug_in, Kind.JOINT_WEIGHTS, (k_hat,)),
    )
    return Verdict(tuple(Reason(kind, values) for holds, kind, values in reasons if holds))


def _wrong_share(found: Assessment) -> tuple[float | str, ...]:
    """Per cent of intervals, in which way they are wrong, and per cent of targets in them, if that is significant."""
    n = found.n_test
    for column, probability in COVERAGES.items():
        share = found.number(column)
        hits = np.round(share * n)  # NaN without a test
        if min(binom.cdf(hits, n, probability), binom.sf(hits - 1, n, probability)) < _RARE / 2:
            return 100 * probability, "narrow" if share < probability else "wide", 100 * share
    return ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of results.

    ``evidence`` maps methods to their log evidence at ``theta``, the common hyperparameters as plain numbers and lists;
    distances are measured to the result ``reference``. ``mixed`` says whether the likelihood has densities of exact
    targets and probabilities of intervals.
    """

    results: Mapping[str, Assessment]
    theta: Mapping[str, Plain]
    evidence: Mapping[str, Evidence]
    reference: str | None = None
    mixed: bool = False

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Name to the verdict on the result."""
        return {name: judge(found) for name, found in self.results.items()}

    @property
    def far(self) -> dict[str, Reason]:
        """The results whose mean of f is far from that of the reference, if that has converged."""
        if self.reference is None or not self.results[self.reference].number("converged"):
            return {}
        shifts = {name: found.number("f differs") for name, found in self.results.items()}
        return {name: Reason(Kind.FAR_FROM_REFERENCE, (x,)) for name, x in shifts.items() if x > _SHIFT}

    def clauses(self, name: str) -> list[str]:
        """The verdict on a result in words, with a warning if it is far from the reference."""
        far = self.far
        warnings = [f"compared with {self.reference}, {far[name]}"] if name in far else []
        return judge(self.results[name]).clauses + warnings

    @property
    def shared(self) -> Reason | None:
        """Intervals that are wrong under every method, which indicates the model and not the inference."""
        found = [next((r for r in v.reasons if r.kind is Kind.COVERAGE), None) for v in self.verdicts.values()]
        return found[0] if len(found) > 1 and all(found) else None

    @property
    def recommendation(self) -> Recommendation:
        """The fastest trusted result that is near the reference; intervals that are wrong for all do not count."""
        ignored, far = Kind.COVERAGE if self.shared else None, self.far
        status = {
            name: Verdict(tuple(reason for reason in verdict.reasons if reason.kind is not ignored)).status
            for name, verdict in self.verdicts.items()
        }
        warned = tuple(name for name in status if status[name] is Status.REJECTED or name in far)
        good = [name for name in status if name not in warned and status[name] is not Status.NO_ERROR_BARS]
        order = {name: (status[name] is Status.RESERVED, self.results[name].number("seconds")) for name in good}
        best = min(good, key=order.__getitem__, default=None)
        return Recommendation(best, tuple(name for name in good if name != best), warned)

    def in_units(self, scale: float) -> Comparison:
        """Scores of targets that are ``scale`` times as large as those of the model."""
        return replace(self, results={name: found.in_units(scale) for name, found in self.results.items()})
