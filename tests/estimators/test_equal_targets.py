"""Targets of which a third or more have one value: `predict` is the mean, and no row is set aside."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid

import bsvr_pp as bp
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from bsvr_pp.model.priors import mostly_equal
from tests.helpers import small_stages

FAST = {"kernel": "rbf", "restarts": 1, "random_state": 0}


def data(share, n=150, seed=0):
    """Zeros with a probability, and positive targets that depend on the inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.where(rng.random(n) > share, np.exp(0.5 * X[:, 0] + 0.3 * rng.normal(size=n)), 0.0)


def fitted(X, y, **options):
    """The machine, and whether it warned of equal targets."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        machine = bp.BayesianSVR(**FAST | options).fit(X, y)
    return machine, any("a third of the targets or more" in str(each.message) for each in caught)


def mean_by_quadrature(found):
    """∫ y p(y) dy, on a grid that is dense where a narrow component is."""
    scale = found.unit / 16
    t = np.linspace(-9.0, 9.0, 4001)
    y = found.location + scale * np.sinh(t)
    density = found.pdf(y[:, None]) * (scale * np.cosh(t))[:, None]
    return trapezoid(y[:, None] * density, t, axis=0) / trapezoid(density, t, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_predictions_have_the_mean_of_new_targets(share):
    X, y = data(share)
    machine, warned = fitted(X, y)
    X_new, y_new = data(share, 600, seed=1)
    assert machine.predict(X).mean() == pytest.approx(y.mean(), abs=0.1 * y.std())
    assert machine.predict(X_new).mean() == pytest.approx(y_new.mean(), abs=0.2 * y_new.std())
    low, high = machine.predict_interval(X_new, 0.9).T
    assert np.mean((low <= y_new) & (y_new <= high)) >= 0.88
    assert machine.outliers_.size == 0 and not warned


@pytest.fixture(scope="module")
def zeros():
    X, y = data(0.7)
    return fitted(X, y, inference="mean_field")[0]


@pytest.mark.slow
def test_the_prediction_is_the_mean_of_the_distribution(zeros):
    new = np.array([[0.0, 0.0], [1.5, -1.0], [5.0, 5.0]])
    found = zeros.predict_distribution(new)
    mean, sd = zeros.predict(new, return_std=True)
    np.testing.assert_array_equal(mean, found.mean())
    np.testing.assert_allclose(mean, mean_by_quadrature(found), rtol=1e-8)
    for drawn in (found.rvs(20_000, random_state=1), zeros.sample_y(new, 2000).T, found.rvs(2000, 1, joint=True)):
        np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * sd.max() / len(drawn) ** 0.5)
    np.testing.assert_allclose(zeros.predict_table(new)["y"], mean)
    assert (np.abs(zeros.predict_f(new)[0]) < 0.2).all() and (mean > 0.2).all()  # f is without the offsets of the noise
    np.testing.assert_allclose(found.latent.mean(), zeros.predict_f(new)[0], atol=1e-12)
    np.testing.assert_allclose(found.latent.std(), zeros.predict_f(new)[1], rtol=1e-6)


@pytest.mark.slow
def test_blocks_have_it():
    X, y = data(0.7, 240)
    with small_stages():
        machine, _ = fitted(X, y, blocks=bp.LocalBlocks(120, neighbours=32))
    assert machine.predict(X).mean() == pytest.approx(y.mean(), abs=0.15 * y.std())
    np.testing.assert_array_equal(machine.predict(X[:9]), machine.predict_distribution(X[:9]).mean())


@pytest.mark.slow_cases("options1", "options2", "options0")
@pytest.mark.parametrize(
    "options", [{}, {"noise": "pinball"}, {"noise": "gaussian"}, {"inference": "mean_field"}, {"inference": "laplace"}]
)
def test_ordinary_predictions_are_the_means_of_their_distributions(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    machine, warned = fitted(X, np.sin(X[:, 0]) + 0.2 * rng.gamma(1.0, size=60), **options)
    found, mean = machine.predict_distribution(X[:4]), machine.predict(X[:4])
    assert not warned
    if options.get("noise") == "pinball":  # a quantile, which is that of f
        np.testing.assert_allclose(mean, machine.predict_f(X[:4])[0], rtol=1e-12)
    else:
        np.testing.assert_allclose(mean, mean_by_quadrature(found), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"noise_scales": False}, True),
        ({"inference": "laplace"}, False),
        ({"noise_scales": False, "noise": "gaussian"}, False),
        ({"noise": "pinball", "quantile": 0.9}, False),
    ],
)
def test_a_mean_that_one_noise_misses_is_warned_of(options, warns):
    X, y = data(0.7)
    machine, warned = fitted(X, y, **options)
    assert warned == warns and machine.outliers_.size == 0
    if options.get("noise") == "gaussian" or "laplace" in options.values():
        assert machine.predict(X).mean() == pytest.approx(y.mean(), abs=0.1)


def test_a_third_is_counted_by_weight():
    y = np.repeat([0.0, 1.0, 2.0, 3.0], [4, 4, 2, 2])
    assert mostly_equal(y) and not mostly_equal(np.arange(12.0)) and not mostly_equal(np.zeros(9))
    weight = np.repeat([0.5, 1.0], [8, 4])
    assert not mostly_equal(np.arange(12.0), weight)
    for scale in (1e-4, 1e4):
        assert mostly_equal(y, scale * weight) == mostly_equal(y, weight)
        assert mostly_equal(np.append(y[4:], np.arange(4.0, 9.0)), scale * np.r_[np.full(4, 5.0), np.ones(9)])


def test_offsets_are_numbers_of_the_scales():
    plain = NoiseScales.one()
    assert not plain.several and plain.offsets.tolist() == [0.0]
    moved = NoiseScales(np.ones(1), np.ones(1), 0.0, np.array([0.5]))
    assert moved.several and NoiseScales.from_record(moved.record()).offsets.tolist() == [0.5]


@pytest.mark.slow
def test_skewed_noise_does_not_move_predictions_from_the_mean():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.where(rng.random(400) < 0.6, rng.uniform(70, 81, 400), rng.uniform(1, 70, 400))  # most are censored, say
    machine = fitted(X[:100], y[:100], inference="mean_field")[0]
    low, high = machine.predict_interval(X[100:]).T
    assert machine.noise_scales_.several
    assert abs(machine.predict(X[100:]).mean() - y[:100].mean()) < 1.0
    assert np.mean((low < y[100:]) & (y[100:] < high)) > 0.85
    fit = machine._fit
    sampled = fit.changed(found=replace(fit.found, posteriors=[], draws=object()))  # of NUTS
    assert fit.is_skewed(True) and not sampled.is_skewed(True)


def few(n=150, levels=(-0.6, 0.6)):
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X[:, :3], np.digitize(X[:, 0] + X[:, 3], levels) - 1.0


@pytest.mark.slow_cases(
    "levels1-options1-soft_insensitive", "levels2-options2-soft_insensitive", "levels3-options3-soft_insensitive"
)
@pytest.mark.parametrize(
    ("levels", "options", "noise"),
    [
        ((0.0,), {}, "gaussian"),
        ((-0.6, 0.6), {"noise": "soft_insensitive"}, "soft_insensitive"),
        ((0.0,), {"beta": 0.5}, "soft_insensitive"),
        ((-0.9, 0.0, 0.9), {}, "soft_insensitive"),
    ],
)
def test_few_values_have_gaussian_noise_by_default_and_a_warning(levels, options, noise):
    X, y = few(levels=levels)
    with warnings.catch_warnings(record=True, action="always") as caught:
        machine = bp.BayesianSVR(**FAST | {"inference": "mean_field"} | options).fit(X, y)
    said = [str(each.message) for each in caught if f"targets have {len(levels) + 1} values" in str(each.message)]
    assert machine.noise_ == machine.result_.attrs["loss"] == noise
    assert ["noise='gaussian'" in each for each in said] == [noise != "gaussian"] * (len(levels) < 3)
    if noise == "gaussian":
        assert machine.predict(X).std() > 0.3 * y.std()
        np.testing.assert_allclose(bp.BayesianSVR.from_result(machine.result_).predict(X[:5]), machine.predict(X[:5]))


@pytest.mark.slow
def test_each_of_several_targets_chooses_its_noise_and_shared_ones_together():
    (X, y), fast = few(60), FAST | {"inference": "mean_field"}
    with pytest.warns(UserWarning, match="target 'y0': targets have 3 values"):
        alone, together = (bp.BayesianSVR(shared=s, **fast).fit(X, np.c_[y, y + X[:, 1]]) for s in (False, True))
    found = [[each.noise_ for each in several.estimators_] for several in (alone, together)]
    assert found == [["gaussian", "soft_insensitive"], ["soft_insensitive"] * 2]
    assert bp.BayesianSVR(**fast).fit(X[:9], y[:9]).noise_ == "soft_insensitive"  # few rows say nothing
