"""Saved estimators: all options come back, and a file that is damaged or crafted is refused by name."""

import json
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.core.atomic_write import seal
from bsvr_pp.estimators import base
from bsvr_pp.estimators.training_data import TrainingData
from bsvr_pp.tables import DataError

X = np.linspace(-3, 3, 24)[:, None]
Y = np.sin(X[:, 0]) + 0.05 * np.cos(9 * X[:, 0])
NEW = np.linspace(-2.5, 2.5, 7)[:, None]


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(restarts=1, random_state=0, outliers="keep").fit(X, Y)


@pytest.fixture(scope="module")
def result(svr):
    """Its result, of which tests change copies: `result_` computes it anew."""
    return svr.result_


@pytest.mark.slow
def test_all_options_come_back_and_predictions_are_equal(svr, tmp_path):
    svc = bp.BayesianSVC(random_state=3, class_weight={"no": 1.0, "yes": 2.5}).fit(X, np.where(Y > 0, "yes", "no"))
    state = np.random.RandomState(7)
    local = bp.LocalBlocks(None, n_jobs=2, progressbar=True)
    svr = bp.BayesianSVR(
        restarts=np.int64(1), random_state=state, inference=bp.Laplace(curvature="local"), blocks=local
    ).fit(X, Y)
    for estimator in (svr, svc, bp.BayesianLSSVR(gamma=5.0).fit(X, Y)):
        estimator.save(tmp_path / "model.nc")
        same = type(estimator).load(tmp_path / "model.nc")
        given, found = estimator.get_params(deep=False), same.get_params(deep=False)
        if estimator is svr:
            assert found.pop("random_state").randint(1000) == given.pop("random_state").randint(1000)
        assert found == given
        np.testing.assert_array_equal(same.predict(NEW), estimator.predict(NEW))
    np.testing.assert_allclose(svc.predict_proba(NEW), type(svc).from_result(svc.result_).predict_proba(NEW))


def edited(tree, **fields):
    """A result with other fields of its recipe."""
    tree = tree.copy()
    tree.attrs["recipe"] = json.dumps(json.loads(tree.attrs["recipe"]) | fields)
    return tree


def recipe_of(tree, part):
    return json.loads(tree.attrs["recipe"])[part]


