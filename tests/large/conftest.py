"""Data and harness of the tests of folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


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
