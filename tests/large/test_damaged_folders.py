"""Folders that are locked, edited, damaged or crafted: refused by name, or computed again, and never other numbers."""

import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.core import atomic_write as files
from bsvr_pp.core.atomic_write import LOCK, SealedFile, atomic_write, locked
from bsvr_pp.large import folder_fit, folder_model
from bsvr_pp.large.folder_model import ARRAYS, StoredRows
from bsvr_pp.large.parts import Records, read_record
from tests.damage import KINDS, damaged
from tests.helpers import wave
from tests.large.conftest import interrupted

NEW = np.linspace(0.5, 11.5, 40)[:, None]


@pytest.fixture(scope="module", autouse=True)
def small_pieces(small):
    small.setattr(files, "PIECE", 256)  # several pieces in each file
    small.setattr("bsvr_pp.large.folder_model.PIECE", 256)


def machine(**options):
    same = {"kernel": "rational_quadratic"}  # which takes less time
    return bp.BayesianSVR(**same | {"blocks": 60, "restarts": 1, "random_state": 0} | options)


@pytest.fixture(scope="module")
def fitted(small_pieces, tmp_path_factory):
    return bp.fit_folder(machine(), *wave(200), folder=tmp_path_factory.mktemp("fits") / "model")


@pytest.fixture
def model(fitted, tmp_path):
    """The model of a copy of the folder."""
    return bp.FolderModel(shutil.copytree(fitted.folder, tmp_path / "model"))


@pytest.mark.slow
def test_a_folder_with_another_model_than_the_object_predicts_nothing(model, tmp_path):
    shutil.rmtree(model.folder)
    bp.fit_folder(machine(), *wave(150, seed=5), folder=model.folder)
    with pytest.raises(ValueError, match="has another model than the one that was given"):
        model.predict_into(NEW, tmp_path / "out.csv")
    assert bp.FolderModel(model.folder).blocks_.n == 150
    for use in (model.solve, lambda: model.predict(NEW)):
        with pytest.raises(ValueError, match="has another model than the one that was given"):
            use()
    assert not hasattr(bp.FolderModel(model.folder), "log_evidence_")


@pytest.mark.slow
def test_a_copy_of_an_object_does_not_take_another_model(model):
    kept = pickle.dumps(model)
    shutil.rmtree(model.folder)
    bp.fit_folder(machine(), *wave(150, seed=5), folder=model.folder)
    with pytest.raises(ValueError, match="has another model than the one that was given"):
        pickle.loads(kept)


def test_what_a_killed_process_has_left_is_removed_by_the_next_call(model):
    (model.folder / "work").mkdir()
    bp.fit_folder(machine(), *wave(200), folder=model.folder)
    assert not (model.folder / "work").exists()


@pytest.mark.slow
def test_a_folder_whose_pieces_were_all_read_does_not_mix_two_models(model):
    model.predict(NEW)
    X, y = wave(150)
    shutil.rmtree(model.folder)
    bp.fit_folder(machine(), X, 100.0 - 50.0 * y, folder=model.folder)
    with pytest.raises(ValueError, match="has another model than the one that was given"):
        model.predict(NEW)


