"""Any sequence of calls: a fit is replaced as a whole or not at all, and all that carries it predicts the same."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVR

import bsvr_pp as bp

NEW = np.array([[-0.9], [0.1], [1.2]])
SVM = {"random_state": 0}


def line(A, B):
    """A kernel of the least squares estimators."""
    return 1.0 + A @ B.T


# Each with options that another value of would change its predictions, if they did not come from the fit.
ESTIMATORS = {
    "regression": (
        bp.BayesianSVR(kernel="rbf", ard=False, restarts=1, **SVM),
        {"log_targets": True, "noise": "pinball", "quantile": 0.7, "blocks": 6},
    ),
    "labels": (bp.BayesianSVC(ard=False, **SVM), {"kernel": "linear"}),
    "ordered": (bp.BayesianOrdinalSVC(kernel="rbf", ard=False, restarts=1, **SVM), {"noise": "gaussian"}),
    "least squares": (bp.LSSVR(gamma=10.0), {"kernel": line, "gamma": 1.0}),
    "network": (bp.BayesianLSSVR(gamma=10.0, lengthscale=1.0), {"epsilon": 10.0}),
    "residuals": (bp.ResidualIntervals(SVR(), cv=2, **SVM), {"family": "histogram"}),
}


def rows(estimator, seed):
    """A few rows, of another order and number for each seed."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(10 + seed, 1))
    y = 2.0 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
    classes = {"BayesianSVC": 2, "BayesianOrdinalSVC": 3}.get(type(estimator).__name__)
    return X, y if classes is None else np.argsort(np.argsort(y)) * classes // len(y) + 3 * seed


CALLS = {  # and what they take
    "fit": ["seed"],
    "refused_fit": ["seed"],
    "interrupted_fit": ["call"],
    "options": ["changed"],
    "added": ["seed"],
    **{name: [] for name in ("predict", "pickled", "cloned", "bad_options", "saved")},
}
FRESH = {}  # attributes and predictions of fits of estimators that were never fitted before
REFUSED = {
    "constant targets": lambda X, y: (X, np.full(len(y), y[0])),
    "a missing input": lambda X, y: (np.where(X[0] == X, np.nan, X), y),
    "another number of rows": lambda X, y: (X, y[1:]),
    "a column more, and constant targets": lambda X, y: (np.hstack([X, X]), np.full(len(y), y[1])),
}


class Sequences(RuleBasedStateMachine):
    """Calls of one estimator beside what it has to predict; None before the first fit."""

    estimator: bp.BayesianSVR

    def __init__(self):
        super().__init__()
        self.machine, self.expected = clone(self.estimator), None
        self.warned = warnings.catch_warnings()
        self.warned.__enter__()
        warnings.simplefilter("ignore")

    def teardown(self):
        self.warned.__exit__(None, None, None)

    def predictions(self, machine):
        found = [machine.predict(NEW)]
        for method in ("predict_proba", "predict_interval", "predict_f"):
            if hasattr(machine, method):
                found.append(np.ravel(getattr(machine, method)(NEW)))
        return np.concatenate(found)

    def check(self, machine):
        if self.expected is None:
            with pytest.raises(NotFittedError):
                machine.predict(NEW)
        else:
            np.testing.assert_allclose(self.predictions(machine), self.expected, rtol=1e-9, atol=1e-12)
            assert machine.n_features_in_ == 1

    def unchanged(self, call, error):
        """Make a call that has to raise, and to leave every attribute as it is."""
        before = dict(vars(self.machine))
        with pytest.raises(error):
            call()
        after = vars(self.machine)
        assert list(after) == list(before) and all(after[name] is value for name, value in before.items())
        self.check(self.machine)

    def fit(self, seed):
        """The fit is that of an estimator that was never fitted before."""
        X, y = rows(self.machine, seed)
        assert self.machine.fit(X, y) is self.machine
        key = repr(self.machine.get_params(deep=False)), self.name, seed
        if key not in FRESH:
            fresh = clone(self.machine).fit(X, y)
            FRESH[key] = set(vars(fresh)), self.predictions(fresh)
        names, self.expected = FRESH[key]
        assert set(vars(self.machine)) == names
        self.check(self.machine)

    def refused_fit(self, seed):
        for refused in REFUSED.values():
            X, y = refused(*rows(self.machine, seed))
            self.unchanged(lambda X=X, y=y: self.machine.fit(X, y), ValueError)

    def interrupted_fit(self, call):
        """A signal comes in one of the calls of functions of the package."""
        X, y = rows(self.machine, 1)
        before, done = dict(vars(self.machine)), [0]

        def count(frame, event, _):
            if event == "call" and "bsvr_pp" in frame.f_code.co_filename:
                done[0] += 1
                if done[0] == call:
                    os.kill(os.getpid(), signal.SIGINT)

        try:
            sys.setprofile(count)
            try:
                self.machine.fit(X, y)
            finally:
                sys.setprofile(None)
        except KeyboardInterrupt:
            if vars(self.machine).get("_fit") is before.get("_fit"):
                assert list(vars(self.machine)) == list(before)
                self.check(self.machine)
                return
        self.expected = self.predictions(self.machine)  # the signal came after the statement that sets the fit

    def predict(self):
        self.check(self.machine)

    def pickled(self):
        self.machine = pickle.loads(pickle.dumps(self.machine))
        self.check(self.machine)

    def cloned(self):
        fresh = clone(self.machine)
        with pytest.raises(NotFittedError):
            fresh.predict(NEW)
        self.check(self.machine)

    def options(self, changed):
        """Options are of the next fit."""
        start, other = ESTIMATORS[self.name]
        self.machine.set_params(**{name: other[name] if changed else getattr(start, name) for name in other})
        self.check(self.machine)

    def bad_options(self):
        name = next(iter(self.machine.get_params(deep=False)))
        good = getattr(self.machine, name)
        self.machine.set_params(**{name: "nonsense"})
        self.unchanged(lambda: self.machine.fit(*rows(self.machine, 0)), Exception)
        self.machine.set_params(**{name: good})

    def saved(self):
        if not hasattr(self.machine, "save") or self.expected is None:
            return
        if callable(self.machine._given.get("kernel")):  # is not saved
            return
        again = type(self.machine).from_result(self.machine.result_)
        self.check(again)
        self.machine = again

    def added(self, seed):
        if not hasattr(self.machine, "add") or self.expected is None:
            return
        self.unchanged(lambda: self.machine.add([[0.5]], [np.nan]), ValueError)
        before = self.predictions(self.machine)
        self.machine.add([[0.5 * seed]], [2.0])
        self.expected = self.predictions(self.machine)
        assert not np.array_equal(before, self.expected)

    @rule(
        name=st.sampled_from(["fit", *CALLS]), seed=st.integers(0, 2), call=st.integers(1, 1200), changed=st.booleans()
    )
    def step(self, name, seed, call, changed):
        """One call; rules of their own for each would be left out in many sequences."""
        given = {"seed": seed, "call": call, "changed": changed}
        getattr(self, name)(**{key: given[key] for key in CALLS[name]})


def sequences(name, number, steps):
    """Run random sequences of calls of an estimator."""
    kind = type(name, (Sequences,), {"estimator": ESTIMATORS[name][0], "name": name})
    options = settings(
        max_examples=number,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],  # shorter sequences that fail would take minutes
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(kind, settings=options)


# Python ignores what is raised while a generator is closed: `interruptible` raises it later.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.slow_cases("labels", "regression", "ordered")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_is_replaced_as_a_whole_or_not_at_all(name):
    sequences(name, 8, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_long_sequences(name):
    sequences(name, 200, 20)
