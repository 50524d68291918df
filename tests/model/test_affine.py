"""Models that are linear in their Gaussian variables, against dense algebra of what they draw.

Each model is one expression, which is built in PyMC and computed in NumPy from standard normal numbers. The latter at
zero and at unit vectors gives means and covariances of all variables, whatever the package makes of the former.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy import stats
from scipy.optimize import minimize_scalar

import bsvr_pp as bp
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.model.reader import read_model
from tests.helpers import differences, model_of, process_model

N, GROUPS, SIGMA, JITTER = 10, 4, 0.3, 1e-6
AT = {"s": 0.7, "ls": 1.3}
OTHERS = {"log_ls": 0.2, "b": 0.5}
RNG = np.random.default_rng(0)


def rows(n: int) -> dict[str, Any]:
    group = np.arange(n) % GROUPS
    x, X, Z = RNG.normal(size=n), RNG.normal(size=(n, 2)), RNG.normal(size=(n, 3))
    return {"x": x, "W": X, "Z": Z, "group": group, "part": group // 2, "one": x[:, None]}


TRAIN, NEW = rows(N), rows(N)
BOTH = {name: np.concatenate([TRAIN[name], NEW[name]]) for name in TRAIN}
Y = np.sin(TRAIN["x"]) + 0.3 * TRAIN["group"] + 0.1 * RNG.normal(size=N)
FIVE = np.linspace(-1.0, 1.0, 5)[:, None]
PLACES = np.array([[-1.0], [0.0], [0.4], [1.5]])
ROOT = np.array([[1.0, 0.0], [0.6, 0.5]])
ROWS = "mu has a value for each training row"


def squares(a: Any, b: Any, ls: Any = 1.0) -> Any:
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1) / ls**2)


class InPyMC:
    """Variables of a model."""

    np = pt

    def __init__(self, train: dict[str, Any] = TRAIN) -> None:
        self.s, self.ls = pm.HalfNormal("s", 2.0), pm.LogNormal("ls", 0.0, 1.0)
        for name, values in train.items():
            setattr(self, name, pm.Data(name, values))
        self.n, self.later, self.mean_x = N, [], self.x.mean()

    def normal(self, name: str, mean: Any = 0.0, scale: Any = 1.0, shape: Any = None, **options: Any) -> Any:
        return pm.Normal(name, mean, scale, shape=shape, **options)

    def several(self, name: str, mean: Any, root: Any, shape: Any = None) -> Any:
        return pm.MvNormal(name, mean, chol=root, shape=shape)

    def covered(self, name: str, root: Any) -> Any:
        return pm.MvNormal(name, np.zeros(len(root)), cov=self.s * (root @ root.T))

    def zero_sum(self, name: str, scale: Any, shape: Any, axes: int = 1) -> Any:
        return pm.ZeroSumNormal(name, scale, shape=shape, n_zerosum_axes=axes)

    def walk(self, name: str, steps: int, scale: Any, start: float = 2.0, drift: float = 0.3) -> Any:
        first = pm.Normal.dist(0.0, start)
        return pm.GaussianRandomWalk(name, mu=drift, sigma=scale, init_dist=first, steps=steps)

    def walks(self, name: str, steps: int, root: Any) -> Any:
        first = pm.MvNormal.dist(np.zeros(len(root)), np.eye(len(root)))
        return pm.MvGaussianRandomWalk(name, mu=np.zeros(len(root)), chol=root, init_dist=first, steps=steps)

    def regression(self, name: str, rho: Any, constant: bool, scale: Any, length: int) -> Any:
        order = len(rho) - constant
        first = pm.Normal.dist(0.0, 1.0, shape=(order,))
        return pm.AR(name, rho=rho, sigma=scale, constant=constant, init_dist=first, steps=length - order)

    def process(self, name: str, at: Any, ls: Any = 1.0, mean: Any = None, **options: Any) -> Any:
        mean = pm.gp.mean.Zero() if mean is None else pm.gp.mean.Linear(*mean)
        columns = pt.as_tensor_variable(at).shape[1].eval()
        return bp.GP(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(int(columns), ls=ls)).prior(name, X=at, **options)

    def latent(self, name: str, at: Any) -> Any:
        return pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior(name, X=at)

    def basis(self, name: str, at: Any, centred: bool) -> Any:
        kind = "centered" if centred else "noncentered"
        gp = pm.gp.HSGP(m=[5], L=[4.0], cov_func=pm.gp.cov.ExpQuad(1, ls=self.ls), parametrization=kind)
        return gp.prior(name, X=at)

    def other(self, name: str, kind: Any = pm.Normal) -> Any:
        """A variable that is not integrated out, which a model may use twice."""
        model = pm.modelcontext(None)
        return model[name] if name in model.named_vars else kind(name)

    def named(self, name: str, value: Any) -> Any:
        return pm.Deterministic(name, value)

    of_data = named


class InNumPy:
    """The same variables as functions of standard normal numbers, at the training rows and then the new ones."""

    np = np

    def __init__(self, white: Any, data: dict[str, Any] = BOTH) -> None:
        self._white, self.used, self.variables = white, 0, {}
        vars(self).update(AT, **data)
        self.n, self.later, self.mean_x = 2 * N, [np.zeros(N)], self.x[:N].mean()

    def _next(self, *shape: int) -> Any:
        count = int(np.prod(shape))
        self.used += count
        return self._white[self.used - count : self.used].reshape(shape)

    def _keep(self, name: str, value: Any) -> Any:
        value = np.asarray(value)
        self.variables[name] = value[:N] if value.shape == (2 * N,) else value  # variables are at the training rows
        return value

    def normal(self, name: str, mean: Any = 0.0, scale: Any = 1.0, shape: Any = None, **options: Any) -> Any:
        shape = np.broadcast_shapes(np.shape(mean), np.shape(scale)) if shape is None else np.atleast_1d(shape)
        return self._keep(name, mean + scale * self._next(*shape))

    def several(self, name: str, mean: Any, root: Any, shape: Any = None) -> Any:
        shape = (len(root),) if shape is None else shape
        return self._keep(name, mean + self._next(*shape) @ root.T)

    def covered(self, name: str, root: Any) -> Any:
        return self._keep(name, np.sqrt(self.s) * (root @ self._next(len(root))))

    def zero_sum(self, name: str, scale: Any, shape: Any, axes: int = 1) -> Any:
        value = scale * self._next(*np.atleast_1d(shape))
        for axis in range(-axes, 0):
            value = value - value.mean(axis=axis, keepdims=True)
        return self._keep(name, value)

    def walk(self, name: str, steps: int, scale: Any, start: float = 2.0, drift: float = 0.3) -> Any:
        return self._keep(name, np.cumsum(np.r_[start * self._next(1), drift + scale * self._next(steps)]))

    def walks(self, name: str, steps: int, root: Any) -> Any:
        first, later = self._next(1, len(root)), self._next(steps, len(root)) @ root.T
        return self._keep(name, np.cumsum(np.concatenate([first, later]), axis=0))

    def regression(self, name: str, rho: Any, constant: bool, scale: Any, length: int) -> Any:
        order = len(rho) - constant
        values = list(self._next(order))
        for step in self._next(length - order):
            before = values[::-1][:order]
            values.append((rho[0] if constant else 0.0) + np.dot(rho[constant:], before) + scale * step)
        return self._keep(name, values)

    def process(self, name: str, at: Any, ls: Any = 1.0, mean: Any = None, **options: Any) -> Any:
        K = squares(at, at, ls)
        n = N if len(at) == len(self.x) else len(at)
        K[range(n), range(n)] += JITTER
        values, vectors = np.linalg.eigh(K)
        f = (vectors * np.sqrt(np.maximum(values, 0.0))) @ self._next(len(at))
        f = f if mean is None else f + at @ mean[0] + mean[1]
        return self._keep(name, f)

    latent = process

    def basis(self, name: str, at: Any, centred: bool) -> Any:
        centre, k = (at[:N].max() + at[:N].min()) / 2, np.arange(1, 6)
        omega = np.pi * k / 8.0
        phi = np.sin(omega * (at - centre + 4.0)) / 2.0
        density = np.sqrt(2 * np.pi) * self.ls * np.exp(-0.5 * (self.ls * omega) ** 2)
        white = self._next(5)
        self._keep(f"{name}_hsgp_coeffs", np.sqrt(density) * white if centred else white)
        return self._keep(name, phi @ (np.sqrt(density) * white))

    def other(self, name: str, kind: Any = None) -> Any:
        return OTHERS[name]

    def named(self, name: str, value: Any) -> Any:
        return self._keep(name, value)

    def of_data(self, name: str, value: Any) -> Any:
        return value


class Exact(NamedTuple):
    """Log evidence, mean and sd of the variables, and mean and variance of mu at new rows."""

    evidence: float
    moments: dict[str, Any]
    mean: Any
    variance: Any


def exact(mu: Callable[[Any], Any], data: dict[str, Any] = BOTH, sigma: Any = SIGMA) -> Exact:
    """Brute force."""

    def flat(white: Any) -> tuple[Any, Any]:
        made = InNumPy(white, data)
        location = np.broadcast_to(mu(made), 2 * N)
        each = {name: value.shape for name, value in made.variables.items()}
        return np.concatenate([location, *(value.ravel() for value in made.variables.values())]), (each, made.used)

    offset, (shapes, used) = flat(np.zeros(500))
    loading = np.stack([flat(np.eye(1, 500, k)[0])[0] for k in range(used)]).T - offset[:, None]
    A, left = loading[:N], Y - offset[:N]
    S = A @ A.T + np.diag(np.broadcast_to(sigma, N) ** 2)
    gain = loading @ A.T @ np.linalg.inv(S)
    mean = offset + gain @ left
    variance = np.maximum((loading**2).sum(axis=1) - ((loading @ A.T) * gain).sum(axis=1), 0.0)
    moments, start = {}, 2 * N
    for name, shape in shapes.items():
        part = slice(start, start := start + int(np.prod(shape)))
        moments[name] = np.stack([mean[part].reshape(shape), np.sqrt(variance[part]).reshape(shape)])
    evidence = stats.multivariate_normal(cov=S).logpdf(left)
    return Exact(float(evidence), moments, mean[N : 2 * N], variance[N : 2 * N])


def line(m: Any) -> Any:
    return m.normal("a", 1.0, 2.0) + m.normal("b", 0.0, m.s) * m.x


def of_groups(m: Any, mean: Any = 0.0) -> Any:
    return m.normal("u", mean, m.s, GROUPS)[m.group]


# Locations.
CASES: dict[str, Callable[[Any], Any]] = {
    "line": line,
    "a coefficient of shape 1": lambda m: m.x * m.normal("b", 0.0, m.s, 1) + m.normal("a"),
    "X @ b": lambda m: m.Z @ m.normal("b", np.array([0.5, 0.0, -1.0]), m.s, 3),
    "(X * b).sum": lambda m: 2.0 + (m.Z * m.normal("b", 0.0, 1.0, 3)).sum(axis=1),
    "coefficients of groups": lambda m: (m.normal("B", 0.0, m.s, (GROUPS, 3))[m.group] * m.Z).sum(axis=1),
    "an array with a mean": lambda m: (m.normal("B", m.normal("m", 1.0, 2.0, 3), m.s, (GROUPS, 3))[m.group] * m.Z).sum(
        axis=1
    ),
    "intercept and slope, correlated": lambda m: (
        (u := m.several("u", np.array([1.0, 0.0]), ROOT, (GROUPS, 2)))[m.group, 0] + u[m.group, 1] * m.x
    ),
    "MvNormal by its covariance": lambda m: m.W @ m.covered("b", ROOT),
    "MvNormal with a Gaussian mean": lambda m: m.W @ m.several("b", m.normal("m", 0.0, m.s, 2), ROOT),
    "groups that sum to zero": lambda m: m.normal("a") + m.zero_sum("u", m.s, GROUPS)[m.group],
    "a table that sums to zero": lambda m: m.zero_sum("u", m.s, (2, GROUPS), 2)[m.part, m.group],
    "hierarchy": lambda m: of_groups(m, m.normal("m", 0.0, 2.0)),
    "hierarchy of deviations": lambda m: m.named("u", m.normal("m", 0.0, 2.0) + m.s * m.normal("v", shape=GROUPS))[
        m.group
    ],
    "three levels": lambda m: m.normal("u", m.normal("r", m.normal("m"), m.s, 2)[np.array([0, 0, 1, 1])], 0.5, GROUPS)[
        m.group
    ],
    "Deterministics": lambda m: m.named(
        "eta", m.named("slope", m.s * m.normal("b")) * m.of_data("twice", 2.0 * m.x + 1.0) + m.normal("a")
    ),
    "f": lambda m: m.process("f", m.W, m.ls),
    "f by MvNormal": lambda m: m.process("f", m.W, m.ls, reparameterize=False) + m.normal("a"),
    "f and a line": lambda m: m.process("f", m.W, m.ls) + line(m),
    "f[idx]": lambda m: m.process("f", PLACES, m.ls)[m.group],
    "f[idx] and a line": lambda m: m.x * m.process("f", PLACES)[m.group] + line(m),
    "replicates": lambda m: m.np.concatenate([m.np.repeat(m.process("f", FIVE), 2), *m.later]),
    "joined processes": lambda m: m.np.concatenate([m.process("f", FIVE, m.ls), 2.0 + m.process("h", FIVE), *m.later]),
    "z * f": lambda m: m.x * m.process("f", m.W, m.ls),
    "s * f": lambda m: m.s * m.process("f", m.W),
    "f1 - f2": lambda m: m.process("f", m.W) - m.process("h", m.one, m.ls),
    "varying coefficients": lambda m: m.process("f", m.W) + m.x * m.process("h", m.W, m.ls) + m.normal("a"),
    "one f per part": lambda m: m.np.where(m.part > 0, m.process("f", m.one), m.process("h", m.one, m.ls)),
    "minus twice f": lambda m: m.normal("a") - 2.0 * m.process("f", m.W),
    "mean function with coefficients": lambda m: m.process(
        "f", m.W, m.ls, (m.normal("b", 0.0, m.s, 2), m.normal("a", 1.0, 2.0))
    ),
    "mean function with coefficients, f[idx]": lambda m: m.process(
        "f", PLACES, m.ls, (m.normal("b", 0.0, m.s, 1), m.normal("a", 1.0, 2.0))
    )[m.group],
    "walk over groups": lambda m: m.walk("u", GROUPS - 1, m.s)[m.group],
    "walk over rows": lambda m: m.walk("u", m.n - 1, m.s),
    "two walks over groups": lambda m: (m.walks("u", GROUPS - 1, ROOT)[m.group] * m.W).sum(axis=1),
    "AR(1)": lambda m: m.regression("u", np.array([0.6]), False, m.s, GROUPS)[m.group],
    "AR(2) with a constant": lambda m: m.regression("u", np.array([0.5, 0.4, -0.3]), True, m.s, GROUPS)[m.group],
    "PyMC's process on groups": lambda m: m.latent("f", PLACES)[m.group] + m.normal("a"),
    "PyMC's process on rows": lambda m: m.latent("f", m.one) + m.normal("a"),
    "basis": lambda m: m.basis("f", m.one, False),
    "basis, centred": lambda m: m.basis("f", m.one, True) + m.s * m.x,
    "reduction over rows": lambda m: m.normal("b") * (m.x - m.mean_x),
    "log_ls": lambda m: m.process("f", m.W, m.np.exp(m.other("log_ls"))) + m.normal("a"),
    "a coefficient in a kernel": lambda m: m.process("f", m.W, m.np.exp(m.other("b"))) + m.other("b") * m.x,
    "inputs that are computed row by row": lambda m: m.process("f", (2.0 * m.x)[:, None]) + m.normal("a"),
    "a known offset": lambda m: line(m) + of_groups(m) + 2.0 * m.W[:, 0],
    "positive": lambda m: m.other("b", pm.HalfNormal) * m.x + m.normal("a"),
    "exp(b)": lambda m: m.np.exp(m.other("b")) * m.x + m.normal("a"),
}
# What new rows are told of locations that have none.
REFUSALS = {
    "replicates": ROWS,
    "joined processes": ROWS,
    "walk over rows": "u has a value for each training row",
    "PyMC's process on rows": "f_rotated_ has a value for each",
    "reduction over rows": "mu has a value for each training row",
}


def mostly_slow(names: Any) -> list[Any]:
    """Every fourth one in the fast tests, and all in the slow ones."""
    return [pytest.param(name, marks=pytest.mark.slow if i % 4 != 1 else ()) for i, name in enumerate(names)]


def build(mu: Callable[[Any], Any], sigma: Any = SIGMA, train: dict[str, Any] = TRAIN, **options: Any) -> pm.Model:
    with pm.Model(**options) as model:
        m = InPyMC(train)
        pm.Normal("y", mu=mu(m), sigma=sigma(m) if callable(sigma) else sigma, observed=Y)
    return model


def check(model: pm.Model, expected: Exact, at: dict[str, Any] = AT) -> Any:
    """Fit a model, and compare evidence, variables, and predictions at as many rows as before, and at fewer."""
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, random_seed=0, progressbar=False)
    assert result.attrs["log_evidence"] == pytest.approx(expected.evidence, abs=1e-6)
    if "moments" in result.children:
        moments = result["moments"].to_dataset()
        assert {name for name in moments.data_vars if not name.endswith("_rotated_")} == set(expected.moments)
        for name, values in expected.moments.items():
            np.testing.assert_allclose(moments[name], values, atol=1e-6, err_msg=name)
    return result


@pytest.mark.slow_cases(
    "f and a line",
    "three levels",
    "joined processes",
    "varying coefficients",
    "basis",
    "exp(b)",
    "mean function with coefficients, f[idx]",
    "AR(1)",
    "groups that sum to zero",
    "a coefficient in a kernel",
)
@pytest.mark.slow_cases("an array with a mean")
@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_evidence_variables_and_new_rows_are_exact(name):
    mu, refusal = CASES[name], REFUSALS.get(name)
    model, expected = build(mu), exact(mu)
    problem = read_model(model)
    result = check(model, expected, {name: (AT | OTHERS)[name] for name in problem.hyperparameters})
    for some in (slice(None), slice(0, 3)):
        data = {name: values[some] for name, values in NEW.items()}
        if refusal:
            with pytest.raises(ValueError, match=refusal):
                bp.predict(result, model=model, data=data)
            continue
        seen = bp.predict(result, model=model, data=data)
        np.testing.assert_allclose(seen["f_mean"], expected.mean[some], atol=1e-6)
        np.testing.assert_allclose(seen["f_variance"], expected.variance[some], atol=1e-6)


def of_labels(m: Any) -> Any:
    """Effects with dimensions, of models with coordinates."""
    return m.normal("u", 0.0, m.s, GROUPS if isinstance(m, InNumPy) else None, dims="group_name")[m.group]


DATES = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], dtype="datetime64[ns]")
STANDARD = {name: values + 0.5 if values.dtype.kind == "f" else values for name, values in TRAIN.items()}


def changed(mu: Callable[[Any], Any]) -> pm.Model:
    """A model whose data are set afterwards."""
    model = build(mu, train=STANDARD)
    pm.set_data(TRAIN, model=model)
    return model


def nested(mu: Callable[[Any], Any]) -> pm.Model:
    """A model whose location is made in a part that has a name."""
    with pm.Model() as model:
        names = InPyMC(TRAIN)
        with pm.Model(name="part"):
            location = mu(names)
        pm.Normal("y", location, SIGMA, observed=Y)
    return model


COPIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], pm.Model]]] = {
    "pm.set_data": (CASES["Deterministics"], changed),
    "pm.do": (CASES["f and a line"], lambda mu: pm.do(build(mu), {"s": AT["s"]})),
    "pm.do of the lengthscale": (CASES["Deterministics"], lambda mu: pm.do(build(mu), {"ls": AT["ls"]})),
    "pm.observe of a scale beside f": (
        lambda m: m.s * m.process("f", m.W, m.ls) + m.normal("a"),
        lambda mu: pm.observe(build(mu), {"s": AT["s"]}),
    ),
    "pm.observe of the scale": (CASES["hierarchy"], lambda mu: pm.observe(build(mu), {"s": AT["s"]})),
    "a copy": (CASES["hierarchy of deviations"], lambda mu: build(mu).copy()),
    "strings": (of_labels, lambda mu: build(mu, coords={"group_name": list("abcd")})),
    "dates": (of_labels, lambda mu: build(mu, coords={"group_name": DATES})),
    "a part": (line, nested),
}


@pytest.mark.slow_cases(
    "pm.do of the lengthscale",
    "strings",
    "pm.do",
    "pm.observe of a scale beside f",
    "a copy",
    "a part",
    "pm.observe of the scale",
    "pm.set_data",
)
@pytest.mark.parametrize("name", COPIES)
def test_copies_and_labels_change_nothing(name):
    mu, make = COPIES[name]
    model, expected = make(mu), exact(mu)
    if name == "a part":
        expected = expected._replace(moments={f"part::{k}": v for k, v in expected.moments.items()})
    at = {k: AT[k] for k in read_model(model).hyperparameters}
    result = check(model, expected, at)
    seen = bp.predict(result, model=model, data=NEW)
    np.testing.assert_allclose(seen["f_mean"], expected.mean, atol=1e-6)
    np.testing.assert_allclose(seen["f_variance"], expected.variance, atol=1e-6)
    if name in ("strings", "dates"):
        labels = list("abcd") if name == "strings" else DATES
        for group in ("moments", "posterior"):
            assert result[group]["u"].dims[-1] == "group_name"
            np.testing.assert_array_equal(result[group]["group_name"], labels)


@pytest.mark.slow
def test_frozen_data_have_values_for_their_rows_alone():
    """PyMC makes them constants."""
    mu = CASES["f and a line"]
    model = freeze_dims_and_data(build(mu))
    result = check(model, exact(mu))
    with pytest.raises(ValueError, match="a constant with a value for each training point"):
        bp.predict(result, NEW["W"], model=model)


def f_of(m: Any) -> Any:
    return m.process("f", m.W)


def with_noise(make: Callable[[Any], Any]) -> Callable[[], pm.Model]:
    return lambda: model_of(lambda: make(InPyMC()))


LINEAR = "mu of y must be linear in latent functions and Gaussian variables, and "
REFUSED: dict[str, tuple[Callable[[], pm.Model], str]] = {
    **{
        name: (lambda mu=mu: build(mu), LINEAR + reason)
        for name, (mu, reason) in {
            "exp(f)": (lambda m: pt.exp(f_of(m)), "Exp of f is not"),
            "f squared": (lambda m: f_of(m) ** 2, "(Sqr|Pow) of f is not"),
            "f1 * f2": (lambda m: f_of(m) * m.process("h", m.one), "Mul of f and h is not"),
            "clip": (lambda m: pt.clip(3.0 * f_of(m), -20.0, 20.0), "Clip.* of f is not"),
            "a Gaussian scale": (lambda m: m.normal("b") * f_of(m), "Mul of b and f is not"),
            "behind a Deterministic": (
                lambda m: m.named("e", pt.tanh(m.named("g", 2.0 * f_of(m)))),
                "Tanh of f is not",
            ),
            "rounding": (lambda m: pt.round(f_of(m)), "Round.* of f is not"),
            "whole numbers": (lambda m: f_of(m).astype("int64"), "Cast.* of f is not"),
            "abs": (lambda m: abs(f_of(m)), "Abs of f is not"),
            "max": (lambda m: pt.maximum(f_of(m), 0.0), "Maximum of f is not"),
            "the largest": (lambda m: m.normal("a") + f_of(m).max(), "(Max|Argmax|CAReduce).* of f is not"),
            "sorted": (lambda m: pt.sort(f_of(m)), "Sort.* of f is not"),
            "softmax": (lambda m: pt.special.softmax(f_of(m)), ".* of f is not"),
            "steps in a mean of a coefficient": (
                lambda m: m.x * m.normal("v", pt.sign(m.normal("u"))),
                "Sign of u is not",
            ),
            "a product in a mean": (
                lambda m: m.x * m.normal("v", m.normal("a") * m.normal("b")),
                "Mul of a and b is not",
            ),
            "product of coefficients": (lambda m: m.normal("a") * m.normal("b") * m.x, "Mul of a and b is not"),
            "where f is positive": (lambda m: pt.where(f_of(m) > 0, m.x, 0.0), "(Gt|Lt|GT|LT).* of f is not"),
        }.items()
    },
    "a process in log C": (
        with_noise(
            lambda m: bp.SoftInsensitive(
                "y", f_of(m), C=pt.exp(m.process("h", m.one)), epsilon=0.1, beta=0.3, observed=Y
            )
        ),
        "the latent function h is no part of mu of y",
    ),
    "f in log C": (
        with_noise(lambda m: bp.SoftInsensitive("y", (f := f_of(m)), C=pt.exp(f), epsilon=0.1, beta=0.3, observed=Y)),
        "the kernel or the noise depends on the latent function f",
    ),
    "Student-t": (with_noise(lambda m: pm.StudentT("y", nu=4.0, mu=f_of(m), observed=Y)), "the noise of y is StudentT"),
    "Poisson": (
        with_noise(lambda m: pm.Poisson("y", pt.exp(line(m)), observed=np.arange(N))),
        "the noise of y is Poisson",
    ),
    "X from a free variable": (
        with_noise(lambda m: pm.Normal("y", m.process("f", m.W + m.normal("a")), 1.0, observed=Y)),
        "the inputs X of f depend on a: they must be data",
    ),
    "constants alone": (lambda: build(lambda m: 2.0 * m.x), "mu of y has no latent function and no Gaussian variable"),
}


@pytest.mark.slow_cases("product of coefficients", "clip", "abs", "rounding", "max", "sorted", "softmax")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_linear_is_refused_by_name(name):
    make, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason):
        bp.fit(bp.MeanField(), make(), hyperparameters=AT, progressbar=False)


@pytest.mark.parametrize("mean", [lambda u: pt.exp(u), lambda u: 3.0 * u**2])
def test_what_is_not_linear_in_a_mean_of_a_coefficient_is_a_hyperparameter(mean):
    model = build(lambda m: m.x * m.normal("v", mean(m.normal("u")), 0.1) + m.normal("w", 2.0 * m.normal("a") - 1.0))
    problem = read_model(model)
    assert problem.hyperparameters == ("s", "ls", "u")
    assert set(problem.composite.variables) == {"v", "w", "a"}


ONES = np.ones((5, 5))
# Prior of w, its value, mu by w and f at five inputs, and the matrix by which mu is a product with f.
FAR: dict[str, tuple[Callable[[], Any], float, Callable[[Any, Any], Any], Any]] = {
    "one row on": (
        lambda: pm.HalfNormal("w", initval=1e-12),
        0.5,
        lambda w, f: f + w * pt.concatenate([[0.0], f[:-1]]),
        np.eye(5) + 0.5 * np.eye(5, k=-1),
    ),
    "a smoother": (
        lambda: pm.LogNormal("w", -5.0, 1.0),
        0.8,
        lambda w, f: pt.exp(-0.5 * (FIVE - FIVE[:, 0]) ** 2 / w**2) @ f,
        squares(FIVE, FIVE, 0.8),
    ),
    "two structures": (
        lambda: pm.Bernoulli("w", 0.1, initval=0),
        1,
        lambda w, f: pt.switch(pt.eq(w, 1), f - f.mean(), f),
        np.eye(5) - ONES / 5,
    ),
    "a threshold": (
        lambda: pm.HalfNormal("w", initval=0.1),
        1.0,
        lambda w, f: f + pt.switch(w > 0.9, 1.0, 0.0) * f.sum(),
        np.eye(5) + ONES,
    ),
    "small units": (lambda: pm.HalfNormal("w"), 2.0, lambda w, f: 1e-9 * w * pt.cumsum(f), 2e-9 * np.tril(ONES)),
    "small weights": (
        lambda: pm.HalfNormal("w"),
        1.0,
        lambda w, f: pt.concatenate([f[1:], 1e-5 * w * f.sum(keepdims=True)]),
        np.eye(5, k=1) + 1e-5 * np.eye(5)[:, 4:],
    ),
    "an offset": (lambda: pm.HalfNormal("w"), 1.0, lambda w, f: 1.7e9 + w * f[::-1], np.eye(5)[::-1]),
}


@pytest.mark.parametrize("name", FAR)
def test_structures_hold_at_all_hyperparameters_and_in_all_units(name):
    prior, value, mu, weights = FAR[name]
    model = process_model(lambda name, f: pm.Normal(name, mu(prior(), f), SIGMA, observed=Y[:5]), FIVE)
    covariance = read_model(model).dense_at({"w": value})[0].dense()
    expected = weights @ (squares(FIVE, FIVE) + JITTER * np.eye(5)) @ weights.T
    tolerance = 1e-5 if name == "an offset" else 1e-12  # the digits that such an offset leaves
    np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("f and a line", (True, True, True)),
        ("f[idx] and a line", (False, True, False)),
        ("z * f", (True, True, False)),
        ("s * f", (True, True, False)),
    ],
)
def test_usual_structures_are_found_beside_a_large_offset(name, kinds):
    """The targets may be times in seconds."""
    composite = read_model(build(lambda m: 1.7e9 + CASES[name](m))).composite
    assert [(each.aligned, each.single, each.unit) for each in composite.processes.values()] == [kinds]
    assert composite.rowwise


@pytest.mark.parametrize("rows", [N - 1, 1])
def test_targets_of_another_length_than_mu_are_refused_by_name(rows):
    model = process_model(lambda name, f: pm.Normal(name, f + 0.5, SIGMA, observed=Y[:rows]), TRAIN["W"])
    with pytest.raises(ValueError, match=f"mu of y must be one number, or one for each of {rows} targets"):
        read_model(model)


def standardised(m: Any) -> Any:
    return (m.x - m.x.mean()) / m.x.std()


GROUPED: dict[str, Callable[[Any], Any]] = {
    "hierarchy": CASES["hierarchy"],
    "f[idx]": CASES["f[idx]"],
    "table": CASES["a table that sums to zero"],
    "one more": lambda m: m.normal("u", 0.0, 1.0, GROUPS + 1)[m.group + 1],
    "one less": lambda m: m.normal("u", 0.0, 1.0, GROUPS)[m.group - 1],
    "halves": lambda m: m.normal("u", 0.0, 1.0, 2)[m.group // 2],
    "take": lambda m: pt.take(m.normal("u", 0.0, 1.0, GROUPS), m.group),
}


@pytest.mark.slow_cases("f[idx]")
@pytest.mark.parametrize("name", mostly_slow(GROUPED))
def test_groups_that_are_unknown_are_refused(name):
    model = build(GROUPED[name])
    at = {k: AT[k] for k in read_model(model).hyperparameters}
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    seen = bp.predict(result, model=model, data=TRAIN)["f_mean"]
    np.testing.assert_allclose(seen, result["latent_posterior"]["mean"], atol=1e-5)
    for group in (-3, GROUPS + 1):
        data = {"group": np.array([0, group, 1]), "part": np.zeros(3)}
        with pytest.raises(ValueError, match="groups of new rows must be numbers from 0 to"):
            bp.predict(result, model=model, data=data)
    with pytest.raises(ValueError, match=r"data\['group'\] must be whole numbers"):
        bp.predict(result, model=model, data={"group": [0.5], "part": [0.0]})


@pytest.mark.slow
def test_each_number_of_a_place_is_a_known_one():
    """2·group + part of an unknown part is the place of another group."""
    model = build(lambda m: m.normal("u", shape=(GROUPS, 2)).flatten()[2 * m.group + m.part])
    result = bp.fit(bp.MeanField(), model, hyperparameters={"s": 1.0, "ls": 1.0}, progressbar=False)
    bp.predict(result, model=model, data={"group": [3, 0], "part": [0, 1]})
    for part in (-1, 2):
        with pytest.raises(ValueError, match=f"groups of new rows must be numbers from 0 to 1, got {part}"):
            bp.predict(result, model=model, data={"group": [1], "part": [part]})


@pytest.mark.slow
def test_groups_of_noise_and_of_kernels_are_known_ones():
    for has_dims in (False, True):
        with pm.Model(coords={"g": range(GROUPS)}) as model:
            m = InPyMC()
            sigma = 0.1 + pm.HalfNormal("sigma", dims="g") if has_dims else pt.constant([0.1, 0.2, 0.3, 0.4])
            pm.Normal("y", line(m), sigma[m.group], observed=Y)
        at = AT | ({"sigma": np.arange(GROUPS) + 1.0} if has_dims else {})
        result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
        for group, words in ((-1, "from 0 to 3"), (GROUPS, "from 0 to 3"), (0.5, "whole numbers, as in the model")):
            with pytest.raises(ValueError, match=f"must be .*{words}, got {group}"):
                bp.predict(result, model=model, data=NEW | {"group": np.full(N, group)})
    both = pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[0]) * pm.gp.cov.Coregion(2, B=np.eye(2), active_dims=[1])
    inputs = np.stack([TRAIN["x"], TRAIN["part"]], axis=1)
    model = process_model(pm.Normal, inputs, kernel=lambda: both, sigma=SIGMA, observed=Y)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    for output in (-1, 2):
        with pytest.raises(ValueError, match=f"groups of new rows must be numbers from 0 to 1, got {output}"):
            bp.predict(result, [[0.0, output]], model=model)


OVER_ROWS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "in the location": (lambda m: m.normal("b") * standardised(m), SIGMA),
    "as an offset": (lambda m: m.normal("b") + m.x.mean(), SIGMA),
    "a sum so far": (lambda m: m.normal("b") * pt.cumsum(m.x), SIGMA),
    "the row before": (lambda m: m.normal("b") * pt.concatenate([[0.0], m.x[:-1]]), SIGMA),
    "in the inputs": (lambda m: m.process("f", standardised(m)[:, None]) + m.normal("a"), SIGMA),
    "in a mean function": (lambda m: m.process("f", m.one, 1.0, (m.normal("b", shape=1), m.x.mean())), SIGMA),
    "in the noise": (line, lambda m: pt.exp(0.5 * standardised(m))),
    "in the noise of a process": (lambda m: m.process("f", m.W), lambda m: pt.exp(0.5 * standardised(m))),
}


@pytest.mark.slow_cases("in the noise", "in a mean function")
@pytest.mark.parametrize("name", mostly_slow(OVER_ROWS))
def test_what_is_computed_over_rows_is_refused_at_new_ones(name):
    model = build(*OVER_ROWS[name])
    at = {k: AT[k] for k in read_model(model).hyperparameters}
    result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    for some in (slice(None), slice(0, 3)):
        with pytest.raises(ValueError, match=r"has a value for each training (row|point)"):
            bp.predict(result, model=model, data={name: values[some] for name, values in NEW.items()})


@pytest.mark.slow
def test_hyperparameters_are_found_where_rows_of_f_are_mixed():
    x = np.linspace(-3, 3, 12)[:, None]
    y = np.cumsum(np.sin(x[:, 0])) + 0.1 * np.cos(9 * x[:, 0])
    ls = partial(pm.LogNormal, "ls", 0, 1)
    model = process_model(lambda name, f: pm.Normal(name, pt.cumsum(f), 0.2, observed=y), x, ls=ls)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    root, sums = x - x.T, np.tril(np.ones((12, 12)))

    def log_posterior(log_ls):
        K = sums @ np.exp(-0.5 * (root / np.exp(log_ls)) ** 2) @ sums.T + 0.04 * np.eye(12)
        return stats.multivariate_normal(cov=K).logpdf(y) - 0.5 * log_ls**2 - log_ls

    best = minimize_scalar(lambda v: -log_posterior(v), bounds=(-2, 2), method="bounded").x
    assert np.log(result["posterior"]["ls"][0, 0].item()) == pytest.approx(best, abs=0.02)


@pytest.mark.slow_cases("f and a line")
@pytest.mark.parametrize(
    "name", mostly_slow(["hierarchy", "f and a line", "mean function with coefficients", "basis", "AR(1)", "s * f"])
)
def test_gradients_of_the_evidence_are_those_of_differences(name):
    mu = CASES[name]
    marginal = bp.marginalize(bp.MeanField(), build(mu))
    density, slope = marginal.compile_logp(), marginal.compile_dlogp()
    names = [v.name for v in marginal.continuous_value_vars]
    expected = differences(lambda x: density(dict(zip(names, x, strict=True))), np.full(len(names), 0.2), 1e-5)
    assert slope(dict.fromkeys(names, np.array(0.2))) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def of_positive_mean(m: Any) -> Any:
    return of_groups(m, m.other("m", pm.HalfNormal)) + m.s * m.normal("v", 0.0, 1.0, GROUPS)[m.group]


OPTIMISED: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "HalfNormal": (CASES["positive"], "b"),
    "not linear": (CASES["exp(b)"], "b"),
    "in a kernel": (CASES["a coefficient in a kernel"], "b"),
    "with a transform": (
        lambda m: m.normal("b", default_transform=pm.distributions.transforms.log) * m.x + m.normal("a"),
        "b",
    ),
    "a mean": (of_positive_mean, "m"),
    "of a mean function": (lambda m: m.process("f", m.W, 1.0, (m.other("b", pm.HalfNormal) * np.ones(2), 0.0)), "b"),
    "two": (lambda m: (m.other("b", pm.HalfNormal) - m.other("c", pm.HalfNormal)) * m.x + m.normal("a"), "b, c"),
    "scales": (lambda m: m.s * m.process("f", m.W, m.ls) + m.normal("u", 0.0, m.s, GROUPS)[m.group], None),
    "a lengthscale": (CASES["log_ls"], None),
    "deviations": (CASES["hierarchy of deviations"], None),
}


@pytest.mark.slow_cases("not linear", "of a mean function")
@pytest.mark.parametrize("name", mostly_slow(OPTIMISED))
def test_coefficients_that_are_optimised_are_named(name, recwarn):
    mu, named = OPTIMISED[name]
    model = build(mu)
    given = {v.name: 0.5 for v in model.free_RVs if v.name in read_model(model).hyperparameters}
    left = {k: v for k, v in given.items() if k not in (named or "s").split(", ")}
    options = {"restarts": 1, "random_seed": 0, "progressbar": False}
    bp.fit(bp.MeanField(), model, hyperparameters=left, **options)
    seen = [str(each.message) for each in recwarn if "optimised" in str(each.message)]
    assert [each.split(" of mu:")[0] for each in seen] == ([] if named is None else [named])
    recwarn.clear()
    bp.fit(bp.MeanField(), model, hyperparameters=given, **options)
    assert not [each for each in recwarn if "optimised" in str(each.message)]


@pytest.mark.slow
def test_coefficients_with_a_prior_of_their_correlation():
    """As varying effects are written in PyMC: the factor of the covariance is a hyperparameter."""
    with pm.Model() as model:
        m = InPyMC()
        root, _, _ = pm.LKJCholeskyCov("root", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        u = pm.MvNormal("u", np.zeros(2), chol=root, shape=(GROUPS, 2))
        pm.Normal("y", u[m.group, 0] + u[m.group, 1] * m.x, SIGMA, observed=Y)
    expected = exact(lambda m: (u := m.several("u", 0.0, ROOT, (GROUPS, 2)))[m.group, 0] + u[m.group, 1] * m.x)
    check(model, expected, AT | {"root": ROOT[np.tril_indices(2)]})


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_deterministics_have_draws_and_moments_if_they_are_affine():
    """Those of the targets have their values, and not draws."""
    with pm.Model() as model:
        m = InPyMC()
        eta = pm.Deterministic("eta", line(m) + m.process("f", m.W))
        y = pm.Normal("y", eta, SIGMA, observed=Y)
        for name, value in {"odds": pt.exp(eta), "log": pt.log(eta), "rest": y - eta, "data": 2.0 * y}.items():
            pm.Deterministic(name, value)
    result = bp.fit(bp.MeanField(), model, hyperparameters=AT, random_seed=0, progressbar=False)
    drawn, moments = result["posterior"].to_dataset(), result["moments"].to_dataset()
    assert {"eta", "rest"} == set(moments.data_vars) - {"a", "b", "f", "f_rotated_"}
    assert "data" not in drawn
    np.testing.assert_allclose(drawn["odds"], np.exp(drawn["eta"]))
    np.testing.assert_allclose(drawn["rest"], Y - drawn["eta"])
    latent = result["latent_posterior"].to_dataset()
    np.testing.assert_allclose(moments["eta"].sel(moment="mean"), latent["mean"], atol=1e-8)
    np.testing.assert_allclose(moments["eta"].sel(moment="sd"), np.sqrt(latent["variance"]), atol=1e-7)
    np.testing.assert_allclose(moments["rest"].sel(moment="mean"), Y - latent["mean"], atol=1e-8)
    with pytest.raises(ValueError, match=r"X_new are values of W, and so are data\['W'\]: give one of the two"):
        bp.predict(result, NEW["W"], model=model, data=NEW)


def of_inputs(X, **options):
    """A model and result with inputs X, a function of the data u and v."""
    with pm.Model() as model:
        u, v = pm.Data("u", Y), pm.Data("v", np.cos(Y))
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), **options).prior("f", X=X(u, v))
        pm.Normal("y", f, 0.3, observed=Y)
    return bp.fit(bp.MeanField(), model, hyperparameters={}, progressbar=False), model


def test_inputs_that_are_computed_from_data_follow_new_data():
    result, model = of_inputs(lambda u, v: pt.stack([u, pt.exp(v)], axis=1))
    data = {"u": [0.1, 0.2], "v": [1.0, -2.0]}
    X = np.stack([data["u"], np.exp(data["v"])], axis=1)
    expected = bp.predict(result, X, model=model)
    for given in (None, X):
        xr.testing.assert_allclose(bp.predict(result, given, model=model, data=data), expected)
    for X_new, some, message in (
        (X + 0.1, data, "X_new must be the values of X that the model computes from data, or left out"),
        (X[:1], data, "X_new must be the values of X that the model computes from data, or left out"),
        (X, {"v": data["v"]}, "X of the model is computed from u, v: data must have all of them, it has no u"),
        (None, data | {"v": [1.0]}, r"data\['v'\] must be a \(2,\) array, got shape \(1,\)"),
        (None, data | {"u": 1.0}, r"data\['u'\] must be an? \(n_new,\) array, got shape \(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            bp.predict(result, X_new, model=model, data=some)


def test_rows_of_new_data_are_paired_by_their_labels():
    """Each may have them, also where X is computed from data."""
    result, model = of_inputs(lambda u, v: pt.stack([u, v], axis=1))
    u, v = pd.Series([0.1, 0.2], ["a", "b"]), pd.Series([1.0, -2.0], ["b", "a"])
    for predict in (bp.predict, bp.predict_distribution):
        with pytest.raises(ValueError, match="v has the row labels of X in another order, b beside a at row 0"):
            predict(result, model=model, data={"u": u, "v": v})
    with pytest.raises(ValueError, match="y_new has the row labels of X in another order"):
        bp.predict(result, model=model, data={"u": u.to_numpy(), "v": v}, y_new=u)


@pytest.mark.parametrize("second", [lambda v: v - v.mean(), lambda v: Y + 0.0 * v])
def test_inputs_that_are_computed_from_all_rows_do_not_follow_new_data(second):
    result, model = of_inputs(lambda u, v: pt.stack([u, second(v)], axis=1))
    with pytest.raises(ValueError, match="X of the model is not computed row by row from u, v: give X_new"):
        bp.predict(result, model=model, data={"u": [0.1], "v": [1.0]})


@pytest.mark.slow
def test_inputs_of_all_rows_are_given_beside_data_of_the_noise():
    with pm.Model() as model:
        u = pm.Data("u", Y)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=((u - u.mean()) / u.std())[:, None])
        pm.Normal("y", f, 0.3 + 0.1 * u**2, observed=Y)
    result = bp.fit(bp.MeanField(), model, hyperparameters={}, progressbar=False)
    X_new = (Y[:3, None] - Y.mean()) / Y.std()
    found = bp.predict(result, X_new, model=model, data={"u": Y[:3]})
    latent = result["latent_posterior"].to_dataset()
    np.testing.assert_allclose(found["f_mean"], latent["mean"][:3], atol=1e-5)


class Centred(pm.gp.mean.Mean):
    """A prior mean of a row that depends on all rows."""

    def __init__(self, coefficient):
        self.coefficient = coefficient

    def __call__(self, X):
        return self.coefficient * (X[:, 0] - X[:, 0].mean())


def test_a_prior_that_reduces_the_rows_says_nothing_about_new_ones():
    """Also where the initial coefficient is 0, and the first rows are equal."""
    X = np.repeat([0.0, 1.0, 2.0], 50)[:, None]
    with pm.Model() as model:
        mean_func = Centred(pm.Laplace("b", 0.0, 1.0))
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), mean_func=mean_func).prior("f", X=X)
        pm.Normal("y", f, 0.3, observed=X[:, 0])
    result = bp.fit(bp.MeanField(), model, hyperparameters={"b": 1.0}, progressbar=False)
    with pytest.raises(ValueError, match="prior mean or the kernel at a row depends on other rows"):
        bp.predict(result, [[0.1]], model=model)


def test_a_kernel_of_far_inputs_is_no_prior_that_reduces_the_rows():
    """Distances of far inputs have rounding errors, which differ between products of matrices."""
    X = np.random.default_rng(0).normal(size=(60, 12)) + 1000.0
    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.Exponential(12, ls=1.0)).prior("f", X=X)
        pm.Normal("y", f, 0.3, observed=np.sin(X[:, 0]))
    result = bp.fit(bp.MeanField(), model, hyperparameters={}, progressbar=False)
    assert np.isfinite(bp.predict(result, X[:3], model=model)["f_mean"]).all()


@pytest.mark.slow
def test_names_of_data_are_the_models_own():
    """Graphs are copied by the names of their variables, and those of the reader have none."""
    names = ("z", "values of f", "values of a")

    def mu(m: Any) -> Any:
        each = [getattr(m, name) for name in names]
        return m.process("f", m.W) * sum(each) + m.normal("a") + m.normal("b") * (each[0] - 2.0 * each[1] + each[2])

    named, both = (
        {"W": data["W"], "x": data["x"]} | dict(zip(names, data["Z"].T, strict=True)) for data in (TRAIN, BOTH)
    )
    check(build(mu, train=named), exact(mu, both))


def test_a_coefficient_on_which_something_else_depends_is_a_hyperparameter():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).prior("f", X=TRAIN["W"])
        pm.Normal("y", mu=f + a + b + pm.Normal("c", b), sigma=pm.math.exp(a), observed=Y)
    assert read_model(model).hyperparameters == ("a",)


@pytest.mark.parametrize("name", ["index", "self", "U"])
def test_a_coefficient_has_any_name(name):
    with pm.Model() as model:
        coefficient = pm.Normal(name, shape=2)
        pm.Normal("y", mu=pm.math.dot(TRAIN["W"], coefficient), sigma=SIGMA, observed=Y)
    assert set(read_model(model).composite.variables) == {name}


@pytest.mark.slow
def test_a_mean_at_inputs_that_are_no_data_has_any_number_of_rows():
    """A normal constant in the mean is a constant in the kernel."""
    found = []
    for constant in (0.0, 1.0):
        with pm.Model() as model:
            mean = pm.gp.mean.Zero() if constant else pm.gp.mean.Constant(pm.Normal("a"))
            kernel = pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.Constant(constant)
            f = bp.GP(mean_func=mean, cov_func=kernel).prior("f", X=TRAIN["W"])
            pm.Normal("y", mu=f, sigma=SIGMA, observed=Y)
        result = bp.fit(bp.MeanField(), model, progressbar=False)
        found.append(bp.predict(result, NEW["W"][:3], model=model))
    for name in ("f_mean", "f_variance"):
        np.testing.assert_allclose(*(each[name] for each in found), atol=1e-5)


@pytest.mark.slow
def test_rows_of_data_may_become_fewer_between_fits():
    """Compiled functions of draws have no number of rows: a model whose data were set is that of these data."""
    inputs, few = np.linspace(-3.0, 3.0, 12)[:, None], slice(0, 7)

    with pm.Model() as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=pm.Data("X", inputs))
        mu = pm.Deterministic("mu", f + pm.Normal("b") * pm.Data("z", np.cos(inputs[:, 0])))
        pm.Normal("y", mu, SIGMA, observed=pm.Data("targets", np.sin(inputs[:, 0])))
    bp.fit(bp.Laplace(), model, random_seed=0, progressbar=False, draws=9)
    x, z, y = inputs[few], np.cos(inputs[few, 0]), np.sin(inputs[few, 0])
    pm.set_data({"X": x, "z": z, "targets": y}, model=model)
    found = bp.fit(bp.Laplace(), model, random_seed=0, progressbar=False, draws=9)
    S = squares(x, x) + np.outer(z, z) + (JITTER + SIGMA**2) * np.eye(7)
    assert found.attrs["log_evidence"] == pytest.approx(stats.multivariate_normal(cov=S).logpdf(y), abs=1e-9)
    drawn = {name: found["posterior"][name].values[0] for name in ("f", "b", "mu")}
    np.testing.assert_allclose(drawn["mu"], drawn["f"] + drawn["b"][:, None] * z, atol=1e-8)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("several", [False, True])
def test_data_and_dims_may_change_the_structure_between_fits(several):
    """Whether rows mix values of f, and the sizes of coefficients, which graphs have: with one target and with two."""

    with pm.Model(coords={"g": range(2)}) as model:
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=FIVE)
        of_f = f if several else pm.Data("A", np.eye(5)) @ f
        pm.Normal("y", of_f + pm.Normal("b", dims="g").sum(), SIGMA, observed=Y[:5])
        if several:
            pm.Normal("z", f, SIGMA, observed=Y[:5])
    targets = np.tile(Y[:5], 1 + several)
    for A, size in [(np.eye(5), 2), (np.tril(ONES), 2), (np.eye(5), 4)][several:]:
        model.set_dim("g", size, coord_values=range(size))
        pm.set_data({} if several else {"A": A}, model=model)
        rows = np.vstack([np.eye(5)] * 2) if several else A
        jitter = np.eye(10) if several else A @ A.T  # where rows have several targets, each has its own
        S = rows @ squares(FIVE, FIVE) @ rows.T + JITTER * jitter + SIGMA**2 * np.eye(targets.size)
        S[:5, :5] += size
        expected = stats.multivariate_normal(cov=S).logpdf(targets)
        assert bp.fit(bp.Laplace(), model, progressbar=False).attrs["log_evidence"] == pytest.approx(expected, abs=1e-9)


def test_parts_add_up_with_coefficients_in_a_mean_function():
    rng = np.random.default_rng(0)
    X, z = np.sort(rng.uniform(-2.0, 2.0, (15, 1)), axis=0), rng.normal(size=15)
    with pm.Model() as model:
        a = pm.Normal("a", 1.0, 5.0)
        mean = pm.gp.mean.Constant(a)
        f = bp.GP(cov_func=pm.gp.cov.Matern32(1, ls=1.0), mean_func=mean).prior("f", X=pm.Data("X", X))
        pm.Normal("y", f + pm.Normal("b") * pm.Data("z", z), 0.1, observed=5.0 + np.sin(3.0 * X[:, 0]) + 0.5 * z)
    result = bp.fit(bp.MeanField(), model, progressbar=False)
    at = {"model": model, "data": {"z": z}}
    parts = [bp.predict(result, X, component=name, **at)["f_mean"].values for name in ("f", "a", "b")]
    np.testing.assert_allclose(sum(parts), bp.predict(result, X, **at)["f_mean"].values, atol=1e-8)


@pytest.mark.slow
def test_the_scale_of_a_scale_of_coefficients_may_be_a_hyperparameter():
    """Gradients of the prior mean went through the prior of the scale, which has none."""
    W = np.random.default_rng(1).normal(size=(20, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, pm.HalfCauchy("lam", pm.HalfNormal("tau"), shape=3), shape=3)
        bp.SoftInsensitive("y", mu=W @ b, C=5.0, epsilon=0.1, beta=0.3, observed=W[:, 0])
    with pytest.warns(UserWarning, match="no maximum"):
        result = bp.fit(bp.MeanField(), model, progressbar=False, restarts=1)
    assert result.attrs["converged"] == 0
