"""Predictive distributions against quadrature, draws and closed forms."""

import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.stats import kstest, lognorm, norm

import bsvr_pp as bp
from bsvr_pp.core.losses.noise import widen
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.prediction.distribution import LOGARITHM, UNSCALED, PredictiveDistribution, Root
from bsvr_pp.inference.result import problem_of
from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, huber, pinball, soft_insensitive
from tests.helpers import process_model

NOISES = [
    soft_insensitive(C=12.0, epsilon=0.2, beta=0.8),
    epsilon_insensitive(C=12.0, epsilon=0.2),
    huber(C=12.0, epsilon=0.1),
    absolute(C=12.0),
    gaussian(C=20.0),
    pinball(C=12.0, quantile=0.3),
]
KINDS = ("one", "scales", "committee", "draws", "log")


def made(noise, kind, n=2):
    rng = np.random.default_rng(0)
    count = {"one": 1, "log": 1, "scales": 3, "committee": 3, "root": 3, "draws": 8}[kind]
    factors = (0.5, 1.0, 2.0) if kind == "scales" else np.exp(0.2 * rng.normal(size=count))
    alike = np.zeros((count, 1)) if kind == "scales" else rng.normal(0.0, 0.3, (count, 1))
    means, variances = 0.5 + alike + np.arange(n), np.exp(alike) * rng.uniform(0.01, 0.2, n)
    weights = rng.dirichlet(np.ones(count), n).T
    noises = tuple(widen(noise, factor) for factor in factors)
    unit = 0.5 if kind == "log" else 20.0
    scale = {"log": LOGARITHM, "root": Root.of_targets(3.0, -60.0)}.get(kind, UNSCALED)
    return PredictiveDistribution(weights, means, variances, noises, 3.0, unit, scale)


# Each noise alone and in a mixture, and each kind of mixture.
PAIRS = [(noise, kind) for i, noise in enumerate(NOISES) for kind in ("one", KINDS[1 + i % 4])]
PAIRS += [(NOISES[0], "root"), (NOISES[4], "root")]
each = pytest.mark.parametrize(
    ("noise", "kind"), sorted(PAIRS, key=str), ids=lambda value: getattr(value, "name", value)
)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
TAIL = np.geomspace(1e-12, 0.01, 40)
LEVELS = np.concatenate([TAIL, np.linspace(0.011, 0.989, 80), 1 - TAIL[::-1]])


def nodes_between(edges):
    """Nodes and weights of Gauss-Legendre on each piece between edges."""
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * NODES).ravel(), (half[:, None] * WEIGHTS).ravel()


@each
def test_densities_integrate_to_one_and_moments_are_theirs(noise, kind):
    one = made(noise, kind, 1)
    y, weight = nodes_between(one.ppf(LEVELS[:, None])[:, 0])
    mass = weight * one.pdf(y[:, None])[:, 0]
    np.testing.assert_allclose(mass.reshape(-1, NODES.size).sum(axis=1), np.diff(LEVELS), atol=1e-8)
    mean, var = one.mean()[0], one.var()[0]
    assert mass.sum() == pytest.approx(1.0, abs=1e-7)
    assert mean == pytest.approx(y @ mass, rel=1e-6)
    assert var == pytest.approx((y - mean) ** 2 @ mass, rel=2e-5)
    assert one.std()[0] == pytest.approx(var**0.5)


@each
def test_quantiles_invert_the_cdf(noise, kind):
    found, q = made(noise, kind), np.array([[1e-10], [1e-4], [0.025], [0.5], [0.8], [1 - 1e-4], [1 - 1e-10]])
    y = found.ppf(q)
    assert y.shape == (7, 2) and (np.diff(y, axis=0) > 0).all()
    np.testing.assert_allclose(found.cdf(y), np.broadcast_to(q, y.shape), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.cdf(y[:3]), np.broadcast_to(q[:3], (3, 2)), rtol=1e-8)
    np.testing.assert_allclose(found.sf(y[4:]), np.broadcast_to(1 - q[4:], (3, 2)), rtol=1e-8)
    np.testing.assert_allclose(found.sf(y) + found.cdf(y), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.median(), y[3], rtol=1e-12)
    np.testing.assert_allclose(found.interval(0.95)[0], y[2])
    # Each row with a level of its own.
    np.testing.assert_allclose(found.ppf([0.025, 0.8]), [y[2, 0], y[4, 1]], rtol=1e-9)


