"""Who may import whom, how long a module may be, and that the array layer does not need PyMC."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bsvr_pp"
# Each layer imports only from those above it.
LAYERS = [
    {"version", "compiler", "checks"},
    {"pieces"},
    {"_noise"},
    {"tables", "_soft_insensitive"},
    {"losses"},
    {"distributions", "gp", "reference"},
    {"svm_label"},
    {"approximations.lapack", "approximations.checks", "approximations.softened"},
    {"approximations.products"},
    {"approximations.sites"},
    {"approximations.posterior"},
    {"approximations.mode"},
    {"approximations.laplace"},
    {"approximations.mean_field"},
    {"approximations.paths", "approximations.successive"},
    {"approximations.annealed"},
    {"approximations", "approximations.linked"},
    {"approximations.ops"},
    {"approximations._jax"},
    {"classification", "classification.factors"},
    {"classification.chaining", "classification.gradient"},
    {"classification.probability", "classification.kernel"},
    {"classification.ascent", "classification.exchange"},
    {"estimators.options"},
    {"estimators", "estimators.svc", "estimators.lssvr", "estimators.intervals"},
    {"problem"},
    {"priors", "inference.methods"},
    {"classification.evidence"},
    {"classification.predict"},
    {"inference.search", "inference.marginalize", "inference.mixture"},
    {"inference.optimize"},
    {"inference.result"},
    {"inference.predict"},
    {"inference.recover", "inference.checkpoint"},
    {"inference.sample"},
    {"inference.fit"},
    {"inference", "evidence", "leave_one_out", "verification", "calibration"},
    {"estimators.recipe", "estimators.fitted"},
    {"estimators.svr"},
    {"scoring", "verdict"},
    {"comparison", "layout"},
    {"plots.colours"},
    {"plots.predictive", "plots.hyperparameters", "plots.calibration", "plots.evidence", "plots.convergence"},
    {"plots", "report"},
    {"datasets"},
    {"experiments"},
    {"commands"},
    {"commands.compare", "commands.fit", "commands.predict", "commands.reproduce"},
    {"", "cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_upwards_and_modules_stay_small(path):
    source = path.read_text()
    assert source.count("\n") <= 420
    name = name_of(path)
    assert name in RANK, f"give {name} its place in LAYERS"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bsvr_pp"):
            base = node.module.removeprefix("bsvr_pp").removeprefix(".")
            for alias in node.names:
                target = f"{base}.{alias.name}".strip(".")
                target = target if target in RANK else base
                assert RANK[target] < RANK[name] or target == "version", f"{name} imports {target}"


def test_the_array_layer_does_not_load_pymc():
    code = "import bsvr_pp.approximations, bsvr_pp.losses, sys; sys.exit('pymc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_of_the_architecture_has_the_same_layers():
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    lines = page.split("```layers\n")[1].split("\n```")[0].splitlines()
    there = [{name.strip().removeprefix("bsvr_pp") for name in line.split(",")} for line in lines]
    assert there == LAYERS


def test_the_page_of_the_architecture_names_files_that_exist():
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", page):
        assert (PACKAGE / name).exists() or (PACKAGE.parent / name).exists(), name
