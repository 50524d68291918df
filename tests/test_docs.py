"""The documentation and the README: examples run, links lead somewhere, the site builds and needs no network."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytensor
import pytest
import yaml

import bsvr_pp
from benchmarks.uci import TABPFN
from bsvr_pp import approximations, classification, losses
from bsvr_pp.datasets import data_folder

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
outputs = importlib.import_module("outputs")
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
ELSEWHERE = {"architecture.md", "benchmarks.md", "changes.md", "contributing.md"}  # files of the repository as pages
NOTEBOOKS = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}

# Pages that cite other projects; a reader follows their links, and the page itself needs no network.
WITH_SOURCES = {"comparison.md", "how-to/conformal.md", "how-to/skpro.md"}
HOW_TO = """
arrivals arviz censored classification cluster conformal csv distributions effects few-rows kernels-as-matrices
many-rows monotone-effects noise-of-inputs noise ordinal parts pymc save several-sources several-targets sparse-inputs
tables weights
"""
SLOW = {f"how-to/{name}.md" for name in HOW_TO.split()} | {
    *("explanation/evidence.md", "explanation/normalisation.md", "gallery.md"),
    *("sampling.md", "tutorial.md", "which-inference.md"),
}


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW else ()) for p in PAGES if outputs.examples(PAGES[p])]
)
def test_examples_run_one_after_the_other(page, tmp_path, monkeypatch):
    loaded = [f"{name}.csv" for name in re.findall(r' load\("(\w+)"\)', PAGES[page])]
    loaded += re.findall(r'data_folder\(\) / "(.*?)"', PAGES[page])
    if not all((data_folder() / name).is_file() for name in loaded):
        pytest.skip("the papers' data sets are not at hand")
    monkeypatch.setenv("BSVR_PP_DATA", str(data_folder().absolute()))
    monkeypatch.chdir(tmp_path)
    try:
        list(outputs.outputs(PAGES[page], page))
    except outputs.NotInstalled as missing:
        pytest.skip(f"{missing} is not installed; the blocks before were run")
    finally:
        plt.close("all")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    prose = outputs.FENCE.sub("", PAGES[page])
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", prose):
        if target.startswith("http") and page in WITH_SOURCES:
            continue
        assert not target.startswith("http"), f"{page} needs the network for {target}"
        assert ((DOCS / page).parent / target).is_file(), f"{page} links to {target}"


def entries(nav: list) -> list[str]:
    """Pages of a nav, in order."""
    out = []
    for entry in nav:
        for below in entry.values():
            out += entries(below) if isinstance(below, list) else [below]
    return out


def test_the_nav_names_every_page_once():
    named = entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert len(named) == len(set(named))
    assert set(named) == set(PAGES) | ELSEWHERE | NOTEBOOKS


def test_the_api_describes_every_public_name_once():
    described = re.findall(r"^::: (\S+)$", "\n".join(PAGES.values()), flags=re.MULTILINE)
    public = [
        f"bsvr_pp.{name}" for name in bsvr_pp.__all__ if name not in ("__version__", "classification", "cov", "scorers")
    ]
    modules = (losses, approximations, classification, bsvr_pp.cov, bsvr_pp.scorers)
    public += [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    for path in (ROOT / "bsvr_pp" / "integrations").glob("[!_]*.py"):  # read, since their libraries are optional
        (listed,) = re.findall(r"^__all__ = \[(.*?)\]", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        public += [f"bsvr_pp.integrations.{path.stem}.{name}" for name in re.findall(r'"(\w+)"', listed)]
    assert sorted(described) == sorted(public)
    for name in bsvr_pp.__all__:
        assert f"`{name}`" in PAGES["api/index.md"] or name == "__version__"


class Loaded(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.addresses.append(given.get("src", ""))
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given.get("href", ""))


@pytest.mark.slow
def test_the_site_builds_and_needs_no_network(tmp_path):
    for module in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(module)
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {page.replace(".md", ".html") for page in (*PAGES, *NOTEBOOKS, "contributing.md")} <= set(pages)
    for page, html in pages.items():
        loaded = Loaded()
        loaded.feed(html)
        assert loaded.addresses, page
        for address in loaded.addresses:
            assert not re.match(r"(https?:)?//", address), f"{page} loads {address}"
        assert 'class="mermaid"' not in html  # drawn by a script from the network
    assert "<math" in pages["explanation/losses.html"] and "<math" in pages["api/models.html"]
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_examples_of_the_readme(sampled, capsys):
    namespace: dict[str, object] = {}
    for example in EXAMPLES:
        if re.search(r"pm\.sample\(|\bresults\b", example) and not sampled:
            continue
        # PyMC evaluates its log density some thousand times: compiled, as readers have it, this is cheaper.
        mode = {"mode": "NUMBA"} if "pm.sample(" in example else {}
        with pytensor.config.change_flags(**mode):
            exec(compile(example, str(README), "exec"), namespace)
        printed = capsys.readouterr().out
        assert printed
        if "bp.compare(" in example:  # one line for each method, and all columns
            assert [line for line in printed.splitlines() if line.startswith(("MAP ", "Laplace ", "mean field "))][2:]
            assert "..." not in printed and max(map(len, printed.splitlines()[:-1])) <= 80


def test_pictures_exist():
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / picture).stat().st_size < 200_000


def test_figures_in_prose_are_those_of_the_files():
    files, readme, page = ROOT / "benchmarks", (ROOT / "README.md").read_text(), PAGES["how-good-is-it.md"]
    uci = pd.read_csv(files / "uci.csv").groupby(["set", "package"]).mean(numeric_only=True)
    ours = uci.NLL[:, "bsvr_pp"]
    assert f"| −{-ours['energy']:.2f} and {ours['concrete']:.2f} |" in readme
    ratio = (uci.seconds[:, "bsvr_pp"] / uci.seconds[:, "CatBoost"])[["kin8nm", "naval", "power", "protein"]]
    assert f"| {ratio.median():.1f} | time of a fit over that of CatBoost" in readme
    assert f"{ratio.min():.0f} to {ratio.max():.0f} times that of CatBoost" in page
    energy, concrete = (TABPFN[name][0] for name in ("energy", "concrete"))
    assert f"TabPFN v2 has {energy:.2f} and {concrete:.2f} " in readme and "on four of eight" in readme
    assert sum(ours[name] > density for name, (density, *_) in TABPFN.items()) == 4
    results = (files / "results.md").read_text()
    (median,) = re.findall(r"over that of GPR: median (.*?),", results)
    assert f"| {median} | time of a default fit" in readme and f"{median} times a Gaussian process" in page
    first, second = (float(each) for each in re.findall(r"log loss BayesianSVC (.*?), logistic (.*?),", results)[0])
    assert f"| {first:.1f} | mean rank in log loss among five classifiers on 25 sets (next {second:.1f})" in readme
    coverage = pd.read_csv(files / "coverage.csv").query("n > 200 and method == 'bsvr_pp' and process != 'noise-free'")
    low, high = coverage.groupby(["process", "n"])["cover 90"].mean().agg(["min", "max"])
    assert f"{100 * low:.1f} to {100 * high:.1f} % on five noisy processes" in page
