"""Targets that are missing have no factor, and are predicted: the model is that of the other rows."""

import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

import bsvr_pp as bp
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

N = 9
MISSING = np.arange(N) % 4 == 1
KNOWN = ~MISSING
X = np.linspace(0.0, 1.0, N)[:, None]
GROUP = np.arange(N) % 3
Y = np.sin(4 * X[:, 0]) + 0.2 * GROUP
SIGMA = np.linspace(0.1, 0.3, N)
AT = {"s": 0.2}


def observe(kind, mu, s, y, rows):
    if kind == "normal":
        return pm.Normal("y", mu, s, observed=y)
    if kind == "errors":
        return pm.Normal("y", mu, SIGMA[rows], observed=y)
    if kind == "by data":
        return pm.Laplace("y", mu, s * pm.Data("size", 1.0 + SIGMA[rows]), observed=y)
    if kind == "soft":
        return bp.SoftInsensitive("y", mu, C=1 / s, epsilon=0.1, beta=0.3, observed=y)
    if kind == "censored":
        return pm.Censored("y", bp.Huber.dist(mu, 1 / s, 0.1), lower=None, upper=0.9, observed=np.minimum(y, 0.9))
    if kind == "interval":
        return bp.Interval("y", mu, C=1 / s, lower=Y[rows] - 0.1, upper=Y[rows] + 0.1, observed=y)
    classes = np.ma.masked_array((Y[rows] > 0.5).astype(int), mask=np.ma.getmaskarray(y))
    return bp.Ordinal("y", mu, cutpoints=[0.0], C=1 / s, observed=classes)


def build(kind, rows=slice(None), X=X, plain=False):
    """A process, and an effect of groups unless it is plain; targets of the missing rows are masked."""
    y = np.ma.masked_array(Y, mask=MISSING)[rows]
    y = y if np.ma.getmaskarray(y).any() else Y[rows]
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):  # PyMC's, that it draws what is missing
        s = pm.LogNormal("s", np.log(0.2), 0.1)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5)).prior("f", X=pm.Data("X", X[rows]))
        if not plain:
            f = pm.Deterministic("mu", f + pm.Normal("u", shape=3)[pm.Data("group", GROUP[rows])])
        observe(kind, f, s, y, rows)
    return model


def fit(method, model, **options):
    return bp.fit(method, model, hyperparameters=AT, random_seed=0, progressbar=False, **options)


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("normal", "by data", "censored", "interval")]


@pytest.mark.slow_cases("ordinal", "soft")
@pytest.mark.parametrize("kind", ["errors", "soft", "ordinal", *SLOW])
def test_the_model_is_that_of_the_known_rows(kind):
    model, known = build(kind), build(kind, KNOWN)
    for method in (bp.MAP(), bp.Laplace(), bp.MeanField()) if kind == "soft" else (bp.MeanField(),):
        result, expected = fit(method, model, draws=9 if kind == "errors" else 2000), fit(method, known)
        assert result.attrs["log_evidence"] == pytest.approx(expected.attrs["log_evidence"], abs=1e-8)
    np.testing.assert_allclose(result["latent_posterior"]["mean"], expected["latent_posterior"]["mean"], atol=1e-8)
    np.testing.assert_allclose(result["moments"]["u"], expected["moments"]["u"], atol=1e-8)
    assert [result[group]["y_observed"].shape[-1] for group in ("observed_data", "log_likelihood")] == [KNOWN.sum()] * 2
    rows = {"X": X[MISSING], "group": GROUP[MISSING]}
    at_known, at_all = (
        bp.predict(each, model=m, data=rows, component="f") for each, m in ((expected, known), (result, model))
    )
    np.testing.assert_allclose(at_all["f_mean"], at_known["f_mean"], atol=1e-7)
    moments = result["moments"].to_dataset()
    assert moments["f"].shape == (2, N)
    np.testing.assert_allclose(moments["f"][0][MISSING], at_known["f_mean"], atol=1e-5)  # with and without jitter
    drawn = result["posterior"]["y_unobserved"].values[0]
    if kind == "errors":  # which no new rows have
        with pytest.raises(ValueError, match="the noise has a value for each training point"):
            bp.predict(result, model=model, data=rows)
        np.testing.assert_allclose(
            moments["y_unobserved"][1] ** 2, moments["mu"][1][MISSING] ** 2 + SIGMA[MISSING] ** 2
        )
        return
    if kind == "by data":
        rows["size"] = 1.0 + SIGMA[MISSING]
    seen = bp.predict(result, model=model, data=rows)
    error = np.sqrt(seen["y_variance"] / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - seen["y_mean"]) < 5 * error).all()
    np.testing.assert_allclose(drawn.var(axis=0), seen["y_variance"], rtol=0.3)
    if kind != "ordinal":
        np.testing.assert_allclose(moments["y_unobserved"][0], seen["y_mean"], atol=1e-5)
        np.testing.assert_allclose(moments["y_unobserved"][1] ** 2, seen["y_variance"], rtol=1e-4)


