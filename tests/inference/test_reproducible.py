"""The same seed gives the same bits in every process, whatever its hash seed and whether its caches are warm."""

import hashlib
import os
import subprocess
import sys
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

DATA = sinc(40, random_seed=3)  # rows enough for loops over several numbers at once


def bits(result):
    """Checksum of all numbers of a result."""
    digest = hashlib.sha256()
    for group in sorted(result.children):
        data = result[group].to_dataset()
        for name in sorted(map(str, data.data_vars)):
            values = data[name].values
            if values.dtype.kind in "fiub":  # the bytes of objects are addresses
                digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def everything(folder):
    """Name and checksum of what each kind of method, an estimator and a command give."""
    from typer.testing import CliRunner

    from bsvr_pp.cli import app

    warnings.simplefilter("ignore")
    model = bp.default_model(DATA.X, DATA.y)
    short = {"draws": 15, "tune": 30, "chains": 2}
    methods = (bp.Laplace(), bp.MeanField(), bp.NUTS(bp.MeanField(), **short), bp.NUTS(**short))
    for method in methods:
        yield method.name, bits(bp.fit(method, model, restarts=2, random_seed=1, progressbar=False))
    machine = bp.BayesianSVR(restarts=2, random_state=1).fit(DATA.X, DATA.y)
    yield "estimator", hashlib.sha256(machine.predict(DATA.X).tobytes()).hexdigest()
    np.savetxt(f"{folder}/data.csv", np.column_stack([DATA.X, DATA.y]), delimiter=",", header="x,y", comments="")
    CliRunner().invoke(app, ["fit", f"{folder}/data.csv", "-o", f"{folder}/model.nc", "--seed", "1"])
    yield "command", bits(bp.load(f"{folder}/model.nc"))


@pytest.mark.slow
def test_samplers_are_compiled_without_reordering_of_sums(monkeypatch):
    """PyTensor lets Numba reorder sums, and code from its cache does it in another way than fresh code."""

    class Stop(Exception):
        pass

    def sample(**_):
        raise Stop(pytensor.config.numba__fastmath)

    monkeypatch.setattr(pm, "sample", sample)
    with pytest.raises(Stop, match="False"):
        bp.fit(bp.NUTS(), bp.default_model(DATA.X, DATA.y), progressbar=False)
    assert pytensor.config.numba__fastmath


@pytest.mark.slow
def test_the_same_bits_in_every_process(tmp_path):
    """Empty caches first, then warm ones under other hash seeds."""
    cold = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'pytensor'}"}
    found = []
    for seed in ("0", "1", "2"):
        (tmp_path / seed).mkdir()
        run = subprocess.run(
            [sys.executable, __file__, str(tmp_path / seed)],
            env=os.environ | cold | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(run.stdout.splitlines())
    assert len(found[0]) == 6
    assert found[1] == found[0]
    assert found[2] == found[0]


if __name__ == "__main__":
    for name, checksum in everything(sys.argv[1]):
        print(name, checksum)