def check_score(one, rel):
    """The score of one row at three targets, by quadrature."""
    for q in (0.001, 0.4, 0.97):
        y = one.ppf(q)[0]
        z, weight = nodes_between(np.unique(one.ppf(np.append(LEVELS, q)[:, None])))
        difference = np.where(z < y, one.cdf(z[:, None])[:, 0], one.sf(z[:, None])[:, 0])
        assert one.crps(y)[0] == pytest.approx(weight @ difference**2, rel=rel)


@each
def test_the_score_is_that_of_quadrature(noise, kind):
    check_score(made(noise, kind, 1), rel=1e-6)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_the_score_of_narrow_noise_beside_rare_wide_noise(noise):
    """The mean of the mixture may lie far from nearly all of its mass."""
    noises, weights = tuple(widen(noise, factor) for factor in (1.0, 10.0, 500.0)), np.array([[0.9], [0.07], [0.03]])
    check_score(PredictiveDistribution(weights, np.zeros((3, 1)), np.full((3, 1), 1e-3), noises, 3.0, 20.0), rel=1e-3)


@each
def test_the_score_of_many_rows_is_that_of_each(noise, kind):
    """From a table of the cdf, for variances over the range of the table, below it and 0."""
    many, rng = made(noise, kind, 120), np.random.default_rng(1)
    variances = np.append(np.exp(rng.uniform(-20.0, 5.0, 119)), 0.0) * np.exp(
        0.1 * rng.normal(size=(len(many.noises), 1))
    )
    many = replace(many, variances=variances)
    y = many.rvs(random_state=2)
    alone = np.concatenate([many[i].crps(y[[i]]) for i in range(0, 120, 17)])
    np.testing.assert_allclose(many.crps(y)[::17], alone, rtol=2e-5)


@each
def test_draws_have_the_cdf(noise, kind):
    found = made(noise, kind)
    drawn = found.rvs(4000, random_state=1)
    assert drawn.shape == (4000, 2)
    for i in range(2):
        assert kstest(found[i].cdf(drawn[:, [i]])[:, 0], "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(drawn, found.rvs((40, 100), random_state=1).reshape(4000, 2))
    assert found.rvs(random_state=2).shape == (2,)
    none = found[[]]
    shapes = [part.shape for part in (none.ppf([[0.1], [0.5]]), none.crps([]), none.rvs(3), *none.interval(0.9))]
    assert shapes == [(2, 0), (0,), (3, 0), (0,), (0,)]


def test_a_gaussian_in_other_units():
    found = PredictiveDistribution(
        np.ones((1, 2)), np.array([[0.0, 1.0]]), np.full((1, 2), 0.75), (gaussian(4.0),), 2.0, 3.0
    )
    exact, y = norm([2.0, 5.0], 3.0), np.array([[-4.0], [2.5], [40.0]])
    for name in ("pdf", "logpdf", "cdf", "sf"):
        np.testing.assert_allclose(getattr(found, name)(y), getattr(exact, name)(y), rtol=1e-9, atol=1e-300)
    log = PredictiveDistribution(
        np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), 0.75), (gaussian(4.0),), 0.5, 0.4, LOGARITHM
    )
    exact, y = lognorm(0.4, scale=np.exp(0.5)), np.array([[-1.0], [0.0], [0.2], [2.5]])
    for name in ("pdf", "cdf", "sf"):
        np.testing.assert_allclose(getattr(log, name)(y), getattr(exact, name)(y), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose([log.mean()[0], log.var()[0]], [exact.mean(), exact.var()], rtol=1e-9)
    np.testing.assert_array_equal(log.support(), [[0.0], [np.inf]])
    np.testing.assert_allclose(log.log.mean(), 0.5)
    mean, sd = found.latent.mean(), found.latent.std()
    np.testing.assert_allclose([mean, sd], [[2.0, 5.0], [3.0 * 0.75**0.5] * 2])
    np.testing.assert_allclose(found.moments_of_f(), [mean, sd])


def test_moments_that_diverge_are_infinite():
    """The exponential of Laplace noise has the moments below C / unit."""
    for C, finite in ((0.4, (False, False)), (0.8, (True, False)), (2.0, (True, True))):
        found = PredictiveDistribution(
            np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), (absolute(C),), 0.0, 0.5, LOGARITHM
        )
        assert tuple(np.isfinite([found.mean()[0], found.var()[0]])) == finite
        assert found.mean()[0] > 0 and found.std()[0] > 0


