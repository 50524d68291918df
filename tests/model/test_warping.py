"""Scales of inputs: their transforms against SciPy, the kernel on them, and what estimators learn and keep."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import yeojohnson, yeojohnson_normmax

import bsvr_pp as bp
from bsvr_pp.model.inputs import AS_GIVEN, Warped, Warping, columns_to_warp, on_scales
from tests.helpers import differences

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.lognormal(3.0, 1.0, 80), RNG.normal(size=80), -RNG.exponential(size=80)])
FAR = np.array([[-1e6, 0.0, 1e6], [1e6, 40.0, -1e6], [20.0, -0.3, -1.0]])
SHARE = np.array([0.3, 1.0])


def scaled(warping, points, share=SHARE):
    d = points.shape[1]
    points, share = pt.as_tensor_variable(points), pt.as_tensor_variable(share)
    return on_scales(points, d, warping.columns, pt.as_tensor_variable(warping.array), share).eval()


def test_the_transforms_are_those_of_scipy():
    """Around the mean, and from the least and the largest value where these are far more likely."""
    columns = np.column_stack([X[:, 1], np.sqrt(X[:, 0]), X[:, 0] ** 2, -(X[:, 0] ** 2), X[:, 2]])
    warping, share = Warping.of(columns, (0, 1, 2, 3)), np.array([0.3, 1.0, 0.6, 0.9])
    found = scaled(warping, columns, share)
    np.testing.assert_array_equal(found[:, 4], X[:, 2])
    sides = ["mean", "mean", "least", "largest"]
    for x, z, side, (above, below, centre, unit, *_), w in zip(
        columns.T[:4], found.T[:4], sides, warping.constants, share, strict=True
    ):
        end = {"mean": x.mean(), "least": x.min(), "largest": x.max()}[side]
        near = np.sort(np.abs(x - end))[8]  # a tenth of the 79 others
        assert (centre, unit) == pytest.approx((end, x.std() if side == "mean" else near))
        power = 2.0 - below if side == "largest" else above
        assert (above, below) == {"mean": (power, 2.0 - power), "least": (power, 1.0), "largest": (1.0, below)}[side]
        assert power == pytest.approx(np.clip(yeojohnson_normmax((x - centre) / unit), 0.0, 2.0), abs=2e-3)
        g = yeojohnson((x - centre) / unit, power)
        g = x.mean() + x.std() * (g - g.mean()) / g.std()
        np.testing.assert_allclose(z, x + w * (g - x), rtol=1e-10)
    assert warping.powers[2] < 0.1 and warping.powers[3] > 1.9
    assert warping.described(share) == ["as given", "like a root above", "like a root above", "like a logarithm below"]
    assert Warping.of_array(warping.array) == warping


@pytest.mark.slow
def test_inputs_over_many_powers_of_ten_are_as_good_as_their_logarithms():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 3))
    y = Z[:, 0] + np.sin(2.0 * Z[:, 1]) + 0.2 * rng.normal(size=300)
    errors = []
    for inputs in (Z, np.exp(2.5 * Z)):
        svr = bp.BayesianSVR(restarts=1, outliers="keep", noise_scales=False, random_state=0)
        errors.append(np.std(svr.fit(inputs[:200], y[:200]).predict(inputs[200:]) - y[200:]))
    assert errors[1] < 1.15 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("classifier", [bp.BayesianSVC, bp.BayesianOrdinalSVC])
def test_classes_learn_one_share_for_all_inputs(classifier, tmp_path):
    """With inputs as they are, a forest of trees was better."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(600, 3))
    f, exact = 3.0 * np.sin(1.5 * Z[:, 0]) + 2.0 * Z[:, 1] + rng.logistic(size=600), {}
    labels = np.where(f > 0.0, "yes", "no") if classifier is bp.BayesianSVC else np.digitize(f, [-2.0, 1.0])
    for name, kernel, inputs in (
        ("logs", "auto", Z),
        ("scaled", "auto", np.exp(2.5 * Z)),
        ("as given", "rbf", np.exp(2.5 * Z)),
    ):
        machine = classifier(kernel=kernel, random_state=0).fit(inputs[:150], labels[:150])
        right = labels[150:, None] == machine.classes_
        exact[name] = -np.log(machine.predict_proba(inputs[150:])[right]).mean()
        if name == "scaled":
            table = machine.warping_
            assert (table["scale"] == "like a logarithm above").all() and table["share"].nunique() == 1
            assert len(bp.plot_warping(machine).axes) == 3
            machine.save(tmp_path / "classes.nc")
            read = classifier.load(tmp_path / "classes.nc")
            pd.testing.assert_frame_equal(read.warping_, table)
            np.testing.assert_allclose(read.predict_proba(inputs), machine.predict_proba(inputs), rtol=1e-9)
    assert machine.warping_.empty and exact["scaled"] < exact["logs"] + 0.06 < exact["as given"]


