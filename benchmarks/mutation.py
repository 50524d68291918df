"""The share of small faults in the code that predicts and judges that the tests find.

``python -m benchmarks.mutation`` draws faults at random (an operator replaced, a number changed, a condition inverted:
the operators of cosmic-ray), plants one at a time and runs the tests of the module until the first failure. It lists
the faults that no test found. Requirements: ``pip install -r benchmarks/requirements.txt``.

Every fault is tested in a process of its own that is forked after the libraries have been imported; the module is
replaced in memory, so that no file changes.
"""

from __future__ import annotations

import ast
import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.side_by_side import Timing, publish

ROOT = Path(__file__).parent.parent

# Each module with its quick tests.
TESTS = {
    "inference/prediction/predict.py": "inference/test_predict.py",
    "inference/prediction/predictive.py": "inference/test_predictive.py",
    "inference/result.py": "inference/test_result.py",
    "inference/sampling/recover.py": "inference/test_recover.py",
    "inference/netcdf.py": "inference/test_netcdf.py",
    "inference/sampling/checkpoint.py": "inference/test_checkpoint.py",
    "assess/loo.py": "assess/test_loo.py",
    "assess/reweighting.py": "assess/test_verify.py",
    "assess/calibrate.py": "assess/test_calibrate.py",
    "assess/scores.py": "assess/test_scores.py",
    "assess/verdict.py": "assess/test_verdict.py",
    "estimators/residual_intervals.py": "estimators/test_residual_intervals.py",
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
        self.generic_visit(node)
        return node


def _meaning(code: str) -> str:
    tree = _Plain().visit(ast.parse(code))
    kept = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))]
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
    kinds = [get_operator(kind) for kind in operator_names() if "NoOp" not in kind]
    places = [
        (name, kind, occurrence)
        for name, code in codes.items()
        for kind in kinds
        if not kind.arguments()
        for occurrence in range(sum(len(list(kind().mutation_positions(node))) for node in ast_nodes(get_ast(code))))
    ]
    seen = {_meaning(code) for code in codes.values()}
    for place in rng.permutation(len(places)):
        name, kind, occurrence = places[place]
        source = mutate_code(codes[name], kind(), occurrence)
        try:
            meaning = _meaning(source)
        except SyntaxError:
            continue
        if meaning not in seen:
            seen.add(meaning)
            yield name, source


class _Replaced(importlib.abc.MetaPathFinder):
    """Finds one module with other source than that of its file."""

    def __init__(self, name: str, source: str) -> None:
        self.module = "bsvr_pp." + name.removesuffix(".py").replace("/", ".")
        self.path, self.source = str(ROOT / "bsvr_pp" / name), source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.module:
            return None
        loader = importlib.machinery.SourceFileLoader(fullname, self.path)
        loader.get_code = lambda _: compile(self.source, self.path, "exec")  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class _Quick:
    """Leaves out the tests that need the results of all methods, which take longer than all others to make."""

    @staticmethod
    def pytest_collection_modifyitems(items: list[Any]) -> None:
        items[:] = [item for item in items if "sinc_results" not in getattr(item, "fixturenames", ())]


def _run(name: str, source: str, log: str) -> None:
    import pytest

    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    for module in [module for module in sys.modules if module.split(".")[0] == "bsvr_pp"]:
        del sys.modules[module]
    sys.meta_path.insert(0, _Replaced(name, source))
    tests = [str(path) for test in TESTS[name].split() if (path := ROOT / "tests" / test).exists()]
    # Rewritten assertions would read the module from its file.
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-m", "not slow"]
    # The doctests of the module itself are tests of it as well.
    os._exit(int(pytest.main([*options, *tests, str(ROOT / "bsvr_pp" / name)], [_Quick()])))


def _survives(name: str, source: str, log: str, limit: float) -> tuple[bool, float]:
    """Whether all tests pass in spite of the fault, and the seconds that this took."""
    began = time.perf_counter()
    process = multiprocessing.get_context("fork").Process(target=_run, args=(name, source, log))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()  # an endless loop is found by its time
        process.join()
    return process.exitcode == 0, time.perf_counter() - began


def main(
    number: Annotated[int, typer.Option(help="Faults to plant.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the choice of faults.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    limit: Annotated[float, typer.Option(help="Seconds after which a fault counts as found.")] = 300.0,
    only: Annotated[str, typer.Option(help="One module, such as assess/loo.py.")] = "",
    out: Annotated[Path, typer.Option(help="Folder of the list of faults.")] = Path("bsvr-pp-mutation"),
    save: Annotated[bool, typer.Option(help="Write results.md.")] = False,
) -> None:
    """Count the planted faults that the tests find."""
    names = [name for name in TESTS if not only or name == only]
    chosen = list(islice(faults(names, np.random.default_rng(seed)), number))
    import arviz  # noqa: F401  libraries are loaded once, before the processes part
    import pymc  # noqa: F401
    import pytest  # noqa: F401
    import sklearn.utils.estimator_checks  # noqa: F401

    out.mkdir(parents=True, exist_ok=True)
    table = Timing("Planted faults that the tests find", ("module", "planted", "found"))
    found = dict.fromkeys(names, 0)
    planted = dict.fromkeys(names, 0)

    def judge(index: int) -> tuple[bool, float]:
        return _survives(*chosen[index], str(out / f"{index}.log"), limit)

    for name in names:  # the tests pass where nothing is changed
        original = (ROOT / "bsvr_pp" / name).read_text()
        passed, seconds = _survives(name, original, str(out / "unchanged.log"), 10 * limit)
        print(f"{name}: tests take {seconds:.0f} s", flush=True)
        if not passed:
            raise SystemExit(f"the tests of {name} fail without a fault: see {out / 'unchanged.log'}")
    with ThreadPoolExecutor(workers) as pool:
        for index, (survived, seconds) in enumerate(pool.map(judge, range(len(chosen)))):
            name, source = chosen[index]
            planted[name] += 1
            found[name] += not survived
            if survived:
                original = (ROOT / "bsvr_pp" / name).read_text()
                lines = difflib.unified_diff(original.splitlines(), source.splitlines(), name, name, "", "", 1, "")
                diff = "\n".join(lines)
                (out / f"{index}.diff").write_text(diff + "\n")
                print(f"not found ({seconds:.0f} s):\n{diff}", flush=True)
            (out / "progress.json").write_text(json.dumps({"planted": planted, "found": found}))
    for name in names:
        table.add(name, planted[name], found[name])
    table.add("all", sum(planted.values()), sum(found.values()))
    publish("mutation", [table], save)


if __name__ == "__main__":
    typer.run(main)
