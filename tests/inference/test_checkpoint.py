"""The folder of a run: its segments and its fingerprint."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr

from bsvr_pp.inference.checkpoint import Checkpoint, check_folder

RECORD = {"seed": 7, "what": "a run"}
POSITION = np.array([1.0, 2.0])


def draws(size=3):
    data = xr.Dataset({"C": ("draw", np.arange(float(size)))})
    return {"posterior": data, "sample_stats": data.rename(C="energy")}


def test_a_segment_is_read_back(tmp_path):
    folder = Checkpoint(tmp_path / "run", RECORD)
    assert folder.seed == 7
    assert folder.read(0, 0) is None
    folder.write(0, 0, draws(), POSITION)
    found, position = Checkpoint(tmp_path / "run", RECORD).read(0, 0)
    xr.testing.assert_equal(found["posterior"], draws()["posterior"])
    xr.testing.assert_equal(found["sample_stats"], draws()["sample_stats"])
    assert position.tolist() == [1.0, 2.0]
    assert folder.read(0, 1) is None
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["chain-00-segment-000.nc", "run.json"]


@pytest.mark.parametrize("content", [b"", b"half"])
def test_a_damaged_segment_is_missing(tmp_path, content):
    folder = Checkpoint(tmp_path / "run", RECORD)
    (tmp_path / "run" / "chain-01-segment-002.nc").write_bytes(content)
    with pytest.warns(UserWarning, match=r"chain-01-segment-002\.nc: .*damaged.*; this segment is sampled again"):
        assert folder.read(1, 2) is None


def test_a_failing_disk_is_told_once(tmp_path, monkeypatch):
    folder = Checkpoint(tmp_path / "run", RECORD)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bsvr_pp.inference.checkpoint.save", full)
    with pytest.warns(UserWarning, match="draws cannot be kept in .*No space left"):
        folder.write(0, 0, draws(), POSITION)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder.write(0, 1, draws(), POSITION)


def test_a_folder_is_of_one_run(tmp_path):
    Checkpoint(tmp_path / "run", RECORD)
    other = RECORD | {"seed": 8}
    assert Checkpoint(tmp_path / "run", other, any_seed=True).seed == 7
    with pytest.raises(ValueError, match=r"holds one with another seed \(7, not 8\): name another folder"):
        Checkpoint(tmp_path / "run", other)
    with pytest.raises(ValueError, match="holds one with another what"):
        Checkpoint(tmp_path / "run", RECORD | {"what": "another"}, any_seed=True)
    for damage in ("[1, 2]", "{", ""):
        (tmp_path / "run" / "run.json").write_text(damage)
        with pytest.raises(ValueError, match=r"since run\.json is damaged"):
            Checkpoint(tmp_path / "run", RECORD)
    assert check_folder(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "run" / "run.json").unlink()
    assert check_folder(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "run" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"must be a new folder or that of an earlier run, and .*run has files"):
        check_folder(tmp_path / "run")
