"""Data, settings and calls that the tests of several folders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytest
from click.testing import Result
from typer.testing import CliRunner

import bsvr_pp as bp
from bsvr_pp.cli import app
from bsvr_pp.inference.prediction.neighbours import moments_given, nearest_rows
from bsvr_pp.inference.search import at_size
from bsvr_pp.inference.search.quasi_newton import Ascent

STAGES = {"_SUBSET": 60, "_NEIGHBOURHOODS": 3, "_NEIGHBOURS": 40, "_HELD_OUT": 30, "_LIMIT": 8}

soft = partial(bp.SoftInsensitive, epsilon=0.1, beta=0.3)


def made(value: Any) -> Any:
    """Return a value, or what a function makes."""
    return value() if callable(value) else value


def process_model(
    noise: Any, X: Any, /, ls: Any = 1.0, factor: Any = None, kernel: Any = None, prior: Any = (), **given: Any
) -> pm.Model:
    """Return a model of one process, whose values are numbers, or functions that make a variable or a kernel."""
    with pm.Model() as model:
        kernel = kernel() if kernel else pm.gp.cov.ExpQuad(np.shape(X)[1], ls=made(ls))
        f = bp.GP(cov_func=kernel if factor is None else made(factor) * kernel).prior("f", X=X, **dict(prior))
        noise("y", f, **{name: made(value) for name, value in given.items()})
    return model


def model_of(make: Callable[[], object], **options: Any) -> pm.Model:
    """Return a model of the variables that a function makes."""
    with pm.Model(**options) as model:
        make()
    return model


def differences(function: Callable[[Any], Any], at: Any, step: float) -> np.ndarray:
    """Central differences of a function of an array by each entry of it, which is the first axis."""
    steps = step * np.eye(np.size(at)).reshape(-1, *np.shape(at))
    return np.array([(function(at + e) - function(at - e)) / (2 * step) for e in steps])


def moments_from_neighbours(problem: Any, point: Any, X: Any, count: int) -> Any:
    """Moments of f at inputs from the nearest rows of each."""
    return moments_given(problem, point, X, nearest_rows(problem, point, X, count))


def wave(n: int, low: float = 0.0, high: float = 12.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, and targets on a sine with Laplace noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, size=(n, 1))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.laplace(size=n)


@contextmanager
def small_stages(**changed: int) -> Iterator[pytest.MonkeyPatch]:
    """Context in which the stages of a search in blocks have few rows; it undoes other patches as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (STAGES | changed).items():
            patch.setattr(at_size, name, value)
        yield patch


def climb_fails(patch: pytest.MonkeyPatch) -> None:
    """Make the climb in neighbourhoods of a search in blocks end at its start, without an optimum."""
    ascend = at_size.ascend

    def failing(*given: Any, **options: Any) -> Ascent:
        ended = ascend(*given, **options | {"limit": 1})
        return replace(ended, converged=False, message="no ascent from the best point", n_evaluations=1)

    patch.setattr(at_size, "ascend", failing)


def run_command(*arguments: object) -> Result:
    """Run a command of the package, which must succeed."""
    run = CliRunner().invoke(app, [str(each) for each in arguments])
    assert run.exit_code == 0, run.output
    return run


def refuse_command(*arguments: object) -> str:
    """Run a command that must fail with one line; return this line."""
    run = CliRunner().invoke(app, [str(each) for each in arguments])
    assert run.exit_code == 2, run.output
    assert run.stderr.strip().count("\n") == 0
    return run.stderr
