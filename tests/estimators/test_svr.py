"""The estimator: agreement with `bp.fit`, invariances, and what it saves."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bsvr_pp as bp
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.priors import location_and_scale
from tests.helpers import small_stages


def data(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.array([1.0, 30.0])[:d] + 5.0
    return X, 100 + 20 * np.sin(X[:, 0]) + 2 * rng.laplace(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return bp.BayesianSVR(inference="laplace", restarts=1, random_state=0).fit(X, y), X, y


def test_it_is_the_default_model_on_standardised_data(fitted):
    machine, X, y = fitted
    location, unit = location_and_scale(y)
    assert (machine.location_, machine.unit_) == (location, unit)
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - location) / unit
    model, options = bp.default_model(Z, t), {"kernel": "rational_quadratic", "restarts": 1, "random_state": 0}
    machine = bp.BayesianSVR(inference="laplace", **options).fit(X, y)
    smooth = bp.BayesianSVR(inference="mean_field", **options).fit(X, y)
    assert smooth.result_.attrs["inference"] == "mean field"
    result = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)
    assert result.attrs["log_evidence"] - len(y) * np.log(unit) == pytest.approx(smooth.log_evidence_, abs=0.01)
    at = {name: machine.result_["posterior"][name].values[0, 0] for name in machine._fit.fitted.points[0]}
    there = bp.fit(bp.Laplace(), model, hyperparameters=at, progressbar=False)
    seen = bp.predict(there, Z[:5], model=model, quantiles=[0.1, 0.9])
    mean, std = machine.predict(X[:5], return_std=True)
    np.testing.assert_allclose(mean, location + unit * seen["y_mean"], rtol=1e-9)
    np.testing.assert_allclose(std, unit * np.sqrt(seen["y_variance"]), rtol=1e-7)
    np.testing.assert_allclose(
        machine.predict_interval(X[:5], 0.8), (location + unit * seen["y_quantile"].values).T, rtol=1e-9
    )


def test_attributes_are_those_of_the_support_vector_machine(fitted):
    machine, X, y = fitted
    residual = y - machine.predict_f(X)[0]
    inner, outer = (1 - machine.beta_) * machine.epsilon_, (1 + machine.beta_) * machine.epsilon_
    a = machine.dual_coef_
    assert machine.n_support_ == machine.support_.size == np.count_nonzero(a)
    assert np.abs(a).max() <= machine.C_ * (1 + 1e-9)
    assert np.abs(residual[a == 0]).max() <= inner + 1e-6
    np.testing.assert_allclose(a[residual > outer + 1e-6], machine.C_, rtol=1e-6)
    on_rim = (a != 0) & (np.abs(a) < machine.C_ * (1 - 1e-6))
    slope = machine.C_ * (np.abs(residual) - inner) / (2 * machine.beta_ * machine.epsilon_) * np.sign(residual)
    np.testing.assert_allclose(a[on_rim], slope[on_rim], rtol=1e-4)
    np.testing.assert_allclose(machine.relevance_, (machine.lengthscale_ / X.std(axis=0)) ** -2)
    assert machine.relevance_[0] > 10 * machine.relevance_[1]
    noise = soft_insensitive(machine.C_, machine.epsilon_, machine.beta_)
    assert machine.noise_variance_ == pytest.approx(noise.variance)


@pytest.mark.slow_cases("mean_field")
@pytest.mark.parametrize("inference", ["laplace", "mean_field"])
def test_units_do_not_matter(inference):
    X, y = data(40)
    options = {"inference": inference, "restarts": 1, "random_state": 0}
    one = bp.BayesianSVR(**options).fit(X, y)
    other = bp.BayesianSVR(**options).fit(1e-3 * X - 7, 1e4 * y + 3)
    at = X[:6] + 0.1
    for a, b in zip(one.predict(at, return_std=True), other.predict(1e-3 * at - 7, return_std=True), strict=True):
        np.testing.assert_allclose(1e4 * a + (3 if a is not b and a.mean() > 50 else 0), b, rtol=1e-5)
    assert other.log_evidence_ == pytest.approx(one.log_evidence_ - 40 * np.log(1e4), abs=1e-4)
    assert other.epsilon_ == pytest.approx(1e4 * one.epsilon_, rel=1e-4)
    assert pytest.approx(1e4 * other.C_, rel=1e-4) == one.C_


@pytest.mark.slow_cases("mean_field-absolute", "laplace-huber", "mean_field-pinball")
@pytest.mark.parametrize(
    ("inference", "noise"),
    [*(("mean_field", noise) for noise in ("soft_insensitive", "absolute", "pinball")), ("laplace", "huber")],
)
def test_intervals_of_every_noise_hold_new_targets(noise, inference):
    X, y = data(250, 1)
    machine = bp.BayesianSVR(noise, inference=inference, restarts=1, random_state=0).fit(X[:100], y[:100])
    low, high = machine.predict_interval(X[100:], 0.8).T
    assert 0.68 < np.mean((low < y[100:]) & (y[100:] < high)) < 0.92
    assert machine.score(X[100:], y[100:]) > 0.8
    assert hasattr(machine, "epsilon_") == (noise in ("soft_insensitive", "huber"))


@pytest.mark.slow
def test_sampled_hyperparameters_average_predictions(tmp_path):
    X, y = data(40, 1)
    method = bp.NUTS(latent=bp.MeanField(), draws=150, tune=300, chains=2)
    machine = bp.BayesianSVR(inference=method, random_state=0).fit(X, y)
    point = bp.BayesianSVR(inference="mean_field", random_state=0).fit(X, y)
    mean, std = machine.predict(X, return_std=True)
    fixed, narrower = point.predict(X, return_std=True)
    assert np.abs(mean - fixed).max() < std.max() and std.mean() > 0.95 * narrower.mean()
    assert np.isnan(machine.log_evidence_) and machine.result_["posterior"].sizes["chain"] == 2
    machine.result_.to_netcdf(tmp_path / "machine.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "machine.nc") as tree:
        again = bp.BayesianSVR.from_result(tree.load())
    np.testing.assert_allclose(again.predict(X), mean)
    assert again.inference == method
    drawn = machine.sample_y(X[:2], 2000)
    assert np.abs(drawn.mean(axis=1) - mean[:2]).max() < 0.2 * std.max()


@pytest.mark.slow
def test_it_works_in_pipelines_searches_and_processes():
    X, y = data(40)
    machine = bp.BayesianSVR(restarts=1, random_state=0)
    alone = machine.fit(X, y).predict(X)
    np.testing.assert_allclose(make_pipeline(StandardScaler(), clone(machine)).fit(X, y).predict(X), alone, rtol=1e-6)
    search = GridSearchCV(machine, {"noise": ["huber", "absolute"]}, cv=2).fit(X, y)
    assert search.best_params_["noise"] in ("huber", "absolute")
    assert cross_val_score(machine, X, y, cv=2, n_jobs=2).min() > 0.2


@pytest.mark.slow
def test_a_kernel_may_be_a_function():
    X, y = data(40, 1)

    def periodic(Z):
        period = pm.LogNormal("period", np.log(2 * np.pi / X.std()), 0.1)
        return pm.gp.cov.Periodic(Z.shape[1], period=period, ls=pm.LogNormal("lengthscale", 0.0, 0.5))

    machine = bp.BayesianSVR(kernel=periodic, inference="mean_field", restarts=2, random_state=0).fit(X, y)
    assert machine.score(X, y) > 0.85
    assert machine.result_["posterior"]["period"].values[0, 0] * X.std() == pytest.approx(2 * np.pi, rel=0.05)
    assert not hasattr(machine, "lengthscale_")
    with pytest.raises(ValueError, match="kernel function, which is not saved"):
        bp.BayesianSVR.from_result(machine.result_)
    with pytest.raises(ValueError, match=r"x\.nc cannot have the kernel, a function: pickle the estimator instead"):
        machine.save("x.nc")


@pytest.mark.slow
def test_concurrent_predictions_are_those_of_one_thread():
    """Machines of one structure and of different data share compiled functions, and no thread waits for another."""
    sets = [data(40, seed=seed) for seed in range(3)]
    machines = [bp.BayesianSVR(restarts=1, random_state=0).fit(X, y) for X, y in sets]
    at = np.random.default_rng(9).normal(size=(30, machines[0].n_features_in_))
    alone = [machine.predict(at, return_std=True) for machine in machines]

    def same(i):
        found = [machines[i % 3].predict(at, return_std=True) for _ in range(20)]
        return all(np.array_equal(mean, alone[i % 3][0]) and np.array_equal(sd, alone[i % 3][1]) for mean, sd in found)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(same, range(6)))


def test_fits_of_one_structure_compile_once(monkeypatch):
    first, second = (data(n, 1) for n in (40, 55))
    bp.BayesianSVR("huber", restarts=1, random_state=0).fit(*first).predict(first[0])
    compiled = []
    original = pytensor.function
    monkeypatch.setattr(pytensor, "function", lambda *a, **k: compiled.append(1) or original(*a, **k))
    machine = bp.BayesianSVR("huber", restarts=1, random_state=0).fit(*second)
    machine.predict(second[0])
    assert not compiled
    assert machine.score(*second) > 0.5


@pytest.mark.slow
def test_the_kernel_has_main_effects_from_200_rows(tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(203, 2))
    y = inputs[:, 0] + inputs[:, 1] ** 2 + 0.1 * rng.normal(size=203)
    y[:5] += 1e3  # 198 rows are left
    fast = {"inference": "mean_field", "warping": False, "restarts": 1, "random_state": 0}
    with pytest.warns(UserWarning, match="set aside"):
        svr = bp.BayesianSVR(**fast).fit(inputs, y)
    assert svr.kernel_ == "main_effects"
    svr.save(tmp_path / "model.nc")
    loaded = bp.BayesianSVR.load(tmp_path / "model.nc")
    assert loaded.kernel_ == "main_effects"
    np.testing.assert_allclose(loaded.predict(inputs[:5]), svr.predict(inputs[:5]), rtol=1e-8)
    with small_stages():
        assert bp.BayesianSVR(blocks=100, **fast).fit(inputs, inputs[:, 0]).kernel_ == "main_effects"
    few = slice(5, 45)
    assert bp.BayesianSVR(**fast).fit(inputs[few], y[few]).kernel_ == "rational_quadratic"
    named = bp.BayesianSVR(kernel="main_effects", **fast).fit(inputs[few], y[few])
    assert named.kernel_ == "main_effects"
    own = bp.BayesianSVR(kernel=lambda X: pm.gp.cov.ExpQuad(2, ls=1.0), **fast).fit(inputs[few], y[few])
    assert own.kernel_ == "function"


@pytest.mark.slow_cases("options1", "options0")
@pytest.mark.parametrize("options", [{}, {"log_targets": True}, {"inference": "mean_field"}])
def test_parts_of_the_uncertainty(options):
    """Truth: the moments of the members, which have the same noise scales."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (40, 1))
    y = np.exp(np.sin(X[:, 0]) + 0.2 * rng.normal(size=40))
    svr = bp.BayesianSVR(restarts=1, random_state=0, **options).fit(X, y)
    new = np.array([[0.0], [2.0], [8.0]])
    found = svr.predict_uncertainty(new)
    parts = found[["function", "hyperparameters", "noise"]]
    np.testing.assert_allclose((parts**2).sum(axis=1), found["total"] ** 2)
    components = list(svr._fit.components())
    weights = np.array([each.weight for each in components]) / sum(each.weight for each in components)
    means, variances, _ = zip(*(each.moments((new - svr.mean_) / svr.scale_) for each in components), strict=True)
    centre = weights @ np.array(means)
    np.testing.assert_allclose(found["function"], svr.unit_ * np.sqrt(weights @ np.array(variances)))
    between = np.sqrt(weights @ (np.array(means) - centre) ** 2)
    np.testing.assert_allclose(found["hyperparameters"], svr.unit_ * between, atol=1e-7)
    assert (len(components) > 1) == ("inference" not in options) == bool((found["hyperparameters"] > 0).all())
    if "log_targets" not in options:
        np.testing.assert_allclose(found["total"], svr.predict(new, return_std=True)[1])
        np.testing.assert_allclose(np.hypot(found["function"], found["hyperparameters"]), svr.predict_f(new)[1])
    assert found["function"][2] > 2 * found["function"][0]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "periods"), [(100, 10), (150, 20)])