@pytest.mark.slow
def test_each_class_against_the_rest_has_a_share():
    X, labels = np.exp(2.0 * RNG.normal(size=(45, 2))), np.arange(45) % 3
    X[:, 0] *= np.array([0.1, 1.0, 10.0])[labels]
    machine = bp.BayesianSVC(random_state=0).fit(X, labels)
    assert len(machine.warping_) == 3 and machine.warping_[0].index.tolist() == ["x0", "x1"]
    assert all(table["share"].nunique() == 1 for table in machine.warping_)
    with pytest.raises(ValueError, match="scales are plotted of two classes, got 3"):
        bp.plot_warping(machine)


def test_an_input_that_rarely_varies_has_a_scale():
    column = np.zeros((50_000, 1))
    column[[101, 33_333], 0] = 1.0, 2.0  # none of them is among the rows that determine the transform
    found = scaled(Warping.of(column, (0,)), np.array([[-1.0], [0.0], [1.0], [2.0]]), [1.0])
    assert (np.diff(found[:, 0]) > 0.1).all()


def test_weights_are_repetitions():
    weight = RNG.integers(1, 4, 80)
    one, other = Warping.of(X, (0, 1, 2), weight), Warping.of(np.repeat(X, weight, axis=0), (0, 1, 2))
    np.testing.assert_allclose(one.array, other.array, rtol=1e-5)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([0.0, 1e-12, 0.4, 1.0, 1.7, 2.0]),
    st.sampled_from([0.0, 1.0, 2.0]),
    arrays(float, 12, elements=st.floats(-1e8, 1e8)),
)
def test_scales_increase_on_the_whole_line(power, below, values):
    warping = Warping((0,), ((power, below, 1.0, 2.0, 0.0, 1.0),))
    points = np.sort(values)[:, None]
    for share in (0.0, 0.5, 1.0):
        found = scaled(warping, points, [share])[:, 0]
        assert np.isfinite(found).all() and (np.diff(found) >= 0).all()
        assert (np.diff(found)[np.diff(points[:, 0]) > 1.0] > 0).all()


def test_derivatives_by_share_and_point():
    warping = Warping.of(X, (0, 1, 2))
    share, points = pt.dvector(), pt.dmatrix()
    total = (on_scales(points, 3, warping.columns, pt.constant(warping.array), share) * np.array([1.0, 2.0, 3.0])).sum()
    function = pytensor.function([points, share], [total, *pt.grad(total, [points, share])])
    at, w = X[:3], np.array([0.2, 0.5, 0.9])
    _, by_point, by_share = function(at, w)
    slope = differences(lambda points: function(points, w)[0], at, 1e-4)
    assert by_point.ravel() == pytest.approx(slope, rel=1e-5)
    np.testing.assert_allclose(by_share, differences(lambda share: function(at, share)[0], w, 1e-4), rtol=1e-6)


