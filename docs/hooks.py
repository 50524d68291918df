"""Hooks of the site: files of the repository as pages, rendered notebooks, formulas as MathML."""

from __future__ import annotations

import base64
import json
import os
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# Pages that are files elsewhere in the repository; one that is not there has no entry.
ELSEWHERE = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/results.md",
} | {f"notebooks/{path.stem}.md": f"notebooks/{path.name}" for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
PAGES = {source: page for page, source in ELSEWHERE.items()} | {"README.md": "index.md"}

# What pymdownx.arithmatex leaves of a formula, with the mark that must not begin the next line.
INLINE = r'<span class="arithmatex">\\\((?P<latex>[^<]*)\\\)</span>(?P<mark>[.,;:)]*)'
BLOCK = r'<div class="arithmatex">\s*\\\[(?P<latex>[^<]*)\\\]\s*(?P<mark>)</div>'
# What the converter does not know: braces with a size, bars as fences, and the sign of what begins in a bracket.
CORRECTED = {
    r">\\([{}])<": r">\1<",
    r"<mo>&#x0007C;</mo>": '<mo lspace="0" rspace="0">&#x0007C;</mo>',
    r'(<mo stretchy="false">&#x000(?:28|7B);</mo>)<mo>(&#x0(?:2212|002B);)': r'\1<mo form="prefix">\2',
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Remove missing files from the nav."""
    config.nav = _present(config.nav or [])
    return config


def _present(nav: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for entry in nav:
        ((title, below),) = entry.items()
        if isinstance(below, list):
            kept.append({title: _present(below)})
        elif below not in ELSEWHERE or (ROOT / ELSEWHERE[below]).is_file():
            kept.append(entry)
    return kept


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere in the repository, with their pictures."""
    for page, source in ELSEWHERE.items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            text, pictures = rendered(json.loads(path.read_text()), path.stem)
            files.append(File.generated(config, page, content=text))
            for name, picture in pictures.items():
                files.append(File.generated(config, f"notebooks/{name}", content=picture))
        elif path.is_file():
            files.append(File.generated(config, page, content=path.read_text()))
    for path in sorted((ROOT / "benchmarks").rglob("*.png")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def rendered(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Convert an executed notebook to Markdown, and extract its pictures."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                file = f"{name}-{len(pictures)}.png"
                pictures[file] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{cell['metadata'].get('alt', 'Output of the cell above')}]({file})")
            elif "text/html" in data:
                parts.append(f'<div class="output">{"".join(data["text/html"])}</div>')
            else:
                parts.append(f'<pre class="output">{escape("".join(data["text/plain"]))}</pre>')
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert links between files of the repository to links of the site."""
    uri = page.file.src_uri
    here = Path(ELSEWHERE.get(uri, f"docs/{uri}")).parent

    def relinked(match: re.Match[str]) -> str:
        text, target, anchor = match["text"], match["target"], match["anchor"] or ""
        path = os.path.normpath(here / target)
        if path.startswith("..") or not (ROOT / path).exists():
            return match[0]
        site = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if site is None and path.endswith(".png"):
            site = path
        if site is None or files.get_file_from_path(site) is None:
            return match[0] if match["mark"] else text
        return f"{match['mark']}[{text}]({os.path.relpath(site, Path(uri).parent)}{anchor})"

    link = r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)"
    return re.sub(link, relinked, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert formulas to MathML, which browsers can display directly."""
    html = re.sub(INLINE, lambda found: f'<span class="formula-inline">{_formula(found)}</span>', html)
    return re.sub(BLOCK, lambda found: f'<div class="formula">{_formula(found, "block")}</div>', html, flags=re.DOTALL)


def _formula(found: re.Match[str], display: str = "inline") -> str:
    mathml = convert(unescape(found["latex"]).strip(), display=display)
    for pattern, replacement in CORRECTED.items():
        mathml = re.sub(pattern, replacement, mathml)
    return mathml + found["mark"]
