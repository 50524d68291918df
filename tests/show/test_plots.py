"""Pictures hold what they should."""

import numpy as np
import pandas as pd
import pytest
from arviz_plots import PlotCollection
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.contour import ContourSet

import bsvr_pp as bp
from bsvr_pp.show.plots import calibration_picture, hyperparameters_picture
from tests.helpers import process_model

pytestmark = pytest.mark.usefixtures("closed")
AT = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}


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
    test = {"X_test": data.X[:3], "y_test": data.y[:3]}
    figure = bp.plot_predictive(sinc_results, model=model, input_units=(5.0, 1.0), labels=(r"$\frac$", "y"), **test)
    figure.canvas.draw()  # which reads no formula
    visible = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in visible] == list(sinc_results)
    drawn = {line.get_label(): line.get_xdata() for line in visible[1].lines}
    support = sinc_results["Laplace"]["latent_posterior"]["support"].values
    np.testing.assert_allclose(drawn["off-bound support vector"], data.X[support == 1, 0] + 5.0)
    np.testing.assert_allclose(drawn["data"], data.X[:, 0] + 5.0)
    np.testing.assert_allclose(drawn["test data"], data.X[:3, 0] + 5.0)
    tube, mean = (
        next(line for line in visible[1].lines if line.get_label() == label).get_ydata()
        for label in ("tube, ±epsilon", "mean of f")
    )
    np.testing.assert_allclose(tube - mean, float(sinc_results["Laplace"]["posterior"]["epsilon"][0, 0]))
    assert not any("support" in str(line.get_label()) for line in visible[3].lines)
    with pytest.raises(ValueError, match="at least one result"):
        bp.plot_predictive({}, model=model)


def test_the_ends_of_intervals_are_marked():
    X, low = np.arange(6.0)[:, None], np.array([-np.inf, *np.arange(1.0, 6.0)])
    limits = {"lower": low, "upper": [0.5, 1.0, 2.0, 3.5, np.inf, np.inf]}
    model = process_model(bp.Interval, X, **limits, C=5.0, epsilon=0.1, beta=0.3)
    results = {"mean field": bp.fit(bp.MeanField(), model, progressbar=False)}
    lines = bp.plot_predictive(results, model=model).axes[0].lines
    drawn = {line.get_label(): np.transpose(line.get_data()).tolist() for line in lines}
    assert drawn["data"] == [[1, 1], [2, 2]] and drawn["upper end"] == [[0, 0.5], [3, 3.5]]
    assert drawn["lower end"] == [[3, 3], [4, 4], [5, 5]]


def test_several_inputs_are_drawn_against_their_predictions(two_inputs):
    model, X, y, results = two_inputs
    figure = bp.plot_predictive(results, model=model, X_test=X[:4], y_test=y[:4], target_units=(0.0, 2.0))
    points = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_label() in ("inside", "outside"))
    assert points == 4


def test_intervals_against_their_predictions():
    """A censored row that is predicted above its limit is inside."""
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (40, 2))
    low, high = np.minimum(X[:, 0], 0.0), np.where(X[:, 0] < 0.0, X[:, 0], np.inf)
    model = process_model(bp.Interval, X, ls=2.0, lower=low, upper=high, C=20.0, epsilon=0.05, beta=0.3)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    axis = bp.plot_predictive({"mean field": result}, model=model).axes[0]
    size = {line.get_label(): len(line.get_xdata()) for line in axis.lines}
    assert size["outside"] <= 2 and size["inside"] + size["outside"] == np.sum(X[:, 0] < 0.0)
    ends = [line for line in axis.lines if line.get_marker() == "^"]
    colours = {line.get_color(): len(line.get_xdata()) for line in ends}
    assert sum(colours.values()) == np.sum(X[:, 0] >= 0.0) and sorted(colours.values())[0] == 0


def bars(axis):
    """The intervals of a forest, from its lowest row."""
    return [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linestyle() != ":"]


