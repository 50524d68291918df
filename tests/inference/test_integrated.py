"""Hyperparameters integrated out by weighted points: against grids, exact formulas and predictions at each point."""

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from scipy.special import beta, logsumexp

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.assess import assessment
from bsvr_pp.core.approximations.smc import importance_estimate
from bsvr_pp.inference import integrated
from bsvr_pp.inference.integrated import bridge_estimate
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model

X = np.linspace(-2.0, 2.0, 12)[:, None]
Y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(1).laplace(size=12)


def two(potential: bool = False) -> pm.Model:
    with pm.Model() as model:
        C = pm.LogNormal("C", 1.0, 0.8)
        ls = pm.Gamma("ls", 3.0, 3.0)
        pm.Deterministic("square", ls**2)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X=X)
        if potential:
            pm.Potential("p", -0.5 * (pm.math.log(C) - pm.math.log(ls)) ** 2)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=Y)
    return model


@pytest.fixture(scope="module")
def grid() -> tuple[np.ndarray, np.ndarray]:
    """A grid of log C and log ls, and the log densities there without the potential."""
    problem = read_model(two())
    logs = np.stack(np.meshgrid(np.linspace(-1.5, 4.5, 31), np.linspace(-3.0, 2.0, 31), indexing="ij")).reshape(2, -1)
    density = []
    for log_C, log_ls in logs.T:
        point = {"C": np.exp(log_C), "ls": np.exp(log_ls)}
        prior = sum(float(each) for each in problem.log_prior_at(point)) + log_C + log_ls
        K, mean, noise = problem.at(point)
        density.append(mean_field(K, problem.targets, noise, mean=mean).log_evidence + prior)
    return logs, np.array(density)


@pytest.mark.slow
@pytest.mark.parametrize("potential", [False, True])
def test_two_hyperparameters_against_a_grid(grid, potential):
    logs, density = grid
    density = density - 0.5 * potential * (logs[0] - logs[1]) ** 2
    weight = np.exp(density - logsumexp(density))
    value, mean = logsumexp(density) + np.log(6.0 / 30 * 5.0 / 30), logs @ weight
    deviation = np.sqrt((logs - mean[:, None]) ** 2 @ weight)
    found = bp.fit(bp.Integrated(points=1024), two(potential), random_seed=0, progressbar=False, draws=1000)
    assert found.attrs["log_evidence"] == pytest.approx(value, abs=0.02)
    assert found.attrs["k_hat"] < 0.7 and found.attrs["effective_points"] > 512
    drawn = np.log(np.stack([found["posterior"][name].values.ravel() for name in ("C", "ls")]))
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.05 * deviation.min())
    np.testing.assert_allclose(drawn.std(axis=1), deviation, rtol=0.04)


@pytest.mark.slow
def test_six_hyperparameters_against_nuts():
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-2.0, 2.0, (30, 3))
    y = np.sin(2.0 * inputs[:, 0]) + 0.5 * inputs[:, 1] + 0.2 * rng.laplace(size=30)
    with pm.Model() as model:
        C, epsilon, amplitude = (pm.LogNormal(*prior) for prior in (("C", 1, 0.8), ("epsilon", -2, 0.7), ("A", 0, 1)))
        ls = pm.InverseGamma("ls", 3.0, 3.0, shape=3)
        f = bp.GP(cov_func=amplitude * pm.gp.cov.ExpQuad(3, ls=ls)).prior("f", X=inputs)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    nuts = bp.NUTS(latent=bp.MeanField(), draws=1000, tune=300, chains=3)
    drawn = []
    for method, draws in ((nuts, {}), (bp.Integrated(points=256), {"draws": 1000})):
        found = bp.fit(method, model, random_seed=0, progressbar=False, **draws)["posterior"].to_dataset()
        each = [found[name].values.reshape(found["C"].size, -1) for name in ("C", "epsilon", "A", "ls")]
        drawn.append(np.log(np.column_stack(each)))
    exact, weighted = drawn
    assert (np.abs(weighted.mean(axis=0) - exact.mean(axis=0)) < 0.1 * exact.std(axis=0)).all()
    np.testing.assert_allclose(weighted.std(axis=0), exact.std(axis=0), rtol=0.15)


