"""Partitions of rows into local blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bsvr_pp as bp
from bsvr_pp.model import blocks as partition
from bsvr_pp.model.blocks import Blocks


@st.composite
def inputs(draw):
    """Inputs with clusters, ties, constant columns, heavy tails or identical rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 400)), draw(st.integers(1, 4))
    X = rng.normal(size=(n, d))
    kind = draw(st.sampled_from(["smooth", "grid", "tails", "repeated", "clusters"]))
    if kind == "grid":
        X = np.round(X)
    elif kind == "tails":
        X = np.sinh(8 * X)
    elif kind == "repeated":
        X[rng.random(n) < 0.7] = 1.5
    elif kind == "clusters":
        X += 100.0 * rng.integers(0, 3, size=(n, 1))
    if draw(st.booleans()):
        X[:, 0] = 7.0
    return X


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(inputs(), st.integers(2, 60))
def test_a_region_holds_its_rows_except_identical_ones(X, rows):
    blocks = bp.local_blocks(X, rows=rows)
    own = blocks.assign(X)
    for i in np.flatnonzero(own != blocks.label):
        assert (X[blocks.rows(own[i])] == X[i]).all(axis=1).any()


def test_identical_rows_are_cut_by_row_number():
    blocks = bp.local_blocks(np.ones((10, 2)), rows=4)
    assert sorted(members.tolist() for members in blocks) == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_tiny_blocks_join_a_neighbour_with_room():
    X = np.concatenate([np.linspace(0, 1, 50), np.linspace(10, 11, 50), [11.5]])[:, None]
    blocks = bp.local_blocks(X, rows=60)
    assert blocks.sizes.min() >= 60 / 8
    assert blocks.label[-1] == blocks.label[-2]


def test_lengthscales_decide_which_inputs_are_near():
    X = np.random.default_rng(0).uniform(size=(400, 2))
    for lengthscale, narrow in ([1.0, np.inf], 0), ([np.inf, 1.0], 1):
        blocks = bp.local_blocks(X, rows=100, lengthscale=lengthscale)
        spans = np.array([np.ptp(X[members], axis=0) for members in blocks])
        assert spans[:, narrow].max() < 0.6
        assert spans[:, 1 - narrow].min() > 0.9


def test_a_partition_is_plain_data():
    X = np.random.default_rng(0).normal(size=(200, 3))
    blocks = bp.local_blocks(X, rows=30)
    again = Blocks.from_arrays({name: array.tolist() for name, array in blocks.to_arrays().items()})
    assert np.array_equal(blocks.label, again.label)
    np.testing.assert_array_equal(blocks.assign(2 * X), again.assign(2 * X))
    alone = Blocks.from_arrays(Blocks(blocks.label).to_arrays())
    assert np.array_equal(alone.label, blocks.label)
    assert alone.regions is None


def test_a_partition_cannot_be_changed():
    blocks = bp.local_blocks(np.arange(6.0)[:, None], rows=3)
    with pytest.raises(ValueError, match="read-only"):
        blocks.label[0] = 1


def test_few_rows_are_one_block():
    blocks = bp.local_blocks(np.arange(6.0)[:, None])
    assert len(blocks) == 1
    assert blocks.assign([[3.0]]).tolist() == [0]


