"""Bad input to everything public: the error names the argument and the value, and nothing is left behind.

A new public name fails the first test until it has cases here.
"""

import json
import re
import tempfile
import warnings
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pymc as pm
import pytest
import xarray as xr
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import RepeatedKFold

import bsvr_pp as bp
from bsvr_pp import approximations, classification, losses
from bsvr_pp.core import approximations as core_approximations
from bsvr_pp.core.approximations.mean_field import nearest_moments
from bsvr_pp.core.approximations.smc import Annealing
from bsvr_pp.inference.prediction.distribution import LOGARITHM, UNSCALED, Root
from bsvr_pp.inference.prediction.neighbours import NoiseScales
from bsvr_pp.integrations.botorch import to_botorch
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.show.report import ComparisonTable
from tests.helpers import process_model, refuse_command, soft

N = 6
X = np.linspace(-2, 2, N)[:, None]
Y = np.sin(X[:, 0])
K, ROWS = np.exp(-0.5 * (X - X.T) ** 2), np.arange(N)[:, None]
NOISE = losses.soft_insensitive(5.0, 0.1, 0.3)
AT = {"amplitude": 1.0, "inverse_lengthscale": 1.0, "C": 5.0, "epsilon": 0.1}
NAN, INF = np.full(N, np.nan), np.full(N, np.inf)
RNG = np.random.default_rng(0)
MANY = RNG.normal(size=(20, 2))
TARGETS = MANY[:, 0] + 0.1 * RNG.normal(size=20)
LABELS = np.where(TARGETS > 0, 1, 0)
GRAM = np.exp(-0.5 * ((MANY[:, None] - MANY) ** 2).sum(axis=2))
INNER = MANY @ MANY.T
ALIKE = csr_array(MANY + 1e8)
GAPS = np.full((20, 2), np.nan)
SPARSE = csr_array(np.where(MANY > 0, MANY, 0.0))
MASKED = np.ma.array(TARGETS, mask=np.arange(20) == 3)
WHOLE = 2**60 + np.arange(20)
ENDS = np.stack([TARGETS, TARGETS + 1.0], axis=1)
SIGNS = np.where(Y > 0, 1.0, -1.0)
TABLE = pd.DataFrame(np.c_[X[:, 0], X[:, 0] ** 2], columns=["a", "b"])
WORDS = pd.DataFrame({"x": MANY[:, 0], "word": np.where(MANY[:, 1] > 0, "a", "b")})
AB, UNSORTED = ["a", "b"] * 10, pd.Categorical(["b", "a"] * 10, ["b", "a"], ordered=True)
FRAME, ARROW = pd.DataFrame(GRAM), pa.DictionaryArray.from_arrays([1, 0] * 10, ["a", "b"], ordered=True)
EXCHANGE, ON_JAX = classification.Exchange(), bp.NUTS(latent=bp.MeanField(), nuts_sampler="numpyro")
ordinal_model = classification.default_ordinal_model


# What is no (n,) array of numbers, and how an error says so after the argument's name.
NO_VECTOR = [
    ("abc", "must be an array of numbers, got str"),
    (["a"] * N, "must be an array of numbers, got list"),
    ([[1], [1, 2]], "must be an array of numbers, got list"),
    (object(), "must be an array of numbers, got object"),
    (Y + 1j, "must be an array of numbers, got complex128"),
    (np.ma.array(Y, mask=Y[0] < Y), r"must have no masked entries, got \d: leave them out, or fill them"),
    (NAN, "must be finite, got nan"),
    (INF, "must be finite, got inf"),
    ([], r"must (not be empty|be .* array), got shape \(0,\)"),
    (np.ones((N, 2)), r"must be an? \(.*,\) array, got shape \(6, 2\)"),
    (np.ones(4), r"must (have 6 values as K has rows, got 4|be a \(6,\) array, got shape \(4,\))"),
]
# The same of a matrix.
NO_MATRIX = [case for case in NO_VECTOR[:6]] + [
    (np.full((N, 1), np.nan), "must be finite, got nan|must be an? .* array"),
    (np.full((N, 1), np.inf), "must be finite, got inf|must be an? .* array"),
    (np.empty((0, 1)), r"must (not be empty|be .* array), got shape \(0, 1\)"),
    (Y, r"must be an? .* array, got shape \(6,\)"),
    (np.ones((N, 1, 1)), r"must be an? .* array, got shape \(6, 1, 1\)"),
]


def recipe(text):
    return xr.DataTree(xr.Dataset(attrs={"recipe": text}))


def of_targets(*names):
    return bp.BayesianSVR.from_result(recipe(json.dumps({"estimator": "BayesianSVR", "targets": names})))


def quick(*args, **options):
    return approximations.annealed(*args, Annealing(particles=20, groups=2, moves=1), **options)


ON_ARRAYS = {
    "find_mode": approximations.find_mode,
    "laplace": approximations.laplace,
    "laplace_gradient": core_approximations.laplace_gradient,
    "mean_field": approximations.mean_field,
    "mean_field_gradient": core_approximations.mean_field_gradient,
    "annealed": quick,
}


@cache
def posterior():
    """A posterior of arrays; not while tests are collected, since each process would compile for it."""
    return approximations.mean_field(K, Y, NOISE)


@pytest.fixture(scope="module")
def s():
    """A model with its results, and a model of labels."""
    model = bp.default_model(X, Y, kernel="rbf")
    labels = process_model(bp.SVMLabel, X, C=lambda: pm.LogNormal("C", 0, 1), observed=np.sign(X[:, 0]))
    methods = (bp.MeanField(), bp.MAP())
    field, mode = (bp.fit(m, model, hyperparameters=AT, random_seed=0, progressbar=False) for m in methods)
    return SimpleNamespace(
        model=model,
        labels=labels,
        result=field,
        mode=mode,
        results={"mean field": field},
        other=bp.default_model(X[:4], Y[:4], kernel="rbf"),
        marginal=bp.marginalize(bp.MeanField(), model),
        prediction=bp.predict(field, X, model=model, y_new=Y),
    )


def in_intervals(lower, upper):
    with pm.Model():
        return bp.Interval("y", np.zeros(N), lower, upper, C=1.0)


def observed(noise=bp.SoftInsensitive, y=Y, **parameters):
    """Fit a model without hyperparameters."""
    model = process_model(noise, X, **{"C": 5.0, "epsilon": 0.1, **parameters}, observed=y)
    return bp.fit(bp.MeanField(), model, progressbar=False)


def plain(X, y):
    """Fit a model without hyperparameters to any data."""
    return bp.fit(bp.MeanField(), process_model(pm.Normal, X, sigma=1.0, observed=y), progressbar=False)


