"""Kernels against those of PyMC, their derivatives against differences, and their compiled pieces against NumPy."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bsvr_pp as bp
from bsvr_pp.core.losses.pieces import decay
from bsvr_pp.model.kernels import log_above
from tests.helpers import differences

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(70, 3)), RNG.normal(size=(4, 3))
LS, VARIANCE = np.array([1.0, 2.0, 0.5]), np.array([1.0, 0.25, 0.04])


@settings(deadline=None)
@given(st.floats(0.0, 700.0), st.floats(0.0, 1e300))
def test_pieces(u, s):
    np.testing.assert_allclose(decay(u), np.exp(-u), rtol=5e-14)
    np.testing.assert_allclose(log_above(s), np.log1p(s), rtol=1e-15, atol=1e-300)


def test_far_and_near():
    assert decay(0.0) == 1.0 and log_above(0.0) == 0.0
    assert 0.0 <= decay(1e10) < 1e-300


def pairs():
    one = [v * pm.gp.cov.ExpQuad(3, ls=ls, active_dims=[i]) for i, (v, ls) in enumerate(zip(VARIANCE, LS, strict=True))]
    yield bp.cov.MainEffects(3, VARIANCE**0.5, LS), sum(one[1:], start=one[0])
    fine = [
        v * pm.gp.cov.ExpQuad(3, ls=ls / 4.0, active_dims=[i])
        for i, (v, ls) in enumerate(zip(VARIANCE, LS, strict=True))
    ]
    yield (
        bp.cov.MainEffects(3, VARIANCE**0.5, LS, detail=0.6),
        sum(one[1:], start=one[0]) + 0.36 * sum(fine[1:], start=fine[0]),
    )
    products = one[0] * one[1] + one[0] * one[2] + one[1] * one[2]
    yield bp.cov.MainEffects(3, VARIANCE**0.5, LS, pairs=0.7), sum(one[1:], start=one[0]) + 0.49 * products
    yield (
        bp.cov.RationalQuadratic(3, LS, inverse_alpha=0.3, variance=2.0),
        2.0 * pm.gp.cov.RatQuad(3, ls=LS, alpha=1.0 / 0.3),
    )
    yield bp.cov.RationalQuadratic(3, LS, inverse_alpha=0.0), pm.gp.cov.ExpQuad(3, ls=LS)
    yield (
        bp.cov.MainEffects(3, 2.0**0.5, 0.7, active_dims=[0, 2]),
        2.0 * pm.gp.cov.ExpQuad(3, ls=0.7, active_dims=[0]) + 2.0 * pm.gp.cov.ExpQuad(3, ls=0.7, active_dims=[2]),
    )


@pytest.mark.parametrize(("kernel", "expected"), list(pairs()))
@pytest.mark.filterwarnings("ignore:Only")
def test_matrices(kernel, expected):
    for arguments in ({"X": X}, {"X": X, "Xs": Z}, {"X": X, "diag": True}):
        np.testing.assert_allclose(kernel(**arguments).eval(), expected(**arguments).eval(), rtol=1e-7, atol=1e-12)
    matrix = kernel(X).eval()
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(matrix, kernel(X, X.copy()).eval(), rtol=1e-14)


@pytest.mark.parametrize("other", [None, Z], ids=["one set of points", "two"])
@pytest.mark.parametrize(
    ("make", "at"),
    [
        (lambda p: bp.cov.MainEffects(3, p[:3], p[3:]), np.concatenate([VARIANCE, LS])),
        (lambda p: bp.cov.MainEffects(3, p[0], p[1]), np.array([0.3, 1.2])),
        (
            lambda p: bp.cov.MainEffects(3, p[:3], p[3:6], detail=p[6], pairs=p[7]),
            np.concatenate([VARIANCE, LS, [0.6, 1.3]]),
        ),
        (lambda p: bp.cov.RationalQuadratic(3, p[2:], p[1], p[0]), np.concatenate([[1.5, 0.4], LS])),
        (lambda p: bp.cov.RationalQuadratic(3, p[2:], p[1], p[0]), np.concatenate([[1.5, 2e-5], LS])),
    ],
)
def test_derivatives(make, at, other):
    p = pt.vector()
    graph = make(p)(X, other)
    weight = RNG.normal(size=graph.eval({p: at}).shape)
    value = pytensor.function([p], [(graph * weight).sum(), pt.grad((graph * weight).sum(), p)])
    expected = differences(lambda at: value(at)[0], at, 1e-5)
    np.testing.assert_allclose(value(at)[1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("other", [None, Z], ids=["one set of points", "two"])
@pytest.mark.parametrize(
    "kernel",
    [
        bp.cov.MainEffects(3, VARIANCE**0.5, LS, detail=0.6, pairs=1.3),
        bp.cov.RationalQuadratic(3, LS, inverse_alpha=0.3),
    ],
    ids=["main effects", "rational quadratic"],
)
def test_derivatives_by_the_points(kernel, other):
    points = [pt.matrix()] if other is None else [pt.matrix(), pt.matrix()]
    at = [X] if other is None else [X, other]
    graph = (kernel(*points) * RNG.normal(size=(70, 70 if other is None else 4))).sum()
    value = pytensor.function(points, [graph, *pt.grad(graph, points)])
    for place, found in enumerate(value(*at)[1:]):
        step = np.zeros_like(at[place])
        step[2, 1] = 1e-5
        moved = [[some + sign * step if i == place else some for i, some in enumerate(at)] for sign in (1.0, -1.0)]
        difference = (value(*moved[0])[0] - value(*moved[1])[0]) / 2e-5
        np.testing.assert_allclose(found[2, 1], difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("other", [False, True], ids=["one set of points", "two"])
@pytest.mark.parametrize(
    "make",
    [
        lambda a, ls: bp.cov.MainEffects(8, a, ls, detail=0.6, pairs=0.3),
        lambda a, ls: bp.cov.RationalQuadratic(8, ls, inverse_alpha=0.3, variance=a.sum()),
    ],
    ids=["main effects", "rational quadratic"],
)
def test_a_group_of_indicators_is_like_separate_inputs(make, other):
    word = RNG.integers(-1, 5, size=40)  # one has no indicator, and the last no point
    indicators = (word[:, None] == np.arange(4)) - RNG.uniform(size=4)
    rows = np.column_stack([indicators[:, :2], np.ones(40), indicators[:, 2:], RNG.normal(size=(40, 3))])
    apart = [0, 5, 1, 6, 2, 7, 3, 4]  # at most two indicators are neighbours
    a, ls = np.array([0.7] * 5 + [1.0, 0.5, 0.2]), np.array([0.4] * 5 + [1.0, 2.0, 0.5])

    def values(order):
        points = [pt.matrix(), pt.matrix()][: 1 + other]
        p = [pt.vector(), pt.vector()]
        K = make(*p)(*points)
        weight = np.cos(np.arange(900.0)).reshape(30, 30) if other else np.cos(np.arange(1600.0)).reshape(40, 40)
        graphs = [K, *pt.grad((K * weight).sum(), [*points, *p])]
        at = [rows[:30], rows[10:]] if other else [rows]
        return pytensor.function([*points, *p], graphs)(*(x[..., order] for x in [*at, a, ls]))

    grouped, separate = values(np.arange(8)), values(apart)
    np.testing.assert_allclose(grouped[0], separate[0], rtol=1e-13)
    for one, each in zip(grouped[1:], separate[1:], strict=True):
        np.testing.assert_allclose(one[..., apart], each, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_numba_agrees_with_python():
    p = pt.vector()
    graphs = [
        bp.cov.MainEffects(3, p[:3], p[3:], detail=p[0], pairs=p[1])(X),
        bp.cov.RationalQuadratic(3, p[3:], p[0], p[1])(X),
    ]
    outputs = [*graphs, pt.grad(sum((graph**2).sum() for graph in graphs), p)]
    at = np.concatenate([VARIANCE, LS])
    found = [pytensor.function([p], outputs, mode=mode)(at) for mode in ("NUMBA", "FAST_COMPILE")]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_an_input_without_variance_has_no_effect():
    kernel = bp.cov.MainEffects(3, [1.0, 0.0, 1.0], 1.0)
    moved = X + np.array([0.0, 5.0, 0.0])
    np.testing.assert_allclose(kernel(X).eval(), kernel(X, moved).eval(), rtol=1e-13)


def test_an_infinite_number_has_no_part_in_a_group():
    rows = np.vstack([[np.inf, 0.0, 0.0], np.eye(3)])
    for kernel in (bp.cov.MainEffects(3, 1.0, 1.0), bp.cov.RationalQuadratic(3, 1.0, 0.3)):
        np.testing.assert_allclose(kernel(rows).eval()[1:, 1:], kernel(rows[1:]).eval(), rtol=1e-14)


def test_no_points_have_an_empty_matrix():
    for kernel in (bp.cov.MainEffects(3, 1.0, 1.0), bp.cov.RationalQuadratic(3, 1.0, 0.3)):
        assert kernel(X, X[:0]).eval().shape == (70, 0)
        assert kernel(X[:0]).eval().shape == (0, 0)


def test_what_is_no_number_stays_no_number():
    kernel = bp.cov.RationalQuadratic(2, ls=1.0, inverse_alpha=0.7)
    assert np.isnan(kernel(np.array([[0.0, 1.0], [np.nan, 2.0]])).eval()[1]).all()
    assert np.isnan(bp.cov.RationalQuadratic(2, ls=1.0, inverse_alpha=-0.7)(np.eye(2)).eval()).all()


@pytest.mark.parametrize("row", [-1, 5, 0.5])
def test_rows_that_a_matrix_does_not_have(row):
    kernel = bp.cov.Precomputed(np.eye(5) + 1.0)
    for made in (kernel(np.array([[float(row)]]), np.array([[1.0]])), kernel(np.array([[float(row)]]), diag=True)):
        with pytest.raises(ValueError, match=r"must be numbers of rows, 0, 1, \.\.\."):
            made.eval()
