"""Functions that are compiled separately from their callers."""

from __future__ import annotations

import copy
import pickle
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit, typeof, types
from numba.core.errors import TypingError

from bsvr_pp.core.compiler import MATRIX, VECTOR, separate
from bsvr_pp.losses import soft_insensitive


class Pair(NamedTuple):
    matrix: np.ndarray
    number: float


PAIR = typeof(Pair(np.eye(1), 1.0))


@separate(PAIR, PAIR, VECTOR, types.int64, types.boolean)
def grown(pair, vector, times, more):
    """The matrix plus a multiple of the first entry."""
    out = pair.matrix.copy()
    for _ in range(times):
        out += vector[0]
    return Pair(out + 1.0 if more else out, pair.number + times)


@separate(types.void, MATRIX)
def overwrite(matrix):
    matrix[:] = 7.0


@njit
def caller(pair, vector):
    first = grown(pair, vector, 3, True)
    overwrite(pair.matrix)
    return grown(first, vector, len(vector), first.number > 100)


def test_compiled_code_and_python_get_the_same():
    given = Pair(np.ones((2, 2)), 1.0)
    found = caller(given, np.full(2, 10.0))
    np.testing.assert_array_equal(found.matrix, np.full((2, 2), 52.0))
    assert found.number == 6.0
    np.testing.assert_array_equal(given.matrix, 7.0)
    np.testing.assert_array_equal(grown(Pair(np.ones((2, 2)), 1.0), np.full(2, 10.0), 1, False).matrix, 11.0)
    assert grown.__doc__ == "The matrix plus a multiple of the first entry."


def test_there_is_one_version():
    read_only = np.ones(2)
    read_only.setflags(write=False)
    assert grown(Pair(np.ones((2, 2)), 1.0), read_only, 1, False).number == 2.0
    with pytest.raises(TypeError, match="No matching definition"):
        grown(Pair(np.ones((2, 2)), 1.0), np.ones(2, dtype=np.float32), 1, False)
    assert len(grown.compiled.overloads) == 1


def test_it_is_pickled_and_copied_by_its_name():
    assert pickle.loads(pickle.dumps(grown)) is grown
    assert copy.deepcopy(grown) is grown
    noise = soft_insensitive(1.0, 0.1, 0.3)
    assert pickle.loads(pickle.dumps(noise)) == noise


def test_results_are_freed():
    given = Pair(np.ones((300, 300)), 1.0)
    vector = np.ones(1)
    caller(given, vector)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(300):  # 200 MiB if nothing were freed
        caller(given, vector)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_threads_that_ask_at_once_load_it_once():
    """As chains do that run in threads, before anything else has used the function."""

    @separate(types.float64, types.float64)
    def plus_two(x):
        return x + 2.0

    caller = njit(lambda x: plus_two(x))
    ready = threading.Barrier(4)

    def ask(x):
        ready.wait()
        plus_two.load()
        return plus_two(x)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [2.0, 3.0, 4.0, 5.0]
    assert caller(1.0) == 3.0


def test_read_only_constants_are_taken_and_a_wrong_number_of_arguments_is_named():
    constant = np.full(2, 10.0)
    constant.flags.writeable = False

    @njit
    def constant_vector(pair):
        return grown(pair, constant, 1, False)

    @njit
    def too_few(pair):
        return grown(pair)

    given = Pair(np.ones((2, 2)), 1.0)
    np.testing.assert_array_equal(constant_vector(given).matrix, 11.0)
    with pytest.raises(TypingError, match=r"test_separate\.grown"):
        too_few(given)
