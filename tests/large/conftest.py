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

from bsvr_pp.large import parts
from tests.helpers import small_stages

LIMIT = 30


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[pytest.MonkeyPatch]:
    """Stages of hyperparameters, and parts, with few rows; further patches of a module are undone with them."""
    with small_stages(_LIMIT=LIMIT) as patch:
        patch.setattr(parts, "_ROWS", 70)
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
