"""The share of small faults that the tests find, folder by folder.

``python -m benchmarks.mutation --only losses`` draws faults at random (an operator replaced, a number changed, a
condition inverted: the operators of cosmic-ray), plants one at a time and runs the quick tests of the module until the
first failure. It lists the faults that no test found; those that change nothing that a test should see are explained in
``mutation.md``, which ``--save`` writes. ``--again`` repeats only the faults of the last run that were not found.
Requirements: ``pip install -r benchmarks/requirements.txt``.

Every fault is tested in a process of its own that is forked after the libraries have been imported; the module is
replaced in memory, so that no file changes. Its part of the compiled core runs in plain Python (`plain_python`).
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.planting import LIBRARIES, ROOT, judged, survives

PAGE = Path(__file__).with_suffix(".md")

# What faults are drawn from: names and patterns of modules.
FOLDERS = {
    "search": ("inference/search/*.py",),
    "covariance": ("covariance/*.py",),
    "losses": ("losses/*.py",),
    "approximations": ("approximations/*.py",),
    "predictions": (
        "inference/predict.py",
        "inference/prediction/predictive.py",
        "inference/result.py",
        "inference/sampling/recover.py",
        "inference/netcdf.py",
        "assess/loo.py",
        "assess/reweighting.py",
        "assess/calibrate.py",
        "assess/scores.py",
        "assess/verdict.py",
        "estimators/residual_intervals.py",
    ),
}


class _Plain(ast.NodeTransformer):
    """Removes annotations and docstrings, which change nothing that a test could see."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return ast.Assign(targets=[node.target], value=self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        node.decorator_list = [each for each in node.decorator_list if not _COMPILER.search(ast.unparse(each))]
        self.generic_visit(node)
        return node


# What states types to the compiler, which checks them.
_COMPILER = re.compile(r"^(compiled|vectorized|separate\b|register_jitable|typeof\b|types\.)")


