"""The changes that CONTRIBUTING.md shows fit the code; those of a loss and of a kernel do what they say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def apply(diff, folder):
    """Make the change of a diff whose files begin with --- and whose hunks are parted by three dots."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        path = folder / name
        for hunk in body.split("\n...\n"):
            lines = hunk.rstrip("\n").split("\n")
            before = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-") or not line)
            after = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+") or not line)
            if not before:
                path.write_text(after + "\n")
                continue
            text = path.read_text()
            assert text.count(f"\n{before}\n") == 1, f"{name} has not once:\n{before}"
            path.write_text(text.replace(f"\n{before}\n", f"\n{after}\n"))


def changes(title):
    section = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE, flags=re.DOTALL).group(1)
    return re.findall(r"```diff\n(.*?)```", section, flags=re.DOTALL)


@pytest.mark.parametrize("title", [title for title in re.findall(r"^## (.*)$", PAGE, flags=re.M) if changes(title)])
def test_each_change_fits_the_code_and_can_be_parsed(title, tmp_path):
    for folder in ("bsvr_pp", "models"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for diff in changes(title):
        apply(diff, tmp_path)
    for name in re.findall(r"^--- (.*)$", "".join(changes(title)), flags=re.MULTILINE):
        compile((tmp_path / name).read_text(), name, "exec")


@pytest.fixture
def changed(tmp_path):
    """A copy of the package with the change of one section, and how to run Python there."""

    def change(title, code):
        skip = shutil.ignore_patterns("*.tmp*")  # compiled code comes along, and serves what does not change
        for folder in ("bsvr_pp", "models"):
            shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        for diff in changes(title):
            apply(diff, tmp_path)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return change


@pytest.mark.slow
def test_a_loss(changed):
    code = """
import numpy as np
from scipy.integrate import quad
from bsvr_pp.approximations import laplace, mean_field
from bsvr_pp.losses import squared_insensitive

C, epsilon, y, k = 3.0, 0.4, 1.2, 0.7
noise = squared_insensitive(C, epsilon)
energy = lambda r: 0.5 * C * max(abs(r) - epsilon, 0.0) ** 2
places = dict(points=[-epsilon, epsilon], epsabs=1e-12, limit=200)
Z = quad(lambda r: np.exp(-energy(r)), -9, 9, **places)[0]
assert abs(noise.log_normalizer - np.log(Z)) < 1e-9
density = lambda f: np.exp(-energy(y - f) - 0.5 * f * f / k) / Z / np.sqrt(2 * np.pi * k)
truth = np.log(quad(density, -9, 9, points=[y - epsilon, y + epsilon], epsabs=1e-13, limit=200)[0])
assert abs(mean_field([[k]], [y], noise).log_evidence - truth) < 1e-8  # exact for one point
assert abs(laplace([[k]], [y], noise).log_evidence - truth) < 0.2

import pymc as pm
import bsvr_pp as bp
from bsvr_pp.model.reader import read_model

variable = bp.SquaredInsensitive.dist(0.0, C=C, epsilon=epsilon)
assert abs(pm.logp(variable, 1.1).eval(mode="FAST_COMPILE") - noise.log_density(1.1)) < 1e-12
rng = np.random.default_rng(0)
X = np.linspace(-3, 3, 30)[:, None]
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=30)
model = bp.default_model(X, y, noise="squared_insensitive")
assert read_model(model).loss.name == "squared_insensitive"
assert {"C", "epsilon"} < {v.name for v in model.free_RVs}
machine = bp.BayesianSVR("squared_insensitive", restarts=1, random_state=0).fit(X, y)
assert machine.score(X, y) > 0.9

from typer.testing import CliRunner
from bsvr_pp.cli import app

np.savetxt("data.csv", np.column_stack([X, y]), delimiter=",", header="x,y", comments="")
run = CliRunner().invoke(app, ["fit", "data.csv", "--noise", "squared_insensitive", "--restarts", "1", "-o", "m.nc"])
assert run.exit_code == 0, run.output
print("done")
"""
    assert changed("Add a loss", code).strip() == "done"


@pytest.mark.slow
def test_a_kernel(changed):
    code = """
import numpy as np
import bsvr_pp as bp
from bsvr_pp.model.reader import read_model

X = np.linspace(-2, 2, 12)[:, None]
model = bp.default_model(X, np.sin(X[:, 0]), kernel="matern12")
K, _, _ = read_model(model).at({"amplitude": 1.0, "inverse_lengthscale": 2.0, "C": 5.0, "epsilon": 0.1})
K = K.dense()
near = (K - K.min())[0, 1:3]  # a constant is added
assert abs(np.log(near[0] / near[1]) - (X[1, 0] - X[0, 0]) / 0.5) < 0.01
machine = bp.BayesianSVR(kernel="matern12", restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
assert machine.score(X, np.sin(X[:, 0])) > 0.5
print("done")
"""
    assert changed("Add a kernel", code).strip() == "done"


def test_targets_of_make_that_the_page_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {name for name in re.findall(r"`make ([a-z-]+)`", PAGE)} <= targets
