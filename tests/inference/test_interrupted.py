"""Runs that are interrupted or killed."""

import arviz as az
import numpy as np
import nutpie
import pytest

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.inference.sampling.nuts import complete_draws

DATA = sinc(12, random_seed=3)


def ragged(*lengths, draws=10):
    values = np.arange(float(len(lengths) * draws)).reshape(len(lengths), draws)
    for row, length in zip(values, lengths, strict=True):
        row[length:] = np.nan
    return az.from_dict({"posterior": {"C": values}, "sample_stats": {"energy": values}})


@pytest.mark.parametrize(
    ("lengths", "shape"),
    [((10, 10), (2, 10)), ((10, 7), (2, 7)), ((10, 0), (1, 10)), ((10, 3, 9), (2, 9)), ((6, 0, 0), (1, 6))],
)
def test_as_many_draws_as_can_be_kept(lengths, shape):
    tree = complete_draws(ragged(*lengths), 10, ["C"])
    values = tree["posterior"].to_dataset()["C"]
    assert values.shape == shape
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(tree["sample_stats"].to_dataset()["energy"], values)
    assert complete_draws(ragged(*lengths), 4, ["C"])["posterior"].sizes["draw"] <= 4


def test_nothing_drawn_is_an_interruption():
    with pytest.raises(KeyboardInterrupt):
        complete_draws(ragged(0, 0), 10, ["C"])


@pytest.mark.slow
def test_an_interrupt_before_the_first_draw_is_a_keyboard_interrupt(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(nutpie.sample.__globals__["_BackgroundSampler"], "wait", interrupt)
    method = bp.NUTS(latent=bp.Laplace(curvature="local"), draws=60, tune=100_000, chains=2)
    with pytest.raises(KeyboardInterrupt):
        bp.fit(method, bp.default_model(DATA.X, DATA.y), random_seed=1, progressbar=False)
