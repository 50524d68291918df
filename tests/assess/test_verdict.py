"""Judgements follow from figures, and say the same in words."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from scipy.stats import binom

from bsvr_pp.assess.assessment import Assessment, Distances, Estimate, EvidenceFigures, Sampling
from bsvr_pp.assess.scores import Scores
from bsvr_pp.assess.verdict import (
    Comparison,
    Coverage,
    EvidenceIsOff,
    JointWeights,
    NoErrorBars,
    Status,
    Verdict,
    WeightsDegenerate,
    judge,
    recommend,
)
from bsvr_pp.show.words import evidence_sentence, reason_words, recommendation_sentence, summary, verdict_words

GOOD = Assessment(
    inference="mean field",
    plug_in=False,
    sampled=False,
    converged=True,
    seconds=2.0,
    message="",
    point={},
    hyperparameters={},
    evidence=EvidenceFigures(-3.0, error=Estimate(0.1, 0.02)),
    k_hat=0.5,
    distances=Distances(0.2, 0.1, 0.1, 0.0, {}, {}),
    scores=Scores(100, -1.0, coverage={0.8: 0.8, 0.95: 0.95}),
    sampling=Sampling(1.002, 400.0, 0),
)
NO_PROBLEM = "no problem was found"


def error(value, standard_error=0.02):
    return EvidenceFigures(-3.0, error=Estimate(value, standard_error))


def test_no_problem():
    assert judge(GOOD) == Verdict(Status.TRUSTED)
    assert verdict_words(judge(GOOD)) == NO_PROBLEM
    mode = replace(GOOD, plug_in=True)
    assert judge(mode).status is Status.NO_ERROR_BARS
    assert verdict_words(judge(mode)) == f"{NO_PROBLEM}, but f has no error bars"
    bare = Assessment("NUTS", False, True, True, 2.0, "", {}, {}, EvidenceFigures(nan), k_hat=nan)
    assert judge(bare).status is Status.TRUSTED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"converged": False, "message": "R-hat reaches 1.2"}, "not converged: R-hat reaches 1.2"),
        ({"sampling": Sampling(1.02, 400.0, 0)}, "R-hat 1.020 > 1.01"),
        ({"evidence": error(-2.0)}, "log evidence is 2.00 ± 0.02 nats too low"),
        ({"evidence": error(0.5)}, "too high"),
        ({"k_hat": 0.75, "evidence": error(-2.0)}, "k-hat 0.75 > 0.7: too far"),
        ({"k_hat": 0.75, "evidence": error(nan)}, "k-hat 0.75 > 0.7: too far"),
        ({"k_hat": 0.75, "evidence": EvidenceFigures(-3.0)}, "k-hat 0.75 > 0.7: too far"),
        ({"k_hat": 0.75, "sampled": True}, "k-hat 0.75 > 0.7: too far"),
        (
            {"scores": Scores(100, -1.0, coverage={0.8: 0.6, 0.95: 0.95})},
            "80 % intervals are too narrow: they hold 60 % of the test targets",
        ),
        ({"scores": Scores(100, -1.0, coverage={0.8: 0.95, 0.95: 0.95})}, "80 % intervals are too wide"),
        ({"scores": Scores(100, -1.0, coverage={0.8: 0.8, 0.95: 0.85})}, "95 % intervals are too narrow"),
    ],
)
def test_each_objection(changes, words):
    verdict = judge(replace(GOOD, **changes))
    assert verdict.status is Status.REJECTED
    assert words in verdict_words(verdict)


def test_an_error_within_the_error_of_the_annealed_evidence_is_none():
    assert judge(replace(GOOD, evidence=error(0.5, 0.2))).status is Status.TRUSTED


def test_an_evidence_that_is_right_outweighs_the_joint_weights():
    verdict = judge(replace(GOOD, k_hat=1.3))
    assert verdict == Verdict(Status.RESERVED, (JointWeights(1.3),))
    assert verdict_words(verdict) == f"{NO_PROBLEM}: its evidence is right, but k-hat 1.30 > 0.7 for all of f at once"
    mode = Verdict(Status.NO_ERROR_BARS, (NoErrorBars(),))
    assert recommend({"mean field": verdict, "MAP": mode}, {"mean field": 2.0, "MAP": 1.0}).best == "mean field"


def test_a_mean_far_from_a_converged_reference_is_a_warning_beside_the_verdict():
    far = replace(GOOD, distances=replace(GOOD.distances, mean_f=1.2))
    warned = Comparison({"mean field": far, "NUTS": GOOD}, {}, {}, "NUTS")
    assert judge(far) == judge(GOOD)
    assert reason_words(warned.far["mean field"]) == "the mean of f is up to 1.2 posterior sd off the reference"
    assert list(warned.far) == ["mean field"]
    assert warned.recommendation.best == "NUTS" and warned.recommendation.warned == ("mean field",)
    assert Comparison({"mean field": far, "NUTS": replace(GOOD, converged=False)}, {}, {}, "NUTS").far == {}


def test_what_is_wrong_under_every_method_is_said_of_the_model():
    narrow = replace(GOOD, scores=Scores(100, -1.0, coverage={0.8: 0.6}))
    both = Comparison({"Laplace": narrow, "mean field": replace(narrow, seconds=1.0)}, {}, {})
    assert both.shared == Coverage(0.8, 0.6)
    assert both.recommendation.best == "mean field" and not both.recommendation.warned
    assert "Under every method 80 % intervals are too narrow" in summary(both)
    assert summary(both).startswith("Use mean field")
    one = Comparison({"Laplace": narrow, "mean field": GOOD}, {}, {})
    assert one.shared is None and one.recommendation.warned == ("Laplace",)
    assert Comparison({"Laplace": narrow}, {}, {}).shared is None
    mode = replace(narrow, plug_in=True)
    assert Comparison({"MAP": mode, "Laplace": narrow}, {}, {}).recommendation.best == "Laplace"


def test_evidences_in_a_sentence():
    evidence = {"Laplace": (-12.0, 0.0, True), "mean field": (-10.0, 0.0, False)}
    assert evidence_sentence({"Laplace": (-12.0, 0.0, True)}) == ""
    said = evidence_sentence({**evidence, "annealed": (-10.5, 0.01, True)})
    assert "annealed log evidence of -10.50 ± 0.01, Laplace is off by -1.50 nats" in said
    assert "mean field did not converge" in said


def test_summary_names_the_quickest_that_can_be_trusted():
    mode, trusted = Verdict(Status.NO_ERROR_BARS, (NoErrorBars(),)), Verdict(Status.TRUSTED)
    rejected = Verdict(Status.REJECTED, (WeightsDegenerate(0.9), EvidenceIsOff(1.0, 0.1)))
    seconds = {"MAP": 0.1, "Laplace": 1.0, "mean field": 2.0, "NUTS": 90.0}

    def said(**verdicts):
        verdicts = {name.replace("_", " "): verdict for name, verdict in verdicts.items()}
        known = {name: seconds[name] for name in verdicts}
        return recommendation_sentence(recommend(verdicts, known), known)

    assert said(MAP=mode, Laplace=rejected, mean_field=trusted, NUTS=trusted) == (
        "Use mean field: no problem was found, and it took 2 s (NUTS can be trusted as well). "
        "See the warnings for Laplace."
    )
    assert "but there are no error bars of f" in said(MAP=mode)
    reserved = Verdict(Status.RESERVED, (JointWeights(0.9),))
    assert said(Laplace=reserved, mean_field=trusted).startswith("Use mean field")
    assert "None of these results can be trusted" in said(Laplace=rejected)
    assert said(MAP=mode, Laplace=rejected) == (
        "No problem was found with MAP, but there are no error bars of f. See the warnings for Laplace."
    )


def test_limits_themselves_are_no_problem():
    assert judge(replace(GOOD, k_hat=0.7, evidence=EvidenceFigures(-3.0))).status is Status.TRUSTED
    assert judge(replace(GOOD, k_hat=0.75, evidence=error(0.3))).status is Status.RESERVED
    assert judge(replace(GOOD, evidence=error(0.5, 0.2))).status is Status.TRUSTED  # 2.5 standard errors
    assert judge(replace(GOOD, evidence=error(0.7, 0.2))).reasons == (EvidenceIsOff(0.7, 0.2),)  # 3.5


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
        found = replace(GOOD, scores=Scores(n, -1.0, coverage={level: number / n}))
        assert judge(found).status is status, number
