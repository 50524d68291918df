"""Scales of the noise of fits on nearest rows, against exact leave-one-out and simulated data."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.core.losses.noise import widen
from bsvr_pp.inference.prediction import neighbours
from bsvr_pp.inference.prediction.component import fits_on_nearest, mixture_of
from bsvr_pp.inference.prediction.neighbours import (
    NoiseScales,
    choose_neighbours,
    densities_of_rows,
    moments_given,
    nearest_others,
    nearest_rows,
    solved_rows,
)
from bsvr_pp.model.reader import read_model
from tests.helpers import moments_from_neighbours

FACTORS = np.array([0.25, 1.0, 3.0])


def moments_of_rows(problem, point, rows, count):
    return moments_given(problem, point, problem.inputs[rows], nearest_others(problem, point, rows, count))


def simulated(n, scale, seed=0):
    """Inputs, and targets whose noise has a scale that depends on the input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 20, (n, 1))
    return X, np.sin(X[:, 0]) + scale(X[:, 0]) * rng.normal(size=n)


def of(X, y, noise="gaussian", **at):
    problem = read_model(bp.default_model(X, y, kernel="rbf", noise=noise))
    return problem, problem.complete({"amplitude": 1.0, "inverse_lengthscale": 0.5} | at)


def probability_of(factor, problem, point):
    """Mean probability of a factor at all rows."""
    scales = choose_neighbours(problem, point, [32], np.random.default_rng(0))[1]
    scales = scales.of_rows(problem, point, solved_rows(problem, point))
    log_density = scales.near(nearest_rows(problem, point, problem.inputs, 32))
    return scales.at(log_density)[scales.factors == factor].mean()


def two_regions(x):
    return np.where(x < 10, 0.05, 0.8)


def dense(X, y, sample_weight=None, **options):
    return bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0, **options).fit(X, y, sample_weight=sample_weight)


def test_rows_that_learn_scales_have_the_mean_of_many_equal_targets(monkeypatch):
    y = np.where(np.arange(400) % 10 < 6, 0.0, np.random.default_rng(0).gamma(0.5, size=400))
    problem = SimpleNamespace(targets=y)
    used = []

    def learned(problem, point, rows, count, *others):
        used.append(rows)
        return SimpleNamespace(log_density=np.full(rows.size, 0.1 * count), scales=None)

    monkeypatch.setattr(neighbours, "_scales_of", learned)
    choose_neighbours(problem, {}, [16, 32, 64, 128], np.random.default_rng(0))
    assert [rows.size for rows in used] == [400, 152, 58, 22] and np.unique(used[0]).size == 400
    np.testing.assert_allclose([y[rows].mean() for rows in used], y.mean(), rtol=0.15)


def test_densities_of_the_rows_given_the_others_are_exact_for_gaussian_noise():
    X, y = simulated(40, lambda x: 0.2)
    problem, point = of(X, y, C=16.0)
    found = densities_of_rows(problem, point, solved_rows(problem, point), FACTORS)
    K, mean, _ = problem.at(point)
    inverse = np.linalg.inv(K.dense() + np.eye(40) / 16.0)
    residual, variance = (inverse @ (y - mean)) / np.diag(inverse), 1 / np.diag(inverse) - 1 / 16.0
    exact = [norm.logpdf(residual, scale=np.sqrt(variance + factor**2 / 16.0)) for factor in FACTORS]
    np.testing.assert_allclose(found.T, exact, rtol=1e-6)
    scales = NoiseScales(FACTORS, np.ones(3), 0.0, densities=found)
    np.testing.assert_allclose(scales.near(np.array([[0, 3, 7]])), found[[0, 3, 7]].mean(axis=0)[None])