def test_hyperparameters_of_draws_have_intervals_and_those_of_points_have_none(sinc_results):
    figure = hyperparameters_picture(sinc_results, {})
    (axis,) = figure.axes
    assert axis.get_xscale() == "log"
    drawn = np.log(sinc_results["NUTS"]["posterior"]["C"].values)
    widest = {np.ptp(np.log(line.get_xdata())) for line in bars(axis)}
    assert any(width == pytest.approx(np.ptp(np.quantile(drawn, [0.05, 0.95])), rel=0.1) for width in widest)
    assert min(widest) == pytest.approx(0.0, abs=1e-12)
    dots = np.concatenate([line.get_xdata() for line in axis.lines if line.get_marker() == "o"])
    for name in ("MAP", "Laplace", "mean field"):
        assert np.isclose(dots, sinc_results[name]["posterior"]["C"].values[0, 0]).any()
    assert len(figure.legends[0].get_texts()) == 4
    changed = {name: result.copy() for name, result in sinc_results.items()}
    for result in changed.values():
        result["posterior"]["inverse_alpha"] = -result["posterior"]["C"]
        result.attrs["derived"] = '["inverse_alpha"]'
    (axis,) = hyperparameters_picture(changed, {}).axes
    assert axis.get_xscale() == "linear"
    assert "1/alpha" in [text.get_text() for text in axis.get_yticklabels()]


def test_entries_of_vectors_are_named(two_inputs):
    figure = hyperparameters_picture(two_inputs[3], {"lengthscale": ["first", r"$\frac$"]})
    figure.canvas.draw()  # which reads no formula
    written = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert {"lengthscale first", r"lengthscale \$\frac\$"} <= set(written)


def test_calibration_draws_the_shares(sinc_model, sinc_results):
    model, data = sinc_model
    chosen = {name: sinc_results[name] for name in ("MAP", "mean field")}
    picture = calibration_picture(chosen, data.X, data.y, model)
    assert isinstance(picture, PlotCollection)
    pit = bp.predict(chosen["mean field"], data.X, model=model, y_new=data.y)["y_cdf"].values
    for of, u in (("quantiles", pit), ("intervals", np.abs(2 * pit - 1))):
        axis = picture.get_target(f"mean field\n{of}", {})
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("predicted share", "observed − predicted")
        curve = max(axis.lines, key=lambda line: len(line.get_xdata()))
        at = 0.5
        drawn = np.asarray(curve.get_ydata())[np.searchsorted(curve.get_xdata(), at, side="right") - 1]
        assert drawn == pytest.approx(np.mean(u <= at) - at, abs=0.08)


def test_calibration_shows_the_whole_curves_of_each_method(sinc_model, sinc_results):
    model, data = sinc_model
    far = bp.fit(bp.MeanField(), model, hyperparameters={"C": 0.01}, progressbar=False)
    picture = calibration_picture({"far": far, "near": sinc_results["mean field"]}, data.X, data.y, model)
    for axis in picture.viz["figure"].item().axes:
        (low, high), drawn = axis.get_ylim(), np.concatenate([line.get_ydata() for line in axis.lines])
        assert low < drawn.min() and drawn.max() < high


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


def test_each_method_has_its_colour_and_unknown_ones_have_others(two_inputs):
    results = {name: two_inputs[3]["Laplace"] for name in ("Laplace", "mean field, 40 rows", "NUTS")}
    (legend,) = hyperparameters_picture(results, {}).legends
    assert [line.get_color() for line in legend.get_lines()] == ["#ee6677", "#777777", "#228833"]


RNG = np.random.default_rng(0)
N = 24
TABLE = pd.DataFrame(
    {
        "town": RNG.choice(["Ulm", "Bonn"], N),
        "garden": RNG.random(N) < 0.5,
        "sold": pd.date_range("2024-01-01", periods=N, freq="9D"),
        "rooms": RNG.integers(2, 9, N),
    }
)


@pytest.fixture(scope="module")
def svr():
    price = 10.0 + 3.0 * (TABLE["town"] == "Ulm") + TABLE["rooms"] + 0.1 * RNG.normal(size=N)
    return bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1).fit(TABLE, price)


def bands(axis):
    return [each for each in axis.collections if isinstance(each, FillBetweenPolyCollection)]


