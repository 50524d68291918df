"""Simulation-based calibration: uniform for what is right, not for what is wrong; the layout that ArviZ plots."""

from functools import partial
from types import SimpleNamespace

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import nutpie
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import gamma, kstest, norm

import bsvr_pp as bp
from bsvr_pp.assess.calibrate import _simulate
from tests.helpers import process_model, soft

X = np.linspace(-2, 2, 12)[:, None]
Y = np.sin(X[:, 0])
METHOD = bp.NUTS(latent=bp.MeanField(), draws=100, tune=150)


def model_of(centre=0.5):
    return process_model(soft, X, C=lambda: pm.LogNormal("C", centre, 0.5), epsilon=0.3, observed=Y)


def vector():
    """A model whose hyperparameters are one vector."""
    scale = partial(pm.LogNormal, "scale", 0.0, 0.5, shape=2)
    return process_model(lambda name, f, v: soft(name, f, C=2 * v[0], epsilon=0.2 * v[1], observed=Y), X, v=scale)


@pytest.mark.parametrize("draws", [60, 250])
def test_ranks_by_hand(monkeypatch, draws):
    calls, targets = [], []

    def sample(compiled, **options):
        calls.append(options)
        scale = np.random.default_rng(options["seed"]).lognormal(0.0, 0.5, (options["chains"], options["draws"], 2))
        posterior = xr.Dataset({"scale": (("chain", "draw", "scale_dim_0"), scale)})
        diverging = xr.Dataset({"diverging": (("chain", "draw"), scale[..., 0] > 2.0)})
        return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": diverging})

    def with_data(**data):
        targets.extend(data.values())

    monkeypatch.setattr(nutpie, "compile_pymc_model", lambda *_, **__: SimpleNamespace(with_data=with_data))
    monkeypatch.setattr(nutpie, "sample", sample)
    method = bp.NUTS(latent=bp.MeanField(), draws=draws, tune=30, target_accept=0.7)
    found = bp.calibrate(method, vector(), simulations=5, random_seed=1, progressbar=False)
    ranks, truth = found["prior_sbc"]["scale"], found["truth"]["scale"]
    assert (ranks.dims, ranks.shape) == (("chain", "draw", "scale_dim_0"), (1, 5, 2))
    assert (truth.dims, truth.shape) == (("draw", "scale_dim_0"), (5, 2))
    for call in calls:
        assert (call["draws"], call["tune"], call["chains"], call["target_accept"]) == (draws, 30, 1, 0.7)
    assert len({call["seed"] for call in calls}) == len({tuple(y) for y in targets}) == 5
    assert np.shape(targets) == (5, 12)
    for i, call in enumerate(calls):
        scale = np.random.default_rng(call["seed"]).lognormal(0.0, 0.5, (draws, 2))
        assert found["diagnostics"]["divergences"][i] == (scale[:, 0] > 2.0).sum()
        # At most a hundred draws, evenly spaced, have one place more.
        kept = scale[np.linspace(0, draws - 1, min(draws, 100)).astype(int)]
        expected = ((kept < truth.values[i]).sum(axis=0) + 0.5) / (len(kept) + 1)
        np.testing.assert_allclose(ranks.values[0, i], expected)
    assert 0.3 * draws < float(found["diagnostics"]["ess"].mean()) < 1.5 * draws


@pytest.fixture(scope="module")
def ranks():
    return bp.calibrate(METHOD, model_of(), simulations=40, random_seed=1, progressbar=False)


@pytest.mark.slow
def test_the_right_model_has_uniform_ranks(ranks):
    found = ranks["prior_sbc"].to_dataset()["C"].values
    assert found.shape == (1, 40)
    # One of the 101 places that a value has among 100 draws.
    np.testing.assert_allclose(101 * found % 1, 0.5)
    assert ((found > 0) & (found < 1)).all()
    assert kstest(found[0], "uniform").pvalue > 0.01
    # The truths are draws of the prior.
    assert kstest(np.log(ranks["truth"].to_dataset()["C"].values), norm(0.5, 0.5).cdf).pvalue > 0.01
    assert 20 < float(ranks["diagnostics"].to_dataset()["ess"].mean()) < 150


@pytest.mark.slow
def test_the_wrong_prior_is_found_out(monkeypatch):
    monkeypatch.setattr("bsvr_pp.assess.calibrate._simulate", lambda _, *given: _simulate(model_of(), *given))
    found = bp.calibrate(METHOD, model_of(centre=1.5), simulations=24, random_seed=1, progressbar=False)
    values = found["prior_sbc"].to_dataset()["C"].values[0]
    assert kstest(values, "uniform").pvalue < 1e-3
    assert values.mean() < 0.4


@pytest.mark.slow
def test_arviz_plots_it(ranks):
    az.plot_ecdf_pit(ranks, backend="matplotlib")
    plt.close("all")


@pytest.mark.slow
def test_processes_do_not_change_the_ranks():
    few = [bp.calibrate(METHOD, model_of(), simulations=4, n_jobs=n, random_seed=2, progressbar=False) for n in (1, 2)]
    np.testing.assert_array_equal(*(f["prior_sbc"].to_dataset()["C"].values for f in few))


@pytest.mark.slow
def test_coefficients_have_no_ranks_and_targets_need_not_come_last():
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        mu = f + X @ pm.Normal("b", 0, 1, shape=1)
        bp.Huber("y", mu, C=pm.LogNormal("C", 0.5, 0.5), epsilon=0.3, observed=Y)
        pm.Normal("unused", 0.0, 1.0)
    few = bp.NUTS(latent=bp.MeanField(), draws=20, tune=20)
    found = bp.calibrate(few, model, simulations=2, random_seed=1, progressbar=False)
    assert set(found["prior_sbc"].data_vars) == {"C", "unused"}


@pytest.mark.slow
def test_targets_may_be_counts():
    """The posterior of the rate is a gamma distribution."""
    with pm.Model() as counts:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=np.arange(6))
    found = bp.calibrate(bp.NUTS(draws=400, tune=100), counts, simulations=10, random_seed=1, progressbar=False)
    truth, targets = _simulate(counts, 10, 1)
    expected = gamma(2.0 + targets.sum(axis=1), scale=1.0 / 7.0).cdf(truth["rate"])
    assert targets.dtype.kind == "i" and np.ptp(expected) > 0.5
    np.testing.assert_allclose(found["prior_sbc"]["rate"].values[0], expected, atol=0.2)


@pytest.mark.slow
def test_targets_may_be_ordered_classes():
    noise = {"cutpoints": [-0.5, 0.5], "C": 2.0, "observed": np.arange(12) % 3}
    classes = process_model(bp.Ordinal, X, factor=lambda: pm.HalfNormal("s", 1.0) ** 2, **noise)
    few = bp.NUTS(latent=bp.MeanField(), draws=60, tune=100)
    ranks = bp.calibrate(few, classes, simulations=8, random_seed=1, progressbar=False)["prior_sbc"]["s"].values[0]
    assert kstest(ranks, "uniform").pvalue > 0.01
