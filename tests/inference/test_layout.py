"""Dimensions and coordinates of a model are those of its results."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.inference.result import from_samples, latent_draws, row_of
from bsvr_pp.model.reader import read_model

N = 8
TOWNS = [f"town {i}" for i in range(N)]
X = np.random.default_rng(0).normal(size=(N, 2))
Y = np.sin(2 * X[:, 0])
AT = {"lengthscale": [1.0, 2.0], "C": 5.0}
DRAWN = {"C": (("chain", "draw"), [[5.0, 6.0]]), "lengthscale": (("chain", "draw", "d"), np.ones((1, 2, 2)))}
SAMPLES = xr.DataTree.from_dict({"posterior": xr.Dataset(DRAWN)})


def build(given=("town", "feature")):
    """A model whose targets and inputs have the given dimensions, if any."""
    coords = {"town": TOWNS, "feature": ["height", "width"]} if given else None
    row, column = given or (None, None)
    with pm.Model(coords=coords) as model:
        sides = {"dims": column} if column else {"shape": 2}
        ls, C = pm.LogNormal("lengthscale", 0.0, 1.0, **sides), pm.LogNormal("C", 1.0, 1.5)
        at = pm.Data("inputs", X, dims=given) if given else X
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=ls)).prior("f", X=at, **({"dims": row} if row else {}))
        pm.Deterministic("twice", 2 * f)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=Y, dims=row)
    return model


def by_hand(problem):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(2, 3, N))
    arrays = {"f": f, "f_rotated_": f, "twice": 2 * f, "C": np.ones((2, 3)), "lengthscale": np.ones((2, 3, 2))}
    dims = {2: ("chain", "draw"), 3: ("chain", "draw", "any")}
    held = {name: (dims[a.ndim] if a.shape[-1] != 2 else ("chain", "draw", "side"), a) for name, a in arrays.items()}
    samples = xr.DataTree.from_dict({"posterior": xr.Dataset(held)})
    return from_samples(problem, samples, {}, {"inference": "NUTS"}, rng)


@pytest.mark.parametrize("kind", ["MAP", "mean field", "draws", "recovered"])
def test_every_group_has_the_names_of_the_model(kind):
    model = build()
    if kind == "draws":
        tree = by_hand(read_model(model))
    elif kind == "recovered":
        marginal = bp.marginalize(bp.MeanField(), model)
        tree = bp.recover_latent(SAMPLES, model=marginal, random_seed=0, progressbar=False)
    else:
        method = bp.MAP() if kind == "MAP" else bp.MeanField()
        tree = bp.fit(method, model, hyperparameters=AT, random_seed=0, progressbar=False)
        assert tree["posterior"]["lengthscale"].dims == ("chain", "draw", "feature")
        assert tree["posterior"]["lengthscale"]["feature"].values.tolist() == ["height", "width"]
    with_rows = [
        variable
        for group in tree.children.values()
        for variable in group.to_dataset().data_vars.values()
        if variable.size and variable.shape[-1] == N
    ]
    assert {v.name for v in with_rows} >= {"f", "y"}
    for variable in with_rows:
        if variable.name == "twice":  # which has none in the model
            assert variable.dims == ("chain", "draw", "twice_dim_0")
            continue
        assert variable.dims[-1] == "town", variable.name
        assert variable["town"].values.tolist() == TOWNS
    if kind != "recovered":
        assert row_of(tree) == "town"
        assert tree["constant_data"]["inputs"].dims == ("town", "feature")
        assert latent_draws(tree).shape[1] == N


@pytest.mark.slow
def test_a_result_with_names_is_used_and_saved(tmp_path):
    model = build()
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)
    bp.save(result, tmp_path / "fit.nc")
    kept = bp.load(tmp_path / "fit.nc")
    xr.testing.assert_equal(bp.predict(kept, X[:2], model=model), bp.predict(result, X[:2], model=model))
    found = bp.loo(kept, model=model)
    assert found.elpd_i["town"].values.tolist() == TOWNS
    assert list(bp.compare({"a": result, "b": kept}, model=model, annealed=None).index) == ["a", "b"]


@pytest.mark.slow
def test_names_are_those_that_pymc_gives():
    """Also where only f, the targets or the inputs have a dimension, and where a variable is named as results are."""
    for named in ("f", "y", "X"):
        with pm.Model(coords={"town": TOWNS, "feature": [0, 1]}) as model:
            at = pm.Data("X", X, dims=("town", "feature")) if named == "X" else X
            obs, more = pm.LogNormal("obs"), {"dims": "town"} if named == "f" else {}
            f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=at, **more)
            pm.Normal("y", mu=f, sigma=0.1 * obs, observed=Y, dims="town" if named == "y" else None)
        expected = pm.sample_prior_predictive(2, model=model, random_seed=0)
        at = {"obs": 1.0}
        found = bp.fit(bp.MeanField(), model, hyperparameters=at, draws=2, random_seed=0, progressbar=False)
        for ours, theirs in (
            ("posterior", "prior"),
            ("posterior_predictive", "prior_predictive"),
            ("log_likelihood", "prior_predictive"),
            ("observed_data", "observed_data"),
        ):
            for name, variable in found[ours].data_vars.items():
                assert variable.dims == expected[theirs][name].dims
                for dim in variable.dims[2:]:
                    assert variable[dim].values.tolist() == expected[theirs][name][dim].values.tolist()
        assert set(found["constant_data"].data_vars) == ({"X"} if named == "X" else set())


def of_places(level, scale=lambda: 1.0):
    """A model whose inputs are data."""
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=scale())).prior("f", X=pm.Data("places", X))
        bp.SoftInsensitive("y", mu=f, C=5.0 / level(), epsilon=0.1, beta=0.3, observed=Y)
    return model


@pytest.mark.slow
def test_a_variable_may_have_the_name_of_inputs():
    """X is a name as any other: here that of data on which only the noise depends, or of a hyperparameter."""
    for level, scale in (
        (lambda: pm.Data("X", np.linspace(1.0, 2.0, N)), lambda: 1.0),
        (lambda: 1.0, lambda: pm.LogNormal("X")),
    ):
        model = of_places(level, scale)
        result = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)
        data = {"X": np.linspace(1.0, 2.0, N)} if "X" in result["constant_data"] else None
        seen = bp.predict(result, X, model=model, data=data)
        np.testing.assert_allclose(seen["f_mean"], result["latent_posterior"]["mean"], atol=1e-4)


@pytest.mark.slow_cases("recover")
@pytest.mark.parametrize("call", ["predict", "recover"])
def test_new_rows_have_dimensions_and_coordinates(call):
    model = build()
    labels = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[D]")
    if call == "predict":
        result = bp.fit(bp.MAP(), model, hyperparameters=AT, random_seed=0, progressbar=False)

        def predicted(**options):
            return bp.predict(result, X[:3], model=model, **options)["f_mean"]
    else:
        marginal = bp.marginalize(bp.MeanField(), model)

        def predicted(**options):
            tree = bp.recover_latent(SAMPLES, model=marginal, X_new=X[:3], progressbar=False, **options)
            return tree["posterior"]["f_new"]

    assert predicted().dims[-1:] == ("obs_new",)
    for dims in ("day", ["day"]):
        found = predicted(dims=dims, coords={"day": labels})
        assert found.dims[-1] == "day"
        np.testing.assert_array_equal(found["day"], labels)
    for dims in (("day", "hour"), [], 3, "quantile" if call == "predict" else "town"):
        with pytest.raises(ValueError, match="dims must be one name, of the new rows, and none of"):
            predicted(dims=dims)
    for coords in ({"day": labels[:2]}, {"hour": labels}, labels):
        with pytest.raises(ValueError, match="coords must be a dict from day to the 3 labels of the new rows, got"):
            predicted(dims="day", coords=coords)
    name = {"predict": "predict", "recover": "recover_latent"}[call]
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'label'"):
        predicted(label="day")


def test_other_data_of_the_model_are_kept_and_compared():
    def weighted(level):
        return of_places(lambda: pm.Data("level", level))

    result = bp.fit(bp.MeanField(), weighted(np.ones(N)), random_seed=0, progressbar=False)
    assert result["constant_data"]["level"].values.tolist() == [1.0] * N
    bp.loo(result, model=weighted(np.ones(N)))
    with pytest.raises(ValueError, match="other values of level than the model has: 1 of 8 rows differ"):
        bp.loo(result, model=weighted(np.where(np.arange(N) == 3, 2.0, 1.0)))
