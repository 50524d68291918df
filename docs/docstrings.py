"""Docstrings with their shared passages, and with formulas and tables in Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

from bsvr_pp.core.docs import filled


class Markdown(griffe.Extension):
    """Converts each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert one docstring, that of the object itself where a function of the registry makes it."""
        if isinstance(obj, griffe.Attribute) and str(obj.value).startswith(("noise_function(", "distribution(")):
            text = inspect.getdoc(getattr(importlib.import_module(obj.module.path), obj.name))
            obj.docstring = griffe.Docstring(text or "", parent=obj, parser="numpy")
        if obj.docstring:
            obj.docstring.value = markdown(filled(obj.docstring.value))


def markdown(text: str) -> str:
    """Formulas between dollars, simple tables between bars, names of papers in brackets."""
    text = re.sub(r"\.\. math::\n\n((?:(?: {3}.*)?\n)+)", lambda m: f"$$\n{_dedented(m[1])}\n$$\n\n", text)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r"^(=+ +=+)\n(.*?)\n\1$", lambda m: _table(m[1], m[2]), text, flags=re.M | re.S)
    return re.sub(r"^\.\. \[(\w+)\] ", r"\\[\1\\] ", text, flags=re.M)


def _dedented(block: str) -> str:
    return "\n".join(line.strip() for line in block.strip().splitlines())


def _table(rule: str, body: str) -> str:
    second = rule.index(" =") + 1
    rows: list[list[str]] = []
    for line in body.splitlines():
        if line[:second].strip():
            rows.append([line[:second].strip(), line[second:].strip()])
        else:  # the last cell goes on
            rows[-1][1] += " " + line[second:].strip()
    cells = [[cell.replace("|", r"\vert ") for cell in row] for row in rows]
    return "\n".join(["| | |", "|---|---|", *(f"| {first} | {last} |" for first, last in cells)])