@pytest.mark.slow
def test_given_hyperparameters_stay_and_their_priors_do_not_count():
    model, options = two(), {"hyperparameters": {"C": 4.0}, "random_seed": 0, "progressbar": False}
    found = bp.fit(bp.Integrated(), model, **options)
    assert (found["posterior"]["C"].values == 4.0).all()
    with pm.do(model, {"C": 4.0}):
        alone = bp.fit(bp.Integrated(), random_seed=0, progressbar=False)
    assert found.attrs["log_evidence"] == pytest.approx(alone.attrs["log_evidence"], abs=1e-3)
    both = {"C": 4.0, "ls": 0.7}
    at = [bp.fit(m, model, hyperparameters=both, progressbar=False) for m in (bp.Integrated(), bp.MeanField())]
    assert "members" not in at[0].children and at[0].attrs["log_evidence"] == at[1].attrs["log_evidence"]


def test_predictions_are_the_mixture_of_the_points(tmp_path):
    model = two()
    result = bp.fit(bp.Integrated(points=25, kept=3), model, random_seed=0, progressbar=False, draws=9)
    assert result.attrs["inference"] == "integrated (mean field)" and result.attrs["converged"] == 1
    members = result["members"].to_dataset()
    weights = members["weight"].values
    assert weights[0] == 0.0 and weights.size == 4 and weights.sum() == pytest.approx(1.0)
    new, means, variances = np.array([[-3.0], [0.3]]), [], []
    for i in range(1, weights.size):
        at = {name: members[name].values[i] for name in ("C", "ls")}
        alone = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
        found = bp.predict(alone, new, model=model)
        means.append(found["f_mean"].values)
        variances.append(found["f_variance"].values)
    mean = weights[1:] @ np.array(means)
    variance = weights[1:] @ (np.array(variances) + (np.array(means) - mean) ** 2)
    bp.save(result, tmp_path / "result.nc")
    for tree in (result, bp.load(tmp_path / "result.nc")):
        found = bp.predict(tree, new, model=model)
        np.testing.assert_allclose(found["f_mean"], mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found["f_variance"], variance, rtol=1e-6)


@pytest.mark.slow
def test_the_result_is_one_of_draws_and_the_same_for_a_seed():
    model = two()
    first, again = (bp.fit(bp.Integrated(), model, random_seed=3, progressbar=False, draws=120) for _ in range(2))
    xr.testing.assert_identical(first["posterior"].to_dataset(), again["posterior"].to_dataset())
    assert first["posterior"]["f"].shape == (1, 120, 12)
    np.testing.assert_allclose(first["posterior"]["square"], first["posterior"]["ls"] ** 2)
    # Draws of one point are together, so that the effective size is about the number of points.
    distinct = np.unique(first["posterior"]["C"].values.ravel())
    changes = np.count_nonzero(np.diff(first["posterior"]["C"].values.ravel()))
    assert changes == distinct.size - 1 > 30
    assert np.isfinite(bp.loo(first, model=model).elpd)
    assert assessment.integrated(first, model, 0)["p(y)"] == first.attrs["log_evidence"]
    assert bp.verify(first, model=model, draws=120, particles=100, random_seed=0, progressbar=False).k_hat < 1.0


