"""Several observed variables of one latent function."""

from __future__ import annotations

from collections.abc import Callable

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

import bsvr_pp as bp
from bsvr_pp import losses
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.model.reader import read_model
from tests.helpers import model_of

N, FIRST = 12, 7
RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (N, 1))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
OTHER = RNG.normal(size=N)
GROUP = np.arange(N) % 3
SECOND = np.array([3, 0, 11, 8, 5])  # rows in another order
REST = np.setdiff1d(np.arange(N), SECOND)
K = np.exp(-0.5 * (X - X.T) ** 2)
CHAIN = bp.NUTS(draws=3, tune=3, chains=1, latent=bp.Laplace())


def process(inputs: object = X, white: float = 0.0, **options: object) -> pt.TensorVariable:
    kernel = pm.gp.cov.ExpQuad(1, ls=1.0)
    return bp.GP(cov_func=kernel + pm.gp.cov.WhiteNoise(white) if white else kernel).prior("f", X=inputs, **options)


NOISES = {
    "soft_insensitive": (lambda f: bp.SoftInsensitive.dist(f, 8.0, 0.2, 0.3), losses.soft_insensitive(8.0, 0.2, 0.3)),
    "epsilon": (lambda f: bp.EpsilonInsensitive.dist(f, 5.0, 0.1), losses.epsilon_insensitive(5.0, 0.1)),
    "huber": (lambda f: bp.Huber.dist(f, 5.0, 0.1), losses.huber(5.0, 0.1)),
    "absolute": (lambda f: pm.Laplace.dist(f, 0.2), losses.absolute(5.0)),
    "gaussian": (lambda f: pm.Normal.dist(f, 0.3), losses.gaussian(1 / 0.3**2)),
}


@pytest.mark.parametrize(("one", "other"), [("gaussian", "gaussian"), *(("huber", name) for name in NOISES)])
def test_each_row_has_the_noise_of_its_target(one: str, other: str):
    def make() -> None:
        f = process()
        model = pm.modelcontext(None)
        model.register_rv(NOISES[one][0](f[REST]), "one", observed=Y[REST])
        model.register_rv(NOISES[other][0](f[SECOND]), "other", observed=Y[SECOND])

    problem = read_model(model_of(make))
    f, found = np.sin(X[:, 0]), np.empty(N)
    found[REST] = NOISES[one][1].log_likelihood(Y[REST], f[REST])
    found[SECOND] = NOISES[other][1].log_likelihood(Y[SECOND], f[SECOND])
    np.testing.assert_allclose(problem.noise_of_rows({}).log_likelihood(problem.targets, f), found, rtol=1e-9)
    np.testing.assert_array_equal(problem.targets, Y)  # in the order of f
    np.testing.assert_allclose(problem.dense_at({})[0].matvec(np.eye(N)[0]), K[0] + 1e-6 * (np.arange(N) == 0))


@pytest.mark.slow_cases("False-False")
@pytest.mark.parametrize(("as_data", "reparameterize"), [(True, True), (False, False)])
def test_targets_of_the_same_rows_against_the_exact_process(as_data: bool, reparameterize: bool):
    def make() -> None:
        f = process(pm.Data("X", X) if as_data else X, reparameterize=reparameterize, dims="obs")
        pm.Deterministic("twice", 2.0 * f, dims="obs")
        shift = pm.Normal("shift", 0.0, 2.0)
        pm.Normal("y", f, pm.HalfNormal("sd"), observed=Y, dims="obs")
        bp.Huber("z", 3.0 * f + shift, C=2 * 100.0 / 0.7**2, epsilon=100.0, observed=OTHER)

    model = model_of(make, coords={"obs": np.arange(N)})
    A = np.vstack([np.eye(N), 3.0 * np.eye(N)])
    covariance = A @ K @ A.T + np.diag(np.repeat([0.1**2, 0.7**2], N))
    covariance[N:, N:] += 4.0
    targets = np.concatenate([Y, OTHER])
    truth = multivariate_normal(np.zeros(2 * N), covariance).logpdf(targets)
    result = bp.fit(bp.MeanField(), model, hyperparameters={"sd": 0.1}, progressbar=False, draws=30)
    assert result.attrs["log_evidence"] == pytest.approx(truth, abs=2e-3)  # jitter is 1e-6 of a variance of .01
    posterior = result["posterior"].to_dataset()
    assert posterior["twice"].sizes == {"chain": 1, "draw": 30, "obs": N}
    np.testing.assert_allclose(posterior["twice"].values, 2.0 * posterior["f"].values[..., :N])

    x = np.array([[0.4]])
    cross = np.exp(-0.5 * (x - X.T) ** 2) @ A.T
    mean, variance = cross @ np.linalg.solve(covariance, targets), 1 - cross @ np.linalg.solve(covariance, cross.T)
    of_y = bp.predict(result, x, model=model, target="y")
    np.testing.assert_allclose(of_y["f_mean"], mean, atol=1e-3)
    np.testing.assert_allclose(of_y["y_variance"], variance[0] + 0.01, rtol=1e-2)
    cross = 3.0 * cross + np.repeat([0.0, 4.0], N)
    variance = 9.0 + 4.0 - cross @ np.linalg.solve(covariance, cross.T)
    of_z = bp.predict_distribution(result, x, model=model, target="z")
    np.testing.assert_allclose(of_z.mean(), cross @ np.linalg.solve(covariance, targets), atol=3e-3)
    np.testing.assert_allclose(of_z.var(), variance[0] + 0.49, rtol=1e-3)


