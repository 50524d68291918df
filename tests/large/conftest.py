"""Data and harness of the tests of folders."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bsvr_pp.inference.search import at_size
from bsvr_pp.large import sources

STAGES = {"_SUBSET": 60, "_NEIGHBOURHOODS": 3, "_NEIGHBOURS": 40, "_HELD_OUT": 30, "_LIMIT": 30}


@contextmanager
def small_stages() -> Iterator[pytest.MonkeyPatch]:
    """Context in which stages of hyperparameters, and parts, have few rows; it undoes other patches as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in STAGES.items():
            patch.setattr(at_size, name, value)
        patch.setattr(sources, "_ROWS", 70)
        yield patch


def flights(n: int) -> pd.DataFrame:
    """A table of n rows with numbers, words and a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"speed": rng.uniform(0, 6, n), "town": rng.choice(["Ulm", "Bonn"], n)})
    frame["delay"] = np.sin(frame["speed"]) + (frame["town"] == "Ulm") + 0.1 * rng.laplace(size=n)
    return frame


def kill_a_worker(client: Any, folder: Path, pattern: str) -> None:
    """Kill a worker of a cluster as soon as a folder has a file of this pattern."""
    pid = next(iter(client.run(os.getpid).values()))

    def kill() -> None:
        while not list(folder.glob(pattern)):
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


@contextmanager
def interrupted(module: Any, name: str, done: list[int], after: int) -> Iterator[None]:
    """Context in which a function of numbered tasks, which are appended to ``done``, is interrupted after so many."""
    task = getattr(module, name)

    def some(folder, stamp, number):
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(number)
        return task(folder, stamp, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, some)
        with pytest.raises(KeyboardInterrupt):
            yield
