"""ArviZ takes every kind of result as it is."""

import warnings

import arviz as az
import numpy as np
import pytest
from arviz_plots import PlotCollection

import bsvr_pp as bp

KINDS = ("MAP", "Laplace", "Laplace (local)", "mean field", "NUTS", "NUTS (mean field)")
WITH_DRAWS = KINDS[1:]
NAMES = ["C", "epsilon", "lengthscale"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("closed")]  # two of the results are sampled


@pytest.fixture(scope="module")
def results(sinc_model, sinc_results):
    model, _ = sinc_model
    drawn = {"draws": 150, "tune": 250, "chains": 2}
    more = (bp.Laplace(curvature="local"), bp.NUTS(**drawn), bp.NUTS(bp.MeanField(), **drawn))
    with warnings.catch_warnings(action="ignore"):
        return sinc_results | {m.name: bp.fit(m, model, random_seed=1, progressbar=False) for m in more}


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


# Every reader of ArviZ that applies to results of a fit, and what it should return for a result of 24 rows.
def _finite(table):
    return np.isfinite(np.asarray(table, dtype=np.float64)).all()


READERS = {
    "summary": lambda r, m: len(az.summary(r, var_names=NAMES)) == 3,
    "ess": lambda r, m: _finite([az.ess(r, var_names=["f"])["f"]]),
    "rhat": lambda r, m: az.rhat(r, var_names=["f"])["f"].size == 24,
    "loo": lambda r, m: np.isfinite(az.loo(r).elpd),
    "loo_pit": lambda r, m: ((az.loo_pit(r)["y"] >= 0) & (az.loo_pit(r)["y"] <= 1)).all(),
    "loo_expectations": lambda r, m: _finite(az.loo_expectations(r, kind="mean")[0]),
    "loo_metrics": lambda r, m: az.loo_metrics(r).mean > 0,
    "compare": lambda r, m: list(az.compare({"a": r, "b": r}).index) == ["a", "b"],
    "psense_summary": lambda r, m: _finite(az.psense_summary(r, var_names=NAMES)[["prior", "likelihood"]]),
    "plot_trace_dist": lambda r, m: isinstance(az.plot_trace_dist(r, var_names=NAMES), PlotCollection),
    "plot_forest": lambda r, m: isinstance(az.plot_forest(r, var_names=NAMES), PlotCollection),
    "plot_ppc_pit": lambda r, m: isinstance(az.plot_ppc_pit(r), PlotCollection),
    "plot_loo_pit": lambda r, m: isinstance(az.plot_loo_pit(r), PlotCollection),
    "plot_khat": lambda r, m: isinstance(az.plot_khat(az.loo(r, pointwise=True)), PlotCollection),
    "plot_ppc_dist": lambda r, m: isinstance(az.plot_ppc_dist(r, num_samples=20), PlotCollection),
}
NO_DRAWS = "the mode has no posterior of f, so that there is no log_likelihood"
OPTIMISED = "the hyperparameters were optimised, so that there is no log_prior of draws"
READS_LIKELIHOOD = (
    "loo", "loo_pit", "loo_expectations", "loo_metrics", "compare", "plot_loo_pit", "plot_khat",
)  # fmt: skip
POINTS = ("MAP", "Laplace", "Laplace (local)", "mean field")
DOES_NOT_APPLY = {("MAP", reader): NO_DRAWS for reader in READS_LIKELIHOOD}
DOES_NOT_APPLY |= {(kind, "psense_summary"): OPTIMISED for kind in POINTS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "reader"), [(kind, reader) for kind in KINDS for reader in READERS])
def test_every_reader_takes_every_kind_of_result(sinc_model, results, kind, reader):
    """What does not apply is refused by ArviZ, and the table says why."""
    model, _ = sinc_model
    if (kind, reader) in DOES_NOT_APPLY:
        with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
            READERS[reader](results[kind], model)
    else:
        assert READERS[reader](results[kind], model)


def test_draws_of_nuts_are_aligned_in_every_group(results):
    for kind in ("NUTS", "NUTS (mean field)"):
        tree = results[kind]
        for group in ("log_likelihood", "log_prior", "posterior_predictive", "sample_stats"):
            for dim in ("chain", "draw"):
                np.testing.assert_array_equal(tree[group][dim], tree["posterior"][dim])
        assert set(tree["log_prior"].data_vars) == {"amplitude", "inverse_lengthscale", "C", "epsilon"}
