"""Posteriors of single new inputs on their nearest rows, against mean field on those rows."""

import numpy as np
import pytest
from problems import LOSSES, smooth

from bsvr_pp.approximations import Covariance, mean_field
from bsvr_pp.core.approximations.mean_field import MISMATCH, nearest_moments
from bsvr_pp.losses import absolute, gaussian

N, NEW = 24, 5


def problem(noise, offset=0.5):
    """Covariance, targets, covariance of new inputs with the training inputs, their variance, and their neighbours."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, N + NEW)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + offset + 1e-6 * np.eye(N + NEW)
    y = smooth(N, noise=noise)[1]
    neighbours = np.argsort(-K[N:, :N], axis=1)[:, :9]
    return K[:N, :N], y, K[N:, :N], np.diag(K)[N:], neighbours


def moments(K, y, noise, cross, diagonal, neighbours, mean=0.0, jitter=0.0, **options):
    """`nearest_moments` from the covariance of all rows, which has the jitter."""
    m, k = neighbours.shape
    prior = np.empty((m, 1 + k, 1 + k))
    prior[:, 1:, 1:] = K[neighbours[:, :, None], neighbours[:, None, :]] - jitter * np.eye(k)
    prior[:, 0, 1:] = prior[:, 1:, 0] = np.take_along_axis(cross, neighbours, axis=1)
    prior[:, 0, 0] = diagonal
    mean, each = np.broadcast_to(mean, (m, 1 + k)), noise.at(neighbours.ravel())
    return nearest_moments(prior, mean, y[neighbours], each, jitter=jitter, **{"mismatch": 1e-8} | options)


OF_EACH_ROW = absolute(np.geomspace(0.5, 50.0, N))
ENDS = smooth(N)[1][:, None] + np.stack([-np.linspace(0.1, 1.0, N), np.full(N, 0.5)], axis=1)


@pytest.mark.parametrize("noise", [*LOSSES, OF_EACH_ROW, absolute(3.0).between(*ENDS.T)], ids=lambda noise: noise.name)
def test_each_new_input_has_the_posterior_of_its_neighbours(noise):
    """Also of noise, and of intervals, that go with their rows."""
    K, y, cross, diagonal, neighbours = problem(noise)
    mean, mean_star = np.linspace(0.0, 0.3, N), np.linspace(0.1, 0.2, NEW)
    found = moments(K, y, noise, cross, diagonal, neighbours, np.column_stack([mean_star, mean[neighbours]]))
    assert found.converged.all()
    for i, rows in enumerate(neighbours):
        posterior = mean_field(K[np.ix_(rows, rows)], y[rows], noise.at(rows), mean=mean[rows])
        f_mean, f_variance = posterior.predict(cross[[i]][:, rows], diagonal[[i]], mean_star[[i]])
        assert found.mean[i] == pytest.approx(f_mean[0], abs=1e-6 * np.sqrt(f_variance[0]))
        assert found.variance[i] == pytest.approx(f_variance[0], rel=1e-6)


def test_all_rows_are_the_whole_posterior():
    K, y, cross, diagonal, _ = problem(None)
    everything = np.tile(np.arange(N), (NEW, 1))
    found = moments(K, y, gaussian(20.0), cross, diagonal, everything, jitter=1e-3)
    exact = mean_field(Covariance(K, jitter=1e-3), y, gaussian(20.0)).predict(cross, diagonal)
    np.testing.assert_allclose([found.mean, found.variance], exact, rtol=1e-9)


def test_a_large_constant_does_not_cost_the_digits():
    noise = gaussian(20.0)
    small, large = (moments(K, y, noise, *rest) for K, y, *rest in (problem(noise, 1e3), problem(noise, 1e6)))
    np.testing.assert_allclose(small.mean, large.mean, atol=1e-3)
    assert (large.variance > 0).all()


@pytest.mark.parametrize("noise", LOSSES, ids=lambda noise: noise.name)
def test_sweeps_may_start_at_any_sites(noise):
    """From sites of far too wide and of wrong rows, to the accuracy of predictions."""
    K, y, cross, diagonal, neighbours = problem(noise)
    exact = moments(K, y, noise, cross, diagonal, neighbours)
    whole = mean_field(K, y, noise)
    location = whole.dual_coef + whole.site_precision * whole.mean
    sites = np.stack([location[neighbours], whole.site_precision[neighbours]], axis=1)
    for start in (sites, 0.01 * sites, np.roll(sites, 1, axis=2)):
        found = moments(K, y, noise, cross, diagonal, neighbours, start=start, mismatch=MISMATCH)
        assert found.converged.all()
        spread = np.sqrt(exact.variance + noise.variance) if noise.name != "hinge" else np.sqrt(exact.variance)
        np.testing.assert_array_less(np.abs(found.mean - exact.mean) / spread, 3e-3)
        np.testing.assert_allclose(found.variance, exact.variance, rtol=5e-3)


def test_what_does_not_converge_is_said():
    K, y, cross, diagonal, neighbours = problem(None)
    found = moments(K, y, absolute(1e15), cross, diagonal, neighbours)
    assert not found.converged.any()


def test_a_row_without_a_site_prints_no_error(capfd):
    found = nearest_moments(np.array([[[1.0, 0.5], [0.5, 1.0]]]), np.zeros((1, 2)), np.array([[1e6]]), absolute(1.0))
    assert found.mean == pytest.approx([0.5]) and found.variance == pytest.approx([1.0]) and found.converged.all()
    assert capfd.readouterr() == ("", "")
