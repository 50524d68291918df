"""The page says what the table says, needs nothing else, and holds in a real browser."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import bsvr_pp as bp
from bsvr_pp.show.report import Picture, point_words, sections

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ALONE = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
)
PROBE = """
const page = document.getElementById("page").contentDocument, root = page.documentElement;
document.getElementById("found").textContent = JSON.stringify({
  title: page.title, h1: page.querySelector("h1").textContent, cards: page.querySelectorAll(".card").length,
  images: [...page.images].map(i => i.naturalWidth), overflow: root.scrollWidth - root.clientWidth,
  scripts: page.scripts.length, inside: page.defaultView.innerWidth});
"""


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
        for line in section.lines:
            assert html.escape(line.label) in page
            for text in line.cells:
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


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it(page, tmp_path, width):
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser on the path, looked for {', '.join(BROWSERS)}")
    # Headless windows have a least width, frames have not.
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><meta charset="utf-8"><iframe id="page" width="{width}" height="3000" style="border:0" '
        f'srcdoc="{html.escape(page)}"></iframe><pre id="found"></pre>'
        f"<script>window.onload = () => {{{PROBE}}}</script>",
        encoding="utf-8",
    )
    run = subprocess.run(
        [browser, *ALONE, f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", wrapper.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, flags=re.DOTALL)
    assert match, run.stderr
    found = json.loads(html.unescape(match[1]))
    assert found["title"] == "R&D <data>: which inference to trust"
    assert found["inside"] == width
    assert found["overflow"] <= 0
    assert found["cards"] == 5
    assert len(found["images"]) == 1
    assert min(found["images"]) > 100
    assert found["scripts"] == 0
    assert "CONSOLE" not in run.stderr
