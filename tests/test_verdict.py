"""Words follow from numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from bsvr_pp.verdict import NO_ERROR_BARS, NO_OBJECTION, evidence_sentence, summary, verdicts

GOOD = {
    "inference": "mean field",
    "converged": True,
    "evidence error": 0.1,
    "evidence error se": 0.02,
    "k-hat": 0.5,
    "R-hat": 1.002,
    "f differs": 0.2,
    "coverage 80 %": 0.8,
    "coverage 95 %": 0.95,
}


def verdict(**changes):
    # A second row without fault keeps what is wrong in the first from being blamed on the model.
    table = pd.DataFrame([{**GOOD, **changes}, GOOD], index=["judged", "NUTS"])
    return verdicts(table, "NUTS", n_test=100)[0][0]


def test_nothing_to_object():
    assert verdict() == NO_OBJECTION
    assert verdict(inference="MAP") == NO_ERROR_BARS
    nan = float("nan")
    assert verdicts(pd.DataFrame([{"inference": "NUTS", "converged": True, "k-hat": nan}]))[0] == [NO_OBJECTION]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"converged": False, "note": "R-hat reaches 1.2"}, "not converged: R-hat reaches 1.2"),
        ({"R-hat": 1.02}, "R-hat 1.020 > 1.01"),
        ({"evidence error": -2.0}, "log evidence 2.00 ± 0.02 nats too low"),
        ({"evidence error": 0.5}, "too high"),
        ({"k-hat": 0.75, "evidence error": -2.0}, "k-hat 0.75 > 0.7"),
        ({"k-hat": 0.75, "evidence error": float("nan")}, "k-hat 0.75 > 0.7: too far"),
        ({"k-hat": 0.75, "inference": "NUTS (mean field)"}, "k-hat 0.75 > 0.7: too far"),
        ({"f differs": 1.2}, "the mean of f is up to 1.2 posterior sd off the reference"),
        ({"coverage 80 %": 0.6}, "80 % intervals are too narrow: they hold 60 % of the test targets"),
        ({"coverage 80 %": 0.95}, "80 % intervals are too wide"),
        ({"coverage 95 %": 0.85}, "95 % intervals are too narrow"),
    ],
)
def test_each_objection(changes, words):
    assert words in verdict(**changes)


def test_an_error_within_the_error_of_the_yardstick_is_none():
    changes = {"evidence error": 0.5, "evidence error se": 0.2}
    assert verdicts(pd.DataFrame([{**GOOD, **changes}]))[0] == [NO_OBJECTION]


def test_an_evidence_that_is_right_outweighs_the_joint_weights():
    said = verdict(**{"k-hat": 1.3})
    assert said == f"{NO_OBJECTION}: its evidence is right, but k-hat 1.30 > 0.7 for all of f at once"
    assert summary({"mean field": said, "MAP": NO_ERROR_BARS}, {"mean field": 2.0, "MAP": 1.0}).startswith(
        "Use mean field"
    )


def test_a_reference_that_did_not_converge_is_no_yardstick():
    table = pd.DataFrame([{**GOOD, "f differs": 2.0}, {**GOOD, "converged": False}], index=["mean field", "NUTS"])
    assert verdicts(table, "NUTS")[0][0] == NO_OBJECTION


def test_what_is_wrong_under_every_method_is_said_of_the_model():
    found, shared = verdicts(pd.DataFrame([{**GOOD, "coverage 80 %": 0.6}] * 2), n_test=100)
    assert found == [NO_OBJECTION] * 2
    assert shared[0].startswith("Under every method 80 % intervals are too narrow")


def test_evidences_in_a_sentence():
    evidence = {"Laplace": (-12.0, 0.0, True), "mean field": (-10.0, 0.0, False)}
    assert evidence_sentence({"Laplace": (-12.0, 0.0, True)}) == ""
    said = evidence_sentence({**evidence, "annealed": (-10.5, 0.01, True)})
    assert "annealed log evidence of -10.50 ± 0.01, Laplace is off by -1.50 nats" in said
    assert "mean field did not converge" in said


def test_summary_names_the_quickest_that_can_be_trusted():
    said = {"MAP": NO_ERROR_BARS, "Laplace": "k-hat", "mean field": NO_OBJECTION, "NUTS": NO_OBJECTION}
    seconds = {"MAP": 0.1, "Laplace": 1.0, "mean field": 2.0, "NUTS": 90.0}
    assert summary(said, seconds) == (
        "Use mean field: nothing speaks against it, and it took 2 s (NUTS may be trusted as well). "
        "Read what speaks against Laplace."
    )
    assert "but there are no error bars of f" in summary({"MAP": NO_ERROR_BARS}, seconds)
    remarked = {"Laplace": f"{NO_OBJECTION}: its evidence is right, but", "mean field": NO_OBJECTION}
    assert summary(remarked, seconds).startswith("Use mean field")
    assert "None of these results can be trusted" in summary({"Laplace": "k-hat"}, seconds)
