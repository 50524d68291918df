"""Rows that arrive after a fit: the posterior at the same hyperparameters, and whether the process has changed.

A row changes the sites of all others: the solver starts at the present ones and runs until it converges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, logsumexp

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.model.problem import Problem

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def with_rows(fitted: Fitted, before: Problem, problem: Problem, place: Rows, method: Any) -> Fitted:
    """The fitted state of a problem with more rows, at the same hyperparameters and scales of the noise.

    ``place`` (n,) has the places of the rows ``before`` among those of the problem. Of blocks only those with new rows
    are solved.
    """
    (old,), (point,) = fitted.posteriors, fitted.points

    def solved(some: Problem, start: Array) -> LatentPosterior:
        K, mean, noise = some.at(point)
        found: LatentPosterior = method.solve(K, some.targets, noise, mean, start)
        return found

    names = "dual_coef", "site_precision", "mean", "variance", "cavity_variance"
    vectors: dict[str, Any] = {name: np.zeros(problem.targets.size) for name in names}
    for name, values in vectors.items():
        values[place] = getattr(old, name)
    sites = np.stack([vectors["dual_coef"], vectors["site_precision"]])
    if problem.blocks is None or before.blocks is None:
        found = solved(problem, sites)
    else:
        value, converged = fitted.log_evidence, old.converged
        for block in np.unique(np.delete(problem.blocks.label, place)):
            rows, known = problem.blocks.rows(block), place[before.blocks.rows(block)]
            part = solved(problem.part(block), sites[:, rows])
            value += part.log_evidence - solved(before.part(block), sites[:, known]).log_evidence
            converged = converged and part.converged
            for name, values in vectors.items():
                values[rows] = getattr(part, name)
        found = replace(old, **vectors, support=old.support[:0], log_evidence=value, converged=converged)
    state = replace(
        fitted, posteriors=[found], converged=fitted.converged and found.converged, log_evidence=found.log_evidence
    )
    return state.with_scales(problem, fitted.scales)


def ranks(score: Array, count: int) -> Array:
    """For each of the last ``count`` scores (n,) the share of those up to it that are not larger, itself included."""
    return np.array([np.mean(score[: i + 1] <= score[i]) for i in range(score.size - count, score.size)])


def odds_of_change(shares: Array) -> float:
    """Evidence against exchangeability, as odds, from `ranks` of the rows that have arrived, in their order.

    While rows are exchangeable the shares are independent and at least uniform, and Π ε·p^(ε-1) is a martingale for
    each ε in (0, 1) (Vovk, Nouretdinov & Gammerman 2003). Here it is averaged over ε, and over the row k at which it
    starts with the weights 1/(k(k+1)), so that it finds late changes. By Ville's inequality the probability that it
    ever exceeds a number c is at most 1/c.
    """
    if shares.size == 0:
        return 1.0
    start, total = np.arange(1.0, shares.size + 1), np.maximum(-np.log(shares)[::-1].cumsum()[::-1], 1e-12)
    length = shares.size + 2.0 - start  # number of rows from the start, plus one
    with np.errstate(divide="ignore"):
        log = total + gammaln(length) + np.log(gammainc(length, total)) - length * np.log(total)
    return float(np.exp(logsumexp(np.append(log, 0.0), b=np.append(1 / (start * (start + 1)), 1 / (1 + shares.size)))))
