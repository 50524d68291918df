"""Comparison of the results of several methods, as a pandas table with its judgements in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from bsvr_pp._checks import generator
from bsvr_pp._docs import shared
from bsvr_pp.assess import assessment
from bsvr_pp.assess.assessment import scores
from bsvr_pp.assess.evidence import Judged
from bsvr_pp.assess.verdict import Comparison
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Anneals
from bsvr_pp.inference.result import check_results, check_same, data_of
from bsvr_pp.show.report import columns, evidence_words, summary

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
    needed = model is not None or X_test is not None or hyperparameters is not None
    judged = [Judged(result, model, f"results[{name!r}]") for name, result in results.items() if needed]
    first = judged[0] if judged else None
    if first is None or hyperparameters is None:
        fields = (name for name, result in results.items() if method_of(result) == MeanField())
        theta = assessment.own_point(results[next(fields, next(iter(results))) if reference is None else reference])
    else:
        theta = {name: value.tolist() for name, value in sorted(first.problem.checked(hyperparameters).items())}
    evidence = None if first is None else assessment.evidence_at(first, random_seed)
    common = {}
    if evidence is not None:
        methods = [Laplace(), MeanField(), *(method_of(result).latent for result in results.values())]
        common = {m.name: evidence(theta, m) for m in dict.fromkeys(methods) if m is not None}
        common |= {} if annealed is None else {"annealed": evidence(theta, annealed)}
    # Without a probability of the targets neither the integrated evidence nor leave-one-out is one.
    targets = first.model if first is not None and not first.loss.targets.refusal("leave one out") else None
    found = {}
    for name, result in results.items():
        numbers = assessment.evidences(result, evidence, annealed, theta)
        if integrated and targets is not None:
            numbers |= assessment.integrated(result, targets, random_seed)
        if loo and targets is not None:
            numbers |= assessment.leave_one_out(result, targets)
        if k_hat:
            numbers["k-hat"] = assessment.k_hat(result, model, random_seed)
        if X_test is not None and y_test is not None:
            numbers |= scores(predict(result, X_test, model=model, y_new=y_test), y_test)
        n_test = 0 if y_test is None else np.size(y_test)
        found[name] = assessment.describe(result, numbers, n_test, None if reference is None else results[reference])
    mixed = any("evidence_unit" in result.attrs for result in results.values())
    return to_table(Comparison(found, theta, common, reference, mixed))


def _check_comparable(results: Any, reference: object, X_test: object, y_test: object, annealed: object) -> None:
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
    if annealed is not None and not isinstance(annealed, Anneals):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")


def to_table(comparison: Comparison) -> ComparisonTable:
    """Write a comparison as a table."""
    results, far = comparison.results, comparison.far
    held = columns(comparison)
    held["note"] = [found.message for found in results.values()]
    held["inference"] = [found.inference for found in results.values()]
    if comparison.reference is not None:
        held["against the reference"] = [str(far.get(name, "")) for name in results]
    held["verdict"] = [str(verdict) for verdict in comparison.verdicts.values()]
    table = ComparisonTable(held, index=pd.Index(list(results), name="method"))
    words = {"summary": summary(comparison), "evidence_summary": evidence_words(comparison)}
    table.attrs = {"theta": comparison.theta, "reference": comparison.reference, **words}
    table.comparison = comparison
    return table
