"""Pictures hold what they should."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp


def test_predictive_bands_mark_the_support_vectors(sinc_model, sinc_results):
    model, data = sinc_model
    figure = bp.plot_predictive(sinc_results, model=model, input_location=5.0)
    visible = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in visible] == list(sinc_results)
    drawn = {line.get_label(): line.get_xdata() for line in visible[1].lines}
    support = sinc_results["Laplace"]["latent_posterior"]["support"].values
    np.testing.assert_allclose(drawn["off-bound support vector"], data.X[support == 1, 0] + 5.0)
    np.testing.assert_allclose(drawn["data"], data.X[:, 0] + 5.0)
    assert not any("support" in str(line.get_label()) for line in visible[3].lines)
    plt.close(figure)


def test_several_inputs_are_drawn_against_their_predictions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=15)
    model = bp.default_model(X, y)
    at = {"lengthscale": [2.0, 2.0], "C": 5.0, "epsilon": 0.1}
    results = {"Laplace": bp.fit(bp.Laplace(), model, hyperparameters=at, progressbar=False)}
    figure = bp.plot_predictive(results, model=model, X_test=X[:4], y_test=y[:4], scale=2.0)
    points = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_label() in ("inside", "outside"))
    assert points == 4
    plt.close(figure)
    figure = bp.plot_hyperparameters(results, names={"lengthscale": ["first", "second"]})
    titles = {axis.get_title(): axis for axis in figure.axes}
    assert set(titles) == {"C", "epsilon", "lengthscale"}
    assert [t.get_text() for t in titles["lengthscale"].get_yticklabels()] == ["first", "second"]
    plt.close(figure)
