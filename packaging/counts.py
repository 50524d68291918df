"""Counts of the house, and their limits in ``pyproject.toml`` (``tool.counts``); ``make lint`` fails above a limit."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path

ROOT = Path(__file__).parents[1]
PUBLIC = ("", "approximations", "classification", "cov", "datasets", "integrations", "losses", "scorers")
MANY = {"fit", "compare"}  # may have more parameters, as constructors of estimators and commands


def files(pattern: str) -> list[Path]:
    """The files of a pattern that are part of the repository."""
    call = ["git", "-C", str(ROOT), "ls-files", pattern]
    return [ROOT / name for name in subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()]


def lines(pattern: str) -> int:
    """Number of lines of the files of a pattern."""
    return sum(len(path.read_text().splitlines()) for path in files(pattern))


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    """The functions of the package."""
    for path in files("bsvr_pp/*.py"):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def length(function: ast.FunctionDef) -> int:
    """Number of lines of a function without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body
    return (function.body[-1].end_lineno or 0) - body[0].lineno + 1


def parameters(path: Path, function: ast.FunctionDef) -> int:
    """Number of parameters of a function, but of commands and of what may have many."""
    given = function.args
    if "cli" in path.parts or function.name in MANY:
        return 0
    return len([a for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg not in ("self", "cls")])


def public_names() -> int:
    """Number of names of the public modules."""
    modules = [import_module("bsvr_pp" + (f".{name}" if name else "")) for name in PUBLIC]
    return sum(len([name for name in getattr(module, "__all__", ()) if not name.startswith("_")]) for module in modules)


def counts() -> dict[str, int]:
    """All counts."""
    package = "".join(path.read_text() for path in files("bsvr_pp/*.py"))
    known = list(functions())
    return {
        "lines": lines("bsvr_pp/*.py"),
        "modules": len(files("bsvr_pp/*.py")),
        "names": public_names(),
        "options": len(signature(import_module("bsvr_pp").BayesianSVR).parameters),
        "longest": max(length(function) for _, function in known),
        "parameters": max(parameters(*each) for each in known),
        "any": len(re.findall(r"\bAny\b|type: ignore", package)),
        "none": len(re.findall(r"(?m)^.*(?:weight|ends|scales|blocks)\w* is (?:not )?None", package)),
        "tests": lines("tests/*.py"),
        "benchmarks": lines("benchmarks/*.py"),
        "pages": lines("docs/*.md"),
    }


def main() -> None:
    """Print the counts beside their limits."""
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["counts"]
    found = counts()
    for name, count in found.items():
        print(f"{name:>12} {count:6} of {limits[name]}" + ("  above the limit" if count > limits[name] else ""))
    sys.exit(any(count > limits[name] for name, count in found.items()))


if __name__ == "__main__":
    main()