def observing(how):
    """A model that `calibrate` refuses for what it observes, or for what draws from it ignore."""
    with pm.Model() as model:
        s = 1.0 if how == "no hyperparameter" else pm.HalfNormal("s")
        f = bp.GP(cov_func=s * pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        if how == "labels":
            bp.classification.KnownLabel("y", f=f, C=1.0, observed=SIGNS)
        elif how == "interval":
            bp.Interval("y", f, Y - 0.5, Y + 0.5, C=5.0, epsilon=0.1, beta=0.3)
        elif how == "gaps":
            bp.Huber("y", f, C=1.0, epsilon=0.1, observed=np.where(Y > 0.5, np.nan, Y))
        elif how != "none":
            pm.Normal("y", f, 0.3, observed=Y)
        if how == "twice":
            pm.Normal("z", f, 0.3, observed=Y)
        if how == "potential":
            pm.Potential("rest", -s)
    return model


def ordered():
    """A model with a transform that leaves out half of the prior."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=2, transform=pm.distributions.transforms.ordered, initval=[0.0, 1.0])
        pm.Normal("y", bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X), pm.math.exp(a[0]), observed=Y)
    return model


def discrete(of_location=False):
    free = {"ls": lambda: 1.0 + pm.Poisson("degree", 3.0), "C": lambda: pm.LogNormal("C", 0, 1)}
    if of_location:
        return process_model(lambda name, f: pm.Normal(name, f + pm.Poisson("degree", 3.0), 1.0, observed=Y), X)
    return process_model(soft, X, **free, observed=Y)


def unread(axes=1):
    """A model that `bp.NUTS()` alone takes."""
    with pm.Model() as model:
        pm.Exponential("y", pm.HalfNormal("rate"), observed=np.abs(Y) + 1.0) if axes == 1 else pm.Normal(
            "y", pm.Normal("mean"), 1.0, observed=np.outer(Y, [1.0, 2.0])
        )
    return model


def of_pymc():
    """A result of such a model."""
    return xr.DataTree(xr.Dataset(attrs={"inference": "NUTS", "other_methods": "do not apply: x"}))


@cache
def two_targets():
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X[:, :1])
        pm.Normal("one", f, 1.0, observed=Y)
        pm.Normal("two", f + pm.Normal("b") * pm.Data("h", Y), 1.0, observed=Y)
    return {"result": bp.fit(bp.Laplace(), model, progressbar=False, draws=9), "model": model, "X_new": X[:1, :1]}


@cache
def with_names():
    """A model of a table with a line besides, and the result."""
    model = process_model(lambda name, f: soft(name, pm.Normal("level") + f, C=2.0, observed=Y), TABLE)
    found = bp.fit(bp.MAP(), model, progressbar=False, draws=9)
    assert bp.predict(found, TABLE, model=model)["f_mean"].shape == Y.shape
    return found, model


def effect_of_names(*names):
    """The effect of a result at a table with columns of these names."""
    model = process_model(soft, TABLE, C=2.0, observed=Y)
    found = bp.fit(bp.MeanField(), model, progressbar=False, draws=9)
    return bp.effect(found, TABLE.set_axis(list(names), axis=1), "a", model=model)


def transposed(result):
    """A result whose draws have the dimension of the chains last."""
    found = result.copy()
    found["posterior"] = xr.DataTree(result["posterior"].to_dataset().transpose("draw", "chain", ...))
    return found


def with_dims(dim="row", given=None):
    """The evidence of a model with a labelled hyperparameter, at given values."""
    with pm.Model(coords={dim: ["first"], "input": ["x"]}) as model:
        lengthscale = pm.LogNormal("lengthscale", dims="input")
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=X)
        bp.SoftInsensitive("y", f, C=2.0, epsilon=0.1, beta=0.3, observed=Y)
    return bp.log_evidence(bp.MeanField(), model, hyperparameters={"lengthscale": 1.0 if given is None else given})


def with_other_names(*names):
    """Predict at a table with columns of other names than those of the model."""
    found, model = with_names()
    return bp.predict(found, TABLE.set_axis(list(names), axis=1), model=model)


def with_other_rows(fixed=False):
    """Predict by a model whose data have another number of rows than in training."""
    with pm.Model() as model:
        f, z = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X), pm.Data("z", Y)
        pm.Normal("y", f + (z if fixed else pm.Normal("b") * z), 1.0, observed=Y)
        result = bp.fit(bp.MeanField(), progressbar=False)
        pm.set_data({"z": Y[:2]})
    return bp.predict(result, X[:2], model=model, data={"z": Y[:2]})


def plot_of_parts():
    """A picture of a location that depends on data of each row."""
    of_parts = partial(soft, C=2.0, observed=Y)
    model = process_model(lambda name, f: of_parts(name, f + pm.Normal("b") * pm.Data("z", Y)), X)
    return bp.plot_predictive({"found": bp.fit(bp.MeanField(), model, progressbar=False, draws=9)}, model=model)


def with_another_kernel():
    return bp.predict(observed(beta=0.3), X, model=process_model(soft, X, ls=1.1, C=5.0, observed=Y))


@cache
def of_classes(noise):
    """A model of classes, known labels or two that are ordered, and its result."""
    options = {"cutpoints": [0.0], "epsilon": 0.1, "beta": 0.3} if noise is bp.Ordinal else {}
    model = process_model(noise, X, C=5.0, **options, observed=(SIGNS + 1) / 2 if options else SIGNS)
    return {"model": model, "result": bp.fit(bp.MeanField(), model, progressbar=False)}


def blocked(blocks, labels=False):
    """Fit a model with blocks."""
    noise = partial(bp.SVMLabel, observed=SIGNS) if labels else partial(bp.EpsilonInsensitive, epsilon=0.1, observed=Y)
    return bp.fit(bp.MeanField(), process_model(noise, X, prior={"blocks": blocks}, C=5.0), progressbar=False)


def prior(X=X, cov_func=None, **options):
    with pm.Model():
        return bp.GP(cov_func=cov_func or pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, **options)


def estimator(cls, **options):
    """An estimator with settings that are quick to fit."""
    defaults = {
        bp.BayesianSVR: {"restarts": 1, "random_state": 0, "inference": "mean_field"},
        bp.BayesianSVC: {"random_state": 0},
        bp.ResidualIntervals: {"estimator": LinearRegression(), "random_state": 0},
    }
    return cls(**{**defaults.get(cls, {}), **options})


def fitted(cls, X=MANY, y=None, **options):
    targets = LABELS if cls is bp.BayesianSVC else TARGETS
    return estimator(cls, **options).fit(X, targets if y is None else y)


svr, svc, ordinal = (partial(fitted, cls) for cls in (bp.BayesianSVR, bp.BayesianSVC, bp.BayesianOrdinalSVC))
machine = partial(estimator, bp.BayesianSVR)
usual = cache(svr)


def of_matrix(K=GRAM, new=None, cls=bp.BayesianSVR, y=None, **options):
    """The mean and standard deviation, or the probabilities, by a kernel that is a matrix."""
    made = fitted(cls, K, y, kernel="precomputed")
    if new is None:
        return made
    return made.predict(new, return_std=True, **options) if y is None else made.predict_proba(new, **options)


def kernel_of_rows(X):
    """A kernel with a hyperparameter for each row."""
    return pm.gp.cov.ExpQuad(2, pm.HalfNormal("scale", 1.0, shape=len(X))[0])


@cache
def several():
    """A fit of two targets."""
    return fitted(bp.BayesianSVR, y=ENDS - [[0.0, 3.0]], kernel="rbf", inference="mean_field")


def one_target():
    return several().estimators_[0]


def of_objects(function, given=tuple(MANY)):
    given = list(given) if isinstance(given, tuple) else given
    return fitted(bp.BayesianSVR, given, kernel=bp.PairwiseKernel(function))


@cache
def of_sparse():
    """A regression of sparse inputs."""
    return fitted(bp.BayesianSVR, SPARSE, kernel="rbf", inference="mean_field")


def into_folder(data, y=TARGETS, target=None, sample_weight=None, **options):
    """A fit into a folder, which must not be made."""
    svr = bp.BayesianSVR(**{"random_state": 0, **options})
    with tempfile.TemporaryDirectory() as place:
        try:
            return bp.fit_folder(svr, data, y, folder=f"{place}/model", target=target, sample_weight=sample_weight)
        finally:
            assert list(Path(place).iterdir()) == []


def seeds(call, word="random_seed"):
    return [(lambda s, seed=seed: call(s, seed), rf"{word} must be .* got {seed!r}") for seed in ("a", -1)]


def each(call, cases, name):
    return [(lambda s, bad=bad: call(s, bad), f"{name} {message}") for bad, message in cases]


def options(call, **bad):
    """Cases of one option each: its bad values, and after them what the message says."""
    cases = []
    for name, (*values, message) in bad.items():
        for value in values:
            cases.append((lambda s, name=name, value=value: call(s, **{name: value}), f"{name} {message}"))
    return cases


def evidence_of_kernel(X, matrix=None):
    kernel = matrix is not None and (lambda: bp.cov.Precomputed(pm.Data("K", matrix)))
    return bp.log_evidence(bp.MeanField(), process_model(pm.Normal, X, ls=0.3, kernel=kernel, sigma=0.1, observed=Y))


@cache
def sampled():
    model = bp.default_model(X, Y, kernel="rbf")
    method = bp.NUTS(latent=bp.MeanField(), draws=5, tune=5, chains=1, nuts_sampler="pymc")
    with warnings.catch_warnings(action="ignore"):
        return bp.fit(method, model, random_seed=0, progressbar=False)


def exchanged(s):
    method = classification.Exchange(draws=4, tune=0, chains=1, steps=1)
    with warnings.catch_warnings(action="ignore"):
        return bp.fit(method, s.labels, random_seed=0, progressbar=False)


def CLASSES(call, remedy):
    """Cases of what takes a result and needs the distribution of real targets."""
    words = f"takes real targets, and the model has classes: {remedy}"
    return [
        (lambda s, noise=noise: call(**of_classes(noise)), words) for noise in (classification.KnownLabel, bp.Ordinal)
    ]


def without_posteriors():
    """An estimator whose hyperparameters were sampled."""
    svr = fitted(bp.BayesianSVR)
    svr._fit = replace(svr._fit, found=replace(svr._fit.found, posteriors=[], draws=xr.DataTree()))
    return svr


def LABELLED(cls):
    """Cases of labels that are missing or have no order."""
    missing = (pd.NA, None, np.nan, pd.NaT)
    columns = [pd.Series([1, None] * 10, dtype=kind) for kind in ("Int64", "boolean", "category", "int64[pyarrow]")]
    words = [pd.Series(["a", None] * 10, dtype=kind) for kind in ("string", "string[pyarrow]", "category")]
    made = cache(lambda: fitted(cls, y=AB, kernel="rbf"))
    return [
        *[
            (lambda s, y=y: fitted(cls, y=y), "y must have a label in each row, got .* in row 1: leave rows without")
            for y in [*(["a", bad] + ["b", "a"] * 9 for bad in missing), *columns, *words, np.array([1.0, np.nan] * 10)]
        ],
        (lambda s: fitted(cls, y=["a", 1] * 10), "y must have labels of one type, words or numbers, got int, str"),
        (lambda s: fitted(cls, y=np.array([1, 2**64 - 1] * 10, np.uint64)), "numbers below 2\\*\\*63, got 1844674"),
        (lambda s: made().score(MANY, AB, -np.ones(20)), "sample_weight must be >= 0, got -1"),
    ]


def LATER(cls, **bad):
    """Cases of options that are wrong after the fit."""
    made = cache(lambda: fitted(cls, y=LABELS, kernel="rbf"))
    return [
        (lambda s, o={name: value}, use=use: use(copy(made()).set_params(**o)), f"{name} must be .*got {value!r}")
        for name, value in bad.items()
        for use in (lambda made: made.predict(MANY), lambda made: made.save("/dev/null/fit.nc"))
    ]


def NO_SPREAD(call):
    """Cases of data whose differences vanish in squares or in rounding."""
    return [
        (lambda s: call(X, 1e-200 * Y), "y must have a standard deviation of at least 1e-150, got .*e-201: use other"),
        (lambda s: call(1e-200 * X, Y), "X must have a standard deviation of at least 1e-150, got .*e-200: use other"),
        (lambda s: call(X, 1e8 + 1e-8 * np.arange(N)), r"y must .* at least 1e-12 of its size, got .* at 1e\+08: the"),
        (lambda s: call(1e8 + 1e-8 * np.arange(N)[:, None], Y), "X must .* lost in rounding, subtract an offset"),
    ]


def evidence_of_labels(s, **changed):
    given = {"method": bp.MeanField(), "model": s.labels, "hyperparameters": {"C": 1.0}, "kind": "conditional"}
    return bp.log_evidence(**given | changed)


NO_COUNT_OR_NONE = ("a", 0, -1, 1.5, "must be an integer of at least")
NO_COUNT, NO_SHARE = (None, *NO_COUNT_OR_NONE), ("a", 0, 1, -0.5, np.nan, None)
STRICTLY = "must lie strictly between 0 and 1, got"
BY_FIT = "must be a result of fit, got"
SPARSE_KERNELS = "sparse X needs one of the kernels auto, linear, rbf, rational_quadratic"
DENSELY = "sparse matrix are fitted densely: use blocks=None, or reduce"
ARD = "ard is an option of kernels with lengthscales, got ard=False with kernel"
NO_INPUTS = "kernel matrix have no inputs, by which blocks are cut: use blocks=None"
ESTIMATORS = (bp.BayesianSVR, bp.BayesianSVC, bp.LSSVR, bp.BayesianLSSVR, bp.ResidualIntervals)

PUBLIC = {
    "GP": [
        *each(lambda s, bad: prior(X=bad), NO_MATRIX[:2], "X"),
        *each(lambda s, bad: prior(X=bad), NO_MATRIX[5:], "X"),
        (lambda s: prior(cov_func="rbf"), "cov_func must be a kernel of pm.gp.cov, got 'rbf'"),
        (lambda s: prior(cov_func=2 * (pm.gp.cov.Linear(1, 0.0) + K) ** 2), "array in a sum or product of kernels"),
        *options(lambda s, **o: prior(**o), jitter=("a", -1.0, "must be a number of at least 0, got")),
        (lambda s: prior(n_outputs=2), "n_outputs must be 1"),
        (lambda s: prior(blocks=3), "blocks must come from bp.local_blocks, got int"),
        (lambda s: blocked(bp.local_blocks(X[:4], rows=2)), "blocks must be of the 6 rows of X, got blocks of 4 rows"),
        (lambda s: blocked(bp.local_blocks(X, rows=3), labels=True), "y are labels, whose model has no blocks"),
    ],
    "Blocks": [
        *each(
            lambda s, bad: Blocks(bad),
            [(bad, "must be an .n,. array of the numbers") for bad in ("a", [], [0.0, 1.0], [0, 2], [-1, 0], [[0]])],
            "label",
        ),
        (lambda s: Blocks(np.zeros(N, dtype=int)).assign(X), "blocks must have regions to assign new points"),
        (lambda s: bp.local_blocks(X).assign(MANY), r"X must be an? \(m, 1\) array, got shape"),
    ],
    "local_blocks": [
        *each(lambda s, bad: bp.local_blocks(bad), NO_MATRIX, "X"),
        *options(
            lambda s, **o: bp.local_blocks(X, **o), rows=NO_COUNT, lengthscale=(0.0, -1.0, "must be positive, got")
        ),
        (lambda s: bp.local_blocks(X, lengthscale=[1.0, 2.0]), r"lengthscale must be a number or a \(1,\) array"),
        (lambda s: bp.local_blocks(1e100 * X, lengthscale=1e-300), "lengthscale must not be so small that inputs over"),
        *seeds(lambda s, seed: bp.local_blocks(X, random_seed=seed)),
    ],
    "MAP": [(lambda s: bp.fit(bp.MAP, s.model), "method must be MAP.*got <class")],
    "Laplace": [
        (lambda s: bp.Laplace("x"), "curvature must be 'exact' or 'local', got 'x'"),
        *(
            (lambda s, o=o: bp.Laplace("y", *o[0], **o[1]), "bp.Laplace is a method .*write pm.Laplace")
            for o in (((), {"mu": Y}), ((Y, 1.0), {}), ((), {"observed": Y}))
        ),
    ],
    "MeanField": [(lambda s: bp.fit(bp.MeanField, s.model), "method must be .*got <class")],
    "NUTS": [
        *options(
            lambda s, **o: bp.NUTS(**o),
            draws=NO_COUNT,
            tune=NO_COUNT,
            chains=NO_COUNT,
            target_accept=(*NO_SHARE, STRICTLY),
            latent=("a", "must be None or integrate f out, as Laplace.*got 'a'"),
            nuts_sampler=("a", 3, "must be nutpie, pymc, numpyro or blackjax, got"),
            cores=NO_COUNT_OR_NONE,
            nuts_sampler_kwargs=("a", 3, {"a": np.ones(2)}, "must be a dict to numbers and words, got"),
        ),
        (lambda s: bp.NUTS(nuts_sampler_kwargs={"draws": 3}), "nuts_sampler_kwargs must not have draws, which is an"),
        (
            lambda s: bp.fit(bp.NUTS(None, 5, 5, 1, nuts_sampler_kwargs={"foo": 1}), unread()),
            "nuts_sampler_kwargs must have options of nutpie: .*foo",
        ),
    ],
    "Annealed": options(
        lambda s, **o: bp.Annealed(**o),
        particles=(1, *NO_COUNT),
        groups=(1, *NO_COUNT),
        moves=NO_COUNT,
        efficiency=(*NO_SHARE, STRICTLY),
    ),
    "KnownLabel": [
        (lambda s: pm.logp(classification.KnownLabel.dist(0.0, -1.0), 1).eval(), "C > 0"),
        (lambda s: pm.draw(classification.KnownLabel.dist(0.0, -1.0)), "C > 0"),
        (lambda s: pm.logp(classification.KnownLabel.dist(0.0, 1.0, reach=-1.0), 1).eval(), "reach > 0"),
    ],
    "NormalisedEvidence": [
        *options(
            lambda s, **o: classification.NormalisedEvidence(**o),
            kind=("x", None, "must be one of naive, conditional, joint, got"),
            latent=("x", bp.MAP(), bp.MeanField, "must integrate f out, .*got"),
            steps=("a", -1, 1.5, None, "must be an integer of at least 0, got"),
            particles=(1, *NO_COUNT),
        ),
        (lambda s: bp.fit(classification.NormalisedEvidence(), s.model), "y is no label but has soft_insensitive"),
        (
            lambda s: bp.fit(
                classification.NormalisedEvidence(),
                classification.default_label_model(X, np.sign(X[:, 0] - np.median(X[:, 0]) + 1e-9), known=True),
            ),
            r"y is a label with known_label noise, .*or bp\.fit with bp\.MeanField\(\)",
        ),
        *options(
            lambda s, **o: bp.fit(classification.NormalisedEvidence(), s.labels, **o),
            evidence=("naive", "is for methods that search by their own evidence, got"),
            restarts=(7, "is for methods that search by their own evidence, got"),
        ),
    ],
    "Exchange": [
        *options(
            lambda s, **o: classification.Exchange(**o),
            draws=NO_COUNT,
            tune=("a", -1, 1.5, None, "must be an integer of at least 0, got"),
            chains=NO_COUNT,
            steps=NO_COUNT,
            restarts=("a", -1, 1.5, None, "must be an integer of at least 0, got"),
            slices=NO_COUNT,
        ),
        (lambda s: bp.fit(EXCHANGE, s.model), "y is no label but has soft_insensitive noise"),
        (lambda s: bp.fit(EXCHANGE, s.labels, hyperparameters={"C": 1.0}), "hyperparameters must leave something"),
    ],
    "SoftInsensitive": [
        *options(
            lambda s, **o: observed(**{"beta": 0.3} | o),
            C=(-1.0, np.nan, "must be finite and > 0, got"),
            epsilon=(-0.1, np.inf, "must be finite and >= 0, got"),
            beta=(1.5, "must be finite and between 0 and 1, got"),
        ),
        (lambda s: observed(beta=0.3, y=NAN), "the targets y_observed have no value"),
        (lambda s: observed(beta=0.3, y=INF), "y and X must be finite"),
        (lambda s: observed(beta=0.3, ls=0.0), "K must be finite, got nan"),
        (lambda s: observed(beta=0.3, factor=-1.0), "K must have no negative diag"),
        (lambda s: pm.draw(bp.SoftInsensitive.dist(0.0, 5.0, np.inf, 0.3)), "C > 0, epsilon >= 0, .*all finite"),
    ],
    "EpsilonInsensitive": [
        (lambda s: observed(bp.EpsilonInsensitive, C=-1.0), r"C must be finite and > 0, got -1\.0"),
        (lambda s: pm.logp(bp.EpsilonInsensitive.dist(0.0, -1.0, 0.1), 0.0).eval(), "C > 0, epsilon >= 0"),
    ],
    "Huber": [
        (lambda s: observed(bp.Huber, epsilon=-1.0), r"epsilon must be finite and >= 0, got -1\.0"),
        (lambda s: pm.logp(bp.Huber.dist(0.0, 1.0, np.inf), 0.0).eval(), "C > 0, epsilon >= 0, all finite"),
    ],
    "Interval": [
        (lambda s: bp.Interval.dist(0.0, 0.0, 1.0, noise="x"), "noise must be one of .*got 'x'"),
        (lambda s: bp.Interval.dist(0.0, 0.0, 1.0), "Interval with soft_insensitive noise takes C, .*got nothing"),
        (lambda s: bp.Interval.dist(0.0, 0.0, 1.0, C=1.0, beta=0.3, noise="absolute"), "takes C, got C, beta"),
        (lambda s: bp.Interval.dist(0.0, 8.0, 0.1, lower=Y, upper=Y), "by position.*, got lower, upper twice after mu"),
        (lambda s: bp.Interval.dist(0.0, -1.0, 1.0, 2.0, C=8.0), "takes mu, lower, upper, C, .*got C twice after mu"),
        (lambda s: in_intervals(Y, Y - 1.0), r"lower must be at most upper, got .* > .* in row 0"),
        (lambda s: in_intervals(-INF, INF), r"lower or upper must be finite, got \(-inf, inf\) in row 0"),
        (lambda s: in_intervals(NAN, Y), "lower must .*got nan"),
        (lambda s: in_intervals(Y[:2], Y), r"lower and upper must be \(n,\) arrays of one length, got shapes"),
        (lambda s: in_intervals(Y, pm.math.constant(Y)), "observed must be given, a finite number for each row"),
        (lambda s: NOISE.between(Y, Y).sites(Y[:2]), "y must have 6 values as there are intervals, got 2"),
        (lambda s: NOISE.between(Y, Y).tilted(Y[:2], 1.0, 0.0), "mean must have 6 values, one per interval, got 2"),
        (lambda s: losses.hinge(1.0).between(Y, Y), "hinge is a loss of labels and has no intervals"),
    ],
    "Ordinal": [
        (lambda s: bp.Ordinal.dist(0.0, [0.0, 1.0], noise="hinge"), "noise must be one of .*got 'hinge'"),
        (lambda s: bp.Ordinal.dist(0.0, [0.0, 1.0]), "Ordinal with soft_insensitive noise takes C, .*got nothing"),
        (lambda s: bp.Ordinal.dist(0.0, [0.0, 1.0], 2.0, 0.3, 0.5, 0.5), "by position.*, got 5 values after mu"),
        (lambda s: pm.logp(bp.Ordinal.dist(0.0, [1.0, 0.0], C=1.0), 1).eval(), "cutpoints ascending"),
        (lambda s: pm.logp(bp.Ordinal.dist(0.0, [0.0, 1.0], C=-1.0), 1).eval(), "C > 0"),
    ],
    "default_ordinal_model": [
        *each(lambda s, bad: ordinal_model(bad, LABELS[:N]), NO_MATRIX, "X"),
        *each(lambda s, bad: ordinal_model(X, bad), NO_VECTOR, "y"),
        (lambda s: ordinal_model(X, Y), r"y must hold classes 0, 1, ..., got"),
        (lambda s: ordinal_model(X, np.ones(N)), "y must hold at least two classes, got only 1"),
        (lambda s: ordinal_model(X, np.arange(N), noise="pinball"), "noise of classes must be one of"),
        (lambda s: ordinal_model(X, np.arange(N), kernel="x"), "kernel must be .*got 'x'"),
    ],
    "BayesianOrdinalSVC": [
        *LABELLED(bp.BayesianOrdinalSVC),
        *LATER(bp.BayesianOrdinalSVC, decision="Mode"),
        (lambda s: ordinal(y=np.ones(20)), r"y must hold at least two classes, got one class"),
        (lambda s: ordinal(y=UNSORTED), r"y must have categories in sorted order, got b < a: .*\(y\).cat.codes"),
        (lambda s: ordinal(y=pd.DataFrame({"y": UNSORTED})), "y must have categories in sorted order, got b < a: "),
        (
            lambda s: ordinal(y=pa.DictionaryArray.from_arrays([1, 0] * 10, AB[:2], ordered=True)),
            "got the order of a dict",
        ),
        *options(
            lambda s, **o: ordinal(y=LABELS, **o),
            noise=("x", None, "pinball", "of classes must be one of .*got"),
            kernel=("x", "must be .*rbf, matern32.*got 'x'"),
            decision=("x", "must be one of median, mode, got 'x'"),
            ard=("x", 1, "must be True or False, got"),
            inference=("x", bp.MAP(), bp.NUTS(), "must be one of .*got"),
            restarts=NO_COUNT_OR_NONE,
            blocks=("x", 1, 1.5, "must be 'auto', None, an integer of at least 2 or LocalBlocks, got"),
            random_state=("a", -1, "must be an integer of at least 0, a RandomState or None, got"),
        ),
        *[
            (lambda s, by=by: ordinal(y=LABELS, blocks=10, inference=by), words)
            for by, words in (
                ("nuts", "in blocks takes exact targets without sample_weight, and no classes: use blocks=None"),
                (bp.Integrated(), "takes a dense fit, and 20 rows need blocks"),
            )
        ],
    ],
    "SVMLabel": [
        (lambda s: pm.logp(bp.SVMLabel.dist(0.0, -1.0), 1).eval(), "C > 0"),
        (lambda s: pm.draw(bp.SVMLabel.dist(0.0, -1.0)), "C > 0"),
        (lambda s: bp.fit(bp.MAP(), s.labels), "C would be chosen by the naive evidence of y"),
        (lambda s: bp.fit(ON_JAX, s.model, progressbar=False), "nuts_sampler='numpyro' needs a density that JAX can"),
    ],
    "default_priors": [
        *each(lambda s, bad: bp.default_priors(bad, Y), NO_MATRIX, "X"),
        *each(lambda s, bad: bp.default_priors(X, bad), NO_VECTOR, "y"),
        *NO_SPREAD(bp.default_priors),
        (lambda s: bp.default_priors(X, Y, noise="x"), "noise must be one of .*got 'x'"),
    ],
    "default_model": [
        *each(lambda s, bad: bp.default_model(bad, Y), NO_MATRIX, "X"),
        *each(lambda s, bad: bp.default_model(X, bad), NO_VECTOR, "y"),
        (lambda s: bp.default_model(X, np.ones(N)), r"y must not be constant, got 1\.0 throughout"),
        (lambda s: bp.default_model(X[:1], Y[:1]), "y must not be constant"),
        (lambda s: bp.default_model(X, 1e200 * Y), r"y must stay within ±1e\+150, got .*e\+199"),
        (lambda s: bp.default_model(1e200 * X, Y), r"X must stay within ±1e\+150, got 2e\+200"),
        *NO_SPREAD(bp.default_model),
        (lambda s: bp.default_model(X, Y, blocks=3), "blocks must come from bp.local_blocks, got int"),
        (lambda s: bp.default_model(X, Y, noise="pinball", beta=0.5), r"beta is an option of soft_.*beta=0\.5 with p"),
        (lambda s: bp.default_model(X, Y, quantile=0.9), r"quantile is an option of pinball noise, got quantile=0\.9"),
        (lambda s: bp.default_model(X, Y, kernel=lambda Z: 1, ard=False), "ard is an option of kernels with"),
        *options(
            lambda s, **o: bp.default_model(X, Y, **o),
            noise=("x", None, "must be one of .*got"),
            kernel=("x", 3, "must be .*rbf, .*got"),
            beta=("x", -0.1, 1.1, np.nan, "must lie between 0 and 1, got"),
            quantile=(*NO_SHARE, STRICTLY),
        ),
    ],
    "ModelError": [(lambda s: bp.fit(bp.MAP(), pm.Model()), "the model must have an observed variable of f")],
    "fit": [
        (lambda s: bp.fit("laplace", s.model), r"method must be .*got 'laplace': write bp.fit\(bp.Laplace\(\), model"),
        (lambda s: bp.fit("mean_field", s.model), r"got 'mean_field': write bp.fit\(bp.MeanField\(\), model"),
        (lambda s: bp.fit(bp.NUTS, s.model), r"method must be .*: write bp.fit\(bp.NUTS\(\), model"),
        (lambda s: bp.fit(s.model, bp.MAP()), r"method comes before model: write bp.fit\(bp.Laplace\(\), model"),
        (lambda s: bp.fit(bp.NUTS(), s.model, draws=10), "draws is for methods at a point of the hyperparameters, got"),
        (lambda s: bp.fit(bp.MAP(), unread(2)), "the targets y must have one axis, the rows, got 2 axes"),
        (lambda s: bp.fit(bp.MAP()), "model must be given"),
        (lambda s: bp.fit(bp.MAP(), "m"), "model must be a pm.Model, got str"),
        *options(
            lambda s, **o: bp.fit(bp.MAP(), s.model, **o),
            restarts=NO_COUNT_OR_NONE,
            draws=NO_COUNT_OR_NONE,
            objective=("x", "must be 'posterior' or 'evidence', got 'x'"),
            evidence=("x", "must be 'naive' or None, got 'x'"),
            hyperparameters=([1.0], "C", "must be a dict from names to values, got"),
        ),
        *each(
            lambda s, bad: bp.fit(bp.MAP(), s.model, hyperparameters=AT | {"C": bad}),
            [
                (-1.0, "must lie inside the support of its prior, got -1.0"),
                (np.nan, "must be finite, got nan"),
                ("a", "must be numbers of shape .*got 'a'"),
                ([1.0, 2.0], "must be numbers of shape .*got"),
            ],
            "hyperparameter C",
        ),
        (
            lambda s: bp.fit(bp.NUTS(latent=bp.MeanField()), s.model, hyperparameters=AT),
            r"NUTS \(mean field\) samples hyperparameters, and none is free: use MeanField\(\)",
        ),
        (lambda s: bp.fit(bp.MAP(), s.model, hyperparameters={"z": 1.0}), "hyperparameters has no variable 'z'"),
        (lambda s: bp.fit(bp.NUTS(), s.model, objective="evidence"), "objective='evidence' is for methods that opt"),
        (lambda s: bp.fit(bp.MAP(), s.model, evidence="naive"), "evidence='naive' is for labels, and y has soft_in"),
        *[
            (lambda s, m=method: bp.fit(m, discrete(), progressbar=False), "the hyperparameter degree is discrete")
            for method in (bp.MAP(), bp.MeanField(), bp.NUTS(nuts_sampler="nutpie"), bp.Integrated())
        ],
        (lambda s: bp.fit(bp.MAP(), discrete(of_location=True)), "the hyperparameter degree is discrete"),
        (lambda s: bp.fit(bp.MAP(), discrete(), hyperparameters={"degree": 1.5}), r"degree must be whole .*got 1\.5"),
        (lambda s: bp.fit(bp.MAP(), discrete(), hyperparameters={"degree": np.nan}), "degree must be finite, got nan"),
        (
            lambda s: bp.fit(bp.MAP(), discrete(), hyperparameters={"degree": np.ma.masked_array(1.0, True)}),
            "hyperparameter degree must have no masked entries",
        ),
        *NO_SPREAD(lambda inputs, targets: plain(inputs, targets)),
        (lambda s: plain(1e200 * X, Y), r"X must stay within ±1e\+150"),
        (lambda s: plain(X, 1e200 * Y), r"y must stay within ±1e\+150"),
        *seeds(lambda s, seed: bp.fit(bp.MAP(), s.model, hyperparameters=AT, random_seed=seed)),
    ],
    "save": [
        (lambda s: bp.save("a", "fit.nc"), "result must be a DataTree, got str: estimators have a save of their own"),
        (lambda s: bp.save(xr.Dataset(), "fit.nc"), "result must be a DataTree, got Dataset"),
        (lambda s: bp.save(s.result, "/dev/null"), "path must be a file, got the device /dev/null"),
        (lambda s: bp.save(s.result, "/dev/null/fit.nc"), "path must lie in a folder, and /dev/null is a file"),
    ],
    "load": [
        (lambda s: bp.load("none.nc"), "none.nc: there is no such file"),
        (lambda s: bp.load(__file__), "is not a saved model or result, or it is damaged"),
    ],
    "predict": [
        *each(lambda s, bad: bp.predict(s.result, bad, model=s.model), NO_MATRIX, "X_new"),
        *each(lambda s, bad: bp.predict(s.result, X, model=s.model, y_new=bad), NO_VECTOR, "y_new"),
        *[
            (lambda s, bad=bad: bp.predict(s.result, X, model=s.model, quantiles=bad), "quantiles must .*got")
            for bad in ("a", [0.0], [1.0], -0.1, [], None, NAN, [[0.5]])
        ],
        (lambda s: bp.predict(s.result, X, model=s.model, dims="y_mean"), "dims must be one .* y_mean,.*got 'y_mean'"),
        (lambda s: bp.predict(s.result, 1e200 * X, model=s.model), r"X_new must stay within ±1e\+150"),
        (lambda s: bp.predict(s.result, X, model=s.model, y_new=1e200 * Y), r"y_new must stay within ±1e\+150"),
        (lambda s: with_other_names("b", "a"), "X_new must have the columns a, b, in this order, got b, a"),
        (lambda s: with_other_names("b", "b"), "X_new must have the columns a, b, in this order, got b, b"),
        (lambda s: bp.predict("a", X, model=s.model), f"result {BY_FIT} str"),
        (
            lambda s: bp.predict(transposed(s.result), X, model=s.model),
            r"result has .*\(draw, chain\): transpose",
        ),
        (lambda s: bp.predict(machine(), X), f"result {BY_FIT} BayesianSVR: call its own methods, such as predict; "),
        (lambda s: bp.predict(of_pymc(), X, model=s.model), "result is one for PyMC and ArviZ.* do not apply: x"),
        (lambda s: bp.predict(xr.DataTree(), X, model=s.model), f"result {BY_FIT} DataTree: draws of bp.marg"),
        (lambda s: bp.predict(s.result, X, model=s.labels), "result has soft_insensitive noise and the model hinge"),
        (lambda s: bp.predict(s.result, X, model=s.other), "different numbers of training points"),
        (
            lambda s: with_another_kernel(),
            "result was computed with another kernel, mean or noise than the model has: the",
        ),
        *((lambda s, each=each: with_other_rows(each), "z has 2 rows, and y has 6: set it back by") for each in (0, 1)),
        *options(lambda s, **o: bp.predict(s.result, X, model=s.model, **o), neighbours=NO_COUNT_OR_NONE),
        (lambda s: bp.predict(s.result, X, model=s.model, target="z"), "target must be one of y, got 'z'"),
        *[
            (lambda s, o=o: bp.predict(**two_targets(), **o), message)
            for o, message in (
                ({}, "target must be one of one, two, which the model has, got None"),
                ({"target": "y"}, "target must be one of one, two, which the model has, got 'y'"),
                ({"target": "two"}, "f depends on h, unknown at X_new: give its values"),
                ({"target": "one", "data": {"h": [1.0]}}, "data has 'h', on which one does not depend"),
            )
        ],
        (
            lambda s: bp.predict(sampled(), X, model=s.model, neighbours=3),
            "neighbours=3 takes the result of an approximation",
        ),
    ],
    "predict_distribution": [
        *each(lambda s, bad: bp.predict_distribution(s.result, bad, model=s.model), NO_MATRIX, "X_new"),
        *options(lambda s, **o: bp.predict_distribution(s.result, X, model=s.model, **o), neighbours=NO_COUNT_OR_NONE),
        *CLASSES(lambda result, model: bp.predict_distribution(result, X, model=model), "use predict"),
    ],
    "PredictiveDistribution": [
        (lambda s: bp.predict_distribution(s.result, X, model=s.model).ppf(2.0), "q must be between 0 and 1, got"),
        (lambda s: bp.predict_distribution(s.result, X, model=s.model).cdf("a"), "y must be an array of numbers, got"),
        (
            lambda s: bp.predict_distribution(s.result, X, model=s.model).rvs(joint="no"),
            "joint must be True or False, got 'no'",
        ),
        (
            lambda s: bp.predict_distribution(s.result, X, model=s.model).to_frame([1.5]),
            "quantiles must lie strictly between 0 and 1",
        ),
        (
            lambda s: bp.predict_distribution(s.result, X, model=s.model).rvs(-1),
            "size must be an integer of at least 0",
        ),
        (lambda s: bp.predict_distribution(s.result, X, model=s.model).cdf(np.ones(2)), r"y must be .*got \(2,\)"),
        *seeds(
            lambda s, seed: bp.predict_distribution(s.result, X, model=s.model).rvs(random_state=seed), "random_state"
        ),
    ],
    "log_density": [
        (lambda s: bp.scorers.log_density("a", X, Y), "estimator must have predict_distribution, got str"),
        (
            lambda s: bp.scorers.log_density(bp.LSSVR().fit(X, Y), X, np.ma.masked_less(Y, 0)),
            "y must have no masked entr",
        ),
        (
            lambda s: bp.LSSVR().fit(X, Y).score(X, np.ma.masked_less(Y, 0)),
            "y must have no masked entr",
        ),
        (lambda s: bp.scorers.log_density(several(), MANY, ENDS), "estimator must predict one target, got 2: score"),
        (
            lambda s: bp.scorers.log_density(bp.LSSVR().fit(X, Y), X, Y[:1]),
            r"inconsistent numbers of samples: \[6, 1\]",
        ),
    ],
    "neg_crps": [(lambda s: bp.scorers.neg_crps("a", X, Y), "estimator must have predict_distribution, got str")],
    "NoiseScales": [
        *each(lambda s, bad: NoiseScales(bad, np.ones(2), 1.0), NO_VECTOR[:5], "factors"),
        *each(lambda s, bad: NoiseScales(np.ones(2), bad, 1.0), NO_VECTOR[:5], "weights"),
        (lambda s: NoiseScales(np.array([1.0, -2.0]), np.ones(2), 1.0), "factors must be > 0, got -2.0"),
        (lambda s: NoiseScales(np.ones(2), np.zeros(2), 1.0), "weights must be > 0, got 0.0"),
        (lambda s: NoiseScales(np.ones(2), np.ones(2), -1.0), "shared must be a number of at least 0, got -1.0"),
    ],
    "MainEffects": [
        (lambda s: bp.cov.MainEffects(0, 1.0, 1.0), "input_dim must"),
        (lambda s: bp.cov.MainEffects(2, [1.0, 2.0, 3.0], 1.0), "amplitude must be a number, or have 2 .*got shape"),
        (lambda s: bp.cov.MainEffects(2, 1.0, np.ones((2, 2))), "ls must be a number, or have 2 values"),
    ],
    "RationalQuadratic": [
        (lambda s: bp.cov.RationalQuadratic(0, 1.0, 1.0), "input_dim must"),
        (lambda s: bp.cov.RationalQuadratic(2, np.ones(3), 1.0), "ls must be a number, or have 2 values"),
    ],
    "effect": [
        (lambda s: bp.effect(LinearRegression(), MANY, 0), "estimator must .* got LinearRegression"),
        (lambda s: bp.effect(xr.DataTree(), X, 0), BY_FIT),
        (lambda s: bp.effect(s.mode, X, 0, model=s.model), "this one has only its mode"),
        (lambda s: bp.effect(s.result, X, 0, model="a"), "model must be a pm.Model, got str"),
        (lambda s: effect_of_names("b", "a"), "X must have the columns a, b, in this order, got b, a"),
        (lambda s: bp.effect(s.result, MANY, 0, model=s.model), r"X must be a \(m, 1\) array, got shape \(\d+, 2\)"),
        (lambda s: bp.effect(bp.BayesianSVR(), MANY, 0), "not fitted"),
        (lambda s: bp.effect(fitted(bp.LSSVR), MANY, 0), "estimator must .* got LSSVR"),
        (lambda s: bp.effect(one_target(), "a", 0), r"X must be a table .* got shape \(\)"),
        (lambda s: bp.effect(one_target(), [[1], [1, 2]], 0), r"X must be a table .* got shape \(2,\)"),
        (lambda s: bp.effect(one_target(), [["u", 1.0]], 1), "must have finite numbers, got 'u'"),
        (lambda s: bp.effect(one_target(), MANY[:0], 0), r"X must be a table .* got shape \(0, 2\)"),
        (lambda s: bp.effect(one_target(), MANY + NAN[0], 0), "column 'x0' of X has no values"),
        *options(
            lambda s, feature=0, **o: bp.effect(one_target(), MANY, feature, **o),
            feature=(2, -1, "x2", True, (0, 0), (0, 1, 0), [0], None, "must be a column .* X has: x0, x1"),
            values=(1, 2.5, "must be an integer of at least 2"),
            rows=(0, "a", "must be an integer of at least 1"),
            ice=(-1, None, "must be an integer of at least 0"),
            coverage=(1, "a", "must lie strictly between 0 and 1"),
        ),
    ],
    "marginalize": [
        (lambda s: bp.marginalize(bp.MAP(), s.model), r"method must integrate f out.*got MAP\(\)"),
        (lambda s: bp.marginalize(bp.MeanField(), "a"), "model must be a pm.Model, got str"),
        (lambda s: bp.marginalize(bp.MeanField(), s.labels), "y are labels"),
    ],
    "recover_latent": [
        (lambda s: bp.recover_latent("a", model=s.marginal), "samples must be a DataTree .*got str"),
        (lambda s: bp.recover_latent(xr.DataTree(), model=s.marginal), "samples must be a DataTree .*got DataTree"),
        (lambda s: bp.recover_latent({"posterior": 1}, model=s.marginal), "samples must be a DataTree .*got dict"),
        (lambda s: bp.recover_latent(s.result, model="a"), "model must be a pm.Model, got str"),
        (
            lambda s: bp.recover_latent(transposed(s.result), model=s.marginal),
            r"samples has .* in posterior over \(draw, chain\): transpose\('chain', 'draw', \.\.\.\)",
        ),
        (lambda s: bp.recover_latent(s.result, model=s.model), "the model has no targets made by bp.marginalize"),
        (lambda s: bp.recover_latent(s.result, model=s.marginal, X_new=Y), r"X_new must be an \(n_new, 1\) array"),
        (lambda s: bp.recover_latent(s.result, model=s.marginal, X_new=X, data={"a": X}), "data has no 'a' of the"),
        *seeds(lambda s, seed: bp.recover_latent(s.result, model=s.marginal, random_seed=seed)),
    ],
    "log_evidence": [
        (lambda s: with_dims("moment"), "the dimension moment has a name that results need themselves: rename it"),
        *(
            (
                lambda s, made=made: with_dims(given=made(["z"])),
                r"lengthscale must have the labels \['x'\] of input, got",
            )
            for made in (
                lambda labels: pd.Series([1.0], index=labels),
                lambda labels: xr.DataArray([1.0], {"input": labels}),
            )
        ),
        (lambda s: evidence_of_kernel(X + 1e6), "X of f must have .* at least 1e-05 of its size.*subtract an off"),
        (lambda s: evidence_of_kernel(ROWS, np.triu(K)), "is no covariance: K must be symmetric.*centre X"),
        (lambda s: bp.log_evidence(bp.NUTS(), s.model, hyperparameters=AT), "method must have an evidence.*got NUTS"),
        (lambda s: bp.log_evidence(bp.MeanField(), s.model, hyperparameters={"C": 1.0}), "scale, epsilon missing"),
        (lambda s: bp.log_evidence(bp.MeanField(), s.model, hyperparameters={"C": -1.0}), "hyperparameter C"),
        *seeds(lambda s, seed: bp.log_evidence(bp.Annealed(2, 2, 1), s.model, hyperparameters=AT, random_seed=seed)),
        (lambda s: bp.log_evidence(bp.MeanField(), s.labels), "hyperparameters must give every .*C missing"),
        (lambda s: evidence_of_labels(s, hyperparameters={"C": -1.0}), r"hyperparameter C must .*got -1\.0"),
        (lambda s: evidence_of_labels(s, hyperparameters={"C": np.nan}), "hyperparameter C must be finite, got nan"),
        (lambda s: evidence_of_labels(s, model=s.model, hyperparameters=AT), "y is no label but has soft_insensitive"),
        *options(
            lambda s, **o: evidence_of_labels(s, **o),
            kind=("x", "must be .*got 'x'"),
            method=("x", "must have an evidence, .*got 'x'"),
        ),
    ],
    "integrated_evidence": [
        (lambda s: bp.integrated_evidence("a", model=s.model), f"result {BY_FIT} str"),
        (lambda s: bp.integrated_evidence(s.result, model=s.model), "result must have sampled .*got one of mean field"),
        *options(lambda s, **o: bp.integrated_evidence(s.result, model=s.model, **o), draws=(24, *NO_COUNT)),
        *options(lambda s, **o: bp.integrated_evidence(s.result, model=s.model, **o), particles=(1, *NO_COUNT)),
        (
            lambda s: bp.integrated_evidence(exchanged(s), model=s.labels),
            "those of exchange are by the conditional one",
        ),
    ],
    "verify": [
        (lambda s: bp.verify("a", model=s.model), f"result {BY_FIT} str"),
        (lambda s: bp.verify(s.result, model=s.model), r"result must be of fit\(NUTS\(latent=...\)\).*mean field"),
        (lambda s: bp.verify(None, model=s.model), f"result {BY_FIT} NoneType"),
        (lambda s: bp.verify(exchanged(s), model=s.labels), r"result must be of fit\(NUTS\(latent=.*exchange"),
    ],
    "loo": [
        (lambda s: bp.loo("a", model=s.model), f"result {BY_FIT} str"),
        (lambda s: bp.loo(s.mode, model=s.model), "result must have a posterior of f, and MAP has none"),
        (lambda s: bp.loo(s.result, model=s.labels), "model must have targets that are not labels"),
        (lambda s: bp.loo(s.result, model=s.other), "different numbers of training points"),
    ],
    "loo_predict": [
        (lambda s: bp.loo_predict("a", model=s.model), f"result {BY_FIT} str"),
        (lambda s: bp.loo_predict(machine()), f"{BY_FIT} BayesianSVR: call .*cross_val_predict of scikit-learn leaves"),
        (lambda s: bp.loo_predict(s.mode, model=s.model), "result must have a posterior of f, and MAP has none"),
        (lambda s: bp.loo_predict(s.result, model=s.labels), "model must have targets that are not labels"),
        (lambda s: bp.loo_predict(s.result, model=s.model, quantiles=[1.5]), "quantiles must lie strictly between 0"),
        *CLASSES(bp.loo_predict, "use loo"),
    ],
    "calibrate": [
        (lambda s: bp.calibrate(bp.MAP(), s.model), r"method must be NUTS.*got MAP\(\)"),
        (lambda s: bp.calibrate(bp.NUTS(), "a"), "model must be a pm.Model, got str"),
        (lambda s: bp.calibrate(bp.NUTS(), ordered()), "model must leave out the transform of a, which draws from"),
        *[
            (lambda s, how=how: bp.calibrate(bp.NUTS(latent=bp.MeanField()), observing(how)), said)
            for how, said in {
                "none": "model must observe one variable, got none",
                "twice": "model must observe one variable, got y, z",
                "labels": "y are labels, and the targets of the model must be numbers",
                "interval": "y are intervals or have gaps, and targets that replace",
                "gaps": "y_observed are intervals or have gaps, and targets that replace",
                "no hyperparameter": "model must have free hyperparameters",
                "potential": "model must leave out the potential rest, which draws from the prior ignore",
            }.items()
        ],
        *options(lambda s, **o: bp.calibrate(bp.NUTS(), s.model, **o), simulations=NO_COUNT, n_jobs=NO_COUNT),
        *seeds(lambda s, seed: bp.calibrate(bp.NUTS(), s.model, random_seed=seed)),
    ],
    "compare": [
        (lambda s: bp.compare({}, model=s.model), "results must hold at least one result"),
        (lambda s: bp.compare([s.result], model=s.model), "results must be a dict .*got list"),
        (lambda s: bp.compare({"a": "b"}, model=s.model), rf"results\['a'\] {BY_FIT} str"),
        (lambda s: bp.compare(s.results, "x", model=s.model), "reference must be one of mean field, got 'x'"),
        (lambda s: bp.compare(s.results, X_test=X, model=s.model), "X_test and y_test must be given together"),
        (lambda s: bp.compare(s.results, annealed=3, model=s.model), "annealed must be .*got 3"),
        (lambda s: bp.compare(s.results, hyperparameters={"C": 1.0}, model=s.model), "inverse_lengthscale, epsilon"),
        *seeds(lambda s, seed: bp.compare(s.results, model=s.model, random_seed=seed)),
    ],
    "scores": [
        (lambda s: bp.scores("a", Y), "prediction must be of predict"),
        (lambda s: bp.scores(bp.predict(s.result, X, model=s.model), Y), "prediction must be of predict"),
        *each(lambda s, bad: bp.scores(s.prediction, bad), NO_VECTOR, "y"),
    ],
    "plot_evidence": [
        *[
            (lambda s, along=along: bp.plot_evidence(along, hyperparameters=AT, model=s.model), words)
            for along, words in (
                ({}, "along must map one .*got {}"),
                ("C", "along must map one .*got 'C'"),
                ({"C": [2, 1]}, r"along\['C'\] must be at least two increasing values, got \[2, 1\]"),
                ({"C": "a"}, r"along\['C'\] must be an array of numbers, got str"),
                ({"C": [-1, 1]}, r"hyperparameter C must lie inside the support of its prior, got .*-1"),
                ({"z": [1, 2]}, "hyperparameters has no variable 'z'"),
            )
        ],
        *options(
            lambda s, **o: bp.plot_evidence({"C": [1, 2]}, model=s.model, **{"hyperparameters": AT, **o}),
            methods=(["a"], [], "must hold Laplace.*got"),
            annealed=("a", "must be .*got 'a'"),
            hyperparameters=({}, "must give every hyperparameter but the one along"),
        ),
    ],
    "plot_predictive": [
        (lambda s: bp.plot_predictive([s.result], model=s.model), "results must be a dict .*got list"),
        (lambda s: plot_of_parts(), "plot_predictive draws f of X alone, and here it depends on z: use predict"),
        (lambda s: bp.plot_predictive(s.results, model=s.model, X_test=X), "X_test and y_test must be given together"),
        (lambda s: bp.plot_predictive(s.results, model=s.model, X_test=MANY, y_test=TARGETS), r"X_test .*\(20, 2\)"),
        *each(lambda s, bad: bp.plot_predictive(s.results, model=s.model, X_test=X, y_test=bad), NO_VECTOR, "y_test"),
        *options(
            lambda s, **o: bp.plot_predictive(s.results, model=s.model, **o),
            target_units=(
                "ab",
                1.0,
                (0.0, 0.0),
                (0.0, -1.0),
                (np.nan, 1.0),
                "must be a number and a positive number, got",
            ),
            input_units=((0.0,), (0.0, 0.0), "must be a number and a positive number, got"),
            labels=(("x",), "must be two"),
        ),
        *CLASSES(lambda result, model: bp.plot_predictive({"a": result}, model=model), "use predict"),
    ],
    "plot_effect": [
        (lambda s: bp.plot_effect(LinearRegression(), MANY, 0), "estimator must .* got LinearRegression"),
        (lambda s: bp.plot_effect(one_target(), MANY, []), r"features must have at least one column of X, got \[\]"),
        (lambda s: bp.plot_effect(one_target(), MANY, [0, "x2"]), "feature must be a column .* got 'x2'"),
    ],
    "plot_warping": [
        (lambda s: bp.plot_warping(fitted(bp.LSSVR)), "estimator must be a BayesianSVR, SVC or OrdinalSVC, got LSSVR")
    ],
    "report_page": [
        (lambda s: bp.report_page("a", title="x"), "table must be of compare.*got str"),
        (lambda s: bp.report_page(pd.DataFrame(), title="x"), r"table must be of compare.*got columns \[\]"),
        (lambda s: bp.report_page(ComparisonTable({"verdict": []}), title="x"), r"table must be .*\['verdict'\]"),
        (
            lambda s: bp.report_page(
                bp.compare(s.results, model=s.model, annealed=None, k_hat=False, loo=False), title="x", pictures=["a"]
            ),
            r"pictures must be of Picture.*got \['a'\]",
        ),
    ],
    "fit_folder": [
        (lambda s: into_folder(MANY, noise="x"), "noise must be one of"),
        (lambda s: into_folder(MANY, blocks=1), "blocks must be 'auto', None, an integer of at least 2 or"),
        (lambda s: into_folder(MANY, random_state=-1), "random_state must be an integer of at least 0"),
        *[
            (lambda s, o=o: into_folder(MANY, **o), "estimator must have blocks and a kernel of inputs with a name")
            for o in ({"blocks": None}, {"kernel": pm.gp.cov.ExpQuad})
        ],
        (lambda s: into_folder(MANY, monotone={0: 1}), "monotone takes a dense fit in memory, not a folder"),
        (lambda s: into_folder(MANY, shared=True), "shared=True takes several targets in memory, not a folder: use"),
        (lambda s: into_folder(MANY, inference="nuts"), "inference must be mean field or Laplace in a folder, got"),
        (lambda s: into_folder(MANY, blocks=5, noise="absolute", inference="laplace"), "has no curvature to go by"),
        (lambda s: into_folder(MANY, inference=bp.Integrated()), "inference must be mean field or Laplace in a"),
        (lambda s: into_folder(np.ma.array(MANY, mask=MANY > 1.0)), "data must have no masked entries, got"),
        (lambda s: into_folder(MANY, MASKED), "y must have no masked entries, got 1: leave them out"),
        (lambda s: into_folder(MANY, y=None), "y must be given with inputs that are an array"),
        (lambda s: into_folder(MANY, y=TARGETS[:4]), "y must have 20 values as data has rows, got 4"),
        (lambda s: into_folder(MANY, target="delay"), "target is the name of a column of a table, got target='delay'"),
        (lambda s: into_folder(TARGETS), r"data must be an array with 2 axes, got \(20,\)"),
        (lambda s: into_folder(MANY, y=np.ones((20, 3))), "y has 3 columns: .* several targets need a folder each"),
        (lambda s: bp.fit_folder(bp.BayesianSVC(), MANY, LABELS, folder="none"), "in a folder, got BayesianSVC"),
        (lambda s: into_folder(MANY, y=ENDS), "y has 2 columns: intervals=True takes two as .* need a folder each"),
        (lambda s: into_folder(pd.DataFrame(MANY)), "y must be None with a table, whose target is a column"),
        *[
            (lambda s, y=y: into_folder(MANY, y, blocks=5, intervals=True), f"{side}-censored, got none of 20")
            for side, y in (("right", ENDS - [0.0, -np.inf]), ("left", ENDS - [np.inf, 0.0]))
        ],
        *[
            (lambda s, w=w, o=o: into_folder(MANY, blocks=5, sample_weight=w, **o), words)
            for w, o, words in (
                (TARGETS, {}, "sample_weight must be >= 0, got"),
                (np.ones(3), {}, "sample_weight must have 20 values as X has rows, got 3"),
                ("x", {}, "sample_weight must be an array of numbers, got str"),
                (np.arange(20.0), {}, "sample_weight must be > 0 in a folder, got 0: leave rows of weight 0 out"),
                (np.logspace(8, 0, 20), {}, r"sample_weight must be at most 1e\+07 times the smallest that is not 0"),
                (np.full(20, 2.0), {"y": ENDS, "intervals": True}, "sample_weight is for exact targets, and y has"),
            )
        ],
        (lambda s: into_folder(object()), "data must be an array with 2 axes, got <class 'object'>"),
        (lambda s: into_folder(MANY.astype(str)), "data must be an array of numbers, got"),
        (lambda s: into_folder(1e200 * MANY, blocks=5), r"data: column 'x0' must stay within ±1e\+150"),
        (lambda s: into_folder(MANY, y=INF[:1].repeat(20), blocks=5), "y must be finite, got inf in row 0"),
        (lambda s: into_folder(MANY), "data: has 20 rows, and a folder needs more than one block of 1000"),
        (lambda s: into_folder(WORDS.rename(columns={"x": "sd"}), None, "sd"), "target must not be 'sd', another"),
        (lambda s: into_folder("none.parquet", None), "none.parquet: there is no such file"),
        (lambda s: into_folder(pd.DataFrame({"a": [1.0]}), None, "b"), "data: has no column 'b'; it has: a"),
        (lambda s: into_folder(pd.DataFrame({"a": [], "b": []}), None), "data: has no rows"),
        (lambda s: into_folder(pd.DataFrame({"a": []}), None), "data: has no column except the target 'a'"),
    ],
    "FolderModel": [
        (lambda s: bp.FolderModel("none"), "none: is not the folder of a model: it has no model.json"),
        (lambda s: bp.FolderModel(3), "folder must be a path, got 3"),
        (
            lambda s: bp.FolderModel.predict_into(SimpleNamespace(folder=Path("model")), X, "model/inputs.npy"),
            "out must lie outside the folder of the model, model, got model/inputs.npy",
        ),
    ],
    "default_label_model": [
        *each(lambda s, bad: classification.default_label_model(bad, SIGNS), NO_MATRIX, "X"),
        *each(lambda s, bad: classification.default_label_model(X, bad), NO_VECTOR, "y"),
        (lambda s: classification.default_label_model(X, 0.5 + SIGNS), r"y must hold the labels -1 and \+1, got"),
        (lambda s: classification.default_label_model(1e200 * X, SIGNS), r"X must stay within ±1e\+150, got 2e\+200"),
    ],
    "BayesianSVR": [
        *[
            (lambda s, name=name: usual().predict_table(MANY, target=name), "target must not be .*, another column of")
            for name in ("sd", "lower 90 %", "upper 99.5 %", "P(> 2)")
        ],
        *options(
            lambda s, **o: svr(**o),
            noise=("x", None, "must be one of .*got"),
            kernel=("x", ENDS, "must be .*rbf, matern32.*got"),
            beta=("x", 2, -0.1, None, True, ENDS, "must be 'auto' or lie between 0 and 1, got"),
            quantile=(*NO_SHARE, STRICTLY),
            ard=("x", 1, "must be True or False, got"),
            outliers=("x", True, None, ENDS, "must be 'set_aside' or 'keep', got"),
            log_targets=("x", 1, "must be True or False, got"),
            inference=("x", bp.NUTS(), bp.MAP(), bp.classification.NormalisedEvidence(), "must .*got"),
            restarts=NO_COUNT_OR_NONE,
            blocks=("x", 1, 2.5, True, "must be 'auto', None, an integer of at least 2 or LocalBlocks, got"),
            noise_scales=("x", 1, None, "must be True or False, got"),
            intervals=("x", 1, None, "must be True or False, got"),
            random_state=("a", -1, "must be an integer of at least 0, a RandomState or None, got"),
        ),
        (lambda s: svr(blocks=10, inference=bp.Integrated()), "takes a dense fit, and 20 rows need blocks"),
        (lambda s: svr(y=MASKED), "y must have no masked entries, got 1: leave them out"),
        (lambda s: svr(X=MASKED[:, None]), "X must have no masked entries, got 1: leave them out"),
        *(
            (lambda s, o=o: svr(**({"shared": True, "y": ENDS - [[0.0, 3.0]]} | o)), words)
            for o, words in (
                ({"shared": "yes"}, "shared must be True or False, got 'yes'"),
                *(
                    ({"y": y}, r"shared=True takes several targets, y \(n, k\), got one: use")
                    for y in (None, TARGETS[:, None])
                ),
                ({"intervals": True, "y": ENDS}, "shared=True takes several targets, y .*, got one: use shared=False"),
                ({"inference": "nuts"}, "shared=True takes one optimum, and NUTS .* has draws: use inference='auto'"),
                ({"blocks": 10}, "shared=True takes a dense fit, and 20 rows need blocks: use blocks=None"),
                (
                    {"kernel": kernel_of_rows, "y": ENDS - np.array([[0.0, 3.0]] * 15 + [[0.0, np.nan]] * 5)},
                    "kernel must have the same hyperparameters for each target with shared=True, got .*: use shared=",
                ),
            )
        ),
        *(
            (lambda s, o=o: svr(**({"monotone": {0: 1}} | o)), f"monotone {words}")
            for o, words in (
                ({"monotone": "up"}, "must be a dict of columns, or have a sign for each column, got 'up'"),
                ({"monotone": 1}, "must be a dict of columns, or have a sign for each column, got 1"),
                ({"monotone": {0: 2}}, r"must have the signs 1 \(f rises\), -1 \(f falls\) or 0 \(either\), got 2"),
                ({"monotone": [1, True]}, "must have the signs .*got True"),
                ({"monotone": [1, "up"]}, "must have the signs .*got 'up'"),
                ({"monotone": [1, 0, -1]}, "must have a sign for each of 2 columns, got 3"),
                ({"monotone": {"age": 1}}, "has no column 'age' of X; its columns are 0, 1"),
                ({"monotone": {2: 1}}, "has no column 2 of X; its columns are 0, 1"),
                ({"monotone": {"x": 1, 0: -1}, "X": WORDS}, "must name a column once, got {'x': 1, 0: -1} of "),
                ({"monotone": pd.Series([1, 0], ["x", "age"]), "X": WORDS}, "has no column 'age' of X; its"),
                ({"monotone": {"word": 1}, "X": WORDS}, "takes columns of numbers, column 'word' has words"),
                ({"monotone": {"age": 1}, "X": WORDS}, "has no column 'age' of X; its columns are x, word"),
                ({"kernel": "linear"}, "takes kernel='auto' or main_effects, .*, matern52, got 'linear'"),
                ({"kernel": lambda Z: pm.gp.cov.Matern52(2, 1.0)}, "takes kernel=.*got a kernel without a name"),
                ({"kernel": "precomputed", "X": GRAM}, "takes kernel=.*got a kernel without a name"),
                ({"blocks": 10}, "takes a dense fit, and 20 rows need blocks: use blocks=None"),
                ({"inference": "nuts"}, "takes posteriors of f, and NUTS.* has draws: use inference='auto'"),
            )
        ),
        (lambda s: machine(intervals=True).fit(MANY, ENDS, 2.0 + LABELS), "sample_weight is for exact targets, and y"),
        *LATER(bp.BayesianSVR, noise_scales="x"),
        (lambda s: svr(noise="absolute", inference="laplace"), "has no curvature to go by"),
        (lambda s: svr(quantile=0.9), r"quantile is an option of pinball noise, got quantile=0\.9"),
        (lambda s: svr(noise="huber", beta=0.5), r"beta is an option of soft_.*beta=0\.5 with"),
        (lambda s: svr(kernel=lambda Z: 1, ard=False), "ard is an option of kernels with"),
        (lambda s: svr(kernel=lambda Z: 3), "kernel must return a kernel of pm.gp.cov, got 3"),
        (lambda s: svr(log_targets=True), "y must be positive with log_targets=True, got"),
        (lambda s: svr(y=np.abs(ENDS) * [0.0, 1.0], intervals=True, log_targets=True), "left-censored, got none of 20"),
        *[
            (lambda s, y=y: svr(y=y, intervals=True), words)
            for y, words in (
                (np.stack([TARGETS, TARGETS - 1.0], axis=1), "lower must be at most upper"),
                (np.tile([-np.inf, np.inf], (20, 1)), "lower or upper must be finite"),
                (ENDS + np.array([0.0, np.inf]), "y must have targets that are not right-censored, got none of 20"),
                (ENDS - np.array([np.inf, 0.0]), "y must have targets that are not left-censored, got none of 20"),
                (
                    np.zeros(20, [("event", bool), ("time", float), ("x", float)]),
                    "y must have the fields event and time",
                ),
                (np.full(20, 0.5, [("event", float), ("time", float)]), "the first field of y must say whether"),
            )
        ],
        *[
            (lambda s, y=y, o=o: svr(y=pd.DataFrame(y), **o), f"column {words}")
            for y, o, words in (
                ({"a": TARGETS, "b": 1.0}, {}, "'b' of y must not be constant, got 1.0 throughout"),
                ({"a": TARGETS, "b": [1.0, *[None] * 19]}, {}, "'b' of y must not be constant, got 1.0 throughout"),
                ({"a": TARGETS, "b": np.nan}, {}, "'b' of y must have numbers, got only gaps"),
                ({"a": TARGETS, "b": "x"}, {}, "'b' of y must be an array of numbers, got object"),
                ({"a": TARGETS, "b": pd.Timestamp(0)}, {}, "'b' of y must be numbers, got datetime64"),
                ({"a": TARGETS, "b": np.inf}, {}, "'b' of y must be finite, got inf"),
                ({"a": TARGETS, "b": 1e200 * TARGETS}, {}, r"'b' of y must stay within ±1e\+150"),
                ({"a": TARGETS, "b": 1e20 + 1e5 * LABELS}, {}, "'b' of y must have a standard deviation of at least"),
                ({"a": np.exp(TARGETS), "b": TARGETS}, {"log_targets": True}, "'b' of y must be positive with log_t"),
            )
        ],
        (
            lambda s: machine().fit(
                MANY, pd.DataFrame({"a": TARGETS, "b": np.where(LABELS > 0, TARGETS, np.nan)}), LABELS == 0
            ),
            "column 'b' of y must have numbers, got only gaps in rows of a weight above 0",
        ),
        (lambda s: svr(y=pd.DataFrame(ENDS, columns=["a", "a"])), "two columns of y have the name 'a': rename one"),
        (lambda s: several().score(MANY, TARGETS), "y must have the targets of fit, y0, y1, got one without a"),
        (lambda s: several().score(MANY, pd.DataFrame(ENDS)), "y must have the targets of fit, y0, y1, got 0, 1"),
        (lambda s: usual().score(MANY, ENDS), "y must have the targets of fit, one without .*, got y0"),
        (lambda s: several().add(MANY, ENDS), "rows are added to the fit of one target, got 2: take one of estim"),
        (lambda s: bp.effect(several(), MANY, "x0"), "effects are of one target, got 2: take one of estimators_"),
        (lambda s: bp.plot_warping(several()), "scales of inputs are of one target, got 2: take one of estimators_"),
        (lambda s: of_targets("a"), r"targets of result must be the names of several targets, got \['a'\]"),
        (lambda s: of_targets("a", "b"), "result lacks target_0, target_1"),
        *[
            (lambda s, make=make, kernel=kernel: make(SPARSE, kernel=kernel), f"{SPARSE_KERNELS}, got .*: use X.toarr")
            for make in (svr, svc)
            for kernel in ("matern32", "main_effects", "precomputed", bp.PairwiseKernel(np.dot), pm.gp.cov.Constant)
        ],
        *[
            (lambda s, make=make, n=n: make(SPARSE, blocks=n), f"20 rows of a {DENSELY} X by .*TruncatedSVD")
            for make in (svr, svc)
            for n in (10, bp.LocalBlocks(10))
        ],
        *[
            (lambda s, cls=cls: fitted(cls, SPARSE), f"X must be dense for {cls.__name__}, got a sparse matrix")
            for cls in (bp.BayesianOrdinalSVC, bp.LSSVR, bp.BayesianLSSVR)
        ],
        *[
            (lambda s, cls=cls, v=v: fitted(cls, v * SPARSE), f"X {words}")
            for cls in (bp.BayesianSVR, bp.BayesianSVC)
            for v, words in ((np.nan, "contains NaN"), (np.inf, "contains infinity"), (1e200, "must stay within"))
        ],
        (lambda s: usual().predict(SPARSE), "X must be dense, as in fit, got a sparse matrix: use X.toa"),
        (lambda s: svr(SPARSE * 1e-200), "X must have numbers of at least 1e-150, got .*: use other"),
        (lambda s: svr(ALIKE), "X must vary by at least 1e-10 of its squared size, got .*: the diff"),
        (lambda s: several().score(MANY, GAPS), "y must have a target that two rows of a weight > 0 have, got none"),
        (lambda s: of_sparse().predict(SPARSE[:, :1]), "X has 1 features, but BayesianSVR is expecting 2 features"),
        (lambda s: of_sparse().predict(MANY[:, :1]), "X has 1 features, but BayesianSVR is expecting 2 features"),
        (lambda s: of_sparse().predict(np.nan * SPARSE), "Input X contains NaN"),
        (lambda s: of_sparse().add(SPARSE, TARGETS), "new rows change the columns of a sparse matrix: fit again"),
        (lambda s: of_sparse().sample_y(SPARSE), "joint=True takes the whole distribution .* sparse inputs"),
        (lambda s: of_sparse().predict(SPARSE, diagonal=np.ones(20)), "diagonal is for kernel='precomputed'"),
        (lambda s: bp.effect(of_sparse(), MANY, "x0"), "effects are of inputs that are no sparse matrix"),
        (lambda s: bp.effect(of_sparse(), SPARSE, "x0"), "X must be a table .*, got a sparse matrix: effects"),
        (lambda s: into_folder(SPARSE), "data must be dense in a folder, got a sparse matrix: use TruncatedSVD"),
        (lambda s: bp.BayesianSVR().add(MANY, TARGETS), "not fitted yet"),
        (lambda s: bp.BayesianSVR().save("x.nc"), "not fitted yet"),
        (lambda s: usual().add(MANY, 1e160 * TARGETS), "y must stay within .*1e.150"),
        (lambda s: usual().add(MANY[:, :0], TARGETS), "0 feature"),
        (lambda s: usual().add(MANY, TARGETS[:3]), r"y must be a \(20,\) array, got shape \(3,\)"),
        (lambda s: usual().add(MANY, "a"), "y must be an array of numbers, got str"),
        (lambda s: usual().add(MANY, TARGETS, [-1.0]), "sample_weight must have 20 values"),
        (lambda s: usual().add(MANY, ENDS), "y must be exact targets, as for fit, got intervals"),
        (
            lambda s: machine(blocks=10, inference="nuts").fit(MANY, TARGETS, 2.0 + LABELS),
            "in blocks takes exact targets without sample_weight",
        ),
        (lambda s: without_posteriors().add(MANY, TARGETS), "rows are added to posteriors of f, and NUTS has draws"),
        (lambda s: bp.BayesianSVR.from_result("a"), "result must be the result_ of a BayesianSVR"),
        (lambda s: bp.BayesianSVR.from_result(s.result), "result must be the result_ of a BayesianSVR"),
        (lambda s: bp.BayesianSVR.from_result(recipe("{")), "result carries a recipe that cannot be read"),
        (lambda s: bp.BayesianSVR.from_result(recipe('{"estimator": "BayesianSVR"}')), "recipe of result lacks"),
    ],
    "PairwiseKernel": [
        (lambda s: bp.PairwiseKernel("rbf"), "function must be a function of two lists of objects, got 'rbf'"),
        (lambda s: of_objects(lambda A, B: np.ones((len(A), 3))), r"must give a \(20, 20\) array, .*shape \(20, 3\)"),
        (lambda s: of_objects(lambda A, B: np.eye(20)[: len(A)]).predict("ab"), r"X must be a list of .*use \['ab'\]"),
        (lambda s: of_objects(lambda A, B: "a"), "what the function of PairwiseKernel gives must be an array of"),
        (lambda s: of_objects(lambda A, B: np.full((20, 20), np.nan)), "PairwiseKernel gives must be finite, got nan"),
        (lambda s: of_objects(lambda A, B: -GRAM), "X must have no negative eigenvalue, got -"),
        (lambda s: of_objects(lambda A, B: A @ np.transpose(B)).predict(MANY, diagonal=[1.0]), "diagonal is for ke"),
        (lambda s: bp.default_model(X, Y, kernel=bp.PairwiseKernel(len)), "kernel must be .* or a function of the in"),
        (lambda s: bp.default_model(X, Y, kernel="precomputed"), "kernel must be .*, got 'precomputed'"),
        (lambda s: of_matrix(MANY), r"X must be an \(n, n\) array, got shape \(20, 2\)"),
        (lambda s: of_matrix(GRAM * np.arange(1, 21)), "X must be symmetric, got .* in row .*, column .*, and"),
        (lambda s: of_matrix(GRAM - np.eye(20)), "X must have no negative eigenvalue, got -.* beside the largest,"),
        (lambda s: of_matrix(np.stack([GRAM, -GRAM], axis=2)), "X must have no negative eigenvalue, got -"),
        (lambda s: of_matrix(0.0 * GRAM), "X must have a positive diagonal, got only zeros"),
        (lambda s: of_matrix(np.where(np.eye(20) > 0, np.nan, GRAM)), "Input X contains NaN"),
        (lambda s: of_matrix(np.full((20, 20, 2), np.nan)), "Input X contains NaN"),
        (
            lambda s: of_matrix(FRAME, FRAME.iloc[:, ::-1]),
            "feature names should match .*\n.*same order as they were in",
        ),
        (
            lambda s: of_objects(np.dot, given=pd.DataFrame(MANY)),
            r"X must be a list of objects with .*, got a table: use X.to_n",
        ),
        (lambda s: of_matrix(new=GRAM[:, :19]), "X has 19 features, but BayesianSVR is expecting 20"),
        (lambda s: of_matrix(new=np.ones((2, 19, 1))), "X has 19 features, but BayesianSVR is expecting 20"),
        (lambda s: of_matrix(new=np.ones((2, 20, 3))), "X must have the values of 1 kernels, as in fit, got 3"),
        (lambda s: of_matrix(new=2.0 * GRAM), r"diagonal must be at least k\(x, z\)²/k\(z, z\) for all training rows"),
        (lambda s: of_matrix(INNER, INNER), r"diagonal must have the value k\(x, x\) of each new row"),
        (lambda s: of_matrix(INNER, INNER, cls=bp.BayesianSVC, y=LABELS), r"diagonal must have the value k\(x, x\)"),
        (lambda s: of_matrix(new=GRAM, diagonal=[1.0]), r"diagonal must be a \(20, 1\) array, got shape \(1, 1\)"),
        (lambda s: of_matrix(new=GRAM, diagonal=np.full(20, np.nan)), "diagonal must be finite, got nan"),
        (lambda s: of_matrix(new=GRAM, diagonal=np.zeros(20)), r"diagonal must be at least k\(x, z\)²/k\(z, z\) .*t 0"),
        (lambda s: usual().predict(MANY, diagonal=np.ones(20)), "diagonal is for kernel='precomputed'"),
        (lambda s: of_matrix().sample_y(GRAM), "joint=True takes the whole distribution .* kernel matrix"),
        (lambda s: of_matrix().add(GRAM, TARGETS), "new rows change the columns of a kernel matrix: fit again"),
        (lambda s: bp.effect(of_matrix(), GRAM, "x0"), "effects are of inputs that are no kernel matrix"),
        *[
            (lambda s, make=make: make(GRAM, LABELS, kernel="precomputed", ard=False), f"{ARD}='precomputed'")
            for make in (svr, svc, ordinal)
        ],
        *[
            (lambda s, make=make: make(GRAM, LABELS, kernel="precomputed", blocks=10), f"20 rows of a {NO_INPUTS}")
            for make in (svr, svc, ordinal)
        ],
        (lambda s: into_folder(MANY, kernel="precomputed"), "estimator must have blocks and a kernel of inputs with"),
    ],
    "Precomputed": [
        *((lambda s, K=K: bp.cov.Precomputed(K), f"K {message}") for K, message in NO_MATRIX[:-1]),
        (lambda s: bp.cov.Precomputed(GRAM - np.eye(20)), "K must have no negative eigenvalue, got -"),
        (lambda s: bp.cov.Precomputed(GRAM * np.arange(1, 21)), "K must be symmetric, got"),
    ],
    "LocalBlocks": options(
        lambda s, **o: bp.LocalBlocks(**o),
        size=("x", 1, 2.5, True, "must be 'auto', None or an integer of at least 2, got"),
        neighbours=("x", "must be 'auto', None or an integer of at least 1, got 'x'"),
        n_jobs=("x", 0, 1.5, True, "must be a whole number other than 0, or None, got"),
        progressbar=("x", 1, None, "must be True or False, got"),
    ),
    "Integrated": options(
        lambda s, **o: bp.Integrated(**o),
        latent=("x", None, bp.MAP(), bp.NUTS(), "must integrate f out, as Laplace.* and MeanField.* do, got"),
        points=(24, *NO_COUNT),
        kept=NO_COUNT,
    ),
    "BayesianSVC": [
        *LABELLED(bp.BayesianSVC),
        (lambda s: svc(y=np.ma.array(LABELS, mask=np.arange(20) == 3)), "y must have no masked entries, got 1"),
        (lambda s: svc(steps=7), "steps is for an evidence other than 'pointwise', got 7"),
        (lambda s: svc(evidence="naive", blocks=9), "blocks is for evidence='pointwise', got 9 with 'naive'"),
        (lambda s: svc(y=np.ones(20)), r"y must hold at least two classes, got one class, 1\.0"),
        (
            lambda s: svc(y=np.where(LABELS > 0, *np.array(["2020", "2021"], "M8[D]"))),
            "y must have labels .*M8|datetime64",
        ),
        (lambda s: svc(class_weight={7: 1.0}), "class_weight has 7, which is no class of y: 0, 1"),
        (lambda s: svc(class_weight={1: -1.0}), "class_weight must be numbers of at least 0, got -1.0 for 1"),
        *options(
            lambda s, **o: svc(**o),
            evidence=("x", "must be one of .*got 'x'"),
            C=(0, -1.0, np.nan, np.inf, "x", True, "must be a number > 0, or None to learn it, got"),
            blocks=("x", 1, 1.5, "must be 'auto', None, an integer of at least 2 or LocalBlocks, got"),
            probability=("x", "must be one of .*got 'x'"),
            kernel=("x", "must be .* or a function of the inputs, got 'x'"),
            ard=("x", "must be True or False, got 'x'"),
            steps=("a", -1, 1.5, "must be an integer of at least 0, got"),
            random_state=("a", "must be .*got 'a'"),
        ),
        (lambda s: svc(kernel=len, ard=False), "ard is an option of kernels with"),
        *LATER(bp.BayesianSVC, probability="Average", blocks="x"),
    ],
    "LSSVR": [
        *options(
            lambda s, **o: fitted(bp.LSSVR, **o),
            gamma=("x", -1, np.nan, None, 1e-101, ENDS, "must be a positive number or 'auto', got"),
            lengthscale=("x", 0, 1e160, "must be a positive number or 'auto', got"),
            kernel=("x", "must be 'rbf' or a function of two sets of inputs, got 'x'"),
            selection=("x", "must be 'evidence' or 'loo', got 'x'"),
        ),
        (lambda s: fitted(bp.LSSVR, kernel=np.inner, lengthscale=1.0), r"lengthscale is an option of .*scale=1\.0"),
        (
            lambda s: fitted(bp.LSSVR, kernel=lambda a, b: b[:, 0] + np.eye(len(a), len(b))),
            "kernel must be symmetric, an",
        ),
        (lambda s: fitted(bp.LSSVR, kernel=lambda a, b: "x"), "what kernel gives must be an array of numbers, got str"),
        (lambda s: fitted(bp.LSSVR, kernel=lambda a, b: np.ones(3)), r"what kernel gives must be a \(20, 20\) array"),
        (
            lambda s: fitted(bp.LSSVR, kernel=lambda a, b: -((a @ b.T) ** 3)),
            "kernel must be .*got kernel=<.* gamma='auto'",
        ),
        (
            lambda s: fitted(bp.LSSVR, gamma=1e17, lengthscale=9.0),
            r"gamma so small .* rounding, got kernel='rbf' and gamma=1e\+17",
        ),
    ],
    "BayesianLSSVR": [
        *options(
            lambda s, **o: fitted(bp.BayesianLSSVR, **o),
            epsilon=("x", -1, 0, np.nan, np.inf, "must be a positive number"),
        ),
        (lambda s: fitted(bp.BayesianLSSVR, gamma=1e17, lengthscale=9.0), r"gamma so small .*gamma=1e\+17"),
    ],
    "ResidualIntervals": [
        *options(
            lambda s, **o: fitted(bp.ResidualIntervals, **o),
            family=("x", "must be one of .*got 'x'"),
            cv=(1, 0, -1, 1.5, "must be an integer of at least 2, got"),
            alpha=(*NO_SHARE, STRICTLY),
            random_state=("a", "must be .*got 'a'"),
        ),
        (
            lambda s: fitted(bp.ResidualIntervals, cv=RepeatedKFold(n_splits=2, n_repeats=2)),
            "cv must test each row once, as KFold does, and tests row [0-9]+ again",
        ),
        (lambda s: fitted(bp.ResidualIntervals, cv=[]), "cv must test rows of the data, and tests none"),
        (lambda s: fitted(bp.ResidualIntervals, cv=None), "cv must be a number of folds, a splitter or .*got None"),
        (lambda s: fitted(bp.ResidualIntervals, cv="a"), "cv must be a number of folds, a splitter or .*got 'a'"),
        (lambda s: fitted(bp.ResidualIntervals, estimator="x"), "estimator must|Cannot clone object ''x''"),
        (lambda s: fitted(bp.ResidualIntervals, X=MANY[:3], y=TARGETS[:3]), r"3 sample\(s\).*minimum of 5"),
    ],
}
LOSSES = {
    make.__name__: [
        (lambda s, p=p, bad=bad, make=make, given=given: make(**given | {p: bad}), f"{p} must be {words}")
        for p, values in bad_values.items()
        for bad, words in [
            ("a", r"a number or an \(n,\) array, got 'a'"),
            (np.nan, "finite and .*, got nan"),
            (np.inf, "finite and .*, got inf"),
            ([], r"a number or an \(n,\) array, got shape \(0,\)"),
            (np.ones((2, 2)), r"a number or an \(n,\) array, got shape \(2, 2\)"),
            *[(value, f"finite and .*, got {re.escape(str(float(value)))}") for value in values],
        ]
    ]
    for make, given, bad_values in (
        (
            losses.soft_insensitive,
            {"C": 5.0, "epsilon": 0.1, "beta": 0.3},
            {"C": [0, -1], "epsilon": [-1], "beta": [-1, 2]},
        ),
        (losses.epsilon_insensitive, {"C": 5.0, "epsilon": 0.1}, {"C": [0, -1], "epsilon": [-1]}),
        (losses.huber, {"C": 5.0, "epsilon": 0.1}, {"C": [0, -1], "epsilon": [-1]}),
        (losses.absolute, {"C": 5.0}, {"C": [0, -1]}),
        (losses.gaussian, {"C": 5.0}, {"C": [0, -1]}),
        (losses.pinball, {"C": 5.0, "quantile": 0.5}, {"C": [0, -1], "quantile": [0, 1, -1]}),
        (losses.hinge, {"C": 5.0}, {"C": [0, -1]}),
    )
}
LOSSES["NoiseModel"] = [
    *[
        case
        for method in ("loss", "derivative", "curvature", "log_density")
        for case in each(lambda s, bad, m=method: getattr(NOISE, m)(bad), NO_VECTOR[:7], "r")
    ],
    *each(lambda s, bad: NOISE.cdf(bad), NO_VECTOR[:6], "r"),
    *each(lambda s, bad: NOISE.quantile(bad), NO_VECTOR[:7], "q"),
    (lambda s: NOISE.quantile(1.5), r"q must be between 0 and 1, got 1\.5"),
    *each(lambda s, bad: NOISE.tilted(bad, 1.0, 0.0), NO_VECTOR[:7], "mean"),
    *each(lambda s, bad: NOISE.tilted(0.0, bad, 0.0), NO_VECTOR[:7], "variance"),
    *each(lambda s, bad: NOISE.predictive_cdf(bad, 0.0, 1.0), NO_VECTOR[:7], "y"),
    *each(lambda s, bad: NOISE.sites(bad), NO_VECTOR[:9], "y"),
    (lambda s: NOISE.tilted(0.0, -1.0, 0.0), r"variance must be > 0, got -1\.0"),
    (lambda s: NOISE.predictive_cdf(0.0, 0.0, -1.0), r"variance must be >= 0, got -1\.0"),
    (lambda s: NOISE.tilted(np.zeros(2), np.ones(3), 0.0), "mean and variance and y must have one shape, got mean"),
    (lambda s: losses.absolute(np.ones(3)).loss(np.ones(2)), r"have 3 values, the argument has shape \(2,\)"),
    (lambda s: losses.hinge(1.0).cdf(0.0), "hinge is a loss of labels and has no cdf"),
    (lambda s: losses.hinge(1.0).quantile(0.5), "hinge is a loss of labels and has no quantile"),
    (lambda s: losses.hinge(1.0).variance, "no mean or variance"),
    (lambda s: losses.soft_insensitive(np.ones(2), np.ones(3), 0.3), "arrays of one length"),
    (lambda s: losses.hinge(1.0).sites([0.5]), r"y must hold the labels -1 and \+1 for the hinge loss, got 0\.5"),
    *seeds(lambda s, seed: NOISE.sample(2, seed)),
    *each(lambda s, bad: NOISE.weighted(bad), [v for v in NO_VECTOR[:9] if v is not None], "weight"),
    (lambda s: NOISE.weighted([1.0, 0.0]), r"weight must be > 0, got 0\.0: leave rows of weight 0 out"),
    (lambda s: NOISE.weighted([1.0, 2.0]).between([0.0, 0.0], [1.0, 1.0]), "weight must be 1 where targets are inter"),
    (lambda s: NOISE.between([0.0, 0.0], [1.0, 1.0]).weighted([1.0, 2.0]), "weight must be 1 where targets are inter"),
    (lambda s: NOISE.weighted(np.ones(2)).sites(np.ones(3)), "weight has 2 values, y has 3: they must agree"),
]


def nearest(K, mean=0.0):
    """`nearest_moments` of one new input with two rows, whose prior covariance with one another is K."""
    prior = np.eye(3)[None].copy()
    prior[0, 1:, 1:] = K
    return nearest_moments(prior, np.full((1, 3), mean), np.array([[0.0, 1.0]]), NOISE)


APPROXIMATIONS = {
    name: [
        *each(lambda s, bad, f=f: f(K, bad, NOISE), NO_VECTOR, "y"),
        *each(lambda s, bad, f=f: f(bad, Y, NOISE), NO_MATRIX, "K"),
        *each(lambda s, bad, f=f: f(K, Y, NOISE, mean=bad), NO_VECTOR, "mean"),
        (lambda s, f=f: f(K, Y, losses.hinge(1.0)), "y must hold the labels"),
        (lambda s, f=f: f(K, Y, "absolute"), "noise must be a noise model .*got 'absolute'"),
        (lambda s, f=f: f(K, Y, losses.absolute(np.ones(3))), "parameters of absolute have 3 values, y has 6"),
        (lambda s, f=f: f(np.triu(K), Y, NOISE), "K must be symmetric"),
        (lambda s, f=f: f(-K, Y, NOISE), "K must have no negative diagonal, got -1"),
        (lambda s, f=f: f(2.0 - np.eye(N), Y, NOISE), "K must be positive semidefinite"),
    ]
    for name, f in ON_ARRAYS.items()
}
APPROXIMATIONS["nearest_moments"] = [
    (lambda s: nearest([[1.0, 0.5], [0.0, 1.0]]), "K must be symmetric, K - K.T reaches 0.5"),
    (lambda s: nearest(-np.eye(2)), "K must have no negative diagonal, got -1"),
    (lambda s: nearest([[1.0, 2.0], [2.0, 1.0]]), "K must be positive semidefinite"),
    (lambda s: nearest(np.full((2, 2), np.inf)), "K must be finite, got inf"),
    (lambda s: nearest(np.eye(2), np.nan), "mean must be finite, got nan"),
]
for curved in ("laplace", "laplace_gradient"):
    APPROXIMATIONS[curved].append((lambda s, f=ON_ARRAYS[curved]: f(K, Y, NOISE, curvature="x"), "curvature .*got 'x'"))
APPROXIMATIONS["mean_field"] += options(
    lambda s, **o: approximations.mean_field(K, Y, NOISE, **o), mismatch=(*NO_SHARE, STRICTLY)
)
APPROXIMATIONS["Covariance"] = [
    *each(lambda s, bad: approximations.Covariance(bad), NO_MATRIX, "K"),
    *options(lambda s, **o: approximations.Covariance(K, **o), jitter=("a", -1.0, "must be a number of at least 0")),
    *each(lambda s, bad: approximations.Covariance.from_root(bad, np.ones(N)), NO_MATRIX, "root"),
    *each(lambda s, bad: approximations.Covariance.from_root(np.ones((N, 1)), bad), NO_VECTOR[:8], "diagonal"),
    (lambda s: approximations.Covariance.from_root(np.ones((N, 1)), np.ones(4)), "diagonal must have 6 values as"),
    (lambda s: approximations.Covariance.from_root(np.ones((N, 1)), -np.ones(N)), "diagonal must be at least 0, got"),
]
APPROXIMATIONS["annealed"] += [
    (lambda s: approximations.annealed(K, Y, NOISE, 20), r"design must be Annealed\(...\), got 20"),
    *seeds(lambda s, seed: ON_ARRAYS["annealed"](K, Y, NOISE, random_seed=seed)),
    (lambda s: ON_ARRAYS["annealed"](K, None, NOISE), "y must be given with a noise model"),
    (lambda s: ON_ARRAYS["annealed"](K, None, lambda f: f), "likelihood must give 20 log likelihoods, .*shape"),
    (lambda s: ON_ARRAYS["annealed"](K, None, lambda f: np.full(len(f), -np.inf)), "likelihood must not vanish"),
    (lambda s: ON_ARRAYS["annealed"](np.zeros((N, N)), Y, NOISE), "K must be positive definite"),
]
APPROXIMATIONS["LatentPosterior"] = [
    *each(lambda s, bad: posterior().predict(bad, np.ones(N)), NO_MATRIX[:5], "K_star"),
    (
        lambda s: posterior().predict(np.ones((1, 3)), [1.0]),
        r"K_star must be an \(n_new, 6\) array, got shape \(1, 3\)",
    ),
    *each(lambda s, bad: posterior().predict(K, bad), NO_VECTOR, "k_star_diag"),
    *each(lambda s, bad: posterior().predict(K, np.ones(N), bad), NO_VECTOR[:7], "mean"),
    *each(lambda s, bad: posterior().log_loo(bad, NOISE), NO_VECTOR, "y"),
    (lambda s: posterior().predict(K, np.ones(N), np.ones(2)), r"mean must be a number or a \(6,\) array, got shape"),
    (lambda s: posterior().log_loo(Y, "x"), "noise must be a noise model .*got 'x'"),
]
# Results, which are not made by hand, and what is no function.
PASSIVE = {"__version__", "classification", "cov", "scorers", "ConvergenceWarning", "LOSSES"}
PASSIVE |= {"BlockDiagonal"}
RETURNED = {"Blocks", "NoiseScales"}  # by public functions; not public
OF_CORE = {"nearest_moments", "reverse_annealed", "laplace_gradient", "mean_field_gradient"}  # not public


@cache
def regression():
    return fitted(bp.BayesianSVR)


def changed(target_scale=UNSCALED, **state):
    """The regression with another fitted state."""
    svr, fit = copy(regression()), regression()._fit
    units = replace(fit.units, target_scale=target_scale)
    svr._fit = replace(fit, units=units, found=replace(fit.fitted, **state))
    return svr


def fit_labels(s):
    return bp.fit(bp.MeanField(), s.labels, hyperparameters={"C": 1.0}, progressbar=False)


def negative(s):
    result = s.result.copy(deep=True)
    result["latent_posterior"]["site_precision"].values[1] = -1.0
    return result


def of_one_process(noise=bp.Huber, mean=None, blocks=None, second=False, **parameters):
    with pm.Model():
        mean = mean or pm.gp.mean.Zero()
        f = bp.GP(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X, blocks=blocks)
        g = bp.GP(cov_func=pm.gp.cov.Constant(1.0)).prior("g", X=X) if second else None
        noise("y", mu=f + g if second else f, **{"C": 5.0, "epsilon": 0.1, **parameters}, observed=Y)
        return to_botorch(bp.fit(bp.MeanField(), progressbar=False))


@cache
def monotone():
    return estimator(bp.BayesianSVR, monotone={0: 1}).fit(X, Y - 2.0 * np.exp(-4.0 * X[:, 0] ** 2))


ONE = "fitted must have one Gaussian process of real targets, got"
INTEGRATIONS = {
    "to_botorch": [
        (lambda s: to_botorch("x"), "fitted must be a BayesianSVR, or a result .*, got 'x'"),
        (lambda s: to_botorch(bp.LSSVR()), "fitted must be a BayesianSVR, or a result .*, got LSSVR"),
        (lambda s: to_botorch(regression(), s.model), "fitted must be a BayesianSVR, or a result .*, got BayesianSVR"),
        (lambda s: to_botorch(bp.BayesianSVR()), "is not fitted yet"),
        (lambda s: to_botorch(several()), "a model of BoTorch is of one target, got 2: take one of estimators_"),
        (lambda s: to_botorch(s.result), "model must be given"),
        (lambda s: to_botorch(s.result, s.other), "result and model have different numbers"),
        (lambda s: to_botorch(s.mode, s.model), f"{ONE} only the mode of f: fit by mean field"),
        (lambda s: to_botorch(negative(s), s.model), "fitted must have sites of .* got the precision -1"),
        (lambda s: to_botorch(changed(posteriors=[], draws=xr.DataTree())), f"{ONE} draws: fit by mean field"),
        (lambda s: to_botorch(monotone()), f"{ONE} inputs in which f is monotone: fit without monotone"),
        (lambda s: to_botorch(changed(target_scale=LOGARITHM)), f"{ONE} log_targets=True: fit the logarithms"),
        (lambda s: to_botorch(changed(Root.of_targets(0.0, -1.0))), f"{ONE} roots of the targets: use warping=False"),
        (lambda s: to_botorch(fit_labels(s), s.labels), f"{ONE} classes: use real targets"),
        (lambda s: of_one_process(blocks=bp.local_blocks(X, rows=3)), f"{ONE} blocks of rows: use blocks=None"),
        (lambda s: of_one_process(C=np.full(N, 5.0)), f"{ONE} noise with a value for each training point"),
        (lambda s: of_one_process(mean=pm.gp.mean.Linear(1.0)), f"{ONE} the prior mean Linear: use"),
        (lambda s: of_one_process(second=True), f"{ONE} a sum of processes: add the kernels"),
    ]
}
CASES = {
    **PUBLIC,
    **INTEGRATIONS,
    **LOSSES,
    **{f"approximations.{name}": cases for name, cases in APPROXIMATIONS.items()},
}


def test_every_public_name_has_cases():
    public = set(bp.__all__) | set(classification.__all__) | set(bp.cov.__all__) | set(bp.scorers.__all__)
    assert set(PUBLIC) - RETURNED == public - PASSIVE
    assert set(LOSSES) == set(losses.__all__) - PASSIVE
    assert set(APPROXIMATIONS) - OF_CORE == set(approximations.__all__) - PASSIVE
    assert all(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_by_name(name, s):
    for call, message in CASES[name]:
        with warnings.catch_warnings(action="ignore"), pytest.raises((ValueError, TypeError)) as caught:
            call(s)
        assert not isinstance(caught.value, np.linalg.LinAlgError)
        assert re.search(message, str(caught.value), flags=re.DOTALL), f"{message!r} is not in {caught.value!s}"


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_bad_data_of_estimators(cls):
    """Beside the checks of scikit-learn, of numbers of axes, rows and features and of missing numbers."""
    words = [(object(), "X"), ("abc", "X"), (np.array([["a", "b"]] * 20), "X")]
    for bad, message in [
        *words,
        (MANY[:5], "inconsistent numbers of samples"),
        (1e200 * MANY, r"X must stay within ±1e\+150"),
        (1e-200 * MANY, "X must have a standard deviation of at least 1e-150, got .*: use other units"),
        (1e8 + 1e-8 * MANY, "X must have a standard deviation of at least 1e-12 of its size, got .* at 1e"),
        (WHOLE[:, None], "X must have a standard deviation of at least 1e-12 of its size, got 0 at 1.15"),
        (pd.DataFrame({"t": WHOLE}), "column 't' has differences that are lost in rounding, got only 1.15"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            fitted(cls, X=bad)
    for bad in (NAN, np.full(20, np.nan), np.full(20, np.inf), np.ones((20, 2)), "abc", object()):
        with pytest.raises((ValueError, TypeError)):
            fitted(cls, y=bad)
    if cls is not bp.BayesianSVC:
        with pytest.raises(ValueError, match=r"X and y must be arrays of numbers: .*'a'"):
            fitted(cls, y=np.array(["a"] * 20))
        with pytest.raises(ValueError, match=r"y must stay within ±1e\+150"):
            fitted(cls, y=1e200 * TARGETS)
        for targets, message in (
            (np.ones(20), "y must not be constant, got 1.0 throughout"),
            (np.zeros(20), "y must not be constant, got 0.0 throughout"),
            (1e-200 * TARGETS, "y must have a standard deviation of at least 1e-150, got .*: use other units"),
            (1e8 + 1e-8 * TARGETS, "y must have a standard deviation of at least 1e-12 of its size, got .* at 1e"),
            (WHOLE, "y must have a standard deviation of at least 1e-12 of its size, got 0 at 1.15"),
            (WHOLE + 999 * np.arange(20), "y must have .* at least 1e-12 of its size, got .* at 1.15"),
        ):
            with pytest.raises(ValueError, match=message):
                fitted(cls, y=targets)
        with pytest.raises(ValueError, match=r"1 sample\(s\).*minimum of [25] is required"):
            fitted(cls, X=MANY[:1], y=TARGETS[:1])
    machine = fitted(cls)
    for bad, message in words:
        with pytest.raises((ValueError, TypeError), match=message):
            machine.predict(bad)
    if hasattr(machine, "predict_interval"):
        for bad in NO_SHARE:
            with pytest.raises(ValueError, match=r"coverage must lie strictly between 0 and 1, got"):
                machine.predict_interval(MANY, bad)
        for bad in ("a", [], [0.0], [np.nan], None):
            with pytest.raises(ValueError, match=r"quantiles must .*got"):
                machine.predict_quantiles(MANY, bad)
    if hasattr(machine, "sample_y"):
        for bad in (0, "a", 1.5):
            with pytest.raises(ValueError, match="n_samples must be an integer of at least 1, got"):
                machine.sample_y(MANY, bad)


def unusual(y=TARGETS, X=MANY):
    """Data that are unusual and valid."""
    return {
        "duplicated rows": (np.repeat(X[:10], 2, axis=0), np.repeat(y[:10], 2)),
        "duplicated rows with other targets": (np.repeat(X[:10], 2, axis=0), y),
        "one place": (np.ones((20, 2)), y),
        "constant column": (np.column_stack([X, np.ones(20)]), y),
        "inputs far from 0": (X + 1e8, y),
        "inputs times 1e140": (1e140 * X, y),
        "inputs times 1e-140": (1e-140 * X, y),
    }


@pytest.mark.slow_cases("BayesianSVC", "BayesianSVR")
@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_unusual_data_of_estimators_give_finite_predictions(cls):
    cases = unusual(LABELS) if cls is bp.BayesianSVC else unusual()
    if cls is not bp.BayesianSVC:
        cases |= {f"targets times {scale:g}": (MANY, scale * TARGETS) for scale in (1e140, 1e-140, 1e12, 1e-12)}
        cases |= {"targets far from 0": (MANY, TARGETS + 1e8), "two rows": (MANY[:2], TARGETS[:2])}
    if cls is bp.ResidualIntervals:
        del cases["two rows"]  # fewer than its folds
    for name, (inputs, targets) in cases.items():
        options = {"inference": "auto"} if cls is bp.BayesianSVR and "times" not in name else {}
        with warnings.catch_warnings(action="ignore"):
            machine = fitted(cls, X=inputs, y=targets, **options)
            found = [machine.predict_proba(inputs) if cls is bp.BayesianSVC else machine.predict(inputs)]
            if cls in (bp.BayesianSVR, bp.LSSVR, bp.BayesianLSSVR):
                found += machine.predict(inputs, return_std=True)
            if hasattr(machine, "predict_interval"):
                found.append(machine.predict_interval(inputs))
        assert all(np.isfinite(part).all() for part in found), name


@cache  # that of the unit 1 is compared with each other
def in_units(unit):
    model = bp.default_model(MANY, unit * TARGETS)
    result = bp.fit(bp.MeanField(), model, restarts=1, random_seed=0, progressbar=False)
    seen = bp.predict(result, MANY, model=model)
    assert result.attrs["converged"]
    log_evidence = result.attrs["log_evidence"] / len(TARGETS) + np.log(unit)
    return seen["y_mean"] / unit, seen["y_variance"] / unit**2, log_evidence


@pytest.mark.slow_cases("1e-14", "1e-100", "1e+100")
@pytest.mark.parametrize("scale", [1e-100, 1e-14, 1e100])
def test_default_models_do_not_depend_on_the_units_of_the_targets(scale):
    """In small units the search ended at its bounds, converged, with standard deviations of many times the data."""
    for one, other in zip(in_units(1.0), in_units(scale), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def rows(x="{i}", n=25):
    return "x,z,y\n" + "".join(f"{x.format(i=i)},{i * i % 7},{np.sin(i):.4f}\n" for i in range(n))


FILES = {
    "words.csv": (rows().replace("\n3,", "\nTRUE,"), "column 'x' is not numeric, row 5 has 'TRUE'"),
    "blank.csv": (rows().replace("\n3,", "\n\n\nx3,"), "column 'x' is not numeric, row 7 has 'x3'"),
    "tiny.csv": (rows("{i}e-200"), "column 'x' must have a standard deviation of at least 1e-150"),
    "header.csv": (rows(n=0), "has 0 rows, at least 10 are needed"),
    "narrow.csv": (rows().replace("x,z,y", "x,y", 1), "has 3 cells, more than the header, which has 2"),
    "binary.csv": (bytes(range(256)), "): give UTF-8 text"),
}


@pytest.mark.parametrize("command", ["compare", "fit"])
@pytest.mark.parametrize("file", FILES)
def test_bad_files_leave_nothing_behind(tmp_path, monkeypatch, command, file):
    monkeypatch.chdir(tmp_path)
    content, message = FILES[file]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused([command, file], message, tmp_path)


def refused(arguments, message, folder):
    before = sorted(folder.rglob("*"))
    assert message in refuse_command(*arguments)
    assert sorted(folder.rglob("*")) == before


def test_bad_options_of_commands_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(rows())
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.csv").write_text(rows())
    (tmp_path / "sd.csv").write_text(rows().replace("x,z,y", "x,z,sd"))
    pd.DataFrame({"x": range(20), "y": 2**53 + np.arange(20)}).to_csv("large.csv", index=False)
    pd.DataFrame({"x": range(20), "y": "low"}).to_csv("one.csv", index=False)
    (tmp_path / "ordered.csv").write_text(rows().replace("x,z,y", "x,P(1),y"))
    result = bp.BayesianSVR(inference="mean_field", restarts=1).fit(MANY, TARGETS).result_
    bp.save(result, "saved.nc")
    result.attrs["target"] = "sd"
    bp.save(result, "sd.nc")
    for arguments, message in (
        (["compare", "good.csv", "--out", "good.csv"], "--out must be a folder, got the file good.csv"),
        (["compare", "good.csv", "--out", "good.csv/deep"], "--out must lie in a folder, and"),
        (["compare", "good.csv", "--target", "price"], "has no column 'price'; it has: x, z, y"),
        (["compare", "good.csv", "--methods", "vb"], "--methods must name some of"),
        (["compare", "good.csv", "--chains", "0"], "--chains must be at least 1, got 0"),
        (["compare", "good.csv", "--test-fraction", "0"], "test_fraction must lie strictly between 0 and 1, got 0.0"),
        (["compare", "none.csv"], "none.csv: there is no such file"),
        (["compare", "--target", "y"], "--target needs a CSV file"),
        (["fit", "good.csv", "-o", "good.csv"], "--out must be another file than the one that is read, good.csv"),
        (
            ["predict", "none.nc", "good.csv", "-o", "./good.csv"],
            "--out must be another file than the one that is read",
        ),
        (["fit", "good.csv", "-o", "other.csv"], "--out must not replace other.csv, which is no saved model"),
        (["predict", "none.nc", "good.csv", "-o", "saved.nc"], "--out must not replace saved.nc, which is a saved"),
        (["fit", "good.csv", "-o", "folder"], "--out must be a file, got the folder folder"),
        (["fit", "good.csv", "-o", "good.csv/model.nc"], "--out must lie in a folder, and"),
        (["fit", "good.csv", "-o", "good.csv/"], "--out must be a folder, got the file good.csv"),
        (["fit", "good.csv", "-o", "model/"], "good.csv: has 25 rows, and a folder needs more than one block of 1000"),
        (["fit", "sd.csv", "-o", "model/"], "target must not be 'sd', another column of the predictions"),
        (["fit", "sd.csv"], "target must not be 'sd', another column of the predictions"),
        (["fit", "ordered.csv", "--target", "P(1)", "--ordinal"], "target must not be 'P(1)', another column of the"),
        (["predict", "sd.nc", "good.csv"], "target must not be 'sd', another column of the predictions"),
        (["fit", "none.parquet", "-o", "model/"], "none.parquet: there is no such file"),
        (["fit", "folder"], "folder: has no Parquet files"),
        (["fit", ".", "-o", "model.nc"], "folder: is a folder in a folder: give"),
        (["fit", "good.csv", "--ordinal", "-o", "model/"], "a model in a folder takes exact targets"),
        (
            ["fit", "good.csv", "--blocks", "1"],
            "blocks must be 'auto', None, an integer of at least 2 or LocalBlocks, got 1",
        ),
        (["predict", "folder", "good.csv"], "folder: is not the folder of a model: it has no model.json"),
        (["fit", "good.csv", "--noise", "cauchy"], "noise must be one of"),
        (["fit", "good.csv", "--lower", "x"], "--lower and --upper must be given together"),
        (["fit", "good.csv", "--lower", "x", "--upper", "x"], "lower and upper ends must be two columns, got 'x' for"),
        (["fit", "good.csv", "--lower", "x", "--upper", "y", "--ordinal"], "--lower and --upper say what is known"),
        (["fit", "good.csv", "--event", "x", "--ordinal"], "--event must be the column of the status"),
        (["fit", "good.csv", "--event", "x"], "column 'x' must have 1 (observed) or 0 (censored), it has"),
        (["fit", "good.csv", "--ordinal", "--log-target"], "--ordinal takes no --quantile, --keep-outliers"),
        (["fit", "good.csv", "--ordinal"], "must have whole numbers or words to be ordered classes, it has"),
        (["fit", "large.csv", "--ordinal"], "it has 9.0072e+15 in row 2, which may be rounded"),
        (["fit", "one.csv", "--ordinal"], "column 'y' must have at least two classes, got one, low"),
        (["fit", "good.csv", "--kernel", "precomputed"], "--kernel must be one of auto, main_effects"),
        (["predict", "none.nc", "good.csv", "--survival", "1,b"], "--survival must be numbers separated by commas"),
        (["predict", "none.nc", "good.csv"], "none.nc: there is no such file"),
        (["predict", "good.csv", "good.csv"], "good.csv: is not a saved model"),
        (
            ["predict", "none.nc", "good.csv", "--coverage", "90"],
            "--coverage must lie strictly between 0 and 1, got 90",
        ),
        (["predict", "none.nc", "good.csv", "--neighbours", "-1"], "--neighbours must be at least 0, got -1"),
    ):
        refused(arguments, message, tmp_path)
