"""Readers see every figure once, to the digits that mean something."""

from __future__ import annotations

import pandas as pd
import pytest

from bsvr_pp.layout import cell, sections


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


def lines(table, **options):
    return {line.label: line.cells for section in sections(table, **options) for line in section.lines}


def test_errors_decide_how_many_digits_are_shown():
    table = pd.DataFrame(
        {
            "evidence error": [-0.005221, -7.317, float("nan")],
            "evidence error se": [0.012, 0.0, 0.012],
            "C": [5.4567, 812.3, 3.0],
            "C sd": [1.234, 340.0, float("nan")],
        }
    )
    shown = lines(table)
    assert shown["its error"] == ("-0.005 ± 0.012", "-7.317", "–")
    assert shown["C"] == ("5.5 ± 1.2", "812.3 ± 3.4e+02", "3")
    table["p(y)"], table["p(y) se"] = -3.0, float("inf")
    assert lines(table)["log p(y)"][0] == "-3 ± ?"


def test_entries_of_a_vector_are_named_and_distances_kept_for_the_page():
    table = pd.DataFrame(
        {"lengthscale[0]": [1.0], "lengthscale[0] sd": [0.1], "W f": [0.2], "W lengthscale[0]": [0.5], "KL f": [0.0]}
    )
    table.attrs["reference"] = "NUTS"
    names = {"lengthscale": ["height"]}
    assert {"lengthscale height", "W f", "W lengthscale height"} == set(lines(table, names=names))
    assert {"lengthscale height", "W f"} == set(lines(table, names=names, brief=True))
    assert any(section.title == "Distance from NUTS" for section in sections(table))


def test_what_nobody_has_is_left_out():
    table = pd.DataFrame({"k-hat": [float("nan")] * 2, "seconds": [1.0, 2.0]})
    assert lines(table) == {"seconds": ("1", "2")}