@settings(max_examples=60, deadline=None)
@given(inputs(), st.integers(1, 40), st.integers(20, 100))
def test_regions_of_a_sample_hold_all_rows(X, rows, whole):
    """Beyond some number of rows a sample is cut, and blocks that are too large are cut again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_WHOLE", whole)
        blocks = bp.local_blocks(X, rows=rows)
    assert sorted(np.concatenate(list(blocks))) == list(range(len(X)))
    assert blocks.sizes.min() >= 1 and blocks.sizes.max() <= rows
    assert all((np.diff(members) > 0).all() for members in blocks)
    own = blocks.assign(X)
    for i in np.flatnonzero(own != blocks.label):  # tied rows, cut by their numbers
        same = np.abs(X - X[i]).max(axis=1) <= 1e-6 * np.ptp(X, axis=0).max()
        assert (blocks.label[same] == own[i]).any()
    Z = X / blocks.regions.lengthscale
    for block in range(len(blocks)):
        np.testing.assert_allclose(
            blocks.regions.middle[block], Z[blocks.rows(block)].mean(axis=0), atol=1e-9 * np.abs(Z).max()
        )


def scattered(rows=100):
    """Points, many of them equal, in blocks whose inputs have several lengthscales."""
    X = np.random.default_rng(0).normal(size=(1500, 3))
    X[:350] = X[0]
    return X, bp.local_blocks(X, rows, lengthscale=[1.0, 0.5, 2.0])


@pytest.mark.parametrize("rows", [50, 2000])
def test_regions_within_a_distance_hold_all_rows_within_it(rows):
    X, blocks = scattered(rows)
    Z, rng = X / blocks.regions.lengthscale, np.random.default_rng(1)
    left = []
    for x, radius in zip(rng.normal(size=(40, 3)), rng.uniform(0, 1, 40), strict=True):
        near = np.linalg.norm(Z - x / blocks.regions.lengthscale, axis=1) <= radius
        found = blocks.regions.within(x[None], np.array([radius]))
        assert np.isin(blocks.label[near], found).all()
        left.append(len(blocks) - found.size)
    assert rows == 2000 or np.mean(left) > 0.5 * len(blocks)


def test_blocks_that_have_grown_are_divided_and_others_stay():
    X, blocks = scattered()
    new = np.random.default_rng(1).normal(size=(1000, 3))
    own = blocks.assign(new)
    grown = np.unique(own)[::2]
    given = [(int(b), np.concatenate([X[blocks.rows(b)], new[own == b]])) for b in grown]
    regions, labels = blocks.regions.divided(given, 100)
    for (block, rows), label in zip(given, labels, strict=True):
        assert block in label and np.bincount(label).max() <= 100
        different = len(np.unique(rows, axis=0)) == len(rows)  # equal rows are cut by their number
        assert not different or (regions.assign(rows) == label).all()
        for part in np.unique(label):
            np.testing.assert_allclose(regions.middle[part], (rows[label == part] / regions.lengthscale).mean(axis=0))
    others = ~np.isin(own, grown)
    np.testing.assert_array_equal(regions.assign(new[others]), own[others])
    fresh = np.unique(np.concatenate(labels))
    assert fresh[fresh >= len(blocks)].tolist() == list(range(len(blocks), len(regions.middle)))


def test_all_rows_are_one_block():
    """What holds for a partition that was cut into one block holds for all rows, which takes no array of their size."""
    X = np.arange(12.0).reshape(6, 2)
    one, cut = partition.ONE_BLOCK, bp.local_blocks(X, rows=10)
    assert (one.local, cut.local) == (False, True)
    for blocks in (one, cut):
        assert (len(blocks), blocks.several) == (1, False)
        np.testing.assert_array_equal(X[blocks.rows(0)], X)
        assert blocks.label_of(6).tolist() == blocks.assign(X).tolist() == [0] * 6
        assert blocks.grown(X).label_of(12).tolist() == [0] * 12
        assert blocks.each(lambda i: i + 1, range(3)) == [1, 2, 3]
    assert np.shares_memory(X[one.rows(0)], X) and one.to_arrays() == {}


def test_some_rows_are_those_of_whole_blocks():
    blocks, rng = Blocks(np.array([0, 1, 2, 3] * 3)), np.random.default_rng(0)
    rows, parts = blocks.some(5, 12, rng)
    assert len(parts) == 2 and parts.sizes.tolist() == [3, 3]
    for block in parts:
        assert len(set(blocks.label[rows[block]])) == 1
    rows, whole = partition.ONE_BLOCK.some(5, 12, rng)
    assert np.unique(rows).size == 5 and whole is partition.ONE_BLOCK
