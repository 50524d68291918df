"""Hyperparameters on a device: kernels, evidences and gradients are those of the processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import bsvr_pp as bp
from bsvr_pp._device import Device
from bsvr_pp.inference import approximate
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.device_evidence import DeviceEvidence, runs_on_device
from bsvr_pp.inference.objective import compile_objective, initial_point
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.on_device import stack_at
from bsvr_pp.model.problem import read_model

pytest.importorskip("jax", reason="JAX is not installed")

RNG = np.random.default_rng(0)
N = 45
# Distances of one input are not an inner product of vectors, which XLA computes in several ways.
X = np.sort(RNG.uniform(0, 12, size=(N, 1)), axis=0)
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.laplace(size=N)
LABEL = np.repeat([0, 1, 2], [16, 15, 14])


@pytest.fixture(scope="module")
def problem():
    read = read_model(bp.default_model(X, Y))
    return read.with_data(X, Y, blocks=Blocks(LABEL))


@pytest.fixture
def exactly(monkeypatch):
    """Searches that end at the mismatch of a solve, so that gradients agree to more digits."""
    monkeypatch.setattr(approximate, "_SEARCH_MISMATCH", 1e-8)


@pytest.fixture(scope="module")
def on_device(problem):
    return replace(problem, device=Device(None))


def test_covariances_are_those_of_the_processor(problem, on_device):
    point = initial_point(problem)
    rows = np.array([[0, 1, 2, 5], [3, 9, 9, 3]])
    found = np.asarray(stack_at(on_device, point).make(rows))
    for place, members in enumerate(rows):
        K = problem.take(members).at(point)[0]
        expected = [K.matvec(column) for column in np.eye(4)]
        np.testing.assert_allclose(found[place], expected, atol=1e-12)
    assert stack_at(problem, point) is None


@pytest.mark.parametrize(
    "method", [bp.MeanField(), pytest.param(bp.Laplace(curvature="local"), marks=pytest.mark.slow)], ids=repr
)
def test_evidence_and_gradient_are_those_of_the_processor(method, problem, on_device, exactly):
    here, pack, _ = compile_objective(problem, method, {}, "posterior", path=True)
    there, _, _ = compile_objective(on_device, method, {}, "posterior", path=True)
    x = pack(initial_point(problem))
    for at in (x, x + 0.05, x + 0.5, x - 1.0):  # the second is warm-started
        value, gradient = here(at)
        found, by = there(at)
        assert found == pytest.approx(value, abs=1e-8 * abs(value))
        np.testing.assert_allclose(by, gradient, atol=1e-6 * max(1.0, np.abs(gradient).max()))


def test_blocks_that_fail_on_the_device_are_evaluated_here(problem, on_device, monkeypatch):
    here, pack, _ = compile_objective(problem, bp.MeanField(), {}, "evidence")
    there, _, _ = compile_objective(on_device, bp.MeanField(), {}, "evidence")
    evaluate = DeviceEvidence.__call__

    def without_one(self, values, starts):
        found = evaluate(self, values, starts)
        del found[1]
        return found

    monkeypatch.setattr(DeviceEvidence, "__call__", without_one)
    x = pack(initial_point(problem))
    np.testing.assert_allclose(there(x)[0], here(x)[0], rtol=1e-8)
    np.testing.assert_allclose(there(x)[1], here(x)[1], rtol=1e-3, atol=1e-3)


def test_which_methods_and_targets_run_there(problem, on_device):
    assert runs_on_device(on_device, bp.MeanField())
    assert not runs_on_device(problem, bp.MeanField())
    assert runs_on_device(on_device, bp.Laplace(curvature="local"))
    assert not runs_on_device(on_device, bp.Laplace())
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        noise = bp.SoftInsensitive.dist(mu=f, C=5.0, epsilon=0.1, beta=0.3)
        pm.Censored("y", noise, lower=-1.0, upper=None, observed=np.maximum(Y, -1.0))
    assert not runs_on_device(replace(read_model(model), device=Device(None)), bp.MeanField())


class Unknown(Op):
    """An operation that JAX does not know."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


def test_a_kernel_that_jax_cannot_compute_is_refused():
    class Kernel(pm.gp.cov.ExpQuad):
        def full(self, X, Xs=None):
            return Unknown()(super().full(X, Xs))

    with pm.Model() as model:
        f = bp.GP(cov_func=Kernel(1, ls=pm.Gamma("ls", 2, 1))).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=5.0, epsilon=0.1, beta=0.3, observed=Y)
    problem = replace(read_model(model), device=Device(None))
    with pytest.raises(ValueError, match="device must be 'cpu' for this model"):
        stack_at(problem, {"ls": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("method", [bp.MeanField(), bp.Laplace(curvature="local")], ids=repr)
@pytest.mark.parametrize(
    ("kernel", "noise"),
    [("rbf", "laplace"), ("matern32", "pinball"), ("matern52", "gaussian"), ("linear", "epsilon_insensitive")],
)
def test_gradients_of_all_kernels_and_of_dense_problems(kernel, noise, method, exactly):
    inputs = np.hstack([X, np.cos(X)])
    options = {"quantile": 0.3} if noise == "pinball" else {}
    dense = read_model(bp.default_model(inputs, Y, noise=noise, kernel=kernel, **options))
    there = replace(dense, device=Device(None))
    evaluate, pack, _ = compile_objective(dense, method, {}, "posterior")
    x = pack(initial_point(dense))
    value, gradient = evaluate(x)
    found, by = compile_objective(there, method, {}, "posterior")[0](x)
    assert found == pytest.approx(value, abs=1e-8 * abs(value))
    np.testing.assert_allclose(by, gradient, atol=1e-6 * max(1.0, np.abs(gradient).max()))
    posterior, expected = (solve_at(p, method, initial_point(dense)) for p in (there, dense))
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-8)
    new = dense.cross(initial_point(dense), inputs[:3] + 0.1)
    for one, other in zip(posterior.predict(*new), expected.predict(*new), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
