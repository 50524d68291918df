"""The certificate: weights against exact evidences, verdicts, corrections."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

DATA = sinc(20, random_seed=4)


def build(noise):
    with pm.Model() as model:
        C = pm.LogNormal("C", 1.5, 0.7)
        cov = pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("lengthscale", 5, 10))
        f = bp.GP(cov_func=cov).prior("f", X=DATA.X)
        if noise == "gaussian":
            pm.Normal("y", mu=f, sigma=1 / C, observed=DATA.y)
        else:
            bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.3, beta=0.1, observed=DATA.y)
    return model


def recovered(model, latent, draws=150):
    """Draws of the priors in the place of a posterior: what verify weights does not matter to its weights."""
    drawn = pm.draw([model["C"], model["lengthscale"]], draws=draws, random_seed=0)
    posterior = xr.Dataset({n: (("chain", "draw"), v[None]) for n, v in zip(("C", "lengthscale"), drawn, strict=True)})
    tree = bp.recover_latent(
        xr.DataTree.from_dict({"posterior": posterior}),
        model=bp.marginalize(model, latent),
        random_seed=0,
        progressbar=False,
    )
    tree.attrs["inference"] = "NUTS"
    return tree


def test_exact_evidences_need_no_correction():
    model = build("gaussian")
    result = recovered(model, bp.MeanField())
    found = bp.verify(result, model=model, particles=2000, random_seed=1, progressbar=False)
    assert np.abs(found.log_ratio).max() < 6 * found.particle_error
    assert found.k_hat < 0.5
    assert found.effective_draws > 0.99 * found.draws.size
    assert found.table["shift"].abs().max() < 0.05
    assert "can be believed" in str(found)
    assert np.exp(found.log_weights).sum() == pytest.approx(1.0)


def test_the_ratio_is_that_of_the_evidences():
    """Local Laplace against the annealed evidence at three draws."""
    model = build("soft")
    result = recovered(model, bp.Laplace(curvature="local"), draws=30)
    found = bp.verify(result, model=model, draws=30, particles=4000, random_seed=1, progressbar=False)
    posterior = result["posterior"].to_dataset()
    for s in (0, 11, 23):
        at = {name: posterior[name].values[0, s] for name in ("C", "lengthscale")}
        used = bp.log_evidence(at, method=bp.Laplace(curvature="local"), model=model).value
        truth = bp.log_evidence(at, method=bp.Annealed(), model=model, random_seed=2)
        assert found.log_ratio[s] == pytest.approx(truth.value - used, abs=0.05 + 4 * truth.standard_error)
    again = bp.verify(result, model=model, draws=30, particles=4000, random_seed=1, progressbar=False)
    np.testing.assert_array_equal(found.log_ratio, again.log_ratio)


def test_a_wrong_approximation_is_found_out():
    model = build("soft")
    result = recovered(model, bp.MeanField(), draws=100)
    wrong = result.copy()
    noise = np.random.default_rng(0).standard_t(1, (1, 100))
    evidence = result["latent_draws"].to_dataset()["log_evidence"]
    wrong["latent_draws"]["log_evidence"] = evidence + 3 * noise
    found = bp.verify(wrong, model=model, particles=50, random_seed=1, progressbar=False)
    assert found.k_hat > 0.7
    assert "sample f as well" in found.verdict


def test_bad_arguments_are_named():
    model = build("soft")
    result = recovered(model, bp.MeanField(), draws=30)
    with pytest.raises(ValueError, match="draws must be an integer of at least 25, got 3"):
        bp.verify(result, model=model, draws=3)
    with pytest.raises(ValueError, match=r"particles must be an integer of at least 2, got 1\.5"):
        bp.verify(result, model=model, particles=1.5)
    other = bp.default_model(DATA.X, DATA.y)
    with pytest.raises(ValueError, match="no hyperparameter 'epsilon'"):
        bp.verify(result, model=other)
