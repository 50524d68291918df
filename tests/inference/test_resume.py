"""Runs that are interrupted, killed and resumed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import nutpie
import pymc as pm
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.sampling.checkpoint import by_chain, together

DATA = sinc(12, random_seed=3)
METHOD = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=60, tune=60, chains=2)


def model():
    return bp.default_model(DATA.X, DATA.y)


def ragged(*lengths, draws=10):
    values = np.arange(float(len(lengths) * draws)).reshape(len(lengths), draws)
    for row, length in zip(values, lengths, strict=True):
        row[length:] = np.nan
    data = xr.Dataset({"C": (("chain", "draw"), values)})
    return xr.DataTree.from_dict({"posterior": data, "sample_stats": data.rename(C="energy")})


@pytest.mark.parametrize(
    ("lengths", "shape"),
    [((10, 10), (2, 10)), ((10, 7), (2, 7)), ((10, 0), (1, 10)), ((10, 3, 9), (2, 9)), ((6, 0, 0), (1, 6))],
)
def test_as_many_draws_as_can_be_kept(lengths, shape):
    tree = together(by_chain(ragged(*lengths)), 10)
    values = tree["posterior"].to_dataset()["C"]
    assert values.shape == shape
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(tree["sample_stats"].to_dataset()["energy"], values)
    assert together(by_chain(ragged(*lengths)), 4)["posterior"].sizes["draw"] <= 4


def test_nothing_drawn_is_an_interruption():
    with pytest.raises(KeyboardInterrupt):
        together(by_chain(ragged(0, 0)), 10)


def draws_of(result):
    return result["posterior"].to_dataset()


def run(folder, method=METHOD, sampled=None, seed=1):
    return bp.fit(method, sampled or model(), random_seed=seed, progressbar=False, checkpoint=folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two segments a chain, and its folder, which tests must leave as it is."""
    folder = tmp_path_factory.mktemp("checkpoint") / "run"
    return run(folder), folder


@pytest.mark.slow
def test_a_finished_run_is_read_back(finished, tmp_path):
    first, folder = finished
    again = run(folder)
    xr.testing.assert_equal(draws_of(first), draws_of(again))
    assert draws_of(first)["C"].shape == (2, 60)
    # More draws of the same run go on from there.
    longer = draws_of(run(folder, bp.NUTS(latent=METHOD.latent, draws=80, tune=60, chains=2)))["C"]
    assert longer.shape == (2, 80)
    np.testing.assert_array_equal(longer[:, :60], draws_of(first)["C"])
    assert len(np.unique(longer)) > 100
    # Without a seed the run keeps its own.
    np.testing.assert_array_equal(draws_of(run(folder, seed=None))["C"], draws_of(first)["C"])


@pytest.mark.slow
def test_a_damaged_segment_is_named_and_sampled_again(finished):
    """An empty file is what a power cut leaves."""
    first, folder = finished
    segment = folder / "chain-01-segment-001.nc"
    segment.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"chain-01-segment-001\.nc: .*damaged.*sampled again"):
        again = run(folder)
    xr.testing.assert_equal(draws_of(first), draws_of(again))
    xr.testing.assert_equal(draws_of(first), draws_of(run(folder)))


@pytest.mark.slow
def test_an_interrupted_run_gives_what_it_has_and_goes_on(finished, tmp_path, monkeypatch):
    """The first segment of each chain is there when Ctrl-C comes."""
    first, _ = finished

    def interrupt(seconds):
        if len(list((tmp_path / "run").glob("*-segment-000.nc"))) == 2:
            raise KeyboardInterrupt
        time.sleep(seconds)

    with monkeypatch.context() as patched, pytest.warns(bp.ConvergenceWarning, match="interrupted after"):
        patched.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", interrupt)
        # So many draws are wanted that the run cannot end before the interruption.
        stopped = draws_of(run(tmp_path / "run", dataclasses.replace(METHOD, draws=100_000)))["C"]
    assert 50 <= stopped.sizes["draw"] < 100_000
    # A chain that is much shorter than the other is left out.
    expected = draws_of(first)["C"].values[:, :50].tolist()
    assert all(row in expected for row in stopped.values[:, :50].tolist())
    xr.testing.assert_equal(draws_of(first), draws_of(run(tmp_path / "run")))


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [None, "run"])
def test_an_interrupt_before_the_first_draw_is_a_keyboard_interrupt(tmp_path, monkeypatch, checkpoint):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(nutpie.sample.__globals__["_BackgroundSampler"], "wait", interrupt)
    monkeypatch.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", interrupt)
    method = bp.NUTS(latent=METHOD.latent, draws=60, tune=100_000, chains=2)
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint and tmp_path / checkpoint, method)


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_a_line(finished, tmp_path, monkeypatch):
    first, _ = finished

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bsvr_pp.inference.sampling.checkpoint.save", full)
    with pytest.warns(UserWarning, match="draws cannot be kept in .*No space left.*without a checkpoint"):
        result = run(tmp_path / "run")
    xr.testing.assert_equal(draws_of(first), draws_of(result))