def test_a_function_that_oscillates_often_is_found(n, periods):
    """From half a standard deviation a search saw noise alone, and a half-normal prior forbade such lengthscales."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0.0, periods, (n, 1)), np.linspace(0.0, periods, 300)[:, None]
    y = np.sin(2.0 * np.pi * X[:, 0]) + 0.1 * rng.normal(size=n)
    svr = bp.BayesianSVR(inference="mean_field", random_state=0).fit(X, y)
    assert np.std(svr.predict(new) - np.sin(2.0 * np.pi * new[:, 0])) < 0.25
    labels = np.where(y > 0.0, "up", "down")
    svc = bp.BayesianSVC(random_state=0).fit(X, labels)
    assert np.mean((svc.predict(new) == "up") == (np.sin(2.0 * np.pi * new[:, 0]) > 0.0)) > 0.85


@pytest.mark.slow_cases("300-5-25-False", "150-2-10-False", "100-5-4-False", "150-5-10-False", "150-2-10-True")
@pytest.mark.parametrize(
    ("n", "d", "periods", "words"),
    [(100, 5, 4, False), (150, 5, 10, False), (300, 5, 25, False), (150, 2, 10, False), (150, 2, 10, True)],
)
def test_a_wave_along_one_of_several_inputs_is_found(n, d, periods, words):
    """The search saw noise alone, and the smooth effects of other inputs."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(size=(n, d)), rng.uniform(size=(300, d))

    def f(X):
        return np.sin(2.0 * np.pi * periods * X[:, 0]) + X[:, 1] + 0.5 * X[:, d - 1] ** 2

    def table(X):  # indicators of words share a lengthscale
        return pd.DataFrame(X).add_prefix("x").assign(town=np.array(["a", "b", "c"])[np.arange(len(X)) % 3])

    of = table if words else np.asarray
    svr = bp.BayesianSVR(inference="mean_field", random_state=0).fit(of(X), f(X) + 0.2 * rng.normal(size=n))
    assert np.std(svr.predict(of(new)) - f(new)) < 0.35  # a constant has 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("error::bsvr_pp.ConvergenceWarning")
def test_targets_without_noise_need_no_warning():
    """Rounding errors end the sweeps at a mismatch of 1e-5, far below what a prediction shows."""
    Z = np.random.default_rng(150).normal(size=(450, 5))
    y = np.sin(Z[:, 0]) * Z[:, 1]
    svr = bp.BayesianSVR(inference="mean_field", random_state=0).fit(Z[:150], y[:150])
    assert svr.converged_ and np.median(np.abs(svr.predict(Z[150:]) - y[150:])) < 1e-3