@pytest.mark.slow
def test_a_variable_at_its_bound_and_a_model_without_a_process():
    with pm.Model() as model:
        b = pm.HalfNormal("b", 2.0)
        slope = pm.Normal("slope", 0.0, 3.0)
        bp.SoftInsensitive("y", mu=slope * X[:, 0], C=pm.Uniform("C", 0.0, 3.0), epsilon=b, beta=0.3, observed=Y)
    found = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False, draws=200)
    drawn = found["posterior"].to_dataset()
    assert (drawn["C"].values < 3.0).all() and (drawn["b"].values > 0.0).all()
    assert found.attrs["converged"] == 1 and drawn["slope"].shape == (1, 200)


def few(prior):
    """Six rows, and one or two hyperparameters."""
    y = np.array([0.3, -0.5, 0.8, 1.2, 0.1, -0.9])
    return process_model(pm.Laplace, X[::2], kernel=prior, b=0.5, observed=y)


def evidences(model, points):
    problem = read_model(model)
    at = [problem.at(point) for point in points]
    return np.array([mean_field(K, problem.targets, noise, mean=mean).log_evidence for K, mean, noise in at])


@pytest.mark.slow_cases("LogNormal-True", "HalfNormal-False")
@pytest.mark.parametrize(("scale", "maximum"), [(pm.HalfNormal, False), (pm.LogNormal, True)])
def test_a_narrow_prior_has_no_maximum_unless_its_scale_keeps_away_from_zero(scale, maximum):
    def funnel(centred=True):
        s = scale("s")
        v = pm.Normal("v", 0.0, s) if centred else s * pm.Normal("z")
        return pm.gp.cov.ExpQuad(1, ls=pm.math.exp(v))

    with nullcontext() if maximum else pytest.warns(bp.ConvergenceWarning, match="the prior of v, which s scales"):
        found = bp.fit(bp.MeanField(), few(funnel), random_seed=0, restarts=1, draws=9)
    assert found.attrs["converged"] == maximum
    for model in (few(funnel), few(lambda: funnel(centred=False))):
        assert bp.fit(bp.Integrated(points=25), model, random_seed=0, draws=9).attrs["converged"] == 1


@pytest.mark.slow
def test_a_prior_that_is_infinite_at_zero_has_no_optimum_and_is_integrated_out():
    model = few(lambda: pm.Gamma("a", 0.5, 0.5) ** 2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    with pytest.warns(
        bp.ConvergenceWarning,
        match="edge of the search, where the objective grows: its prior must be finite there, or integrate it out",
    ):
        assert bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)["posterior"]["a"].max() < 1e-10
    found = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False)
    logs = np.linspace(-16.0, 3.5, 118)
    density = (
        evidences(model, [{"a": np.exp(log)} for log in logs]) + stats.gamma.logpdf(np.exp(logs), 0.5, scale=2.0) + logs
    )
    truth = logsumexp(density) + np.log(logs[1] - logs[0])
    assert found.attrs["converged"] == 1
    assert found.attrs["log_evidence"] == pytest.approx(truth, abs=3 * found.attrs["log_evidence_error"] + 0.02)
    assert found.attrs["log_evidence_error"] < 0.2
    mean = np.exp(logs) @ np.exp(density - logsumexp(density))
    assert found["posterior"]["a"].values.mean() == pytest.approx(mean, abs=0.15)


@pytest.mark.slow
def test_a_scale_of_another_hyperparameter_is_integrated_out():
    def prior():
        return pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", pm.HalfNormal("tau", 1.0), 0.3))

    model = few(prior)
    logs, taus = np.linspace(-3.0, 4.0, 60), np.linspace(0.0, 4.0, 161)[:, None]
    density = evidences(model, [{"tau": 1.0, "ls": np.exp(log)} for log in logs]) + stats.norm.logpdf(logs, taus, 0.3)
    density += stats.halfnorm.logpdf(taus)
    truth = logsumexp(density) + np.log(7.0 / 59 * 4.0 / 160)
    mean = np.sum(taus * np.exp(density - logsumexp(density)))
    found = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False)
    assert found.attrs["log_evidence"] == pytest.approx(truth, abs=3 * found.attrs["log_evidence_error"])
    assert found["posterior"]["tau"].values.mean() == pytest.approx(mean, abs=0.25)  # .30 below, before


