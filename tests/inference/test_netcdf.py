"""Results on disk: complete or not there, and never damaged without a word."""

import os

import arviz as az
import numpy as np
import pytest
import xarray as xr

import bsvr_pp as bp
from tests.damage import KINDS, damaged


@pytest.mark.parametrize("size", [1, 64, 100_000])
def test_any_tree_is_saved_and_loaded(tmp_path, size):
    tree = xr.DataTree.from_dict({"/posterior": xr.Dataset({"C": ("draw", np.arange(float(size)))})})
    bp.save(tree, tmp_path / "fit.nc")
    assert bp.load(tmp_path / "fit.nc").equals(tree)


@pytest.mark.slow_cases("Laplace", "mean field", "MAP")
@pytest.mark.parametrize("name", ["MAP", "Laplace", "mean field", "NUTS"])
def test_a_result_is_saved_and_loaded_without_loss(sinc_results, tmp_path, name):
    bp.save(sinc_results[name], tmp_path / "fit.nc")
    assert bp.load(tmp_path / "fit.nc").equals(sinc_results[name])
    np.testing.assert_equal(bp.load(tmp_path / "fit.nc").attrs, sinc_results[name].attrs)
    assert [file.name for file in tmp_path.iterdir()] == ["fit.nc"]


@pytest.mark.slow
def test_other_programs_read_the_file(sinc_results, tmp_path):
    bp.save(sinc_results["Laplace"], tmp_path / "fit.nc")
    with xr.open_datatree(tmp_path / "fit.nc") as tree:
        assert tree.load().equals(sinc_results["Laplace"])
    assert "posterior" in az.from_netcdf(tmp_path / "fit.nc").children


@pytest.fixture(scope="module")
def whole(sinc_results, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "fit.nc"
    bp.save(sinc_results["Laplace"], path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_is_noticed(whole, tmp_path, kind):
    rng = np.random.default_rng(0)
    for place in [0, len(whole) - 1, *rng.integers(len(whole), size=16)]:
        (tmp_path / "damaged.nc").write_bytes(damaged(whole, kind, place, rng))
        with pytest.raises(ValueError, match=r"damaged\.nc: .*damaged") as error:
            bp.load(tmp_path / "damaged.nc")
        assert "\n" not in str(error.value)


def test_a_file_without_a_checksum_is_refused(sinc_results, tmp_path):
    sinc_results["Laplace"].to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="it does not end in a checksum"):
        bp.load(tmp_path / "fit.nc")


@pytest.mark.slow
def test_a_failed_write_leaves_the_older_file(sinc_results, tmp_path, monkeypatch):
    bp.save(sinc_results["Laplace"], tmp_path / "fit.nc")

    def full(self, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.DataTree, "to_netcdf", full)
    with pytest.raises(OSError, match="No space left"):
        bp.save(sinc_results["MAP"], tmp_path / "fit.nc")
    monkeypatch.undo()
    assert bp.load(tmp_path / "fit.nc").equals(sinc_results["Laplace"])
    assert [file.name for file in tmp_path.iterdir()] == ["fit.nc"]


@pytest.mark.parametrize("place", ["file/fit.nc", "folder", os.devnull])
def test_a_place_that_cannot_be_written_is_named(sinc_results, tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="path must "):
        bp.save(sinc_results["MAP"], tmp_path / place)
    assert not os.path.isfile(os.devnull)
