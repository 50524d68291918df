"""Import directions and the public names of the array layer."""

import re
import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bsvr_pp"


def test_each_layer_imports_only_from_those_above_it(monkeypatch):
    """The layers are listed once, in pyproject.toml."""
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0


CORE = ", ".join(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in sorted(PACKAGE.glob("core/**/[!_]*.py")))


def test_the_core_and_the_commands_do_not_load_pymc():
    names = f"{CORE}, bsvr_pp.approximations, bsvr_pp.losses, bsvr_pp.cli"
    code = f"import {names}, sys; sys.exit(bool({{'pymc', 'pytensor'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_of_the_architecture_names_files_that_exist():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", page):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name
