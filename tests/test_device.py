"""Which device a fit uses, and that it gives the result of the processor."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp import _device
from bsvr_pp._device import PROCESSOR, device_for, device_named
from bsvr_pp.inference import budget

N = 30


@pytest.fixture
def no_jax(monkeypatch):
    monkeypatch.setattr(_device, "load_jax", lambda: None)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, size=(N, 1)), axis=0)
    with pm.Model() as model:
        C = pm.LogNormal("C", 1, 1.0)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, blocks=bp.local_blocks(X, N // 2))
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]) + 0.1 * rng.normal(size=N))
    return model


def test_the_processor_needs_no_jax(no_jax):
    assert device_named("cpu") is PROCESSOR
    assert device_named("auto") is PROCESSOR
    for name in ("gpu", "jax"):
        with pytest.raises(ValueError, match=f"device='{name}' needs JAX, which is not installed: pip install"):
            device_named(name)


def test_a_gpu_is_used_if_there_is_one(monkeypatch):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    from bsvr_pp.jax import JaxDevice

    monkeypatch.setattr(jax, "devices", lambda platform=None: [object()])
    assert device_named("auto") == device_named("gpu") == JaxDevice("gpu")

    def none(platform=None):
        raise RuntimeError("Unknown backend gpu")

    monkeypatch.setattr(jax, "devices", none)
    assert device_named("auto") is PROCESSOR
    assert device_named("jax") == JaxDevice(None)
    with pytest.raises(ValueError, match="device='gpu' needs a GPU that JAX can use, and it finds none"):
        device_named("gpu")


def test_what_a_device_can_do(monkeypatch):
    device = _device.Device()
    monkeypatch.setattr(_device, "device_named", lambda name: PROCESSOR if name == "cpu" else device)
    assert device_for("gpu", bp.MeanField(), True) is device_for("auto", bp.MeanField(), True) is device
    assert device_for("cpu", bp.Laplace(), False) is PROCESSOR
    for method in (bp.Laplace(), bp.Laplace(curvature="local"), bp.MAP(), bp.NUTS(latent=bp.MeanField())):
        assert device_for("auto", method, True) is PROCESSOR
        with pytest.raises(ValueError, match=r"device='gpu' computes mean field alone, got inference by .*: use"):
            device_for("gpu", method, True)
    assert device_for("auto", bp.MeanField(), False) is PROCESSOR
    with pytest.raises(ValueError, match="device='jax' takes exact targets, and y has intervals"):
        device_for("jax", bp.MeanField(), False)


def test_a_device_without_jax_is_refused(model, no_jax):
    with pytest.raises(ValueError, match="device='jax' needs JAX, which is not installed: pip install"):
        bp.fit(bp.MeanField(), model, device="jax")
    assert bp.fit(bp.MeanField(), model, hyperparameters={"C": 5.0}, device="auto").attrs["converged"]


def test_laplace_on_a_device_is_refused(model):
    pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(ValueError, match=r"got inference by Laplace \(local\): use bp.MeanField\(\) or device='cpu'"):
        bp.fit(bp.Laplace(curvature="local"), model, device="jax")
    X = np.arange(10.0)[:, None]
    with pytest.raises(ValueError, match="device='jax' computes mean field alone, got inference by Laplace: use"):
        bp.BayesianSVR(inference="laplace", blocks=bp.LocalBlocks(device="jax")).fit(X, np.sin(X[:, 0]))


def test_a_fit_in_blocks_is_that_of_the_processor(model):
    pytest.importorskip("jax", reason="JAX is not installed")
    options = {"hyperparameters": {"C": 5.0}, "progressbar": False}
    here, there = (bp.fit(bp.MeanField(), model, device=device, **options) for device in ("cpu", "jax"))
    assert there.attrs["log_evidence"] == pytest.approx(here.attrs["log_evidence"], abs=1e-8)
    assert "support" not in there["latent_posterior"]
    new = np.array([[0.5], [5.0]])
    for name in ("f_mean", "f_variance"):
        one, other = (bp.predict(fit, new, model=model)[name].values for fit in (here, there))
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_a_search_runs_on_the_device(model, monkeypatch):
    pytest.importorskip("jax", reason="JAX is not installed")
    from bsvr_pp.jax.device import Evidences

    calls, evaluate = [], Evidences.__call__

    def counted(self, values, starts):
        found = evaluate(self, values, starts)
        calls.append(len(found))
        return found

    monkeypatch.setattr(Evidences, "__call__", counted)
    options = {"restarts": 1, "random_seed": 0, "progressbar": False}
    here, there = (bp.fit(bp.MeanField(), model, device=device, **options) for device in ("cpu", "jax"))
    assert len(calls) > 2 and set(calls) == {2}  # both blocks
    C = [float(fit["posterior"]["C"].mean()) for fit in (here, there)]
    assert C[1] == pytest.approx(C[0], rel=1e-4)


def test_seconds_of_the_processor_are_not_said_of_a_device(monkeypatch):
    monkeypatch.setattr(budget, "available_memory", lambda: 1e12)
    with pytest.warns(UserWarning, match="takes at least about"):
        budget.check_budget(bp.MeanField(), 20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget.check_budget(bp.MeanField(), 20_000, on_device=True)
    monkeypatch.setattr(budget, "available_memory", lambda: 1e9)
    with pytest.raises(MemoryError, match="20000 rows needs about"):
        budget.check_budget(bp.MeanField(), 20_000, on_device=True)
