"""The robustness run finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import benchmarks.robustness as robustness
from benchmarks.problems import from_the_box
from bsvr_pp.approximations import find_mode, mean_field


def run(*arguments):
    import typer

    app = typer.Typer()
    app.command()(robustness.main)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("ends", [[], ["--ends"]])
def test_a_clean_run(ends):
    result = run("--settings", "6", "--n", "30", *ends)
    assert result.exit_code == 0, result.output
    assert "mean field" in result.output


def test_an_exception_is_counted(monkeypatch):
    def refuse(K, y, noise):
        if noise.parameters["beta"] == 1.0:
            raise FloatingPointError
        return find_mode(K, y, noise)

    monkeypatch.setattr(robustness, "find_mode", refuse)
    index = next(i for i in range(1, 100) if from_the_box(i, 20)[2].parameters["beta"] == 1.0)
    result = run("--settings", str(index + 1), "--n", "20")
    assert result.exit_code == 1
    assert f"mode, exception FloatingPointError: settings {index}" in result.output


def test_the_checks_notice_a_change():
    K, y, noise = from_the_box(4)
    mode, posterior = find_mode(K, y, noise), mean_field(K, y, noise)
    assert robustness.duality_gap(K, y, noise, mode.dual_coef) <= 1e-10
    assert robustness.duality_gap(K, y, noise, 0.999 * mode.dual_coef) > 1e-10
    assert robustness.duality_gap(K, y, noise, np.full(100, 2 * noise.parameters["C"])) == np.inf
    sites = posterior.site_precision
    assert robustness.moment_mismatch(K, y, noise, posterior.dual_coef, sites) <= 1e-7
    assert robustness.moment_mismatch(K, y, noise, posterior.dual_coef, 1.001 * sites) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--settings", "1000"], ["--settings", "3000", "--n", "30", "--ends"]])
def test_thousands_of_settings(options):
    result = run(*options)
    assert result.exit_code == 0, result.output
