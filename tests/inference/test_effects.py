"""Main effects against brute force and functions that are known."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.effects import effects_of
from bsvr_pp.inference.fitted import components
from bsvr_pp.inference.prediction.component import Sums
from bsvr_pp.model.inventory import ModelError
from bsvr_pp.model.problem import read_model

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=40), RNG.integers(0, 3, 40), RNG.normal(size=40)])
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=40)
AT = {
    "amplitude": 1.0,
    "inverse_lengthscale": [0.8, 0.5, 0.1],
    "inverse_alpha": 0.3,
    "C": 12.0,
    "epsilon": 0.05,
    "effect_amplitude": [0.5, 0.3, 0.1],
    "effect_inverse_lengthscale": 0.7,
    "effect_detail": 0.3,
}


@pytest.fixture(scope="module")
def fitted():
    model = bp.default_model(X, Y, kernel="main_effects")
    return model, bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)


def test_brute_force(fitted):
    """Mean and covariance from the joint posterior of f at all moved rows."""
    model, result = fitted
    found = bp.main_effects(result, X, model=model, values=5)
    problem = read_model(model)
    (part,) = components(problem, result)
    K, _, _ = problem.at(part.point)
    precision, n = part.site_precision, len(X)
    inner = np.linalg.inv(K.dense() + np.diag(1.0 / precision))
    for i in range(3):
        x = found["x"].values[i]
        x = x[np.isfinite(x)]
        moved = np.repeat(X[None], x.size, axis=0)
        moved[:, :, i] = x[:, None]
        new = moved.reshape(-1, 3)
        joint = problem.joint(part.point, new).dense()
        cross, prior = joint[n:, :n], joint[n:, n:]
        mean = part.moments(new)[0].reshape(x.size, n).mean(axis=1)
        covariance = (prior - cross @ inner @ cross.T).reshape(x.size, n, x.size, n).mean(axis=(1, 3))
        weight = np.mean([np.interp(X[:, i], x, one) for one in np.eye(x.size)], axis=1)
        centre = np.eye(x.size) - weight
        np.testing.assert_allclose(found["effect"].values[i, : x.size], centre @ mean, atol=1e-8)
        variance = np.diag(centre @ covariance @ centre.T)
        np.testing.assert_allclose(found["sd"].values[i, : x.size], np.sqrt(variance), rtol=1e-4, atol=1e-5)


def test_terms_of_the_prior_are_parts_of_f(fitted):
    """Mean and deviation of each term by brute force; together they are the sum of all main effects."""
    model, result = fitted
    problem = read_model(model)
    (part,) = components(problem, result)
    found = bp.main_effects(result, X, model=model, values=len(X))
    (K, _, _), a = problem.at(part.point), part.dual_coef
    inner = np.linalg.inv(K.dense() + np.diag(1.0 / part.site_precision))
    total = np.zeros(len(X))
    for i in range(3):
        values = np.unique(X[:, i])
        amplitude, inverse = AT["effect_amplitude"][i], AT["effect_inverse_lengthscale"]
        width = X[:, i].std()

        def k(x, z, amplitude=amplitude, inverse=inverse, width=width):
            r = (x[:, None] - z) * inverse / width
            return amplitude**2 * (np.exp(-0.5 * r**2) + AT["effect_detail"] ** 2 * np.exp(-0.5 * (4.0 * r) ** 2))

        cross = k(values, X[:, i])
        np.testing.assert_allclose(found["term"].values[i, : values.size], cross @ a, atol=1e-10)
        variance = np.diag(k(values, values) - cross @ inner @ cross.T)
        np.testing.assert_allclose(found["term_sd"].values[i, : values.size], np.sqrt(variance), rtol=1e-5)
        assert np.isnan(found["term"].values[i, values.size :]).all()
        total += k(X[:, i], X[:, i]) @ a
    ones = part.linear([Sums(X, np.eye(len(X)), np.ones(3))])[0][0]
    np.testing.assert_allclose(ones, total, atol=1e-9)
    other = bp.default_model(X, Y, kernel="rbf")
    result = bp.fit(bp.MeanField(), other, restarts=1, progressbar=False)
    assert "term" not in bp.main_effects(result, X, model=other)


def test_values_are_quantiles_or_all(fitted):
    model, result = fitted
    found = bp.main_effects(result, X, model=model, values=8)
    np.testing.assert_allclose(found["x"].values[0], np.quantile(X[:, 0], np.linspace(0, 1, 8)))
    np.testing.assert_array_equal(found["x"].values[1, :3], [0.0, 1.0, 2.0])
    for name in ("x", "effect", "sd", "lower", "upper"):
        assert np.isnan(found[name].values[1, 3:]).all()
    assert (found["lower"] <= found["effect"])[0].all() and (found["effect"] <= found["upper"])[0].all()
    wide = bp.main_effects(result, X, model=model, values=8, coverage=0.99)
    assert (wide["upper"] > found["upper"])[0].all()


def test_arviz_shows_the_shares(fitted):
    model, result = fitted
    shares = bp.main_effects(result, X, model=model, values=8)[["share"]]
    assert list(az.summary(shares, kind="stats").index) == ["share[0]", "share[1]", "share[2]"]


def test_shares_of_a_sum_of_functions():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(120, 3))
    y = 2.0 * inputs[:, 0] + inputs[:, 1] ** 2 + 0.05 * rng.normal(size=120)
    table = pd.DataFrame(inputs, columns=["a", "b", "c"])
    svr = bp.BayesianSVR(kernel="main_effects", restarts=1, random_state=0).fit(table, y)
    found = svr.main_effects(table)
    assert svr.kernel_ == "main_effects" and list(found["input"].values) == ["a", "b", "c"]
    share = found["share"].mean(["chain", "draw"]).values
    variance = np.array([4.0 * inputs[:, 0].var(), (inputs[:, 1] ** 2).var(), 0.0])
    np.testing.assert_allclose(share, variance / (2.0 * inputs[:, 0] + inputs[:, 1] ** 2).var(), atol=0.06)
    effect, x = found["effect"].sel(input="a").values, found["x"].sel(input="a").values
    np.testing.assert_allclose(effect, 2.0 * (x - inputs[:, 0].mean()), atol=0.1)


@pytest.mark.slow
def test_bands_cover():
    """A band of 90 % holds the whole effect of an input in nine of ten simulations from the prior."""
    rng = np.random.default_rng(2)
    held, n = [], 60
    inputs = rng.normal(size=(n, 2))
    model = bp.default_model(inputs, np.linspace(-1.0, 1.0, n), kernel="main_effects", noise="gaussian")
    problem = read_model(model)
    point = problem.complete(
        {name: value for name, value in AT.items() if name != "epsilon"}
        | {"inverse_lengthscale": [0.8, 0.5], "effect_amplitude": [0.5, 0.3]}
    )
    x = [np.quantile(inputs[:, i], np.linspace(0, 1, 6)) for i in range(2)]
    moved = np.repeat(inputs[None], 12, axis=0)
    for i in range(2):
        moved[6 * i : 6 * (i + 1), :, i] = x[i][:, None]
    joint = problem.joint(point, moved.reshape(-1, 2)).dense()
    root = np.linalg.cholesky(joint + 1e-8 * np.eye(len(joint)))
    for seed in range(100):
        f = root @ rng.standard_normal(len(root))
        y = f[:n] + rng.normal(size=n) / 12.0**0.5
        with model:
            pm.set_data({"targets": y})
        result = bp.fit(bp.MeanField(), model, hyperparameters=point, progressbar=False)
        found = bp.main_effects(result, inputs, model=model, values=6, random_seed=seed)
        effect = f[n:].reshape(12, n).mean(axis=1).reshape(2, 6)
        for i in range(2):
            effect[i] -= np.interp(inputs[:, i], x[i], effect[i]).mean()
        held.extend(((found["lower"] <= effect) & (effect <= found["upper"])).all("value").values)
    assert 0.84 < np.mean(held) < 0.96


def test_blocks_classes_and_committees():
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(80, 2))
    y = inputs[:, 0] + 0.05 * rng.normal(size=80)
    fits = [
        bp.BayesianSVR(blocks=40, random_state=0).fit(inputs, y),
        bp.BayesianSVR(inference=bp.Committee(bp.MeanField()), restarts=2, random_state=0).fit(inputs, y),
        bp.BayesianSVC(kernel="main_effects", random_state=0).fit(inputs, y > 0),
    ]
    for fit in fits:
        found = fit.main_effects(inputs, values=5, rows=20)
        assert np.diff(found["effect"].values[0]).min() > 0
        assert found["share"].mean(["chain", "draw"])[0] > 0.7


def test_refusals(fitted):
    model, result = fitted
    for name, value in {"values": 1, "rows": 1, "coverage": 1.5}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            bp.main_effects(result, X, model=model, **{name: value})
    with pytest.raises(ValueError, match="X must"):
        bp.main_effects(result, X[:, :2], model=model)
    mode = bp.fit(bp.MAP(), model, hyperparameters=AT, progressbar=False)
    with pytest.raises(ValueError, match="has only its mode"):
        bp.main_effects(mode, X, model=model)
    three = bp.BayesianSVC(random_state=0).fit(X[:30], X[:30, 1])
    with pytest.raises(ValueError, match="effects are of two classes, got 3"):
        three.main_effects(X)
    with pm.Model() as sum_model:
        parts = [bp.GP(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[i])).prior(f"f{i}", X=X) for i in (0, 1)]
        bp.SoftInsensitive("y", mu=parts[0] + parts[1], C=5.0, epsilon=0.1, beta=0.3, observed=Y)
        of_sum = bp.fit(bp.MeanField(), progressbar=False)
    with pytest.raises(ModelError, match="main_effects takes one process"):
        bp.main_effects(of_sum, X, model=sum_model)


def test_plot(fitted):
    model, result = fitted
    effects = bp.main_effects(result, X, model=model, values=5)
    figure = bp.plot_main_effects(effects.assign_coords(input=["a", "b", "c"]), largest=2, target="y")
    first, second, shares = figure.axes
    order = effects["share"].median(["chain", "draw"]).values.argsort()[::-1]
    assert [first.get_xlabel(), second.get_xlabel()] == ["abc"[i] for i in order[:2]]
    assert first.get_ylabel() == "effect on y"
    assert [label.get_text() for label in shares.get_yticklabels()] == ["abc"[i] for i in order]
    assert bp.plot_main_effects(effects).axes[0].get_xlabel() == f"input {order[0]}"


def test_effects_of_draws_are_those_of_their_points(fitted):
    """Two draws at one point of the hyperparameters have the effects of that point."""
    model, result = fitted
    found = bp.main_effects(result, X, model=model, values=5)
    (part,) = components(read_model(model), result)
    twice = effects_of([part, part], X, 5, 100, 0.9, np.random.default_rng(0))
    np.testing.assert_allclose(twice["effect"], found["effect"], atol=1e-10)
    np.testing.assert_allclose(twice["sd"], found["sd"], rtol=1e-6)
