"""`BayesianSVR` on a device: the fit of the processor."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.search import at_size


def wave(n, d=1):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 12, size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.laplace(size=n)


def test_support_vectors_are_found_when_they_are_asked_for():
    X, y = wave(30)
    svr = bp.BayesianSVR(restarts=1, random_state=0)
    assert not hasattr(svr, "support_")
    svr.fit(X, y)
    first = svr.dual_coef_
    assert svr.dual_coef_ is first
    again = pickle.loads(pickle.dumps(svr))
    np.testing.assert_array_equal(again.support_, svr.support_)
    svr.fit(X[:20], y[:20])
    assert svr.dual_coef_.shape == (20,)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [None, 60])
def test_the_fit_is_that_of_the_processor(blocks, monkeypatch, tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    few = {"_SUBSET": 60, "_NEIGHBOURHOODS": 3, "_NEIGHBOURS": 40, "_HELD_OUT": 30, "_LIMIT": 8}
    for name, value in few.items():
        monkeypatch.setattr(at_size, name, value)
    X, y = wave(240 if blocks else 80)
    y[7] = 1e3  # a gross error, so that rows are fitted twice
    fits = []
    for device in ("cpu", "jax"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fits.append(bp.BayesianSVR(blocks=bp.LocalBlocks(blocks, device=device), random_state=0).fit(X, y))
    here, there = fits
    # Searches end at small gradients, not at equal points.
    assert there.log_evidence_ == pytest.approx(here.log_evidence_, abs=0.01)
    assert there.outliers_.tolist() == here.outliers_.tolist() == [7]
    for one, other in zip(here.predict(X, return_std=True), there.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
    np.testing.assert_allclose(there.dual_coef_, here.dual_coef_, atol=0.05 * here.C_)
    assert "support" not in there.result_["latent_posterior"]
    bp.save(there.result_, tmp_path / "model.nc")
    again = bp.BayesianSVR.from_result(bp.load(tmp_path / "model.nc"))
    assert again.blocks.device == "cpu"
    np.testing.assert_allclose(again.predict(X), there.predict(X), rtol=1e-10)


@pytest.mark.slow
def test_weights_on_a_device():
    pytest.importorskip("jax", reason="JAX is not installed")
    X, y = wave(60)
    weight = 1.0 + np.arange(60) % 3
    here, there = (
        bp.BayesianSVR(blocks=bp.LocalBlocks(device=device), restarts=1, random_state=0).fit(X, y, weight)
        for device in ("cpu", "jax")
    )
    assert there.log_evidence_ == pytest.approx(here.log_evidence_, abs=0.01)
    np.testing.assert_allclose(there.predict(X), here.predict(X), atol=1e-3)