def stacked_by_hand(shift: float) -> pm.Model:
    def make() -> None:
        hour, which = (
            pm.Data(name, np.where(np.isin(np.arange(N), SECOND), v, 0)) for name, v in (("h", OTHER), ("w", 1))
        )
        u = pm.Normal("u", shape=3)
        mu = process(pm.Data("X", X)) + which * (pm.Normal("b") * hour + u[pm.Data("g", GROUP)] + shift)
        C = pm.HalfNormal("C", 9.0, shape=2)
        bp.Huber("y", mu, C[which], 0.1, observed=Y)

    return model_of(make)


@pytest.mark.slow
def test_data_of_one_target_alone():
    def make() -> None:
        f, u, b = process(pm.Data("X", X)), pm.Normal("u", shape=3), pm.Normal("b")
        C = pm.HalfNormal("C", 9.0, shape=2)
        bp.Huber("one", f[REST], C[0], 0.1, observed=Y[REST])
        mean = f[SECOND] + b * pm.Data("h", OTHER[SECOND]) + u[pm.Data("g", GROUP[SECOND])] + 0.3
        bp.Huber("other", mean, C[1], 0.1, observed=pm.Data("y", Y[SECOND]))

    model, other, point = model_of(make), stacked_by_hand(0.3), {"C": [9.0, 4.0]}
    results = [bp.fit(bp.MeanField(), m, hyperparameters=point, progressbar=False, draws=9) for m in (model, other)]
    assert results[0].attrs["log_evidence"] == pytest.approx(results[1].attrs["log_evidence"], abs=1e-9)
    new = {"h": [0.5], "g": [2]}
    found = bp.predict(results[0], [[1.0]], model=model, target="other", data=new)
    expected = bp.predict(results[1], [[1.0]], model=other, data=new | {"w": [1]})
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-8)
    found = bp.predict(results[0], [[1.0]], model=model, target="one")
    expected = bp.predict(results[1], [[1.0]], model=other, data={"h": [0.0], "g": [0], "w": [0]})
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-8)

    with model:
        pm.set_data({"h": OTHER[SECOND] + 1.0, "y": Y[SECOND] + 1.0})
    problem = read_model(model)
    np.testing.assert_array_equal(problem.targets[SECOND], Y[SECOND] + 1.0)
    np.testing.assert_array_equal(problem.data["h"][SECOND], OTHER[SECOND] + 1.0)


def test_classes_beside_numbers_are_intervals():
    above = OTHER[:5] > 0.0

    def make() -> None:
        f = process()
        bp.Huber("y", f, 5.0, 0.1, observed=Y)
        ends = np.where(above, 0.0, -np.inf), np.where(above, np.inf, 0.0)
        bp.Interval("label", f[:5] - pm.Normal("t"), *ends, 3.0, noise="absolute")

    problem = read_model(model_of(make))
    f = np.linspace(-1.0, 1.0, N + 5)
    expected = losses.huber(5.0, 0.1).log_likelihood(Y, f[:N])
    mass = np.where(above, losses.absolute(3.0).cdf(f[N:]), losses.absolute(3.0).cdf(-f[N:]))
    found = problem.noise_of_rows({}).log_likelihood(problem.targets, f)
    np.testing.assert_allclose(found, np.concatenate([expected, np.log(mass)]), rtol=1e-9)


