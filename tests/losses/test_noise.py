"""Losses and noise models against mpmath, SciPy and each other."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, hinge, huber, pinball, soft_insensitive


def silf_by_mpmath(C, epsilon, beta):
    """Normaliser and variance of chu2004 (14) and (15) with 40 digits."""
    with mp.workdps(40):
        C, e, b = mp.mpf(C), mp.mpf(epsilon), mp.mpf(beta)
        x = C * b * e
        bell = mp.sqrt(mp.pi * b * e / C) * mp.erf(mp.sqrt(x))
        normalizer = 2 * (1 - b) * e + 2 * bell + 2 / C * mp.exp(-x)
        variance = (2 / normalizer) * (
            (1 - b) ** 3 * e**3 / 3
            + 4 * (1 - b) * b * e**2 / C
            + bell * (2 * b * e / C + (1 - b) ** 2 * e**2)
            + (e**2 * (1 - b) ** 2 / C + 2 * e * (1 + b) / C**2 + 2 / C**3) * mp.exp(-x)
        )
        return float(mp.log(normalizer)), float(variance)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    log_C=st.floats(-8, 8),
    log_C_epsilon=st.floats(-8, 8),
    beta=st.one_of(st.sampled_from([0.0, 1e-300, 1e-12, 1e-6, 1.0]), st.floats(0, 1)),
)
def test_silf_normalizer_and_variance_match_the_paper(log_C, log_C_epsilon, beta):
    C = 10.0**log_C
    noise = soft_insensitive(C, 10.0**log_C_epsilon / C, beta)
    log_normalizer, variance = silf_by_mpmath(C, noise.parameters["epsilon"], beta)
    assert noise.log_normalizer == pytest.approx(log_normalizer, abs=1e-10, rel=0)
    assert noise.variance == pytest.approx(variance, rel=1e-9)


def test_printed_variance_of_the_paper():
    assert soft_insensitive(10.0, 0.1, 0.3).variance == pytest.approx(0.026785, abs=5e-7)


def test_loss_is_the_printed_formula_at_and_between_breakpoints():
    """chu2004 (11), at its breakpoints and inside each piece."""
    epsilon, beta = 0.5, 0.4
    r = np.array([-0.9, -0.7, -0.5, -0.3, -0.1, 0.0, 0.3, 0.5, 0.7, 0.9])
    t = np.clip(np.abs(r) - (1 - beta) * epsilon, 0, 2 * beta * epsilon)
    expected = t**2 / (4 * beta * epsilon) + np.maximum(np.abs(r) - (1 + beta) * epsilon, 0)
    noise = soft_insensitive(3.0, epsilon, beta)
    np.testing.assert_allclose(noise.loss(r), expected, atol=1e-15)
    np.testing.assert_allclose(noise.log_density(r), -3 * expected - noise.log_normalizer, atol=1e-14)
    h = 1e-6
    inside = np.array([-0.8, -0.4, 0.1, 0.4, 0.8])
    np.testing.assert_allclose(
        noise.derivative(inside), (noise.loss(inside + h) - noise.loss(inside - h)) / (2 * h), atol=1e-8
    )
    np.testing.assert_allclose(noise.curvature(inside), [0, 1 / (2 * beta * epsilon), 0, 1 / (2 * beta * epsilon), 0])


@pytest.mark.parametrize(
    ("noise", "limit"),
    [
        (soft_insensitive(3.0, 0.4, 0.0), epsilon_insensitive(3.0, 0.4)),
        (soft_insensitive(3.0, 0.4, 1.0), huber(3.0, 0.4)),
        (soft_insensitive(3.0, 0.0, 0.5), absolute(3.0)),
        (epsilon_insensitive(3.0, 0.0), absolute(3.0)),
        (pinball(6.0, 0.5), absolute(3.0)),
        (huber(4000.0, 1000.0), gaussian(2.0)),
    ],
    ids=repr,
)
def test_limits_of_the_family(noise, limit):
    r = np.linspace(-2, 2, 41)
    np.testing.assert_allclose(noise.log_density(r), limit.log_density(r), atol=1e-12)
    np.testing.assert_allclose(noise.cdf(r), limit.cdf(r), atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "exact"),
    [
        (absolute(2.0), stats.laplace(scale=0.5)),
        (gaussian(4.0), stats.norm(scale=0.5)),
        (pinball(3.0, 0.2), stats.laplace_asymmetric(kappa=0.5, scale=1 / (3 * 0.4))),
    ],
    ids=["absolute", "gaussian", "pinball"],
)
def test_agrees_with_scipy(noise, exact):
    r = np.array([-30.0, -1.0, -0.1, 0.0, 0.2, 2.0, 25.0])
    np.testing.assert_allclose(noise.log_density(r), exact.logpdf(r), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(noise.cdf(r), exact.cdf(r), atol=1e-12)
    np.testing.assert_allclose([noise.mean, noise.variance], exact.stats(), atol=1e-12)
    q = np.array([1e-12, 0.1, 0.5, 0.99])
    np.testing.assert_allclose(noise.quantile(q), exact.ppf(q), rtol=1e-9, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    q=st.floats(1e-14, 1 - 1e-14),
    log_C_epsilon=st.floats(-8, 8),
    beta=st.one_of(st.sampled_from([0.0, 1e-9, 1.0]), st.floats(0, 1)),
)
def test_quantile_inverts_cdf(q, log_C_epsilon, beta):
    noise = soft_insensitive(2.0, 10.0**log_C_epsilon / 2, beta)
    assert noise.cdf(noise.quantile(q)) == pytest.approx(q, abs=1e-10)


def test_hinge_probabilities_of_the_labels():
    """Sollich 2002 (4): Q(y|f) = exp(-C·max(0, 1 - y·f))/(1 + exp(-2C))."""
    C, f = 2.0, 0.3
    noise = hinge(C)
    for y in (-1.0, 1.0):
        log_z, mean, _variance = noise.tilted(f, 1e-12, y)
        assert log_z == pytest.approx(-C * max(0, 1 - y * f) - np.log1p(np.exp(-2 * C)), abs=1e-6)
        assert mean == pytest.approx(f, abs=1e-5)
    assert noise.log_density(1 - f) == pytest.approx(-C * 0.7 - np.log1p(np.exp(-2 * C)))


def test_vector_parameters_are_one_noise_model_a_point():
    C, epsilon = np.array([1.0, 10.0, 100.0]), np.array([0.1, 0.0, 0.3])
    noise = soft_insensitive(C, epsilon, 0.3)
    r = np.array([0.2, -0.1, 0.5])
    for i in range(3):
        single = soft_insensitive(C[i], epsilon[i], 0.3)
        assert noise.log_density(r)[i] == single.log_density(r[i])
        assert noise.variance[i] == single.variance
        assert noise.quantile(0.9)[i] == single.quantile(0.9)
        assert noise.cdf(r)[i] == single.cdf(r[i])
        np.testing.assert_array_equal(
            [part[i] for part in noise.tilted(0.0, 1.0, r)], [float(part) for part in single.tilted(0.0, 1.0, r[i])]
        )
    assert noise.sample((5, 3), random_seed=1).shape == (5, 3)
    assert noise.sample(random_seed=1).shape == (3,)


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([False, True, True, False]), np.array([2, 2, 0])], ids=str)
def test_the_noise_of_some_points_keeps_what_each_has_of_its_own(rows):
    y, ends = np.array([0.3, -1.0, 2.0, 0.0]), np.array([[-1.0, 0.0], [0.5, np.inf], [-np.inf, 0.2], [0.1, 0.3]])
    own = soft_insensitive(np.array([1.0, 2.0, 3.0, 4.0]), 0.1, 0.3)
    for noise in (own, absolute(2.0).weighted([1.0, 2.0, 3.0, 4.0]), own.between(*ends.T)):
        mean, variance = np.full(4, 0.2), np.full(4, 0.5)
        part = noise.at(rows).log_likelihood(mean[rows], y[rows])
        np.testing.assert_array_equal(part, noise.log_likelihood(mean, y)[rows])
        for all_, some in zip(
            noise.tilted(mean, variance, y), noise.at(rows).tilted(mean[rows], variance[rows], y[rows]), strict=True
        ):
            np.testing.assert_array_equal(some, all_[rows])


def test_one_weight_is_that_of_all_points_and_intervals_take_the_weight_one():
    y, ends = np.array([0.3, -1.0]), np.array([[-1.0, 0.0], [0.5, np.inf]])
    noise = absolute(2.0)
    each, all_ = noise.weighted([3.0, 3.0]), noise.weighted(3.0)
    for some, others in zip(each.sites(y), all_.sites(y), strict=True):
        np.testing.assert_array_equal(some, others)
    assert noise.weight.tolist() == [1.0] and repr(noise.weighted(1.0)) == repr(noise) and "weighted" in repr(all_)
    between = noise.weighted(np.ones(2)).between(*ends.T)
    np.testing.assert_array_equal(between.log_likelihood(y, y), noise.between(*ends.T).log_likelihood(y, y))
    assert isinstance(between.at([0]), type(between)) and len(between.at([0]).ends) == 1


def test_log_likelihoods_have_a_value_of_f_in_each_row_and_labels():
    between = absolute(1.0).between([0.0, 1.0, 5.0], [1.0, 2.0, 6.0])
    whole = between.log_likelihood(np.zeros(3), np.repeat([[0.5], [2.0]], 3, axis=1))
    np.testing.assert_array_equal(between.log_likelihood(np.zeros(3), [[0.5], [2.0]]), whole)
    np.testing.assert_array_equal(between.log_likelihood(np.zeros(3), 2.0), whole[1])
    with pytest.raises(ValueError, match=r"f must have 3 values on its last axis, .* got shape \(3, 6\)"):
        between.log_likelihood(np.zeros(3), np.zeros((3, 6)))
    with pytest.raises(ValueError, match=r"y must hold the labels -1 and \+1 for the hinge loss, got 0"):
        hinge(C=2.0).log_likelihood([0.0, 1.0], [1.0, 1.0])


def test_densities_broadcast_with_the_points():
    y, variance = np.array([[0.3, 0.1, -2.0], [1.0, 0.0, 4.0]]), [[0.0, 1.0, 2.0]]
    found = absolute([1.0, 2.0, 3.0]).predictive_log_density(y, 0.5, variance)
    for i, C in enumerate([1.0, 2.0, 3.0]):
        each = absolute(C).predictive_log_density(y[:, i], 0.5, variance[0][i])
        np.testing.assert_allclose(found[:, i], each, rtol=1e-12)
    assert absolute([1.0, 2.0, 3.0]).predictive_log_density(0.3, 0.0, 1.0).shape == (3,)
