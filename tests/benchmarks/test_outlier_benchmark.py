"""Wrong rows are those of the protocol, and finished parts are kept."""

import numpy as np
import pandas as pd
import pytest

import benchmarks.outliers as outliers


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("kind", outliers.KINDS)
def test_wrong_rows(kind, share):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    X_wrong, y_wrong, wrong = outliers.corrupted(kind, share, X, y, rng)
    right = np.setdiff1d(np.arange(200), wrong)
    assert len(wrong) == len(set(wrong)) == round(200 * share)
    assert np.array_equal(X_wrong[right], X[right]) and np.array_equal(y_wrong[right], y[right])
    shift = (y_wrong - y)[wrong] / y.std()
    if kind == "focused":
        assert np.ptp(X_wrong[wrong], axis=0).max() < 0.3 and np.abs(X_wrong[wrong]).max() < 0.5
        assert np.ptp(y_wrong[wrong]) < 0.1 and y_wrong[wrong].max() < -2.0
    else:
        assert np.array_equal(X_wrong, X)
        assert np.abs(shift).min() >= 3.0 and np.abs(shift).max() <= 9.0
        assert len(set(np.sign(shift))) == (2 if kind == "uniform" else 1)


def test_the_synthetic_set_has_its_covariance():
    y = np.array([outliers.synthetic(np.random.default_rng(i))[1] for i in range(60)])
    assert y.std() == pytest.approx(np.sqrt(1.01), abs=0.05)
    step = 20 / 299
    assert np.mean((y[:, 15:] - y[:, :-15]) ** 2) == pytest.approx(2.02 - 2 * np.exp(-0.5 * (15 * step) ** 2), rel=0.1)


@pytest.mark.slow
def test_a_robust_peer_ignores_an_error_and_finished_parts_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(outliers, "PEERS", {name: outliers.PEERS[name] for name in ("GPR", "Huber")})
    monkeypatch.setattr(outliers, "_warm_up", lambda: None)
    monkeypatch.setitem(outliers.PEERS, "bsvr_pp", lambda X, y: (lambda X: X[:, 0], np.arange(3)))
    file = tmp_path / "outliers.csv"
    outliers.main(None, ["synthetic"], None, [10], 1, file)
    first = file.read_text()
    errors = pd.read_csv(file).query("kind == 'uniform'").set_index("package")["error"]
    assert errors["Huber"] < errors["GPR"]
    outliers.main(None, ["synthetic"], None, [10], 1, file)
    assert file.read_text() == first and len(first.splitlines()) == 1 + 3 * 3
