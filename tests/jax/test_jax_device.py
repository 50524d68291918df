"""Posteriors and evidences on a device of JAX: those of the compiled core."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import bsvr_pp as bp
from bsvr_pp.approximations import BlockDiagonal
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.search.optimize import SearchObjective, initial_point
from bsvr_pp.losses import LOSSES, Loss
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.problem import read_model

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytestmark = pytest.mark.slow  # XLA compiles for long

from bsvr_pp.jax import device as device_module  # noqa: E402
from bsvr_pp.jax import solve  # noqa: E402
from bsvr_pp.jax.back_end import prior_at  # noqa: E402
from bsvr_pp.jax.device import Evidences, JaxDevice  # noqa: E402

RNG = np.random.default_rng(0)
N = 45
# Distances of one input are not an inner product of vectors, which XLA computes in several ways.
X = np.sort(RNG.uniform(0, 12, size=(N, 1)), axis=0)
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.laplace(size=N)
LABEL = np.repeat([0, 1, 2], [16, 15, 14])
MEAN_FIELD = bp.MeanField()


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    """Of XLA's optimisations only the necessary ones: they take longer than all evaluations."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def problem():
    with pm.Model() as model:
        ls = pm.Gamma("ls", 2, 2)
        C, epsilon = pm.LogNormal("C", 2, 1), pm.LogNormal("epsilon", -2, 1)
        gp = bp.GP(mean_func=pm.gp.mean.Linear(coeffs=0.1), cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
        f = gp.prior("f", X=X, blocks=Blocks(LABEL))
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=Y)
    return read_model(model)


@pytest.fixture(scope="module")
def on_device(problem):
    return replace(problem, device=JaxDevice(None))


@pytest.fixture
def on_new_device(problem):
    """The problem without the functions that were compiled before."""
    return replace(problem, device=JaxDevice(None), functions={})


@pytest.fixture
def solved_here(monkeypatch):
    """Numbers of the blocks that the processor solved."""
    seen = []
    part = BlockDiagonal.each

    def each(self, function, known=None):
        seen.extend(b for b in range(len(self.rows)) if b not in (known or {}))
        return part(self, function, known)

    monkeypatch.setattr(BlockDiagonal, "each", each)
    return seen


def assert_same(found, expected):
    assert found.converged == expected.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    sd = np.sqrt(expected.variance)
    # Both moments match to 1e-8 standard deviations; sites are their derivatives.
    np.testing.assert_allclose(found.mean / sd, expected.mean / sd, atol=3e-8)
    for name in ("variance", "cavity_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7, err_msg=name)
    for name in ("dual_coef", "site_precision"):
        scale = np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6 * scale, err_msg=name)