@pytest.mark.parametrize(
    ("columns", "tied", "expected"),
    [
        ([np.arange(9), np.arange(9) % 2, np.zeros(9)], None, (0,)),
        ([np.arange(9), np.arange(9) % 3, np.arange(9)], (0, 1, 1), (0,)),
    ],
)
def test_which_inputs_have_scales(columns, tied, expected):
    assert columns_to_warp(np.column_stack(columns), tied) == expected


@pytest.mark.slow
def test_the_kernel_is_that_of_the_inputs_on_their_scales():
    warping = Warping.of(X, (0, 2))
    with pm.Model():
        inner = pm.gp.cov.ExpQuad(3, ls=[5.0, 1.0, 2.0])
        kernel = Warped(3, inner, warping)
        share = kernel.args[-1]
    for points in ((X,), (X, FAR)):
        found = kernel(*points).eval({share: SHARE})
        np.testing.assert_allclose(found, inner(*(scaled(warping, some) for some in points)).eval(), rtol=1e-10)


@pytest.mark.slow
def test_a_logarithm_is_learned_and_kept(tmp_path):
    """A target of the logarithm of an input, of a number and of names."""
    rng = np.random.default_rng(1)
    rows = {"age": rng.lognormal(3.0, 1.2, 240), "dose": rng.uniform(size=240), "kind": rng.choice(["a", "b"], 240)}
    table = pd.DataFrame(rows)
    y = np.sin(2.0 * np.log(table["age"])) + 2.0 * table["dose"] + (table["kind"] == "b") + 0.1 * rng.normal(size=240)
    train, test = table[:210], table[210:]
    options = {"inference": "mean_field", "restarts": 1, "random_state": 0}
    svr = bp.BayesianSVR(**options).fit(train, y[:210])
    plain = bp.BayesianSVR(warping=False, **options).fit(train, y[:210])
    assert svr.warping_.index.tolist() == ["age", "dose"] and plain.warping_.empty
    assert svr.warping_.loc["age", "scale"] == "like a logarithm above"
    assert svr.log_evidence_ > plain.log_evidence_ + 10.0
    density = [np.mean(some.predict_distribution(test).logpdf(y[210:])) for some in (svr, plain)]
    assert density[0] > density[1] + 0.05
    svr.save(tmp_path / "fit.nc")
    read = bp.BayesianSVR.load(tmp_path / "fit.nc")
    np.testing.assert_allclose(read.predict(test), svr.predict(test), rtol=1e-9)
    pd.testing.assert_frame_equal(read.warping_, svr.warping_)
    before = svr.predict(test)
    svr.add(train[:1].assign(age=1e5), [0.0])  # far away: the scale is that of fit
    pd.testing.assert_frame_equal(read.warping_, svr.warping_)
    np.testing.assert_allclose(svr.predict(test), before, atol=0.1)
    axes = bp.plot_warping(svr).axes
    assert [axis.get_xlabel() for axis in axes] == ["age", "dose"]
    assert (np.diff(axes[0].lines[0].get_ydata()) > 0).all()
    with pytest.raises(ValueError, match="inputs with a scale"):
        bp.plot_warping(plain)
    with pytest.raises(TypeError, match="must be a BayesianSVR, SVC or OrdinalSVC, got LSSVR"):
        bp.plot_warping(bp.LSSVR())


@pytest.mark.slow_cases("BayesianSVC")
@pytest.mark.parametrize("make", [bp.BayesianSVC, pytest.param(bp.BayesianOrdinalSVC, marks=pytest.mark.slow)])
def test_classes_have_scales_and_levels_on_request(make, tmp_path):
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.lognormal(3.0, 1.2, 120), rng.integers(0, 4, 120)])
    y = (np.log(inputs[:, 0]) + (inputs[:, 1] == 2) + 0.3 * rng.normal(size=120) > 3.2).astype(int)
    svc = make(kernel="main_effects", random_state=0).fit(inputs[:100], y[:100])
    fit = svc._fit.binaries[0] if hasattr(svc._fit, "binaries") else svc._fit
    assert fit.point["warping"].shape == (1,) and fit.point["level_amplitude"].shape == (1,)
    assert svc.score(inputs[100:], y[100:]) > 0.8
    svc.save(tmp_path / "fit.nc")
    read = make.load(tmp_path / "fit.nc")
    np.testing.assert_allclose(read.predict_proba(inputs), svc.predict_proba(inputs), rtol=1e-9)


