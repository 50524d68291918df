"""The page on how good the package is has the tables of the committed results."""

import pytest

from benchmarks import page
from benchmarks.finished import finished


def test_the_page_is_made_from_the_files_of_results():
    text = page.PAGE.read_text()
    assert page.filled(text) == text


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
