"""Judgements on results, as data: which results can be trusted, and the reasons against the others.

The verdict on a result uses only its own numbers, so that it does not depend on the other results. Comparisons are
separate: the distance from a reference, and problems common to all results (`Comparison`). `bsvr_pp.show.words`
expresses the judgements in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from scipy.stats import binom

from bsvr_pp.assess.assessment import Assessment
from bsvr_pp.assess.reweighting import GOOD_K
from bsvr_pp.assess.scores import Scores
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


@dataclass(frozen=True, slots=True)
class NotConverged:
    """The method did not converge; ``message`` gives the reason."""

    message: str


@dataclass(frozen=True, slots=True)
class ChainsDisagree:
    """R-hat is above `GOOD_R_HAT`."""

    r_hat: float


@dataclass(frozen=True, slots=True)
class EvidenceIsOff:
    """The log evidence differs from the annealed one by ``error`` nats (too high if positive)."""

    error: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class WeightsDegenerate:
    """The importance weights to the exact posterior have a k-hat above `GOOD_K`."""

    k_hat: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of test targets in central intervals differs significantly from the nominal probability."""

    probability: float
    share: float

    @property
    def narrow(self) -> bool:
        """Whether the intervals are too narrow; otherwise they are too wide."""
        return self.share < self.probability


@dataclass(frozen=True, slots=True)
class FarFromReference:
    """The mean of f differs from the reference by ``shift`` posterior standard deviations at the worst point."""

    shift: float


@dataclass(frozen=True, slots=True)
class NoErrorBars:
    """A remark: the method gives only the mode of f."""


@dataclass(frozen=True, slots=True)
class JointWeights:
    """A remark: k-hat is above `GOOD_K` for all of f jointly, but the evidence is right."""

    k_hat: float


Reason = (
    NotConverged
    | ChainsDisagree
    | EvidenceIsOff
    | WeightsDegenerate
    | Coverage
    | FarFromReference
    | NoErrorBars
    | JointWeights
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement on one result, with the reasons for a rejection, and remarks."""

    status: Status
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Which result to use: the fastest that can be trusted, the others that can be, and those with problems."""

    best: str | None
    others: tuple[str, ...]
    warned: tuple[str, ...]


def judge(found: Assessment) -> Verdict:
    """Judge one result by its own numbers."""
    reasons: list[Reason] = []
    if not found.converged:
        reasons.append(NotConverged(found.message))
    elif found.sampling is not None and found.sampling.r_hat > GOOD_R_HAT:
        reasons.append(ChainsDisagree(found.sampling.r_hat))
    error, spread = found.evidence.error or (np.nan, np.nan)
    bound = max(_NATS, _SIGMAS * np.nan_to_num(spread))
    if abs(error) > bound:
        reasons.append(EvidenceIsOff(error, spread))
    k_hat = np.nan if found.k_hat is None else found.k_hat
    # For many values of f jointly the weights degenerate even if each marginal is right; then an accurate evidence
    # decides. For the few hyperparameters of draws they do not degenerate.
    verified = abs(error) <= bound and not found.sampled
    if k_hat > GOOD_K and not verified:
        reasons.append(WeightsDegenerate(k_hat))
    if found.scores is not None and (covered := _coverage(found.scores)) is not None:
        reasons.append(covered)
    if found.plug_in:
        reasons.append(NoErrorBars())
    elif k_hat > GOOD_K and verified:
        reasons.append(JointWeights(k_hat))
    return Verdict(_status(reasons), tuple(reasons))


def recommend(
    verdicts: Mapping[str, Verdict], seconds: Mapping[str, float], far: Mapping[str, FarFromReference] | None = None
) -> Recommendation:
    """Choose the fastest of the results that can be trusted, and are not ``far`` from the reference.

    Intervals that are wrong for every method do not affect the choice.
    """
    everywhere = _shared_coverage(verdicts) is not None
    status = {
        name: _status([r for r in verdict.reasons if not (everywhere and isinstance(r, Coverage))])
        for name, verdict in verdicts.items()
    }
    warned = tuple(name for name in verdicts if status[name] is Status.REJECTED or name in (far or {}))
    good = [name for name in verdicts if name not in warned and status[name] is not Status.NO_ERROR_BARS]
    if not good:
        return Recommendation(None, (), warned)
    best = min(good, key=lambda name: (status[name] is Status.RESERVED, seconds[name]))
    return Recommendation(best, tuple(name for name in good if name != best), warned)


def _shared_coverage(verdicts: Mapping[str, Verdict]) -> Coverage | None:
    """The reason of the first result that its intervals are wrong, if there are several and all have such a reason."""
    found = [next((r for r in v.reasons if isinstance(r, Coverage)), None) for v in verdicts.values()]
    return found[0] if len(found) > 1 and all(found) else None


def _status(reasons: Sequence[Reason]) -> Status:
    if any(not isinstance(reason, NoErrorBars | JointWeights) for reason in reasons):
        return Status.REJECTED
    if not reasons:
        return Status.TRUSTED
    return Status.NO_ERROR_BARS if NoErrorBars() in reasons else Status.RESERVED


def _coverage(scores: Scores) -> Coverage | None:
    """The problem of the intervals if it is statistically significant."""
    for probability, share in (scores.coverage or {}).items():
        hits = round(share * scores.n)
        fewer, more = binom.cdf(hits, scores.n, probability), binom.sf(hits - 1, scores.n, probability)
        if min(fewer, more) < _RARE / 2:
            return Coverage(probability, share)
    return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of results.

    ``evidence`` maps methods to their log evidence at ``theta``, the common hyperparameters as plain numbers and lists;
    distances are measured to the result ``reference``. ``mixed`` says whether the likelihood has densities of exact
    targets and probabilities of intervals.
    """

    results: Mapping[str, Assessment]
    theta: Mapping[str, Any]
    evidence: Mapping[str, Evidence]
    reference: str | None = None
    mixed: bool = False

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Name to the verdict on the result."""
        return {name: judge(found) for name, found in self.results.items()}

    @property
    def far(self) -> dict[str, FarFromReference]:
        """The results whose mean of f is far from that of the reference, if that has converged."""
        if self.reference is None or not self.results[self.reference].converged:
            return {}
        shifts = {name: found.distances.mean_f for name, found in self.results.items() if found.distances is not None}
        return {name: FarFromReference(shift) for name, shift in shifts.items() if shift > _SHIFT}

    @property
    def shared(self) -> Coverage | None:
        """Intervals that are wrong under every method, which indicates the model and not the inference."""
        return _shared_coverage(self.verdicts)

    @property
    def recommendation(self) -> Recommendation:
        """Which result to use."""
        return recommend(self.verdicts, {name: found.seconds for name, found in self.results.items()}, self.far)

    def in_units(self, scale: float) -> Comparison:
        """Scores of targets that are ``scale`` times as large as those of the model."""
        scaled = {
            name: found if found.scores is None else replace(found, scores=found.scores.in_units(scale))
            for name, found in self.results.items()
        }
        return replace(self, results=scaled)
