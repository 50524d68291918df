"""Inputs of few values as categories: the kernel against one of indicators, what counts as one, and what is learned."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.search.starts import lengthscales
from bsvr_pp.model.inputs import Levels, columns_of_few_values, with_levels
from bsvr_pp.model.reader import read_model
from tests.helpers import differences

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=40), RNG.choice([-1.0, 0.5, 2.0], 40), RNG.choice([1.0, 2.0, 4.0, 7.0], 40)])
KNOWN = Levels.of(X, (1, 2))
NEW = np.array([[0.3, 0.5, 7.0], [0.3, 0.7, 7.0], [-1.0, 0.7, 3.0]])  # one, three and no numbers are known


def indicators(points):
    """The inputs, and an indicator of each value that is known."""
    columns = [points[:, k] == value for k, values in zip(*KNOWN, strict=True) for value in values[np.isfinite(values)]]
    return np.column_stack([points, *columns]).astype(float)


def test_what_the_values_are():
    np.testing.assert_array_equal(KNOWN.values, [[-1.0, 0.5, 2.0, np.inf], [1.0, 2.0, 4.0, 7.0]])
    found = with_levels(pt.as_tensor_variable(NEW), KNOWN.columns, pt.as_tensor_variable(KNOWN.values)).eval()
    np.testing.assert_array_equal(found, np.column_stack([NEW, [1, -1, -1], [3, 3, -1]]))


@pytest.mark.parametrize(
    ("values", "tied", "expected"),
    [
        (np.arange(40) % 3, None, (0,)),
        (np.arange(40) % 2, None, ()),  # a line
        (np.arange(40) % 9, None, ()),  # each in less than five rows
        (np.arange(400) % 12, None, (0,)),
        (np.arange(400) % 13, None, ()),
        (np.arange(40) % 3, (0, 0, 1), ()),  # an indicator of words
    ],
)
def test_which_columns_have_few_values(values, tied, expected):
    inputs = np.column_stack([values, RNG.normal(size=(len(values), 2))])
    assert columns_of_few_values(inputs, tied) == expected


@pytest.mark.parametrize("other", [None, NEW], ids=["training rows", "new rows"])
def test_levels_are_what_indicators_are(other):
    ls, rate, amplitude = np.array([1.0, 2.0, 3.0]), np.array([0.7, 0.2]), np.array([0.5, 1.5])
    product = bp.cov.RationalQuadratic(5, ls, 0.4, 2.0, level_rate=rate)
    effects = bp.cov.MainEffects(5, [1.0, 2.0, 0.3], 1.2, level_amplitude=amplitude)
    args = KNOWN.columns, pt.as_tensor_variable(KNOWN.values)
    kernel = pm.gp.cov.WarpedInput(3, product + effects, with_levels, args=args)

    def expected(*points):
        wide = [indicators(some) for some in points]
        of_product = bp.cov.RationalQuadratic(10, np.concatenate([ls, np.repeat(rate**-0.5, [3, 4])]), 0.4, 2.0)
        left, right = (some[:, 3:] * np.repeat(amplitude, [3, 4]) for some in (wide[0], wide[-1]))
        return of_product(*wide).eval() + left @ right.T + bp.cov.MainEffects(3, [1.0, 2.0, 0.3], 1.2)(*points).eval()

    given = (X,) if other is None else (X, other)
    np.testing.assert_allclose(kernel(*given).eval(), expected(*given), rtol=1e-12)
    np.testing.assert_allclose(kernel(given[-1], diag=True).eval(), np.diag(expected(given[-1])), rtol=1e-12)


@pytest.mark.parametrize("other", [None, NEW], ids=["training rows", "new rows"])
def test_derivatives_by_what_belongs_to_levels(other):
    p = pt.vector(shape=(4,))
    kernel = bp.cov.RationalQuadratic(5, 1.5, 0.4, 2.0, level_rate=p[:2])
    kernel += bp.cov.MainEffects(5, 1.0, 1.2, level_amplitude=p[2:])
    args = KNOWN.columns, pt.as_tensor_variable(KNOWN.values)
    graph = pm.gp.cov.WarpedInput(3, kernel, with_levels, args=args)(X, other)
    at = np.array([0.3, 0.2, 0.5, 1.5])
    value = (graph * RNG.normal(size=graph.eval({p: at}).shape)).sum()
    function = pytensor.function([p], [value, pt.grad(value, p)])
    expected = differences(lambda at: function(at)[0], at, 1e-5)
    np.testing.assert_allclose(function(at)[1], expected, rtol=1e-6, atol=1e-7)


def test_derivatives_by_the_inputs():
    """Blocks have them, for draws of the hyperparameters; the number of a level has none."""
    points = pt.matrix(shape=(40, 3))
    kernel = bp.cov.RationalQuadratic(5, 1.5, 0.4, 2.0, level_rate=np.array([0.3, 0.2]))
    args = KNOWN.columns, pt.as_tensor_variable(KNOWN.values)
    value = pm.gp.cov.WarpedInput(3, kernel, with_levels, args=args)(points)[0, 1]
    function, e = pytensor.function([points], [value, pt.grad(value, points)]), np.zeros_like(X)
    e[0, 0] = 1e-5
    slope = (function(X + e)[0] - function(X - e)[0]) / 2e-5
    assert function(X)[1][0, 0] == pytest.approx(slope, rel=1e-6) != 0.0


@pytest.fixture(scope="module")
def numbered():
    """Inputs of which two have numbers in place of names, with a target that does not follow their order."""
    rng = np.random.default_rng(1)
    inputs = np.column_stack([rng.uniform(-2, 2, 260), rng.integers(0, 8, (260, 2))])
    effect = np.array([[0.0, 3.0, -2.0, 2.0, -3.0, 1.0, -1.0, 2.5], [1.0, -1.0, 2.0, -2.0, 0.0, 1.5, -1.5, 0.5]])
    target = np.sin(2 * inputs[:, 0]) + sum(effect[k, inputs[:, 1 + k].astype(int)] for k in (0, 1))
    return inputs, target + 0.05 * rng.normal(size=260), target


@pytest.mark.slow
def test_names_written_as_numbers_are_learned(numbered, tmp_path):
    inputs, y, truth = numbered
    train, test = inputs[:210], inputs[210:]
    options = {"inference": "mean_field", "restarts": 1, "random_state": 0}
    svr = bp.BayesianSVR(**options).fit(train, y[:210])
    plain = bp.BayesianSVR(kernel="rational_quadratic", **options).fit(train, y[:210])
    assert svr.levels_.tolist() == [1, 2] and plain.levels_.size == 0
    error, other = (np.sqrt(np.mean((some.predict(test) - truth[210:]) ** 2)) for some in (svr, plain))
    assert error < 0.04 and error < 0.6 * other
    assert svr.log_evidence_ > plain.log_evidence_ + 20.0
    mean, sd = svr.predict(np.array([[0.0, 3.0, 2.0], [0.0, 3.5, 2.0]]), return_std=True)
    assert sd[1] > 5.0 * sd[0] and np.isfinite(mean).all()  # a value that is not known is a number alone
    svr.save(tmp_path / "fit.nc")
    read = bp.BayesianSVR.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(read.levels_, [1, 2])
    np.testing.assert_allclose(read.predict(test), svr.predict(test), rtol=1e-9)
    more = svr.add(np.array([[0.0, 9.0, 2.0]]), [4.0]).predict(np.array([[0.0, 9.0, 2.0]]))
    assert more == pytest.approx([4.0], abs=0.3)


def test_the_default_model_has_the_same_kernel(numbered):
    inputs, y, _ = numbered
    model = bp.default_model(inputs, y, kernel="main_effects")
    assert model["level_amplitude"].eval().shape == (2,)
    assert "level_amplitude" not in bp.default_model(inputs, y).named_vars


def test_what_is_of_no_known_number_of_values_is_refused():
    with pytest.raises(ValueError, match="level_rate must be a vector with a known number of values"):
        bp.cov.RationalQuadratic(3, 1.0, 0.1, level_rate=pt.vector())
    with pytest.raises(ValueError, match="level_amplitude must be a vector with a known number of values"):
        bp.cov.MainEffects(3, 1.0, 1.0, level_amplitude=0.5)


def test_the_search_looks_into_no_other_transform():
    """The lengthscale of sin x and cos x is none of x."""
    x = np.linspace(-3.0, 3.0, 30)[:, None]
    with pm.Model() as model:
        ls = pm.HalfNormal("ls", 1.0, shape=2)
        inner = pm.gp.cov.ExpQuad(2, ls=ls)
        kernel = pm.gp.cov.WarpedInput(
            1, inner, lambda points: pt.concatenate([pt.sin(points), pt.cos(points)], axis=1)
        )
        f = bp.GP(cov_func=kernel).prior("f", X=x)
        bp.Huber("y", f, C=5.0, epsilon=0.1, observed=np.sin(2.0 * x[:, 0]))
    problem = read_model(model)
    assert lengthscales(problem, {"ls": np.array([0.5, 2.0])}) is None
