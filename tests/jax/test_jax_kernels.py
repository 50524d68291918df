"""Squared distances of PyMC's kernels are found in a graph, and nothing else is taken for one."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from bsvr_pp.model.compiled import quick

pytest.importorskip("jax", reason="JAX is not installed")

from bsvr_pp.jax.back_end import NonNegative, _with_distances

X = pt.matrix("X", shape=(None, 2))
LS = pt.dscalar("ls")


def count(graph):
    return sum(v.owner is not None and isinstance(v.owner.op, NonNegative) for v in ancestors([graph]))


@pytest.mark.parametrize("kernel", [pm.gp.cov.ExpQuad, pm.gp.cov.Matern32, pm.gp.cov.Matern52, pm.gp.cov.Exponential])
def test_distances_are_found_and_gradients_are_the_same(kernel):
    K = quick(kernel(2, ls=LS)(X))
    changed = _with_distances(K)
    assert (count(K), count(changed)) == (0, 1)
    weight = pt.matrix("weight")
    gradients = [pt.grad(pt.sum(graph * weight), LS) for graph in (K, changed)]
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(5, 2)), 0.7, (lambda m: m + m.T)(rng.normal(size=(5, 5)))
    both = pytensor.function([X, LS, weight], [*gradients, K, changed], mode="FAST_COMPILE")(*inputs)
    assert both[0] == pytest.approx(both[1], rel=1e-10)
    np.testing.assert_array_equal(both[2], both[3])


def test_a_cut_off_that_is_no_distance_keeps_its_derivative():
    W = pt.matrix("W")
    for graph in (pt.maximum(pt.dot(X, W) + 1.0, 0.0), pt.maximum(2.0 * pt.dot(X, W) + 1.0, 0.0), pt.maximum(X, 0.0)):
        assert count(_with_distances(graph)) == 0
