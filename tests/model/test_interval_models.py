"""Interval and ordinal targets, and pm.Censored, in PyMC models: densities, draws, every inference, predictions."""

import io
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
from rich.console import Console
from scipy.stats import norm

import bsvr_pp as bp
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.reader import read_model
from bsvr_pp.show.report import print_comparison
from tests.helpers import differences, process_model

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3, 3, (24, 1)), axis=0)
Y = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=24)
AT = {"C": 5.0}
METHODS = [bp.MAP(), bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField()]


def model_of(kind):
    """A model with f, C and targets of a kind; classes have fixed cut points."""

    def censored(name, f, C):
        noise = bp.SoftInsensitive.dist(mu=f, C=C, epsilon=0.1, beta=0.3)
        pm.Censored(name, noise, lower=-0.8, upper=0.5, observed=np.clip(Y, -0.8, 0.5))

    lower, upper = np.where(Y > -0.8, np.minimum(Y, 0.5), -np.inf), np.where(Y < 0.5, np.maximum(Y, -0.8), np.inf)
    noise = {
        "censored": censored,
        "interval": partial(bp.Interval, epsilon=0.1, beta=0.3, lower=lower, upper=upper),
        "ordinal": partial(bp.Ordinal, cutpoints=[-0.5, 0.5], observed=np.digitize(Y, [-0.5, 0.5])),
    }[kind]
    return process_model(noise, X, C=lambda: pm.LogNormal("C", 1, 1))


@pytest.fixture(scope="module")
def models():
    return {kind: model_of(kind) for kind in ("censored", "interval", "ordinal")}


@pytest.mark.slow
def test_densities_are_masses_of_the_noise():
    noise = soft_insensitive(5.0, 0.1, 0.3)
    given = {"C": 5.0, "epsilon": 0.1, "beta": 0.3}
    interval = bp.Interval.dist(mu=0.2, lower=[-np.inf, 0.0, 0.4], upper=[0.0, 0.5, 0.4], **given, size=3)
    expected = [noise.cdf(-0.2), noise.cdf(0.3) - noise.cdf(-0.2), np.exp(noise.log_density(0.2))]
    np.testing.assert_allclose(np.exp(pm.logp(interval, np.zeros(3)).eval()), expected, rtol=1e-12)
    ordinal = bp.Ordinal.dist(mu=0.2, cutpoints=[0.0, 0.5], **given)
    expected = [noise.cdf(-0.2), noise.cdf(0.3) - noise.cdf(-0.2), 1 - noise.cdf(0.3)]
    np.testing.assert_allclose(np.exp(pm.logp(ordinal, [0, 1, 2]).eval()), expected, rtol=1e-12)
    assert pm.logp(ordinal, 3).eval() == pm.logp(ordinal, -1).eval() == -np.inf
    draws = pm.draw(bp.Ordinal.dist(mu=0.2, cutpoints=[0.0, 0.5], **given), draws=4000, random_seed=1)
    np.testing.assert_allclose(np.bincount(draws) / 4000, expected, atol=0.03)
    latent = pm.draw(bp.Interval.dist(mu=0.2, lower=1.0, upper=np.inf, **given), draws=4000, random_seed=1)
    assert latent.mean() == pytest.approx(0.2, abs=0.03)  # whatever is known of the target


def test_gaussian_ordinal_is_the_ordered_probit():
    ordinal = bp.Ordinal.dist(mu=0.3, cutpoints=[-1.0, 0.4, 1.5], C=4.0, noise="gaussian")
    below = norm.cdf([-np.inf, -1.0, 0.4, 1.5, np.inf], loc=0.3, scale=0.5)
    np.testing.assert_allclose(np.exp(pm.logp(ordinal, np.arange(4)).eval()), np.diff(below), rtol=1e-10)
    # Integrated over a Gaussian f it is a probit of larger scale.
    given = {"cutpoints": [-1.0, 0.4], "C": 4.0, "noise": "gaussian", "observed": [1]}
    model = process_model(bp.Ordinal, np.zeros((1, 1)), prior={"jitter": 0.0}, **given)
    found = bp.log_evidence(bp.MeanField(), model).value
    expected = norm.cdf(0.4 / 1.25**0.5) - norm.cdf(-1.0 / 1.25**0.5)
    assert found == pytest.approx(np.log(expected), abs=1e-9)


@pytest.mark.slow_cases("ordinal")
@pytest.mark.parametrize("kind", ["interval", "ordinal"])
def test_gradients_of_the_density_match_differences(kind):
    with pm.Model() as model:
        mu, C = pm.Normal("mu", 0, 1, shape=3), pm.LogNormal("C", 1, 1)
        epsilon = pm.LogNormal("epsilon", -2, 1)
        if kind == "interval":
            ends = {"lower": [-np.inf, 0.0, 0.4], "upper": [0.0, 0.5, 0.4]}
            bp.Interval("y", mu=mu, C=C, epsilon=epsilon, beta=0.3, **ends)
        else:
            first = pm.Normal("first", 0, 1)
            cutpoints = pm.math.stack([first, first + 0.7])
            bp.Ordinal("y", mu=mu, cutpoints=cutpoints, C=C, epsilon=epsilon, beta=0.3, observed=[0, 1, 2])
    point = {name: np.full_like(value, 0.3, dtype=float) for name, value in model.initial_point().items()}
    logp, dlogp = model.compile_logp(), model.compile_dlogp()
    each = [differences(lambda x, at=at: logp(point | {at: x}), point[at], 1e-6) for at in point]
    assert dlogp(point) == pytest.approx(np.concatenate(each), rel=1e-5, abs=1e-6)


