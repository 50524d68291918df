"""Skewed targets: roots of the distance from one end of them, if these have more evidence."""

import numpy as np
import pytest
from sklearn.base import clone

import bsvr_pp as bp
from bsvr_pp.inference.prediction.distribution import UNSCALED, PredictiveDistribution, Root
from bsvr_pp.losses import absolute, gaussian, pinball, soft_insensitive

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (120, 2))
ROOTS = 3.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=120)
SKEWED = ROOTS**2
FAST = {"inference": "mean_field", "restarts": 1, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return bp.BayesianSVR(restarts=1, random_state=0).fit(X, SKEWED)


@pytest.mark.parametrize("end", [0.5, 9.0])
def test_a_root_is_increasing_with_slope_one_at_the_middle(end):
    scale, y = Root.of_targets(3.0, end), np.linspace(-20.0, 30.0, 10_001)
    z = scale.forward(y)
    np.testing.assert_allclose(scale.inverse(z), y, atol=1e-12)
    np.testing.assert_allclose(np.diff(z) / np.diff(y), np.exp(scale.log_slope(y[:-1])), rtol=0.1)
    np.testing.assert_allclose(scale.stretch(z), np.exp(-scale.log_slope(y)), rtol=1e-12)
    assert scale.forward(np.array(3.0)) == 3.0
    assert scale.log_slope(np.array(3.0)) == 0.0
    assert list(scale.forward(np.array([-np.inf, np.inf]))) == [-np.inf, np.inf]


OF_NOISES = [(gaussian(C=9.0), 0.5), (absolute(C=4.0), 9.0), (soft_insensitive(C=5.0, epsilon=0.3, beta=0.4), 0.5)]
OF_NOISES += [(pinball(C=6.0, quantile=0.3), 0.5), (absolute(C=np.array([4.0, 6.0])), 9.0)]


@pytest.mark.slow_cases("noise1-9.0", "noise2-0.5", "noise4-9.0")
@pytest.mark.parametrize(("noise", "end"), OF_NOISES)
def test_moments_are_those_of_the_density(noise, end):
    """In the second row much of the mass is where the scale is linear."""
    means, variances = np.array([[0.3, -1.2], [0.5, -1.5]]) * (1.0 if end < 3.0 else -1.0), np.array([[0.04], [0.3]])
    given = np.array([[0.3], [0.7]]) * np.ones(2), means, variances * np.ones(2), (noise, noise)
    found = PredictiveDistribution(*given, location=2.5, unit=1.5, scale=Root.of_targets(3.0, end))
    y = np.linspace(-60.0, 70.0, 100_001)[:, None]
    density, width = found.pdf(y), y[1] - y[0]
    np.testing.assert_allclose(density.sum(axis=0) * width, 1.0, atol=1e-3)
    mean = (y * density).sum(axis=0) * width
    np.testing.assert_allclose(found.mean(), mean, atol=2e-3)
    np.testing.assert_allclose(found.var(), ((y - mean) ** 2 * density).sum(axis=0) * width, rtol=5e-3)
    np.testing.assert_allclose(found.cdf(found.ppf(0.2)), 0.2, atol=1e-9)


@pytest.mark.parametrize("end", [0.5, 9.0])
def test_narrow_distributions_beyond_the_edge(end):
    """There the scale is linear, and a narrow distribution keeps its shape."""
    scale, sign = Root.of_targets(3.0, end), 1.0 if end < 3.0 else -1.0
    depth = np.array([-20.0, -3.0, 0.0, 1.0, 4.0, 30.0]) * sign
    edge = scale.middle - 2.0 * sign * (scale._at_middle - np.sqrt(scale._at_middle * scale._least))
    for deviation in (1e-6, 1e-3, 0.05):
        alone = np.ones((1, 6)), (edge - depth)[None], np.full((1, 6), 0.75 * deviation**2)
        found = PredictiveDistribution(*alone, (gaussian(4.0 / deviation**2),), scale=scale)
        np.testing.assert_allclose(found.std(), deviation * scale.stretch(edge - depth), rtol=0.05)
        np.testing.assert_allclose(found.mean(), scale.inverse(edge - depth), atol=deviation**2)
        assert found.pdf(np.inf).tolist() == [0.0] * 6


def test_skewed_targets_are_on_the_scale_with_more_evidence(fitted):
    plain = bp.BayesianSVR(restarts=1, warping=False, random_state=0).fit(X, SKEWED)
    assert plain._fit.units.target_scale == UNSCALED
    assert fitted.target_scale_[1] == SKEWED.min()
    assert fitted.log_evidence_ > plain.log_evidence_ + 10.0
    new = np.random.default_rng(1).uniform(-2.0, 2.0, (500, 2))
    roots = 3.0 + np.sin(2.0 * new[:, 0]) + new[:, 1]
    y = (roots + 0.1 * np.random.default_rng(2).normal(size=500)) ** 2
    ours, others = (each.predict_distribution(new) for each in (fitted, plain))
    assert ours.logpdf(y).mean() > others.logpdf(y).mean() + 0.1
    assert ours.crps(y).mean() < others.crps(y).mean()
    low, high = ours.interval(0.9)
    assert 0.84 < np.mean((low < y) & (y < high)) < 0.96


@pytest.mark.slow
def test_mirrored_targets_have_mirrored_predictions(fitted):
    mirrored = clone(fitted).fit(X, 5.0 - SKEWED)
    np.testing.assert_allclose(mirrored.predict(X), 5.0 - fitted.predict(X), rtol=1e-5, atol=1e-5)
    scaled = clone(fitted).fit(X, 100.0 * SKEWED)
    np.testing.assert_allclose(scaled.predict(X), 100.0 * fitted.predict(X), rtol=1e-5)
    assert np.isclose(scaled.log_evidence_, fitted.log_evidence_ - 120.0 * np.log(100.0), atol=1e-4)


@pytest.mark.slow_cases("equal")
@pytest.mark.parametrize(
    "y", [ROOTS, np.round(ROOTS), np.where(X[:, 0] > 1.0, SKEWED, 1.0)], ids=["even", "few", "equal"]
)
def test_other_targets_are_as_given(y):
    assert bp.BayesianSVR(**FAST).fit(X, y).target_scale_.size == 0


@pytest.mark.slow_cases("50")
@pytest.mark.parametrize("blocks", [None, 50])
def test_even_noise_of_a_skewed_function_is_as_given(blocks):
    y = np.exp(X[:, 0]) + 0.5 * np.random.default_rng(1).normal(size=120)
    svr = bp.BayesianSVR(blocks=blocks, **FAST)
    assert abs(np.quantile(y, [0.1, 0.5, 0.9]) @ [1.0, -2.0, 1.0]) > 1.0
    assert svr.fit(X, y).target_scale_.size == 0


@pytest.mark.slow
@pytest.mark.parametrize(("targets", "error"), [(np.exp(X[:, 0]) + 0.1 * ROOTS, 1e4), (SKEWED, -1e4)])
def test_a_gross_error_decides_no_scale(targets, error):
    """One far above invites a root of even noise, and one far below is not the end of the others."""
    y, svr = np.where(np.arange(120) == 7, error, targets), bp.BayesianSVR(**FAST)
    with pytest.warns(UserWarning, match="gross errors among 120 targets"):
        scale = svr.fit(X, y).target_scale_
    kept = np.arange(120) != 7
    np.testing.assert_allclose(scale, clone(svr).fit(X[kept], targets[kept]).target_scale_, rtol=0.05)


def skewed(n):
    """Inputs, and targets whose noise is wide where they are large."""
    rng = np.random.default_rng(3)
    inputs = rng.uniform(0.0, 4.0, (n, 1))
    return inputs, 10.0 * (
        0.8 + 0.4 * np.sin(2.0 * inputs[:, 0]) + 0.15 * inputs[:, 0] ** 2 + 0.2 * rng.normal(size=n)
    ) ** 2


@pytest.mark.slow
def test_frequent_wrong_targets_move_no_means():
    """They are noise of a far wider scale, whose mean on the scale of roots is large."""
    inputs, y = skewed(240)
    svr = bp.BayesianSVR(kernel="main_effects", **FAST)
    right = svr.fit(inputs, y).predict(inputs)
    assert svr.target_scale_.size == 3
    wrong = np.where(np.arange(240) % 11 == 0, 300.0, y)
    with pytest.warns(UserWarning, match="far wider noise than most"):
        found = svr.fit(inputs, wrong).predict(inputs)
    assert svr.target_scale_.size == 0
    assert np.abs(found - right).mean() < 2.0


@pytest.mark.slow
def test_an_error_that_the_fit_keeps_is_an_end():
    inputs, y = skewed(420)
    y[7] = -3000.0
    svr = bp.BayesianSVR(outliers="keep", restarts=1, random_state=0).fit(inputs, y)
    assert svr.target_scale_.size == 0
    assert np.abs(np.delete(svr.predict(inputs) - y, 7)).mean() < 8.0


def test_a_row_of_weight_0_needs_no_logarithm():
    svr = bp.BayesianSVR(log_targets=True, **FAST)
    weight, y = (np.arange(40) > 0).astype(float), np.where(np.arange(40) == 0, 0.0, SKEWED[:40])
    found = svr.fit(X[:40], y, weight).predict(X[:9])
    np.testing.assert_array_equal(found, svr.fit(X[1:40], y[1:]).predict(X[:9]))


def test_all_predictions_are_in_the_unit_of_the_targets(fitted):
    found = fitted.predict_distribution(X[:9])
    mean, deviation = fitted.predict(X[:9], return_std=True)
    drawn = found.rvs(40_000, 0)
    np.testing.assert_allclose(mean, drawn.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(deviation, drawn.std(axis=0), rtol=0.02)
    of_f = found.latent.rvs(40_000, 0)
    np.testing.assert_allclose(fitted.predict_f(X[:9])[0], of_f.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(fitted.predict_f(X[:9])[1], of_f.std(axis=0), rtol=0.02)
    parts = fitted.predict_uncertainty(X[:9])
    np.testing.assert_allclose(np.sqrt((parts.iloc[:, :3] ** 2).sum(axis=1)), deviation, rtol=1e-9)
    table = bp.effect(fitted, X, 0, rows=20, values=5)
    assert (table["lower"] < table["mean"]).all()
    assert (table["mean"] < table["upper"]).all()
    assert np.ptp(table["mean"]) > 8.0  # 12 sin(2x) around the mean; on the scale of roots less


@pytest.mark.slow
def test_a_saved_fit_and_added_rows_are_on_its_scale(fitted):
    again = bp.BayesianSVR.from_result(fitted.result_)
    np.testing.assert_allclose(again.predict(X[:5]), fitted.predict(X[:5]), rtol=1e-9)
    grown = bp.BayesianSVR.from_result(fitted.result_).add([[0.5, 0.5]] * 3, [SKEWED.max()] * 3)
    assert grown.predict([[0.5, 0.5]])[0] > fitted.predict([[0.5, 0.5]])[0] + 0.2
    assert grown.target_scale_.tolist() == fitted.target_scale_.tolist()


@pytest.mark.slow
def test_weights_are_copies():
    weighted = bp.BayesianSVR(**FAST).fit(X, SKEWED, sample_weight=np.full(120, 2.0))
    twice = bp.BayesianSVR(**FAST).fit(np.vstack([X, X]), np.concatenate([SKEWED, SKEWED]))
    assert weighted.target_scale_.size == 3
    np.testing.assert_array_equal(weighted.predict(X), twice.predict(X))
