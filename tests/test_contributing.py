"""The changes that CONTRIBUTING.md shows, made in a copy of the package, do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def section(title):
    return re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", PAGE, flags=re.DOTALL).group(1)


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


@pytest.fixture
def changed(tmp_path):
    """A copy of the package with the change of one section, and how to run Python there."""

    def change(title, code):
        skip = shutil.ignore_patterns("*.tmp*")  # compiled code comes along, and serves what does not change
        for folder in ("bsvr_pp", "models"):
            shutil.copytree(ROOT / folder, tmp_path / folder, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        diffs = re.findall(r"```diff\n(.*?)```", section(title), flags=re.DOTALL)
        assert diffs
        for diff in diffs:
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
from bsvr_pp.model.problem import read_model

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
def test_a_covariance(changed):
    code = """
import numpy as np
from bsvr_pp.approximations import Covariance, find_mode, laplace, mean_field
from bsvr_pp.losses import soft_insensitive

rng = np.random.default_rng(0)
X, frequencies = rng.normal(size=(30, 2)), rng.normal(size=(5, 2))
y, noise = np.sin(X[:, 0]), soft_insensitive(5.0, 0.1, 0.3)
K = np.cos((X[:, None] - X) @ frequencies.T).mean(axis=-1) + 0.01 * np.eye(30)
new = Covariance.from_frequencies(X, frequencies, 0.01)
np.testing.assert_allclose(find_mode(new, y, noise).f, find_mode(K, y, noise).f, atol=1e-8)
for approximate in (laplace, mean_field):
    found, expected = approximate(new, y, noise), approximate(K, y, noise)
    assert abs(found.log_evidence - expected.log_evidence) < 1e-8
    np.testing.assert_allclose(found.predict(K, np.diag(K)), expected.predict(K, np.diag(K)), atol=1e-8)
print("done")
"""
    assert changed("Add a covariance", code).strip() == "done"


@pytest.mark.slow
def test_a_kind_of_row(changed):
    code = """
import numpy as np, pymc as pm, bsvr_pp as bp
from scipy.stats import norm

rounded = bp.Rounded.dist(mu=0.3, width=0.5, C=4.0, noise="gaussian")
mass = norm.cdf(0.75, 0.3, 0.5) - norm.cdf(0.25, 0.3, 0.5)
assert abs(np.exp(pm.logp(rounded, 0.5).eval(mode="FAST_COMPILE")) - mass) < 1e-12
X = np.linspace(-3, 3, 12)[:, None]
found = []
for width in (None, 1e-6):
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        given = {"observed": np.round(np.sin(X[:, 0]), 6)}
        if width is None:
            pm.Normal("y", f, 0.2, **given)
        else:
            bp.Rounded("y", mu=f, width=width, C=25.0, noise="gaussian", **given)
        found.append(bp.fit(bp.MeanField(), progressbar=False))
exact, narrow = (result.attrs["log_evidence"] for result in found)
assert abs(narrow - 12 * np.log(1e-6) - exact) < 1e-4
print("done")
"""
    assert changed("Add a kind of row", code).strip() == "done"


@pytest.mark.slow
def test_a_kernel(changed):
    code = """
import numpy as np
import bsvr_pp as bp
from bsvr_pp.model.problem import read_model

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


@pytest.mark.slow
def test_a_method_of_inference(changed):
    code = """
import numpy as np, pymc as pm, bsvr_pp as bp

X = np.linspace(-2, 2, 8)[:, None]
y = np.sin(X[:, 0])
with pm.Model() as model:
    C = pm.LogNormal("C", 1, 1)
    f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, jitter=0.0)
    bp.Huber("y", mu=f, C=C, epsilon=0.1, observed=y)
method, at = bp.GaussianNoise(), {"C": 10.0}
result = bp.fit(method, model, hyperparameters=at, progressbar=False)
from bsvr_pp.losses import huber
K = np.exp(-0.5 * (X - X.T) ** 2)
variance = np.exp(2 * huber(10.0, 0.1).log_normalizer) / (2 * np.pi)
mean = K @ np.linalg.solve(K + variance * np.eye(8), y)
assert np.allclose(result["latent_posterior"]["mean"], mean, atol=1e-8)
exact = pm.logp(pm.MvNormal.dist(np.zeros(8), K + variance * np.eye(8)), y).eval(mode="FAST_COMPILE")
assert abs(bp.log_evidence(method, model, hyperparameters=at).value - exact) < 1e-8
assert abs(bp.marginalize(method, model).compile_logp(mode="FAST_COMPILE")({"C_log__": np.log(10.0)})
           - exact - pm.logp(pm.Normal.dist(1, 1), np.log(10.0)).eval(mode="FAST_COMPILE")) < 1e-8
free = bp.fit(method, model, restarts=1, random_seed=0, progressbar=False)
drawn = bp.fit(bp.NUTS(latent=method, draws=100, tune=200, chains=2), model, random_seed=0, progressbar=False)
results = {"given": result, "Gaussian noise": free, "NUTS": drawn}
table = bp.compare(results, model=model, annealed=None, k_hat=False)
assert table.loc["Gaussian noise", "converged"] and np.isfinite(table["elpd"]).all()
assert np.isfinite(bp.loo(free, model=model).elpd)
from bsvr_pp.methods import method_of
drawn.to_netcdf("drawn.nc")
import xarray as xr
assert method_of(xr.open_datatree("drawn.nc")).latent == method
print("done")
"""
    assert changed("Add a method of inference", code).strip().endswith("done")


@pytest.mark.slow
def test_an_experiment(changed):
    code = """
import sys
from pathlib import Path
from typer.testing import CliRunner

sys.path.insert(0, "models")
from experiments import find_experiments
from reproduce import app

assert find_experiments()["sinc-evidence"].title == "Log evidence of Laplace and mean field on sinc data."
run = CliRunner().invoke(app, ["sinc-evidence", "--quick", "--no-progress"])
assert run.exit_code == 0, run.output
assert "Log evidence on sinc data" in run.output
print((Path("bsvr-pp-reproduction") / "sinc-evidence-evidence.csv").read_text())
"""
    table = changed("Add an experiment", code).strip().splitlines()
    assert table[0] == ",Laplace,mean field"
    assert len(table) == 3


def test_targets_of_make_that_the_page_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {name for name in re.findall(r"`make ([a-z-]+)`", PAGE)} <= targets
