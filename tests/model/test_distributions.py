"""The PyMC distributions against mpmath, quadrature, SciPy, the arrays layer and PyMC's own machinery."""

from functools import cache
from importlib.util import find_spec

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.distribution import support_point
from pymc.logprob.basic import logccdf
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from scipy import stats

from bsvr_pp.core.losses.noise import unit_noise
from bsvr_pp.losses import LOSSES, epsilon_insensitive, huber, soft_insensitive
from bsvr_pp.model.distributions import EpsilonInsensitive, Huber, SoftInsensitive, distribution

PAPER = {"C": 10.0, "epsilon": 0.1, "beta": 0.3}  # chu2004, section VII-A


# One case of each distribution, the array noise with the same parameters and its soft insensitive form.
FAMILY = [
    (SoftInsensitive, (10.0, 0.1, 0.3), soft_insensitive, (10.0, 0.1, 0.3)),
    (SoftInsensitive, (2.0, 0.0, 0.5), soft_insensitive, (2.0, 0.0, 0.5)),
    (EpsilonInsensitive, (5.0, 0.4), epsilon_insensitive, (5.0, 0.4, 0.0)),
    (Huber, (3.0, 0.5), huber, (3.0, 0.5, 1.0)),
]

# Every linker that this machine has.
MODES = {"default": None, "FAST_COMPILE": "FAST_COMPILE"}
if pytensor.config.cxx:
    MODES["C"] = Mode(linker="cvm", optimizer="fast_run")
if find_spec("jax"):
    MODES["JAX"] = "JAX"


@cache
def compiled(quantity):
    """Compile a function of (value, C, epsilon, beta) that returns values and the four derivatives of their sum."""
    inputs = [pt.dvector(name) for name in ("value", "C", "epsilon", "beta")]
    value, *parameters = inputs
    out = quantity(SoftInsensitive.dist(0.0, *parameters), value)
    return pytensor.function(inputs, [out, *pt.grad(out.sum(), inputs)])


def evaluate(quantity, value, C, epsilon, beta):
    """Return values and derivatives, (5, n), of ``quantity`` for broadcast arguments."""
    arrays = np.broadcast_arrays(*(np.asarray(argument, dtype=float) for argument in (value, C, epsilon, beta)))
    return np.array(compiled(quantity)(*(np.atleast_1d(array).ravel() for array in arrays)))


def exact(r, C, epsilon, beta):
    """Return log density, log cdf and log of the upper tail, from chu2004 (11), (13) and (14) with 40 digits."""
    with mp.workdps(40):
        r, C, e, b = (mp.mpf(float(value)) for value in (r, C, epsilon, beta))
        inner, outer, x, distance = (1 - b) * e, (1 + b) * e, C * b * e, abs(r)
        bell = mp.sqrt(mp.pi * b * e / C)
        normalizer = 2 * inner + 2 * bell * mp.erf(mp.sqrt(x)) + 2 / C * mp.exp(-x)
        if distance >= outer:
            loss, tail = distance - e, mp.exp(-C * (distance - e)) / C
        elif distance > inner:
            u = (distance - inner) / (outer - inner)
            loss = (distance - inner) ** 2 / (4 * b * e)
            tail = bell * (mp.erfc(u * mp.sqrt(x)) - mp.erfc(mp.sqrt(x))) + mp.exp(-x) / C
        else:
            loss, tail = 0, inner - distance + normalizer / 2 - inner
        tail = tail / normalizer
        lower, upper = (mp.log1p(-tail), mp.log(tail)) if r >= 0 else (mp.log(tail), mp.log1p(-tail))
        return [float(value) for value in (-C * loss - mp.log(normalizer), lower, upper)]