@pytest.mark.slow
def test_the_unit_of_a_hyperparameter_does_not_matter():
    def model(unit):
        u = pm.Normal("u", 2.0 * unit, unit)
        return pm.math.exp(u / unit) * pm.gp.cov.ExpQuad(1, ls=1.0)

    for method in (bp.MeanField(), bp.Integrated()):
        one, large = (
            bp.fit(method, few(lambda: model(unit)), random_seed=0, progressbar=False, draws=100)  # noqa: B023
            for unit in (1.0, 1e5)
        )
        np.testing.assert_allclose(large["posterior"]["u"] / 1e5, one["posterior"]["u"], rtol=1e-2)
        assert large.attrs["log_evidence"] == pytest.approx(one.attrs["log_evidence"], abs=1e-3)


@pytest.mark.slow
def test_a_density_that_is_infinite_at_a_bound_or_on_a_ridge_is_integrated_out():
    model = few(lambda: pm.Beta("a", 2.0, 0.25) * pm.gp.cov.ExpQuad(1, ls=1.0))
    t = (np.arange(40) + 0.5) / 40  # a = 1 - t⁴, da = -4t³dt
    a = 1.0 - t**4
    truth = logsumexp(evidences(model, [{"a": each} for each in a]), b=4.0 * a / beta(2.0, 0.25)) - np.log(40)
    found = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False)
    assert found.attrs["log_evidence"] == pytest.approx(truth, abs=3 * found.attrs["log_evidence_error"])
    assert found.attrs["log_evidence_error"] < 0.3

    def ridge():
        return pm.math.exp(pm.Normal("v", 0.0, pm.HalfNormal("s", 2.0))) * pm.gp.cov.ExpQuad(1, ls=1.0)

    found = bp.fit(bp.Integrated(), few(ridge), random_seed=0, progressbar=False)
    assert 0.5 < found["posterior"]["s"].values.mean() < 2.5


def ordered():
    return pm.HalfNormal("a", shape=2, transform=pm.distributions.transforms.ordered, initval=[1.0, 2.0])[0]


@pytest.mark.slow_cases("ordered")
@pytest.mark.parametrize("scale", [lambda: pm.HalfFlat("a"), ordered])
def test_an_evidence_over_a_flat_prior_is_known_up_to_a_constant(scale):
    model = few(lambda: scale() * pm.gp.cov.ExpQuad(1, ls=1.0))
    with pytest.warns(UserWarning, match="the prior density of a is not normalised: the evidence is known up to"):
        bp.fit(bp.Integrated(points=25), model, random_seed=0, progressbar=False, draws=9)


def level(make_scale) -> pm.Model:
    """Five targets around one level, whose scale is a hyperparameter."""
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, make_scale())
        pm.Normal("y", mu=b + np.zeros(5), sigma=0.3, observed=np.full(5, 1.2))
    return model


@pytest.mark.slow
def test_an_initial_value_on_a_bound_is_no_start():
    prior = stats.gamma(2.0)  # its mean is the upper bound
    model = level(lambda: pm.Truncated("t", pm.Gamma.dist(2.0, 1.0), lower=0.5, upper=2.0))
    result = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False)
    t = np.linspace(0.5, 2.0, 301)
    density = [stats.multivariate_normal(np.zeros(5), 0.09 * np.eye(5) + v**2).pdf(np.full(5, 1.2)) for v in t]
    weight = density * prior.pdf(t) / (prior.cdf(2.0) - prior.cdf(0.5))
    assert result.attrs["converged"]
    assert result.attrs["log_evidence"] == pytest.approx(np.log(np.trapezoid(weight, t)), abs=0.02)
    assert float(result["posterior"]["t"].mean()) == pytest.approx(weight @ t / weight.sum(), rel=0.02)