def test_marginal_model_has_the_joint_density():
    def make() -> None:
        f = process()
        pm.Normal("y", f, pm.HalfNormal("sd"), observed=pm.Data("seen", Y))
        pm.Normal("z", f[:4], 0.5, observed=OTHER[:4])

    marginal = bp.marginalize(bp.MeanField(), model_of(make))
    with marginal, pytest.raises(TypeError, match="`seen` must be a `SharedVariable`"):  # its rows are stacked
        pm.set_data({"seen": Y + 1.0})
    samples = az.from_dict({"posterior": {"sd": np.full((1, 2), 0.3)}})
    assert bp.recover_latent(samples, model=marginal)["posterior"]["f"].shape == (1, 2, N + 4)
    assert [v.name for v in marginal.observed_RVs] == ["y_and_z"]
    A = np.vstack([np.eye(N), np.eye(N)[:4]])
    covariance = A @ K @ A.T + 1e-6 * np.eye(N + 4) + np.diag(np.repeat([0.3**2, 0.5**2], [N, 4]))
    truth = multivariate_normal(np.zeros(N + 4), covariance).logpdf(np.concatenate([Y, OTHER[:4]]))
    found = marginal.compile_logp(vars=marginal.observed_RVs)({"sd_log__": np.log(0.3)})
    assert found == pytest.approx(truth, abs=1e-8)
    with pytest.raises(ModelError, match="model must observe one variable, got y, z"):
        bp.calibrate(bp.NUTS(), model_of(make))


