"""A result is used with the model and the data that it was computed from, or refused."""

import json
from functools import partial

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.inference.protocol import to_record
from bsvr_pp.inference.result import from_samples
from bsvr_pp.model.reader import read_model
from bsvr_pp.show.plots import calibration_picture

N = 12
X = np.random.default_rng(0).normal(size=(N, 2))
Y = np.sin(X[:, 0])
AT = {"lengthscale": 1.5, "C": 5.0}


def build(X=X, y=Y, noise="soft_insensitive", kernel=pm.gp.cov.ExpQuad, mean=0.0, epsilon=0.1):
    with pm.Model() as model:
        ls, C = pm.LogNormal("lengthscale", 0.0, 1.0), pm.LogNormal("C", 1.0, 1.5)
        gp = bp.GP(mean_func=pm.gp.mean.Constant(mean), cov_func=kernel(2, ls=ls))
        f = gp.prior("f", X=pm.Data("X", X))
        if noise == "soft_insensitive":
            bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=pm.Data("targets", y))
        else:
            pm.Laplace("y", mu=f, b=1 / C, observed=pm.Data("targets", y))
    return model


def replaced(**data):
    model = build()
    with model:
        pm.set_data(data)
    return model


def of_point(model, method=None):
    return bp.fit(method or bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)


@pytest.fixture(scope="module")
def point():
    return of_point(build())


@pytest.fixture(scope="module")
def sampled():
    """What `NUTS(latent=MeanField())` gives, from draws that are made by hand."""
    draws = {name: (("chain", "draw"), value * np.linspace(0.9, 1.1, 30)[None]) for name, value in AT.items()}
    groups = {"posterior": xr.Dataset(draws), "observed_data": xr.Dataset({"y": ("y_dim_0", Y)})}
    groups["constant_data"] = xr.Dataset({"X": (("X_dim_0", "X_dim_1"), X)})
    marginal = bp.marginalize(bp.MeanField(), build())
    tree = bp.recover_latent(xr.DataTree.from_dict(groups), model=marginal, random_seed=0, progressbar=False)
    tree["latent_posterior"] = xr.DataTree(tree["posterior"].to_dataset()["f"].mean(("chain", "draw")).to_dataset())
    record = json.dumps(to_record(bp.NUTS(latent=bp.MeanField())))
    tree.attrs |= {"inference": "NUTS (mean field)", "method": record, "loss": "soft_insensitive", "converged": 1}
    tree.attrs |= {"latent": "f", "inputs": "X", "hyperparameters": json.dumps(list(AT)), "derived": "[]"}
    return tree


OTHERS = {
    "reversed rows": (lambda: build(X[::-1], Y[::-1]), f"other inputs than the model has: {N} of {N} rows differ"),
    "reversed targets": (lambda: build(X, Y[::-1]), "other targets than the model has"),
    "one target": (lambda: build(X, np.where(np.arange(N) == 3, 7.0, Y)), "1 of 12 rows differ, the first is row 3"),
    "inputs replaced": (lambda: replaced(X=2 * X), "other inputs than the model has"),
    "targets replaced": (lambda: replaced(targets=-Y), "other targets than the model has"),
    "a column dropped": (lambda: build(X[:, :1] @ [[1.0, 0.0]], Y), "other inputs than the model has"),
    "another noise": (lambda: build(noise="absolute"), "soft_insensitive noise and the model absolute"),
}
# With the same data, names and hyperparameters.
FUNCTIONS = {
    "kernel": partial(build, kernel=pm.gp.cov.Matern32),
    "mean": partial(build, mean=0.5),
    "noise": partial(build, epsilon=0.2),
}
ON_POINTS = {
    "predict": lambda result, model: bp.predict(result, X, model=model),
    "loo": lambda result, model: bp.loo(result, model=model),
    "compare": lambda result, model: bp.compare({"a": result}, model=model),
    "plot_predictive": lambda result, model: bp.plot_predictive({"a": result}, model=model),
    "calibration_picture": lambda result, model: calibration_picture({"a": result}, X, Y, model),
}
ON_DRAWS = ON_POINTS | {
    "verify": lambda result, model: bp.verify(result, model=model, progressbar=False),
    "integrated_evidence": lambda result, model: bp.integrated_evidence(result, model=model),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_result_of_other_data_is_refused(point, other):
    make, message = OTHERS[other]
    model = make()
    for name, use in ON_POINTS.items():
        with pytest.raises(ValueError, match=message):
            use(point, model)
            pytest.fail(f"{name} took it")


def intervals(upper, kind="interval"):
    """Targets that are the same numbers, and ends that are not."""
    with pm.Model() as model:
        ls, C = pm.LogNormal("lengthscale", 0.0, 1.0), pm.LogNormal("C", 1.0, 1.5)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=ls)).prior("f", X=X)
        if kind == "interval":
            above = np.where(np.arange(N) == 3, upper, Y)
            bp.Interval("y", mu=f, C=C, epsilon=0.1, beta=0.3, lower=Y, upper=above, observed=Y)
        elif kind == "data":  # a name that results use for the ends
            bound = pm.Data("upper", upper)
            noise = bp.SoftInsensitive.dist(mu=f, C=C, epsilon=0.1, beta=0.3)
            pm.Censored("y", noise, lower=None, upper=bound, observed=np.minimum(Y, 0.2))
        else:  # ends that are not data
            step = pm.LogNormal("step", upper, 0.1)
            bp.Interval("y", mu=f, C=C, epsilon=0.1, beta=0.3, lower=Y, upper=Y + step, observed=Y)
    return model