def hard_cases(n, seed):
    """Draw residuals on every piece, C·epsilon over 16 decades, beta over 300, and exact zeros, ones and kinks."""
    rng = np.random.default_rng(seed)
    C = 10 ** rng.uniform(-3, 3, n)
    epsilon = 10 ** rng.uniform(-8, 8, n) / C * (rng.random(n) > 0.05)
    beta = rng.choice([0.0, 1.0, 0.3, -1.0, -2.0, -3.0], n)
    beta = np.select([beta == -1, beta == -2], [10 ** rng.uniform(-12, 0, n), 10 ** rng.uniform(-300, -6, n)], beta)
    beta = np.where(beta == -3, rng.random(n), beta)
    inner, width, share = (1 - beta) * epsilon, 2 * beta * epsilon, rng.random(n)
    places = [inner * share, inner + width * share, inner + width + rng.exponential(1, n) / C]
    places += [inner + width + rng.exponential(300, n) / C, inner, epsilon, inner + width, 0 * C]
    r = np.choose(rng.integers(0, len(places), n), places) * rng.choice([-1, 1], n)
    return r, C, epsilon, beta


def test_density_and_both_tails_match_the_formulas_of_the_paper_everywhere():
    cases = hard_cases(1500, seed=1)
    truth = np.array([exact(*case) for case in zip(*cases, strict=True)]).T
    # Relative to the conditioning: C·epsilon may be 1e8, and r and epsilon are rounded.
    slack = 1e-10 * (1 + np.abs(truth)) + 1e-15 * cases[1] * np.maximum(cases[2], np.abs(cases[0]))
    for quantity, expected, allowed in zip((pm.logp, pm.logcdf, logccdf), truth, slack, strict=True):
        values = evaluate(quantity, *cases)[0]
        assert np.all(np.abs(values - expected) <= allowed), quantity
        if quantity is not pm.logp:
            np.testing.assert_allclose(np.exp(values), np.exp(expected), atol=1e-10, rtol=0)


def test_quantile_inverts_the_cdf():
    _, *parameters = hard_cases(3000, seed=2)
    rng = np.random.default_rng(3)
    probability = np.where(rng.random(3000) < 0.3, 10 ** rng.uniform(-300, 0, 3000), rng.random(3000))
    probability[:3] = [0.5, 1 - 2**-53, 1e-308]
    residual = evaluate(pm.icdf, probability, *parameters)[0]
    log_cdf = evaluate(pm.logcdf, residual, *parameters)[0]
    np.testing.assert_allclose(np.exp(log_cdf), probability, atol=1e-13, rtol=1e-7)
    ends = evaluate(pm.icdf, [0.0, 1.0, -0.1, 1.1], 10.0, 0.1, 0.3)[0]
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(evaluate(pm.logcdf, [-np.inf, np.inf], 10.0, 0.1, 0.3)[0], [-np.inf, 0.0])
    np.testing.assert_array_equal(evaluate(pm.logp, [-np.inf, np.inf], 10.0, 0.1, 0.3)[0], [-np.inf, -np.inf])


@pytest.mark.parametrize(("distribution", "parameters", "noise", "_"), FAMILY)
def test_distribution_equals_the_noise_model_on_arrays(distribution, parameters, noise, _):
    mu, y, q = 0.7, np.linspace(-2, 3, 41), np.linspace(0.01, 0.99, 21)
    variable, truth = distribution.dist(mu, *parameters), noise(*parameters)
    log_density, log_cdf, quantile = pytensor.function(
        [], [pm.logp(variable, y), pm.logcdf(variable, y), pm.icdf(variable, q)], mode="FAST_COMPILE"
    )()
    np.testing.assert_allclose(log_density, truth.log_density(y - mu), atol=1e-10)
    np.testing.assert_allclose(np.exp(log_cdf), truth.cdf(y - mu), atol=1e-10)
    np.testing.assert_allclose(quantile, mu + truth.quantile(q), atol=1e-9)
    op = variable.owner.op
    assert op.loss == truth.name
    assert len(op.dist_params(variable.owner)) == 1 + len(LOSSES[op.loss].parameters)
    values = [float(parameter.data) for parameter in op.dist_params(variable.owner)[1:]]
    assert values == [truth.parameters[name] for name in LOSSES[op.loss].parameters]