@pytest.mark.slow
def test_one_process_alone_is_known_at_all_rows():
    model = build("soft", plain=True)
    result, expected = fit(bp.MeanField(), model), fit(bp.MeanField(), build("soft", KNOWN, plain=True))
    assert result.attrs["log_evidence"] == pytest.approx(expected.attrs["log_evidence"], abs=1e-8)
    assert result["posterior"]["f"].shape == (1, 500, N)
    seen = bp.predict(result, X, model=model)
    np.testing.assert_allclose(seen["f_mean"], result["moments"]["f"].sel(moment="mean"), atol=1e-5)
    predicted = pm.sample_posterior_predictive(result, model=model, var_names=["y"], progressbar=False)
    np.testing.assert_array_equal(
        predicted["posterior_predictive"]["y"][..., MISSING], result["posterior"]["y_unobserved"]
    )


@pytest.mark.slow
def test_sampling_predicts_what_is_missing():
    model = build("soft")
    assert [v.name for v in bp.marginalize(bp.MeanField(), model).free_RVs] == ["s"]
    expected = fit(bp.MeanField(), model, draws=3000)["posterior"]["y_unobserved"]
    options = {"draws": 300, "tune": 100, "chains": 1}
    for method, made in ((bp.NUTS(latent=bp.MeanField(), **options), model), (bp.NUTS(**options), pm.do(model, AT))):
        with warnings.catch_warnings(action="ignore", category=bp.ConvergenceWarning):
            result = bp.fit(method, made, random_seed=0, progressbar=False)
        assert "other_methods" not in result.attrs
        found = result["posterior"]["y_unobserved"]
        sd = expected.std(("chain", "draw")).values
        assert (np.abs((found - expected).mean(("chain", "draw")).values) < 0.5 * sd).all()
        np.testing.assert_allclose(found.std(("chain", "draw")).values, sd, rtol=0.35)


@pytest.mark.slow
def test_data_of_the_model_may_change():
    model = build("soft")
    result = fit(bp.MeanField(), model)
    with model:
        pm.set_data({"X": 2 * X})
    with pytest.raises(ValueError, match="computed with other inputs than the model has"):
        bp.predict(result, model=model, data={"X": X, "group": GROUP})
    expected = fit(bp.MeanField(), build("soft", X=2 * X)).attrs["log_evidence"]
    assert fit(bp.MeanField(), model).attrs["log_evidence"] == pytest.approx(expected)


