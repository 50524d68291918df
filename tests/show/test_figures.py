"""Readers see every figure once, to the digits that mean something, in any terminal."""

from dataclasses import replace
from io import StringIO
from math import inf, nan

import pytest
from rich.console import Console

from bsvr_pp.assess.assessment import Assessment, Comparison
from bsvr_pp.show.report import cell, duration, point_words, print_comparison, sections, summary

BARE = Assessment("mean field", False, False, "", {}, {"converged": True, "seconds": 2.0, "log_evidence": nan}, {})


def with_numbers(numbers, hyperparameters=None):
    """BARE with more numbers, and hyperparameters."""
    return replace(BARE, numbers=BARE.numbers | numbers, hyperparameters=hyperparameters or {})


def pair(column, value, error):
    return {column: value, f"{column} se": error}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        ("", "–"),
        ("PSIS", "PSIS"),
        (12.0, "12"),
        (0.123456, "0.1235"),
        (-90.2849, "-90.28"),
    ],
)
def test_cells(value, text):
    assert cell(value) == text


def test_times_and_points():
    assert [duration(s) for s in (1.26, 23.2, 142.4, 9000.0)] == ["1.3 s", "23 s", "2.4 min", "2.5 h"]
    assert point_words({"C": 5.0, "lengthscale": [1.0, 2.34567]}) == "C = 5, lengthscale = (1, 2.346)"


def comparison(*found, reference=None):
    return Comparison({f"method {i}": each for i, each in enumerate(found)}, {}, {}, reference)


def lines(compared, **options):
    return {label: cells for section in sections(compared, **options) for label, cells in section.lines}


def test_errors_decide_how_many_digits_are_shown():
    errors = ((-0.005221, 0.012), (-7.317, 0.0), (nan, 0.012))
    values = ((5.4567, 1.234), (812.3, 340.0), (3.0, nan))
    found = [
        with_numbers(pair("evidence error", *e) | pair("p(y)", -3.0, inf), {"C": {"{}": v, "{} sd": sd}})
        for e, (v, sd) in zip(errors, values, strict=True)
    ]
    shown = lines(comparison(*found))
    assert shown["its error there"] == ("-0.005 ± 0.012", "-7.317", "–")
    precise = with_numbers(pair("evidence error", -1.08213, 0.0089))
    assert lines(comparison(precise))["its error there"] == ("-1.082 ± 0.009",)
    assert shown["C"] == ("5.5 ± 1.2", "812.3 ± 3.4e+02", "3")
    assert shown["log p(y)"][0] == "-3 ± ?"


def test_entries_of_a_vector_are_named():
    entry = {"{}": 1.0, "{} sd": 0.1}
    found = with_numbers({"f differs": 0.0, "y differs": nan}, {"lengthscale[0]": entry})
    compared = comparison(found, reference="method 0")
    names = {"lengthscale": ["height"]}
    assert set(lines(compared, names=names)) == {"converged", "seconds", "mean of f", "lengthscale height"}
    assert "lengthscale[0]" in lines(compared)
    assert any(section.title == "Distance from method 0" for section in sections(compared))


def test_what_nobody_has_is_left_out():
    compared = comparison(with_numbers({"k-hat": nan, "seconds": 1.0}), with_numbers({"k-hat": nan}))
    assert lines(compared) == {"converged": ("yes", "yes"), "seconds": ("1", "2")}


def test_four_methods_fit_into_eighty_columns():
    names = ("MAP", "Laplace", "mean field", "NUTS")
    evidences = {"log_evidence": -123.45, **pair("evidence error", -1.005, 0.0089)}
    evidences |= pair("evidence at theta", -123.456, 0.0089) | pair("error at theta", -1.1, 0.009)
    loo = {**pair("elpd", -110.12, 10.5), "elpd kind": "PSIS, 3 of 100 not reliable"}
    distances = {"f differs": 0.5, "y differs": 0.1}
    sampling = {"R-hat": 1.002, "ESS": 1234.5, "ESS/s": 617.25, "divergences": 0}
    entry = {"{}": 12.34, "{} sd": 0.21}
    found = with_numbers(evidences | loo | distances | sampling, {"lengthscale": entry})
    compared = Comparison({name: replace(found, inference=name) for name in names}, {}, {}, "NUTS")
    out = StringIO()
    print_comparison(Console(file=out, width=80), compared, title="test errors")
    printed = out.getvalue()
    figures = printed[: printed.index("MAP: ")].splitlines()
    assert max(map(len, figures)) <= 80
    for section in sections(compared):
        assert section.title in figures
        for label, cells in section.lines:
            shown = next(text for text in figures if text.startswith(label))
            if label != "LOO by":  # words may be broken over two lines, numbers not
                assert shown.split()[len(label.split()) :] == " ".join(cells).split(), shown
    assert "…" not in printed
    assert printed.rstrip().endswith(summary(compared))
