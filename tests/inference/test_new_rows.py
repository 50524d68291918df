"""Noise that depends on data of each row, at new rows: against dense algebra and quadrature."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import integrate, stats

import bsvr_pp as bp
from bsvr_pp.inference.prediction.component import new_rows, noise_of_rows, rowwise_data
from bsvr_pp.inference.result import from_samples
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.reader import read_model

N = 9
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(2 * X[:, 0])
SIZE = np.linspace(0.5, 2.0, N)
NEW = np.array([[-1.1], [0.2], [2.5], [0.2]])
NEW_SIZE = np.array([0.4, 1.0, 3.0, 2.0])


def kernel(a, b):
    return np.exp(-0.5 * ((a - b.T) / 0.8) ** 2)


def build(noise):
    with pm.Model() as model:
        at, size = pm.Data("X", X), pm.Data("size", SIZE)
        a, b = pm.Normal("a"), pm.Normal("b")
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=at)
        if noise == "gaussian":
            pm.Normal("y", mu=f, sigma=pm.math.exp(a + b * size), observed=Y)
        elif noise == "of the inputs":
            C = pm.math.exp(a + b * at[:, 0])
            bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=Y)
        elif noise == "constant":
            bp.SoftInsensitive("y", mu=f, C=pm.math.exp(a + b * SIZE), epsilon=0.1, beta=0.3, observed=Y)
        else:
            bp.SoftInsensitive("y", mu=f, C=pm.math.exp(a + b * size), epsilon=0.1 * size, beta=0.3, observed=Y)
    return model


AT = {"a": -1.0, "b": 0.5}


def test_gaussian_noise_of_each_row_is_that_of_the_exact_process():
    model = build("gaussian")
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    y_new = np.array([0.3, 0.1, -0.5, 2.0])
    seen = bp.predict(result, NEW, model=model, data={"size": NEW_SIZE}, y_new=y_new, quantiles=[0.1, 0.6])
    sd, sd_new = np.exp(-1.0 + 0.5 * SIZE), np.exp(-1.0 + 0.5 * NEW_SIZE)
    K = kernel(X, X) + np.diag(sd**2 + 1e-6)
    cross = kernel(NEW, X)
    mean = cross @ np.linalg.solve(K, Y)
    f_variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
    exact = stats.norm(mean, np.sqrt(f_variance + sd_new**2))
    np.testing.assert_allclose(seen["f_mean"], mean, atol=1e-8)
    np.testing.assert_allclose(seen["f_variance"], f_variance, atol=1e-8)
    np.testing.assert_allclose(seen["y_variance"], f_variance + sd_new**2, rtol=1e-8)
    np.testing.assert_allclose(seen["y_log_density"], exact.logpdf(y_new), atol=1e-8)
    np.testing.assert_allclose(seen["y_cdf"], exact.cdf(y_new), atol=1e-7)
    np.testing.assert_allclose(seen["y_quantile"], [exact.ppf(0.1), exact.ppf(0.6)], atol=1e-6)
    z = (y_new - mean) / exact.std()
    crps = exact.std() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(seen["y_crps"], crps, rtol=1e-6)


@pytest.mark.slow
def test_each_row_is_predicted_as_alone():
    """The cdf is the integral of the density, and rows that are predicted together do not mix."""
    model = build("soft")
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    y_new = np.array([0.3, 0.1, -0.5, 2.0])
    together = bp.predict(result, NEW, model=model, data={"size": NEW_SIZE}, y_new=y_new)
    for i in range(4):
        row = slice(i, i + 1)
        alone = bp.predict(result, NEW[row], model=model, data={"size": NEW_SIZE[row]}, y_new=y_new[row])
        for name in together.data_vars:
            np.testing.assert_allclose(together[name].values[..., row], alone[name].values, rtol=1e-6, atol=1e-12)
        C, f = np.exp(-1.0 + 0.5 * NEW_SIZE[i]), stats.norm(alone["f_mean"][0], np.sqrt(alone["f_variance"][0]))
        noise = soft_insensitive(C=C, epsilon=0.1 * NEW_SIZE[i], beta=0.3)
        reach = (f.ppf(1e-12), f.ppf(1 - 1e-12))
        below, _ = integrate.quad(lambda g: f.pdf(g) * float(noise.cdf(y_new[i] - g)), *reach)  # noqa: B023
        assert float(alone["y_cdf"][0]) == pytest.approx(below, abs=1e-6)


@pytest.mark.parametrize("named", [True, False])
def test_tables_of_new_rows_have_the_order_of_the_coordinates_of_data(named):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["a", "b"])
    labels = {"dims": ("row", "input"), "coords": {"input": list(table)}} if named else {"dims": ("row", "input")}
    with pm.Model() as model:
        at = pm.Data("X", table, **labels)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=[1.0, 3.0])).prior("f", X=at)
        pm.Normal("y", mu=f, sigma=0.3, observed=table["a"].to_numpy())
        result = bp.fit(bp.MeanField(), progressbar=False)
    expected = bp.predict(result, table.to_numpy(), model=model)
    xr.testing.assert_equal(bp.predict(result, table, model=model), expected)
    labelled = xr.DataArray(table, dims=("row", "input"), coords={"input": list(table)})
    xr.testing.assert_equal(bp.predict(result, labelled, model=model), expected)
    if named:
        for wrong, got in ((labelled[:, ::-1], "b, a"), (labelled[:2].T, "rows of these names")):
            with pytest.raises(ValueError, match=f"X_new must have the columns a, b, in this order, got {got}"):
                bp.predict(result, wrong, model=model)
    else:  # PyMC keeps no names
        assert bp.predict(result, table.set_axis(["c", "d"], axis=1), model=model).equals(expected)


@pytest.mark.slow
def test_data_of_new_rows_have_the_labels_of_the_model():
    with pm.Model(coords={"of": ["a", "b"]}) as model:
        w = pm.Data("w", np.stack([X[:, 0], X[:, 0] ** 2], axis=1), dims=(None, "of"))
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        pm.Normal("y", mu=f + w @ pm.Normal("slopes", dims="of"), sigma=0.3, observed=Y)
        result = bp.fit(bp.MeanField(), progressbar=False)
    given = xr.DataArray([[1.0, 0.0], [0.0, 1.0]], dims=("row", "of"), coords={"of": ["a", "b"]})
    seen = bp.predict(result, NEW[:2], model=model, data={"w": given})
    assert seen.equals(bp.predict(result, NEW[:2], model=model, data={"w": given.to_pandas()}))
    by_name = r"labels \['a', 'b'\] of of"
    for wrong, got in ((given[:, ::-1], by_name), (given[:, ::-1].to_pandas(), by_name), (given.T, "dimension of at")):
        with pytest.raises(ValueError, match=rf"data\['w'\] must have the {got}"):
            bp.predict(result, NEW[:2], model=model, data={"w": wrong})


@pytest.mark.slow
def test_noise_of_the_inputs_needs_no_other_data():
    model = build("of the inputs")
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    seen = bp.predict(result, NEW, model=model)
    noise = soft_insensitive(C=np.exp(-1.0 + 0.5 * NEW[:, 0]), epsilon=0.1, beta=0.3)
    np.testing.assert_allclose(seen["y_variance"] - seen["f_variance"], noise.variance, rtol=1e-10)
    # As many new rows as training rows, which are others.
    moved = bp.predict(result, X + 1.0, model=model)
    noise = soft_insensitive(C=np.exp(-1.0 + 0.5 * (X[:, 0] + 1.0)), epsilon=0.1, beta=0.3)
    np.testing.assert_allclose(moved["y_variance"] - moved["f_variance"], noise.variance, rtol=1e-10)


@pytest.mark.slow
def test_draws_have_their_own_noise():
    model = build("soft")
    problem = read_model(model)
    rng = np.random.default_rng(0)
    held = {"f": (("chain", "draw", "obs"), rng.normal(size=(2, 20, N)))}
    held |= {name: (("chain", "draw"), rng.normal(size=(2, 20))) for name in ("a", "b")}
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset(held)})
    result = from_samples(problem, samples, {}, {"inference": "NUTS", "method": '{"name": "NUTS"}'}, rng)
    seen = bp.predict(result, NEW, model=model, data={"size": NEW_SIZE}, quantiles=[0.5], y_new=np.zeros(4))
    a, b = (result["posterior"][name].values.ravel()[:, None] for name in ("a", "b"))
    each = [soft_insensitive(C=C, epsilon=0.1 * NEW_SIZE, beta=0.3).variance for C in np.exp(a + b * NEW_SIZE)]
    np.testing.assert_allclose(seen["y_variance"] - seen["f_variance"], np.mean(each, axis=0), rtol=1e-10)
    assert np.isfinite(seen["y_quantile"]).all()
    assert ((seen["y_cdf"] > 0) & (seen["y_cdf"] < 1)).all()


@pytest.mark.parametrize("rows", [4, N])
def test_a_vector_that_is_not_computed_from_data_is_refused(rows):
    """Also where there are as many new rows as training rows, so that shapes agree."""
    model = build("constant")
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    with pytest.raises(ValueError, match="the noise has a value for each training point, which says nothing"):
        bp.predict(result, np.linspace(-1, 1, rows)[:, None], model=model)


@pytest.mark.slow_cases("mu")
@pytest.mark.parametrize("part", ["mu", "sigma"])
def test_a_constant_like_a_column_of_one_value_may_follow_it_or_not(part):
    ones, inputs = np.ones(N), np.column_stack([X[:, 0], np.ones(N)])
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=inputs)
        pm.Normal("y", f + ones if part == "mu" else f, ones, observed=Y)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    found = bp.predict(result, [[9.0, 1.0]], model=model)
    assert found["f_mean"].item() == pytest.approx(float(part == "mu"), abs=1e-6)
    assert (found["y_variance"] - found["f_variance"]).item() == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"X_new must have 1 in column 1, .*, got 50: a constant .* may follow this"):
        bp.predict(result, [[9.0, 1.0], [9.0, 50.0]], model=model)


@pytest.mark.parametrize("extreme", ["max", "min"])
@pytest.mark.parametrize("part", ["mu", "C"])
def test_an_extreme_of_the_training_rows_is_refused_at_new_rows(extreme, part):
    """Some random rows have it, and a new row alone has another."""
    with pm.Model() as model:
        size = pm.Data("size", np.linspace(1.0, 3.0, N))
        share, f = size / getattr(size, extreme)(), bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        mu, C = (f + share, 5.0) if part == "mu" else (f, 5.0 * share)
        bp.Huber("y", mu=mu, C=C, epsilon=0.1, observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    with pytest.raises(ValueError, match=r"(mu has a value for each training row|point, which says nothing about)"):
        bp.predict(result, NEW, model=model, data={"size": NEW_SIZE})


def test_data_that_give_the_noise_a_bad_value_are_no_vector():
    """The error is that of the value, and not that the noise has one for each training point."""
    model = build("soft")
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    with pytest.raises(ValueError, match="epsilon must be finite and >= 0, got -"):
        bp.predict(result, NEW, model=model, data={"size": -NEW_SIZE})


def test_data_that_are_missing_unknown_or_of_another_length_are_named():
    model = build("soft")
    problem = read_model(model)
    assert set(rowwise_data(problem)) == {"size"}
    for data, message in (
        (None, r"the noise depends on size, unknown at the new inputs: give its values there, data=\{'size': \.\.\.\}"),
        ({"length": NEW_SIZE}, "data has no 'length' of the model with a row for each training point; it has: size"),
        ({"size": NEW_SIZE[:2]}, r"data\['size'\] must have shape \(4,\)|data\['size'\] must be"),
        ({"size": [1.0, np.nan, 1.0, 1.0]}, r"data\['size'\] must be finite, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            noise_of_rows(problem, new_rows(problem, NEW, data), data)


@pytest.mark.slow
def test_outputs_in_one_process_have_their_own_noise():
    """Stacked rows, with the number of the output as last input: evidence and predictions of dense algebra."""
    rng = np.random.default_rng(4)
    time, output = np.r_[np.linspace(0, 3, 6), np.linspace(0.2, 4, 8)], np.repeat([0.0, 1.0], [6, 8])
    rows, y = np.c_[time, output], rng.normal(size=14)
    with pm.Model() as model:
        at = pm.Data("X", rows)
        W = pm.Normal("W", shape=(2, 1))
        sigma = pm.HalfNormal("sigma", 1.0, shape=2)
        both = pm.gp.cov.Coregion(2, W=W, kappa=np.array([0.1, 0.2]), active_dims=[1])
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[0]) * both).prior("f", X=at)
        pm.Normal("y", mu=f, sigma=sigma[at[:, 1].astype("int64")], observed=y)
    point = {"W": [[1.0], [-0.5]], "sigma": [0.1, 0.4]}
    result = bp.fit(bp.MeanField(), model, hyperparameters=point, progressbar=False)
    B = np.array([[1.1, -0.5], [-0.5, 0.45]])

    def covariance(a, b):
        i, j = (rows[:, 1].astype(int) for rows in (a, b))
        return B[np.ix_(i, j)] * np.exp(-0.5 * ((a[:, :1] - b[:, :1].T) / 0.8) ** 2)

    noise = np.where(output == 0, 0.1, 0.4) ** 2
    K = covariance(rows, rows) + np.diag(noise + 1e-6)
    assert result.attrs["log_evidence"] == pytest.approx(stats.multivariate_normal(cov=K).logpdf(y), abs=1e-6)
    new = np.array([[1.3, 0.0], [1.3, 1.0], [9.0, 1.0]])
    seen = bp.predict(result, new, model=model)
    cross = covariance(new, rows)
    np.testing.assert_allclose(seen["f_mean"], cross @ np.linalg.solve(K, y), atol=1e-5)
    expected = np.diag(covariance(new, new)) - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
    np.testing.assert_allclose(seen["f_variance"], expected, atol=1e-5)
    np.testing.assert_allclose(seen["y_variance"] - seen["f_variance"], [0.01, 0.16, 0.16], rtol=1e-8)


@pytest.mark.slow_cases("data", "noise", "constant")
@pytest.mark.parametrize("name", ["data", "constant", "groups", "noise"])
def test_whole_numbers_of_the_model_are_not_truncated_at_new_rows(name):
    """Years between those of the model are inputs like others; a place of a vector and whole data are refused."""
    years = np.arange(N)
    with pm.Model() as model:
        at = pm.Data("years", years[:, None]) if name == "data" else years[:, None] * 1.0
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8)).prior("f", X=at)
        b = pm.Normal("b", shape=N if name == "groups" else ())
        mu = f + (b[years] if name == "groups" else b * (years if name == "constant" else 1.0))
        pm.Normal("y", mu, 0.1 * pm.Data("z", years + 1) if name == "noise" else 0.3, observed=Y)
    result = bp.fit(bp.Laplace(), model, progressbar=False)
    if name in ("groups", "noise"):
        label, data = ("X_new", {}) if name == "groups" else (r"data\['z'\]", {"data": {"z": [1.5]}})
        with pytest.raises(ValueError, match=f"{label} must be whole numbers, as in the model, got 1.5"):
            bp.predict(result, [[1.5]], model=model, **data)
        return
    slope = np.outer(years, years) if name == "constant" else 1.0
    K = kernel(years[:, None], years[:, None]) + slope + (0.3**2 + 1e-6) * np.eye(N)
    cross = kernel(np.array([[1.5]]), years[:, None]) + (1.5 * years if name == "constant" else 1.0)
    seen = bp.predict(result, [[1.5]], model=model)["f_mean"]
    np.testing.assert_allclose(seen, cross @ np.linalg.solve(K, Y), atol=1e-5)
