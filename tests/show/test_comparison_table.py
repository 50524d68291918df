"""The table says what the results say, and no more."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp import classification
from tests.helpers import process_model, soft


@pytest.mark.slow
def test_table(table, sinc_results):
    assert list(table.index) == list(sinc_results)
    assert np.isnan(table.loc["MAP", "log_evidence"])
    assert np.isnan(table.loc["NUTS", "log_evidence"])
    assert table.loc["Laplace", "log_evidence"] == sinc_results["Laplace"].attrs["log_evidence"]
    # A point has no standard deviation, sampling has.
    assert table.loc[["MAP", "Laplace", "mean field"], "C sd"].isna().all()
    assert table.loc["NUTS", "C sd"] > 0
    assert table.loc["Laplace", ["R-hat", "ESS", "divergences"]].isna().all()
    assert table.loc["NUTS", "R-hat"] > 0.9
    assert (table["f differs"] < 3).all()
    assert (table["y differs"] <= table["f differs"]).all()
    f_sd = np.sqrt(sinc_results["NUTS"]["latent_posterior"]["variance"])
    gap = abs(sinc_results["MAP"]["latent_posterior"]["mean"] - sinc_results["NUTS"]["latent_posterior"]["mean"])
    assert table.loc["MAP", "f differs"] == pytest.approx(float((gap / f_sd).max()))
    support = sinc_results["Laplace"]["latent_posterior"]["support"].values
    assert table.loc["Laplace", "off-bound"] == np.sum(support == 1)
    assert table["ase"].between(0, 0.2).all()
    assert table["coverage 95 %"].ge(table["coverage 80 %"]).all()
    for found in table.comparison.results.values():
        assert found.numbers.keys() <= set(table.columns)  # every number is shown


def test_evidences_at_one_point(table, sinc_model, sinc_results):
    model, _data = sinc_model
    theta = table.attrs["theta"]
    assert theta["C"] == pytest.approx(float(sinc_results["NUTS"]["posterior"]["C"].mean()))
    for method in (bp.Laplace(), bp.MeanField()):
        expected = bp.log_evidence(method, model, hyperparameters=theta).value
        assert table.loc[method.name, "evidence at theta"] == pytest.approx(expected)
    truth = table.comparison.evidence["annealed"]
    assert table.loc["NUTS", "evidence at theta"] == truth.value
    assert np.isnan(table.loc["MAP", "evidence at theta"])
    assert table.loc[["MAP", "NUTS"], ["evidence error", "error at theta"]].isna().all(axis=None)
    row = table.loc["mean field"]
    assert row["error at theta"] == pytest.approx(row["evidence at theta"] - truth.value)
    assert abs(row["error at theta"]) < 0.3
    assert "mean field is off by" in table.attrs["evidence_summary"]


@pytest.mark.slow
def test_a_result_is_judged_at_its_own_hyperparameters_whatever_else_was_run(sinc_model, sinc_results):
    """The errors of the evidence against an annealed run of the test's own, and the same verdicts in any company."""
    model, _data = sinc_model
    options = {"model": model, "integrated": False, "loo": False}
    few = bp.compare({name: sinc_results[name] for name in ("MAP", "Laplace")}, **options)
    all_four = bp.compare(sinc_results, "NUTS", **options)
    assert few.attrs["theta"] != all_four.attrs["theta"]
    for name in ("MAP", "Laplace"):
        assert few.loc[name, "verdict"] == all_four.loc[name, "verdict"]
    for column in ("evidence error", "evidence error se", "k-hat"):
        assert few.loc["Laplace", column] == all_four.loc["Laplace", column]
    assert few.loc["Laplace", "evidence at theta"] != all_four.loc["Laplace", "evidence at theta"]
    for name in ("Laplace", "mean field"):
        posterior = sinc_results[name]["posterior"].to_dataset()
        point = {h: float(posterior[h][0, 0]) for h in ("amplitude", "inverse_lengthscale", "C", "epsilon")}
        truth = bp.log_evidence(bp.Annealed(), model, hyperparameters=point, random_seed=5)
        row = all_four.loc[name]
        expected = sinc_results[name].attrs["log_evidence"] - truth.value
        assert row["evidence error"] == pytest.approx(
            expected, abs=4 * (row["evidence error se"] + truth.standard_error)
        )
        assert all_four.comparison.results[name].point == pytest.approx(point)


