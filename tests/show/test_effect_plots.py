"""What is drawn of effects."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.contour import ContourSet

import bsvr_pp as bp

RNG = np.random.default_rng(0)
N = 40
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
    return bp.BayesianSVR(restarts=1, random_state=0).fit(TABLE, price)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


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


def test_one_column_of_an_array():
    X = TABLE[["rooms"]].to_numpy()
    (axis,) = bp.plot_effect(bp.LSSVR(gamma=1.0, lengthscale=1.0).fit(X, X[:, 0]), X, 0).axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("x0", "effect on f")
