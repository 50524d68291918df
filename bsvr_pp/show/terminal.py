"""A comparison in a terminal: one block of aligned lines for each section, then the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bsvr_pp.assess.comparison import Comparison
from bsvr_pp.show.figures import sections
from bsvr_pp.show.words import reason_words, summary, unit_sentence, verdict_words

__all__ = ["print_comparison"]


def print_comparison(
    console: Console,
    comparison: Comparison,
    *,
    title: str,
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> None:
    """Print a comparison, with verdicts and summary at the end, where they are seen first.

    ``names`` are those of the entries of a vector hyperparameter, ``skipped`` the methods that were not run, with the
    reason. Four methods fit into 80 columns; with more methods, values with errors use two lines.
    """
    shown = sections(comparison, names, brief=True)
    lines = [line for section in shown for line in section.lines]
    label = min(max(len(line.label) for line in lines), console.width // 3)
    share = (console.width - label) // len(comparison.results) - 1
    widths = [
        min(max(len(text) for text in (*name.split(), *(line.cells[i] for line in lines))), share)
        for i, name in enumerate(comparison.results)
    ]
    console.print(f"\n{escape(title)}", soft_wrap=True)
    for i, section in enumerate(shown):
        console.print(f"\n[bold]{escape(section.title)}[/]", soft_wrap=True)
        block = Table(box=None, show_header=i == 0, pad_edge=False, padding=(0, 1, 0, 0))
        block.add_column("", width=label)
        for name, width in zip(comparison.results, widths, strict=True):
            block.add_column(escape(name), justify="right", width=width)
        for line in section.lines:
            block.add_row(escape(line.label), *map(escape, line.cells))
        console.print(block)
    console.print()
    for name, why in (skipped or {}).items():
        console.print(f"{escape(name)}: {escape(why)}", soft_wrap=True)
    far = comparison.far
    for name, verdict in comparison.verdicts.items():
        said = verdict_words(verdict)
        if name in far:
            said += f"; compared with {comparison.reference}, {reason_words(far[name])}"
        console.print(f"[bold]{escape(name)}[/]: {escape(said)}", soft_wrap=True)
    if comparison.mixed:
        console.print(escape(unit_sentence(comparison)), soft_wrap=True)
    console.print(f"[bold]{escape(summary(comparison))}[/]", soft_wrap=True)
