"""The experiments on censored targets and on ordered classes: their data, and one fit of each."""

import censoring
import numpy as np
import ordinal
import pytest

from bsvr_pp.datasets import data_folder

pytestmark = pytest.mark.slow  # experiments of the papers

with_data = pytest.mark.skipif(
    not (data_folder() / "pyrim.csv").is_file(), reason="the papers' data sets are not at hand"
)


def test_the_share_of_censored_targets_and_what_is_known():
    X, ends, X_new, y_new = censoring.draw(3)
    assert np.isinf(ends[:, 1]).mean() == 0.4 and np.isfinite(ends[:, 0]).all()
    exact = np.isfinite(ends[:, 1])
    np.testing.assert_array_equal(ends[exact, 0], ends[exact, 1])
    assert X.shape == (80, 1) and np.std(y_new - np.sin(X_new[:, 0])) == pytest.approx(0.2, abs=0.03)


def test_intervals_recover_the_function_where_limits_do_not():
    found = {way: censoring.fit(0, way) for way in ("intervals", "as exact")}
    assert found["intervals"]["error"] < 0.5 * found["as exact"]["error"]


def test_bins_have_equal_lengths_and_wrong_labels_their_share():
    y = np.linspace(2.0, 4.0, 1000)
    np.testing.assert_array_equal(np.bincount(ordinal.binned(y, 5)), 200)
    assert ordinal.binned(y, 10).max() == 9
    classes = np.arange(200) % 5
    changed = ordinal.corrupted(classes, 0.1, 5, np.random.default_rng(0))
    assert (changed != classes).sum() == 20 and set(changed) == set(range(5))


@with_data
def test_one_split_of_ordered_classes():
    assert {name: len(ordinal.split(name, 5, 0.1, 0)[1]) for name in ordinal.SETS} == {
        name: size for name, (_, size, _) in ordinal.SETS.items()
    }
    clean, wrong = (ordinal.split("Pyrimidines", 5, share, 0) for share in (0.0, 0.1))
    np.testing.assert_array_equal(clean[3], wrong[3])
    assert (clean[1] != wrong[1]).sum() == 5
    found = ordinal.fit("Pyrimidines", 5, 0.1, 0, "Soft insensitive")
    assert 0 <= found["wrong"] <= 1 and found["wrong"] <= found["MAE"] and np.isfinite(found["log loss"])
