"""Plants a fault in a module of the package, in memory, and runs its tests in a process of their own.

A fault in the body of a function is put into a process that has collected the tests; any other is in the source from
which a fresh process imports its module.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from benchmarks.plain_python import PLAIN, in_plain_python

__all__ = ["LIBRARIES", "ROOT", "judged", "survives"]

ROOT = Path(__file__).parent.parent
_NOT_PLANTED = 77
_QUICK = 1.0  # seconds of the processor beyond which a test runs last, and for its own module alone, in plain Python
# Rewritten assertions would read the module from its file.
OPTIONS = ("-q", "--assert=plain", "-p", "no:cacheprovider", "-m", "not slow")

COMPILED = ("covariance/lapack.py",)  # is nothing without the compiler

# Tests of modules beside the file of tests of their name, which runs first.
TESTS = {
    "covariance/lapack.py": (),
    "covariance/*.py": ("covariance",),
    "losses/closed_forms.py": ("model/test_distributions.py",),
    "losses/density.py": (
        "model/test_noise_distributions.py::test_the_density_is_that_of_the_noise",
        "model/test_noise_distributions.py::test_gradients_of_the_density_are_those_of_differences",
        "model/test_interval_models.py::test_densities_are_masses_of_the_noise",
        "model/test_interval_models.py::test_gradients_of_the_density_match_differences",
    ),
    "losses/*.py": ("losses",),
    "approximations/laplace.py": ("approximations/test_gradient.py", "approximations/test_interval_targets.py"),
    "approximations/mean_field.py": ("approximations/test_gradient.py", "approximations/test_interval_targets.py"),
    "approximations/mode.py": ("approximations/test_interval_targets.py",),
    "approximations/posterior.py": ("approximations/test_operation.py",),
    "approximations/*.py": (),
    "inference/search/optimize.py": ("inference/test_objective.py",),
    "inference/*.py": (),
}
LIBRARIES = (
    "arviz",
    "hypothesis",
    "matplotlib.pyplot",
    "mpmath",
    "numpyro",
    "pymc",
    "pytest_cov.plugin",
    "sklearn.utils.estimator_checks",
    "xdist.plugin",
    "zarr",
)
# Tests that take long, most of them only in plain Python; others find the same faults.
SLOW = (
    "test_optimum_beats_its_neighbours",
    "test_fixed_hyperparameters_stay",
    "test_optima_come_best_first",
    "test_improper_priors_start_from_the_data",
    "test_beyond_many_rows_the_best_go_on_with_all",
    "test_an_interruption_at_the_last_ascent",
    "test_gradients_and_annealing_by_a_root",
    "test_annealing_in_blocks_is_the_sum_of_the_blocks",
    "test_samples_follow_the_density",
    "test_cdf_of_gaussian_plus_noise",
    "test_quantiles_of_gaussian_plus_noise_invert_the_cdf",
    "test_a_predictive_quantile_inverts_the_predictive_cdf",
    "test_the_cdf_of_a_quantile_is_its_level[soft_insensitive",
    "test_the_cdf_of_a_quantile_is_its_level[gaussian",
    "test_the_cdf_of_a_quantile_is_its_level[huber",
    "test_tilted_moments_match_quadrature[soft_insensitive(C=300",
    "test_tilted_moments_match_quadrature[soft_insensitive(C=0.5",
    "test_tilted_moments_match_quadrature[soft_insensitive(C=5,",
    "test_tilted_moments_match_quadrature[epsilon_insensitive",
    "test_tilted_moments_match_quadrature[huber",
    "test_tilted_moments_match_quadrature[gaussian",
    "test_tilted_moments_match_quadrature[absolute",
    "test_tilted_moments_match_quadrature[pinball",
    "test_the_cdf_of_a_quantile_is_its_level[pinball",
    "test_every_linker_gives_the_same",
    "test_compiled_code_makes_the_same_table",  # of Python and the compiler
    "NUMBA]",
    "JAX",  # JAX cannot be forked
    "JAX]",
    "test_python_and_compiled_code_get_the_gradients",
    "test_single_precision",
    "test_model_with_missing_targets",
    "test_truncated_and_censored",
    "test_local_curvature_is_continuous_where_the_exact_one_jumps",
    "test_every_method_against_quadrature",
)


class _Replaced(importlib.abc.MetaPathFinder):
    """Finds one module with other source than that of its file, and the modules of the core in plain Python."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not fullname.startswith("bsvr_pp."):
            return None
        name = fullname.removeprefix("bsvr_pp.").replace(".", "/") + ".py"
        file = ROOT / "bsvr_pp" / name
        plain = name.split("/")[0] in plain_folders(self.name)
        if not file.exists() or not (plain or name == self.name):
            return None
        source = self.source if name == self.name else file.read_text()
        if plain:
            source = in_plain_python(source)
        loader = importlib.machinery.SourceFileLoader(fullname, str(file))
        loader.get_code = lambda _: compile(source, str(file), "exec")  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(fullname, str(file), loader=loader)


