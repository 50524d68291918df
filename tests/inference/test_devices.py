"""Which device a fit uses, and that it gives the result of the processor."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp import _device
from bsvr_pp._device import Device
from bsvr_pp.inference import budget, devices
from bsvr_pp.inference.device_evidence import DeviceEvidence
from bsvr_pp.inference.devices import device_for

N = 30
LOCAL = bp.Laplace(curvature="local")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, size=(N, 1)), axis=0)
    with pm.Model() as model:
        C = pm.LogNormal("C", 1, 1.0)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, blocks=bp.local_blocks(X, N // 2))
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]) + 0.1 * rng.normal(size=N))
    return model


def test_what_a_device_can_do(monkeypatch):
    monkeypatch.setattr(devices, "device_named", lambda name: None if name == "cpu" else Device(None))
    for method in (bp.MeanField(), LOCAL):
        assert device_for("gpu", method, True) == device_for("auto", method, True) == Device(None)
    assert device_for("cpu", bp.Laplace(), False) is None
    for method in (bp.Laplace(), bp.MAP(), bp.NUTS(latent=bp.MeanField())):
        assert device_for("auto", method, True) is None
        with pytest.raises(ValueError, match="device='gpu' computes mean field and local Laplace, got inference by"):
            device_for("gpu", method, True)
    assert device_for("auto", bp.MeanField(), False) is None
    with pytest.raises(ValueError, match="device='jax' takes exact targets, and y has intervals"):
        device_for("jax", bp.MeanField(), False)


def test_a_device_without_jax_is_refused(model, monkeypatch):
    monkeypatch.setattr(_device, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="device='jax' needs JAX, which is not installed: pip install"):
        bp.fit(LOCAL, model, device="jax")
    assert bp.fit(LOCAL, model, hyperparameters={"C": 5.0}, device="auto").attrs["converged"]


@pytest.mark.parametrize("method", [pytest.param(bp.MeanField(), marks=pytest.mark.slow), LOCAL], ids=repr)
def test_a_fit_in_blocks_is_that_of_the_processor(method, model, monkeypatch):
    pytest.importorskip("jax", reason="JAX is not installed")
    here, there = (bp.fit(method, model, hyperparameters={"C": 5.0}, device=device) for device in ("cpu", "jax"))
    assert there.attrs["log_evidence"] == pytest.approx(here.attrs["log_evidence"], abs=1e-8)
    assert ("support" in there["latent_posterior"]) == (method == LOCAL)
    new = np.array([[0.5], [5.0]])
    for name in ("f_mean", "f_variance"):
        one, other = (bp.predict(fit, new, model=model)[name].values for fit in (here, there))
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_a_search_runs_on_the_device(model, monkeypatch):
    pytest.importorskip("jax", reason="JAX is not installed")
    calls, evaluate = [], DeviceEvidence.__call__

    def counted(self, values, starts):
        found = evaluate(self, values, starts)
        calls.append(len(found))
        return found

    monkeypatch.setattr(DeviceEvidence, "__call__", counted)
    here, there = (
        bp.fit(LOCAL, model, restarts=1, random_seed=0, progressbar=False, device=device) for device in ("cpu", "jax")
    )
    assert len(calls) > 2 and set(calls) == {2}  # both blocks
    C = [float(fit["posterior"]["C"].mean()) for fit in (here, there)]
    assert C[1] == pytest.approx(C[0], rel=1e-4)


def test_seconds_of_the_processor_are_not_said_of_a_device(monkeypatch):
    monkeypatch.setattr(budget, "available_memory", lambda: 1e12)
    with pytest.warns(UserWarning, match="takes at least about"):
        budget.check_budget(LOCAL, 20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget.check_budget(LOCAL, 20_000, on_device=True)
    monkeypatch.setattr(budget, "available_memory", lambda: 1e9)
    with pytest.raises(MemoryError, match="20000 rows needs about"):
        budget.check_budget(LOCAL, 20_000, on_device=True)