def test_censored_and_interval_are_one_model(models):
    for method in METHODS[1:]:
        values = [bp.log_evidence(method, models[kind], hyperparameters=AT).value for kind in ("censored", "interval")]
        assert values[0] == pytest.approx(values[1], abs=1e-10)


@pytest.mark.slow
def test_evidence_agrees_with_annealing_and_with_the_density_of_the_model(models):
    for kind, model in models.items():
        exact = bp.log_evidence(bp.Annealed(particles=120), model, hyperparameters=AT, random_seed=1)
        field = bp.log_evidence(bp.MeanField(), model, hyperparameters=AT)
        assert field.value == pytest.approx(exact.value, abs=0.15 + 4 * exact.standard_error), kind
        result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False, random_seed=1)
        f = result["posterior"]["f"].values[0, 0]
        noise = read_model(model).at(AT)[2]
        found = result["log_likelihood"]["y"].values[0, 0]
        np.testing.assert_array_equal(noise.log_likelihood(read_model(model).targets, f), found)
        if kind != "censored":  # PyMC derives the density of a clipped variable only inside of a model
            conditional = pm.do(model, {"C": 5.0})
            y = conditional["y"]
            by_pymc = pm.logp(y, conditional.rvs_to_values[y]).eval({conditional["f"]: f})
            np.testing.assert_allclose(found, by_pymc, atol=1e-9)


def test_a_comparison_says_what_the_evidence_depends_on(models):
    for kind, mixed in (("interval", True), ("ordinal", False)):
        result = bp.fit(bp.MeanField(), models[kind], hyperparameters=AT, progressbar=False, random_seed=1)
        table = bp.compare({"a": result})
        assert table.comparison.mixed is mixed
        assert ("depend on the unit of y" in table.attrs["evidence_summary"]) is mixed
        assert ("depend on the unit of y" in bp.report_page(table, title="a")) is mixed
        stream = io.StringIO()
        print_comparison(Console(file=stream, width=100), table.comparison, title="a")
        assert ("depend on the unit of y" in stream.getvalue().replace("\n", " ")) is mixed


@pytest.mark.slow
def test_leave_one_out_and_groups_of_results(models):
    result = bp.fit(bp.MeanField(), models["interval"], hyperparameters=AT, progressbar=False, random_seed=1)
    elpd = bp.loo(result, model=models["interval"])
    assert np.isfinite(elpd.elpd) and elpd.n_data_points == 24
    status = result["constant_data"]["y"].values
    np.testing.assert_array_equal(status, (Y > -0.8) & (Y < 0.5))
    assert np.isinf(result["constant_data"]["upper"].values).sum() == (Y >= 0.5).sum()
    assert az.plot_ppc_censored(result) is not None
    with pytest.raises(ValueError, match="other targets"):
        bp.predict(result, [[0.0]], model=models["ordinal"])


def test_class_probabilities_sum_to_one_and_score_new_classes(models):
    model = models["ordinal"]
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False, random_seed=1)
    found = bp.predict(result, [[-1.5], [0.0], [1.5]], model=model, y_new=[0, 1, 2])
    probability = found["y_class_probability"].values
    np.testing.assert_allclose(probability.sum(axis=0), 1.0, atol=1e-12)
    assert probability.argmax(axis=0).tolist() == [0, 1, 2]
    np.testing.assert_allclose(found["y_log_density"], np.log(probability[[0, 1, 2], [0, 1, 2]]))
    draws = result["posterior_predictive"]["y"].values
    assert set(np.unique(draws)) <= {0.0, 1.0, 2.0}
    with pytest.raises(ValueError, match="y_new must hold classes from 0 to 2, got 3"):
        bp.predict(result, [[0.0]], model=model, y_new=[3])


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (
            lambda f: pm.Censored("y", pm.Normal.dist(f, 1.0), None, 0.5, observed=[0.1, 7.0]),
            "within its limits, got 7 in",
        ),
        (lambda f: pm.Censored("y", pm.Normal.dist(f, 1.0), 0.2, 0.5, observed=[0.1, 0.5]), "within its limits, got 0"),
        (
            lambda f: bp.Ordinal("y", f, [0.0], noise="gaussian", C=5.0, observed=[0, 3]),
            "classes from 0 to .* 3 in row",
        ),
    ],
)
def test_what_is_not_possible_has_no_mass(observe, words):
    with pm.Model() as model:
        observe(bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X[:2]))
    with pytest.raises(ValueError, match=f"y must be {words}"):
        bp.fit(bp.MeanField(), model, progressbar=False)
    assert bp.marginalize(bp.MeanField(), model).compile_logp()({}) == -np.inf


def test_cut_points_without_order_have_no_mass():
    y = np.digitize(Y, [-0.5, 0.5])
    model = process_model(bp.Ordinal, X, cutpoints=lambda: pm.Normal("cut", 0, 1, shape=2), C=5.0, observed=y)
    marginal = bp.marginalize(bp.MeanField(), model)
    logp = marginal.compile_logp()
    assert logp({"cut": np.array([0.3, 0.3])}) == -np.inf
    assert np.isfinite(logp({"cut": np.array([-0.3, 0.3])}))


def test_marginal_draws_respect_bounds(models):
    draws = pm.draw(bp.marginalize(bp.MeanField(), models["censored"])["y"], draws=20, random_seed=1)
    assert draws.min() == -0.8 and draws.max() == 0.5
    classes = pm.draw(bp.marginalize(bp.MeanField(), models["ordinal"])["y"], draws=20, random_seed=1)
    assert set(np.unique(classes)) == {0, 1, 2}
