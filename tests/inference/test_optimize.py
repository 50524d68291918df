"""Optima are optima, of what was asked for."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.protocol import Options
from bsvr_pp.inference.search import optimize
from bsvr_pp.inference.search.optimize import maximize
from bsvr_pp.inference.search.quasi_newton import ascend
from bsvr_pp.model.problem import read_model


def run(model, method=None, fixed=None, objective="posterior", restarts=2):
    problem = read_model(model)
    return maximize(
        problem,
        method or bp.MeanField(),
        problem.checked(fixed),
        Options(restarts, objective),
        np.random.default_rng(0),
    )


@pytest.mark.parametrize("objective", ["posterior", "evidence"])
def test_optimum_beats_its_neighbours(sinc_model, objective):
    model, _ = sinc_model
    best = run(model, objective=objective)[0]
    assert best.converged

    def value(point):
        total = bp.log_evidence(bp.MeanField(), model, hyperparameters=point).value
        if objective == "posterior":
            for name, at in point.items():
                total += float(pm.logp(model[name], np.asarray(at)).sum().eval(mode="FAST_COMPILE"))
        return total

    top = value(best.point)
    assert top == pytest.approx(best.objective, abs=1e-6)
    for name in best.point:
        for factor in (0.97, 1.03):
            assert value({**best.point, name: best.point[name] * factor}) < top


def test_fixed_hyperparameters_stay(sinc_model):
    model, _ = sinc_model
    for optimum in run(model, fixed={"C": 4.0}):
        assert optimum.point["C"] == 4.0
        assert optimum.point["inverse_lengthscale"] != 4.0
    everything = run(model, fixed={"C": 4.0, "epsilon": 0.1, "amplitude": 1.0, "inverse_lengthscale": 0.5})
    assert everything[0].message == "all hyperparameters are given"


def test_optima_come_best_first_and_survive_the_jumps_of_laplace(sinc_model):
    model, _ = sinc_model
    optima = run(model, bp.Laplace(), restarts=5)
    objectives = [o.objective for o in optima]
    assert objectives == sorted(objectives, reverse=True)
    assert optima[0].converged
    assert optima[0].message


def test_improper_priors_start_from_the_data():
    X = np.linspace(-3, 3, 15)[:, None]
    with pm.Model() as model:
        lengthscale, C = pm.HalfFlat("lengthscale"), pm.HalfFlat("C")
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=X)
        bp.SoftInsensitive(
            "y", mu=f, C=C, epsilon=0.05, beta=0.3, observed=np.sin(X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
        )
    optima = run(model, restarts=4)
    assert optima[0].converged
    assert 0.5 < optima[0].point["lengthscale"] < 5
    starts = optimize._starts(read_model(model), 7, np.random.default_rng(0))
    assert len({(float(start["C"]), float(start["lengthscale"])) for start in starts}) == 7


@pytest.mark.parametrize(("curvature", "with_all"), [("exact", 3), ("local", 1)])
def test_beyond_many_rows_the_best_go_on_with_all(monkeypatch, curvature, with_all):
    """Of exact Laplace the better half: which of its optima is best is not known before."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(520, 1))
    model = bp.default_model(X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=520), beta=0.3)
    ends = []

    def watched(*args, **options):
        ends.append(ascend(*args, **options))
        return ends[-1]

    monkeypatch.setattr(optimize, "ascend", watched)
    optima = run(model, bp.Laplace(curvature), restarts=5)
    assert (len(ends), len(optima)) == (5 + with_all, 5)
    assert optima[0].objective == max(end.value for end in ends[5:])
    assert all(optima[0].objective >= other.objective for other in optima)


def test_an_interruption_at_the_last_ascent_keeps_those_before(monkeypatch):
    """What all rows gave is not lost to what some of them gave."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(520, 1))
    model = bp.default_model(X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=520), beta=0.3)
    whole = run(model, bp.Laplace(), restarts=2)[0]
    ascents = []

    def interrupted(*args, **options):
        ascents.append(args)
        if len(ascents) == 5:  # three of some rows, then two of all
            raise KeyboardInterrupt
        return ascend(*args, **options)

    monkeypatch.setattr(optimize, "ascend", interrupted)
    found = run(model, bp.Laplace(), restarts=3)[0]
    assert "interrupted" in found.message and not found.converged
    assert found.objective == pytest.approx(whole.objective, abs=1.0)