def plain_folders(name: str) -> tuple[str, ...]:
    """Folders that run in plain Python for faults in a module."""
    return () if name in COMPILED else PLAIN.get(name.split("/")[0], ())


def tests_of(name: str) -> list[str]:
    """Arguments of pytest: the tests of a module, the file of its name first, and the doctests of the module."""
    folder, module = name.split("/")[0], name.split("/")[-1]
    others = next((tests for pattern, tests in TESTS.items() if fnmatch(name, pattern)), ())
    wanted = [f"{folder}/test_{module}", *others]
    there = [f"tests/{test}" for test in wanted if (ROOT / "tests" / test.split("::")[0]).exists()]
    return [*there, f"bsvr_pp/{name}"]


class _Quick:
    """Leaves out slow tests, and those that need the results of all methods, which take longer than all others."""

    @staticmethod
    def pytest_collection_modifyitems(items: list[Any]) -> None:
        items[:] = [
            item
            for item in items
            if "sinc_results" not in getattr(item, "fixturenames", ()) and not any(name in item.nodeid for name in SLOW)
        ]


def _run(name: str, source: str, log: str, options: list[str]) -> None:
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    for module in [module for module in sys.modules if module.split(".")[0] == "bsvr_pp"]:
        del sys.modules[module]
    if plain_folders(name):
        np.seterr(all="ignore")
    elif name in COMPILED:
        from numba import config

        config.CACHE_DIR = tempfile.mkdtemp(dir=Path(log).parent)  # the stamp of the cache is that of the file
    sys.meta_path.insert(0, _Replaced(name, source))
    os._exit(int(pytest.main([*OPTIONS, *options, *tests_of(name)], [_Quick()])))


def survives(name: str, source: str, log: str, limit: float, *options: str) -> tuple[bool, float]:
    """Whether all tests pass in spite of the fault, and the seconds that this took."""
    began = time.perf_counter()
    process = multiprocessing.get_context("fork").Process(target=_run, args=(name, source, log, list(options)))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()  # an endless loop is found by its time
        process.join()
    return process.exitcode == 0, time.perf_counter() - began


def _changed(before: Any, after: Any, inside: str = "") -> list[str] | None:
    """Qualified names of the functions with other bodies; None if anything else differs."""
    if len(before.body) != len(after.body):
        return None
    found: list[str] = []
    for old, new in zip(before.body, after.body, strict=True):
        if ast.dump(old) == ast.dump(new):
            continue
        if type(old) is not type(new) or not isinstance(old, ast.FunctionDef | ast.ClassDef):
            return None
        if isinstance(old, ast.ClassDef):
            more = _changed(old, new, f"{inside}{old.name}.")
            if more is None or [ast.dump(x) for x in old.decorator_list] != [ast.dump(x) for x in new.decorator_list]:
                return None
            found += more
            continue
        bare = [copy.copy(node) for node in (old, new)]
        for node in bare:
            node.body = []
        if ast.dump(bare[0]) != ast.dump(bare[1]):
            return None
        found.append(inside + old.name)
    return found


def _code_of(code: Any, name: str) -> Any:
    """The code object of a qualified name in that of a module."""
    for part in code.co_consts:
        if inspect.iscode(part):
            if part.co_qualname == name:
                return part
            if (found := _code_of(part, name)) is not None:
                return found
    return None


def plant(name: str, source: str) -> bool:
    """Put the changed functions of a module into those that are loaded; False if that is not possible."""
    file = ROOT / "bsvr_pp" / name
    prepared = in_plain_python if plain_folders(name) else str
    original = prepared(file.read_text())
    changed = _changed(ast.parse(original), ast.parse(prepared(source)))
    module = sys.modules.get("bsvr_pp." + name.removesuffix(".py").replace("/", "."))
    if not changed or module is None:
        return False
    code = compile(prepared(source), str(file), "exec")
    for each in changed:
        owner, _, attribute = each.rpartition(".")
        holder = vars(vars(module)[owner]) if owner else vars(module)
        found = holder.get(attribute)
        for inner in ("__func__", "fget", "func"):
            found = getattr(found, inner, found)
        if hasattr(found, "cache_clear"):
            found.cache_clear()
        function, new = inspect.unwrap(found) if callable(found) else None, _code_of(code, each)
        if not isinstance(function, FunctionType) or new is None or function.__code__.co_qualname != each:
            return False
        if function.__code__.co_freevars != new.co_freevars:
            return False
        function.__code__ = new
    return True


