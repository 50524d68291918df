"""Leave-one-out against refits, against ratios of evidences, and inside ArviZ."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import annealed, laplace, mean_field
from bsvr_pp.losses import gaussian, huber, pinball, soft_insensitive

AT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 8.0, "epsilon": 0.1}


def problem(n=20):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-4, 4, n))
    y = np.sin(x) + 0.2 * rng.normal(size=n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.5 + 1e-6 * np.eye(n), y


def without(K, y, i):
    others = np.arange(y.size) != i
    return K[np.ix_(others, others)], y[others]


@pytest.mark.parametrize("approximate", [laplace, mean_field])
def test_gaussian_noise_is_exact(approximate):
    """Rasmussen & Williams 2006, (5.10)-(5.12)."""
    K, y = problem()
    posterior, inverse = approximate(K, y, gaussian(25.0)), np.linalg.inv(K + np.eye(20) / 25)
    variance = 1 / np.diag(inverse)
    expected = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (inverse @ y) ** 2 * variance
    np.testing.assert_allclose(posterior.log_loo(y, gaussian(25.0)), expected, rtol=1e-8)
    np.testing.assert_allclose(posterior.cavity_mean, y - variance * (inverse @ y), rtol=1e-8)
    np.testing.assert_allclose(posterior.cavity_variance, variance - 1 / 25, rtol=1e-7)


@pytest.mark.parametrize("noise", [soft_insensitive(8.0, 0.1, 0.3), huber(6.0, 0.1), pinball(6.0, 0.3)], ids=repr)
def test_mean_field_is_close_to_the_ratio_of_evidences(noise):
    """log p(y_i | others) = log p(y) - log p(others), by annealing."""
    K, y = problem()
    found = mean_field(K, y, noise).log_loo(y, noise)
    whole = annealed(K, y, noise, particles=1000, random_seed=0)
    for i in (0, 7, 13):
        rest = annealed(*without(K, y, i), noise, particles=1000, random_seed=1)
        error = np.hypot(whole.standard_error, rest.standard_error)
        assert found[i] == pytest.approx(whole.log_evidence - rest.log_evidence, abs=0.03 + 4 * error)


def test_laplace_is_close_to_its_refits():
    K, y = problem()
    noise = soft_insensitive(8.0, 0.1, 0.3)
    found = laplace(K, y, noise, curvature="local").log_loo(y, noise)
    refits = []
    for i in range(20):
        posterior = laplace(*without(K, y, i), noise, curvature="local")
        mean, variance = posterior.predict(np.delete(K[i], i)[None], [K[i, i]])
        refits.append(float(noise.tilted(mean, variance, y[i : i + 1])[0][0]))
    assert np.sum(found) == pytest.approx(np.sum(refits), abs=1.5)
    assert np.median(np.abs(found - refits)) < 0.05


def test_results_side_by_side(sinc_model, sinc_results):
    model, data = sinc_model
    elpd = {name: bp.loo(sinc_results[name], model=model) for name in ("Laplace", "mean field", "NUTS")}
    table = az.compare(elpd)
    assert set(table.index) == set(elpd)
    field = elpd["mean field"]
    assert field.kind == "loo"
    assert field.elpd == pytest.approx(float(field.elpd_i.sum()))
    assert field.n_data_points == data.y.size
    assert 0 < field.p < data.y.size
    assert "cavities of mean field" in str(field)
    assert field.elpd == pytest.approx(elpd["NUTS"].elpd, abs=4.0)  # integrates the hyperparameters, few draws


def test_map_has_none(sinc_model, sinc_results):
    with pytest.raises(ValueError, match="MAP has none"):
        bp.loo(sinc_results["MAP"], model=sinc_model[0])


def test_another_model_is_refused(sinc_results):
    other = bp.default_model(np.linspace(0, 1, 10)[:, None], np.linspace(0, 1, 10), kernel="rbf")
    with pytest.raises(ValueError, match="different numbers of training points"):
        bp.loo(sinc_results["mean field"], model=other)
    with pm.Model() as unlike:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("width"))).prior("f", X=np.zeros((24, 1)))
        pm.Normal("y", mu=f, sigma=1.0, observed=np.zeros(24))
    with pytest.raises(ValueError, match="no variable 'width'"):
        bp.loo(sinc_results["mean field"], model=unlike)
