"""Masked targets are refused by their name; the model of the other rows is that of PyMC. Places of f are rows of it."""

import warnings

import numpy as np
import pymc as pm
import pytest

import bsvr_pp as bp

N = 9
MISSING = np.arange(N) % 4 == 1
X = np.linspace(0.0, 1.0, N)[:, None]
Y = np.sin(4 * X[:, 0])


def build(kind, y, X=X):
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's, that it draws what is missing
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5)).prior("f", X=X)
        if kind == "normal":
            pm.Normal("y", f, 0.2, observed=y)
        elif kind == "soft":
            bp.SoftInsensitive("y", f, C=5.0, epsilon=0.1, beta=0.3, observed=y)
        else:
            bp.Ordinal("y", f, cutpoints=[0.5], C=5.0, observed=np.ma.masked_array(y > 0.5, y.mask).astype(int))
    return model


@pytest.mark.parametrize("kind", ["normal", "soft", "ordinal"])
def test_targets_with_gaps_are_refused(kind):
    model = build(kind, np.ma.masked_array(Y, mask=MISSING))
    for call in (lambda: bp.fit(bp.MeanField(), model), lambda: bp.marginalize(bp.MeanField(), model)):
        with pytest.raises(bp.ModelError, match=r"targets y have gaps: leave these rows out, and predict them by bp\."):
            call()


@pytest.mark.slow
def test_rows_that_are_left_out_are_predicted_as_pymc_samples_them():
    known = build("normal", Y[~MISSING], X[~MISSING])
    expected = bp.predict(bp.fit(bp.MeanField(), known, progressbar=False), X[MISSING], model=known)
    method = bp.NUTS(draws=400, tune=200, chains=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bp.fit(method, build("normal", np.ma.masked_array(Y, mask=MISSING)), random_seed=0, progressbar=False)
    drawn = found["posterior"]["y_unobserved"]
    sd = np.sqrt(expected["y_variance"].values)
    assert (np.abs(drawn.mean(("chain", "draw")).values - expected["y_mean"].values) < 0.4 * sd).all()
    np.testing.assert_allclose(drawn.std(("chain", "draw")).values, sd, rtol=0.35)


@pytest.mark.parametrize("places", [[7, 0, 3, 5, 2], [0, 3, N - 1, -1]])
def test_f_at_some_of_its_inputs(places):
    """-1 and the last place are one value of f, whose jitter they share."""
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5)).prior("f", X=X, jitter=0.1)
        pm.Normal("y", f[np.array(places)], 0.1, observed=Y[places])
    K = np.exp(-2.0 * (X - X.T) ** 2) + 0.1 * np.eye(N)
    S = K[np.ix_(places, places)] + 0.01 * np.eye(len(places))
    expected = -0.5 * (Y[places] @ np.linalg.solve(S, Y[places]) + np.linalg.slogdet(2 * np.pi * S)[1])
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(expected, abs=1e-6)
    mean = K[:, places] @ np.linalg.solve(S, Y[places])
    np.testing.assert_allclose(result["moments"]["f"].sel(moment="mean"), mean, atol=1e-6)
