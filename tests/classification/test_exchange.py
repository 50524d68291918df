"""Sampled hyperparameters of labels against their posterior by quadrature, and simulated ones against their prior."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from problems import factor_grid
from scipy.special import logsumexp
from scipy.stats import kstest
from svm_toy import Hinge

import bsvr_pp as bp
from bsvr_pp import classification
from bsvr_pp.classification.normaliser import Known
from bsvr_pp.inference.protocol import Options
from bsvr_pp.losses import hinge
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

X2, Y2 = np.array([[-0.3], [0.1]]), np.array([1, 1])
CENTRE = np.log(2.0)


def model(X=X2, y=Y2, sd=1.0):
    C, kernel = partial(pm.LogNormal, "C", CENTRE, sd), 0.4 * pm.gp.cov.ExpQuad(1, ls=1.0) + pm.gp.cov.Constant(0.1)
    return process_model(bp.SVMLabel, X, kernel=lambda: kernel, C=C, observed=y)


def moments(normalised):
    """Posterior mean and standard deviation of log C."""
    K = 0.4 * np.exp(-0.5 * (X2 - X2.T) ** 2) + 0.1 + 1e-6 * np.eye(2)
    line = np.linspace(CENTRE - 4, CENTRE + 4, 25)
    level = -0.5 * (line - CENTRE) ** 2
    for i, C in enumerate(np.exp(line)):
        level[i] += logsumexp(factor_grid(K, Hinge(C, Y2))[1])
        if normalised:
            level[i] -= logsumexp(factor_grid(K, Known(C))[1])
    weight = np.exp(level - logsumexp(level))
    mean = weight @ line
    return mean, np.sqrt(weight @ (line - mean) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [500, 0])
def test_the_posterior_of_C_is_that_of_the_normalised_evidence(restarts):
    method = classification.Exchange(draws=500, tune=100, chains=2, steps=3, restarts=restarts)
    result = bp.fit(method, model(), random_seed=1, progressbar=False)
    mean, sd = moments(normalised=True)
    draws = np.log(result["posterior"]["C"].values)
    blocks = draws.reshape(20, -1).mean(axis=1)
    error = blocks.std(ddof=1) / np.sqrt(20)
    assert abs(draws.mean() - mean) < 4 * error and error < 0.1
    assert abs(draws.std() / sd - 1) < 0.15
    assert abs(moments(normalised=False)[0] - mean) > 6 * error  # the naive evidence has another posterior
    stats = result["sample_stats"]
    assert 0.1 < float(stats["acceptance_rate"].mean()) < 0.7
    assert float(stats["exact"].mean()) == (1.0 if restarts else pytest.approx(0.0, abs=0.01))
    assert result.attrs["inference"] == "exchange" and result.attrs["r_hat"] < 1.05
    assert result.attrs["converged"] == int(result.attrs["r_hat"] <= 1.01 and result.attrs["ess"] >= 200)


@pytest.fixture(scope="module")
def classified():
    """Forty labels, and two of three hyperparameters sampled."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (40, 1))
    y = np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(40) > 0, 1, -1)
    ls, factor = partial(pm.LogNormal, "lengthscale", 0.0, 0.5), partial(pm.LogNormal, "amplitude", 1.0, 1.0)
    built = process_model(bp.SVMLabel, X, ls, factor, C=partial(pm.LogNormal, "C", 0.0, 1.0), observed=y)
    method = classification.Exchange(draws=25, tune=25, chains=2, steps=2)
    with pytest.warns(UserWarning, match="exchange did not converge: .*effective draws"):
        result = bp.fit(method, built, hyperparameters={"lengthscale": 0.8}, random_seed=1, progressbar=False)
    return X, y, built, result


@pytest.mark.slow
def test_the_result_is_like_the_others(classified):
    X, y, built, result = classified
    posterior = result["posterior"].to_dataset()
    assert posterior["C"].shape == (2, 25) and posterior["f"].shape == (2, 25, 40)
    assert (posterior["lengthscale"] == 0.8).all() and posterior["amplitude"].std() > 0
    for group in ("log_likelihood", "posterior_predictive", "leave_one_out", "latent_draws", "sample_stats"):
        assert group in result.children
    assert set(np.unique(result["posterior_predictive"]["y"])) <= {-1.0, 1.0}
    prediction = bp.predict(result, X, model=built)
    assert np.mean((prediction["y_probability"].values > 0.5) == (y > 0)) > 0.8
    assert result.attrs["converged"] == 0 and "effective draws (< 200)" in result.attrs["message"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_draws(classified):
    _, _, built, _ = classified
    short, given = classification.Exchange(draws=5, tune=5, chains=2, steps=1), {"lengthscale": 0.8}
    with pytest.warns(UserWarning, match="did not converge"):
        one, two = (bp.fit(short, built, hyperparameters=given, random_seed=1, progressbar=False) for _ in range(2))
    assert (one["posterior"]["C"].values == two["posterior"]["C"].values).all()


@pytest.mark.slow
def test_simulated_hyperparameters_have_uniform_ranks():
    """Simulation-based calibration (Talts et al. 2018): log C from its prior, labels by restarts."""
    rng = np.random.default_rng(3)
    X = np.linspace(-1, 1, 5)[:, None]
    K = 0.4 * np.exp(-0.5 * (X - X.T) ** 2) + 0.1 + 1e-6 * np.eye(5)
    root, ranks = np.linalg.cholesky(K), []

    for _ in range(40):
        C = np.exp(CENTRE + 0.7 * rng.standard_normal())
        while True:
            f = root @ rng.standard_normal(5)
            share = np.exp(hinge(C).log_density(np.stack([1 - f, 1 + f])))
            uniform = rng.random(5)
            if (uniform < share.sum(axis=0)).all():
                break
        y = np.where(uniform < share[0], 1, -1)
        method = classification.Exchange(draws=40, tune=40, chains=1, steps=5)
        found = method.run(read_model(model(X, y, sd=0.7)), {}, Options(), rng)
        ranks.append(np.mean(found.draws["posterior"]["C"].values < C))
    assert kstest(ranks, "uniform").pvalue > 0.01
