"""Hyperparameters and blocks of many rows.

The hyperparameters are optimised on a random subset, which is less dense than the data. A second search uses half of it
and neighbourhoods in units of its lengthscales. The second optimum is kept only if it has a larger log density on
held-out rows. Dense neighbourhoods mislead if data are nearly noise-free, discrete or repeated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from rich.progress import Progress

from bsvr_pp.core.arrays import Array, Rows
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.covariance.covariance import each_block
from bsvr_pp.inference.protocol import IntegratesLatent, Options
from bsvr_pp.inference.search.optimize import Optimum, SearchObjective, maximize
from bsvr_pp.inference.search.quasi_newton import ascend
from bsvr_pp.inference.search.starts import lengthscales
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks, Partition, local_blocks
from bsvr_pp.model.problem import Point, Problem

_SUBSET = 1200  # rows of the random subset, at most half of all,
_NEIGHBOURHOODS, _NEIGHBOURS = 40, 200  # neighbourhoods in the objective, and their largest number of rows,
_SHARE = 2  # with every second row of the subset: all rows, or twenty neighbourhoods of 500, take twice as long
_HELD_OUT = 2000  # and held-out rows whose density decides
_KNOWN = 1e-12  # variance of f, on standardised targets, if a row repeats another without noise
_ENOUGH, _LIMIT = 0.3, 40  # ascent of three steps, in nats, below which the climb ends, and its number of evaluations


Stage = tuple[Rows, Optimum]  # a subset of the rows, and the optimum of its fit


@dataclass(frozen=True, slots=True)
class AtSize:
    """Hyperparameters for many rows, the blocks cut in units of their lengthscales, and a record of the search.

    ``optima`` are the ends of the climb and of the subset search, the kept one first. ``log_density`` (2,) is the mean
    log density of held-out rows, for the subset and the climb.
    """

    optima: list[Optimum]
    log_density: Array = field(default_factory=lambda: np.full(2, np.nan))
    refined: bool = False
    blocks: Partition = ONE_BLOCK

    @property
    def point(self) -> Point:
        """The kept hyperparameters."""
        return self.optima[0].point

    @property
    def end(self) -> Optimum:
        """The end of a stage that did not converge, or of the kept stage if both converged."""
        return next((optimum for optimum in self.optima if not optimum.converged), self.optima[0])

    def record(self) -> str:
        """Return the record as JSON: both sets of hyperparameters, both densities, which was kept, and the end."""
        ends = self.optima[::-1] if self.refined else self.optima
        found: dict[str, object] = {
            name: {"hyperparameters": optimum.record()["point"], "log_density": float(density)}
            for name, optimum, density in zip(("subset", "neighbourhoods"), ends, self.log_density, strict=True)
        }
        kept, end = "neighbourhoods" if self.refined else "subset", self.end
        return json.dumps(found | {"kept": kept, "converged": bool(end.converged), "message": end.message})


def search_in_blocks(
    problem: Problem,
    method: IntegratesLatent,
    *,
    rows: int,
    options: Options,
    rng: np.random.Generator,
    known: Stage | None = None,
) -> AtSize:
    """Find hyperparameters and blocks, of at most ``rows`` rows, of a problem without blocks.

    The first stage, a subset and its optimum, may be ``known``.
    """
    if known is None:
        subset = subset_of(problem.targets.size, rng)
        with threads_for(1):  # the last digits depend on the number of threads
            first = maximize(problem.take(subset), method, {}, options, rng)[0]
    else:
        subset, first = known
    climbed_rows, checks = _neighbourhoods(problem, lengthscales(problem, first.point), subset, rng)
    others = np.setdiff1d(subset, np.concatenate(climbed_rows))[::_SHARE]
    parts = [*climbed_rows, *([others] if others.size else [])]
    climbed = _climb(problem.take(*Blocks.joining(parts)), method, first, options.progressbar)
    density = np.array([_log_density(problem, method, optimum.point, checks) for optimum in (first, climbed)])
    refined = bool(density[1] > density[0])
    optima = [climbed, first] if refined else [first, climbed]
    return AtSize(optima, density, refined, cut(problem, optima[0].point, rows))


def subset_of(n: int, rng: np.random.Generator) -> Rows:
    """Return the random subset of n rows on which the search begins."""
    return np.sort(rng.choice(n, min(_SUBSET, max(2, n // 2)), replace=False))


def cut(problem: Problem, point: Point, rows: int) -> Blocks:
    """Cut the rows into blocks of at most ``rows`` rows in units of the lengthscales, in a reproducible way."""
    return local_blocks(problem.inputs, rows, lengthscale=lengthscales(problem, point), random_seed=0)


def _neighbourhoods(
    problem: Problem, lengthscale: Array | None, subset: Rows, rng: np.random.Generator
) -> tuple[list[Rows], list[tuple[Rows, Rows]]]:
    """Return neighbourhoods of random rows: some for the objective; others with rows to condition on and to predict."""
    n = problem.targets.size
    most = min(_NEIGHBOURS, max(2, n // 8))
    blocks = local_blocks(problem.inputs, most, lengthscale=lengthscale, random_seed=rng)
    visited, first = np.unique(blocks.label[rng.permutation(n)], return_index=True)
    order = visited[np.argsort(first)]
    climbed = min(_NEIGHBOURHOODS, -(-len(order) // 2))
    checked = order[climbed : 2 * climbed]
    seen, share = np.isin(np.arange(n), subset), -(-_HELD_OUT // max(checked.size, 1))
    checks = []
    for block in checked:
        members = rng.permutation(blocks.rows(block))
        free = members[~seen[members]][: min(share, members.size // 4)]
        checks.append((np.setdiff1d(members, free), np.sort(free)))
    return [blocks.rows(block) for block in order[:climbed]], [check for check in checks if check[1].size]


def _climb(problem: Problem, method: IntegratesLatent, first: Optimum, progressbar: bool) -> Optimum:
    """Climb the evidence of the neighbourhoods and the subset from the optimum of the subset."""
    objective = SearchObjective(problem, method, {}, "posterior")
    with Progress(transient=True, disable=not progressbar) as bar:
        task = bar.add_task("hyperparameters in neighbourhoods", total=_LIMIT)

        def counted(x: Array) -> tuple[float, Array]:
            bar.advance(task)
            return objective(x)

        x, n = objective.pack(first.point), problem.targets.size
        found = ascend(counted, x, n, first_step=0.1, tolerance=_ENOUGH, limit=_LIMIT)
    point = objective.unpack(found.x)
    ended = found.converged or found.n_evaluations >= _LIMIT  # held-out rows judge the end
    return Optimum(point, found.value, ended, f"in neighbourhoods: {found.message}", found.n_evaluations)


def _log_density(problem: Problem, method: IntegratesLatent, point: Point, checks: list[tuple[Rows, Rows]]) -> float:
    """Return mean log density of held-out rows given others; -inf if a solve fails, NaN if there are none."""
    if not checks:
        return float("nan")

    def of_check(i: int) -> Array:
        given, held_out = checks[i]
        part = problem.take(given)
        K, mean, noise = part.at(point)
        posterior = method.solve(K, part.targets, noise, mean)
        if not posterior.converged:
            return np.array([-np.inf])
        others = problem.take(held_out)
        f_mean, f_variance = posterior.predict(*part.cross(point, others.inputs))
        f_variance = np.maximum(f_variance, _KNOWN)
        return others.noise_of_rows(point).tilted(f_mean, f_variance, others.targets)[0]

    return float(np.mean(np.concatenate(each_block(of_check, len(checks)))))
