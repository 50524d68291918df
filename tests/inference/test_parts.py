"""Parts of f in results and predictions, against dense algebra of Gaussian noise."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import bsvr_pp as bp
from bsvr_pp.inference.recover import recover
from bsvr_pp.inference.result import from_samples
from bsvr_pp.model.reader import read_model

N = 14
RNG = np.random.default_rng(3)
T, Z = np.sort(RNG.uniform(0, 4, N))[:, None], RNG.normal(size=(N, 2))
B = np.array([1.0, -0.5])
Y = np.sin(T[:, 0]) + 0.5 * np.cos(6 * T[:, 0]) + Z @ B + 2.0 + RNG.normal(0, 0.1, N)
NEW, NEW_Z = np.array([[0.3], [2.2], [5.0]]), np.array([[0.5, 0.1], [-1.0, 2.0], [0.0, 1.0]])
AT = {"scale": 1.5, "sigma": 0.2}
JITTER = 1e-6 * np.eye(N)


def kernels(a, b):
    """Of trend, season and linear part, and the prior means are 0, 0 and that of b."""
    gap = (a[:, :1] - b[:, :1].T) ** 2
    return {"trend": np.exp(-0.5 * gap / 1.5**2), "season": 0.5 * np.exp(-0.5 * gap / 0.4**2)}


def build(noise="gaussian"):
    with pm.Model(coords={"effect": ["height", "width"]}) as model:
        scale, sigma = pm.HalfNormal("scale", 2.0), pm.HalfNormal("sigma", 1.0)
        at, z = pm.Data("T", T), pm.Data("Z", Z)
        b = pm.Normal("b", 0.3, scale, dims="effect")
        trend = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.5)).prior("trend", X=at)
        season = bp.GP(cov_func=0.5 * pm.gp.cov.ExpQuad(1, ls=0.4)).prior("season", X=at)
        mu = trend + season + z @ b + 2.0
        pm.Deterministic("effect_of_z", z @ b)
        if noise == "gaussian":
            pm.Normal("y", mu=mu, sigma=sigma, observed=Y)
        else:
            bp.SoftInsensitive("y", mu=mu, C=2 / sigma, epsilon=0.1, beta=0.3, observed=Y)
    return model


def exact():
    """Posterior mean and covariance of trend, season (N each) and b jointly, and those at new rows."""
    train = kernels(T, T)
    prior = np.zeros((2 * N + 2, 2 * N + 2))
    prior[:N, :N], prior[N : 2 * N, N : 2 * N] = train["trend"] + JITTER, train["season"] + JITTER
    prior[2 * N :, 2 * N :] = AT["scale"] ** 2 * np.eye(2)
    to_y = np.hstack([np.eye(N), np.eye(N), Z])
    mean = np.r_[np.zeros(2 * N), 0.3, 0.3]
    S = to_y @ prior @ to_y.T + AT["sigma"] ** 2 * np.eye(N)
    gain = prior @ to_y.T @ np.linalg.inv(S)
    return mean + gain @ (Y - 2.0 - to_y @ mean), prior - gain @ to_y @ prior, S, to_y @ mean + 2.0


@pytest.fixture(scope="module")
def fitted():
    model = build()
    return model, bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)


@pytest.mark.slow
def test_the_evidence_is_that_of_all_parts(fitted):
    _, result = fitted
    _, _, S, mean = exact()
    assert result.attrs["log_evidence"] == pytest.approx(stats.multivariate_normal(mean, S).logpdf(Y), abs=1e-6)


def test_draws_of_the_parts_are_joint_and_add_up(fitted):
    _, result = fitted
    mean, covariance, _, _ = exact()
    drawn = result["posterior"].to_dataset()
    assert drawn["b"].dims == ("chain", "draw", "effect")
    assert drawn["b"]["effect"].values.tolist() == ["height", "width"]
    parts = np.concatenate([drawn[name].values[0] for name in ("trend", "season", "b")], axis=1)
    sum_of_parts = parts[:, :N] + parts[:, N : 2 * N] + parts[:, 2 * N :] @ Z.T + 2.0
    np.testing.assert_allclose(result["location"]["mu"].values[0], sum_of_parts, atol=1e-10)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((parts.mean(axis=0) - mean) / sd, 0.0, atol=0.2)
    assert np.max(np.abs(np.corrcoef(parts.T) - covariance / np.outer(sd, sd))) < 0.2
    np.testing.assert_allclose(parts.std(axis=0) / sd, 1.0, atol=0.12)
    table = az.summary(result, var_names=["b"], kind="stats", round_to="none")
    np.testing.assert_allclose(table["mean"], mean[2 * N :], atol=0.2 * sd[-1])


@pytest.mark.slow
def test_components_are_predicted_exactly(fitted):
    model, result = fitted
    _, _, S, mean_y = exact()
    inverse = np.linalg.inv(S)
    cross = kernels(NEW, T) | {"b": AT["scale"] ** 2 * NEW_Z @ Z.T}
    variance = {"trend": 1.0, "season": 0.5, "b": AT["scale"] ** 2 * (NEW_Z**2).sum(axis=1)}
    offset = {"trend": 0.0, "season": 0.0, "b": NEW_Z @ [0.3, 0.3]}
    total = bp.predict(result, NEW, model=model, data={"Z": NEW_Z})
    added = 2.0
    for name, K_star in cross.items():
        seen = bp.predict(result, NEW, model=model, data={"Z": NEW_Z}, component=name)
        assert set(seen.data_vars) == {"f_mean", "f_variance"}
        np.testing.assert_allclose(seen["f_mean"], offset[name] + K_star @ inverse @ (Y - mean_y), atol=1e-7)
        expected = variance[name] - np.einsum("ij,jk,ik->i", K_star, inverse, K_star)
        np.testing.assert_allclose(seen["f_variance"], expected, atol=1e-7)
        added = added + seen["f_mean"]
    np.testing.assert_allclose(total["f_mean"], added, atol=1e-10)
    whole = sum(cross.values())
    expected = 1.5 + variance["b"] - np.einsum("ij,jk,ik->i", whole, inverse, whole)
    np.testing.assert_allclose(total["f_variance"], expected, atol=1e-7)


@pytest.mark.slow
def test_the_mode_has_its_parts():
    model = build()
    result = bp.fit(bp.MAP(), model, hyperparameters=AT, progressbar=False, draws=9)
    mean, _, _, _ = exact()
    drawn = result["posterior"].to_dataset().isel(chain=0, draw=[0, 8])
    parts = np.concatenate([drawn[name].values for name in ("trend", "season", "b")], axis=1)
    np.testing.assert_allclose(parts, [mean, mean], atol=1e-6)


@pytest.fixture(scope="module", params=[pytest.param("integrated", marks=pytest.mark.slow), "sampled"])
def drawn(request):
    """Draws at the given hyperparameters: f integrated out, or all parts from their exact posterior."""
    model = build()
    problem = read_model(model)
    rng = np.random.default_rng(0)
    shape = (1, 150)
    at = {name: (("chain", "draw"), np.full(shape, value)) for name, value in AT.items()}
    attributes = {"inference": "NUTS", "converged": 1}
    if request.param == "integrated":
        samples = xr.DataTree.from_dict({"posterior": xr.Dataset(at)})
        integrated = recover(problem, samples, bp.MeanField(), rng, False)
        return model, from_samples(problem, integrated, {}, attributes, rng)
    mean, covariance, _, _ = exact()
    parts = rng.multivariate_normal(mean, covariance, size=shape)
    held = {"trend": parts[..., :N], "season": parts[..., N : 2 * N], "b": parts[..., 2 * N :]}
    arrays = {name: (("chain", "draw", f"{name}_dim"), values) for name, values in held.items()}
    sampled = xr.DataTree.from_dict({"posterior": xr.Dataset(at | arrays)})
    return model, from_samples(problem, sampled, {}, attributes, rng)


@pytest.mark.slow
def test_draws_are_predicted_by_component(drawn, fitted):
    """Up to the error of 150 draws."""
    (model, result), (fit_model, expected) = drawn, fitted
    assert "mu" not in result["posterior"]  # the model has no name of it
    posterior = result["posterior"].to_dataset()
    np.testing.assert_allclose(
        result["location"]["mu"],
        posterior["trend"].values + posterior["season"].values + posterior["b"].values @ Z.T + 2.0,
        atol=1e-8,
    )
    if "effect_of_z" in posterior:
        np.testing.assert_allclose(posterior["effect_of_z"], posterior["b"].values @ Z.T, atol=1e-10)
    sd = float(posterior["b"].std(("chain", "draw")).max())
    np.testing.assert_allclose(posterior["b"].mean(("chain", "draw")), exact()[0][2 * N :], atol=0.25 * sd)
    for component in (None, "trend", "season", "b"):
        seen = bp.predict(result, NEW, model=model, data={"Z": NEW_Z}, component=component)
        there = bp.predict(expected, NEW, model=fit_model, data={"Z": NEW_Z}, component=component)
        np.testing.assert_allclose(seen["f_mean"], there["f_mean"], atol=0.25 * float(there["f_variance"].max()) ** 0.5)
        np.testing.assert_allclose(seen["f_variance"], there["f_variance"], rtol=0.3, atol=1e-3)


@pytest.mark.slow
def test_effects_and_their_scale_are_found_together():
    """Where the coefficients are optimised with their scale, the density has no maximum."""
    model = build("soft")
    result = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)
    assert result.attrs["converged"]
    assert float(result["posterior"]["scale"][0, 0]) > 0.1
    b = result["posterior"]["b"]
    assert (np.abs(b.mean(("chain", "draw")) - B) < 4 * b.std(("chain", "draw"))).all()


@pytest.mark.slow
def test_bad_components_and_data_are_named(fitted):
    model, result = fitted
    for change, message in (
        ({"component": "winter"}, r"component must be a part of f, trend, season, b, got 'winter'"),
        ({"component": "trend", "y_new": np.zeros(3)}, "component is a part of f, without noise"),
        ({"data": None}, r"f depends on Z, unknown at X_new: give its values, data=\{'Z': \.\.\.\}"),
        ({"data": {"Z": NEW_Z[:2]}}, r"data\['Z'\] must"),
        ({"data": {"Z": NEW_Z, "W": NEW_Z}}, "data has no 'W' of the model"),
    ):
        with pytest.raises(ValueError, match=message):
            bp.predict(result, NEW, model=model, **({"data": {"Z": NEW_Z}} | change))
    with pm.Model() as constant:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.5)).prior("f", X=T)
        pm.Normal("y", mu=f + pm.math.dot(Z, pm.Normal("b", shape=2)), sigma=0.2, observed=Y)
    held = bp.fit(bp.MeanField(), constant, progressbar=False)
    with pytest.raises(ValueError, match="a part of f has a constant with a value for each training point"):
        bp.predict(held, NEW, model=constant)


@pytest.mark.slow
def test_a_part_is_averaged_over_points_by_weight():
    model, options = build(), {"random_seed": 1, "progressbar": False}
    points = AT, {"scale": 0.5, "sigma": 0.8}
    alone = [bp.fit(bp.MeanField(), model, hyperparameters=point, **options) for point in points]
    latent = [result["latent_posterior"].to_dataset() for result in alone]
    weight = np.array([0.9, 0.1])
    members = {name: ("member", np.array([point[name] for point in points])) for name in AT}
    for name in ("dual_coef", "site_precision"):
        members[name] = (("member", latent[0][name].dims[0]), np.stack([each[name] for each in latent]))
    several = alone[0].copy()
    several["members"] = xr.DataTree(xr.Dataset({"weight": ("member", weight), **members}))
    found = bp.predict(several, NEW, model=model, data={"Z": NEW_Z}, component="trend")
    with pytest.raises(ValueError, match="neighbours=5 takes the whole f, and component is a part"):
        bp.predict(several, NEW, model=model, data={"Z": NEW_Z}, component="trend", neighbours=5)
    each = [bp.predict(result, NEW, model=model, data={"Z": NEW_Z}, component="trend") for result in alone]
    mean = np.stack([one["f_mean"] for one in each])
    second = np.stack([one["f_variance"] for one in each]) + mean**2
    assert np.abs(mean[0] - mean[1]).max() > 0.01
    np.testing.assert_allclose(found["f_mean"], weight @ mean, rtol=1e-10)
    np.testing.assert_allclose(found["f_variance"], weight @ second - (weight @ mean) ** 2, rtol=1e-8)


def test_a_variable_that_acts_through_another_has_no_share_of_its_own():
    group = np.arange(N) % 3
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.2, 0.5)
        effect = pm.Normal("effect", mean, 0.3, shape=3)[pm.Data("group", group)]
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=T)
        pm.Normal("y", f + effect, 0.1, observed=Y)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    new = {"X_new": NEW[:2], "model": model, "data": {"group": [0, 1]}}
    seen = [bp.predict(result, component=name, **new) for name in ("f", "effect", "mean")]
    assert not seen[2]["f_mean"].any() and not seen[2]["f_variance"].any()
    np.testing.assert_allclose(sum(each["f_mean"] for each in seen), bp.predict(result, **new)["f_mean"], atol=1e-10)
