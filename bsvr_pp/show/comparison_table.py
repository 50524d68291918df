"""Comparison of the results of several methods, as a pandas table with its judgements in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp._checks import generator
from bsvr_pp._docs import shared
from bsvr_pp.assess import assessment
from bsvr_pp.assess.assessment import Estimate, Evidences
from bsvr_pp.assess.judged import Judged
from bsvr_pp.assess.scores import score
from bsvr_pp.assess.verdict import Comparison
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Evidence, can
from bsvr_pp.inference.result import check_results, check_same, data_of
from bsvr_pp.show.words import Figure, evidence_words, groups, reason_words, summary, verdict_words

_ANNEALED = Annealed(particles=200)


class ComparisonTable(pd.DataFrame):
    """A comparison as a DataFrame, whose attribute ``comparison`` is the same as data; files do not contain that."""

    _metadata: ClassVar[list[str]] = ["comparison"]
    comparison: Comparison | None = None

    @property
    def _constructor(self) -> type[ComparisonTable]:
        return ComparisonTable


@shared
def compare(
    results: Mapping[str, xr.DataTree],
    reference: str | None = None,
    *,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    annealed: Annealed | None = _ANNEALED,
    integrated: bool = True,
    loo: bool = True,
    k_hat: bool = True,
    random_seed: int | None = 0,
) -> ComparisonTable:
    """Compare the results of several methods on one model, and state which of them can be trusted.

    The verdict on a result is made at its own hyperparameters (for draws, at their mean). It does not depend on the
    other results.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    reference : str, optional
        The result to which the others are compared.
    X_test, y_test : arrays, optional
        Test data, for `scores`.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``. Without a model, columns that need it are omitted.
    hyperparameters : dict, optional
        The common hyperparameters θ at which the evidences of all methods are compared. By default the mean of the
        reference; without a reference the mean-field optimum, or the hyperparameters of the first result.
    annealed : Annealed, optional
        The reference method for the evidences; None to omit it.
    integrated : bool
        Whether to estimate p(y) for sampled results, by a hundred evidences each.
    loo : bool
        Whether to compute leave-one-out densities.
    k_hat : bool
        Whether to compute k-hat for approximations; `verify` does this for sampled hyperparameters.
    random_seed : int, optional
        Random seed of the annealed and integrated evidences and of k-hat.

    Returns
    -------
    ComparisonTable
        A DataFrame with a row for each result. Its columns:

        - the scores on test data;
        - ``evidence at theta`` and its ``se``: log evidence of the method at the common θ (exact, by annealing, where
          f was sampled), and ``error at theta``, its difference from the annealed one;
        - ``log_evidence`` of the method at the result's own hyperparameters, and ``evidence error``, its difference
          from the annealed one there, by which the result is judged; ``p(y)`` with the hyperparameters integrated out,
          in log, and its ``se``; ``elpd``, its ``se`` and its ``kind`` (compare only values of the same kind);
        - mean and ``sd`` of each hyperparameter (``sd`` is NaN for a point estimate);
        - ``f differs``, the largest difference of the means of f from the reference in posterior standard deviations
          of f, ``y differs`` the same in predictive ones of y; ``W f`` and ``KL f``, the mean over the training inputs
          of Wasserstein distance (in standard deviations) and KL divergence of the marginals of f, and the same of each
          hyperparameter (`bsvr_pp.assess.assessment.marginal_distances`);
        - ``converged``; ``k-hat``; ``R-hat``, ``ESS``, ``ESS/s`` and ``divergences`` (only for sampling); numbers of
          support vectors; ``seconds``, ``note``, ``inference``;
        - ``against the reference``: a warning if the mean of f is far from that of the reference;
        - ``verdict``: the problems that were found with the result, in words.

        Its attribute ``comparison`` is the same as data (`bsvr_pp.assess.verdict.Comparison`), with the evidences at
        θ. ``attrs`` has the common hyperparameters ``theta``, the ``reference``, and the ``summary`` and
        ``evidence_summary`` in words.

    Raises
    ------
    ValueError
        If there is no result, the reference is not among them, only one of X_test and y_test is given, or the
        hyperparameters do not fit the model.
    TypeError
        If results is not a dict of results, annealed is neither `Annealed` nor None, or test data or hyperparameters
        are given without a model.

    <sinc_model>
    >>> methods = (bp.Laplace(), bp.MeanField())
    >>> results = {m.name: bp.fit(m, model, hyperparameters=at, progressbar=False) for m in methods}
    >>> table = bp.compare(results, reference="mean field", model=model)
    >>> table["converged"].tolist(), table.attrs["theta"]["C"]
    ([True, True], 5.0)
    """
    _check_comparable(results, reference, X_test, y_test, annealed)
    generator(random_seed)  # raises the error for a bad value
    model = model if model is not None else pm.Model.get_context(error_if_none=False)
    needed = X_test is not None or hyperparameters is not None
    fitted = [
        Judged(result, model, f"results[{name!r}]") for name, result in results.items() if needed or model is not None
    ]
    first = fitted[0] if fitted else None
    given = None if first is None or hyperparameters is None else first.problem.checked(hyperparameters)
    theta = _common_point(results, reference) if given is None else given
    theta = {name: np.asarray(value).tolist() for name, value in sorted(theta.items())}
    evidences = None if first is None else Evidences(first, annealed, random_seed)
    common = {} if evidences is None else _common_evidences(results, theta, evidences)
    # Without a probability of the targets neither the integrated evidence nor leave-one-out is one.
    targets = first.model if first is not None and not first.loss.targets.refusal("leave one out") else None
    found = {}
    for name, result in results.items():
        one = assessment.describe(result, evidences, theta)
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
    return to_table(Comparison(found, theta, common, reference, mixed))


def _check_comparable(results: Any, reference: Any, X_test: Any, y_test: Any, annealed: Any) -> None:
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


def _common_point(results: Mapping[str, xr.DataTree], reference: str | None) -> dict[str, Any]:
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


def to_table(comparison: Comparison) -> ComparisonTable:
    """Write a comparison as a table."""
    columns: dict[str, list[Any]] = {}
    for group in groups(comparison):
        for figure in group.lines:
            columns |= _columns(figure, comparison)
    columns["note"] = [found.message for found in comparison.results.values()]
    columns["inference"] = [found.inference for found in comparison.results.values()]
    if comparison.reference is not None:
        far = comparison.far
        columns["against the reference"] = [
            reason_words(far[name]) if name in far else "" for name in comparison.results
        ]
    columns["verdict"] = [verdict_words(verdict) for verdict in comparison.verdicts.values()]
    table = ComparisonTable(columns, index=pd.Index(list(comparison.results), name="method"))
    table.attrs = {
        "theta": comparison.theta,
        "reference": comparison.reference,
        "summary": summary(comparison),
        "evidence_summary": evidence_words(comparison),
    }
    table.comparison = comparison
    return table


def _columns(figure: Figure, comparison: Comparison) -> dict[str, list[Any]]:
    """Return the column of a number and that of its errors; no column if it was not computed."""
    values = [figure.of(found) for found in comparison.results.values()]
    if all(value is None for value in values):
        return {}
    if any(isinstance(value, Estimate) for value in values):
        pairs = [value if isinstance(value, Estimate) else Estimate() for value in values]
        return {
            figure.column: [pair.value for pair in pairs],
            f"{figure.column} {figure.error}": [pair.error for pair in pairs],
        }
    return {figure.column: [np.nan if value is None else value for value in values]}