class _Clock:
    """Measures the seconds of the processor that each test takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[item.nodeid] = seconds = time.process_time() - began
        if seconds > _QUICK:
            print(f"{item.nodeid}: {seconds:.1f} s", file=sys.stderr, flush=True)


class _Server:
    """Collects the tests once, then forks for each fault, plants it in memory, and runs the tests of its module."""

    def __init__(self, faults: list[tuple[str, str]], log: str, results: Any) -> None:
        self.faults, self.log, self.results = faults, log, results
        self.long: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        session.config.pluginmanager.unregister(self)
        session.config.pluginmanager.register(clock := _Clock())
        session.config.hook.pytest_runtestloop(session=session)  # compiled functions are loaded once for all
        session.config.pluginmanager.unregister(clock)
        if plain_folders(self.faults[0][0]):
            self.long = {test for test, seconds in clock.seconds.items() if seconds > _QUICK}
        code = int(session.testsfailed)
        seconds = sum(clock.seconds[item.nodeid] for item in session.items)
        self.results.put((None, code, seconds))
        if code != 0:
            return True
        for index, (name, source) in enumerate(self.faults):
            began = time.perf_counter()
            code = self._judged(session, name, source, 5.0 + 3.0 * seconds)
            self.results.put((index, code, time.perf_counter() - began))
        return True

    def _judged(self, session: Any, name: str, source: str, limit: float) -> int:
        """Exit code of a process with the fault: 0 if all tests pass, `_NOT_PLANTED`, or another."""
        if (process := os.fork()) == 0:
            code = 1
            try:
                os.dup2(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
                resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 1))
                if not plant(name, source):
                    os._exit(_NOT_PLANTED)
                wanted, mirror = tests_of(name), f"test_{Path(name).name}"
                items = [item for item in session.items if any(item.nodeid.startswith(test) for test in wanted)]
                items = [item for item in items if item.path.name == mirror or item.nodeid not in self.long]
                session.items = sorted(items, key=lambda item: (item.nodeid in self.long, item.path.name != mirror))
                session.config.option.maxfail = 1
                session.config.hook.pytest_runtestloop(session=session)
                code = 1 if session.testsfailed else 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _serve(faults: list[tuple[str, str]], log: str, results: Any) -> None:
    """Judge faults of the modules of a folder."""
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if plain_folders(faults[0][0]):
        np.seterr(all="ignore")
        sys.meta_path.insert(0, _Replaced(faults[0][0], (ROOT / "bsvr_pp" / faults[0][0]).read_text()))
    wanted = dict.fromkeys(path for name, _ in faults for path in tests_of(name))
    pytest.main([*OPTIONS, *wanted], [_Quick(), _Server(faults, log + ".fault", results)])
    results.put(None)


def judged(faults: list[tuple[str, str]], log: str, limit: float) -> Iterator[tuple[int, bool, float]]:
    """Number of a fault, whether the tests found it, and the seconds that this took; in memory where that is possible.

    What is found by its time has used three times the time of the tests without a fault.
    """
    context = multiprocessing.get_context("fork")
    quick = [i for i, (name, _) in enumerate(faults) if name not in COMPILED]
    left = [i for i in range(len(faults)) if i not in quick]
    if quick:
        results = context.SimpleQueue()
        process = context.Process(target=_serve, args=([faults[i] for i in quick], log, results))
        process.start()
        while (result := results.get()) is not None:
            index, code, seconds = result
            if index is None:
                print(f"the tests take {seconds:.0f} s of the processor", flush=True)
                if code != 0:
                    raise SystemExit(f"the tests fail without a fault: see {log}.fault and {log}")
            elif code == _NOT_PLANTED:
                left.append(quick[index])
            else:
                yield quick[index], code != 0, seconds
        process.join()
    for index in left:
        survived, seconds = survives(*faults[index], log, limit, "-x")
        yield index, not survived, seconds