def test_a_row_is_predicted_from_its_nearest_rows_without_itself(monkeypatch):
    X, y = simulated(60, lambda x: 0.2)
    problem, point = of(X, y, noise="soft_insensitive", C=6.0, epsilon=0.1)
    rows = np.array([3, 17, 58])
    found = moments_of_rows(problem, point, rows, 12)
    for i, row in enumerate(rows):
        others = problem.take(np.delete(np.arange(60), row))
        alone = moments_from_neighbours(others, point, X[[row]], 12)
        np.testing.assert_allclose(found[0][i], alone[0][0], atol=3e-3)
        np.testing.assert_allclose(found[1][i], alone[1][0], rtol=1e-2)
    near = nearest_others(problem, point, rows, 12)
    monkeypatch.setattr(neighbours, "_TREE", 7)
    np.testing.assert_array_equal(nearest_others(problem, point, rows, 12), near)


def test_equal_rows_do_not_hide_the_row_itself():
    X, y = np.repeat([[0.0], [1.0]], 30, axis=0), np.tile([0.0, 0.1], 30)
    problem, point = of(X, y, noise="absolute", C=6.0)
    for found in moments_of_rows(problem, point, np.arange(60), 5):
        assert np.isfinite(found).all()


@pytest.mark.parametrize("blocks", [None, 50])
def test_rows_in_small_blocks_have_the_sites_and_cavities_of_these(blocks, monkeypatch):
    """Those of a solve of each, which are parts of any blocks; the prior where a solve does not end."""
    monkeypatch.setattr(neighbours, "_SMALL", 30)
    X, y = simulated(90, lambda x: 0.2)
    problem, point = of(X, y, noise="soft_insensitive", C=6.0, epsilon=0.1)
    if blocks is not None:
        problem = problem.take(np.arange(90), bp.local_blocks(X, blocks))
    found, small = solved_rows(problem, point), []
    for block in range(len(problem.blocks)):
        of_block = np.arange(90)[problem.blocks.rows(block)]
        small += [of_block[rows] for rows in bp.local_blocks(X[of_block], 30)]
    assert sum(map(len, small)) == 90
    assert solved_rows(problem, point) is found
    for rows in small:
        part = problem.take(rows)
        K, mean, noise = part.at(point)
        alone = mean_field(K, part.targets, noise, mean=mean, mismatch=1e-3)
        np.testing.assert_allclose(found.site_precision[rows], alone.site_precision, rtol=1e-6)
        location = alone.dual_coef + alone.site_precision * (alone.mean - mean)
        np.testing.assert_allclose(found.site_location[rows], location, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.cavity_mean[rows], alone.cavity_mean, rtol=1e-6, atol=1e-8)
    monkeypatch.setattr(neighbours, "mean_field", lambda *a, **b: replace(mean_field(*a, **b), converged=False))
    again = solved_rows(problem.take(slice(None)), point)
    assert not again.site_location.any() and not again.site_precision.any()
    np.testing.assert_allclose(
        again.cavity_variance, problem.at(point)[0].diag if blocks is None else again.cavity_variance
    )


@pytest.mark.slow_cases("4.0")
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_noise_of_the_model_and_noise_that_is_four_times_wider_are_found(factor):
    X, y = simulated(600, lambda x: 0.2 * factor)
    problem, point = of(X, y, C=25.0)
    assert probability_of(factor, problem, point) > 0.9


def test_probabilities_of_scales():
    scales = NoiseScales(FACTORS, np.array([0.2, 0.5, 0.3]), 2.0)
    found = scales.at(np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, -2.0]]))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_allclose(found[:, 0], scales.weights)
    np.testing.assert_allclose(
        found[:, 1], np.array([0.2 * np.exp(-2), 0.5, 0.3 * np.exp(-4)]) / (0.2 * np.exp(-2) + 0.5 + 0.3 * np.exp(-4))
    )
    np.testing.assert_array_equal(scales.at(np.full((1, 3), np.nan))[:, 0], scales.weights)
    same = NoiseScales.from_record(scales.record())
    np.testing.assert_array_equal(same.weights, scales.weights)
    assert same.shared == 2.0