def test_the_default_model_has_the_same_scales():
    y = np.sin(np.arange(80.0))
    model = bp.default_model(X, y, kernel="main_effects")
    np.testing.assert_allclose(model["warping_constants"].get_value(), Warping.of(X, (0, 1, 2)).array)
    assert "warping" not in bp.default_model(X, y, kernel="main_effects", warping=False).named_vars
    assert AS_GIVEN.array.shape == (0, 7)


@pytest.mark.slow_cases("to be a logarithm", "as given")
@pytest.mark.parametrize("scale", [lambda x: x, np.exp], ids=["as given", "to be a logarithm"])
def test_nearest_rows_are_predicted_on_the_scales(scale):
    x, new = np.random.default_rng(0).uniform(0.0, 4.0, 300), np.linspace(0.2, 3.8, 50)
    y = np.sin(3.0 * x) + 0.1 * np.random.default_rng(1).normal(size=300)
    svr = bp.BayesianSVR(blocks=60, restarts=1, random_state=0).fit(scale(x)[:, None], y)
    assert svr.kernel_ == "main_effects" and len(svr.warping_) == 1
    error = svr.predict(scale(new)[:, None]) - np.sin(3.0 * new)
    assert np.sqrt(np.mean(error**2)) < 0.05


@pytest.mark.slow
def test_few_rows_have_scales(tmp_path):
    """An automatic kernel without main effects learns scales; one that is named does not."""
    Z = np.random.default_rng(0).normal(0.0, 2.0, (560, 3))
    y = np.sin(0.8 * Z[:, 0]) + 0.5 * Z[:, 1] + 0.2 * np.random.default_rng(1).normal(size=560)
    X, rows = np.exp(Z), slice(60)
    fits = [bp.BayesianSVR(random_state=0, **more).fit(X[rows], y[rows]) for more in ({}, {"warping": False})]
    scaled, plain = (np.sqrt(np.mean((fit.predict(X[60:]) - y[60:]) ** 2)) for fit in fits)
    assert fits[0].kernel_ == "rational_quadratic" and scaled < 0.5 < plain
    assert fits[0].warping_["scale"].iloc[0] == "like a logarithm above" and fits[1].warping_.empty
    fits[0].save(tmp_path / "fit.nc")
    read = bp.BayesianSVR.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(read.predict(X[60:]), fits[0].predict(X[60:]))
    pd.testing.assert_frame_equal(read.warping_, fits[0].warping_)
    named = bp.BayesianSVR(kernel="rational_quadratic", inference="mean_field", restarts=1).fit(X[rows], y[rows])
    assert named.warping_.empty


@pytest.mark.slow
def test_the_share_of_a_product_is_an_interaction():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1.0, 1.0, (220, 3))
    y = inputs[:, 0] + 2.0 * inputs[:, 1] * inputs[:, 2] + 0.05 * rng.normal(size=220)
    svr = bp.BayesianSVR(inference="mean_field", restarts=1, random_state=0).fit(inputs, y)
    found = {pair: bp.effect(svr, inputs, pair, rows=80).attrs for pair in [(0, 1), (1, 2)]}
    assert found[0, 1]["interaction"] < 0.01
    truth = np.var(2.0 * inputs[:, 1] * inputs[:, 2]) / np.var(y)
    assert found[1, 2]["interaction"] == pytest.approx(truth, abs=0.08)