def test_ends_of_the_support():
    found = made(NOISES[0], "scales")
    np.testing.assert_array_equal(found.cdf([-np.inf, np.inf]), [0.0, 1.0])
    np.testing.assert_array_equal(found.sf([-np.inf, np.inf]), [1.0, 0.0])
    np.testing.assert_array_equal(found.ppf([0.0, 1.0]), [-np.inf, np.inf])
    np.testing.assert_array_equal(found.pdf(np.inf), [0.0, 0.0])
    assert made(NOISES[0], "log").ppf(0.0)[0] == 0.0
    assert made(NOISES[0], "log").pdf(-1.0)[0] == 0.0


def test_rows_and_copies():
    found, y = made(NOISES[0], "committee", 5), np.linspace(0.0, 60.0, 5)
    np.testing.assert_array_equal(found.cdf(y)[1:3], found[1:3].cdf(y[1:3]))
    np.testing.assert_array_equal(found[-1].mean(), found.mean()[-1:])
    np.testing.assert_array_equal(found[y > 20.0].median(), found.median()[y > 20.0])
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy.ppf(0.3), found.ppf(0.3))
    table = found.to_frame()
    assert (
        list(table.columns) == ["mean", "std", "0.025", "0.1", "0.5", "0.9", "0.975"] and len(table) == len(found) == 5
    )
    assert list(found.to_frame([0.5, 0.5000001]).columns[2:]) == ["0.5", "0.5000001"]
    assert repr(found) == "PredictiveDistribution(5 rows, components=3, noise=soft_insensitive)"
    vector = PredictiveDistribution(
        np.ones((1, 3)), np.zeros((1, 3)), np.ones((1, 3)), (gaussian(np.array([1.0, 4.0, 9.0])),)
    )
    np.testing.assert_allclose(vector[[2, 0]].std(), (1 + 1 / np.array([9.0, 1.0])) ** 0.5)


def test_errors_name_argument_and_value():
    found = made(NOISES[0], "scales", 3)
    with pytest.raises(ValueError, match=r"confidence must lie strictly between 0 and 1, got 1\.0"):
        found.interval(1.0)
    with pytest.raises(ValueError, match="y must be finite, got inf"):
        found.crps(np.inf)
    with pytest.raises(ValueError, match="y must be positive where the logarithm was modelled, got -1"):
        made(NOISES[0], "log").crps(-1.0)
    with pytest.raises(ValueError, match="joint=True takes the whole distribution"):
        found.rvs(joint=True)
    with pytest.raises(IndexError, match="rows must be a number, a slice or an array with one axis, got 2 axes"):
        found[[[0, 1]]]
    with pytest.raises(ValueError, match="log is the distribution of a logarithm"):
        _ = found.log


@pytest.mark.slow
def test_the_estimator_uses_it():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, (40, 1))
    y = 10 + np.sin(X[:, 0]) + 0.1 * rng.laplace(size=40)
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(X, y)
    X = np.array([[0.0], [0.1], [5.0]])
    found = svr.predict_distribution(X)
    mean, sd = svr.predict(X, return_std=True)
    np.testing.assert_array_equal([found.mean(), found.std()], [mean, sd])
    np.testing.assert_array_equal(found.moments_of_f(), svr.predict_f(X))
    np.testing.assert_array_equal(found.ppf(np.array([[0.1], [0.7]])).T, svr.predict_quantiles(X, [0.1, 0.7]))
    np.testing.assert_array_equal(np.stack(found.interval(0.9), axis=1), svr.predict_interval(X, 0.9))
    np.testing.assert_array_equal(found.sf(10.0), svr.predict_survival_function(X, [10.0])[:, 0])
    joint, alone = found.rvs(4000, random_state=0, joint=True), found.rvs(4000, random_state=0)
    np.testing.assert_allclose(joint.std(axis=0), found.std(), rtol=0.1)
    near = svr.predict_distribution(np.array([[5.0], [5.01]]))
    correlation = [np.corrcoef(near.rvs(500, random_state=0, joint=joint).T)[0, 1] for joint in (True, False)]
    assert correlation[0] > 0.9 > 0.2 > abs(correlation[1])
    np.testing.assert_allclose(alone.std(axis=0), found.std(), rtol=0.1)
    with pytest.raises(ValueError, match="joint=True"):
        pickle.loads(pickle.dumps(found)).rvs(joint=True)


