"""Runs that are interrupted, killed and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.checkpoint import Checkpoint, by_chain, together
from bsvr_pp.problem import read_model

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


def test_a_finished_run_is_read_back(tmp_path):
    first = bp.fit(METHOD, model(), random_seed=1, progressbar=False, checkpoint=tmp_path / "run")
    again = bp.fit(METHOD, model(), random_seed=1, progressbar=False, checkpoint=tmp_path / "run")
    xr.testing.assert_equal(first["posterior"].to_dataset()["C"], again["posterior"].to_dataset()["C"])
    assert first["posterior"].to_dataset()["C"].shape == (2, 60)
    # More draws of the same run go on from there.
    more = bp.NUTS(latent=METHOD.latent, draws=80, tune=60, chains=2)
    longer = bp.fit(more, model(), random_seed=1, progressbar=False, checkpoint=tmp_path / "run")
    drawn = longer["posterior"].to_dataset()["C"]
    assert drawn.shape == (2, 80)
    np.testing.assert_array_equal(drawn[:, :60], first["posterior"].to_dataset()["C"])
    assert len(np.unique(drawn)) > 100


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    script = f"""
        import bsvr_pp as bp
        from bsvr_pp.datasets import sinc
        data = sinc(12, random_seed=3)
        method = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=20_000, tune=60, chains=2)
        model = bp.default_model(data.X, data.y)
        bp.fit(method, model, random_seed=1, progressbar=False, checkpoint={str(tmp_path / "run")!r})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    checkpoint = None
    try:
        for _ in range(120):
            time.sleep(1.0)
            if (tmp_path / "run" / "run.json").exists():
                checkpoint = Checkpoint(tmp_path / "run", read_model(model()), METHOD)
                if len(checkpoint.chains()) == 2:
                    break
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert checkpoint is not None
    there = checkpoint.chains()
    assert there[0]["posterior"].sizes["draw"] > 0
    kept = there[0]["posterior"]["C"].values[:60]
    result = bp.fit(METHOD, model(), random_seed=2, progressbar=False, checkpoint=tmp_path / "run")
    drawn = result["posterior"].to_dataset()["C"].values
    assert drawn.shape == (2, 60)
    np.testing.assert_array_equal(drawn[0, : kept.size], kept)


def test_another_run_is_refused(tmp_path):
    problem = read_model(model())
    Checkpoint(tmp_path / "run", problem, METHOD)
    Checkpoint(tmp_path / "run", problem, METHOD)
    with pytest.raises(ValueError, match=r"holds one with another latent \(Laplace.*, not MeanField\(\)\)"):
        Checkpoint(tmp_path / "run", problem, bp.NUTS(latent=bp.MeanField(), chains=2))
    with pytest.raises(ValueError, match="holds one with another data"):
        Checkpoint(tmp_path / "run", read_model(bp.default_model(DATA.X, DATA.y + 1)), METHOD)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="has files"):
        Checkpoint(tmp_path / "other", problem, METHOD)
    with pytest.raises(ValueError, match="needs the sampler nutpie, got sampler='pymc'"):
        Checkpoint(tmp_path / "new", problem, bp.NUTS(sampler="pymc"))
    with pytest.raises(ValueError, match=r"checkpoint is for NUTS\(\).*MeanField"):
        bp.fit(bp.MeanField(), model(), checkpoint=tmp_path)