def test_the_point_can_be_given_and_the_annealed_evidence_left_out(sinc_model, sinc_results):
    model, _data = sinc_model
    at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    cheap = {"annealed": None, "integrated": False, "loo": False, "k_hat": False}
    table = bp.compare(sinc_results, model=model, hyperparameters=at, **cheap)
    assert table.attrs["theta"] == at
    assert set(table.comparison.evidence) == {"Laplace", "mean field"}
    assert not {"evidence error", "error at theta", "k-hat", "elpd", "p(y)"} & set(table.columns)
    mode = bp.compare({"MAP": sinc_results["MAP"]}, model=model, **cheap | {"integrated": True})
    assert mode[["p(y)", "p(y) se"]].isna().all(axis=None)
    with pytest.raises(ValueError, match="has no variable 'gamma'"):
        bp.compare(sinc_results, model=model, hyperparameters={"gamma": 1.0}, **cheap)
    with pytest.raises(ValueError, match=r"every hyperparameter of the model, amplitude, C, epsilon missing"):
        bp.compare(sinc_results, model=model, hyperparameters={"inverse_lengthscale": 1.0}, **cheap)


def test_leave_one_out_says_its_kind(table, sinc_model, sinc_results):
    model, _ = sinc_model
    assert table.loc["mean field", "elpd kind"] == "cavities, θ fixed"
    assert table.loc["mean field", "elpd"] == pytest.approx(bp.loo(sinc_results["mean field"], model=model).elpd)
    assert table.loc["NUTS", "elpd kind"].startswith("PSIS")
    assert table.loc["MAP", "elpd kind"] == ""
    assert np.isnan(table.loc["MAP", "elpd"])


def test_verdicts_distances_and_what_sampling_alone_has(table):
    assert table.loc["NUTS", ["f differs", "y differs"]].max() == 0
    assert 0 < table.loc["mean field", "f differs"] < table.loc["MAP", "f differs"]
    assert list(table.columns)[-1] == "verdict"
    assert table.loc["NUTS", "ESS/s"] == pytest.approx(table.loc["NUTS", "ESS"] / table.loc["NUTS", "seconds"])
    assert table.loc[["MAP", "NUTS"], "k-hat"].isna().all()
    assert table.loc[["Laplace", "mean field"], "k-hat"].notna().all()
    assert table.attrs["summary"]