@pytest.mark.slow
def test_what_is_computed_over_rows_has_no_new_ones():
    """The mean is that of all rows, also of those whose target is missing."""
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        x = pm.Data("x", X[:, 0])
        mu = pm.Normal("b") * (x - x.mean())
        pm.Normal("y", mu, pm.math.exp(x - x.mean()), observed=np.ma.masked_array(Y, mask=MISSING))
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    centred = (X[:, 0] - X.mean())[KNOWN]
    K = np.outer(centred, centred) + np.diag(np.exp(2 * centred))
    assert result.attrs["log_evidence"] == pytest.approx(multivariate_normal(cov=K).logpdf(Y[KNOWN]), abs=1e-6)
    assert "y_unobserved" not in result["posterior"]  # whose noise is not known row by row
    with pytest.raises(ValueError, match="has a value for each training"):
        bp.predict(result, model=model, data={"x": X[:3, 0]})
    with pm.Model() as walk, warnings.catch_warnings(action="ignore"):
        steps = pm.GaussianRandomWalk("w", sigma=0.3, init_dist=pm.Normal.dist(0.0, 1.0), steps=len(Y) - 1)
        pm.Normal("y", steps, 0.2, observed=np.ma.masked_array(Y, mask=MISSING))
    draws = bp.fit(bp.MeanField(), walk, draws=2000, random_seed=0, progressbar=False)["posterior"]
    beyond = draws["y_unobserved"].values[0] - draws["w"].values[0][:, MISSING]  # one noise for all rows is known
    np.testing.assert_allclose(beyond.std(axis=0), 0.2, rtol=0.1)


@pytest.mark.slow
def test_constant_places_of_f_have_new_rows():
    """f at some of its inputs, each once, is a function of the inputs of new rows."""
    places = np.array([7, 0, 3, 5, 2])
    model = process_model(lambda name, f: pm.Normal(name, f[places], 0.1, observed=Y[places]), X, ls=0.5)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    assert read_model(model).inputs.tolist() == X[places].tolist()
    np.testing.assert_allclose(
        bp.predict(result, X, model=model)["f_mean"], result["moments"]["f"].sel(moment="mean"), atol=1e-4
    )


@pytest.mark.slow
def test_data_of_the_noise_have_the_order_of_the_targets_where_all_rows_are_in_another_order():
    order = np.array([7, 0, 3, 5, 2, 8, 1, 4, 6])
    model = process_model(lambda name, f: pm.Normal(name, f[order], pm.Data("sd", SIGMA), observed=Y), X, ls=0.5)
    K = np.exp(-2.0 * (X - X.T) ** 2) + 1e-6 * np.eye(N)
    expected = multivariate_normal(cov=K[np.ix_(order, order)] + np.diag(SIGMA**2)).logpdf(Y)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow_cases(
    "same-places",
    "same-number",
    "same-groups",
    "same-one of a vector",
    "mixed-number",
    "mixed-variable",
    "mixed-one of a vector",
    "same-variable",
    "mixed-places",
)
@pytest.mark.parametrize(
    "noise",
    {
        "places": lambda order: pm.Data("sd", np.arange(4, 40, 4))[order],  # whole numbers are widths
        "number": lambda order: 20,
        "variable": lambda order: pm.HalfNormal("s"),
        "groups": lambda order: pm.HalfNormal("s", shape=3)[GROUP],
        "one of a vector": lambda order: pm.HalfNormal("s", shape=3)[0],
    }.items(),
    ids=lambda case: case[0],
)
@pytest.mark.parametrize("order", [np.array([7, 0, 3, 5, 2, 8, 1, 4, 6]), np.arange(N)], ids=["mixed", "same"])
def test_noise_of_all_rows_in_another_order(noise, order):
    kind, make = noise
    model = process_model(lambda name, f: pm.Normal(name, f[order], make(order), observed=Y), X, ls=0.5)
    sd = {"places": np.arange(4.0, 40.0, 4.0)[order], "number": 20.0, "groups": np.array([0.2, 0.7, 3.0])[GROUP]}
    s = np.array([0.2, 0.7, 3.0]) if kind in ("groups", "one of a vector") else 0.2
    at = {"s": s} if "s" in model.named_vars else {}
    K = np.exp(-2.0 * (X - X.T) ** 2) + 1e-6 * np.eye(N)
    expected = multivariate_normal(cov=K[np.ix_(order, order)] + np.eye(N) * sd.get(kind, 0.2) ** 2).logpdf(Y)
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(expected, abs=1e-6)
    if kind != "groups":
        data = {"data": {"sd": np.arange(4, 40, 4)}} if kind == "places" else {}
        known = bp.predict(result, X, model=model, **data)["f_mean"]
        np.testing.assert_allclose(known, result["moments"]["f"].sel(moment="mean"), atol=1e-4)