def test_the_posterior_is_that_of_the_compiled_core(problem, on_device, solved_here):
    point = initial_point(problem)
    expected = solve_at(problem, MEAN_FIELD, point)
    solved_here.clear()
    found = solve_at(on_device, MEAN_FIELD, point)
    assert solved_here == []
    assert_same(found, expected)
    assert found.support.shape == (0,)  # the mode was not sought
    new = problem.cross(point, X[:3] + 0.01)
    for one, other in zip(found.predict(*new), expected.predict(*new), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_covariances_are_those_of_the_processor(problem):
    point, rows = initial_point(problem), np.array([0, 1, 2, 5, 9, 9])
    arguments = problem.arguments(point)[: len(problem.variables)]
    found = np.asarray(prior_at(problem)(*arguments, problem.rows.matrix[rows], *problem.data.values())[0])
    K = problem.take(rows).at(point)[0]
    expected = [K.matvec(column) for column in np.eye(6)]
    np.testing.assert_allclose(found + problem.prior.jitter * np.eye(6), expected, atol=1e-12)


def test_sweeps_that_take_long_are_finished_by_the_core(problem, on_new_device, solved_here, monkeypatch):
    point = initial_point(problem)
    expected = solve_at(problem, MEAN_FIELD, point)
    solved_here.clear()
    monkeypatch.setattr(solve, "_OF_A_BATCH", 3)
    assert_same(solve_at(on_new_device, MEAN_FIELD, point), expected)
    assert solved_here == [0, 1, 2]


def test_what_does_not_converge_on_the_device_is_solved_by_the_core(problem, on_new_device, solved_here, monkeypatch):
    solve_batch = device_module.solve_batch

    def broken(*arguments, **options):
        found = solve_batch(*arguments, **options)
        return found._replace(converged=found.converged.at[1].set(False), dual_coef=found.dual_coef.at[1].set(np.nan))

    monkeypatch.setattr(device_module, "solve_batch", broken)
    point = initial_point(problem)
    expected = solve_at(problem, MEAN_FIELD, point)
    solved_here.clear()
    found = solve_at(on_new_device, MEAN_FIELD, point)
    assert len(solved_here) == 1
    assert_same(found, expected)


def test_too_little_memory_is_said(on_new_device, monkeypatch):
    def failing(text):
        def full(*arguments):
            raise jax.errors.JaxRuntimeError(text)

        monkeypatch.setattr(device_module, "_posteriors", lambda problem: full)
        solve_at(replace(on_new_device, functions={}), MEAN_FIELD, initial_point(on_new_device))

    with pytest.raises(MemoryError, match="too small for these blocks"):
        failing("RESOURCE_EXHAUSTED: Out of memory")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        failing("INTERNAL: something else")


def test_the_memory_of_the_processor_is_a_part_of_what_is_free(monkeypatch):
    handle = SimpleNamespace(memory_stats=lambda: None)
    monkeypatch.setattr(jax, "devices", lambda platform=None: [handle])
    monkeypatch.setattr(device_module.psutil, "virtual_memory", lambda: SimpleNamespace(available=4000))
    assert JaxDevice(None).memory == 1000.0
    handle.memory_stats = lambda: {"bytes_limit": 1000}
    assert JaxDevice("gpu").memory == pytest.approx(700.0)


def test_evidence_and_gradient_are_those_of_the_processor(problem, on_device, exactly):
    here, there = (SearchObjective(p, MEAN_FIELD, {}, "posterior") for p in (problem, on_device))
    x = here.pack(initial_point(problem))
    for at in (x, x + 0.05, x + 0.5, x - 1.0):  # the second is warm-started
        value, gradient = here(at)
        found, by = there(at)
        assert found == pytest.approx(value, abs=1e-8 * abs(value))
        np.testing.assert_allclose(by, gradient, atol=1e-6 * max(1.0, np.abs(gradient).max()))


def test_blocks_that_fail_on_the_device_are_evaluated_here(problem, on_device, monkeypatch):
    here, there = (SearchObjective(p, MEAN_FIELD, {}, "evidence", warm_starts=False) for p in (problem, on_device))
    evaluate = Evidences.__call__

    def without_one(self, values, starts):
        found = evaluate(self, values, starts)
        del found[1]
        return found

    monkeypatch.setattr(Evidences, "__call__", without_one)
    x = here.pack(initial_point(problem))
    np.testing.assert_allclose(there(x)[0], here(x)[0], rtol=1e-8)
    np.testing.assert_allclose(there(x)[1], here(x)[1], rtol=1e-3, atol=1e-3)


def test_other_methods_and_intervals_are_left_to_the_core(problem, on_device, solved_here):
    point, device = initial_point(problem), JaxDevice(None)
    for method in (bp.Laplace(), bp.Laplace(curvature="local")):
        assert device.evidences(problem, method) is None
        assert solve_at(on_device, method, point).log_evidence == solve_at(problem, method, point).log_evidence
    assert solved_here == [0, 1, 2] * 4
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        noise = bp.SoftInsensitive.dist(mu=f, C=5.0, epsilon=0.1, beta=0.3)
        pm.Censored("y", noise, lower=-1.0, upper=None, observed=np.maximum(Y, -1.0))
    censored = read_model(model)
    assert device.posteriors(censored, MEAN_FIELD, {}) == {}
    assert device.evidences(censored, MEAN_FIELD) is None


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
    with pytest.raises(ValueError, match="device must be 'cpu' for this model"):
        bp.fit(MEAN_FIELD, model, hyperparameters={"ls": 1.0}, device="jax", progressbar=False)


def test_a_new_loss_needs_nothing_else(problem, monkeypatch):
    new = Loss("new", ("C",), lambda C: ((0.0, 0.0), (0.0, 0.0), (-C, -C, 2.0 * C), (0.0, C)))
    monkeypatch.setitem(LOSSES, "new", new)
    here = replace(problem, loss=new, parameters=problem.parameters[:1], functions={})
    there = replace(here, device=JaxDevice(None), functions={})
    point = initial_point(problem)
    assert len(there.device.posteriors(there, MEAN_FIELD, point)) == 3
    assert_same(solve_at(there, MEAN_FIELD, point), solve_at(here, MEAN_FIELD, point))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "noise"),
    [("rbf", "absolute"), ("matern32", "pinball"), ("matern52", "gaussian"), ("linear", "epsilon_insensitive")],
)
def test_gradients_of_all_kernels_and_of_dense_problems(kernel, noise, exactly):
    inputs = np.hstack([X, np.cos(X)])
    options = {"quantile": 0.3} if noise == "pinball" else {}
    dense = read_model(bp.default_model(inputs, Y, noise=noise, kernel=kernel, **options))
    there = replace(dense, device=JaxDevice(None))
    evaluate = SearchObjective(dense, MEAN_FIELD, {}, "posterior", warm_starts=False)
    x = evaluate.pack(initial_point(dense))
    value, gradient = evaluate(x)
    found, by = SearchObjective(there, MEAN_FIELD, {}, "posterior", warm_starts=False)(x)
    assert found == pytest.approx(value, abs=1e-8 * abs(value))
    np.testing.assert_allclose(by, gradient, atol=1e-6 * max(1.0, np.abs(gradient).max()))
    posterior, expected = (solve_at(p, MEAN_FIELD, initial_point(dense)) for p in (there, dense))
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-8)
    new = dense.cross(initial_point(dense), inputs[:3] + 0.1)
    for one, other in zip(posterior.predict(*new), expected.predict(*new), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
