"""The page says what the table says, needs nothing else, and holds in a real browser."""

import html
import re
from pathlib import Path

import pytest

import bsvr_pp as bp
from bsvr_pp.show.report import Picture, point_words, sections


@pytest.fixture(scope="module")
def page(table):
    png = (Path(__file__).parents[2] / "docs" / "evidence.png").read_bytes()
    shown = Picture("Evidence", "A caption with <angle> brackets", png)
    return bp.report_page(
        table,
        title="R&D <data>",
        description="100 rows",
        pictures=[shown],
        skipped={"NUTS (mean field)": "takes an hour"},
    )


def test_the_verdict_comes_first_and_every_figure_is_there(table, page):
    order = [page.index(html.escape(part)) for part in (table.attrs["summary"], "In numbers", "In pictures", "How to")]
    assert order == sorted(order)
    compared = table.comparison
    for found in compared.results.values():
        assert f"{point_words(found.point)}.</p>".replace("-", "−") in page
    for section in sections(compared):
        assert html.escape(section.title) in page
        for label, cells in section.lines:
            assert html.escape(label) in page
            for text in cells:
                assert html.escape(text.replace("-", "−", 1) if text.startswith("-") else text) in page
    for verdict in table["verdict"]:
        assert html.escape(verdict.split("; ")[0]) in page
    assert "takes an hour" in page


def test_text_is_escaped(page):
    assert "R&amp;D &lt;data&gt;" in page
    assert "A caption with &lt;angle&gt; brackets" in page
    assert "<data>" not in page


def test_nothing_is_loaded_from_elsewhere(page):
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "url(" not in page
    assert "<script" not in page
    assert "$" not in page


def test_citations_are_those_of_the_citation_file(page):
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    titles = [title.strip().strip('"') for title in re.findall(r"title: (.*)", text)]
    assert sum(title in page for title in titles) == 3
