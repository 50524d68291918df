"""Comparison of the results of several methods, as data; `bsvr_pp.show.comparison_table` makes a table of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from bsvr_pp.assess.assessment import Assessment, Evidences, own_point
from bsvr_pp.assess.verdict import (
    Coverage,
    FarFromReference,
    Recommendation,
    Verdict,
    far_from_reference,
    judge,
    recommend,
    shared_coverage,
)
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.protocol import Evidence, can
from bsvr_pp.inference.result import check_results, check_same, data_of

__all__ = ["Comparison", "check_comparable", "common_evidences", "common_point"]


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
        """The results whose mean of f is far from that of the reference."""
        if self.reference is None:
            return {}
        found = {n: far_from_reference(a, self.results[self.reference]) for n, a in self.results.items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    @property
    def shared(self) -> Coverage | None:
        """Intervals that are wrong under every method, which indicates the model and not the inference."""
        return shared_coverage(self.verdicts)

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


def check_comparable(results: Any, reference: Any, X_test: Any, y_test: Any, annealed: Any) -> None:
    """Check that results are of the same data, and the other arguments of `bsvr_pp.compare`."""
    check_results(results)
    (first, first_data), *others = ((name, data_of(result)) for name, result in results.items())
    for name, data in others:
        for label in data.keys() & first_data.keys():
            words = f"results[{name!r}] was computed with other {label} than results[{first!r}]"
            check_same(words, data[label], first_data[label])
    if reference is not None and reference not in results:
        raise ValueError(f"reference must be one of {', '.join(results)}, got {reference!r}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    if annealed is not None and not can(annealed, "takes_draws"):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")


def common_point(results: Mapping[str, xr.DataTree], reference: str | None) -> dict[str, Any]:
    """The default of the common point: that of the reference, of mean field, or of the first result."""
    field = next((r for r in results.values() if method_of(r) == MeanField()), None)
    first = next(iter(results.values())) if field is None else field
    return own_point(first if reference is None else results[reference])


def common_evidences(
    results: Mapping[str, xr.DataTree], theta: Mapping[str, Any], evidences: Evidences
) -> dict[str, Evidence]:
    """Compute the evidences at one point: Laplace, mean field, annealed, and other methods of the results."""
    methods = [Laplace(), MeanField(), *(method_of(r).latent for r in results.values())]
    out = {m.name: evidences.at(theta, m) for m in dict.fromkeys(methods) if m is not None}
    truth = evidences.truth(theta)
    return out if truth is None else {**out, "annealed": truth}