@pytest.mark.slow
def test_a_potential_that_cuts_the_density_is_reported():
    def cut():
        t = pm.Exponential("t", 1.0)
        pm.Potential("p", pm.math.switch(t < 0.6, 0.0, -np.inf))
        return t

    with pytest.warns(bp.ConvergenceWarning, match="of the points have no density, which ends at an edge: sample"):
        result = bp.fit(bp.Integrated(points=25), level(cut), random_seed=0, progressbar=False, draws=9)
    assert not result.attrs["converged"]


def test_a_mode_of_another_sign_is_reported():
    """W and -W are one model, beside another hyperparameter: half of the evidence is that of the other signs."""
    with pm.Model() as model:
        kernel = pm.gp.cov.ExpQuad(1, ls=pm.math.exp(pm.Normal("log_ls", -0.7, 0.1)))
        f = bp.GP(cov_func=kernel).prior("f", X=X)
        pm.Normal(
            "y", pm.StudentT("W", nu=30.0, sigma=1.0, shape=2)[pm.Data("g", np.arange(12) % 2)] * f, 0.2, observed=Y
        )
    with pytest.warns(bp.ConvergenceWarning, match="hyperparameters of another sign are about as probable"):
        result = bp.fit(bp.Integrated(points=25), model, random_seed=0, progressbar=False, draws=9)
    assert not result.attrs["converged"]
    assert not bp.integrated_evidence(result, model=model, draws=25, random_seed=0).converged


@pytest.mark.slow
def test_points_that_do_not_move_are_reported_and_the_default_stays_at_the_optimum(monkeypatch):
    cloud = integrated._cloud
    monkeypatch.setattr(integrated, "_cloud", lambda *given: cloud(*given)._replace(k_hat=2.0, accepted=0.0))
    with pytest.warns(bp.ConvergenceWarning, match=r"k-hat of the weights is 2.00, and only 0% .* NUTS\(latent=...\)"):
        assert bp.fit(bp.Integrated(points=25, kept=2), two(), progressbar=False, draws=9).attrs["converged"] == 0
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(X, Y)
    assert svr.converged_ and svr.result_.attrs["inference"] == "mean field"


