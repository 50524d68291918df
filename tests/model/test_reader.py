"""Each part of a model counts, or is refused by its name: small models of ordinary idioms, with Gaussian noise.

The evidence is then exact under every method, so that the density of the hyperparameter has a closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import bsvr_pp as bp
from bsvr_pp.core.arrays import ModelError
from bsvr_pp.model.gaussian import INTERPRETED
from bsvr_pp.model.reader import read_model

N, SIGMA, JITTER = 9, 0.3, 1e-6
X = np.linspace(-2.0, 2.0, N)[:, None]
Y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=N)
PRIOR = stats.lognorm(1.0)
POINT_METHODS = (bp.MAP(), bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField())


class Idiom(NamedTuple):
    """A model, and the log density that it adds to evidence and prior of ls, or what its refusal says."""

    build: Callable[[], pm.Model]
    expected: Callable[[float], float] | str


def evidence(ls: float) -> float:
    K = np.exp(-0.5 * (X - X.T) ** 2 / ls**2) + (JITTER + SIGMA**2) * np.eye(N)
    return float(stats.multivariate_normal(cov=K).logpdf(Y))


def model(
    add: Callable[..., Any] = lambda ls, f: None,
    *,
    sigma: Callable[[Any], Any] = lambda ls: SIGMA,
    ls: Callable[[], Any] = lambda: pm.LogNormal("ls", 0.0, 1.0),
    inputs: Callable[[Any], Any] = lambda ls: X,
    kernel: Callable[[Any], Any] = lambda ls: ls,
    mean: Callable[[], Any] = lambda: 0.0,
    name: str = "f",
    observed: Any = Y,
    total_size: int | None = None,
    **options: Any,
) -> pm.Model:
    with pm.Model(**options) as made:
        scale = ls()
        covariance = pm.gp.cov.ExpQuad(1, ls=kernel(scale))
        f = bp.GP(cov_func=covariance, mean_func=pm.gp.mean.Constant(mean())).prior(name, X=inputs(scale))
        noise = sigma(scale)
        y = pm.Normal("y", mu=f, sigma=noise, observed=observed, total_size=total_size)
        add(scale, f, y) if add.__code__.co_argcount == 3 else add(scale, f)
    return made


def known_scale(*, of_lengthscale: bool = False) -> pm.Model:
    """A model whose noise is a variable that is observed afterwards."""
    made = model(sigma=lambda ls: pm.HalfNormal("s", ls if of_lengthscale else 1.0))
    return pm.observe(made, {"s": SIGMA})


def with_data() -> pm.Model:
    """A potential of data that are changed later."""

    def add(ls: Any, f: Any) -> None:
        pm.Potential("p", -pm.Data("w", 0.0) * ls**2)

    made = model(add)
    pm.set_data({"w": 3.0}, model=made)
    return made


def inside_of_another() -> pm.Model:
    """A part of a model with a name of its own."""

    def add(ls: Any, f: Any) -> None:
        with pm.Model(name="part"):
            pm.Potential("p", -2.0 * ls)

    return model(add)


def single_precision() -> pm.Model:
    with pytensor.config.change_flags(floatX="float32"):
        return model()


def nothing(ls: float) -> float:
    return 0.0


IDIOMS = {
    "one process": Idiom(model, nothing),
    "a potential": Idiom(lambda: model(lambda ls, f: pm.Potential("p", -5.0 * ls**2)), lambda ls: -5.0 * ls**2),
    "a potential that ends": Idiom(
        lambda: model(lambda ls, f: pm.Potential("p", pt.switch(ls < 0.5, 0.0, -np.inf))),
        lambda ls: 0.0 if ls < 0.5 else -np.inf,
    ),
    "a vector of potentials": Idiom(
        lambda: model(lambda ls, f: pm.Potential("p", -np.array([1.0, 2.0]) * ls)), lambda ls: -3.0 * ls
    ),
    "two potentials": Idiom(
        lambda: model(lambda ls, f: [pm.Potential("p", -ls), pm.Potential("q", pt.log(ls))]),
        lambda ls: -ls + np.log(ls),
    ),
    "a potential of data": Idiom(with_data, lambda ls: -3.0 * ls**2),
    "a potential of the targets": Idiom(
        lambda: model(lambda ls, f, y: pm.Potential("p", -ls * pt.sum(y**2))), lambda ls: -ls * float(Y @ Y)
    ),
    "a potential in a part": Idiom(inside_of_another, lambda ls: -2.0 * ls),
    "an observed hyperparameter": Idiom(known_scale, lambda ls: float(stats.halfnorm.logpdf(SIGMA))),
    "an observed hyperparameter with a free scale": Idiom(
        lambda: known_scale(of_lengthscale=True), lambda ls: float(stats.halfnorm(scale=ls).logpdf(SIGMA))
    ),
    "an observed variable in the mean": Idiom(
        lambda: model(mean=lambda: pm.Normal("m", observed=0.0)), lambda ls: float(stats.norm.logpdf(0.0))
    ),
    "a measurement of a hyperparameter": Idiom(
        lambda: model(lambda ls, f: pm.Normal("z", ls, 0.1, observed=0.6)),
        lambda ls: float(stats.norm(ls, 0.1).logpdf(0.6)),
    ),
    "a total_size of a measurement of a hyperparameter": Idiom(
        lambda: model(lambda ls, f: pm.Normal("z", ls, 0.1, observed=[0.6], total_size=3)),
        lambda ls: 3.0 * float(stats.norm(ls, 0.1).logpdf(0.6)),
    ),
    "an intervention": Idiom(lambda: pm.do(model(sigma=lambda ls: pm.HalfNormal("s")), {"s": SIGMA}), nothing),
    "an initial value": Idiom(lambda: model(ls=lambda: pm.LogNormal("ls", 0.0, 1.0, initval=2.0)), nothing),
    "a truncated prior": Idiom(
        lambda: model(ls=lambda: pm.Truncated("ls", pm.LogNormal.dist(0.0, 1.0), upper=0.8)),
        lambda ls: -float(PRIOR.logcdf(0.8)) if ls <= 0.8 else -np.inf,
    ),
    "a deterministic on the way": Idiom(
        lambda: model(kernel=lambda ls: pm.Deterministic("twice", 2.0 * ls) / 2.0), nothing
    ),
    "a potential of f": Idiom(
        lambda: model(lambda ls, f: pm.Potential("p", -((f[3] - 2.0) ** 2))),
        r"the potential p depends on the latent function f: sample f as well, by bp.NUTS\(\)",
    ),
    "a potential of what f is made of": Idiom(
        lambda: model(lambda ls, f: pm.Potential("p", -(pm.modelcontext(None)["f_rotated_"] ** 2).sum())),
        "the potential p depends on the latent function f",
    ),
    "a potential behind a deterministic": Idiom(
        lambda: model(lambda ls, f: pm.Potential("p", pm.Deterministic("top", f.max()))),
        "the potential p depends on the latent function f",
    ),
    "a variable below f": Idiom(
        lambda: model(lambda ls, f: pm.Normal("z", f[3], 1.0)), "the variable z depends on the latent function f"
    ),
    "no targets": Idiom(
        lambda: model(observed=None), "the model must have an observed variable of f, the targets; it has none"
    ),
    "a random variable without a name": Idiom(
        lambda: model(kernel=lambda ls: ls * pt.exp(pm.Normal.dist())),
        "the model uses the random variable .* which it does not have",
    ),
    "a minibatch": Idiom(
        lambda: model(inputs=lambda ls: pm.Minibatch(X, batch_size=N)), "the model uses a pm.Minibatch, and f is"
    ),
    "a total_size": Idiom(
        lambda: model(total_size=90), "y has a total_size, and f is integrated out at all rows: give all, without it"
    ),
    "random inputs": Idiom(
        lambda: model(inputs=lambda ls: X + pm.Normal("shift")), "the inputs X of f depend on shift: they must be data"
    ),
    "single precision": Idiom(single_precision, "the variable ls is float32, and evidences need double precision"),
    "pairs as labels": Idiom(
        lambda: model(coords={"t": [(i, "a") for i in range(N)]}), "the coordinate t has tuples, and results one label"
    ),
    **{
        f"a variable named {name}": Idiom(
            lambda name=name: model(ls=lambda: pm.LogNormal(name, 0.0, 1.0)),
            f"the variable {name} has a name that results need themselves: rename it",
        )
        for name in ("chain", "draw")
    },
    "f named draw": Idiom(lambda: model(name="draw"), "the variable draw has a name that results need"),
}
READ = {name: idiom for name, idiom in IDIOMS.items() if not isinstance(idiom.expected, str)}
REFUSED = {name: idiom for name, idiom in IDIOMS.items() if isinstance(idiom.expected, str)}


def fit(method: Any, made: pm.Model, **options: Any) -> Any:
    return bp.fit(method, made, random_seed=0, progressbar=False, **options)


def mostly_slow(first: int) -> list[Any]:
    """Every fourth idiom in the fast tests, of the densities others than of the optima."""
    return [pytest.param(name, marks=pytest.mark.slow if i % 4 != first else ()) for i, name in enumerate(READ)]


@pytest.mark.parametrize("name", mostly_slow(2))
def test_the_density_that_nuts_samples(name):
    """With f integrated out it is evidence, prior and all other terms, for the constrained value of ls."""
    made = READ[name].build()
    marginal = bp.marginalize(bp.MeanField(), made)
    (value,) = [v for v in marginal.value_vars if v.name.startswith("ls")]
    logp = marginal.compile_fn(marginal.logp(jacobian=False), inputs=[value], mode=INTERPRETED, point_fn=False)
    forward = marginal.rvs_to_transforms[marginal["ls"]]
    for ls in (0.3, 0.45, 0.7):
        at = forward.forward(pt.constant(ls), *marginal["ls"].owner.inputs).eval()
        expected = evidence(ls) + float(PRIOR.logpdf(ls)) + READ[name].expected(ls)
        assert float(logp(at)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow_cases("a potential", "an observed hyperparameter with a free scale", "a potential of data")
@pytest.mark.parametrize("name", mostly_slow(1))
def test_the_optimum_counts_every_term(name):
    def objective(ls: float) -> float:
        return -(evidence(ls) + float(PRIOR.logpdf(ls)) + READ[name].expected(ls))

    made = READ[name].build()
    grid = np.geomspace(0.02, 5.0, 400)
    best = grid[np.argmin([objective(ls) for ls in grid])]
    expected = minimize_scalar(objective, bounds=(0.9 * best, 1.1 * best), method="bounded").x
    for method in POINT_METHODS if "potential" in name else (bp.MeanField(),):
        result = fit(method, made)
        found = result["posterior"].to_dataset()
        assert result.attrs["converged"]
        assert float(found["ls"][0, 0]) == pytest.approx(expected, rel=0.05)
        assert objective(float(found["ls"][0, 0])) <= objective(expected) + 0.05


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name(name):
    made = REFUSED[name].build()
    for method in (*POINT_METHODS, bp.NUTS(latent=bp.MeanField())):
        with pytest.raises(ModelError, match=REFUSED[name].expected):
            fit(method, made)
    for call in (
        lambda: bp.marginalize(bp.MeanField(), made),
        lambda: bp.log_evidence(bp.MeanField(), made, hyperparameters={"ls": 1.0}),
    ):
        with pytest.raises(ModelError, match=REFUSED[name].expected):
            call()


@pytest.mark.slow
def test_draws_of_f_take_what_depends_on_f():
    """A potential and a variable of f: the model is sampled as it is, and judged by draws of f alone."""

    def add(ls: Any, f: Any) -> None:
        pm.Potential("p", -0.5 * ((f[4] - 1.0) / 0.05) ** 2)
        pm.Normal("z", f[4], 0.01)

    made = model(add, ls=lambda: pt.constant(1.0))
    result = fit(bp.NUTS(draws=300, tune=300, chains=1), made)
    K = np.exp(-0.5 * (X - X.T) ** 2) + JITTER * np.eye(N)
    rows, noise = np.vstack([np.eye(N), np.eye(N)[4]]), np.array([*np.full(N, SIGMA**2), 0.05**2])
    gain = K @ rows.T @ np.linalg.inv(rows @ K @ rows.T + np.diag(noise))
    mean = gain @ np.array([*Y, 1.0])
    f = result["posterior"]["f"].values[0]
    sd = np.sqrt(np.diag(K - gain @ rows @ K))
    assert np.abs(f.mean(axis=0) - mean).max() < 6 * sd.max() / len(f) ** 0.5
    assert float(result["posterior"]["z"].mean()) == pytest.approx(mean[4], abs=0.03)
    assert bp.predict(result, X, model=made)["f_mean"].values == pytest.approx(mean, abs=0.06)
    with pytest.raises(ModelError, match="the variable z depends on the latent function f"):
        bp.log_evidence(bp.MeanField(), made)


@pytest.mark.slow
def test_a_prior_with_fewer_unconstrained_values():
    """On a simplex, which does not change the evidence here: the optimum is the mode of its prior."""
    made = model(kernel=lambda ls: ls * pm.Dirichlet("share", [3.0, 2.0, 2.0]).sum())
    found = fit(bp.MeanField(), made)["posterior"]["share"].values[0, 0]
    np.testing.assert_allclose(found, [0.5, 0.25, 0.25], atol=0.1)


def test_an_objective_without_priors_has_no_other_terms():
    made = IDIOMS["a potential"].build()
    with pytest.raises(ModelError, match="objective='evidence' leaves priors out, and p is a term"):
        fit(bp.MeanField(), made, objective="evidence")


def test_a_potential_without_a_start_is_refused():
    made = model(lambda ls, f: pm.Potential("p", pt.switch(ls < 1e-9, 0.0, -np.inf)))
    with pytest.raises(ModelError, match="p has a density of zero at the initial point and at 100 draws"):
        fit(bp.MeanField(), made)


@pytest.mark.slow
def test_evidences_of_sampled_hyperparameters_have_the_potential():
    """`integrated_evidence` against quadrature, and draws of NUTS against the same density."""
    made = IDIOMS["a potential"].build()
    grid = np.geomspace(0.02, 4.0, 2000)
    log_density = np.array([evidence(ls) for ls in grid]) + PRIOR.logpdf(grid) - 5.0 * grid**2
    weight = np.exp(log_density - log_density.max()) * np.gradient(grid)
    result = fit(bp.NUTS(latent=bp.MeanField(), draws=300, tune=200, chains=2), made)
    mean = float(weight @ grid / weight.sum())
    sd = float(np.sqrt(weight @ (grid - mean) ** 2 / weight.sum()))
    assert float(result["posterior"]["ls"].mean()) == pytest.approx(mean, abs=0.25 * sd)
    found = bp.integrated_evidence(result, model=made, random_seed=0)
    assert found.value == pytest.approx(log_density.max() + np.log(weight.sum()), abs=4 * found.standard_error + 0.01)
    assert bp.verify(result, model=made, draws=50, progressbar=False).k_hat < 0.7


@pytest.mark.slow
def test_noise_that_is_sampled_is_sampled_by_pymc():
    """nutpie fails where the log density of a variable has no slope."""
    made = model(lambda ls, f: bp.SoftInsensitive("z", mu=0.0, C=20.0, epsilon=0.5, beta=0.1))
    assert read_model(made).hyperparameters == ("ls", "z")
    with pytest.raises(ValueError, match="nuts_sampler='nutpie' cannot sample z, whose density is flat: use 'pymc'"):
        fit(bp.NUTS(latent=bp.MeanField(), nuts_sampler="nutpie"), made)
    with pytest.warns(UserWarning, match="PyMC's NUTS samples the model: nutpie cannot sample z"):
        result = fit(bp.NUTS(latent=bp.MeanField(), draws=100, tune=100, chains=1), made)
    assert 0.15 < float(result["posterior"]["z"].std()) < 0.5
