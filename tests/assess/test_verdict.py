"""Judgements follow from figures, and say the same in words."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from scipy.stats import binom

import bsvr_pp as bp
from bsvr_pp.assess.assessment import Assessment, Comparison, Kind, Reason, Status, Verdict, judge, work_of
from bsvr_pp.inference.protocol import Evidence
from bsvr_pp.methods import make_method
from bsvr_pp.show.report import evidence_words, summary

GOOD = Assessment(
    inference="mean field",
    plug_in=False,
    sampled=False,
    message="",
    point={},
    numbers={
        "converged": True,
        "seconds": 2.0,
        "log_evidence": -3.0,
        "evidence error": 0.1,
        "evidence error se": 0.02,
        "k-hat": 0.5,
        "f differs": 0.2,
        "R-hat": 1.002,
        "mlpd": -1.0,
        "coverage 80 %": 0.8,
        "coverage 95 %": 0.95,
    },
    hyperparameters={},
    n_test=100,
)
NO_PROBLEM = "no problem was found"


def changed(numbers=None, **changes):
    """GOOD with other numbers, without those that are None, and with other attributes."""
    kept = {column: value for column, value in (GOOD.numbers | (numbers or {})).items() if value is not None}
    return replace(GOOD, numbers=kept, **changes)


def error(value, standard_error=0.02):
    return {"evidence error": value, "evidence error se": standard_error}


def test_no_problem():
    assert judge(GOOD) == Verdict() and judge(GOOD).status is Status.TRUSTED
    assert str(judge(GOOD)) == NO_PROBLEM
    mode = replace(GOOD, plug_in=True)
    assert judge(mode).status is Status.NO_ERROR_BARS
    assert str(judge(mode)) == f"{NO_PROBLEM}, but f has no error bars"
    bare = Assessment("NUTS", False, True, "", {}, {"converged": True, "seconds": 2.0, "k-hat": nan}, {})
    assert judge(bare).status is Status.TRUSTED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numbers": {"converged": False}, "message": "R-hat reaches 1.2"}, "not converged: R-hat reaches 1.2"),
        ({"numbers": {"R-hat": 1.02}}, "R-hat 1.020 > 1.01"),
        ({"numbers": error(-2.0)}, "log evidence is 2.00 ± 0.02 nats too low"),
        ({"numbers": error(0.5)}, "too high"),
        ({"numbers": {"k-hat": 0.75, **error(-2.0)}}, "k-hat 0.75 > 0.7: too far"),
        ({"numbers": {"k-hat": 0.75, **error(nan)}}, "k-hat 0.75 > 0.7: too far"),
        ({"numbers": {"k-hat": 0.75, **error(None, None)}}, "k-hat 0.75 > 0.7: too far"),
        ({"numbers": {"k-hat": 0.75}, "sampled": True}, "k-hat 0.75 > 0.7: too far"),
        ({"numbers": {"coverage 80 %": 0.6}}, "80 % intervals are too narrow: they hold 60 % of the test targets"),
        ({"numbers": {"coverage 80 %": 0.95}}, "80 % intervals are too wide"),
        ({"numbers": {"coverage 95 %": 0.85}}, "95 % intervals are too narrow"),
    ],
)
def test_each_objection(changes, words):
    verdict = judge(changed(**changes))
    assert verdict.status is Status.REJECTED
    assert words in str(verdict)


def test_an_evidence_that_is_right_outweighs_the_joint_weights():
    reserved = changed({"k-hat": 1.3})
    verdict = judge(reserved)
    assert verdict == Verdict((Reason(Kind.JOINT_WEIGHTS, (1.3,)),)) and verdict.status is Status.RESERVED
    assert str(verdict) == f"{NO_PROBLEM}: its evidence is right, but k-hat 1.30 > 0.7 for all of f at once"
    mode = changed({"seconds": 1.0}, plug_in=True)
    assert Comparison({"mean field": reserved, "MAP": mode}, {}, {}).recommendation.best == "mean field"


def test_a_mean_far_from_a_converged_reference_is_a_warning_beside_the_verdict():
    far = changed({"f differs": 1.2})
    warned = Comparison({"mean field": far, "NUTS": GOOD}, {}, {}, "NUTS")
    assert judge(far) == judge(GOOD)
    assert str(warned.far["mean field"]) == "the mean of f is up to 1.2 posterior sd off the reference"
    assert list(warned.far) == ["mean field"]
    assert warned.recommendation.best == "NUTS" and warned.recommendation.warned == ("mean field",)
    assert Comparison({"mean field": far, "NUTS": changed({"converged": False})}, {}, {}, "NUTS").far == {}


def test_what_is_wrong_under_every_method_is_said_of_the_model():
    narrow = changed({"coverage 80 %": 0.6})
    slow = changed({"coverage 80 %": 0.6}, work=work_of(bp.NUTS()))
    both = Comparison({"NUTS": slow, "mean field": narrow}, {}, {})
    assert both.shared == Reason(Kind.COVERAGE, (80.0, "narrow", 60.0))
    assert both.recommendation.best == "mean field" and not both.recommendation.warned
    assert "Under every method 80 % intervals are too narrow" in summary(both)
    assert summary(both).startswith("Use mean field: no other problem was found")
    wide = changed({"coverage 95 %": 1.0, "coverage 80 %": 1.0})
    assert Comparison({"NUTS": wide, "mean field": narrow}, {}, {}).shared is None
    one = Comparison({"Laplace": narrow, "mean field": GOOD}, {}, {})
    assert one.shared is None and one.recommendation.warned == ("Laplace",)
    assert Comparison({"Laplace": narrow}, {}, {}).shared is None
    mode = replace(narrow, plug_in=True)
    assert Comparison({"MAP": mode, "Laplace": narrow}, {}, {}).recommendation.best == "Laplace"


def test_evidences_in_a_sentence():
    evidence = {"Laplace": Evidence(-12.0, 0.0, True), "mean field": Evidence(-10.0, 0.0, False)}
    assert evidence_words(Comparison({}, {}, {"Laplace": Evidence(-12.0, 0.0, True)})) == ""
    said = evidence_words(Comparison({}, {}, {**evidence, "annealed": Evidence(-10.5, 0.01, True)}))
    assert "annealed log evidence of -10.50 ± 0.01, Laplace is off by -1.50 nats" in said
    assert "mean field did not converge" in said


def test_the_verdict_goes_by_the_work_of_methods_and_by_no_clock():
    methods = [make_method(key) for key in ("laplace", "integrated", "nuts_laplace_local", "nuts")]
    works = [work_of(method) for method in methods]
    assert works == sorted(set(works)) and work_of(bp.MeanField()) == works[0]
    for seconds in ([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]):
        found = {w: changed({"seconds": s}, work=w) for s, w in zip(seconds, works, strict=True)}
        for i in range(len(works)):
            left = {str(w): found[w] for w in reversed(works[i:])}
            assert Comparison(left, {}, {}).recommendation.best == str(works[i])
    equal = {"local": changed({"seconds": 1.0, "mlpd": -1.1}), "exact": changed({"seconds": 9.0, "mlpd": -1.0})}
    assert Comparison(equal, {}, {}).recommendation.best == "exact"


def test_summary_names_the_one_of_least_work_that_can_be_trusted():
    mode, trusted = replace(GOOD, plug_in=True), GOOD
    rejected = changed({"k-hat": 0.9, **error(1.0, 0.1)})
    seconds = {"MAP": 0.1, "Laplace": 1.0, "mean field": 2.0, "NUTS": 90.0}

    def said(**results):
        results = {name.replace("_", " "): found for name, found in results.items()}
        timed = {n: replace(found, numbers=found.numbers | {"seconds": seconds[n]}) for n, found in results.items()}
        return summary(Comparison(timed, {}, {}))

    assert said(MAP=mode, Laplace=rejected, mean_field=trusted, NUTS=trusted) == (
        "Use mean field: no problem was found, and it took 2 s (NUTS can be trusted as well). "
        "See the warnings for Laplace."
    )
    assert "but there are no error bars of f" in said(MAP=mode)
    reserved = changed({"k-hat": 0.9})
    assert said(Laplace=reserved, mean_field=trusted).startswith("Use mean field")
    assert "None of these results can be trusted" in said(Laplace=rejected)
    assert said(MAP=mode, Laplace=rejected) == (
        "No problem was found with MAP, but there are no error bars of f. See the warnings for Laplace."
    )


def test_limits_themselves_are_no_problem():
    assert judge(changed({"k-hat": 0.7, **error(None, None)})).status is Status.TRUSTED
    assert judge(changed({"k-hat": 0.75, **error(0.3)})).status is Status.RESERVED
    assert judge(changed(error(0.5, 0.2))).status is Status.TRUSTED  # 2.5 standard errors
    assert judge(changed(error(0.7, 0.2))).reasons == (Reason(Kind.EVIDENCE_IS_OFF, (0.7, 0.2, "high")),)  # 3.5


def test_coverage_is_tested_by_the_whole_tail_of_the_binomial():
    """At both limits the probability of as many hits, or of more extreme numbers, is just above the level."""
    n, level = 100, 0.8
    hits = np.arange(n + 1)
    as_many_or_more, as_few_or_fewer = binom.sf(hits - 1, n, level), binom.cdf(hits, n, level)
    most = hits[as_many_or_more >= 0.005].max()
    fewest = hits[as_few_or_fewer >= 0.005].min()
    for number, status in [
        (most, Status.TRUSTED),
        (most + 1, Status.REJECTED),
        (fewest, Status.TRUSTED),
        (fewest - 1, Status.REJECTED),
    ]:
        assert judge(changed({"coverage 80 %": number / n})).status is status, number
