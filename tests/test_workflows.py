"""Workflow files: they fit their schemas, and run commands of the Makefile or of the page on installing."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = [
    ("vendor.github-workflows", WORKFLOWS),
    ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
    ("vendor.github-issue-config", [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"]),
    ("vendor.github-issue-forms", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))),
    ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
# What no target of the Makefile does.
OTHERWISE = {
    'git config user.name "documentation" && git config user.email "documentation@users.noreply.github.com"',
    'test -f "dist/bsvr_pp-${GITHUB_REF_NAME#v}-py3-none-any.whl"',
    "python -m pip install dist/*.${{ matrix.archive }}",  # as users do, in an empty environment
    "bsvr-pp compare --methods map,laplace --no-progress",
}


def jobs():
    """Name, job and workflow of each job."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for name, job in workflow["jobs"].items():
            yield f"{path.stem}: {name}", job, workflow


def commands(job):
    return [line for step in job["steps"] if "run" in step for line in step["run"].strip().splitlines()]


@pytest.mark.parametrize(("schema", "paths"), SCHEMAS)
def test_files_fit_their_schema(schema, paths):
    if find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    run = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_what_the_makefile_has():
    seen = set()
    for name, job, _ in jobs():
        for command in commands(job):
            if "windows" in name:
                continue
            if command.startswith("make "):
                target, *settings = command.split()[1:]
                assert target in TARGETS, f"{name} runs {command}"
                seen.add(target)
                for setting in settings:
                    variable = setting.split("=")[0]
                    assert re.search(rf"^{variable} [:?]=|\$\([^)]*\b{variable}\b", MAKEFILE, re.MULTILINE), command
            else:
                assert command in OTHERWISE, f"{name} runs {command}"
    assert seen == {"quick", "test", "test-all", "lowest", "newest", "integrations", "docs", "publish-docs", "dist"}


def test_every_python_of_the_metadata_is_tested_on_every_system():
    known = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()))
    tested = {}
    for _, job, _ in jobs():
        matrix = job.get("strategy", {}).get("matrix", {})
        for system in matrix.get("os", [job["runs-on"]]):
            if "python" in matrix:
                tested.setdefault(system.split("-")[0], set()).update(matrix["python"])
    assert tested == {"ubuntu": known, "macos": known, "windows": known}
