"""The folder of a run, and chains in segments, with a sampler whose draws follow from its seed and start."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import nutpie
import pytest
import xarray as xr

import bsvr_pp as bp
from bsvr_pp.inference.sampling.checkpoint import Checkpoint, check_folder, draw_segments, lengths

METHOD = bp.NUTS(draws=500, tune=404, chains=3, target_accept=0.85)
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

    monkeypatch.setattr("bsvr_pp.inference.sampling.checkpoint.save", full)
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


@dataclass(frozen=True)
class Compiled:
    """What nutpie compiles."""

    initial_point_func: Any = None


class Sampler:
    """What nutpie gives while it samples: busy at first, then finished."""

    def __init__(self, compiled, options):
        self.options, self.asked, self.cancelled = options, 0, False
        self.start = None if compiled.initial_point_func is None else compiled.initial_point_func(0)

    @property
    def is_finished(self):
        self.asked += 1
        if self.asked < 3:
            raise TimeoutError
        return self.asked > 4

    def tree(self, draws):
        origin = 0.0 if self.start is None else self.start[0]
        values = origin + np.random.default_rng(self.options["seed"]).normal(size=(1, draws)).cumsum(axis=1)
        dims = ("chain", "draw")
        posterior = {"C": (dims, np.exp(values)), "C_log__": (dims, values)}
        stats = {
            "energy": (dims, values),
            "unconstrained_draw": ((*dims, "unconstrained_parameter"), values[..., None]),
        }
        return xr.DataTree.from_dict({"posterior": xr.Dataset(posterior), "sample_stats": xr.Dataset(stats)})

    def wait(self):
        warnings.warn("Found chain dimension to be longer than draw dimension", UserWarning, stacklevel=1)
        return self.tree(self.options["draws"])

    def abort(self):
        return self.tree(10)

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def sampling(monkeypatch):
    """The samplers that were started, and a clock that does not wait."""
    started: list[Sampler] = []

    def sample(compiled, **options):
        started.append(Sampler(compiled, options))
        return started[-1]

    monkeypatch.setattr(nutpie, "sample", sample)
    naps = iter(range(1000))
    monkeypatch.setattr(
        "bsvr_pp.inference.sampling.checkpoint.sleep", lambda _: next(naps)
    )  # a loop without end is an error
    return started


def run(folder, method=METHOD, compiled=Compiled):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chains = draw_segments(
            compiled,
            Checkpoint(folder, RECORD),
            draws=method.draws,
            tune=method.tune,
            chains=method.chains,
            cores=2,
            options={"target_accept": method.target_accept, "low_rank": True},
            progressbar=False,
        )
    return [chain["posterior"]["C"].values for chain in chains]


def forbidden():
    raise AssertionError("nothing is missing")


def test_lengths_grow_by_a_quarter_of_the_adaptation():
    assert list(lengths(404, 500)) == [101, 202, 197]
    assert list(lengths(404, 101)) == [101]
    assert list(lengths(10, 120)) == [50, 70]
    assert list(lengths(1000, 100)) == [100]


def test_segments_continue_from_the_last_draw(sampling, tmp_path):
    chains = run(tmp_path / "run")
    assert [chain.shape for chain in chains] == [(500,)] * 3
    first = [sampler for sampler in sampling if sampler.start is None]
    later = [sampler for sampler in sampling if sampler.start is not None]
    # A later segment adapts for a fifth of the steps.
    assert [(s.options["draws"], s.options["tune"]) for s in first] == [(101, 404)] * 3
    assert sorted((s.options["draws"], s.options["tune"]) for s in later) == [(197, 80)] * 3 + [(202, 80)] * 3
    ends = np.log(np.concatenate([chain[[100, 302]] for chain in chains]))
    assert sorted(s.start[0] for s in later) == pytest.approx(sorted(ends))
    assert len({s.options["seed"] for s in sampling}) == 9
    for s in sampling:
        assert (s.options["chains"], s.options["target_accept"], s.options["low_rank"]) == (1, 0.85, True)
        assert not s.cancelled
    assert len(list((tmp_path / "run").glob("chain-0?-segment-00?.nc"))) == 9
    # Everything is read back, and a longer run begins with it.
    np.testing.assert_array_equal(run(tmp_path / "run", compiled=forbidden), chains)
    longer = run(tmp_path / "run", bp.NUTS(draws=550, tune=404, chains=3, target_accept=0.85))
    np.testing.assert_array_equal([chain[:500] for chain in longer], chains)
    shorter = run(tmp_path / "run", bp.NUTS(draws=150, tune=404, chains=3), compiled=forbidden)
    np.testing.assert_array_equal(shorter, [chain[:150] for chain in chains])


def test_a_short_adaptation_has_segments_of_fifty(sampling, tmp_path):
    run(tmp_path / "run", bp.NUTS(draws=120, tune=100, chains=1))
    assert [(s.options["draws"], s.options["tune"]) for s in sampling] == [(50, 100), (70, 50)]


def test_missing_segments_alone_are_sampled(sampling, tmp_path):
    chains = run(tmp_path / "run")
    (tmp_path / "run" / "chain-01-segment-001.nc").unlink()
    sampling.clear()
    np.testing.assert_array_equal(run(tmp_path / "run"), chains)
    assert [s.options["draws"] for s in sampling] == [202, 197]


def test_no_more_chains_at_a_time_than_processors(sampling, tmp_path):
    most = 0

    def watched(_):
        nonlocal most
        most = max(most, sum(s.asked < 5 for s in sampling))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", watched)
        run(tmp_path / "run")
    assert most == 2


def test_an_interruption_keeps_what_was_drawn(sampling, tmp_path):
    def interrupt(_):
        if len(sampling) == 4:  # two chains are in their second segments
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", interrupt)
        chains = run(tmp_path / "run")
    assert [chain.shape for chain in chains] == [(111,)] * 2
    whole = run(tmp_path / "run")
    np.testing.assert_array_equal([chain[:111] for chain in whole[:2]], chains)


def test_an_error_cancels_the_samplers(sampling, tmp_path):
    def fail(_):
        raise RuntimeError("no memory")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            run(tmp_path / "run")
    assert [s.cancelled for s in sampling] == [True, True]


def test_an_interruption_before_the_first_draw_has_none(sampling, tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bsvr_pp.inference.sampling.checkpoint.sleep", interrupt)
    monkeypatch.setattr(Sampler, "abort", lambda self: {}["posterior"])
    assert run(tmp_path / "run") == []