@pytest.mark.slow
def test_predictions_mix_the_scales_at_each_input():
    X, y = simulated(300, two_regions)
    model = bp.default_model(X, y, kernel="rbf", noise="absolute")
    at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 3.0}
    problem = read_model(model)
    point, new = problem.complete(at), np.array([[4.0], [16.0]])
    scales = choose_neighbours(problem, point, [20], np.random.default_rng(0))[1]
    scales = scales.of_rows(problem, point, solved_rows(problem, point))
    found = mixture_of([fits_on_nearest(problem, point, 20, scales)], new, problem.noise_at)[0]
    mean, variance = moments_from_neighbours(problem, point, new, 20)
    share, noise = scales.at(scales.near(nearest_rows(problem, point, new, 20))), problem.noise_at(point)
    each = [np.exp(widen(noise, factor).tilted(mean, variance, np.zeros(2))[0]) for factor in scales.factors]
    np.testing.assert_allclose(found.pdf(np.zeros(2)), np.sum(share * np.array(each), axis=0), rtol=1e-9)
    spread = share.T @ scales.factors**2 * noise.variance
    np.testing.assert_allclose(found.var(), variance + spread, rtol=1e-9)


def test_a_dense_fit_has_scales_where_one_noise_is_not_enough():
    svr = dense(*simulated(300, two_regions))
    new, target = simulated(1000, two_regions, seed=1)
    left, held, width = new[:, 0] < 10, {}, {}
    for used in (False, True):
        interval = svr.set_params(noise_scales=used).predict_interval(new, coverage=0.9)
        inside = (target >= interval[:, 0]) & (target <= interval[:, 1])
        width[used], held[used] = np.diff(interval)[left].mean(), inside[~left].mean()
    assert width[True] < 0.6 * width[False]
    assert held[False] < 0.75 and 0.83 < held[True] < 0.97
    again = bp.BayesianSVR.from_result(svr.result_)
    np.testing.assert_allclose(again.predict_interval(new[:9]), svr.predict_interval(new[:9]), rtol=1e-6)
    np.testing.assert_allclose(svr.predict(new), again.set_params(noise_scales=False).predict(new), rtol=1e-9)


@pytest.mark.slow_cases("options1")
@pytest.mark.parametrize("options", [{"inference": "laplace"}, {"noise_scales": False}])
def test_other_dense_fits_have_one_noise(options):
    X, y = simulated(210, two_regions)
    assert not dense(X, y, **options).noise_scales_.several


@pytest.mark.slow
def test_few_rows_and_noise_of_the_model_have_one_noise():
    X, y = simulated(199, two_regions)
    assert not dense(X, y).noise_scales_.several
    X, y = simulated(300, lambda x: 0.2)
    assert not dense(X, y).noise_scales_.several


@pytest.mark.slow
def test_repeated_rows_count_as_often_as_they_are_there():
    X, y = simulated(250, two_regions)
    weight = np.random.default_rng(0).integers(1, 4, 250)
    once = dense(X, y, outliers="keep").noise_scales_
    found = [
        dense(X, y, outliers="keep", sample_weight=weight).noise_scales_,
        dense(np.repeat(X, weight, axis=0), np.repeat(y, weight), outliers="keep").noise_scales_,
    ]
    np.testing.assert_allclose(found[0].weights, found[1].weights, atol=1e-3)
    assert found[0].factors.size != once.factors.size or np.abs(found[0].weights - once.weights).max() > 1e-3


@pytest.mark.slow_cases("0.0-64")
@pytest.mark.parametrize(("noise", "chosen"), [(0.0, 64), (0.5, 16)])
def test_a_smooth_target_without_noise_takes_more_rows(noise, chosen):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 3))
    f = np.sin(X).sum(axis=1)
    problem, point = of(X, f + noise * rng.normal(size=600), C=1.0 / max(noise, 0.01) ** 2)
    assert choose_neighbours(problem, point, [16, 32, 64], np.random.default_rng(0))[0] == chosen
    new = rng.uniform(-2, 2, (100, 3))
    few, many = (moments_from_neighbours(problem, point, new, count)[0] for count in (16, 64))
    error, less = (np.sqrt(np.mean((found - np.sin(new).sum(axis=1)) ** 2)) for found in (few, many))
    assert less < 0.5 * error if noise == 0.0 else error < 0.5 * noise