HOLD = """
import sys, time
from pathlib import Path
from bsvr_pp.core.atomic_write import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_second_process_is_refused_by_the_name_of_the_first_and_a_dead_one_blocks_nobody(model, tmp_path):
    out, fresh = tmp_path / "out.csv", tmp_path / "fresh"
    calls = {
        fresh: lambda: bp.fit_folder(machine(), *wave(150), folder=fresh),
        tmp_path / ".bsvr-pp-out.csv": lambda: model.predict_into(NEW, out),
    }
    for folder, call in calls.items():
        with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(ValueError, match=f"{folder}: process {holder.pid} on .* writes into it: call again"):
                call()
            assert bp.FolderModel(model.folder).blocks_.n == 200  # reading goes on
            holder.kill()
        assert (folder / LOCK).is_file()  # which the dead process has left
        call()
        assert not (folder / LOCK).exists()
    assert out.is_file()


def test_a_lock_is_held_once_also_in_one_process_and_needs_a_disk_that_has_them(tmp_path, monkeypatch):
    with locked(tmp_path / "a"):
        with pytest.raises(ValueError, match=f"process {os.getpid()} on .* writes into it"), locked(tmp_path / "a"):
            pass
        assert (tmp_path / "a" / LOCK).is_file()
        with locked(tmp_path / "b"):
            pass

    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", unknown)
    with pytest.warns(UserWarning, match="its disk has no locks"), locked(tmp_path / "b"):
        pass


def of_data(**values):
    return lambda record: record["data"].update(values)


def of_options(**values):
    return lambda record: record["run"]["recipe"]["options"].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format="bsvr_pp folder 9"), "its format is 'bsvr_pp folder 9', and this version reads"),
        (lambda r: r.update(more=1), "has the unknown more"),
        (lambda r: r.pop("point"), "lacks point"),
        (lambda r: r["data"].pop("mean"), "data of .* lacks mean"),
        (lambda r: r.update(data=None), "data of .* lacks "),
        (of_data(location=float("nan")), "location of .* must be finite, got nan"),
        (of_data(scale=[0.0]), "scale and unit of .* must be > 0, got 0"),
        (of_data(mean=[1.0, 2.0]), r"mean of .* must be a \(1,\) array, got shape \(2,\)"),
        (of_data(log_jacobian=None), "log_jacobian of .* must be"),
        (of_data(target_scale=[1.0, 0.0]), "target_scale of .* must be middle, end and offset > 0, or empty"),
        (of_data(rows=7), "rows of .* must be 200, as in its files, got 7"),
        (lambda r: r["point"].update(C=float("inf")), "C of .* must be finite, got inf"),
        (of_options(noise="loud"), "noise must be one of .*, got 'loud'"),
        (of_options(predict=1), "options of result has the unknown predict"),
        (of_options(inference={"method": "Popen", "module": "subprocess"}), "method 'Popen' of subprocess is not"),
        (lambda r: r["files"].update({"../inputs.npy": "0"}), "files of .* has the unknown ../inputs.npy"),
        (lambda r: r.update(files={f"/etc/{name}": "0" for name in ARRAYS}), "files of .* lacks "),
        (lambda r: r["files"].update({"inputs.npy": "0" * 64}), "inputs.npy: is not the file that was written"),
    ],
)
def test_a_crafted_record_is_refused_by_name(model, change, message):
    record = read_record(model.folder / "model.json")
    change(record)
    Records(model.folder)["model"] = record
    with pytest.raises(ValueError, match=message):
        bp.FolderModel(model.folder)


def test_a_file_that_is_missing_or_no_record_is_named(model):
    (model.folder / "solved.npy").unlink()
    with pytest.raises(ValueError, match=f"^{model.folder}.*solved.npy: is missing"):
        bp.FolderModel(model.folder)
    (model.folder / "model.json").write_bytes(b"[]")
    with pytest.raises(ValueError, match=r"model\.json: is damaged, since its checksum does not match"):
        bp.FolderModel(model.folder)


def test_a_folder_that_was_moved_is_named(model, tmp_path):
    shutil.move(model.folder, tmp_path / "moved")
    for use in (lambda: model.predict_table(NEW), lambda: model.predict_into(NEW, tmp_path / "out.csv"), model.solve):
        with pytest.raises(ValueError, match=rf"^{model.folder}.*(npy: is missing|has no model\.json)$"):
            use()
    assert not model.folder.exists()


def test_a_link_out_of_the_folder_is_refused(model, tmp_path):
    (model.folder / "inputs.npy").rename(tmp_path / "elsewhere.npy")
    (model.folder / "inputs.npy").symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(ValueError, match=r"inputs\.npy: is not the file that was written"):
        bp.FolderModel(model.folder)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_anywhere_in_a_file_is_noticed_before_a_prediction(model, name, kind):
    whole, expected = (model.folder / name).read_bytes(), model.predict_interval(NEW)
    rng = np.random.default_rng(0)
    refused = 0
    for place in [0, len(whole) // 2, len(whole) - 1, *rng.integers(len(whole), size=2)]:
        (model.folder / name).write_bytes(damaged(whole, kind, place, rng))
        try:
            np.testing.assert_array_equal(bp.FolderModel(model.folder).predict_interval(NEW), expected)
        except ValueError as error:
            refused += 1
            assert name in str(error) and "damaged" in str(error)
    assert refused == 5 or (kind == "flipped" and name == "row.npy")


def test_a_large_file_is_read_where_it_is_needed(tmp_path, monkeypatch):
    path, rows = tmp_path / "rows.npy", np.arange(3000.0).reshape(1000, 3)
    with atomic_write(path, sealed=True) as fresh, fresh.open("wb") as file:
        np.save(file, rows)
    content = bytearray(path.read_bytes())
    content[-1 - 56 - 32 * 95] ^= 1  # in the last rows
    path.write_bytes(content)
    stored = StoredRows(tmp_path, *[np.empty(0)] * 2, files={"rows.npy": SealedFile(path)})
    np.testing.assert_array_equal(stored.read("rows.npy", np.array([0, 10, 500])), rows[[0, 10, 500]])
    with pytest.raises(ValueError, match=r"rows\.npy: is damaged"):
        stored.read("rows.npy", np.array([0, 10, 999]))


@pytest.mark.slow
def test_files_of_stages_that_are_damaged_are_named_and_made_again(fitted, tmp_path):
    """Each file of an interrupted fit in turn, cut and with another byte; the bits are those of a fit at once."""
    first = tmp_path / "first"
    with interrupted(folder_fit, "_solve", [], 3):
        bp.fit_folder(machine(), *wave(200), folder=first)
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file() and path.name != "run.json"]
    assert {path.suffix for path in files} == {".json", ".npy", ".npz"}
    files = [path for path in files if path.suffix != ".npy" or path.name != "offsets.npy"]  # made by each call
    for i, name in enumerate(files):
        folder = shutil.copytree(first, tmp_path / str(i))
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content if i % 2 else content[: len(content) // 2])
        if name.parent.name == "stages":  # which are read where the next stage has not ended
            (folder / "work" / "hyperparameters.json").unlink()
        with pytest.warns(UserWarning, match=f"{name.name}: is .*damaged.*; its stage is computed again"):
            again = bp.fit_folder(machine(), *wave(200), folder=folder)
        for array in ARRAYS[:-1]:
            assert (again.folder / array).read_bytes() == (fitted.folder / array).read_bytes(), name
    folder = shutil.copytree(first, tmp_path / "run")
    (folder / "work" / "run.json").write_text("{")
    with (
        pytest.warns(UserWarning, match=r"run\.json: is damaged"),
        pytest.raises(ValueError, match="has files of other data or options: choose another folder, or remove it"),
    ):
        bp.fit_folder(machine(), *wave(200), folder=folder)


def test_stages_of_predictions_that_are_damaged_are_made_again(model, tmp_path):
    expected = model.predict_table(NEW)
    done = tmp_path / ".bsvr-pp-out.csv" / "done" / "0.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_model, "_join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict_into(NEW, tmp_path / "out.csv")
    done.write_bytes(done.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"0\.npz: is .*damaged.*; its stage is computed again"):
        model.predict_into(NEW, tmp_path / "out.csv")
    found = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_rows_of_another_call_of_predict_into_are_not_predicted(model, tmp_path):
    """Also if the second call ends before it has written its own rows."""
    out = tmp_path / "out.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_model, "_join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict_into(NEW[:10], out)
        patch.setattr(folder_model, "_order", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict_into(NEW, out)
    assert model.predict_into(NEW, out) == len(NEW)
    found = np.loadtxt(out, delimiter=",", skiprows=1)
    np.testing.assert_allclose(found, model.predict_table(NEW), rtol=1e-12)


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError])
@pytest.mark.parametrize("place", [(folder_model, "hyperparameters"), (folder_model, "spec_of")])
def test_an_error_of_the_package_is_no_damage(model, monkeypatch, place, error):
    def bug(*_):
        raise error("a bug")

    monkeypatch.setattr(*place, bug)
    with pytest.raises(error, match="a bug"):
        bp.FolderModel(model.folder)


def test_threads_are_no_option_of_the_fit(model, tmp_path):
    local = bp.LocalBlocks(60, n_jobs=2, progressbar=False)
    with warnings.catch_warnings(action="error"):
        again = bp.fit_folder(machine(blocks=local), *wave(200), folder=Path(model.folder))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
