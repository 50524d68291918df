"""Rows that arrive after a fit: the posterior at the same hyperparameters.

A row changes the sites of all others: the solver starts at the present ones and runs until it converges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._arrays import Array
from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.inference.fitted import Fitted
from bsvr_pp.model.problem import Problem


def with_rows(fitted: Fitted, before: Problem, problem: Problem, place: NDArray[np.intp], method: Any) -> Fitted:
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
