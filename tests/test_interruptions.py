"""Interruptions by a real signal: they are raised, by whatever is running, and nothing unfinished is kept."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytest
from numba import njit, types
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

import bsvr_pp as bp
from bsvr_pp import cli
from bsvr_pp.core.compiler import interruptible, separate
from bsvr_pp.inference import approximate
from bsvr_pp.inference.search import at_size
from tests.helpers import climb_fails, small_stages
from tests.signals import interrupt_call, interrupt_evidence, uncached

_raise = ctypes.CDLL(None)["raise"]
_raise.argtypes, _raise.restype = [ctypes.c_int], ctypes.c_int
SIGINT = int(signal.SIGINT)


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


@uncached
def pair():
    _raise(SIGINT)
    return Pair(np.zeros(2), np.ones(2))


@uncached
def arrays():
    _raise(SIGINT)
    return np.zeros(2), np.ones(2)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def wave(n=40):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.laplace(size=n)


@contextmanager
def handler(new):
    usual = signal.signal(signal.SIGINT, new)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("function", [pair, arrays])
def test_compiled_code_ends_before_an_interruption_is_raised(function):
    """Before, a named tuple ended the process, and several arrays were a SystemError."""
    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        function()
    assert signal.getsignal(signal.SIGINT) is usual


def test_handlers_of_others_are_called_once_at_the_end_of_compiled_code():
    came = []
    with handler(lambda *_: came.append(1)):
        np.testing.assert_array_equal(pair().second, 1.0)
        with interruptible(), interruptible(wait=True):
            interrupt()
            assert len(came) == 1
    assert came == [1, 1]
    for none in (signal.SIG_IGN, signal.SIG_DFL):
        with handler(none), interruptible():
            assert signal.getsignal(signal.SIGINT) is none
    with handler(signal.SIG_IGN):
        assert len(arrays()) == 2


def test_other_threads_change_nothing():
    usual, found = signal.getsignal(signal.SIGINT), []

    def look():
        with interruptible(wait=True):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [usual]


class Dying:
    def __del__(self):
        interrupt()


def test_what_python_ignores_is_raised_at_the_end(monkeypatch):
    """As in a weak reference's callback while garbage is collected, where a signal is handled that came meanwhile."""
    ignored, passed = [], []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(KeyboardInterrupt), interruptible():
        Dying()
        passed.append(1)
    assert [found.exc_type for found in ignored] == [KeyboardInterrupt]
    assert passed


def test_a_signal_while_compiled_code_of_others_loads_a_function_comes_after_it(monkeypatch):
    @separate(types.float64, types.float64)
    def half(x):
        return 0.5 * x

    interrupt_call(monkeypatch, half, "_compile")

    @njit
    def quarter(x):
        return half(half(x))

    with pytest.raises(KeyboardInterrupt):
        found = quarter(8.0)
        for _ in range(100):
            time.sleep(0.1)
    assert found == quarter(8.0) == 2.0


def kernel(X):
    return pm.HalfNormal("size", 1.0) ** 2 * pm.gp.cov.ExpQuad(X.shape[1], ls=pm.HalfNormal("lengthscale", 1.0))


ESTIMATORS = {
    "regression": lambda: bp.BayesianSVR(random_state=0, restarts=1),
    "laplace": lambda: bp.BayesianSVR(random_state=0, restarts=1, noise="gaussian", inference="laplace"),
    "function": lambda: bp.BayesianSVR(random_state=0, restarts=1, kernel=kernel),
    "blocks": lambda: bp.BayesianSVR(random_state=0, blocks=20, restarts=1),
    "classes": lambda: bp.BayesianSVC(random_state=0),
    "classes in blocks": lambda: bp.BayesianSVC(blocks=20, random_state=0),
    "ordered": lambda: bp.BayesianOrdinalSVC(random_state=0, restarts=1),
    "residuals": lambda: bp.ResidualIntervals(bp.BayesianSVR(random_state=0, restarts=1), random_state=0),
}


@pytest.fixture
def small():
    with small_stages():
        yield