def test_a_variable_below_missing_targets_without_data_is_no_term():
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        y = pm.Normal("y", pm.Normal("m", shape=N), 0.3, observed=np.ma.masked_array(Y, mask=MISSING))
        pm.Normal("new", y, 0.5)
    expected = multivariate_normal(cov=1.09 * np.eye(KNOWN.sum())).logpdf(Y[KNOWN])
    assert bp.fit(bp.MeanField(), model, progressbar=False).attrs["log_evidence"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_terms_of_missing_values_are_in_the_density_or_refused():
    """A covariate with a gap is a Gaussian variable; what depends on a missing target is not left out."""
    with_gap = np.ma.masked_array([0.5, 0.0], mask=[False, True])
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X[:2])
        x = pm.Normal("x", 0.0, 2.0, observed=with_gap)
        pm.Normal("y", f + x, 0.3, observed=Y[:2])
    found = bp.fit(bp.MeanField(), model, progressbar=False).attrs["log_evidence"]
    K = np.exp(-0.5 * (X[:2] - X[:2].T) ** 2) + 1e-6 * np.eye(2) + np.diag([0.09, 4.09])
    assert found == pytest.approx(multivariate_normal(mean=[0.5, 0.0], cov=K).logpdf(Y[:2]), abs=1e-6)
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X[:2])
        y = pm.Normal("y", f, 0.3, observed=with_gap)
        pm.Potential("sum", pm.logp(pm.Normal.dist(y.sum(), 0.1), 5.0))
    with pytest.raises(ValueError, match="the variable y_unobserved depends on the latent function"):
        bp.fit(bp.MeanField(), model, progressbar=False)


@pytest.mark.slow
def test_a_dimension_that_grows_later_grows_without_the_missing_targets():
    def model(count):
        with pm.Model(coords={"group": range(count)}) as made, warnings.catch_warnings(action="ignore"):
            pm.Data("size", np.zeros(count), dims="group")
            u = pm.ZeroSumNormal("u", 1.0, dims="group")
            pm.Normal("y", u[pm.Data("g", GROUP)], 0.3, observed=np.ma.masked_array(Y, mask=MISSING))
        return made

    grown = model(3)
    bp.fit(bp.MeanField(), grown, progressbar=False)
    pm.set_data({"size": np.zeros(6)}, model=grown, coords={"group": range(6)})
    found, expected = (bp.fit(bp.MeanField(), each, progressbar=False) for each in (grown, model(6)))
    assert found.attrs["log_evidence"] == pytest.approx(expected.attrs["log_evidence"], abs=1e-9)


@pytest.mark.slow
def test_places_from_the_end_may_repeat_a_row():
    """-1 and the last place are one value of f, whose jitter they share."""
    places = np.array([0, 3, N - 1, -1])
    prior = {"jitter": 0.1}
    model = process_model(lambda name, f: pm.Normal(name, f[places], 0.1, observed=Y[places]), X, ls=0.5, prior=prior)
    K = np.exp(-2.0 * (X - X.T) ** 2) + 0.1 * np.eye(N)
    expected = multivariate_normal(cov=K[np.ix_(places, places)] + 0.01 * np.eye(4)).logpdf(Y[places])
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_data_may_be_equal_to_the_mask():
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        seen = pm.Data("seen", KNOWN)
        mu = pm.Normal("a") + pm.Normal("b") * seen
        pm.Normal("y", mu, 0.3, observed=np.ma.masked_array(Y, mask=MISSING))
    result = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)
    moments = result["moments"].to_dataset()
    seen = bp.predict(result, model=model, data={"seen": [1, 0]})["f_mean"]
    np.testing.assert_allclose(seen, [moments["a"][0] + moments["b"][0], moments["a"][0]], atol=1e-6)
    np.testing.assert_allclose(moments["y_unobserved"][0], float(moments["a"][0]), atol=1e-6)