def test_curves_and_bars(svr):
    figure = bp.plot_effect(svr, TABLE, ["rooms", "sold", "town", "garden", "rooms"], ice=6, target="price")
    rooms, sold, town, garden, _, *rest = figure.axes
    assert [axis.get_xlabel() for axis in figure.axes[:4]] == ["rooms", "sold", "town", "garden"]
    assert {axis.get_ylabel() for axis in figure.axes[:4]} == {"effect on price"}
    assert len(rest) == 3 and not any(axis.axison for axis in rest)
    found = bp.effect(svr, TABLE, "rooms", ice=6)
    *single, ticks, mean = rooms.lines
    np.testing.assert_array_equal(mean.get_ydata(), found["mean"])
    np.testing.assert_array_equal([line.get_ydata() for line in single], found.iloc[:, 4:].T)
    np.testing.assert_array_equal(ticks.get_xdata(), found.index)
    (band,) = bands(rooms)
    assert band.get_datalim(rooms.transData).ymin == pytest.approx(found["lower"].min())
    assert len(bands(sold)) == 1 and rooms.get_ylim() == town.get_ylim()
    found = bp.effect(svr, TABLE, "town")
    tops = [bar.get_y() + bar.get_height() for bar in town.patches]
    np.testing.assert_allclose(tops, found["mean"])
    assert [label.get_text() for label in town.get_xticklabels()] == ["Bonn", "Ulm"]
    assert [label.get_text() for label in garden.get_xticklabels()] == ["False", "True"]
    (lengths,) = [each.get_segments() for each in town.containers[-1].lines[2]]
    np.testing.assert_allclose([np.ptp(each[:, 1]) for each in lengths], found["upper"] - found["lower"])


@pytest.mark.slow
def test_two_columns(svr):
    figure = bp.plot_effect(svr, TABLE, [("rooms", "sold"), ("rooms", "town"), ("town", "rooms"), ("town", "garden")])
    contour, of_second, of_first, of_both, bar = figure.axes
    assert (contour.get_xlabel(), contour.get_ylabel()) == ("rooms", "sold")
    assert sum(isinstance(each, ContourSet) for each in contour.collections) == 2
    assert bar.get_ylabel() == "effect on f (lines: its sd)"
    found = bp.effect(svr, TABLE, ("rooms", "town"))["mean"].unstack()
    for axis in (of_second, of_first):
        assert axis.get_xlabel() == "rooms" and len(bands(axis)) == 2
        assert [text.get_text() for text in axis.get_legend().get_texts()] == ["Bonn", "Ulm"]
    np.testing.assert_array_equal([line.get_ydata() for line in of_second.lines], found.T)
    assert of_both.get_xlabel() == "town" and of_both.get_legend().get_title().get_text() == "garden"
    assert [container.get_label() for container in of_both.containers] == ["False", "True"]


@pytest.mark.slow
def test_a_column_of_one_value_or_of_words_has_curves_and_no_formula():
    table = TABLE[["rooms", "garden"]].assign(**{r"$\frac$": RNG.normal(size=N)})
    table["garden"] = table["garden"].map({True: "_$^$", False: "no"})
    svr = bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1).fit(table, table["rooms"])
    pairs = ("rooms", r"$\frac$"), (r"$\frac$", "rooms"), ("rooms", "garden")
    figure = bp.plot_effect(svr, table.assign(**{r"$\frac$": 1.5}), [*pairs, "garden"], target="$y$")
    figure.canvas.draw()
    for axis, first in zip(figure.axes, ("1.5", "1.5", "\u200b_\\$^\\$"), strict=False):
        assert axis.get_xlabel() == "rooms" and axis.get_legend().get_texts()[0].get_text() == first


@pytest.mark.slow
def test_times_are_drawn_on_the_clock_of_their_zone():
    times = pd.date_range("2024-07-01", periods=48, freq="30min", tz="America/Los_Angeles")
    table = pd.DataFrame({"time": times})
    noon = np.exp(-0.5 * ((times.hour + times.minute / 60 - 12.0) / 1.5) ** 2).to_numpy()
    svr = bp.BayesianSVR(kernel="rbf", restarts=1).fit(table, noon + 0.01 * RNG.normal(size=48))
    figure = bp.plot_effect(svr, table, "time")
    figure.canvas.draw()
    axis = figure.axes[0]
    curve = max(axis.lines, key=lambda line: line.get_linewidth())
    highest = axis.convert_xunits(curve.get_xdata())[np.argmax(curve.get_ydata())]
    shown = axis.xaxis.get_major_formatter().format_data_short(highest)
    assert shown.startswith("2024-07-01 12:") or shown.startswith("2024-07-01 11:30")


def test_one_column_of_an_array():
    X = TABLE[["rooms"]].to_numpy()
    svr = bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1).fit(X, X[:, 0] + RNG.normal(size=N))
    (axis,) = bp.plot_effect(svr, X, 0).axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("x0", "effect on f")
