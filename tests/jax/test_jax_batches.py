"""Blocks in batches of common sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jax", reason="JAX is not installed")

from bsvr_pp.jax.device import batches, common_size, memory_of


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.floats(1e4, 1e7))
def test_each_block_is_in_one_batch_with_its_rows(sizes, memory):
    rows = np.split(np.random.default_rng(0).permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    found = batches(rows, memory)
    assert sorted(np.concatenate([batch.blocks for batch in found])) == list(range(len(sizes)))
    for blocks, index, used in found:
        b, m = index.shape
        assert used.shape == (b, m)
        assert b >= len(blocks)
        assert b == 1 or b * memory_of(m) <= memory
        for place in range(b):
            block = rows[blocks[place] if place < len(blocks) else blocks[0]]
            np.testing.assert_array_equal(index[place][used[place]], block)
            assert set(index[place][~used[place]]) <= {block[0]}


def test_sizes_are_few_and_not_much_larger():
    assert [common_size(n) for n in (1, 500, 513, 700, 1000, 2000)] == [8, 512, 728, 728, 1024, 2048]
    sizes = np.array([common_size(n) for n in range(1, 3000)])
    assert (sizes % 8 == 0).all()
    assert len(np.unique(sizes[499:1000])) <= 3
    n = np.arange(1, 3000)
    assert (sizes >= n).all()
    assert (sizes[63:] <= 1.5 * n[63:]).all()


def test_a_single_block_is_not_filled_up():
    (batch,) = batches([np.array([3, 1, 2])], 1.0)
    assert batch.rows.tolist() == [[3, 1, 2]]
    assert batch.used.all()


def test_blocks_are_filled_up_by_copies_of_their_first_row():
    first, second = batches([np.arange(3), np.arange(3, 9), np.arange(9, 21)], 1e9)
    assert first.blocks.tolist() == [0, 1]
    assert first.rows[0].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    assert second.rows.shape == (1, 16)


def test_batches_of_a_size_have_one_shape():
    rows = np.split(np.arange(70), 7)
    shapes = {batch.rows.shape for batch in batches(rows, 3 * memory_of(16))}
    assert shapes == {(3, 16)}  # of 7 blocks, and two copies
