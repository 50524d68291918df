"""Rows that arrive after a fit: the posterior at the same hyperparameters, and whether the process has changed.

A row changes the sites of all others, so that the solver starts at the present sites and runs until it converges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, logsumexp, softmax

from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.model.problem import Point, Problem

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def with_rows(fitted: Fitted, before: Problem, problem: Problem, place: Rows, method: Approximation) -> Fitted:
    """The fitted state of a problem with more rows, at the same hyperparameters and scales of the noise.

    ``place`` (n,) has the places of the rows ``before`` among those of the problem. Of blocks only those with new rows
    are solved. The weights of a committee are multiplied by the ratios of evidence.
    """
    if problem.blocks is not None:
        posterior = _in_blocks(fitted, before, problem, place, method)
        return replace(
            fitted,
            posteriors=[posterior],
            converged=posterior.converged,
            log_evidence=posterior.log_evidence,
        )
    logs, posteriors = np.log(fitted.weights), []
    for i, (point, old) in enumerate(zip(fitted.points, fitted.posteriors, strict=True)):
        start = np.zeros((2, problem.targets.size))
        start[:, place] = old.dual_coef, old.site_precision
        posteriors.append(_solved(problem, method, point, start))
        if logs.size > 1:  # an evidence that was not saved is computed again
            known = old if np.isfinite(old.log_evidence) else _solved(before, method, point, start[:, place])
            logs[i] += posteriors[i].log_evidence - known.log_evidence
    order = np.argsort(-logs, kind="stable")
    found = [posteriors[i] for i in order]
    return replace(
        fitted,
        points=[fitted.points[i] for i in order],
        posteriors=found,
        weights=softmax(logs[order]),
        converged=all(posterior.converged for posterior in found),
        log_evidence=found[0].log_evidence,
    ).with_scales(problem, fitted.scales)


def _solved(problem: Problem, method: Approximation, point: Point, start: Array) -> LatentPosterior:
    K, mean, noise = problem.at(point)
    return method.solve(K, problem.targets, noise, mean, start)


def _in_blocks(
    fitted: Fitted, before: Problem, problem: Problem, place: Rows, method: Approximation
) -> LatentPosterior:
    """The posterior of blocks, of which those with new rows are solved."""
    assert before.blocks is not None and problem.blocks is not None
    (old,), (point,), value = fitted.posteriors, fitted.points, fitted.log_evidence
    names = (
        "dual_coef",
        "site_precision",
        "mean",
        "variance",
        "cavity_variance",
        *(["support"] * bool(old.support.size)),
    )
    vectors: dict[str, Any] = {name: np.zeros(problem.targets.size, getattr(old, name).dtype) for name in names}
    for name, values in vectors.items():
        values[place] = getattr(old, name)
    start, converged = np.stack([vectors["dual_coef"], vectors["site_precision"]]), fitted.converged
    for block in np.unique(problem.blocks.label[np.setdiff1d(np.arange(problem.targets.size), place)]):
        rows, known = problem.blocks.rows(block), place[before.blocks.rows(block)]
        found = _solved(problem.part(block), method, point, start[:, rows])
        value += found.log_evidence - _solved(before.part(block), method, point, start[:, known]).log_evidence
        for name, values in vectors.items():
            values[rows] = getattr(found, name)
        converged = converged and found.converged
    return replace(old, **vectors, log_evidence=value, converged=converged)


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