def _of_types(node: ast.AST) -> bool:
    """Whether a statement of a module does nothing when the module runs in plain Python."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.Assign) and bool(_COMPILER.search(ast.unparse(node.value)))


def _meaning(code: str) -> str:
    tree = _Plain().visit(ast.parse(code))
    kept = [node for node in tree.body if not _of_types(node)]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return "\n".join(ast.dump(node) for node in kept)


def faults(names: list[str], rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Module and changed source of every fault, in random order; what changes no meaning is left out."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    codes = {name: (ROOT / "bsvr_pp" / name).read_text() for name in names}
    operators = [get_operator(kind) for kind in operator_names() if "NoOp" not in kind]
    kinds = [kind() for kind in operators if not kind.arguments()]
    places = [
        (name, kind, occurrence)
        for name, code in codes.items()
        for nodes in [list(ast_nodes(get_ast(code)))]
        for kind in kinds
        for occurrence in range(sum(len(list(kind.mutation_positions(node))) for node in nodes))
    ]
    seen = {_meaning(code) for code in codes.values()}
    for place in rng.permutation(len(places)):
        name, kind, occurrence = places[place]
        source = mutate_code(codes[name], kind, occurrence)
        try:
            meaning = _meaning(source)
        except SyntaxError:
            continue
        if meaning not in seen:
            seen.add(meaning)
            yield name, source


@dataclass
class Fault:
    """One planted fault: the lines that it changes, and whether the tests found it."""

    name: str
    source: str
    diff: str
    old: str
    new: str
    found: bool = False
    seconds: float = 0.0

    @classmethod
    def of(cls, name: str, source: str) -> Fault:
        """Make it of a changed source."""
        before, after = (ROOT / "bsvr_pp" / name).read_text().splitlines(), source.splitlines()
        diff = list(difflib.unified_diff(before, after, name, name, "", "", 1, ""))
        old, new = (" ".join(line[1:].strip() for line in diff[2:] if line[0] == sign) for sign in "-+")
        return cls(name, source, "\n".join(diff), old, new)

    def explanation(self, page: str) -> str:
        """Why no test should find it, from the page of explanations; empty if there is none."""
        line = re.search(rf"`{re.escape(self.old)}` → `{re.escape(self.new)}`: (.+)", page)
        return line[1] if line else ""


def modules_of(folder: str) -> list[str]:
    """Modules of a folder of `FOLDERS`, with more in them than imports."""
    found = [
        str(path.relative_to(ROOT / "bsvr_pp"))
        for pattern in FOLDERS[folder]
        for path in sorted((ROOT / "bsvr_pp").glob(pattern))
    ]
    return [name for name in found if not name.endswith("__init__.py")]


def save_row(folder: str, planted: list[Fault]) -> None:
    """Write the counts of a folder into its row of the page."""
    page = PAGE.read_text()
    alive = [fault for fault in planted if not fault.found]
    explained = sum(bool(fault.explanation(page)) for fault in alive)
    row = f"| {folder} | {len(planted)} | {len(planted) - len(alive)} | {explained} | {len(alive) - explained} |"
    PAGE.write_text(re.sub(rf"^\| {folder} \|.*$", row, page, flags=re.MULTILINE))


def main(
    only: Annotated[str, typer.Option(help=f"One of {', '.join(FOLDERS)}.")],
    number: Annotated[int, typer.Option(help="Faults to plant.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the choice of faults.")] = 0,
    limit: Annotated[float, typer.Option(help="Seconds for a fault outside functions.")] = 300.0,
    out: Annotated[Path, typer.Option(help="Folder of the list of faults.")] = Path("bsvr-pp-mutation"),
    again: Annotated[bool, typer.Option(help="Repeat the faults that were not found.")] = False,
    save: Annotated[bool, typer.Option(help="Write mutation.md.")] = False,
    durations: Annotated[bool, typer.Option(help="Only show how long the tests take without a fault.")] = False,
) -> None:
    """Count the planted faults that the tests find."""
    for library in LIBRARIES:  # loaded once, before the processes part
        if importlib.util.find_spec(library.split(".")[0]):
            importlib.import_module(library)
    out.mkdir(parents=True, exist_ok=True)
    log, record = out / f"{only}.log", out / f"{only}.json"
    names = modules_of(only)
    if again:
        planted = [Fault(**fault) for fault in json.loads(record.read_text())]
    else:
        planted = [Fault.of(*fault) for fault in islice(faults(names, np.random.default_rng(seed)), number)]
    if durations:
        for name in names:
            source = (ROOT / "bsvr_pp" / name).read_text()
            passed, seconds = survives(name, source, str(log), 10 * limit, "--durations=25")
            print(f"{name}: tests take {seconds:.0f} s, {'pass' if passed else 'fail'}\n{log.read_text()}", flush=True)
        return
    left, page = [fault for fault in planted if not fault.found], PAGE.read_text()
    for count, (index, found, seconds) in enumerate(judged([(x.name, x.source) for x in left], str(log), limit), 1):
        fault = left[index]
        fault.found, fault.seconds = found, seconds
        if not found:
            why = fault.explanation(page)
            print(
                f"{count}: not found ({seconds:.0f} s){', explained: ' + why if why else ''}:\n{fault.diff}", flush=True
            )
        record.write_text(json.dumps([asdict(each) for each in planted]))
    for name in sorted({fault.name for fault in planted}):
        here = [fault for fault in planted if fault.name == name]
        print(f"{name}: planted {len(here)}, found {sum(fault.found for fault in here)}")
    alive = [fault for fault in planted if not fault.found]
    unexplained = [fault for fault in alive if not fault.explanation(page)]
    print(f"{only}: planted {len(planted)}, alive {len(alive)}, of which without an explanation {len(unexplained)}")
    for fault in unexplained:
        print(f"- {fault.name}: `{fault.old}` → `{fault.new}`: ")
    if save:
        save_row(only, planted)


if __name__ == "__main__":
    typer.run(main)
