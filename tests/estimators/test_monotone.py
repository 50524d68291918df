"""BayesianSVR(monotone=...): the mean keeps its directions, errors fall, and what predicts agrees with it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import bsvr_pp as bp
from bsvr_pp.inference import monotone as search
from bsvr_pp.inference.protocol import ConvergenceWarning

QUICK = {"restarts": 1, "random_state": 0, "outliers": "keep"}
GRID = np.linspace(-2, 2, 81)
RNG = np.random.default_rng(2)
X = RNG.uniform(-2, 2, (60, 2))
NOISY = X[:, 0] - 0.5 * X[:, 1] + np.sin(3 * X[:, 0]) + 0.05 * RNG.normal(size=60)  # which falls in places


def lines(k, others=(-1.5, 0.0, 1.2)):
    """Copies of three rows along one input, (3·81, 2)."""
    rows = np.repeat(np.column_stack([others, others[::-1]]), GRID.size, axis=0)
    rows[:, k] = np.tile(GRID, len(others))
    return rows


def fall(model, k, sign):
    """Largest fall of the mean against the sign along lines, in standard deviations of the targets."""
    f = sign * model.predict(lines(k)).reshape(-1, GRID.size)
    return (np.maximum.accumulate(f, axis=1) - f).max() / NOISY.std()


def truth(rows):
    return rows[:, 0] - 0.5 * rows[:, 1]


@pytest.fixture(scope="module")
def free():
    return bp.BayesianSVR(inference="mean_field", kernel="rbf", **QUICK).fit(X, NOISY)


@pytest.fixture(scope="module")
def held():
    return bp.BayesianSVR(inference="mean_field", monotone={0: 1, 1: -1}, kernel="rbf", **QUICK).fit(X, NOISY)


def test_the_mean_is_monotone_and_nearer_to_the_truth(free, held):
    assert fall(free, 0, 1) > 0.02
    assert max(fall(held, 0, 1), fall(held, 1, -1)) <= 2e-3 and held.converged_
    inside = RNG.uniform(-1.8, 1.8, (500, 2))
    error = [np.sqrt(np.mean((model.predict(inside) - truth(inside)) ** 2)) for model in (free, held)]
    assert error[1] < 0.95 * error[0]
    for name in ("C_", "epsilon_"):  # found without slopes
        assert getattr(held, name) == getattr(free, name)
    again = clone(held).fit(X[::-1], NOISY[::-1])
    ends = (model.predict_interval(lines(0)) for model in (again, held))  # some are nearly 0
    np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-8)


def test_a_monotone_function_is_not_changed():
    y = 2 * X[:, 0] - X[:, 1] + 0.02 * RNG.normal(size=60)
    free, held = (
        bp.BayesianSVR(inference="mean_field", monotone=monotone, **QUICK).fit(X, y) for monotone in (None, [1, -1])
    )
    np.testing.assert_allclose(held.predict(lines(0)), free.predict(lines(0)), atol=5e-3 * y.std())
    assert held.log_evidence_ == pytest.approx(free.log_evidence_, abs=1.0)


@pytest.mark.slow
def test_directions_have_names_numbers_or_a_list(held, tmp_path):
    table = pd.DataFrame(X, columns=["a", "b"])
    expected = held.predict(X)
    series = pd.Series([-1, 1], ["b", "a"])
    cases = [(table.set_axis([1, 0], axis=1), {1: 1, np.int64(0): -1})]  # names, not places
    cases += [(table, {0: 1, "b": -1}), (X, np.array([1, -1])), (X, [np.int64(1), -1]), (table, series)]
    for data, monotone in cases:
        model = clone(held).set_params(monotone=monotone).fit(data, NOISY)
        np.testing.assert_array_equal(model.predict(data), expected)
    model.save(tmp_path / "model.nc")
    np.testing.assert_array_equal(bp.BayesianSVR.load(tmp_path / "model.nc").predict(table), expected)
    nothing = bp.BayesianSVR(monotone=[0, 0], kernel="rbf", **QUICK)
    assert nothing.fit(X, NOISY)._fit.slopes is None


def test_all_predictions_agree_with_the_mean(held, free):
    new = RNG.uniform(-2, 2, (6, 2))
    mean, deviation = held.predict_f(new)
    drawn = held.sample_y(new, 20_000, random_state=0)
    expected = held.predict_distribution(new)
    np.testing.assert_allclose(drawn.mean(axis=1), expected.mean(), atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=1), expected.std(), rtol=0.05)
    found = bp.effect(held, X, 0, values=15)
    assert (np.diff(found["mean"]) > -1e-3).all() and (np.diff(bp.effect(free, X, 0)["mean"]) < 0).any()
    np.testing.assert_allclose(mean, expected.moments_of_f()[0], rtol=1e-12)
    assert (deviation > 0).all()


@pytest.mark.slow
def test_a_saved_fit_predicts_and_grows_as_before(held, tmp_path):
    held.save(tmp_path / "svr.nc")
    for again in (bp.BayesianSVR.load(tmp_path / "svr.nc"), pickle.loads(pickle.dumps(held))):
        np.testing.assert_allclose(again.predict_quantiles(X, [0.1, 0.9]), held.predict_quantiles(X, [0.1, 0.9]))
        again.add([[0.5, 0.0], [1.5, 0.0]], [1.5, 0.0])  # against the direction
        assert max(fall(again, 0, 1), fall(again, 1, -1)) <= 2e-3
    assert len(held._fit.slopes.X) > 0 and not hasattr(held, "dual_coef_") and not hasattr(held, "support_")


@pytest.mark.slow
def test_a_fit_without_a_fall_is_saved_with_its_directions(tmp_path):
    bp.BayesianSVR(monotone=[1, 0], inference="mean_field", **QUICK).fit(X, X[:, 0]).save(tmp_path / "svr.nc")
    again = bp.BayesianSVR.load(tmp_path / "svr.nc")
    assert len(again._fit.slopes.X) == 0
    np.testing.assert_array_equal(again._fit.slopes.signs, [1.0, 0.0])


@pytest.mark.slow
def test_levels_weights_intervals_and_logs():
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.integers(0, 6, 210).astype(float), rng.uniform(-2, 2, 210)])
    y = np.exp(0.3 * x[:, 0] - 0.8 * (x[:, 0] == 4) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=210))
    assert list(bp.BayesianSVR(**QUICK).fit(x, y).levels_) == [0]
    levels = np.column_stack([np.arange(6.0), np.zeros(6)])
    for data, options in ((y, {"log_targets": True}), (np.stack([y, y + 0.01], axis=1), {"intervals": True})):
        model = bp.BayesianSVR(monotone=[1, 0], inference="mean_field", **options, **QUICK).fit(x, data)
        assert list(model.levels_) == []
        assert (np.diff(model.predict(levels)) > -2e-3 * y.std()).all()
    weighted = bp.BayesianSVR(monotone=[1, 0], inference="mean_field", **QUICK).fit(x, y, 1.0 + (x[:, 0] == 4))
    assert (np.diff(weighted.predict(levels)) > -2e-3 * y.std()).all()


@pytest.mark.slow
def test_a_fall_that_is_left_is_a_warning(monkeypatch):
    monkeypatch.setattr(search, "_ROUNDS", 0)
    with pytest.warns(ConvergenceWarning, match="mean still falls by .* standard deviations where monotone"):
        model = bp.BayesianSVR(monotone=[1, -1], kernel="rbf", **QUICK).fit(X, NOISY)
    assert not model.converged_


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["huber", "absolute"])
def test_all_noises_have_it(noise):
    method = "laplace" if noise == "huber" else "mean_field"
    model = bp.BayesianSVR(noise=noise, monotone=[1, -1], inference=method, **QUICK).fit(X, NOISY)
    assert max(fall(model, 0, 1), fall(model, 1, -1)) <= 2e-3


@pytest.mark.slow
def test_main_effects_and_scales_of_inputs_have_it():
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.lognormal(size=400), rng.uniform(-2, 2, (400, 2))])
    y = np.log1p(x[:, 0]) + 0.4 * np.sin(3 * x[:, 1]) + 0.2 * x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=400)
    model = bp.BayesianSVR(monotone={0: 1}, **QUICK).fit(x, y)
    copies = np.repeat(x[:50], 40, axis=0)
    copies[:, 0] = np.tile(np.linspace(x[:, 0].min(), x[:, 0].max(), 40), 50)
    assert np.diff(model.predict(copies).reshape(50, 40)).min() > -2e-3 * y.std()
    assert model.kernel_ == "main_effects" and model._fit.model.pairs and model._fit.model.warping.columns
