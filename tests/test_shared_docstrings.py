"""Passages that docstrings share: each is used more than once, and stands in full in every docstring."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

from bsvr_pp.core.docs import PASSAGES, filled, shared

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"^<(\w+)>$", flags=re.MULTILINE)


def documented(tree: ast.AST, inside: str = ""):
    """Qualified names and docstrings as they are written."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield inside + node.name, ast.get_docstring(node) or ""
            yield from documented(node, f"{inside}{node.name}.")


WRITTEN = [
    (".".join(path.relative_to(ROOT).with_suffix("").parts), name, text)
    for path in sorted((ROOT / "bsvr_pp").rglob("*.py"))
    for name, text in documented(ast.parse(path.read_text()))
    if MARK.search(text)
]


@pytest.mark.parametrize(("module", "name", "text"), WRITTEN, ids=[f"{name}" for _, name, _ in WRITTEN])
def test_docstrings_are_complete(module, name, text):
    found = inspect.getdoc(attrgetter(name)(import_module(module)))
    assert found == filled(text) and not MARK.search(found)


def test_every_passage_is_shared():
    used = [name for _, _, text in WRITTEN for name in MARK.findall(text)]
    assert all(used.count(name) > 1 for name in PASSAGES) and set(used) <= set(PASSAGES)


def test_classes_have_them_in_their_methods():
    @shared
    class Some:
        def predict(self, X):
            """Predict.

            <new_inputs>
            """

        bare = None

    assert inspect.getdoc(Some.predict) == f"Predict.\n\n{PASSAGES['new_inputs']}"