@pytest.mark.slow
def test_a_killed_run_has_the_draws_of_one_that_was_not(tmp_path):
    script = """
        import sys
        import bsvr_pp as bp
        from bsvr_pp.datasets import sinc
        data = sinc(12, random_seed=3)
        method = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=2000, tune=60, chains=2)
        result = bp.fit(
            method, bp.default_model(data.X, data.y), random_seed=1, progressbar=False, checkpoint=sys.argv[1]
        )
        bp.save(result, sys.argv[2])
    """

    def start(name):
        arguments = [sys.executable, "-c", textwrap.dedent(script), tmp_path / name, tmp_path / f"{name}.nc"]
        return subprocess.Popen(arguments)

    assert start("whole").wait() == 0
    process = start("killed")
    for _ in range(600):
        time.sleep(0.2)
        if len(list((tmp_path / "killed").glob("*-segment-*.nc"))) >= 5 or process.poll() is not None:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed.nc").exists()
    kept = len(list((tmp_path / "killed").glob("*-segment-*.nc")))
    assert 0 < kept < len(list((tmp_path / "whole").glob("*-segment-*.nc")))
    assert start("killed").wait() == 0
    whole, killed = (draws_of(bp.load(tmp_path / f"{name}.nc")) for name in ("whole", "killed"))
    xr.testing.assert_equal(whole, killed)


def changed(kernel=pm.gp.cov.ExpQuad, mu=0.5, epsilon=0.1, scale=1.0, limit=1e9, X=DATA.X):
    """The model of the fixture in effect, but for one thing."""
    with pm.Model() as made:
        lengthscale = pm.LogNormal("lengthscale", mu, 0.5)
        f = bp.GP(cov_func=scale * kernel(1, ls=lengthscale)).prior("f", X=X)
        pm.Potential("bound", pm.math.switch(lengthscale > limit, -1.0, 0.0))
        bp.SoftInsensitive("y", mu=f, C=5.0, epsilon=epsilon, beta=0.3, observed=DATA.y)
    return made


@pytest.fixture(scope="module")
def of_changed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changed") / "run"
    run(folder, sampled=changed())
    return folder


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"kernel": pm.gp.cov.Matern12}, "prior covariance"),
        ({"scale": 2.0}, "prior covariance"),
        ({"mu": 3.0}, "prior of lengthscale"),
        ({"epsilon": 1.0}, "noise parameters"),
        ({"X": DATA.X[::-1]}, "data"),
        ({"limit": 1e3}, "graph"),
    ],
)
def test_another_model_is_refused_and_what_differs_is_named(of_changed, other, what):
    with pytest.raises(ValueError, match=f"holds one with another {what} .*name another folder"):
        run(of_changed, sampled=changed(**other))


@pytest.mark.parametrize(
    ("options", "seed", "what"),
    [
        ({"latent": bp.MeanField()}, 1, r"latent \(Laplace.*, not MeanField\(\)\)"),
        ({"chains": 3}, 1, r"chains \(2, not 3\)"),
        ({"tune": 70}, 1, r"tune \(60, not 70\)"),
        ({"target_accept": 0.8}, 1, r"target_accept \(0.9, not 0.8\)"),
        ({}, 2, r"seed"),
    ],
)
def test_another_sampler_is_refused(of_changed, options, seed, what):
    method = bp.NUTS(**{"latent": METHOD.latent, "draws": 60, "tune": 60, "chains": 2, **options})
    with pytest.raises(ValueError, match=f"holds one with another {what}"):
        run(of_changed, method, changed(), seed)


def test_given_hyperparameters_belong_to_the_run(of_changed):
    with pytest.raises(ValueError, match="holds one with another hyperparameters"):
        bp.fit(METHOD, changed(), hyperparameters={"lengthscale": 1.0}, progressbar=False, checkpoint=of_changed)


@pytest.mark.slow
def test_the_fingerprint_does_not_depend_on_the_process(of_changed, tmp_path):
    """It would, if it hung on the order of a set or on an address."""
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_resume
        test_resume.run({str(of_changed)!r}, sampled=test_resume.changed())
    """
    code, environment = textwrap.dedent(script), os.environ | {"PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("")
    (tmp_path / "file").write_text("")
    for folder, message in (
        (tmp_path / "other", "has files"),
        (tmp_path / "broken", "since run.json is damaged"),
        (tmp_path / "file", "must be a folder, got the file"),
        (tmp_path / "file" / "run", "must lie in a folder, and .*file is a file"),
    ):
        with pytest.raises(ValueError, match=message):
            run(folder)
    with pytest.raises(ValueError, match="needs the sampler nutpie, got nuts_sampler='pymc'"):
        run(tmp_path / "new", bp.NUTS(nuts_sampler="pymc"))
    with pytest.raises(ValueError, match=r"checkpoint is for NUTS\(\).*MeanField"):
        bp.fit(bp.MeanField(), model(), checkpoint=tmp_path)
