"""What each row has of its own in local blocks: weights, noise, ends of intervals, classes."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import lognorm, multivariate_normal

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.inference.prediction.neighbours import densities_of_rows, solved_rows
from bsvr_pp.inference.search.optimize import SearchObjective
from bsvr_pp.model.distributions import observe_weighted
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

N, NEW = 30, np.array([[0.1], [2.2], [4.1]])
RNG = np.random.default_rng(4)
X = np.sort(RNG.uniform(0.0, 5.0, N))[:, None]
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
WEIGHT, WIDTH = RNG.uniform(0.5, 3.0, N), RNG.uniform(2.0, 20.0, N)
LOWER, UPPER = Y - RNG.exponential(0.4, N), np.where(RNG.random(N) < 0.3, np.inf, Y + 0.3)
CLASSES = np.digitize(Y, [-0.5, 0.5])


def weighted(f, rows):
    observe_weighted("y", bp.SoftInsensitive.dist(f, 8.0, 0.05, 0.3), WEIGHT[rows], Y[rows])


def noisy(f, rows):
    bp.SoftInsensitive("y", f, WIDTH[rows], 0.05, 0.3, observed=Y[rows])


def intervals(f, rows):
    bp.Interval("y", f, LOWER[rows], UPPER[rows], C=8.0, epsilon=0.05, beta=0.3)


def censored(f, rows):
    noise = bp.SoftInsensitive.dist(f, 8.0, 0.05, 0.3)
    pm.Censored("y", noise, lower=-0.5, upper=0.6, observed=np.clip(Y[rows], -0.5, 0.6))


def classes(f, rows):
    bp.Ordinal("y", f, cutpoints=[-0.5, 0.5], C=6.0, noise="absolute", observed=CLASSES[rows])


def model(kind, rows, blocks=None, ls=0.7):
    return process_model(lambda _, f: kind(f, rows), X[rows], ls=ls, factor=1.3, prior={"blocks": blocks})


@pytest.mark.slow_cases(
    "method0-classes",
    "method1-weighted",
    *(f"method{i}-{kind}" for i in (0, 1) for kind in ("intervals", "censored", "noisy")),
    *("method1-classes", "method0-weighted"),
)
@pytest.mark.parametrize("kind", [weighted, noisy, intervals, censored, classes])
@pytest.mark.parametrize("method", [bp.MeanField(), bp.Laplace(curvature="local")])
def test_blocks_are_models_of_their_rows(kind, method):
    """Truth: a dense model of the rows of each block."""
    blocks = bp.local_blocks(X, rows=12)
    assert len(blocks) > 2
    together = model(kind, np.arange(N), blocks)
    result = bp.fit(method, together, progressbar=False)
    alone = [bp.fit(method, model(kind, rows), progressbar=False) for rows in blocks]
    evidence = sum(each.attrs["log_evidence"] for each in alone)
    assert result.attrs["log_evidence"] == pytest.approx(evidence, rel=1e-8)
    found = bp.loo(result, model=together).elpd_i.values
    for rows, each in zip(blocks, alone, strict=True):
        known = bp.loo(each, model=model(kind, rows)).elpd_i.values
        np.testing.assert_allclose(found[rows], known, atol=2e-3)


def searched(kind, rows, blocks=None):
    """A model with a lengthscale to find."""
    return model(kind, rows, blocks, lambda: pm.InverseGamma("ls", 3, 3))


@pytest.mark.slow_cases("classes", "noisy", "intervals", "censored", "weighted")
@pytest.mark.parametrize("kind", [weighted, noisy, intervals, censored, classes])
def test_the_search_climbs_the_sum_of_the_evidences(kind):
    """Truth: the evidence of a dense model of the rows of each block, and differences."""
    blocks = bp.local_blocks(X, rows=12)

    def objective(rows, cut=None):
        return SearchObjective(read_model(searched(kind, rows, cut)), bp.MeanField(), {}, "evidence", warm_starts=False)

    together, x = objective(np.arange(N), blocks), np.array([-0.4])
    value, gradient = together(x)
    assert value == pytest.approx(sum(objective(rows)(x)[0] for rows in blocks), rel=1e-8)
    difference = (together(x + 1e-3)[0] - together(x - 1e-3)[0]) / 2e-3
    assert gradient[0] == pytest.approx(difference, rel=5e-3)
    with pytest.raises(ModelError, match="weights, intervals, classes or noise of their own"):
        bp.marginalize(bp.MeanField(), searched(kind, np.arange(N), blocks))


@pytest.mark.slow_cases("intervals", "classes", "censored")
@pytest.mark.parametrize("kind", [weighted, intervals, censored, classes])
def test_the_modes_of_blocks_are_those_of_their_rows(kind):
    """Truth: a dense model of the rows of each block."""
    blocks = bp.local_blocks(X, rows=12)
    found = bp.fit(bp.MAP(), model(kind, np.arange(N), blocks), progressbar=False)["posterior"]["f"].values[0, 0]
    for rows in blocks:
        known = bp.fit(bp.MAP(), model(kind, rows), progressbar=False)["posterior"]["f"].values[0, 0]
        np.testing.assert_allclose(found[rows], known, atol=1e-7)


@pytest.mark.slow_cases("weighted", "intervals")
@pytest.mark.parametrize("kind", [weighted, intervals, classes])
def test_predictions_from_nearest_rows(kind):
    """Truth: a dense model of the nearest rows."""
    together = model(kind, np.arange(N), bp.local_blocks(X, rows=12))
    result = bp.fit(bp.MeanField(), together, progressbar=False)
    found = bp.predict(result, NEW, model=together, neighbours=8)
    for i, new in enumerate(NEW):
        near = np.sort(np.argsort(np.abs(X[:, 0] - new))[:8])
        own = model(kind, near)
        known = bp.predict(bp.fit(bp.MeanField(), own, progressbar=False), new[None], model=own)
        np.testing.assert_allclose(found["f_mean"].values[i], known["f_mean"].values[0], rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(found["f_variance"].values[i], known["f_variance"].values[0], rtol=5e-3)


def test_densities_of_rows_are_those_of_one_row_each():
    """Truth: the cavities of a dense fit of each block, whose weights are no powers of the densities."""
    problem = read_model(model(weighted, np.arange(N), bp.local_blocks(X, rows=12)))
    factors = np.array([0.5, 1.0, 8.0])
    found = densities_of_rows(problem, {}, solved_rows(problem, {}), factors)
    for block in range(len(problem.blocks)):
        rows = problem.blocks.rows(block)
        own = read_model(model(weighted, rows))
        K, mean, noise = own.at({})
        known = densities_of_rows(own, {}, mean_field(K, own.targets, noise, mean=mean), factors)
        np.testing.assert_allclose(found[rows], known, atol=2e-3)


def test_training_noise_has_weights_and_ends():
    problem = read_model(model(weighted, np.arange(N), bp.local_blocks(X, rows=12)))
    np.testing.assert_array_equal(problem.at({})[2].weight, WEIGHT)
    problem = read_model(model(intervals, np.arange(N), bp.local_blocks(X, rows=12)))
    np.testing.assert_array_equal(problem.at({})[2].ends, np.stack([LOWER, UPPER], axis=1))


def test_noise_of_pymc_that_is_one_number_is_sampled_in_blocks():
    blocks, held = bp.local_blocks(X, rows=12), X[:, 0]
    with pm.Model() as gaussian:
        sigma = pm.LogNormal("sigma", -1.0, 0.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7)).prior("f", X=X, jitter=1e-3, blocks=blocks)
        pm.Normal("y", f, sigma, observed=Y)
    logp = bp.marginalize(bp.MeanField(), gaussian).compile_logp(jacobian=False)
    together = blocks.label[:, None] == blocks.label
    for value in (0.1, 0.4):
        K = together * np.exp(-0.5 * ((held[:, None] - held) / 0.7) ** 2) + (1e-3 + value**2) * np.eye(N)
        truth = multivariate_normal(cov=K).logpdf(Y) + lognorm.logpdf(value, 0.5, scale=np.exp(-1.0))
        assert logp({"sigma_log__": np.log(value)}) == pytest.approx(truth, abs=1e-6)
