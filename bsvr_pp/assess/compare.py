"""Comparison of the results of several methods, as data; `bsvr_pp.show.tables.compare` makes a table of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp._checks import generator
from bsvr_pp.assess import measure
from bsvr_pp.assess.assessment import Assessment
from bsvr_pp.assess.evidence import approximation_of
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
from bsvr_pp.inference.result import check_match, check_results, check_same, data_of
from bsvr_pp.model.problem import Problem, read_model

__all__ = ["DEFAULT_ANNEALED", "Comparison", "assess"]

DEFAULT_ANNEALED = Annealed(particles=200)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of results.

    Attributes
    ----------
    results : mapping
        Name to the assessment of the result.
    theta : mapping
        The common hyperparameters, as plain numbers and lists.
    evidence : mapping
        Method to its log evidence there.
    reference : str or None
        Name of the result to which the distances are measured.
    mixed : bool
        Whether the likelihood has densities of exact targets and probabilities of intervals.
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

    Returns
    -------
    Comparison
    """
    _check(results, reference, X_test, y_test, annealed)
    generator(random_seed)  # raises the error for a bad value
    model = model if model is not None else pm.Model.get_context(error_if_none=False)
    needed = X_test is not None or hyperparameters is not None
    problem = None if model is None and not needed else read_model(model)
    for name, result in results.items():
        if problem is not None:
            check_match(problem, result, f"results[{name!r}]")
    theta = _theta(results, reference, problem, hyperparameters)
    evidences = None if problem is None else measure.Evidences(problem, annealed, random_seed)
    common = {} if evidences is None else _common_evidences(results, theta, evidences)
    # Without a probability of the targets neither the integrated evidence nor leave-one-out is one.
    targets = problem if problem is not None and not problem.loss.targets.refusal("leave one out") else None
    found = {}
    for name, result in results.items():
        assessment = measure.describe(result, evidences, common)
        if integrated and targets is not None:
            assessment = replace(assessment, integrated=measure.integrated_estimate(result, targets, random_seed))
        if reference is not None:
            assessment = replace(assessment, distances=measure.distances(result, results[reference]))
        if X_test is not None and y_test is not None:
            predicted = predict(result, X_test, model=model, y_new=y_test)
            assessment = replace(assessment, scores=score(predicted, y_test))
        if loo and targets is not None:
            assessment = replace(assessment, loo=measure.leave_one_out(result, targets))
        if k_hat:
            assessment = replace(assessment, k_hat=measure.k_hat(result, problem, random_seed))
        found[name] = assessment
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


def _theta(
    results: Mapping[str, xr.DataTree], reference: str | None, problem: Problem | None, given: Any
) -> dict[str, Any]:
    """Return the common point, as plain numbers and lists."""
    if given is not None:
        assert problem is not None
        point: dict[str, Any] = problem.checked(given)
    else:
        field = next((r for r in results.values() if method_of(r) == MeanField()), None)
        first = next(iter(results.values()))
        point = measure.own_point(results[reference] if reference is not None else first if field is None else field)
    return {name: np.asarray(value).tolist() for name, value in sorted(point.items())}


def _common_evidences(
    results: Mapping[str, xr.DataTree], theta: Mapping[str, Any], evidences: measure.Evidences
) -> dict[str, Evidence]:
    """Compute the evidences at one point: Laplace, mean field, annealed, and other methods of the results."""
    methods = [Laplace(), MeanField(), *(approximation_of(r) for r in results.values())]
    out = {m.name: evidences.at(theta, m) for m in dict.fromkeys(methods) if m is not None}
    truth = evidences.truth(theta)
    return out if truth is None else {**out, "annealed": truth}