def test_a_table_is_copied_and_written_like_any_data_frame(sinc_results, tmp_path):
    table = bp.compare(sinc_results, "NUTS", k_hat=False)
    for same in (table.copy(), copy.deepcopy(table), pickle.loads(pickle.dumps(table)), table.round(3)):
        assert repr(same.comparison) == repr(table.comparison) and same.attrs == table.attrs
        assert bp.report_page(same, title="sinc") == bp.report_page(table, title="sinc")
    assert json.loads(json.dumps(table.attrs)) == table.attrs
    assert len(pd.concat([table, table.add_suffix(" again", axis=0)])) == 2 * len(table)
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "table.parquet")
    again = pd.read_parquet(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(again, pd.DataFrame(table))
    assert again.attrs == table.attrs


def of_signs(observe):
    """A model of sixteen signs that ``observe(f, signs)`` adds."""
    X = np.linspace(-2, 2, 16)[:, None]
    return process_model(lambda _, f: observe(f, np.sign(X[:, 0] + 0.01)), X)


def labelled(noise=bp.SVMLabel):
    return of_signs(lambda f, y: noise("y", f=f, C=pm.LogNormal("C", 0, 1), observed=y))


@pytest.mark.slow
def test_labels_have_neither_leave_one_out_nor_integrated_evidence():
    model = labelled()
    methods = (bp.MAP(), bp.Laplace(), bp.MeanField())
    results = {m.name: bp.fit(m, model, hyperparameters={"C": 2.0}, progressbar=False) for m in methods}
    table = bp.compare(results, X_test=[[-1.5], [1.5]], y_test=[-1.0, 1.0], model=model)
    assert (table["error rate"] == 0).all()
    assert not {"elpd", "p(y)", "ase"} & set(table.columns)
    assert abs(table.loc["mean field", "evidence error"]) < 0.3
    assert table["verdict"].str.len().gt(0).all()


def test_known_labels_are_compared_without_laplace():
    model = labelled(classification.KnownLabel)
    found = bp.fit(bp.MeanField(), model, hyperparameters={"C": 2.0}, progressbar=False)
    table = bp.compare({"found": found}, model=model)
    assert list(table.comparison.evidence) == ["mean field", "annealed"]
    assert abs(table.loc["found", "evidence error"]) < 0.3 and np.isfinite(table.loc["found", "elpd"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of few draws
def test_given_hyperparameters_and_those_at_one_point_are_not_integrated_out():
    x = np.random.default_rng(0).normal(size=(8, 2))
    free = {"ls": lambda: pm.LogNormal("scale", shape=2), "C": lambda: pm.LogNormal("C")}
    model = process_model(soft, x, **free, observed=x[:, 0])
    nuts = bp.NUTS(latent=bp.MeanField(), draws=5, tune=5, chains=1, nuts_sampler="pymc")
    given, options = {"scale": [1.0, 2.0]}, {"random_seed": 0, "progressbar": False}
    sampled = bp.fit(nuts, model, hyperparameters=given, **options)
    results = {"draws": sampled, "point": bp.fit(bp.MeanField(), model, **options)}
    table = bp.compare(results, "draws", model=model, loo=False)
    assert table["p(y)"].isna().all() and table.attrs["theta"]["scale"] == given["scale"]
    assert table.loc["draws", "scale[1]"] == 2.0 and np.isnan(table.loc["draws", "scale[1] sd"])
    with pytest.raises(ValueError, match="result must have sampled hyperparameters"):
        bp.integrated_evidence(sampled, model=model)


def test_a_hyperparameter_with_the_name_of_a_column_has_another_name():
    x = np.linspace(-2, 2, 8)[:, None]
    with pm.Model():
        seconds, sd = pm.LogNormal("seconds", 0.0, 0.5), pm.LogNormal("seconds sd", 0.0, 0.5)
        f = bp.GP(cov_func=seconds * sd * pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=x)
        bp.SoftInsensitive("y", mu=f, C=5.0, epsilon=0.1, beta=0.3, observed=np.sin(x[:, 0]))
        result = bp.fit(bp.MeanField(), hyperparameters={"seconds": 0.7, "seconds sd": 0.6}, progressbar=False)
        (row,) = bp.compare({"m": result}, annealed=None, loo=False, integrated=False).to_dict("records")
    assert row["hyperparameter seconds"] == 0.7 and row["seconds"] == result.attrs["sampling_time"]
    assert np.isnan(row["seconds sd"]) and row["hyperparameter seconds sd"] == 0.6


def test_a_model_may_have_no_hyperparameters():
    model = of_signs(lambda f, y: pm.Normal("y", f, 1.0, observed=y))
    results = {m.name: bp.fit(m, model, progressbar=False) for m in (bp.Laplace(), bp.MeanField())}
    table = bp.compare(results, model=model)
    assert table.attrs["theta"] == {}
    assert table["evidence at theta"].to_numpy() == pytest.approx(table["log_evidence"].to_numpy())
    assert bp.report_page(table, title="signs").startswith("<!doctype html>")


@pytest.mark.slow_cases("conditional")
@pytest.mark.parametrize("kind", ["conditional", pytest.param("joint", marks=pytest.mark.slow)])
def test_a_normalised_evidence_is_compared_with_one_of_its_kind(kind):
    model = labelled()
    method = classification.NormalisedEvidence(kind, steps=0, particles=400)
    found = bp.fit(method, model, hyperparameters={"C": 2.0}, random_seed=1, progressbar=False)
    row = bp.compare({"found": found}, model=model).loc["found"]
    true = bp.log_evidence(bp.Annealed(), model, hyperparameters={"C": 2.0}, kind=kind, random_seed=1)
    assert row["evidence error se"] > found.attrs["log_evidence_error"]
    assert abs(row["evidence error"] - (row["log_evidence"] - true.value)) < 4 * row["evidence error se"]
    assert row["verdict"] == "no problem was found"
