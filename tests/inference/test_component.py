"""Models whose prior is independent between blocks of rows, in every inference."""

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.model.reader import read_model

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(60, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.laplace(size=60)
BLOCKS = bp.local_blocks(X, rows=20)
AT = {"lengthscale": 0.7, "C": 10.0, "epsilon": 0.1}
NEW = np.linspace(-3, 3, 41)[:, None]


def make(blocks=None, X=X, y=Y, **options):
    with pm.Model() as model:
        lengthscale = pm.InverseGamma("lengthscale", 3, 1)
        C, epsilon = pm.LogNormal("C", 1, 1.5), pm.LogNormal("epsilon", -2, 1)
        kernel = pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(10.0)
        gp = bp.GP(cov_func=kernel, mean_func=pm.gp.mean.Constant(0.1))
        f = gp.prior("f", X=X, blocks=blocks, **options)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    return model


@pytest.fixture(scope="module")
def model():
    return make(BLOCKS)


@pytest.fixture(scope="module")
def result(model):
    return bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)


@pytest.mark.slow
def test_one_block_is_the_dense_model_bit_for_bit():
    one = make(bp.local_blocks(X, rows=60))
    assert not read_model(one).blocks.several
    fits = [bp.fit(bp.MeanField(), m, random_seed=0, restarts=1, progressbar=False) for m in (one, make())]
    for group in ("posterior", "latent_posterior"):
        for name, values in fits[0][group].data_vars.items():
            np.testing.assert_array_equal(values, fits[1][group][name])
    one_prediction, prediction = (bp.predict(f, NEW, model=m) for f, m in zip(fits, (one, make()), strict=True))
    np.testing.assert_array_equal(one_prediction["f_mean"], prediction["f_mean"])


def test_the_own_block_alone_is_the_model(model, result):
    K, mean, noise = read_model(make()).at(AT)
    exact = mean_field(np.where(BLOCKS.label[:, None] == BLOCKS.label, K.dense(), 0.0), Y, noise, mean=mean)
    cross, diagonal, offset = read_model(make()).cross(AT, NEW)
    own = BLOCKS.assign(NEW)[:, None]
    f_mean, f_variance = exact.predict(np.where(own == BLOCKS.label, cross, 0.0), diagonal, offset)
    found = bp.predict(result, NEW, model=model)
    np.testing.assert_allclose(found["f_mean"], f_mean, atol=1e-5)
    np.testing.assert_allclose(found["f_variance"], f_variance, atol=1e-5)


@pytest.mark.slow
def test_results_of_other_partitions_are_not_compared(model, result):
    other = make(bp.local_blocks(X, rows=30))
    second = bp.fit(bp.MeanField(), other, hyperparameters=AT, random_seed=0, progressbar=False)
    whole = bp.fit(bp.MeanField(), make(), hyperparameters=AT, random_seed=0, progressbar=False)
    for changed in (second, whole):
        with pytest.raises(ValueError, match=r"was computed with other blocks than results\['three'\]"):
            bp.compare({"three": result, "other": changed}, model=model)
    with pytest.raises(ValueError, match="was computed with other blocks than the model has"):
        bp.predict(result, NEW, model=make())


def test_other_data_need_other_blocks():
    with pm.Model() as model:
        inputs, targets = pm.Data("X", X), pm.Data("targets", Y)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=inputs, blocks=BLOCKS)
        bp.EpsilonInsensitive("y", mu=f, C=5.0, epsilon=0.1, observed=targets)
        before = bp.fit(bp.MeanField(), random_seed=0, progressbar=False)
        model.set_data("targets", 2 * Y)
        after = bp.fit(bp.MeanField(), random_seed=0, progressbar=False)
        assert after.attrs["log_evidence"] < before.attrs["log_evidence"]
        pm.set_data({"X": X[:50], "targets": Y[:50]})
        with pytest.raises(ModelError, match="blocks must be of the 50 rows of X, got blocks of 60 rows"):
            bp.fit(bp.MeanField(), random_seed=0, progressbar=False)


def test_blocks_take_one_process_alone():
    with pm.Model():
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, blocks=BLOCKS)
        g = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=3.0)).prior("g", X=X)
        bp.EpsilonInsensitive("y", mu=f + g, C=5.0, epsilon=0.1, observed=Y)
        with pytest.raises(ModelError, match="blocks take one process alone: add the kernels of several"):
            bp.fit(bp.MeanField(), progressbar=False)


def test_full_nuts_names_its_limit():
    many = RNG.normal(size=(2001, 1))
    large = make(bp.local_blocks(many, rows=1001), many, many[:, 0])
    with pytest.raises(ModelError, match="2001 rows, and takes at most 2000 rows in blocks: use NUTS"):
        bp.fit(bp.NUTS(), large)