@pytest.mark.slow_cases("learned-change0-learned attributes of result has the unknown predict")
@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("learned", {"predict": 1}, "learned attributes of result has the unknown predict"),
        ("learned", {"__class__": 1}, "learned attributes of result has the unknown __class__"),
        ("learned", {"mean_": [float("nan")]}, "mean_ of result must be finite, got nan"),
        ("learned", {"mean_": ["a"]}, "mean_ of result must be an array of numbers"),
        ("learned", {"unit_": {"a": 1}}, "unit_ of result must be an array of numbers"),
        ("learned", {"unit_": "x"}, "unit_ of result must be an array of numbers, got str"),
        ("learned", {"unit_": -1.0}, "unit_ of result must be > 0, got -1"),
        ("learned", {"scale_": None}, "scale_ of result must be an array of numbers, got NoneType"),
        ("learned", {"scale_": [1.0, 1.0]}, r"scale_ of result must be a \(1,\) array, got shape \(2,\)"),
        ("learned", {"location_": [0.0]}, r"location_ of result must be a number, got shape \(1,\)"),
        ("learned", {"kernel_": "x"}, "kernel must be .*, got 'x'"),
        ("learned", {"kernel_": ["rbf"]}, "kernel must be .*, got "),
        ("learned", {"neighbours_": "x"}, "neighbours_ of result must be an array of numbers, got str"),
        ("learned", {"outliers_": None}, "outliers_ of result must be an array of numbers, got NoneType"),
        ("learned", {"levels_": [0.5]}, "levels_ of result must be numbers of its inputs"),
        ("learned", {"target_scale_": [1.0, 0.0, 0.0]}, "target_scale_ of result must be middle, end and offset > 0"),
        ("learned", {"target_scale_": [1.0, 0.0]}, "target_scale_ of result must be middle, end and offset > 0"),
        ("learned", {"target_scale_": [1.0, 1.0, 1.0]}, "target_scale_ of result must be middle, end and offset > 0"),
        ("options", {"noise": "loud"}, "noise must be one of .*, got 'loud'"),
        ("options", {"restarts": -1}, "restarts must be an integer of at least 1, got -1"),
        ("options", {"fit": 1}, "options of result has the unknown fit"),
        ("options", {"blocks": {"blocks": {"size": 1}}}, "blocks of result lacks n_jobs, neighbours, progressbar"),
        ("options", {"inference": {"method": "main", "module": "this"}}, "method 'main' of .* is not"),
        ("options", {"inference": {"method": "Popen", "module": "subprocess"}}, "method 'Popen' of subprocess is not"),
        ("options", {"inference": {"method": "Problem", "module": "bsvr_pp.model.problem"}}, "method 'Problem' of"),
        ("options", {"inference": {"method": "Laplace", "module": ""}}, "method Laplace lacks curvature"),
        (
            "options",
            {"inference": {"method": "Laplace", "module": "", "curvature": "flat"}},
            "curvature must be 'exact' or 'local', got 'flat'",
        ),
    ],
)
def test_a_crafted_recipe_is_refused_by_name(result, part, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bp.BayesianSVR.from_result(edited(result, **{part: recipe_of(result, part) | change}))


def test_a_result_without_one_of_its_parts_is_refused(result):
    recipe = json.loads(result.attrs["recipe"])
    for change, message in (
        (lambda tree: tree.attrs.pop("converged"), "result lacks /converged: it is damaged"),
        (lambda tree: tree.__delitem__("rows"), "result lacks /rows/X, "),
        (lambda tree: tree.attrs.update(recipe=""), "result carries a recipe that cannot be read"),
        (lambda tree: tree.attrs.update(recipe="{}"), "it carries no recipe of one"),
        (lambda tree: tree.attrs.update(recipe=json.dumps(recipe | {"learned": None})), "of result lacks beta_, "),
    ):
        tree = result.copy()
        change(tree)
        with pytest.raises(ValueError, match=message):
            bp.BayesianSVR.from_result(tree)


def test_no_module_is_imported_and_the_command_line_does_not_run(result):
    for module in ("this", "bsvr_pp.datasets", "antigravity", "bsvr_pp"):
        for name in ("MAIN", "sinc", "cov"):
            options = recipe_of(result, "options") | {"inference": {"method": name, "module": module}}
            with pytest.raises(ValueError, match="is not known here"):
                bp.BayesianSVR.from_result(edited(result, options=options))
    assert not {"antigravity", "this"} & set(sys.modules)


@pytest.mark.slow_cases("svc")
@pytest.mark.parametrize("name", ["svr", "svc"])
def test_whatever_is_missing_is_named(request, name):
    """Each variable and each attribute in turn."""
    estimator = request.getfixturevalue(name)
    tree = estimator.result_
    named = [(node.path, str(label)) for node in tree.subtree for label in (*node.data_vars, *node.attrs)]
    assert len(named) > 30
    for path, label in named:
        other = tree.copy()
        if label in other[path].attrs:
            del other[path].attrs[label]
        else:
            other[path] = xr.DataTree(tree[path].to_dataset().drop_vars(label), children=dict(other[path].children))
        with pytest.raises(ValueError, match=f"{path.rstrip('/')}/{label}|carries no recipe"):
            type(estimator).from_result(other)


@pytest.mark.parametrize("group", ["latent_posterior", "posterior", "rows"])
def test_vectors_that_are_not_finite_are_named(result, group):
    for label, array in result[group].data_vars.items():
        if array.dtype.kind != "f" or (group == "posterior" and label not in ("C", "amplitude", "f")):
            continue
        tree = result.copy()
        values = array.values.copy()
        values.flat[-1] = np.nan
        tree[group] = xr.DataTree(tree[group].to_dataset().assign({label: (array.dims, values)}))
        with pytest.raises(ValueError, match=f"^{label} of .*result must be finite, got nan"):
            bp.BayesianSVR.from_result(tree)


@pytest.mark.parametrize("kind", [bool, str])
@pytest.mark.parametrize("group", ["latent_posterior", "posterior", "rows", "constant_data", "observed_data"])
def test_arrays_of_other_types_are_named(result, group, kind):
    """Numbers that became text or truth values, and rows that the posterior was not computed from."""
    for label, array in result[group].data_vars.items():
        if group == "posterior" and label not in ("C", "amplitude", "f"):
            continue
        tree = result.copy()
        tree[group] = xr.DataTree(tree[group].to_dataset().assign({label: array.astype(kind)}))
        with pytest.raises(ValueError, match=f"^{label} of .*result must be an array of numbers|^result was computed"):
            bp.BayesianSVR.from_result(tree)


def test_an_encoding_that_does_not_fit_the_rows_is_refused():
    frame = pd.DataFrame({"a": np.where(np.arange(24) % 7 == 3, np.nan, X[:, 0]), "w": list("uvw") * 8})
    found = bp.BayesianLSSVR(gamma=5.0).fit(frame, Y).result_
    for change in (
        {"medians": ["x"]},
        {"medians": []},
        {"medians": [float("nan")]},
        {"regression": [1.0]},
        {"gaps": 0},
    ):
        (first, *others) = json.loads(recipe_of(found, "columns"))
        columns = json.dumps([first | change, *others])
        with pytest.raises(DataError, match="the encoding of the columns cannot be read"):
            bp.BayesianLSSVR.from_result(edited(found, columns=columns))
    with pytest.raises(DataError, match="the encoding of the columns cannot be read"):
        bp.BayesianLSSVR.from_result(edited(found, columns="[]"))


def test_a_result_of_fit_without_its_vectors_is_not_predicted_from_its_draws(sinc_results, sinc_model):
    for name in ("dual_coef", "site_precision", "variance"):
        tree = sinc_results["Laplace"].copy()
        tree["latent_posterior"] = xr.DataTree(tree["latent_posterior"].to_dataset().drop_vars(name))
        with pytest.raises(ValueError, match=f"latent_posterior of result lacks {name}: it is damaged"):
            bp.predict(tree, [[0.5]], model=sinc_model[0])


def test_rows_of_other_axes_or_places_are_refused(result):
    rows = result["rows"].to_dataset()
    for change, message in (
        ({"X": (("row", "more"), np.ones((24, 2)))}, r"X of result must have the axes \('row', 'input'\), got"),
        ({"place": ("given", np.full(24, 24))}, "place of result must be numbers of its 24 rows, or -1"),
        ({"fit": 1}, "rows of result has the unknown fit"),
    ):
        tree = result.copy()
        tree["rows"] = xr.DataTree(rows.assign(change))
        with pytest.raises(ValueError, match=message):
            bp.BayesianSVR.from_result(tree)


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError])
@pytest.mark.parametrize("place", [(TrainingData, "of_dataset"), (bp.BayesianSVR, "_read"), (base, "from_options")])
def test_an_error_of_the_package_is_no_damage(result, monkeypatch, place, error):
    def bug(*_):
        raise error("a bug")

    monkeypatch.setattr(*place, bug)
    with pytest.raises(error, match="a bug"):
        bp.BayesianSVR.from_result(result)