@pytest.mark.slow_cases("residuals", "function", "ordered", "laplace", "classes in blocks")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_raise_an_interruption_of_any_evidence(name, small):
    X, y = wave()
    target = (y > 0).astype(int) if name in ("classes", "classes in blocks", "ordered") else y
    with pytest.MonkeyPatch.context() as patch:
        done = interrupt_evidence(patch, -1)
        ESTIMATORS[name]().fit(X, target)
    last = done[-1]
    assert last > 10
    for number in (3, last):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            interrupt_evidence(patch, number)
            ESTIMATORS[name]().fit(X, target)


@pytest.mark.parametrize("stage", ["_neighbourhoods", "_climb", "_log_density", "cut"])
def test_blocks_raise_an_interruption_of_any_stage(stage, small, monkeypatch):
    interrupt_call(monkeypatch, at_size, stage)
    with pytest.raises(KeyboardInterrupt):
        ESTIMATORS["blocks"]().fit(*wave())


@pytest.mark.slow
def test_an_interruption_of_predictions_is_raised():
    X, y = wave()
    svr = bp.BayesianSVR(random_state=0, outliers="keep", blocks=20).fit(X, y)
    timer = threading.Timer(0.02, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(10_000):
            svr.predict_interval(X)


def test_a_grid_search_stops():
    X, y = wave()
    svr = bp.BayesianSVR(inference="mean_field", restarts=1, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        done = interrupt_evidence(patch, -1)
        svr.fit(X[20:], y[20:])
    search = GridSearchCV(svr, {"kernel": ["rbf", "matern52"]}, cv=3)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_evidence(patch, len(done) + 5)  # of the second fold
        search.fit(X, y)
    assert not hasattr(search, "cv_results_")


@pytest.mark.slow
def test_a_fit_of_a_model_returns_the_best_point_so_far():
    model = bp.default_model(*wave(), kernel="rbf")
    with pytest.MonkeyPatch.context() as patch:
        done = interrupt_evidence(patch, -1)
        whole = bp.fit(bp.MeanField(), model, progressbar=False)
    assert whole.attrs["converged"]
    with pytest.MonkeyPatch.context() as patch, pytest.warns(bp.ConvergenceWarning, match="converge: interrupted; "):
        interrupt_evidence(patch, len(done) // 2 + 5)
        found = bp.fit(bp.MeanField(), model, progressbar=False)
    assert not found.attrs["converged"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_evidence(patch, 0)  # no point yet
        bp.fit(bp.MeanField(), model, progressbar=False)
    again = bp.fit(bp.MeanField(), model, progressbar=False)
    assert again.attrs["log_evidence"] == whole.attrs["log_evidence"]


@pytest.mark.parametrize("number", [1, *(pytest.param(i, marks=pytest.mark.slow) for i in (0, 2))])
def test_an_interruption_while_pytensor_compiles(number):
    model = bp.default_model(*wave(), kernel="rbf")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_call(patch, pytensor, "function", number)
        bp.fit(bp.MeanField(), model, progressbar=False)
    assert bp.fit(bp.MeanField(), model, progressbar=False).attrs["converged"]


@pytest.mark.slow
def test_the_command_line_does_not_go_on(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        interrupt_evidence(patch, 5)
        run = CliRunner().invoke(cli.app, ["compare", "--methods", "mean_field", "--out", str(tmp_path / "out")])
    assert run.exit_code == 130
    assert not list((tmp_path / "out").glob("*.nc"))


@pytest.mark.parametrize("name", ["blocks", pytest.param("classes in blocks", marks=pytest.mark.slow)])
def test_fits_in_blocks_say_that_a_search_did_not_converge(name, small, monkeypatch):
    X, y = wave()
    target = (y > 0).astype(int) if name == "classes in blocks" else y
    assert ESTIMATORS[name]().fit(X, target).converged_
    with monkeypatch.context() as patch, pytest.warns(bp.ConvergenceWarning, match="in neighbourhoods: no ascent"):
        climb_fails(patch)
        assert not ESTIMATORS[name]().fit(X, target).converged_
    maximize = at_size.maximize
    with monkeypatch.context() as patch, pytest.warns(bp.ConvergenceWarning, match="no end after 500 steps"):
        ends = {"converged": False, "message": "no end after 500 steps"}
        for stage in (at_size, approximate):  # of labels, and of the dense fit of a subset
            patch.setattr(stage, "maximize", lambda *given: [replace(end, **ends) for end in maximize(*given)])
        assert not ESTIMATORS[name]().fit(X, target).converged_