@pytest.mark.slow_cases("method0")
@pytest.mark.parametrize("method", [bp.MAP(), bp.MeanField()])
def test_joint_draws_have_the_noise_of_new_rows_and_the_variance_of_f(method):
    X, scale = np.linspace(-2, 2, 6)[:, None], np.repeat([0.1, 2.0], 3)
    model = process_model(pm.Laplace, X, b=lambda: pm.Data("scale", scale), observed=np.sin(X[:, 0]))
    result = bp.fit(method, model, progressbar=False)
    for n in (6, 2):
        found = bp.predict_distribution(result, X[:n], model=model, data={"scale": scale[::-1][:n]})
        joint = found.rvs(20_000, random_state=0, joint=True)
        np.testing.assert_allclose(joint.std(axis=0), found.std(), rtol=0.06)
    drawn = Component(problem_of(result, model), result.attrs, lambda X: (X[:, 0], X[:, 0], np.zeros((len(X), 1))))
    with pytest.raises(ValueError, match="joint=True takes a result with f integrated out"):
        drawn.draw(X, found.noises[0], 5, np.random.default_rng(0))


@pytest.mark.slow_cases("linear-None")
@pytest.mark.parametrize(("kernel", "monotone"), [("rbf", None), ("rbf", [1, 0]), ("linear", None)])
def test_joint_draws_know_the_jitter_of_the_training_rows(kernel, monotone):
    X = np.random.default_rng(5).normal(size=(40, 2))
    svr = bp.BayesianSVR(kernel=kernel, monotone=monotone, inference="mean_field").fit(X[:34], X[:34] @ [2, -1])
    (part,) = svr.predict_distribution(X[34:]).joint.args[0]()
    f = part.deviations(svr._standardised(X[34:]), 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(f.std(axis=0) / np.sqrt(part.moments(svr._standardised(X[34:]))[1]), 1.0, rtol=0.05)


@pytest.mark.slow
def test_of_a_result(sinc_results, sinc_model):
    model, data = sinc_model
    X = data.X[:3]
    for name, result in sinc_results.items():
        y = data.y[:3]
        found = bp.predict_distribution(result, X, model=model)
        seen = bp.predict(result, X, model=model, y_new=y, quantiles=[0.1, 0.9])
        expected = {"y_log_density": found.logpdf(y), "y_cdf": found.cdf(y), "y_crps": found.crps(y)}
        expected |= {"y_mean": found.mean(), "y_variance": found.var(), "y_quantile": found.ppf([[0.1], [0.9]])}
        for quantity, values in expected.items():
            np.testing.assert_allclose(seen[quantity], values, rtol=1e-6, err_msg=quantity)
        assert len(found.noises) == (200 if name == "NUTS" else 1)
    labels = np.sign(data.y) + (data.y == 0)
    machine = bp.classification.default_label_model(data.X, labels)
    result = bp.fit(bp.MAP(), machine, restarts=1, evidence="naive", progressbar=False)
    with pytest.raises(ValueError, match="predict_distribution takes real targets"):
        bp.predict_distribution(result, X, model=machine)


def test_f_without_variance_is_a_point():
    exact = replace(made(NOISES[0], "one"), variances=np.zeros((1, 2))).latent
    for sign, below in ((-0.1, 0.0), (0.1, 1.0)):
        at = exact.mean() + sign
        np.testing.assert_array_equal([exact.cdf(at), exact.sf(at)], [[below] * 2, [1.0 - below] * 2])
        np.testing.assert_allclose(exact.crps(at), 0.1)


def test_without_a_mean_the_crps_diverges():
    heavy = replace(made(soft_insensitive(C=0.5, epsilon=0.1, beta=0.3), "log"), unit=1.0)
    assert np.isinf(heavy.mean()).all() and np.isinf(heavy.crps(1.0)).all()
