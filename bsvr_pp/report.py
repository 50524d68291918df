"""A comparison as one self-contained page: for readers who have a minute, on a phone or on paper."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

import pandas as pd

from bsvr_pp.layout import Section, cell, sections
from bsvr_pp.verdict import NO_OBJECTION, duration
from bsvr_pp.version import __version__

__all__ = ["Picture", "report_page"]

_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")
_CITATIONS = (
    "The bsvr-pp developers. <i>bsvr-pp: Bayesian support vector machines in PyMC</i>. Version $version.",
    "W. Chu, S. S. Keerthi & C. J. Ong. Bayesian Support Vector Regression Using a Unified Loss Function. "
    "<i>IEEE Transactions on Neural Networks</i> 15(1), 2004. (The model, MAP and Laplace.)",
    "J. B. Gao, S. R. Gunn & C. J. Harris. A New Implementation for SVM Regression Based on Mean Field Analysis. "
    "2002. (Mean field.)",
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page.

    Attributes
    ----------
    title, caption : str
        What it shows, and how to read it.
    png : bytes
        The image.
    """

    title: str
    caption: str
    png: bytes


def report_page(
    table: pd.DataFrame,
    *,
    title: str,
    description: str = "",
    pictures: Sequence[Picture] = (),
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> str:
    """Write a comparison as one self-contained HTML page, verdict first.

    Parameters
    ----------
    table : DataFrame
        Of `compare`.
    title, description : str
        Of the data.
    pictures : sequence of Picture
        Pictures, in order.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.
    skipped : dict, optional
        Methods that were not run, and why.

    Returns
    -------
    str
        The page; it needs no other file and no network.

    Raises
    ------
    ValueError
        If the table is not of `compare`.
    TypeError
        If a picture is not a `Picture`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y)
    >>> at = {"lengthscale": 2.0, "C": 5.0, "epsilon": 0.1}
    >>> results = {"mean field": bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)}
    >>> page = bp.report_page(bp.compare(results, model=model), title="sinc")
    >>> page.startswith("<!doctype html>")
    True
    """
    if not isinstance(table, pd.DataFrame) or "verdict" not in table or "summary" not in table.attrs:
        found = f"columns {list(table.columns)}" if isinstance(table, pd.DataFrame) else type(table).__name__
        raise ValueError(f"table must be of compare(), with verdict and summary, got {found}")
    if not all(isinstance(picture, Picture) for picture in pictures):
        raise TypeError(f"pictures must be of Picture(title, caption, png), got {pictures!r}")
    cards = [_card(str(name), row) for name, row in table.iterrows()]
    cards += [_skipped_card(name, why) for name, why in (skipped or {}).items()]
    methods = [str(name) for name in table.index]
    theta = ", ".join(f"{name} = {_theta(value)}" for name, value in table.attrs.get("theta", {}).items())
    return Template(_PAGE).substitute(
        title=escape(str(title)),
        description=escape(description),
        style=Template(_STYLE).substitute(columns=len(methods)),
        summary=escape(table.attrs["summary"]),
        cards="\n".join(cards),
        evidence=escape(_MINUS.sub("−", table.attrs.get("evidence_summary", ""))),
        theta=f" The common hyperparameters θ are {escape(theta)}." if theta else "",
        tables="\n".join(_section(section, methods) for section in sections(table, names)),
        pictures="\n".join(_figure(picture) for picture in pictures),
        citations="\n".join(f"<li>{Template(c).substitute(version=__version__)}</li>" for c in _CITATIONS),
        version=__version__,
    )


def _card(name: str, row: pd.Series) -> str:
    verdict = str(row["verdict"])
    kind, mark = ("good", "✓") if verdict == NO_OBJECTION else ("bad", "!")
    if kind == "bad" and verdict.startswith(NO_OBJECTION):
        kind, mark = "plain", "·"
    said = "".join(f"<li>{escape(part)}</li>" for part in verdict.split("; "))
    short = [duration(float(row["seconds"]))]
    if "mlpd" in row:
        short.append(f"log density {row['mlpd']:.3f}".replace("-", "−"))
    if "coverage 80 %" in row:
        short.append(f"80 % interval holds {100 * row['coverage 80 %']:.0f} %")
    return (
        f'<article class="card {kind}"><h3><span class="mark" aria-hidden="true">{mark}</span>{escape(name)}</h3>'
        f'<ul>{said}</ul><p class="small">{" · ".join(short)}</p></article>'
    )


def _skipped_card(name: str, why: str) -> str:
    return (
        f'<article class="card plain"><h3><span class="mark" aria-hidden="true">–</span>{escape(name)}</h3>'
        f"<ul><li>{escape(why)}</li></ul></article>"
    )


def _theta(value: object) -> str:
    return "(" + ", ".join(cell(v) for v in value) + ")" if isinstance(value, list) else cell(value)


def _section(section: Section, methods: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(m)}</th>' for m in methods)
    lines = []
    for line in section.lines:
        cells = "".join(f"<td>{_number(text)}</td>" for text in line.cells)
        lines.append(f'<tr><th scope="row">{escape(line.label)}</th>{cells}</tr>')
    return (
        f"<section><h3>{escape(section.title)}</h3><p class=small>{escape(section.explanation)}</p>"
        f'<div class="scroll" tabindex="0"><table><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _number(text: str) -> str:
    return escape(_MINUS.sub("−", text))


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    return (
        f'<figure><h3>{escape(picture.title)}</h3><div class="scroll" tabindex="0"><img alt="{escape(picture.title)}" '
        f'src="data:image/png;base64,{data}"></div><figcaption>{escape(picture.caption)}</figcaption></figure>'
    )


_STYLE = """
:root { --ink: #1c2733; --soft: #5b6876; --line: #dde3ea; --paper: #ffffff; --card: #f6f8fa; --accent: #2f5d8a;
  --good: #1d7a4a; --bad: #b4441e; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --soft: #9aa7b5; --line: #323c47; --paper: #14191f; --card: #1c232b; --accent: #8db8e2;
    --good: #5cc48d; --bad: #f08d66; }
  img { filter: invert(0.9) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.soft, .small, figcaption { color: var(--soft); }
.small, figcaption { font-size: .85rem; line-height: 1.45; }
.summary { font-size: 1.2rem; line-height: 1.45; margin: 1.4rem 0 1.2rem; padding: .9rem 1.1rem;
  background: var(--card); border-left: 4px solid var(--accent); border-radius: 0 8px 8px 0; }
.cards { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 13.5rem), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem .95rem;
  display: flex; flex-direction: column; }
.card ul { margin: .1rem 0 .5rem; padding-left: 1.1rem; font-size: .92rem; line-height: 1.4; flex: 1; }
.card.good ul, .card.plain ul { list-style: none; padding-left: 0; }
.card li { margin: .15rem 0; overflow-wrap: anywhere; }
.mark { display: inline-grid; place-items: center; width: 1.4em; height: 1.4em; margin-right: .45em; font-size: .85em;
  border-radius: 50%; color: var(--paper); background: var(--soft); font-weight: 700; }
.good .mark { background: var(--good); } .bad .mark { background: var(--bad); }
p.evidence { margin-top: 1rem; }
section { margin: 1.6rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; table-layout: fixed;
  min-width: calc(6rem + $columns * 5.2rem); font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .5rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
tbody th { text-align: left; font-weight: 400; position: sticky; left: 0; background: var(--paper); min-width: 6.2rem; }
figure { margin: 1.8rem 0; } figcaption { margin-top: .4rem; }
img { display: block; width: 100%; height: auto; border-radius: 8px; }
li { margin: .3rem 0; } footer { margin-top: 3rem; }
@media (max-width: 34rem) { main { padding-top: 1.2rem; } h1 { font-size: 1.4rem; } .summary { font-size: 1.05rem; }
  figure img { width: 36rem; max-width: none; }
  table { font-size: .75rem; min-width: calc(5rem + $columns * 4.25rem); }
  th, td { padding: .3rem .3rem; } tbody th { min-width: 5rem; } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --card: #fff; --accent: #2f5d8a;
    --good: #1d7a4a; --bad: #b4441e; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  figure img { filter: none; width: auto; max-width: 100%; max-height: 20cm; height: auto; }
  table { min-width: 0; }
  section, figure, .card { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  .mark, .summary { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="bsvr-pp $version">
<link rel="icon" href="data:,">
<title>$title: which inference to trust</title>
<style>$style</style>
</head>
<body>
<main>
<header><h1>$title: which inference to trust</h1><p class="soft">$description</p></header>
<p class="summary">$summary</p>
<div class="cards">
$cards
</div>
<p class="small evidence">$evidence$theta</p>
<h2>In numbers</h2>
$tables
<h2>In pictures</h2>
$pictures
<h2>How to cite</h2>
<ul class="small">
$citations
</ul>
<footer class="small soft">Written by bsvr-pp $version.</footer>
</main>
</body>
</html>
"""
