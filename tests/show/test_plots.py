"""Pictures hold what they should."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from arviz_plots import PlotCollection

import bsvr_pp as bp
from bsvr_pp.show.colours import colours

AT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def two_inputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=15)
    model = bp.default_model(X, y, kernel="rbf")
    at = {"amplitude": 1.0, "inverse_lengthscale": [0.5, 0.25], "C": 5.0, "epsilon": 0.1}
    return model, X, y, {"Laplace": bp.fit(bp.Laplace(), model, hyperparameters=at, progressbar=False)}


def test_predictive_bands_mark_the_support_vectors(sinc_model, sinc_results):
    model, data = sinc_model
    figure = bp.plot_predictive(sinc_results, model=model, input_location=5.0)
    visible = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in visible] == list(sinc_results)
    drawn = {line.get_label(): line.get_xdata() for line in visible[1].lines}
    support = sinc_results["Laplace"]["latent_posterior"]["support"].values
    np.testing.assert_allclose(drawn["off-bound support vector"], data.X[support == 1, 0] + 5.0)
    np.testing.assert_allclose(drawn["data"], data.X[:, 0] + 5.0)
    tube, mean = (
        next(line for line in visible[1].lines if line.get_label() == label).get_ydata()
        for label in ("tube, ±epsilon", "mean of f")
    )
    np.testing.assert_allclose(tube - mean, float(sinc_results["Laplace"]["posterior"]["epsilon"][0, 0]))
    assert not any("support" in str(line.get_label()) for line in visible[3].lines)
    with pytest.raises(ValueError, match="at least one result"):
        bp.plot_predictive({}, model=model)


def test_several_inputs_are_drawn_against_their_predictions(two_inputs):
    model, X, y, results = two_inputs
    figure = bp.plot_predictive(results, model=model, X_test=X[:4], y_test=y[:4], scale=2.0)
    points = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_label() in ("inside", "outside"))
    assert points == 4


def test_hyperparameters_are_densities_of_draws_and_lines_of_points(sinc_results):
    picture = bp.plot_hyperparameters(sinc_results)
    assert isinstance(picture, PlotCollection)
    axis = picture.get_target("C", {})
    assert axis.get_title() == "C"
    dots = [line for line in axis.lines if len(line.get_xdata()) == 2]
    expected = [
        np.log10(sinc_results[name]["posterior"]["C"].values[0, 0]) for name in ("MAP", "Laplace", "mean field")
    ]
    np.testing.assert_allclose([line.get_xdata()[0] for line in dots], expected)
    density = next(line for line in axis.lines if len(line.get_xdata()) > 100)
    assert density.get_color() == colours(["NUTS"])["NUTS"]
    drawn = np.log10(sinc_results["NUTS"]["posterior"]["C"].values)
    assert density.get_xdata().min() == pytest.approx(drawn.min(), abs=0.3)
    assert len(picture.viz["figure"].item().legends[0].get_texts()) == 4


def test_hyperparameters_of_points_alone_and_of_vectors(two_inputs):
    picture = bp.plot_hyperparameters(two_inputs[3], names={"lengthscale": ["first", "second"]})
    titles = {axis.get_title(): axis for axis in picture.viz["figure"].item().axes if axis.get_title()}
    assert set(titles) == {"C", "amplitude", "epsilon", "lengthscale first", "lengthscale second"}
    assert titles["lengthscale second"].lines[0].get_xdata()[0] == pytest.approx(np.log10(4.0))
    with pytest.raises(ValueError, match="at least one result"):
        bp.plot_hyperparameters({})


def test_points_that_nearly_agree_are_drawn_close_together(sinc_model):
    """Half a percent of difference is a fiftieth of the panel and less, on a log scale and on another."""
    model, _ = sinc_model
    results = {
        name: bp.fit(bp.Laplace(), model, hyperparameters={**AT, "C": C}, progressbar=False)
        for name, C in (("one", 5.0), ("other", 5.025))
    }

    def apart(results):
        axis = bp.plot_hyperparameters(results).get_target("C", {})
        at = [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 2]
        low, high = axis.get_xlim()
        assert low < min(at) and max(at) < high
        return (max(at) - min(at)) / (high - low)

    assert 0 < apart(results) < 0.02
    for result in results.values():
        result["posterior"]["C"] = -result["posterior"]["C"]
    assert 0 < apart(results) < 0.02
    results["other"]["posterior"]["C"] = 4.0 * results["other"]["posterior"]["C"]
    assert apart(results) > 0.5


def test_a_model_without_hyperparameters_has_no_picture_of_them():
    with pm.Model():
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.linspace(0, 1, 5)[:, None])
        pm.Normal("y", mu=f, sigma=1.0, observed=np.zeros(5))
        result = bp.fit(bp.Laplace(), progressbar=False)
    with pytest.raises(ValueError, match="the model has none"):
        bp.plot_hyperparameters({"Laplace": result})


def test_relevance_has_an_interval_for_draws(two_inputs):
    results = dict(two_inputs[3])
    rng = np.random.default_rng(1)
    drawn = rng.lognormal(0.0, 0.3, size=(2, 80, 2))
    sampled = results["Laplace"].copy()
    sampled["posterior"] = sampled["posterior"].to_dataset().drop_vars(["f", "C", "epsilon"]).isel(draw=slice(80))
    posterior = sampled["posterior"].to_dataset().isel(chain=[0, 0]).assign_coords(chain=[0, 1])
    dims = posterior["lengthscale"].dims
    sampled["posterior"] = posterior.assign(lengthscale=(dims, drawn))
    results["NUTS"] = sampled
    picture = bp.plot_relevance(results, inputs=["height", "width"])
    assert isinstance(picture, PlotCollection)
    axis = picture.viz["plot"].sel(column="forest").item()
    assert axis.get_xscale() == "log"
    bars = [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linestyle() != ":"]
    reach = sorted(np.ptp(line.get_xdata()) for line in bars)
    relevance = np.quantile(drawn.reshape(-1, 2) ** -2.0, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(reach[-1], np.ptp(relevance, axis=0).max(), rtol=0.05)
    assert reach[0] == pytest.approx(0.0, abs=1e-12)
    # Left of a hundredth of the largest relevance is far to the left, and the axis shows where that is.
    (limit,) = [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == ":"]
    assert limit == pytest.approx(0.01 * np.median(drawn.reshape(-1, 2) ** -2.0, axis=0).max())
    assert axis.get_xlim()[0] < limit < axis.get_xlim()[1]


def test_relevance_names_bad_arguments(two_inputs, sinc_results):
    with pytest.raises(ValueError, match="name must be a hyperparameter with an entry for each input, got 'C'"):
        bp.plot_relevance(two_inputs[3], name="C")
    with pytest.raises(ValueError, match="inputs must have 2 names, one an entry of lengthscale, got 1"):
        bp.plot_relevance(two_inputs[3], inputs=["height"])
    with pytest.raises(ValueError, match="got 'lengthscale'"):
        bp.plot_relevance(sinc_results)
    with pytest.raises(ValueError, match="at least one result"):
        bp.plot_relevance({})


def test_calibration_draws_the_shares(sinc_model, sinc_results):
    model, data = sinc_model
    chosen = {name: sinc_results[name] for name in ("MAP", "mean field")}
    picture = bp.plot_calibration(chosen, X_test=data.X, y_test=data.y, model=model)
    assert isinstance(picture, PlotCollection)
    pit = bp.predict(chosen["mean field"], data.X, model=model, y_new=data.y)["y_cdf"].values
    for of, u in (("quantiles", pit), ("intervals", np.abs(2 * pit - 1))):
        axis = picture.get_target("share", {"of": of, "method": "mean field"})
        curve = max(axis.lines, key=lambda line: len(line.get_xdata()))
        at = 0.5
        drawn = np.asarray(curve.get_ydata())[np.searchsorted(curve.get_xdata(), at, side="right") - 1]
        assert drawn == pytest.approx(np.mean(u <= at) - at, abs=0.08)
    with pytest.raises(ValueError, match="probability must lie strictly between 0 and 1, got 95"):
        bp.plot_calibration(chosen, X_test=data.X, y_test=data.y, model=model, probability=95)
    with pytest.raises(ValueError, match="at least one result"):
        bp.plot_calibration({}, X_test=data.X, y_test=data.y, model=model)


def test_evidence_along_one_hyperparameter(sinc_model):
    model, _ = sinc_model
    grid = np.geomspace(1.0, 8.0, 5)
    few = bp.Annealed(particles=20, groups=2)
    figure = bp.plot_evidence({"inverse_lengthscale": grid}, hyperparameters=AT, annealed=few, model=model)
    (axis,) = figure.axes
    drawn = {line.get_label(): line for line in axis.lines}
    np.testing.assert_allclose(drawn["mean field"].get_xdata(), grid)
    points = [{**AT, "inverse_lengthscale": x} for x in grid]
    expected = [bp.log_evidence(bp.MeanField(), model, hyperparameters=at).value for at in points]
    np.testing.assert_allclose(drawn["mean field"].get_ydata(), expected)
    assert axis.get_xscale() == "log"
    (bars,) = axis.containers
    np.testing.assert_allclose(bars.lines[0].get_ydata(), expected, atol=0.6)


def test_evidence_along_two_hyperparameters(sinc_model):
    model, _ = sinc_model
    along = {"inverse_lengthscale": [0.3, 0.5, 1.0], "C": [2.0, 5.0, 30.0]}
    at = {"amplitude": 1.0, "epsilon": 0.1}
    figure = bp.plot_evidence(along, hyperparameters=at, methods=[bp.MeanField()], model=model)
    axis = figure.axes[0]
    assert axis.get_title() == "mean field"
    values = {
        (x, y): bp.log_evidence(bp.MeanField(), model, hyperparameters={**at, "inverse_lengthscale": x, "C": y}).value
        for x in along["inverse_lengthscale"]
        for y in along["C"]
    }
    marked = next(line for line in axis.lines if line.get_marker() == "o")
    assert (marked.get_xdata()[0], marked.get_ydata()[0]) == max(values, key=values.__getitem__)


@pytest.mark.parametrize(
    ("along", "at", "message"),
    [
        ({}, AT, "along must map one or two hyperparameters to their values, got"),
        ({"C": [2.0, 1.0]}, AT, r"along\['C'\] must be at least two increasing values"),
        ({"C": [-1.0, 1.0]}, AT, "hyperparameter C must lie inside the support"),
        ({"gamma": [1.0, 2.0]}, AT, "has no variable 'gamma'"),
        ({"C": [1.0, 2.0]}, {"epsilon": 0.1}, "those along, amplitude missing"),
    ],
)
def test_evidence_names_bad_arguments(sinc_model, along, at, message):
    with pytest.raises(ValueError, match=message):
        bp.plot_evidence(along, hyperparameters=at, model=sinc_model[0])


def test_convergence_draws_the_sweeps(sinc_model):
    model, _ = sinc_model
    figure = bp.plot_convergence(AT, model=model)
    left, right = figure.axes
    mismatch = left.lines[0].get_ydata()
    assert mismatch[-1] <= 1e-8
    assert (np.diff(mismatch) <= 0).all()
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, progressbar=False)
    assert left.lines[0].get_xdata()[-1] == result.attrs["n_iter"]
    assert right.lines[0].get_ydata()[-1] < 1e-6 < right.lines[0].get_ydata()[0]
    with pytest.raises(ValueError, match="C, epsilon missing"):
        bp.plot_convergence({"inverse_lengthscale": 1.0}, model=model)


@pytest.mark.parametrize("backend", ["none", "plotly", "bokeh"])
def test_collections_are_drawn_in_every_backend(two_inputs, backend):
    """With options of the collection, which are passed on."""
    if backend != "none":
        pytest.importorskip(backend)
    model, X, y, results = two_inputs
    figure = {"figure_kwargs": {"figsize": (5.0, 4.0)}}
    pictures = [
        bp.plot_hyperparameters(results, backend=backend, **figure),
        bp.plot_relevance(results, backend=backend, **figure),
        bp.plot_calibration(results, X_test=X, y_test=y, model=model, backend=backend, **figure),
    ]
    for picture in pictures:
        assert isinstance(picture, PlotCollection)
        assert picture.backend == backend


def test_a_collection_is_drawn_on_again(two_inputs):
    model, X, y, results = two_inputs
    more = {"other": results["Laplace"]}
    first = bp.plot_calibration(results, X_test=X, y_test=y, model=model, visuals={"ecdf_lines": {"color": "red"}})
    axis = first.get_target("share", {"of": "intervals", "method": "Laplace"})
    assert "red" in {line.get_color() for line in axis.lines}
    before = len(axis.lines)
    again = bp.plot_calibration(results, X_test=X, y_test=y, model=model, plot_collection=first)
    assert again is first
    assert len(axis.lines) > before
    drawn = bp.plot_hyperparameters(results)
    assert bp.plot_hyperparameters(more, plot_collection=drawn) is drawn
    dots = [line for line in drawn.get_target("C", {}).lines if line.get_xdata().size == 2]
    assert len(dots) == 2
