"""The page of errors lists every message of the package, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bsvr_pp.losses.registry import NOT_OF_LABELS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "errors.md"
# Not met by users: the module protocol, Ctrl-C on its way out, and what PyTensor alone can get wrong.
ELSEWHERE = {"__init__", "approximations.operation"}


def template(node: ast.expr) -> str:
    """A message with … where values stand."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
    return "…"


def messages() -> set[str]:
    """Messages of all exceptions, warnings and refusals of the commands, and reasons of a ConvergenceWarning."""
    found = {re.sub(r"\{\w+\}", "…", sentence) for sentence in NOT_OF_LABELS.values()}
    for path in (ROOT / "bsvr_pp").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "bsvr_pp").with_suffix("").parts)
        if name in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                found.add(template(node.exc.args[0]))
            elif isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                if function in ("warnings.warn", "fail", "complain") or (
                    name == "inference.sampling.nuts" and function == "bad.append"
                ):
                    found.add(template(node.args[0]))
    return {message for message in found if re.search(r"[a-z]{2}", message)}


def listed() -> list[str]:
    """First cells of the page's tables."""
    _, tables = PAGE.read_text().split("## Results that did not converge")
    return re.findall(r"^\| `(.+?)` \|", tables, flags=re.MULTILINE)


def test_the_page_lists_every_message_and_no_other():
    patterns = {row: re.compile(".+".join(map(re.escape, row.split("…"))), flags=re.DOTALL) for row in listed()}
    assert len(patterns) == len(listed()), "a message stands twice"
    found = messages()
    assert [message for message in sorted(found) if not any(p.fullmatch(message) for p in patterns.values())] == []
    assert [row for row, pattern in patterns.items() if not any(map(pattern.fullmatch, found))] == []


def test_every_message_has_a_cause_and_a_cure():
    _, tables = PAGE.read_text().split("## Results that did not converge")
    for row in re.findall(r"^\| `.*$", tables, flags=re.MULTILINE):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 3 and all(cells), row


def test_classes_of_errors_are_explained():
    for name in ("ConvergenceWarning", "DataError", "ModelError", "ValueError", "TypeError", "ParameterValueError"):
        assert f"`{name}`" in PAGE.read_text()