@pytest.mark.slow
def test_rows_with_another_target_or_none_beside_missing_ones_and_inputs_as_columns():
    missing = [2, FIRST]  # of which the first has the other target

    def make() -> None:
        inputs = pm.Data("X", X)
        f, b = process(inputs), pm.Normal("b")
        with pytest.warns(UserWarning, match="missing"):
            pm.Normal("y", f, 0.2, observed=np.where(np.isin(np.arange(N), missing), np.nan, Y))
        pm.Normal("z", 2.0 * f[:4] + b * inputs[:4, 0], 0.5, observed=OTHER[:4])

    model, kept = model_of(make), np.append(np.delete(np.arange(N), missing), np.arange(4))
    A = np.eye(N)[kept] * np.repeat([1.0, 2.0], [N - 2, 4])[:, None]
    covariance = A @ K @ A.T + np.diag(np.repeat([0.04, 0.25], [N - 2, 4]))
    covariance[-4:, -4:] += X[:4] @ X[:4].T
    result = bp.fit(bp.Laplace(), model, progressbar=False, draws=9)
    targets = np.concatenate([np.delete(Y, missing), OTHER[:4]])
    truth = multivariate_normal(np.zeros(N + 2), covariance).logpdf(targets)
    assert result.attrs["log_evidence"] == pytest.approx(truth, abs=1e-3)
    assert "y_unobserved" not in result["posterior"]  # f has no value there, and `predict` has one
    assert np.isfinite(bp.predict(result, X[missing], model=model, target="y_observed")["y_mean"]).all()
    low, high = (bp.predict(result, [[x]], model=model, target="z")["f_mean"].item() for x in (9.0, 10.0))
    assert high - low == pytest.approx(result["moments"]["b"].sel(moment="mean").item(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", [bp.Laplace(), CHAIN])
def test_data_with_dims_have_no_dims_where_rows_are_stacked(method: object):
    def make() -> None:
        h, b = pm.Data("h", OTHER, dims="obs"), pm.Normal("b")
        f = process(pm.Data("X", X, dims=("obs", "column")))
        pm.Normal("y", f + b * h, 0.2, observed=Y, dims="obs")
        pm.Normal("z", f[:4], pm.HalfNormal("sd"), observed=OTHER[:4])

    model = model_of(make, coords={"obs": np.arange(N)})
    result = bp.fit(method, model, progressbar=False, random_seed=0)
    assert result["constant_data"]["h"].shape == (N + 4,)
    with pytest.raises(ValueError, match=r"target must be one of y, z, .*: give it to bp.predict or"):
        bp.plot_predictive({"result": result}, model=model)
    with pytest.raises(ValueError, match="data has 'source', on which z does not depend"):
        bp.predict(result, [[0.0]], model=model, target="z", data={"source": [0]})


def parts(make: Callable[[pt.TensorVariable], object]) -> Callable[[], object]:
    return lambda: (f := process(), pm.Normal("y", f, 0.2, observed=Y), make(f))


REFUSED = {
    "labels": (
        parts(lambda f: bp.SVMLabel("z", f, 1.0, observed=np.sign(OTHER).astype(int))),
        "z are labels or ordered classes, .*: make them bp.Interval",
    ),
    "classes": (
        parts(lambda f: bp.Ordinal("z", f, [0.0], C=1.0, observed=GROUP % 2)),
        "z are labels or ordered classes",
    ),
    "counts": (parts(lambda f: pm.Poisson("z", pt.exp(f), observed=GROUP)), "the noise of z is Poisson"),
    "pinball": (
        parts(lambda f: pm.AsymmetricLaplace("z", mu=f, b=1.0, q=0.3, observed=OTHER)),
        r"must have one loss, or limits of the soft one, got y \(gaussian\) and z \(pinball\)",
    ),
    "two axes": (
        parts(lambda f: pm.Normal("z", f[:, None], 1.0, observed=np.stack([Y, Y], axis=1))),
        "the targets z must have one axis, the rows, got 2 axes",
    ),
    "a table as long as the rows": (
        lambda: (
            f := process(),
            g := pm.Data("g", [2, 0, 1]),
            pm.Normal("y", f[SECOND[:3]] + pt.constant([-3.0, 0.0, 5.0])[g], 1.0, observed=Y[:3]),
            pm.Normal("z", f[np.setdiff1d(np.arange(N), SECOND[:3])], 1.0, observed=Y[3:]),
        ),
        "a row of y must depend on f and on data of this row alone",
    ),
    "a place of data": (
        lambda: (
            f := process(),
            pm.Normal("y", f[SECOND] + pm.Data("h", OTHER[:5])[0], 1.0, observed=Y[SECOND]),
            pm.Normal("z", f[REST], 1.0, observed=Y[REST]),
        ),
        "a row of y must depend on f and on data of this row alone",
    ),
    "a mask of data": (
        lambda: (
            f := process(),
            first := pm.Data("first", np.arange(N) < FIRST),
            pm.Normal("y", f[first], 1.0, observed=Y[:FIRST]),
            pm.Normal("z", f[~first], 1.0, observed=Y[FIRST:]),
        ),
        "a row of y must depend on f and on data of this row alone",
    ),
    "several rows": (
        parts(lambda f: pm.Normal("z", f[1:] - f[:-1], 1.0, observed=OTHER[1:])),
        "z depends on several rows of f in each row",
    ),
    "cumulated": (
        parts(lambda f: pm.Normal("z", f.cumsum(), 1.0, observed=OTHER)),
        "a row of z must depend on f and on data of this row alone",
    ),
    "mean of f": (
        parts(lambda f: pm.Normal("z", f[:4] + f.mean(), 1.0, observed=OTHER[:4])),
        "f must have one value in each row of all observed variables that depend on it",
    ),
    "learned ends": (
        parts(lambda f: pm.Censored("z", pm.Normal.dist(f, 1.0), pm.Normal("low"), None, observed=OTHER)),
        "z has weights, or ends with hyperparameters",
    ),
    "a row without targets": (
        lambda: (
            f := process(),
            pm.Deterministic("square", f**2),
            pm.Normal("y", f[:4], 1.0, observed=Y[:4]),
            pm.Normal("z", f[6:], 1.0, observed=Y[6:]),
        ),
        "square depends on f, whose row 4 has no target: leave it out",
    ),
    "a prior of rows": (
        lambda: (
            h := pm.Data("h", OTHER),
            s := pm.HalfNormal("s", h.std()),
            f := process(),
            pm.Normal("y", f + s * h, 1.0, observed=Y),
            pm.Normal("z", f, 1.0, observed=Y),
        ),
        "s depends on data of the rows, where f has several observed variables",
    ),
    "a measurement of rows": (
        lambda: (
            h := pm.Data("h", OTHER),
            s := pm.HalfNormal("s"),
            f := process(),
            pm.Normal("x", s * h, 1.0, observed=Y),
            pm.Normal("y", f + s * h, 1.0, observed=Y),
            pm.Normal("z", f[:4], 1.0, observed=Y[:4]),
        ),
        "x depends on data of the rows",
    ),
    "blocks": (
        lambda: (
            f := process(blocks=bp.local_blocks(X, 6)),
            pm.Normal("y", f, 1.0, observed=Y),
            pm.Normal("z", f, 1.0, observed=Y),
        ),
        "f has blocks, which are of the rows of one observed variable",
    ),
    **{
        name: (
            lambda name=name: (f := process(**{name: 0.1}), [pm.Normal(name, f[:4], observed=Y[:4]) for name in "yz"]),
            "f has rows of several targets, and white noise or a jitter above 1e-05",
        )
        for name in ("white", "jitter")
    },
    "a sum of targets": (
        lambda: (
            f := process(),
            y := pm.Normal("y", f, 1.0, observed=Y),
            pm.Normal("z", f, 1.0, observed=Y),
            pm.Normal("sum", y.sum(), pm.HalfNormal("s"), observed=9.0),
        ),
        "sum depends on f or the value of a target, where f has several observed variables",
    ),
    "a potential": (
        parts(lambda f: (pm.Normal("z", f, 1.0, observed=Y), pm.Potential("p", -(f**2).sum()))),
        "the potential p depends on the latent function f",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stacked_is_refused(case: str):
    make, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        read_model(model_of(make))
