"""Importance weights with and without a tail."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats

import bsvr_pp as bp
from bsvr_pp.assess.weights import pareto_weights


def test_with_a_tail_they_are_arviz_own():
    ratio = np.random.default_rng(0).normal(size=400)
    log_weights, k_hat = pareto_weights(ratio)
    expected, shape = array_stats.psislw(-ratio)
    np.testing.assert_array_equal(log_weights, expected)
    assert k_hat == shape
    # The largest ratio has the largest weight.
    assert np.argmax(log_weights) == np.argmax(ratio)


def test_a_few_equal_ratios_are_no_reason_to_leave_the_tail_out():
    """The tail of 100 ratios has 20 of them; here 5 are equal."""
    ratio = np.r_[np.random.default_rng(0).normal(size=95), np.full(5, 4.0)]
    log_weights, k_hat = pareto_weights(ratio)
    expected, shape = array_stats.psislw(-ratio)
    np.testing.assert_array_equal(log_weights, expected)
    assert k_hat == shape != 0.0


@pytest.mark.parametrize(
    "ratio",
    [
        np.full(60, -3.0),
        -3.0 + 1e-13 * np.random.default_rng(0).normal(size=60),
        np.r_[np.zeros(59), -5.0],
        np.r_[np.zeros(30), np.ones(30)],
        np.zeros(26),
    ],
    ids=["equal", "equal to rounding", "one smaller", "two values", "few"],
)
def test_without_a_tail_they_are_the_ratios_themselves(ratio):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_weights, k_hat = pareto_weights(ratio)
    assert k_hat == 0.0
    np.testing.assert_allclose(np.exp(log_weights), np.exp(ratio) / np.exp(ratio).sum())


def test_an_exact_posterior_has_a_k_hat_of_zero():
    """Under Gaussian noise mean field is exact, and all ratios are equal."""
    X = np.linspace(-2, 2, 12)[:, None]
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        pm.Normal("y", mu=f, sigma=pm.HalfNormal("sigma"), observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, hyperparameters={"sigma": 0.2}, progressbar=False)
    table = bp.compare({"mean field": result}, model=model, loo=False)
    assert table.loc["mean field", "k-hat"] == 0.0
    assert table.loc["mean field", "verdict"] == "no problem was found"