@pytest.mark.parametrize("loss", ["absolute", "gaussian", "pinball"])
def test_a_distribution_that_is_made_of_a_table_has_probabilities_and_quantiles(loss):
    noise, y, q = unit_noise(loss), np.linspace(-2, 3, 11), np.array([1e-9, 0.2, 0.5, 0.9])
    variable = distribution(loss).dist(0.7, *noise.parameters.values())
    out = [pm.logcdf(variable, y), logccdf(variable, y), pm.icdf(variable, q)]
    below, above, quantile = pytensor.function([], out, mode="FAST_COMPILE")()
    np.testing.assert_allclose(np.exp(below), noise.cdf(y - 0.7), atol=1e-10)
    np.testing.assert_allclose(np.exp(above), 1.0 - noise.cdf(y - 0.7), atol=1e-10)
    np.testing.assert_allclose(quantile, 0.7 + noise.quantile(q), atol=1e-9)


@pytest.mark.parametrize("quantity", [pm.logp, pm.logcdf, pm.icdf])
def test_gradients_are_finite_everywhere(quantity):
    r, *parameters = hard_cases(3000, seed=4)
    value = np.random.default_rng(5).random(3000) if quantity is pm.icdf else r
    out = evaluate(quantity, value, *parameters)
    assert np.all(np.isfinite(out)), [case for case in zip(value, *parameters, out.T, strict=True)][:3]


