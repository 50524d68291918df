"""The machines of the papers' experiments against closed forms, PyMC and scikit-learn, and their data."""

import censoring
import chu2004
import chu2004_benchmarks
import chu2004_laser
import chu2004_table_1
import gao2002
import linweng2004
import mesquita2019
import mesquita2019_hyperpriors
import numpy as np
import ordinal
import pandas as pd
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.svm import SVR

import bsvr_pp as bp
from bsvr_pp.datasets import data_folder
from bsvr_pp.inference.protocol import Search
from bsvr_pp.losses import epsilon_insensitive, soft_insensitive

pytestmark = pytest.mark.slow  # experiments of the papers

with_data = pytest.mark.skipif(
    not (data_folder() / "pyrim.csv").is_file(), reason="the papers' data sets are not at hand"
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 2))
    return X, np.sin(3 * X[:, 0]) + 0.2 * rng.laplace(size=40)


# ---- Lin & Weng 2004 -------------------------------------------------------------------------------------------------


def test_the_evidence_of_bsvr1_is_12(data):
    X, y = data
    C, gamma, epsilon = 4.0, 0.5, 0.1
    machine = linweng2004.BSVR1(C, gamma, epsilon).fit(X, y)
    K, a = rbf_kernel(X, gamma=gamma), machine.mode_.dual_coef
    primal = 0.5 * a @ K @ a + C * np.maximum(np.abs(y - K @ a) - epsilon, 0).sum()
    free = (np.abs(a) > 1e-8) & (np.abs(a) < C - 1e-8)
    assert 5 < free.sum() < 40
    sign, log_determinant = np.linalg.slogdet(2 * np.pi * K[np.ix_(free, free)])
    at = np.abs(a[free])
    expected = (
        -primal - 0.5 * log_determinant + np.log(C / (at * (C - at))).sum() + 40 * np.log(C / (2 * (epsilon * C + 1)))
    )
    assert sign == 1 and machine.log_evidence_ == pytest.approx(expected, rel=1e-8)


def test_the_interval_of_bsvr1_is_the_convolution_of_17(data):
    X, y = data
    machine = linweng2004.BSVR1(4.0, 0.5, 0.1).fit(X, y)
    new = np.array([[1.5, -1.5]])
    K, free = rbf_kernel(X, gamma=0.5), machine.free_
    cross = rbf_kernel(new, X[free], gamma=0.5)[0]
    sd = np.sqrt(1 - cross @ np.linalg.solve(K[np.ix_(free, free)], cross))  # (16)
    noise, f = epsilon_insensitive(4.0, 0.1), machine.predict(new)[0]
    distance = 0.7
    below = integrate.quad(lambda v: noise.cdf(distance - v) * stats.norm.pdf(v, scale=sd), -9 * sd, 9 * sd)[0]
    coverage = 2 * below - 1
    assert machine.covers(new, np.array([f + distance]), coverage + 1e-6).all()
    assert not machine.covers(new, np.array([f + distance]), coverage - 1e-6).any()
    assert machine.covers(new, np.array([f - distance]), coverage + 1e-6).all()


def test_bsvr1_without_free_support_vectors(data):
    """All targets inside the tube, as on a corner of the grid: what is left is the noise and the prior."""
    X, y = data
    machine = linweng2004.BSVR1(0.5, 0.5, 4.0).fit(X, y)
    assert not machine.free_.any()
    assert machine.log_evidence_ == pytest.approx(40 * np.log(0.5 / (2 * (4.0 * 0.5 + 1))))
    noise, half = epsilon_insensitive(0.5, 4.0), 3.0
    below = integrate.quad(lambda v: noise.cdf(half - v) * stats.norm.pdf(v), -9, 9)[0]
    for coverage, inside in ((2 * below - 1 + 1e-6, True), (2 * below - 1 - 1e-6, False)):
        assert machine.covers(X[:1], np.array([half]), coverage).item() == inside


