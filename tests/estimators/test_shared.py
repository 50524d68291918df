"""Several targets that share the hyperparameters of a kernel: the optimum of the sum of their evidences."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import bsvr_pp as bp
from bsvr_pp.inference import integrated
from bsvr_pp.inference.search.optimize import SearchObjective, SharedObjective, maximize_shared

RNG = np.random.default_rng(0)
N = 24
X, NEW = RNG.uniform(-3.0, 3.0, (N, 1)), np.linspace(-2.5, 2.5, 9)[:, None]
Y = np.column_stack([np.sin(2.0 * X[:, 0]), 5.0 * np.cos(1.9 * X[:, 0] + 1.0)])
Y += [0.05, 1.5] * RNG.normal(size=(N, 2))
OPTIONS = {"kernel": "rbf", "inference": "mean_field", "restarts": 1, "random_state": 0, "outliers": "keep"}
KERNEL, NOISE = ("amplitude", "inverse_lengthscale"), ("C", "epsilon")


@pytest.fixture(scope="module")
def svr():
    return bp.BayesianSVR(**OPTIONS, shared=True).fit(X, Y)


def fits_of(svr):
    return [one._fit for one in svr.estimators_]


def solved(fit, point):
    """Log evidence of a target."""
    K, mean, noise = fit.problem.at(point)
    return fit.method.latent.solve(K, fit.problem.targets, noise, mean).log_evidence


def log_posterior(fit, point, count):
    """Log evidence of a target and log priors of its noise, and of the kernel as often as they count."""
    priors = dict(zip(fit.problem.hyperparameters, fit.problem.log_prior_at(point), strict=True))
    weighted = sum(priors[name] for name in NOISE) + count * sum(priors[name] for name in KERNEL)
    return solved(fit, point) + weighted


def highest(function, point):
    """The largest value of a function of logs, from a point."""
    return -minimize(lambda logs: -function(logs), np.log(point) + 0.3, method="Powell", options={"ftol": 1e-9}).fun


def named(logs):
    return dict(zip(KERNEL + NOISE, np.exp(logs), strict=True))


def total(fits, points):
    """The objective; priors of the kernel count once."""
    return log_posterior(fits[0], points[0], 1.0) + log_posterior(fits[1], points[1], 0.0)


@pytest.mark.slow
def test_the_sum_of_the_evidences_is_largest(svr):
    fits = fits_of(svr)
    points = [fit.point for fit in fits]
    found = maximize_shared([fit.problem for fit in fits], bp.MeanField(), points, tolerance=1e-5)
    start = [*(points[0][name] for name in KERNEL), *(point[name] for point in points for name in NOISE)]
    brute = highest(lambda logs: total(fits, [named(logs[:4]), named(logs[[0, 1, 4, 5]])]), start)
    assert found[0].objective == pytest.approx(brute, abs=1e-3)
    assert total(fits, [one.point for one in found]) == pytest.approx(found[0].objective, abs=1e-4)
    assert total(fits, points) == pytest.approx(brute, abs=0.03)  # where a search ends
    alone = fits_of(bp.BayesianSVR(**OPTIONS).fit(X, Y))
    assert not np.isclose(*(fit.point["inverse_lengthscale"] for fit in alone), rtol=0.05)
    one, other = svr.estimators_
    assert one.C_ != other.C_ and one.epsilon_ != other.epsilon_ and one.lengthscale_ == other.lengthscale_


@pytest.mark.parametrize("density", [False, True])
def test_what_is_shared_counts_once(svr, density):
    """Its priors, and the Jacobian of its transforms, which are logs; gradients are those of differences."""
    problem, point = fits_of(svr)[0].problem, fits_of(svr)[0].point
    options = {"warm_starts": False, "density": density}
    one = SearchObjective(problem, bp.MeanField(), {}, "posterior", **options)
    both = SharedObjective([problem, problem], bp.MeanField(), **options)
    priors = dict(zip(problem.hyperparameters, problem.log_prior_at(point), strict=True))
    once = sum(priors[name] + density * np.log(point[name]) for name in KERNEL)
    x = both.pack([point, point])
    value, gradient = both(x)
    assert value == pytest.approx(2.0 * one(one.pack(point))[0] - once, abs=1e-9)
    assert x.size == 6
    for found in both.unpack(x):
        np.testing.assert_allclose([found[name] for name in point], list(point.values()))
    slope = dict(zip(point, one(one.pack(point))[1], strict=True))
    for i, name in enumerate(KERNEL):
        moved = [problem.log_prior_at(point | {name: point[name] * np.exp(step)}) for step in (1e-4, -1e-4)]
        of_prior = (sum(moved[0]) - sum(moved[1])) / 2e-4 + density
        assert gradient[i] == pytest.approx(2.0 * slope[name] - of_prior, abs=1e-6)
    np.testing.assert_allclose(gradient[2:], [slope[name] for name in NOISE] * 2, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:y has two columns")  # they are no ends
def test_equal_targets_are_two_measurements_of_one_kernel():
    """They have the optimum of one target with half of the log priors of the kernel."""
    svr = bp.BayesianSVR(**OPTIONS, shared=True).fit(X, Y[:, [0, 0]])
    fit, other = fits_of(svr)
    alone = svr.estimators_[0]  # which takes one target again
    assert not alone.shared and not bp.BayesianSVR.from_result(alone.result_).shared
    np.testing.assert_allclose(list(fit.point.values()), list(other.point.values()), rtol=1e-6)
    best = highest(lambda logs: log_posterior(fit, named(logs), 0.5), [fit.point[name] for name in KERNEL + NOISE])
    assert log_posterior(fit, fit.point, 0.5) == pytest.approx(best, abs=0.03)


@pytest.mark.slow
def test_posteriors_are_those_at_the_optimum(svr):
    for fit, y in zip(fits_of(svr), Y.T, strict=True):
        units = fit.units
        model = bp.default_model((X - units.mean) / units.scale, (y - units.location) / units.unit, kernel="rbf")
        result = bp.fit(bp.MeanField(), model, hyperparameters=fit.point, progressbar=False)
        new = bp.predict(result, (NEW - units.mean) / units.scale, model=model)["f_mean"]
        found = fit.predictive(units.inputs(NEW), svr._local()).mean()
        np.testing.assert_allclose(found, units.location + units.unit * new, atol=1e-6)


@pytest.mark.slow
def test_without_hyperparameters_of_the_kernel_each_target_is_alone():
    """Their evidence with C integrated out is the product of those of each, which quadrature finds."""
    fixed = {"kernel": lambda X: pm.gp.cov.ExpQuad(1, ls=0.7)}
    options = OPTIONS | fixed | {"noise": "absolute", "inference": bp.Integrated()}
    fits = fits_of(bp.BayesianSVR(**options, shared=True).fit(X, Y))
    product, grid = 0.0, np.linspace(-4.0, 4.0, 41)
    for fit in fits:
        logs = np.log(fit.point["C"]) + grid
        points = [{"C": np.exp(log)} for log in logs]
        values = [solved(fit, point) + fit.problem.log_prior_at(point)[0] for point in points]
        product += logsumexp(values + logs) + np.log(grid[1] - grid[0])
    for fit in fits:
        assert fit.found.log_evidence == pytest.approx(product, abs=3.0 * fit.found.more["log_evidence_error"] + 0.02)


@pytest.mark.slow
def test_hyperparameters_are_integrated_out_together():
    svr = bp.BayesianSVR(**OPTIONS | {"inference": "auto"}, shared=True).fit(X, Y)
    first, second = (fit.found for fit in fits_of(svr))
    assert len(first.points) == len(second.points) > 5
    np.testing.assert_array_equal(first.weights, second.weights)
    for one, other in zip(first.points, second.points, strict=True):
        assert all(one[name] == other[name] for name in KERNEL) and all(one[name] != other[name] for name in NOISE)
    svr.estimators_[1].add([[0.5]], [3.0])  # by the evidence of the new row
    assert all(one.converged_ for one in svr.estimators_)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"shared": True, "y": Y}, {"monotone": [1]}], ids=["shared", "monotone"])
def test_the_remedy_of_points_that_do_not_follow_the_posterior_is_one_that_works(monkeypatch, options):
    monkeypatch.setattr(integrated, "GOOD_K", -np.inf)
    monkeypatch.setattr(integrated, "_STUCK", np.inf)
    options = OPTIONS | {"y": Y[:, 0], "inference": bp.Integrated(points=25, kept=2)} | options
    y = options.pop("y")
    with pytest.warns(bp.ConvergenceWarning, match=r"% of the moves are accepted: use inference='auto'$"):
        svr = bp.BayesianSVR(**options).fit(X, y)
    svr.set_params(inference="auto").fit(X, y)
    assert all(one.converged_ for one in (svr.estimators_ if "shared" in options else [svr]))


def test_few_rows_learn_the_lengthscale_from_another_target():
    few = Y.copy()
    few[7:, 1] = np.nan
    truth = 5.0 * np.cos(2.0 * X[7:, 0] + 1.0)
    svr, alone = (bp.BayesianSVR(**OPTIONS, shared=each).fit(X, few) for each in (True, False))
    shared, own = (-each.estimators_[1].predict_distribution(X[7:]).logpdf(truth).mean() for each in (svr, alone))
    assert shared < own
    first, second = svr.estimators_
    np.testing.assert_array_equal(first.mean_, second.mean_)  # the inputs have one unit
    assert first.location_ != second.location_ and (second.dual_coef_[7:] == 0.0).all()


@pytest.mark.slow
def test_what_fits_of_one_target_do(tmp_path):
    """Gross errors, scales of the noise, tables, weights, directions, saved fits."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, (200, 2))
    wide = np.where(X[:, 1] > 0.0, 0.5, 0.03)
    table = pd.DataFrame({"a": np.sin(X[:, 0]) + wide * rng.normal(size=200), "b": X[:, 0] + rng.normal(size=200)})
    table.loc[5, "b"] = 1e4
    options = OPTIONS | {"outliers": "set_aside", "kernel": "auto", "shared": True}
    inputs, weight = pd.DataFrame(X, columns=["x", "z"]), np.where(np.arange(200) < 20, 0.0, 1.0)
    weight[5] = 1.0
    with pytest.warns(UserWarning, match="gross errors"):
        svr = bp.BayesianSVR(**options).fit(inputs, table, sample_weight=weight)
    one, other = svr.estimators_
    assert one.outliers_.size == 0 and other.outliers_.tolist() == [5]
    assert one.kernel_ == other.kernel_ == "rational_quadratic" and one.relevance_.equals(other.relevance_)
    svr.save(tmp_path / "svr.nc")
    np.testing.assert_allclose(bp.BayesianSVR.load(tmp_path / "svr.nc").predict(inputs), svr.predict(inputs), rtol=1e-9)
    with pytest.warns(UserWarning, match="gross errors"):
        svr = bp.BayesianSVR(**options, monotone={"x": 1}).fit(inputs, table)
    one, other = svr.estimators_
    assert one.kernel_ == other.kernel_ == "main_effects" and one.noise_scales_.several
    line = inputs.iloc[:50].assign(x=np.linspace(-2.5, 2.5, 50), z=0.0)
    assert np.diff(svr.predict(line), axis=0).min() > -1e-3


@pytest.mark.slow
def test_kernel_matrices_have_one_amplitude():
    svr = bp.BayesianSVR(**OPTIONS | {"kernel": "precomputed"}, shared=True).fit(np.exp(-2.0 * (X - X.T) ** 2), Y)
    first, second = fits_of(svr)
    assert first.point["amplitude"] == second.point["amplitude"] and first.point["C"] != second.point["C"]
    assert svr.score(np.exp(-2.0 * (X - X.T) ** 2), Y) > 0.9


@pytest.mark.slow
def test_targets_of_different_inputs_are_both_followed():
    """All starts from one target alone are constants in the input of the other."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0.0, 5.0, (40, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.05 * rng.normal(size=(40, 2))
    svr = bp.BayesianSVR(shared=True, inference="mean_field", restarts=1).fit(X, Y)
    assert min(one.score(X, y) for one, y in zip(svr.estimators_, Y.T, strict=True)) > 0.95
