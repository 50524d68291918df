"""What is compiled anew, the folders of compiled code, and threads of the linear algebra."""

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import threadpoolctl
from numba.core.caching import CacheImpl

import bsvr_pp
from bsvr_pp.core import compiler
from bsvr_pp.core.approximations.mean_field import mean_field_core
from bsvr_pp.core.compiler import _njit, core_stamp, rarely_collected, threads_for


def threads():
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_small_problems_have_one_thread_and_large_ones_what_there_is():
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with threads_for(1000):
            assert threads() == {1}
        with threads_for(1001):
            assert threads() == before
        assert threads() == before


MODULES = {
    "below.py": '@compiled\ndef below(x):\n    """Twice x."""\n    return 2 * x\n',
    "inner.py": "@register_jitable\ndef inner(x):\n    return x - 1\n",
    "above.py": "from core.below import below\n\n\n@separate(FLOAT)\ndef above(x):\n    return below(x)\n",
    "interface.py": "def interface(x):\n    return x\n",
}


@pytest.mark.parametrize(
    ("module", "old", "new", "stale"),
    [
        ("below.py", "2 * x", "3 * x", True),
        ("above.py", "below(x)", "below(x) + 1", True),
        ("inner.py", "x - 1", "x - 2", True),
        ("below.py", "@compiled", "@compiled(inline=True)", True),
        ("below.py", "Twice x.", "Two times x.", False),
        ("below.py", "    return 2", "    # Twice.\n    return 2", False),
        ("interface.py", "def interface(x):", "def interface(y, x):", False),
    ],
)
def test_compiled_code_is_stale_where_code_of_the_core_has_changed(monkeypatch, tmp_path, module, old, new, stale):
    monkeypatch.setattr(compiler, "_PACKAGE", tmp_path / "core")
    (tmp_path / "core").mkdir()

    def stamp(texts):
        for name, text in texts.items():
            (tmp_path / "core" / name).write_text(text)
        core_stamp.cache_clear()
        return core_stamp()

    before = stamp(MODULES)
    assert old in MODULES[module]
    assert (stamp({**MODULES, module: MODULES[module].replace(old, new)}) != before) == stale
    core_stamp.cache_clear()


def test_numba_asks_for_that_stamp():
    assert mean_field_core.compiled._cache._impl.locator.get_source_stamp() == core_stamp()


def test_without_any_folder_code_is_compiled_in_each_process(monkeypatch):
    compiler._warn_of_no_folder.cache_clear()
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    with pytest.warns(UserWarning, match="no folder for compiled code can be written.*NUMBA_CACHE_DIR") as caught:
        functions = [_njit()(lambda x: x + 1.0), _njit()(lambda x: x + 2.0)]
    assert [function(1.0) for function in functions] == [2.0, 3.0]
    assert len(caught) == 1


def test_a_read_only_package_without_a_home_is_imported_with_a_warning(tmp_path):
    """As in a container. A file where a folder should be stops root as well."""
    package = shutil.copytree(
        Path(bsvr_pp.__file__).parent, tmp_path / "bsvr_pp", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTENSOR_FLAGS")}
    nowhere = str(package / "__pycache__")
    environment = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "PYTHONPATH": str(tmp_path)}
    code = f"""if True:
        import bsvr_pp, bsvr_pp.approximations
        assert bsvr_pp.__file__.startswith({str(tmp_path)!r}), bsvr_pp.__file__
    """
    run = subprocess.run(
        [sys.executable, "-B", "-c", code], env=kept | environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("UserWarning: no folder for compiled code can be written") == 1


def test_garbage_is_collected_as_usual_after_compilation():
    before = gc.get_threshold()
    gc.freeze()  # others are many
    gc.set_threshold(700, 10, 10)
    try:
        with pytest.raises(KeyboardInterrupt), rarely_collected():
            with rarely_collected():
                assert gc.get_threshold()[0] > 700
            assert gc.get_threshold()[0] > 700
            raise KeyboardInterrupt
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