def huge(group, tmp_path):
    group.create_dataset("x", (10**12,), "f8", chunks=(10**6,), compression="gzip")


def undeclared(group, tmp_path):
    group.create_dataset("x", (10**12,), "f8")


def compressed(group, tmp_path):
    group.create_dataset("x", data=np.zeros(10**6), compression="gzip")


def elsewhere(group, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.ones(3)
    group["x"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")


def raw(group, tmp_path):
    (tmp_path / "raw.bin").write_bytes(bytes(24))
    group.create_dataset("x", (3,), "f8", external=[(str(tmp_path / "raw.bin"), 0, 24)])


def virtual(group, tmp_path):
    layout = h5py.VirtualLayout((10**9,), "f8")
    layout[:3] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (3,))
    group.create_virtual_dataset("x", layout)


def twice(group, tmp_path):
    group["x"] = group["y"]


def circle(group, tmp_path):
    group["x"] = group


@pytest.mark.parametrize("craft", [huge, undeclared, compressed, elsewhere, raw, virtual, twice, circle])
def test_a_file_holds_what_it_declares(tmp_path, craft):
    path = tmp_path / "fit.nc"
    xr.DataTree.from_dict({"/posterior": xr.Dataset({"y": ("draw", np.ones(3))})}).to_netcdf(path, engine="h5netcdf")
    with h5py.File(path, "r+") as file:
        craft(file["posterior"], tmp_path)
    seal(path)
    with pytest.raises(ValueError, match=r"is no file of save: \w+ of /\w* is not stored as a plain array"):
        bp.load(path)


def test_a_result_that_was_compressed_is_saved_plainly(tmp_path):
    tree = xr.DataTree.from_dict({"/posterior": xr.Dataset({"y": ("draw", np.zeros(10_000))})})
    tree.to_netcdf(
        tmp_path / "a.nc", encoding={"/posterior": {"y": {"zlib": True}}}, unlimited_dims={"/posterior": ["draw"]}
    )
    with xr.open_datatree(tmp_path / "a.nc") as packed:
        bp.save(packed, tmp_path / "b.nc")
        assert packed["posterior"]["y"].encoding["zlib"]
    assert bp.load(tmp_path / "b.nc").equals(tree)
