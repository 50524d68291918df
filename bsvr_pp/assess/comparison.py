"""Comparison of the results of several methods, as data; `bsvr_pp.show.comparison_table` makes a table of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp._checks import generator
from bsvr_pp.assess import assessment
from bsvr_pp.assess.assessment import Assessment, Evidences
from bsvr_pp.assess.fitted import Fitted
from bsvr_pp.assess.scores import score
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
from bsvr_pp.inference.annealed import Annealed
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Evidence, can
from bsvr_pp.inference.result import check_results, check_same, data_of

__all__ = ["DEFAULT_ANNEALED", "Comparison", "assess"]

DEFAULT_ANNEALED = Annealed(particles=200)


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


def assess(
    results: Mapping[str, xr.DataTree],
    reference: str | None = None,
    *,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    annealed: Annealed | None = DEFAULT_ANNEALED,
    integrated: bool = True,
    loo: bool = True,
    k_hat: bool = True,
    random_seed: int | None = 0,
) -> Comparison:
    """Assess the results of several methods on one model; arguments and errors are those of `bsvr_pp.compare`.

    Each result is judged at its own hyperparameters, so that its verdict does not depend on the other results.
    """
    _check(results, reference, X_test, y_test, annealed)
    generator(random_seed)  # raises the error for a bad value
    model = model if model is not None else pm.Model.get_context(error_if_none=False)
    needed = X_test is not None or hyperparameters is not None
    fitted = {name: Fitted(result, model) for name, result in results.items() if needed or model is not None}
    for name, each in fitted.items():
        each.check(f"results[{name!r}]")
    first = next(iter(fitted.values()), None)
    given = None if first is None or hyperparameters is None else first.checked(hyperparameters)
    theta = _theta(results, reference) if given is None else given
    theta = {name: np.asarray(value).tolist() for name, value in sorted(theta.items())}
    evidences = None if first is None else Evidences(first.model, annealed, random_seed)
    common = {} if evidences is None else _common_evidences(results, theta, evidences)
    # Without a probability of the targets neither the integrated evidence nor leave-one-out is one.
    targets = first.model if first is not None and not first.loss.targets.refusal("leave one out") else None
    found = {}
    for name, result in results.items():
        one = assessment.describe(result, evidences, common)
        if integrated and targets is not None:
            one = replace(one, integrated=assessment.integrated_estimate(result, targets, random_seed))
        if reference is not None:
            one = replace(one, distances=assessment.distances(result, results[reference]))
        if X_test is not None and y_test is not None:
            one = replace(one, scores=score(predict(result, X_test, model=model, y_new=y_test), y_test))
        if loo and targets is not None:
            one = replace(one, loo=assessment.loo_estimate(result, targets))
        if k_hat:
            one = replace(one, k_hat=assessment.k_hat(result, model, random_seed))
        found[name] = one
    mixed = any("evidence_unit" in result.attrs for result in results.values())
    return Comparison(found, theta, common, reference, mixed)


def _check(results: Any, reference: Any, X_test: Any, y_test: Any, annealed: Any) -> None:
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


def _theta(results: Mapping[str, xr.DataTree], reference: str | None) -> dict[str, Any]:
    """The default of the common point: that of the reference, of mean field, or of the first result."""
    field = next((r for r in results.values() if method_of(r) == MeanField()), None)
    first = next(iter(results.values())) if field is None else field
    return assessment.own_point(first if reference is None else results[reference])


def _common_evidences(
    results: Mapping[str, xr.DataTree], theta: Mapping[str, Any], evidences: Evidences
) -> dict[str, Evidence]:
    """Compute the evidences at one point: Laplace, mean field, annealed, and other methods of the results."""
    methods = [Laplace(), MeanField(), *(method_of(r).latent for r in results.values())]
    out = {m.name: evidences.at(theta, m) for m in dict.fromkeys(methods) if m is not None}
    truth = evidences.truth(theta)
    return out if truth is None else {**out, "annealed": truth}