@with_data
def test_the_problems_have_the_sizes_of_table_1():
    sizes = {"pyrim": 74, "triazines": 186, "bodyfat": 252, "mpg": 392, "housing": 506}
    features = {"bodyfat": 14, "mpg": 7, "housing": 13, "add10": 10, "cpusmall": 12, "space_ga": 6, "abalone": 8}
    for name in linweng2004.SETS:
        X, y = linweng2004.problem(name, 0)
        assert len(y) == sizes.get(name, 1000)
        assert X.shape[1] == features.get(name, X.shape[1])
        assert X.min() == -1 and X.max() == 1
        assert (np.abs(y).max() == 1) == (name in linweng2004.SCALED)


@with_data
def test_the_grid_is_cross_validated_as_scikit_learn_does():
    found = linweng2004.cross_validate("pyrim", 0, 1, 0.25, [2.0, 8.0], [0.125])
    X, y, _, _ = linweng2004.fold_of("pyrim", 0, 1)
    folds = KFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(SVR(C=8.0, gamma=0.25, epsilon=0.125), X, y, cv=folds)
    assert found.shape == (2, 1) and found[1, 0] == pytest.approx(np.mean((predicted - y) ** 2), rel=1e-3)


# ---- Chu, Keerthi & Ong 2004 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["laplace", "mean field"])
def test_the_machine_on_arrays_is_the_pymc_model(data, method):
    X, y = data
    machine = chu2004.maximize(X, y, ard=True, method=method)
    point = {"lengthscale": machine.relevance**-0.5, "C": machine.C, "epsilon": machine.epsilon, "bias": machine.bias}
    model = chu2004.model(X, y)
    same = bp.Laplace() if method == "laplace" else bp.MeanField()
    result = bp.fit(same, model, hyperparameters=point, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(machine.posterior.log_evidence, abs=1e-6)
    prediction = bp.predict(result, X[:5] + 0.1, model=model)
    mean, variance = machine.predict(X[:5] + 0.1)
    np.testing.assert_allclose(prediction["f_mean"], mean, atol=1e-6)
    np.testing.assert_allclose(prediction["f_variance"], variance, atol=1e-6)
    low, high = (prediction["y_quantile"].sel(quantile=q).values for q in (0.025, 0.975))
    assert machine.covers(X[:5] + 0.1, high - 1e-6, 0.95).all() and machine.covers(X[:5] + 0.1, low + 1e-6, 0.95).all()
    assert not machine.covers(X[:5] + 0.1, high + 1e-6, 0.95).any()


def test_the_optimum_is_one(monkeypatch):
    monkeypatch.setattr(bp.MeanField, "search", Search(tolerance=1e-5))
    X, _, y, _, _, _ = chu2004_table_1.draw(60, 0)
    best = chu2004.maximize(X, y, method="mean field")
    found = bp.fit(
        bp.MeanField(), chu2004.model(X, y, ard=False), objective="evidence", random_seed=0, progressbar=False
    )
    assert best.posterior.log_evidence == pytest.approx(found.attrs["log_evidence"], abs=1e-3)


def test_both_evidences_stand_beside_annealing():
    row = chu2004_table_1.anneal(50, 0, 0.3)
    assert max(row["laplace: error of annealing"], row["mean field: error of annealing"]) < 0.02
    assert abs(row["mean field - annealed"]) < 0.08 < abs(row["laplace - annealed"]) < 3


def test_the_hyperparameters_are_sampled():
    """Around the truth of the data, C = 10 and ε = 0.1, as the optimum of the evidence is."""
    X, X_test, y, y_test, _, test_residual = chu2004_table_1.draw(100, 1)
    found = chu2004.sampled(X, y, X_test, y_test, draws=150)
    assert found["R-hat"] < 1.1
    assert 6 < found["C"] < 16 and 0.01 < found["ε"] < 0.2
    assert found["σ_n²"] == pytest.approx(soft_insensitive(10.0, 0.1, 0.3).variance, rel=0.3)
    assert found["inside 95 %"] == pytest.approx(0.95, abs=0.03)
    assert found["ASE"] - np.mean(test_residual**2) < 0.008


def test_gaussian_noise_makes_it_a_gaussian_process(data):
    X, y = data
    machine = chu2004.maximize(X, y, noise="gaussian")
    kernel = ConstantKernel(machine.signal) * RBF(machine.relevance[0] ** -0.5) + ConstantKernel(machine.bias)
    kernel += WhiteKernel(1 / machine.C + chu2004.JITTER * machine.signal)
    process = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    assert machine.posterior.log_evidence == pytest.approx(process.log_marginal_likelihood_value_, abs=1e-6)
    free = kernel.clone_with_theta(kernel.theta)
    for change in (-0.05, 0.05):
        theta = free.theta.copy()
        theta[[1, 3]] += change  # log length scale and log noise variance
        assert process.log_marginal_likelihood(theta) < process.log_marginal_likelihood_value_


@with_data
def test_the_laser_is_predicted_from_the_eight_values_before():
    X, y, X_test, y_test, (centre, scale) = chu2004_laser.windows()
    assert X.shape == (992, 8) and X_test.shape == (100, 8)
    series = np.concatenate([X[0], y, y_test])
    assert (series.size, series[:1000].mean(), series[:1000].std()) == (1100, pytest.approx(0), pytest.approx(1))
    np.testing.assert_array_equal(X[1:, -1], y[:-1])
    np.testing.assert_array_equal(X_test[0, -1], y[-1])
    assert centre + scale * series[0] == pytest.approx(86)  # the first value of series A


@with_data
def test_benchmarks_are_split_and_normalised_as_the_paper_does():
    X, y, X_test, y_test = chu2004_benchmarks.split("Housing", 0, 481)
    assert (X.shape, X_test.shape) == ((481, 13), (25, 13))
    np.testing.assert_allclose([X.mean(axis=0), X.std(axis=0)], [np.zeros(13), np.ones(13)], atol=1e-12)
    assert y.mean() > 20  # targets raw
    X, y, X_test, y_test = chu2004_benchmarks.split("Abalone", 0, 3000)
    assert (X.shape, X_test.shape) == ((3000, 10), (1177, 10))
    assert np.concatenate([y, y_test]).std() == pytest.approx(1)


def test_the_paired_test_takes_the_same_splits():
    rng = np.random.default_rng(0)
    frames = {}
    for name in chu2004_benchmarks.SETS:
        common = rng.uniform(5, 15, 10)
        for method, gain in (("SVR", 0.0), ("BSVR", 1.0)):
            error = common - gain + 0.1 * rng.standard_normal(10)
            frames[name, method] = pd.DataFrame({"ASE": error, "AAE": np.sqrt(error), "seconds": 360.0})
    frame = chu2004_benchmarks.comparison(frames, "SVR", "BSVR", chu2004_benchmarks.TABLE_VI, "VI", "").frame
    assert (frame["p, ASE"] < 1e-4).all()  # unpaired it would be about 0.5
    assert frame.loc["Housing", "SVR hours"] == 1.0 and frame.loc["Computer", "BSVR ASE paper"] == 17.59


# ---- Gao, Gunn & Harris 2002; Mesquita et al. 2019 -------------------------------------------------------------------


def test_the_printed_iteration_of_gao_2002_ends_where_ours_does(monkeypatch):
    monkeypatch.setattr(gao2002, "N", 12)
    found = gao2002.printed_iteration(0, 0.05)
    assert found["converged"] and found["largest difference of f"] < 1e-4
    assert found["largest relative difference of Σ"] < 1e-3
    assert found["sweeps of w"] > found["sweeps of ours"]


@with_data
def test_the_network_tends_to_least_squares_svr():
    rows = mesquita2019.distances("Boston Housing")
    distance = np.array([row["distance"] for row in rows])
    assert (np.diff(distance) < 0).all() and distance[-1] < 1e-4 * distance[0]
    assert rows[0]["ARSE"] == pytest.approx(0.045, rel=0.1)  # where the axis of Fig. 2 ends


def test_bands_rise_at_the_edge_and_fall_back_to_the_bias():
    found = mesquita2019.bands(0, 200)
    outside = np.abs(found["x"]) - 2 * np.pi
    inside, edge, far = (found["sd"][w].mean() for w in (outside < -0.5, (outside > 0) & (outside < 1), outside > 2.8))
    assert edge > 1.2 * inside and edge > 2 * far
    assert far == pytest.approx(found["sd of b"], rel=0.02)


def test_the_network_with_its_weights_integrated_out():
    """Against Gaussian integrals over the flat α, and quadrature over b."""
    rng = np.random.default_rng(0)
    X, gamma, epsilon, sigma = rng.normal(size=(4, 1)), 1.3, 0.4, 0.7
    psi = np.ones((5, 5))
    psi[0, 0] = 0.0
    psi[1:, 1:] = np.exp(-((X - X.T) ** 2)) + np.eye(4) / gamma
    z = np.concatenate([[0.0], rng.normal(size=4)])
    rest, gram = psi[:, 1:], psi[:, 1:].T @ psi[:, 1:]

    def density(b):
        r = z - psi[:, 0] * b
        misfit = (r @ r - r @ rest @ np.linalg.solve(gram, rest.T @ r)) / sigma**2
        flat = (2 * np.pi * sigma**2) ** -0.5 / np.sqrt(np.linalg.det(gram))
        return flat * np.exp(-0.5 * misfit) * stats.norm.pdf(b, scale=epsilon**-0.5)

    value = mesquita2019_hyperpriors.log_marginal(pt.constant(psi), z, epsilon, sigma).eval(mode="FAST_COMPILE")
    assert value == pytest.approx(np.log(integrate.quad(density, -20, 20, epsabs=0, limit=200)[0]), rel=1e-9)


def test_targets_hardly_speak_about_the_hyperparameters():
    """Two sets of targets give the same density of γ, ε and σ up to a constant."""
    X = np.linspace(-5, 5, 15)[:, None]
    models = [mesquita2019_hyperpriors.network(X, y) for y in (np.sinc(X[:, 0]), np.cos(20 * X[:, 0]))]
    densities = [model.compile_logp(mode="FAST_COMPILE") for model in models]
    points = [{"gamma_log__": g, "epsilon_log__": -2.0, "sigma_log__": 0.0} for g in (-1.0, 0.0, 1.0)]
    first, second = (np.diff([float(density(point)) for point in points]) for density in densities)
    np.testing.assert_allclose(first, second, atol=0.5)
    assert first.min() > 3.0  # and it rises with γ, against its prior


# ---- Censored targets and ordered classes ----------------------------------------------------------------------------


def test_the_share_of_censored_targets_and_what_is_known():
    X, ends, X_new, y_new = censoring.draw(3)
    assert np.isinf(ends[:, 1]).mean() == 0.4 and np.isfinite(ends[:, 0]).all()
    exact = np.isfinite(ends[:, 1])
    np.testing.assert_array_equal(ends[exact, 0], ends[exact, 1])
    assert X.shape == (80, 1) and np.std(y_new - np.sin(X_new[:, 0])) == pytest.approx(0.2, abs=0.03)


def test_intervals_recover_the_function_where_limits_do_not():
    found = {way: censoring.fit(0, way) for way in ("intervals", "as exact")}
    assert found["intervals"]["error"] < 0.5 * found["as exact"]["error"]


def test_bins_have_equal_lengths_and_wrong_labels_their_share():
    y = np.linspace(2.0, 4.0, 1000)
    np.testing.assert_array_equal(np.bincount(ordinal.binned(y, 5)), 200)
    assert ordinal.binned(y, 10).max() == 9
    classes = np.arange(200) % 5
    changed = ordinal.corrupted(classes, 0.1, 5, np.random.default_rng(0))
    assert (changed != classes).sum() == 20 and set(changed) == set(range(5))


@with_data
def test_one_split_of_ordered_classes():
    assert {name: len(ordinal.split(name, 5, 0.1, 0)[1]) for name in ordinal.SETS} == {
        name: size for name, (_, size, _) in ordinal.SETS.items()
    }
    clean, wrong = (ordinal.split("Pyrimidines", 5, share, 0) for share in (0.0, 0.1))
    np.testing.assert_array_equal(clean[3], wrong[3])
    assert (clean[1] != wrong[1]).sum() == 5
    found = ordinal.fit("Pyrimidines", 5, 0.1, 0, "Soft insensitive")
    assert 0 <= found["wrong"] <= 1 and found["wrong"] <= found["MAE"] and np.isfinite(found["log loss"])
