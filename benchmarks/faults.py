"""Tests of killed and interrupted runs and of damaged files: no work may be lost, and no error may be silent.

``python -m benchmarks faults`` kills a checkpointed fit by SIGKILL at random moments and continues it, damages files of
results, checkpoints and data at random, and sends SIGINT at random moments. Every run is a child process that starts
with a compiled model, so that the signals arrive during the sampling.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import nutpie
import pandas as pd
import pymc as pm
import typer
from rich.progress import track
from typer.testing import CliRunner

import bsvr_pp as bp
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.cli import app
from bsvr_pp.datasets import sinc

DATA = sinc(10, random_seed=3)
METHOD = bp.NUTS(bp.Laplace(curvature="local"), draws=150, tune=60, chains=2)


def model() -> pm.Model:
    """Build a model with two hyperparameters."""
    with pm.Model() as made:
        lengthscale = pm.LogNormal("lengthscale", 0.5, 0.5)
        C = pm.LogNormal("C", 1.0, 1.0)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=DATA.X)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=DATA.y)
    return made


def draws(folder: Path | None, seed: int = 1) -> np.ndarray:
    """Return the draws of a fit, with or without a checkpoint."""
    result = bp.fit(METHOD, model(), random_seed=seed, progressbar=False, checkpoint=folder)
    posterior = result["posterior"].to_dataset()
    return np.stack([posterior["C"].values, posterior["lengthscale"].values])


def child(work: Callable[[], object], *, signal_: int | None = None, after: float = 0.0) -> str:
    """Run work in a child process, and return its answer, "killed", "interrupted" or "error ..."."""
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:
        answer = "error"
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            warnings.simplefilter("ignore")
            answer = str(work())
        except KeyboardInterrupt:
            answer = "interrupted"
        except BaseException:
            answer = f"error {traceback.format_exc().splitlines()[-1]}"
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.write(writing, answer.encode()[:4000])
            os._exit(0)
    os.close(writing)
    if signal_ is not None:
        time.sleep(after)
        os.kill(number, signal_)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(number, 0)
    return answer or "killed"


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage content: flip some bytes, cut off the end, or return nothing."""
    kind = rng.integers(3)
    if kind == 0 or not content:
        return b""
    if kind == 1:
        return content[: int(rng.integers(len(content)))]
    out = bytearray(content)
    for place in rng.integers(len(out), size=int(rng.integers(1, 21))):
        out[place] ^= 1 << int(rng.integers(8))
    return bytes(out)


def killed(folder: Path, runs: int, seconds: float, whole: np.ndarray, rng: np.random.Generator) -> Counter[str]:
    """Kill a checkpointed fit at a random moment, and continue it."""
    found: Counter[str] = Counter()
    for number in track(range(runs), description="SIGKILL"):
        place = folder / f"killed-{number}"
        after = float(rng.uniform(0.0, seconds))
        first = child(lambda place=place: (draws(place), "finished")[1], signal_=signal.SIGKILL, after=after)
        found[f"first run: {first}"] += 1
        answer = child(lambda place=place: np.array_equal(draws(place), whole))
        found["continued: equal draws" if answer == "True" else f"continued: {answer}"] += 1
        shutil.rmtree(place, ignore_errors=True)
    return found


def interrupted(runs: int, seconds: float, rng: np.random.Generator) -> Counter[str]:
    """Interrupt a fit at a random moment: KeyboardInterrupt, or a result that can be used."""

    def usable() -> str:
        result = bp.fit(METHOD, made, random_seed=1, progressbar=False)
        return "a result" if np.isfinite(bp.predict(result, [[0.5]], model=made)["y_mean"]).all() else "not finite"

    made = model()
    found: Counter[str] = Counter()
    for _ in track(range(runs), description="SIGINT"):
        found[child(usable, signal_=signal.SIGINT, after=float(rng.uniform(0.0, seconds)))] += 1
    return found


def damaged_checkpoints(folder: Path, runs: int, whole: np.ndarray, rng: np.random.Generator) -> Counter[str]:
    """Damage a file of a finished run, and call the run again: equal draws, or an error of one line."""

    def again() -> str:
        try:
            return "equal draws" if np.array_equal(draws(place), whole) else "other draws"
        except ValueError as error:
            return "one line" if "\n" not in str(error) else "more than one line"

    finished = folder / "finished"
    draws(finished)
    found: Counter[str] = Counter()
    for _ in track(range(runs), description="checkpoints"):
        place = Path(shutil.copytree(finished, folder / "damaged"))
        files = sorted(place.iterdir())
        file = files[int(rng.integers(len(files)))]
        file.write_bytes(damaged(file.read_bytes(), rng))
        found[child(again)] += 1
        shutil.rmtree(place)
    return found


