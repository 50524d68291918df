"""ArviZ takes every kind of result as it is."""

from __future__ import annotations

import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
from arviz_plots import PlotCollection

import bsvr_pp as bp

KINDS = ("MAP", "Laplace", "Laplace (local)", "mean field", "NUTS", "NUTS (mean field)")
WITH_DRAWS = KINDS[1:]
NAMES = ["C", "epsilon", "lengthscale"]


@pytest.fixture(scope="module")
def results(sinc_model, sinc_results):
    model, _ = sinc_model
    more = (bp.Laplace(curvature="local"), bp.NUTS(bp.MeanField(), draws=100, tune=150, chains=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sinc_results | {m.name: bp.fit(m, model, random_seed=1, progressbar=False) for m in more}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.filterwarnings("ignore")  # one chain of a point: no R-hat
@pytest.mark.parametrize("kind", KINDS)
def test_summary(results, kind):
    table = az.summary(results[kind], var_names=NAMES, round_to="none")
    assert list(table.index) == NAMES
    assert table.loc["C", "mean"] == pytest.approx(float(results[kind]["posterior"]["C"].mean()))
    latent = az.summary(results[kind], var_names=["f"], kind="stats", round_to="none")
    expected = results[kind]["latent_posterior"]["mean"]
    assert len(latent) == expected.size
    sd = np.sqrt(results[kind]["latent_posterior"]["variance"].max())
    np.testing.assert_allclose(latent["mean"], expected, atol=0.25 * float(sd) + 1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plot", [az.plot_forest, az.plot_trace], ids=["forest", "trace"])
def test_forest_and_trace(results, kind, plot):
    picture = plot(results[kind], var_names=NAMES)
    assert isinstance(picture, PlotCollection)
    assert set(NAMES) <= {str(name) for group in picture.viz.children.values() for name in group.data_vars}


@pytest.mark.parametrize("kind", KINDS)
def test_posterior_predictive(results, kind):
    picture = az.plot_ppc_dist(results[kind], num_samples=20)
    assert isinstance(picture, PlotCollection)
    axis = picture.viz["figure"].item().axes[0]
    assert len(axis.lines) >= 20


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize("kind", WITH_DRAWS)
def test_leave_one_out_of_draws(results, kind):
    found = az.loo(results[kind], pointwise=True)
    assert found.n_data_points == 24
    assert np.isfinite(found.elpd_i).all()


def test_leave_one_out_of_a_point_is_refused(sinc_model, results):
    with pytest.raises(TypeError, match="log likelihood not found"):
        az.loo(results["MAP"])
    with pytest.raises(ValueError, match=r"MAP has none: use Laplace\(\), MeanField\(\) or NUTS\(\)"):
        bp.loo(results["MAP"], model=sinc_model[0])


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_compare_takes_results_and_our_leave_one_out(sinc_model, results):
    chosen = {kind: results[kind] for kind in WITH_DRAWS}
    assert set(az.compare(chosen).index) == set(WITH_DRAWS)
    ours = {kind: bp.loo(result, model=sinc_model[0]) for kind, result in chosen.items()}
    table = az.compare(ours)
    assert set(table.index) == set(WITH_DRAWS)
    best = max(ours, key=lambda kind: ours[kind].elpd)
    assert table.index[0] == best


@pytest.mark.parametrize("kind", KINDS)
def test_files_keep_what_arviz_needs(results, kind, tmp_path):
    results[kind].to_netcdf(tmp_path / "fit.nc")
    kept = az.from_netcdf(tmp_path / "fit.nc")
    assert set(kept.children) == set(results[kind].children)
    assert isinstance(az.plot_forest(kept, var_names=NAMES), PlotCollection)
