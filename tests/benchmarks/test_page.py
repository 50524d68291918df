"""The page on how good the package is has the tables of the committed results."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import page, uci
from benchmarks.finished import finished


def test_the_page_is_made_from_the_files_of_results():
    text = page.PAGE.read_text()
    assert page.filled(text) == text


def test_the_numbers_of_readme_are_those_of_the_files():
    text = Path(page.PAGE.parents[1], "README.md").read_text().replace("−", "-")
    means = pd.read_csv(uci.FILE).groupby(["set", "package"]).mean(numeric_only=True)
    ours, others = means.xs("bsvr_pp", level="package"), means.xs("CatBoost", level="package")
    energy, concrete = (f"{ours['NLL'][name]:.2f}" for name in ("energy", "concrete"))
    ratio = (ours["seconds"] / others["seconds"])[["kin8nm", "naval", "power", "protein"]].median()
    assert f"| {energy} and {concrete} |" in text
    assert f"TabPFN v2 has {uci.TABPFN['energy'][0]:.2f} and {uci.TABPFN['concrete'][0]:.2f} " in text
    assert f"| {ratio:.1f} |" in text
    assert sum(ours["NLL"][name] > density for name, (density, *_) in uci.TABPFN.items()) == 6
    assert "on six of eight" in text


@pytest.mark.parametrize("name", page.PARTS)
def test_each_table_stands_on_the_page(name):
    assert f"<!-- {name} -->" in page.PAGE.read_text()


def test_finished_parts_are_kept(tmp_path):
    calls = []

    def measure(name, number):
        calls.append((name, number))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"score": 10 * number}

    parts = [{"name": name, "number": number} for number in (1, 2) for name in "ab"]
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path / "found.csv", parts, measure)
    rows = finished(tmp_path / "found.csv", parts, measure)
    assert rows["score"].tolist() == [10, 10, 20, 20]
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("a", 2), ("b", 2)]
    assert {"commit", "versions"} <= set(rows.columns)