@pytest.mark.slow
def test_the_order_of_the_inputs_does_not_matter():
    rng = np.random.default_rng(0)
    inputs, new = rng.uniform(-3, 3, (25, 2)), rng.uniform(-3, 3, (9, 2))
    y = np.sin(inputs[:, 0]) + 0.1 * rng.laplace(size=25)
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, outliers="keep", random_state=0)
    found = svr.fit(inputs, y).predict(new, return_std=True)
    other = svr.fit(inputs[:, ::-1], y).predict(new[:, ::-1], return_std=True)
    np.testing.assert_allclose(other, found, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_an_interruption_leaves_the_optimum(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(integrated, "_cloud", interrupt)
    with pytest.warns(bp.ConvergenceWarning, match="interrupted: the hyperparameters are those of the optimum"):
        found = bp.fit(bp.Integrated(), two(), random_seed=0, progressbar=False)
    assert np.ptp(found["posterior"]["C"].values) == 0.0
    with pytest.raises(KeyboardInterrupt):
        bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(X, Y)


def test_a_bridge_between_two_normals():
    rng, n = np.random.default_rng(0), 4000
    q, p = rng.normal(size=n), rng.normal(0.5, 0.8, size=n)

    def ratio(x):
        return 1.7 - 0.5 * ((x - 0.5) / 0.8) ** 2 - np.log(0.8) + 0.5 * x**2

    value, error = bridge_estimate(ratio(q), ratio(p), n)
    assert abs(value - 1.7) < 4 * error < 0.1
    assert error < importance_estimate(ratio(q))[1]


@pytest.mark.slow
def test_few_kept_points():
    """One point has its own prediction; equal values in the tail of draws are no obstacle to leave-one-out."""
    model = few(lambda: pm.InverseGamma("a", 3.0, 3.0) * pm.gp.cov.ExpQuad(1, ls=1.0))
    one = bp.fit(bp.Integrated(points=25, kept=1), model, random_seed=0, draws=99)
    assert np.isfinite(bp.loo(one, model=model).elpd)
    found = bp.predict_distribution(one, [[0.0]], model=model)
    assert len(found.noises) == 1 and np.isfinite(found.std()).all()


def test_kept_points_have_the_means_of_all_points():
    """Of a normal density in three coordinates, also of a product and of a square; repeated points are one."""
    x = np.random.default_rng(0).normal(size=(64, 3)) * [1.0, 5.0, 0.1] + 2.0
    x[40] = x[3]
    weights = np.random.default_rng(1).dirichlet(np.full(64, 3.0))
    cloud = integrated._Cloud(x, weights, *[0.0] * 3, 9.0, None, 0.0)
    chosen, found = cloud.thinned(16)
    assert chosen.size <= 16 and found.sum() == pytest.approx(1.0) and (found > 0.0).all()
    z = (x - weights @ x) / np.sqrt(weights @ (x - weights @ x) ** 2)
    for values in (*z.T, z[:, 0] * z[:, 1], z[:, 2] ** 2, np.tanh(z[:, 1])):
        assert found @ values[chosen] == pytest.approx(weights @ values, abs=0.12)
    assert cloud._replace(x=np.ones((64, 3))).thinned(16)[1].tolist() == [1.0]
    weights[:40] = 0.0  # without density
    assert cloud._replace(weights=weights).thinned(16)[0].min() >= 40


@pytest.mark.slow
def test_an_evidence_with_kinks_against_importance_sampling():
    """Local Laplace, four hyperparameters: log evidence -14.60, log epsilon -2.05 ± .68, from 20,000 draws."""
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 15)[:, None]
    y = np.sin(x[:, 0]) + 0.2 * rng.laplace(size=15)
    with pm.Model() as model:
        ls, C = pm.InverseGamma("ls", 3, 3), pm.LogNormal("C", 1.0, 0.7)
        epsilon, amplitude = pm.LogNormal("epsilon", -1.5, 0.7), pm.HalfNormal("amplitude", 1.5)
        f = bp.GP(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X=x)
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=y)
    method = bp.Integrated(bp.Laplace(curvature="local"))
    found = [bp.fit(method, model, random_seed=seed) for seed in range(3)]
    assert np.mean([each.attrs["log_evidence"] for each in found]) == pytest.approx(-14.60, abs=0.3)
    drawn = np.log([each.posterior["epsilon"].values for each in found])
    assert drawn.mean() == pytest.approx(-2.05, abs=0.3) and drawn.std() == pytest.approx(0.68, abs=0.15)


@pytest.mark.slow
def test_periods_of_an_angle_are_not_counted():
    with pm.Model() as model:
        shift = pm.VonMises("phase", 0.0, 0.1)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        pm.Normal("y", f + 0.1 * pm.math.sin(shift), 0.2, observed=Y)
    with pytest.raises(bp.ModelError, match="phase is an angle, whose density repeats"):
        bp.fit(bp.Integrated(), model, progressbar=False)
    given = bp.fit(bp.Integrated(), model, hyperparameters={"phase": 0.3}, progressbar=False)
    assert given.attrs["log_evidence"] == bp.log_evidence(bp.MeanField(), pm.do(model, {"phase": 0.3})).value
    method = bp.NUTS(latent=bp.MeanField(), draws=30, tune=30, chains=2)
    with pytest.warns(bp.ConvergenceWarning):
        result = bp.fit(method, model, random_seed=0, progressbar=False)
    with pytest.raises(bp.ModelError, match=r"phase is an angle, .* or use NUTS\(latent=...\), without an evidence"):
        bp.integrated_evidence(result, model=model)
