"""A prior covariance in blocks: everything equals the dense algebra of the matrix with zeros between them."""

from dataclasses import replace
from threading import Barrier

import joblib
import numpy as np
import pytest
from problems import REGRESSION

from bsvr_pp.approximations import BlockDiagonal, Covariance, annealed, find_mode, laplace, mean_field
from bsvr_pp.core.approximations.posterior import from_sites, joined
from bsvr_pp.core.approximations.smc import Annealing, importance
from bsvr_pp.core.covariance.covariance import each_block, scatter
from bsvr_pp.inference.approximate import Annealed

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=12)
Y = np.sin(2 * X) + 0.1 * RNG.normal(size=12)
MEAN = 0.1 * X
ROWS = [np.array([0, 3, 4, 9]), np.array([1, 2, 5]), np.array([6, 7, 8, 10, 11])]
LABEL = np.empty(12, dtype=int)
for number, members in enumerate(ROWS):
    LABEL[members] = number
FULL = np.exp(-0.5 * np.subtract.outer(X, X) ** 2) + 1e-6 * np.eye(12)
DENSE = np.where(LABEL[:, None] == LABEL, FULL, 0.0)
BLOCKS = BlockDiagonal(ROWS, lambda b: Covariance(FULL[np.ix_(ROWS[b], ROWS[b])], jitter=1e-6))


@pytest.mark.parametrize("noise", REGRESSION, ids=lambda noise: noise.name)
@pytest.mark.parametrize("solve", [laplace, mean_field])
def test_a_solve_in_blocks_is_the_dense_solve(noise, solve):
    options = {"curvature": "local"} if solve is laplace else {}
    found, dense = (solve(K, Y, noise, mean=MEAN, **options) for K in (BLOCKS, DENSE))
    assert found.converged
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    for name in ("mean", "variance", "dual_coef", "site_precision", "cavity_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(dense, name), rtol=1e-4, atol=1e-5)
    cross = DENSE[:3] + 0.01
    for one, other in zip(found.predict(cross, np.ones(3)), dense.predict(cross, np.ones(3)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("noise", REGRESSION, ids=lambda noise: noise.name)
def test_the_mode_in_blocks_is_the_dense_mode(noise):
    found, dense = (find_mode(K, Y, noise, mean=MEAN) for K in (BLOCKS, DENSE))
    assert found.converged
    assert found.objective == pytest.approx(dense.objective, abs=1e-6)
    np.testing.assert_allclose(found.f, dense.f, atol=1e-5)
    assert found.support.dtype.kind == "i"


def test_draws_have_the_covariance_of_the_dense_posterior():
    posterior = mean_field(BLOCKS, Y, REGRESSION[0], mean=MEAN)
    drawn = posterior.draw(20000, np.random.default_rng(1))
    exact = DENSE - DENSE @ np.linalg.solve(DENSE + np.diag(1 / posterior.site_precision), DENSE)
    np.testing.assert_allclose(np.cov(drawn.T), exact, atol=5 * exact.max() / 20000**0.5)
    np.testing.assert_allclose(drawn.mean(axis=0), posterior.mean, atol=0.03)


def test_sites_give_the_posterior_again():
    found = mean_field(BLOCKS, Y, REGRESSION[0], mean=MEAN)
    again = from_sites(BLOCKS, MEAN, found.dual_coef, found.site_precision)
    np.testing.assert_allclose(again.mean, found.mean, atol=1e-10)
    np.testing.assert_allclose(again.variance, found.variance, atol=1e-8)
    np.testing.assert_array_equal(again.log_loo(Y, REGRESSION[0]), again.log_loo(Y, REGRESSION[0]))


def test_whitening_is_that_of_the_dense_matrix():
    columns = np.random.default_rng(2).normal(size=(12, 3))
    np.testing.assert_allclose(BLOCKS.whiten(columns), np.linalg.solve(np.linalg.cholesky(DENSE), columns), atol=1e-8)


def test_annealing_in_blocks_is_the_sum_of_the_blocks():
    noise, method = REGRESSION[0], Annealed(particles=100)
    found = method.evidence(BLOCKS, Y, noise, MEAN, np.random.default_rng(0))
    dense = annealed(DENSE, Y, noise, Annealing(particles=200), mean=MEAN, random_seed=1)
    assert abs(found.value - dense.log_evidence) < 5 * np.hypot(found.standard_error, dense.standard_error)
    value, error = importance(BLOCKS, Y, noise, MEAN, 2000, np.random.default_rng(0))
    assert abs(value - dense.log_evidence) < 5 * np.hypot(error, dense.standard_error)


def test_threads_do_not_change_a_bit():
    one = mean_field(BLOCKS, Y, REGRESSION[0], mean=MEAN)
    with joblib.parallel_config(n_jobs=3):
        several = mean_field(BLOCKS, Y, REGRESSION[0], mean=MEAN)
        drawn = several.draw(3, np.random.default_rng(0))
    np.testing.assert_array_equal(one.mean, several.mean)
    assert one.log_evidence == several.log_evidence
    np.testing.assert_array_equal(one.draw(3, np.random.default_rng(0)), drawn)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_blocks_are_solved_in_as_many_threads_as_asked_for(n_jobs):
    """All have to wait for one another, which a single thread cannot."""
    barrier = Barrier(n_jobs)

    def together(block):
        barrier.wait(timeout=30.0)
        return block

    with joblib.parallel_config(n_jobs=n_jobs):
        assert each_block(together, 6) == list(range(6))


@pytest.mark.parametrize("rows", [[[0, 1], [1]], [[0, 1], [3]], [[0, -1], [2]]])
def test_each_row_is_in_one_block(rows):
    with pytest.raises(ValueError, match="rows must have each row number from 0 to n - 1 in one block"):
        BlockDiagonal([np.array(each) for each in rows], lambda block: Covariance(np.eye(2 - block)))


def test_parts_are_joined_in_the_order_of_the_rows():
    np.testing.assert_array_equal(scatter(ROWS, [X[rows] for rows in ROWS]), X)


def test_a_failure_of_one_block_is_a_failure():
    parts = [mean_field(BLOCKS.part(b), Y[rows], REGRESSION[0], mean=MEAN[rows]) for b, rows in enumerate(BLOCKS.rows)]
    assert joined(BLOCKS, parts).converged
    parts[0] = replace(parts[0], converged=False)
    assert not joined(BLOCKS, parts).converged
