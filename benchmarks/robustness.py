"""Robustness of mode, Laplace and mean field over the whole range of hyperparameters.

``python -m benchmarks.robustness`` draws settings log-uniformly from the box (`benchmarks.problems`) and counts
failures. The checks are independent of the solvers: the duality gap of the mode and the moment mismatch of mean field
are recomputed from ``dual_coef`` and ``site_precision``, with products in extended precision, and evidences and
gradients must be finite. With ``--ends`` targets are intervals, and the gap of the mode is the solver's own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.linalg import cholesky, solve_triangular

from benchmarks.problems import from_the_box
from bsvr_pp.approximations import Covariance, find_mode, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.losses import NoiseModel

GAP = 1e-8  # relative duality gap of the mode
MISMATCH = 1e-6  # of the moments of mean field, in posterior standard deviations

Array = NDArray[np.float64]


def duality_gap(K: Array, y: Array, noise: NoiseModel, dual_coef: Array) -> float:
    """Relative duality gap of Chu, Keerthi & Ong 2004, (17) and (29), from the dual coefficients only.

    It is infinite if a coefficient exceeds C.
    """
    wide = np.longdouble
    C, epsilon, beta = (wide(noise.parameters[name]) for name in ("C", "epsilon", "beta"))
    a = dual_coef.astype(wide)
    if np.abs(a).max() > C * (1 + wide(1e-12)):
        return np.inf
    f = K.astype(wide) @ a
    excess = np.abs(y - f) - (1 - beta) * epsilon
    width = 2 * beta * epsilon
    u = np.clip(excess / width, 0, 1) if width > 0 else np.asarray(excess >= 0, dtype=wide)
    loss = 0.5 * width * u**2 + np.maximum(excess - width, 0)
    quadratic = 0.5 * (a @ f)
    primal = C * loss.sum() + quadratic
    dual = y @ a - quadratic - ((1 - beta) * epsilon * np.abs(a) + beta * epsilon / C * a**2).sum()
    return float((primal - dual) / (1 + abs(primal) + abs(dual)))


def moment_mismatch(K: Array, y: Array, noise: NoiseModel, dual_coef: Array, site_precision: Array) -> float:
    """Largest difference between the moments of the posterior and of the tilted distributions.

    Means in posterior standard deviations, variances relative (Gao, Gunn & Harris 2002, (3.10) and (3.12)).
    """
    mean = (K.astype(np.longdouble) @ dual_coef.astype(np.longdouble)).astype(float)
    root = np.sqrt(site_precision)
    factor = cholesky(np.eye(y.size) + root[:, None] * K * root, lower=True)
    half = solve_triangular(factor, root[:, None] * K, lower=True)
    kept = np.sum(solve_triangular(factor, np.eye(y.size), lower=True) ** 2, axis=0)  # Σ_ii over the cavity variance
    precise = site_precision * np.diag(K) > 1e-2
    variance = np.where(
        precise, (1 - kept) / np.where(precise, site_precision, 1), np.diag(K) - np.sum(half**2, axis=0)
    )
    cavity_variance = variance / kept
    _, tilted_mean, tilted_variance = noise.tilted(mean - cavity_variance * dual_coef, cavity_variance, y)
    return float(
        max(np.max(np.abs(tilted_mean - mean) / np.sqrt(variance)), np.max(np.abs(tilted_variance / variance - 1)))
    )


def main(
    settings: Annotated[int, typer.Option(help="Number of settings to draw.")] = 10_000,
    n: Annotated[int, typer.Option(help="Points in each set.")] = 100,
    first: Annotated[int, typer.Option(help="Number of the first setting; each number is one fixed setting.")] = 0,
    jitter: Annotated[float, typer.Option(help="Added to the diagonal of K; that of bp.GP by default.")] = 1e-6,
    ends: Annotated[bool, typer.Option("--ends", help="Most targets are intervals of any width, or censored.")] = False,
) -> None:
    """Count failures of mode, Laplace and mean field on settings drawn from the whole box."""
    methods = ("mode", "Laplace exact", "Laplace local", "mean field")
    failures: dict[str, dict[str, list[int]]] = {name: defaultdict(list) for name in methods}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    steps: dict[str, list[int]] = {"mode": [], "mean field": []}
    worst = {"mode": 0.0, "mean field": 0.0}

    def attempt(index: int, name: str) -> None:
        K, y, noise = from_the_box(index, n, jitter, ends)
        start = time.perf_counter()
        if name == "mode":
            mode = find_mode(Covariance(K, jitter=1e-6), y, noise)
            seconds[name].append(time.perf_counter() - start)
            gap = mode.duality_gap if ends else duality_gap(K, y, noise, mode.dual_coef)
            finite, converged = np.isfinite(mode.dual_coef).all(), mode.converged and gap <= GAP
            steps[name].append(mode.n_iter)
            worst[name] = max(worst[name], gap)
        elif name == "mean field":
            value, gradient = mean_field_gradient(K, y, noise)
            seconds[name].append(time.perf_counter() - start)
            posterior = mean_field(Covariance(K, jitter=1e-6), y, noise)
            mismatch = moment_mismatch(K, y, noise, posterior.dual_coef, posterior.site_precision)
            finite = np.isfinite(value) and np.isfinite(gradient.K).all() and np.isfinite(mismatch)
            converged = posterior.converged and mismatch <= MISMATCH
            steps[name].append(posterior.n_iter)
            worst[name] = max(worst[name], mismatch)
        else:
            value, gradient = laplace_gradient(K, y, noise, curvature=name.removeprefix("Laplace "))
            seconds[name].append(time.perf_counter() - start)
            converged = value > -np.inf
            finite = not np.isnan(value) and np.isfinite(gradient.K).all()
        if not finite:
            failures[name]["not finite"].append(index)
        elif not converged:
            failures[name]["not converged"].append(index)

    for name in methods:  # compile
        attempt(first, name)
        failures[name].clear()
        seconds[name].clear()
    for times in steps.values():
        times.clear()
    for index in track(range(first, first + settings), description="settings"):
        for name in methods:
            try:
                attempt(index, name)
            except Exception as error:
                failures[name][f"exception {type(error).__name__}"].append(index)

    console = Console(width=120)
    table = Table(title=f"{settings} settings, n = {n} (ms: only the value for the mode, otherwise value and gradient)")
    for column in ("", "exceptions", "not finite", "not converged", "worst", "steps, 50/99/100 %", "ms, 50/99/100 %"):
        table.add_column(column, justify="left" if not column else "right")
    for name in methods:
        failed = failures[name]
        exceptions = sum(len(where) for kind, where in failed.items() if kind.startswith("exception"))
        count = steps.get(name)
        table.add_row(
            name,
            str(exceptions),
            str(len(failed["not finite"])),
            str(len(failed["not converged"])),
            f"{worst[name]:.1e}" if name in worst else "–",
            "/".join(f"{q:.0f}" for q in np.quantile(count, [0.5, 0.99, 1.0])) if count else "–",
            "/".join(f"{1e3 * q:.1f}" for q in np.quantile(seconds[name], [0.5, 0.99, 1.0])),
        )
    console.print(table)
    console.print(f"worst: duality gap of the mode (limit {GAP:g}), moment mismatch of mean field (limit {MISMATCH:g})")
    for name in methods:
        for kind, where in failures[name].items():
            if where:
                console.print(f"{name}, {kind}: settings {', '.join(map(str, where[:20]))}")
    if any(where for failed in failures.values() for where in failed.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