@pytest.mark.parametrize("quantity", [pm.logp, pm.logcdf, pm.icdf])
def test_gradients_match_finite_differences(quantity):
    """Away from knots; from the right where beta or epsilon is 0, which their domain begins with."""
    rng = np.random.default_rng(6)
    n, step = 400, 1e-5
    C, epsilon, beta = 10 ** rng.uniform(-1, 1, n), rng.uniform(0.05, 2, n), rng.uniform(0.05, 0.95, n)
    epsilon[:50], beta[50:100], epsilon[90:100] = 0.0, 0.0, 0.0
    r = np.concatenate([rng.normal(0, 1, n // 2) * (epsilon + 1 / C)[::2], rng.uniform(-3, 3, n // 2)])
    knots = np.abs(np.abs(r) - epsilon * np.array([1 - beta, 1 + 0 * beta, 1 + beta]))
    keep = np.all(knots > 1e-3, axis=0) & (np.abs(r) > 1e-3)
    assert keep.mean() > 0.9
    point = np.array([r, C, epsilon, beta])[:, keep]
    if quantity is pm.icdf:
        point[0] = np.exp(evaluate(pm.logcdf, *point)[0])
        point = point[:, (point[0] > 0.02) & (point[0] < 0.98)]
    gradients = evaluate(quantity, *point)[1:]
    for index, gradient in enumerate(gradients):
        shift = np.zeros_like(point)
        shift[index] = step
        ahead, twice, here = (evaluate(quantity, *(point + k * shift))[0] for k in (1, 2, 0))
        behind = evaluate(quantity, *np.maximum(point - shift, [[-np.inf], [0], [0], [0]]))[0]
        forward, central = (4 * ahead - twice - 3 * here) / (2 * step), (ahead - behind) / (2 * step)
        numerical = np.where(point[index] == 0, forward, central) if index > 1 else central
        np.testing.assert_allclose(gradient, numerical, rtol=2e-6, atol=2e-6, err_msg=str(index))


def test_kinks_have_the_derivatives_from_the_right_in_epsilon():
    """At beta = 0 or epsilon = 0 with y on the kink, the slope in y is 0 and a wider tube leaves the loss at 0."""
    for r, epsilon, beta in [(0.0, 0.0, 0.5), (0.4, 0.4, 0.0), (0.0, 0.0, 0.0)]:
        out = evaluate(pm.logp, r, 5.0, epsilon, beta)[:, 0]
        wider = evaluate(pm.logp, r, 5.0, epsilon + 1e-7, beta)[0, 0]
        assert out[1] == 0
        if beta == 0:
            np.testing.assert_allclose(out[3], (wider - out[0]) / 1e-7, rtol=1e-5)


def test_cdf_and_quantile_have_the_right_derivative_on_knots_too():
    for epsilon, beta in [(0.0, 0.5), (0.4, 0.0), (0.4, 1.0), (0.25, 0.5), (0.25, 1e-17)]:
        r = epsilon * np.array([0.0, 1 - beta, 1 + beta, -1 + beta, -1 - beta])
        log_cdf = evaluate(pm.logcdf, r, 5.0, epsilon, beta)
        density = np.exp(evaluate(pm.logp, r, 5.0, epsilon, beta)[0])
        np.testing.assert_allclose(np.exp(log_cdf[0]) * log_cdf[1], density, rtol=1e-12)
        np.testing.assert_allclose(evaluate(pm.icdf, 0.5, 5.0, epsilon, beta)[1, 0] * density[0], 1, rtol=1e-12)


def test_second_derivative_is_the_curvature_of_the_loss():
    """chu2004 (12): 1/(2·beta·epsilon) between the knots, 0 elsewhere."""
    r = pt.dvector("r")
    out = pm.logp(SoftInsensitive.dist(0.0, **PAPER), r)
    curvature = pt.grad(pt.grad(out.sum(), r).sum(), r)
    values = curvature.eval({r: np.array([0.0, 0.06, 0.08, -0.1, 0.12, 0.2])})
    np.testing.assert_allclose(values, [0, 0, -10 / 0.06, -10 / 0.06, -10 / 0.06, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("distribution", "parameters", "noise", "soft"), FAMILY)
def test_draws_follow_the_distribution(distribution, parameters, noise, soft):
    variable = distribution.dist(0.5, *parameters, size=20_000)
    draws = pm.draw(variable, random_seed=8)
    truth = noise(*parameters)
    assert stats.kstest(draws - 0.5, lambda r: np.exp(evaluate(pm.logcdf, r, *soft)[0])).pvalue > 1e-3
    standard_error = np.sqrt(np.var((draws - 0.5) ** 2) / draws.size)
    assert abs(np.var(draws) - truth.variance) < 4 * standard_error
    np.testing.assert_array_equal(draws[:50], pm.draw(variable, random_seed=8)[:50])
    assert not np.any(draws == pm.draw(variable, random_seed=9))


def test_shapes_broadcast():
    C, epsilon = np.array([1.0, 2.0, 3.0]), np.array([[0.1], [0.2]])
    variable = SoftInsensitive.dist(mu=0, C=C, epsilon=epsilon, beta=0)
    assert pm.draw(variable, random_seed=1).shape == (2, 3)
    assert pm.draw(EpsilonInsensitive.dist(0.0, C, 0.1, shape=(4, 3)), random_seed=1).shape == (4, 3)
    np.testing.assert_array_equal(
        support_point(Huber.dist([1.0, 2.0, 3.0], 1.0, epsilon)).eval(mode="FAST_COMPILE"), [[1.0, 2.0, 3.0]] * 2
    )
    values = pm.logp(variable, 0.15).eval(mode="FAST_COMPILE")
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(values[i, j], evaluate(pm.logp, 0.15, C[j], epsilon[i, 0], 0.0)[0, 0], rtol=1e-14)


BAD = [{"C": 0.0}, {"C": -1.0}, {"C": np.nan}, {"epsilon": -1e-9}, {"beta": -1e-9}, {"beta": 1 + 1e-9}]


@pytest.mark.parametrize("bad", BAD)
def test_parameter_checks_fire(bad):
    given = PAPER | bad
    for quantity in (pm.logp, pm.logcdf, logccdf, pm.icdf):
        with pytest.raises(ParameterValueError, match="C > 0, epsilon >= 0, beta between 0 and 1, all finite"):
            evaluate(quantity, 0.3, **given)
    with pytest.raises(ParameterValueError, match="C > 0"):
        pm.draw(SoftInsensitive.dist(0.0, **{name: pytensor.shared(value) for name, value in given.items()}))


def test_density_in_a_model_is_zero_outside_the_parameters():
    with pm.Model() as model:
        epsilon = pm.Normal("epsilon")
        SoftInsensitive("y", 0.0, 10.0, epsilon, 0.3, observed=[0.1])
    log_density = model.compile_logp(mode="FAST_COMPILE")
    assert log_density({"epsilon": -0.1}) == -np.inf
    assert np.isfinite(log_density({"epsilon": 0.1}))


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("mode", [pytest.param(m, marks=pytest.mark.slow if m == "C" else []) for m in MODES])
def test_every_linker_gives_the_same(mode):
    r = np.array([-0.3, -0.09, 0.0, 0.07, 0.1, 0.5])
    mu, C = pt.dvector("mu"), pt.dscalar("C")
    variable = SoftInsensitive.dist(mu, C, PAPER["epsilon"], PAPER["beta"])
    outputs = []
    # JAX compiles densities alone: probabilities and draws are computed from the table of pieces.
    quantities = [(pm.logp, 0.0)] if mode == "JAX" else [(pm.logp, 0.0), (pm.logcdf, 0.0), (pm.icdf, 0.2)]
    for quantity, value in quantities:
        out = quantity(variable, value)
        outputs += [out, pt.grad(out.sum(), mu)]
    results = pytensor.function([mu, C], outputs, mode=MODES[mode])(-r, 10.0)
    for index, (quantity, _) in enumerate(quantities[:2]):
        expected = evaluate(quantity, r, **PAPER)
        np.testing.assert_allclose(results[2 * index], expected[0], rtol=1e-10)
        np.testing.assert_allclose(results[2 * index + 1], -expected[1], rtol=1e-10, atol=1e-12)
    if mode == "JAX":
        return
    np.testing.assert_allclose(results[4], -r + evaluate(pm.icdf, 0.2, **PAPER)[0], rtol=1e-7)
    draws = pm.draw(SoftInsensitive.dist(0.0, **PAPER), draws=500, random_seed=1, mode=MODES[mode])
    assert stats.kstest(draws, lambda r: np.exp(evaluate(pm.logcdf, r, **PAPER)[0])).pvalue > 1e-3


@pytest.mark.slow
def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        value = pt.fvector("value")
        variable = SoftInsensitive.dist(0.0, 10.0, 0.1, 0.3)
        assert variable.dtype == "float32"
        out = [quantity(variable, value) for quantity in (pm.logp, pm.logcdf, pm.icdf)]
        gradients = [pt.grad(each.sum(), value) for each in out]
        r = np.array([1e-20, 0.07, 0.1, 0.13, 0.5, 0.99], dtype="float32")
        results = pytensor.function([value], [*out, *gradients], mode="FAST_COMPILE")(r)
        draws = pm.draw(variable, draws=1000, random_seed=1, mode="FAST_COMPILE")
    assert all(result.dtype == "float32" and np.all(np.isfinite(result)) for result in (*results, draws))
    np.testing.assert_allclose(results[0], evaluate(pm.logp, r, **PAPER)[0], rtol=1e-5)
    np.testing.assert_allclose(results[1], evaluate(pm.logcdf, r, **PAPER)[0], rtol=1e-4)


@pytest.mark.slow
def test_truncated():
    noise, base = (10.0, 0.1, 0.3), SoftInsensitive.dist(0.0, **PAPER)
    y = np.array([-0.1, 0.05, 0.3])
    lower, upper = np.exp(evaluate(pm.logcdf, [-0.1, 0.3], *noise)[0])
    truncated = pm.Truncated.dist(base, lower=-0.1, upper=0.3)
    inside = evaluate(pm.logp, y, *noise)[0]
    np.testing.assert_allclose(
        pm.logp(truncated, y).eval(mode="FAST_COMPILE"), inside - np.log(upper - lower), rtol=1e-12
    )
    draws = pm.draw(truncated, draws=4000, random_seed=2, mode="FAST_COMPILE")
    assert draws.min() >= -0.1 and draws.max() <= 0.3
    cdf = lambda r: (np.exp(evaluate(pm.logcdf, r, *noise)[0]) - lower) / (upper - lower)  # noqa: E731
    assert stats.kstest(draws, cdf).pvalue > 1e-3
