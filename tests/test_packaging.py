"""Source archive and wheel: what they hold, and that the wheel works alone, outside the repository."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from bsvr_pp.core import __version__

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build(out, *options):
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *options, ROOT)
    return out


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Source archive, and the wheel that is built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = build(tmp_path_factory.mktemp("dist"))
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_version_stands_in_one_place():
    assert re.search(r'^dynamic = \["version"\]$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f'\n  version: "{__version__}"\n' in RECIPE.read_text()
    assert json.loads((ROOT / ".zenodo.json").read_text())["version"] == __version__


def test_the_conda_recipe_has_the_dependencies_of_the_package():
    names = {"matplotlib": "matplotlib-base", "pymc": "pymc-base"}  # without compilers and front ends
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {f"python {project['requires-python']}"}
    for requirement in map(Requirement, project["dependencies"]):
        wanted.add(f"{names.get(requirement.name, requirement.name)} {requirement.specifier}")
    run_section = RECIPE.read_text().partition("  run:\n")[2].partition("\n\n")[0]
    assert {line.strip(" -") for line in run_section.splitlines()} == wanted


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(archives):
    held = contents(archives[1])
    assert archives[1].name == f"bsvr_pp-{__version__}-py3-none-any.whl"
    info = f"bsvr_pp-{__version__}.dist-info"
    assert {name.split("/")[0] for name in held} == {"bsvr_pp", info}
    modules = {str(path.relative_to(ROOT)) for end in ("py", "pyi") for path in (ROOT / "bsvr_pp").rglob(f"*.{end}")}
    data = {
        "bsvr_pp/py.typed",
        "bsvr_pp/show/report.html",
        "bsvr_pp/show/pictures.toml",
        "bsvr_pp/show/sections.toml",
        "bsvr_pp/show/summary.txt",
        "bsvr_pp/show/evidence.txt",
    }
    assert {name for name in held if name.startswith("bsvr_pp/")} == modules | data
    assert held[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    metadata = held[f"{info}/METADATA"].decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


@pytest.mark.slow
def test_source_archive_holds_what_a_developer_needs_and_builds_the_same_wheel(archives, tmp_path):
    with tarfile.open(archives[0]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("tests/test_packaging.py", "models/chu2004.py", "CONTRIBUTING.md", "ARCHITECTURE.md", "Makefile"):
        assert name in held
    assert not [name for name in held if "__pycache__" in name or name.startswith(".venv")]
    (direct,) = build(tmp_path, "--wheel").glob("*.whl")
    assert contents(direct) == contents(archives[1])


@pytest.fixture(scope="module")
def elsewhere(archives, tmp_path_factory):
    """An environment with the wheel and the dependencies of this one, and a folder outside the repository."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", symlinks=True)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    site = run(scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # A path in a .pth file leaves the .pth files there unread: an editable bsvr_pp stays out of sight.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ("install", "--quiet", "--no-deps", "--no-index", archives[1])
    run(sys.executable, "-m", "pip", "--python", scripts / "python", *install)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return scripts, {"cwd": folder, "env": clean}, Path(site)


@pytest.mark.slow
def test_wheel_works_outside_the_repository(elsewhere):
    scripts, options, site = elsewhere
    where = run(scripts / "python", "-c", "import bsvr_pp; print(bsvr_pp.__file__)", **options).strip()
    assert Path(where).resolve().is_relative_to(site.resolve())
    assert run(scripts / "bsvr-pp", "--version", **options).strip() == __version__


@pytest.mark.slow
def test_compare_runs_from_the_wheel_alone(elsewhere):
    scripts, options, _ = elsewhere
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 25)
    rows = "\n".join(f"{a:.4f},{b:.4f}" for a, b in zip(x, np.sin(x) + 0.1 * rng.laplace(size=25), strict=True))
    (options["cwd"] / "small.csv").write_text(f"x,y\n{rows}\n")
    run(scripts / "bsvr-pp", "compare", "small.csv", "--methods", "map,laplace", "--no-progress", **options)
    written = {path.name for path in (options["cwd"] / "bsvr-pp-comparison").iterdir()}
    assert {"report.html", "comparison.csv", "map.nc", "laplace.nc", "evidence.png"} <= written