@pytest.mark.slow_cases("data-1 of 1")
@pytest.mark.parametrize(
    ("kind", "said"), [("interval", "1 of 12 rows differ, the first is row 3"), ("data", "1 of 1")]
)
def test_other_ends_of_intervals_are_refused(kind, said):
    upper = 1.5 if kind == "interval" else 0.2
    model, other = intervals(upper, kind), intervals(upper + 1.0, kind)
    results = {name: of_point(each) for name, each in (("a", model), ("b", other))}
    assert np.isfinite(bp.loo(results["a"], model=intervals(upper, kind)).elpd)
    for use in (ON_POINTS["predict"], ON_POINTS["loo"]):
        with pytest.raises(ValueError, match=f"result was computed with other upper ends than the model has: {said}"):
            use(results["a"], other)
    with pytest.raises(ValueError, match=r"results\['b'\] was computed with other upper ends than results\['a'\]"):
        bp.compare(results)
    assert bp.compare({"a": results["a"]}).attrs["summary"]


def test_ends_that_depend_on_hyperparameters_are_not_data():
    at = {**AT, "step": 0.5}
    result = bp.fit(bp.MeanField(), intervals(0.0, "random"), hyperparameters=at, random_seed=0, progressbar=False)
    assert "upper" not in result["constant_data"] and (result["constant_data"]["y"] == 1).all()
    assert "evidence_unit" not in result.attrs
    assert np.isfinite(bp.loo(result, model=intervals(0.0, "random")).elpd)


@pytest.mark.slow
def test_draws_of_other_data_are_refused(sampled):
    model = build(X, Y[::-1])
    for name, use in ON_DRAWS.items():
        with pytest.raises(ValueError, match="computed with other targets than the model has: 12 of 12 rows differ"):
            use(sampled, model)
            pytest.fail(f"{name} took it")


@pytest.mark.slow_cases("mean", "noise")
@pytest.mark.parametrize("other", FUNCTIONS)
def test_another_kernel_mean_or_noise_is_refused(point, sampled, other, tmp_path):
    """Also by a result from a file, of a mode, of draws, and of draws of f itself."""
    bp.save(point, tmp_path / "point.nc")
    of_f, own, model = drawn_f(), build(), FUNCTIONS[other]()
    message = "result was computed with another kernel, mean or noise than the model has: the "
    for result in (point, bp.load(tmp_path / "point.nc"), of_point(own, bp.MAP()), sampled, of_f):
        assert np.isfinite(bp.predict(result, X, model=own)["f_mean"]).all()
        with pytest.raises(ValueError, match=message + r".* is \S+ by the result and \S+ by the model"):
            bp.predict(result, X, model=model)
    with pytest.raises(
        ValueError, match=message + f"{'log likelihood of a draw' if other == 'noise' else '.*'} at row"
    ):
        bp.loo(point, model=model)


def drawn_f():
    """What `NUTS()` gives, from a draw that is made by hand."""
    problem, rng = read_model(build()), np.random.default_rng(0)
    white = rng.normal(size=N)
    f = problem.at(AT)[0].unwhiten(white)
    draws = xr.Dataset(
        {name: (("chain", "draw", "row"), v[None, None]) for name, v in (("f", f), ("f_rotated_", white))}
    )
    draws = draws.assign({name: (("chain", "draw"), [[value]]) for name, value in AT.items()})
    return from_samples(problem, xr.DataTree.from_dict({"posterior": draws}), {}, {"inference": "NUTS"}, rng)


def test_the_same_data_are_taken(point, sampled, tmp_path):
    """Also from another copy of the model, with hyperparameters that were given, and from a file."""
    expected = bp.predict(point, X, model=build())
    point.to_netcdf(tmp_path / "point.nc", engine="h5netcdf")
    for result in (point, xr.open_datatree(tmp_path / "point.nc")):
        xr.testing.assert_equal(bp.predict(result, X, model=build()), expected)
    assert bp.predict(sampled, X, model=build())["f_mean"].size == N


def test_samples_are_recovered_on_their_own_data():
    marginal = bp.marginalize(bp.MeanField(), build())
    posterior = xr.Dataset({name: (("chain", "draw"), [[value]]) for name, value in AT.items()})
    for group, held in (("observed_data", {"y": ("obs", -Y)}), ("constant_data", {"X": (("obs", "input"), 2 * X)})):
        samples = xr.DataTree.from_dict({"posterior": posterior, group: xr.Dataset(held)})
        with pytest.raises(ValueError, match=r"samples were drawn with other values of [yX] than the model has"):
            bp.recover_latent(samples, model=marginal, progressbar=False)
