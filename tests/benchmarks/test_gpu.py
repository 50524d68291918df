"""The benchmark of a GPU: figures where there is one, and a sentence where there is none."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

import benchmarks.gpu as gpu
from benchmarks import side_by_side


def run(*arguments):
    app = typer.Typer()
    app.command()(gpu.main)
    return CliRunner().invoke(app, list(arguments))


def test_without_a_gpu_nothing_is_measured(monkeypatch):
    def none(name):
        raise ValueError("device='gpu' needs a GPU")

    monkeypatch.setattr(gpu, "device_named", none)
    result = run("--save")
    assert result.exit_code == 0
    assert result.output == "nothing is measured: device='gpu' needs a GPU\n"


def test_parts_are_the_first_blocks():
    problem = gpu.problem_of(5, 3)
    assert gpu.part_of(problem, 3) is problem
    part = gpu.part_of(problem, 2)
    assert part.targets.tolist() == problem.targets[:10].tolist()
    assert len(part.blocks) == 2
    assert gpu.part_of(problem, 1).blocks is None


@pytest.mark.slow
def test_a_trial_on_another_device_measures_and_saves_nothing(monkeypatch, tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    monkeypatch.setattr(side_by_side, "RESULTS", tmp_path / "results.md")
    sizes = ["--dense", "20", "--blocks", "3", "--rows", "12", "--share", "2"]
    result = run("--device", "jax", *sizes, "--no-many", "--save")
    assert result.exit_code == 0, result.output
    assert "evidence and gradient" in result.output
    assert not (tmp_path / "results.md").exists()
