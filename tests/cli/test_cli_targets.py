"""Intervals, censored times and ordered classes on the command line: the estimator's model, saved and read again."""

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from tests.helpers import refuse_command, run_command

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3, 3, 24))
Y = np.sin(X) + 0.1 * RNG.laplace(size=24)
NEW = np.array([-1.5, 0.0, 1.5])


@pytest.fixture
def predicted(tmp_path, monkeypatch):
    """Write a table, fit it with options, and return what the commands print and the predictions of new rows."""
    monkeypatch.chdir(tmp_path)

    def fit_and_predict(table, fit_options, predict_options=()):
        pd.DataFrame({"x": X} | table).to_csv("data.csv", index=False)
        pd.DataFrame({"x": NEW}).to_csv("new.csv", index=False)
        said = run_command("fit", "data.csv", "--kernel", "rbf", "--restarts", 1, "-o", "model.nc", *fit_options)
        run_command("predict", "model.nc", "new.csv", "-o", "out.csv", *predict_options)
        return said, pd.read_csv("out.csv")

    return fit_and_predict


@pytest.mark.slow
def test_intervals(predicted):
    upper = np.where(Y < 0.5, Y, np.nan)  # an empty cell
    _, found = predicted({"from": np.minimum(Y, 0.5), "to": upper}, ["--lower", "from", "--upper", "to"])
    ends = np.stack([np.minimum(Y, 0.5), np.where(Y < 0.5, Y, np.inf)], axis=1)
    svr = bp.BayesianSVR(kernel="rbf", intervals=True, restarts=1, random_state=0).fit(X[:, None], ends)
    np.testing.assert_allclose(found["from to to"], svr.predict(NEW[:, None]), rtol=1e-6)
    assert (found["upper 90 %"] > found["from to to"]).all() and found["from to to"].iloc[2] > 0.7


@pytest.mark.slow
def test_censored_times(predicted):
    time, observed = np.exp(np.minimum(Y, 0.5)), Y < 0.5
    options = ["--target", "time", "--event", "seen", "--log-target"]
    _, found = predicted({"time": time, "seen": observed}, options, ["--survival", "0.5,2"])
    y = np.array(list(zip(observed, time, strict=True)), dtype=[("event", bool), ("time", float)])
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, log_targets=True, random_state=0).fit(X[:, None], y)
    expected = svr.predict_survival_function(NEW[:, None], [0.5, 2.0])
    np.testing.assert_allclose(found[["P(> 0.5)", "P(> 2)"]], expected, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found["time"], svr.predict(NEW[:, None]), rtol=1e-6)
    assert "sd" not in found  # it may be infinite


@pytest.mark.slow
def test_every_time_and_coverage_has_its_columns():
    svr = bp.BayesianSVR(kernel="rbf", inference="mean_field", restarts=1, random_state=0).fit(X[:, None], 1e7 + Y)
    table = svr.predict_table(NEW[:, None], 0.9000001, times=[10_000_001, 1e7, 1e7 + 0.5, 2.0, 1e-5])
    names = ["10000001", "10000000", "10000000.5", "2", "1e-05"]
    assert list(table)[2:] == ["lower 90.00001 %", "upper 90.00001 %", *(f"P(> {name})" for name in names)]
    assert list(svr.predict_table(NEW[:, None], 0.55))[2] == "lower 55 %"


@pytest.mark.slow
def test_ordered_classes(predicted):
    grade = np.array(["a", "b", "c"])[np.digitize(Y, [-0.4, 0.4])]
    said, found = predicted({"grade": grade}, ["--ordinal"])
    assert "cut point, a to b" in said.output and "3 classes, in this order: a, b, c" in said.stderr
    svc = bp.BayesianOrdinalSVC(kernel="rbf", restarts=1, random_state=0).fit(X[:, None], grade)
    np.testing.assert_allclose(found[["P(a)", "P(b)", "P(c)"]], svc.predict_proba(NEW[:, None]), rtol=1e-5)
    assert found["grade"].tolist() == ["a", "b", "c"]
    run_command("fit", "data.csv", "--ordinal", "--restarts", 1, "-o", "default.nc")  # its kernel
    run_command("fit", "data.csv", "--ordinal", "--restarts", 1, "--blocks", 20, "-o", "blocks.nc")
    assert len(bp.BayesianOrdinalSVC.load("blocks.nc").blocks_) > 1
    run_command("predict", "blocks.nc", "new.csv", "--neighbours", 10, "-o", "near.csv")
    for option in ("--survival", "--coverage"):
        said = refuse_command("predict", "model.nc", "new.csv", option, ".5")
        assert f"{option} is for targets that are numbers" in said