def damaged_files(folder: Path, runs: int, rng: np.random.Generator) -> tuple[Counter[str], Counter[str]]:
    """Damage a saved model, or the rows to predict, and predict."""
    rows, file, out = folder / "rows.csv", folder / "model.nc", folder / "out.csv"
    pd.DataFrame({"x": DATA.X[:, 0], "y": DATA.y}).to_csv(rows, index=False)
    runner = CliRunner()
    assert runner.invoke(app, ["fit", str(rows), "-o", str(file), "--restarts", "1"]).exit_code == 0

    def predicted() -> pd.DataFrame | str:
        out.unlink(missing_ok=True)
        run = runner.invoke(app, ["predict", str(file), str(rows), "-o", str(out)])
        if run.exit_code == 2:
            return "one line" if run.stderr.strip().count("\n") == 0 else "more than one line"
        return pd.read_csv(out) if run.exit_code == 0 else f"error {run.exception!r}"

    def verdict(found: pd.DataFrame | str, same: Callable[[pd.DataFrame], bool]) -> str:
        return found if isinstance(found, str) else "equal predictions" if same(found) else "other predictions"

    right = predicted()
    assert isinstance(right, pd.DataFrame)
    results: Counter[str] = Counter()
    content = file.read_bytes()
    for _ in track(range(runs), description="results"):
        file.write_bytes(damaged(content, rng))
        results[verdict(predicted(), right.equals)] += 1
    file.write_bytes(content)

    def rows_as_read(found: pd.DataFrame) -> bool:
        """Each row has the prediction of its present inputs, to the rounding of sums over other numbers of rows."""
        inputs = pd.read_csv(rows)["x"].to_numpy(float)
        known = dict(zip(DATA.X[:, 0], right.to_numpy(), strict=True))
        pairs = zip(inputs, found.to_numpy(), strict=True)
        return all(np.allclose(row, known[x], rtol=1e-12) for x, row in pairs if x in known)

    data: Counter[str] = Counter()
    content = rows.read_bytes()
    for _ in track(range(runs), description="CSV"):
        rows.write_bytes(damaged(content, rng))
        data[verdict(predicted(), rows_as_read)] += 1
    return results, data


def main(
    kills: Annotated[int, typer.Option(help="Runs killed by SIGKILL.")] = 30,
    corruptions: Annotated[int, typer.Option(help="Number of damaged files of each of three kinds.")] = 100,
    interrupts: Annotated[int, typer.Option(help="Runs interrupted by SIGINT.")] = 20,
    seed: Annotated[int, typer.Option(help="Random seed of the moments and the damage.")] = 0,
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Kill and interrupt runs, damage files, and count the outcomes."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    table = Timing("faults", ("what", "runs", "outcomes", "wrong"))
    nutpie.compile_pymc_model = _once(nutpie.compile_pymc_model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draws(folder / "first")  # compiles
        began = time.perf_counter()
        whole = draws(folder / "whole")
        seconds = time.perf_counter() - began
        killed_ = killed(folder, kills, seconds, whole, rng)
        interrupted_ = interrupted(interrupts, seconds, rng)
        checkpoints = damaged_checkpoints(folder, corruptions, whole, rng)
        results, data = damaged_files(folder, corruptions, rng)
    right = {"equal draws", "one line", "equal predictions", "interrupted", "a result", "killed", "finished"}
    for what, found in (
        ("SIGKILL of a checkpointed fit, then the same call again", killed_),
        ("SIGINT of a fit", interrupted_),
        ("damaged checkpoint, then the same call again", checkpoints),
        ("damaged result, then predictions", results),
        ("damaged CSV file, then predictions of its rows", data),
    ):
        wrong = sum(
            n for outcome, n in found.items() if outcome.split(": ", 1)[-1] not in {*right, "killed", "finished"}
        )
        outcomes = "; ".join(f"{outcome} {n}" for outcome, n in sorted(found.items()))
        table.add(what, kills if found is killed_ else sum(found.values()), outcomes, wrong)
    table.notes = f"The whole run takes {seconds:.1f} s; signals come at a moment that is uniform over it."
    publish("faults", [table], save)


def _once(compile_: Callable[..., object]) -> Callable[..., object]:
    """Compiled models by the name of their variables: children start with them."""
    kept: dict[object, object] = {}

    def compiled(model: pm.Model, **options: object) -> object:
        key = tuple(variable.name for variable in model.value_vars)
        if key not in kept:
            kept[key] = compile_(model, **options)
        return kept[key]

    return compiled


if __name__ == "__main__":
    typer.run(main)
