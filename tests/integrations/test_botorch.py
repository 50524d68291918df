"""A fitted regression as a model of BoTorch: the same posterior, gradients, noise, and acquisition functions on it."""

import copy
import pickle
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import bsvr_pp as bp
from bsvr_pp.integrations.botorch import to_botorch
from bsvr_pp.model.priors import KERNELS
from tests.helpers import process_model

pytest.importorskip("botorch", reason="BoTorch is not installed")
with warnings.catch_warnings(action="ignore"):
    import gpytorch
    import torch
    from botorch.acquisition import (
        qKnowledgeGradient,
        qLogExpectedImprovement,
        qLogNoisyExpectedImprovement,
        qUpperConfidenceBound,
    )
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler

RNG = np.random.default_rng(0)
UNITS = np.array([2.0, 300.0])
X = 5.0 + RNG.normal(size=(40, 2)) * UNITS
Y = 100.0 * np.sin(X[:, 0] / 2.0) + 0.1 * X[:, 1] + RNG.normal(size=40) + 1000.0
Y[:4] += [900.0, -700.0, 1100.0, 800.0]
NEW = 5.0 + RNG.normal(size=(15, 2)) * UNITS
Z, NEW_Z = (X - 5.0) / UNITS, (NEW - 5.0) / UNITS
T = (Y - 1000.0) / 100.0
AT = {
    "amplitude": 1.3,
    "inverse_lengthscale": [0.8, 0.3],
    "inverse_alpha": 0.4,
    "effect_amplitude": [0.5, 1.1],
    "effect_inverse_lengthscale": 0.7,
    "effect_detail": 0.2,
    "C": 30.0,
    "epsilon": 0.1,
}


def fitted(**options):
    given = {"inference": "mean_field", "restarts": 1, "random_state": 0, "outliers": "keep", **options}
    return bp.BayesianSVR("huber", **given)


@pytest.fixture(scope="module")
def svr():
    return fitted(kernel="rbf").fit(X, Y)


@pytest.fixture(scope="module")
def exported(svr):
    return to_botorch(svr)


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def moments(model, new, **options):
    found = model.posterior(tensor(new), **options)
    return found.mean.detach().numpy()[:, 0], found.variance.detach().numpy()[:, 0]


def at_values(model, method=bp.MeanField(), at=AT):  # noqa: B008
    names = {variable.name for variable in model.free_RVs}
    given = {name: value for name, value in at.items() if name in names}
    return bp.fit(method, model, hyperparameters=given, progressbar=False)


def check_same_posterior(result, model, new=NEW_Z):
    ours, (mean, variance) = bp.predict(result, new, model=model), moments(to_botorch(result, model), new)
    np.testing.assert_allclose(mean, ours["f_mean"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, ours["f_variance"], rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_posterior_of_a_result_is_ours_for_every_kernel(kernel):
    model = bp.default_model(Z, T, noise="huber", kernel=kernel)
    result = at_values(model)
    check_same_posterior(result, model)
    check_same_posterior(result, model, Z)  # at the training rows, whose covariance has the jitter


@pytest.mark.parametrize(
    ("noise", "method"), [("soft_insensitive", bp.MeanField()), ("pinball", bp.MeanField()), ("huber", bp.Laplace())]
)
def test_posterior_of_other_noise_and_laplace_is_ours(noise, method):
    model = bp.default_model(Z, T, noise=noise, kernel="rbf")
    check_same_posterior(at_values(model, method), model)


def test_kernels_of_ones_own_are_exported_with_their_columns_and_mean():
    of = pm.gp.cov
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        warped = of.WarpedInput(2, of.Matern32(1, ls=0.7), lambda x, s: 1.0 + s * x, args=(scale,), active_dims=[1])
        kernel = 2.0 * of.ExpQuad(2, ls=scale, active_dims=[0]) * of.Matern52(2, ls=[1.0, 2.0])
        kernel += warped + scale * of.Linear(2, c=[0.5, -1.0]) + of.Constant(3.0)
        f = bp.GP(mean_func=pm.gp.mean.Constant(scale), cov_func=kernel).prior("f", X=Z, jitter=1e-4)
        bp.Huber("y", mu=f, C=20.0, epsilon=0.1, observed=T)
    check_same_posterior(at_values(model, at={"scale": 1.7}), model)


def test_posterior_of_an_estimator_is_ours_in_its_units_with_outliers_as_linear_sites(svr, exported):
    mean, std = svr.predict_f(NEW)
    found = moments(exported, NEW)
    assert isinstance(exported, SingleTaskGP)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], std**2, rtol=1e-6)
    precision = svr._fit.fitted.posteriors[0].site_precision
    assert (precision[:4] == 0).all() and (precision[4:] > 0).sum() > 20
    rows = exported.mean_module.rows.numpy()
    np.testing.assert_allclose(rows[:4], X[:4])
    assert len(rows) + len(exported.train_targets) == len(X)


def test_posterior_is_ours_with_weights_and_main_effects():
    weight = np.where(np.arange(40) % 3 == 0, 2.5, 0.7)
    weighted = fitted(kernel="main_effects").fit(X, Y, sample_weight=weight)
    mean, std = weighted.predict_f(NEW)
    found = moments(to_botorch(weighted), NEW)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], std**2, rtol=1e-6)


def test_small_noise_and_many_rows_are_not_approximated():
    model = bp.default_model(Z, 1e-3 * T, noise="huber", kernel="rbf")
    result = at_values(model, at=AT | {"amplitude": 1e-3, "C": 1e5, "epsilon": 1e-4})
    with gpytorch.settings.max_cholesky_size(5):  # as if more rows than this were many
        exported = to_botorch(result, model)
        assert exported.likelihood.noise.min() < 1e-8
        ours, (mean, variance) = bp.predict(result, NEW_Z, model=model), moments(exported, NEW_Z)
    np.testing.assert_allclose(mean, ours["f_mean"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(variance, ours["f_variance"], rtol=1e-6)


def test_gradients_by_the_inputs_are_those_of_our_predictions(svr, exported):
    at = tensor(NEW[:3]).requires_grad_()
    found = exported.posterior(at)
    for values, which in ((found.mean, 0), (found.variance, 1)):
        (gradient,) = torch.autograd.grad(values.sum(), at, retain_graph=True)
        for column, step in enumerate(1e-4 * UNITS):
            beside = [svr.predict_f(NEW[:3] + sign * step * np.eye(2)[column])[which] for sign in (1.0, -1.0)]
            high, low = (each**2 if which else each for each in beside)
            np.testing.assert_allclose(gradient[:, column], (high - low) / (2.0 * step), rtol=1e-4, atol=1e-6)


def test_gradients_at_training_rows_are_finite():
    for kernel in ("matern32", "matern52"):
        model = bp.default_model(Z, T, noise="huber", kernel=kernel)
        at = tensor(Z[:5]).requires_grad_()
        found = to_botorch(at_values(model), model).posterior(at)
        (gradient,) = torch.autograd.grad(found.mean.sum() + found.variance.sum(), at)
        assert torch.isfinite(gradient).all()


def test_new_targets_have_the_noise_of_the_model(svr, exported):
    f, y = (moments(exported, NEW, observation_noise=noise) for noise in (False, True))
    np.testing.assert_allclose(y[0], f[0])
    np.testing.assert_allclose(y[1] - f[1], svr.noise_variance_)
    training = moments(exported, X[: len(exported.train_targets)], observation_noise=True)
    np.testing.assert_allclose(
        training[1] - moments(exported, X[: len(exported.train_targets)])[1], svr.noise_variance_
    )


def test_fantasies_are_exact_and_keep_the_linear_sites(svr, exported):
    new, drawn_at = tensor(NEW), tensor(NEW[:2])
    joint = exported.posterior(new).distribution
    K, mean = joint.covariance_matrix, joint.mean
    gain = torch.linalg.solve(K[:2, :2] + svr.noise_variance_ * torch.eye(2), K[:2]).T
    fantasies = exported.fantasize(drawn_at, SobolQMCNormalSampler(torch.Size([3]), seed=0))
    y = fantasies.train_targets[:, -2:]
    found = fantasies.posterior(new)
    torch.testing.assert_close(found.mean[..., 0], mean + (y - mean[:2]) @ gain.T)
    torch.testing.assert_close(found.variance[0, :, 0], (K - gain @ K[:2]).diagonal())
    given = exported.condition_on_observations(drawn_at, y[0][:, None])
    torch.testing.assert_close(given.posterior(new).mean, found.mean[0])


def test_a_copy_predicts_the_same(exported):
    for copied in (copy.deepcopy(exported), pickle.loads(pickle.dumps(exported))):
        np.testing.assert_array_equal(moments(copied, NEW), moments(exported, NEW))


@pytest.fixture(scope="module")
def peak():
    """A maximum of 10 at 6, with gross errors far from it, one of them the largest target."""
    x = np.linspace(0.0, 10.0, 25)
    y = 10.0 - 0.5 * (x - 6.0) ** 2 + 0.1 * np.sin(40.0 * x)
    y[[3, 9, 22]] += [60.0, -50.0, 40.0]
    return to_botorch(fitted(kernel="rbf").fit(x[:, None], y)), tensor(x)[:, None]


ACQUISITIONS = {
    "qLogEI": lambda model, x: qLogExpectedImprovement(model, best_f=model.posterior(x).mean.max()),
    "qLogNEI": lambda model, x: qLogNoisyExpectedImprovement(model, x),
    "qUCB": lambda model, x: qUpperConfidenceBound(model, beta=1.0),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions_propose_a_point_near_the_maximum_and_not_at_a_gross_error(name, peak):
    torch.manual_seed(0)  # of the samples of the acquisition functions
    model, x = peak
    acquisition = ACQUISITIONS[name](model, x)
    options = {"num_restarts": 3, "raw_samples": 32, "options": {"maxiter": 40, "seed": 0}}
    proposed, value = optimize_acqf(acquisition, tensor([[0.0], [10.0]]), q=1, **options)
    assert 4.5 < float(proposed) < 7.5
    grid = acquisition(torch.linspace(0.0, 10.0, 200, dtype=torch.float64)[:, None, None])
    assert float(value) > float(grid.max()) - 0.01


def test_knowledge_gradient_expects_its_maximum_where_the_function_has_it(peak):
    model, x = peak
    best = float(model.posterior(x).mean.max())
    assert 9.0 < best < 10.5  # the largest target is above 60
    torch.manual_seed(0)
    acquisition = qKnowledgeGradient(model, num_fantasies=4)
    options = {"num_restarts": 3, "raw_samples": 64, "options": {"maxiter": 100, "seed": 0}}
    points, value = optimize_acqf(acquisition, tensor([[0.0], [10.0]]), q=1, return_full_tree=True, **options)
    assert float(value) > best - 0.01  # one more target cannot lower what is expected
    assert ((points[1:] > 5.0) & (points[1:] < 7.0)).all()


def test_a_kernel_without_a_form_is_refused():
    class Linear(pm.gp.cov.Covariance):
        def full(self, X, Xs=None):
            return X @ (X if Xs is None else Xs).T

        def diag(self, X):
            return (X**2).sum(axis=1)

    square = pm.gp.cov.WarpedInput(2, pm.gp.cov.ExpQuad(2, ls=1.0), lambda x: x**2)
    bent = pm.gp.cov.WarpedInput(2, pm.gp.cov.ExpQuad(2, ls=1.0), lambda x: x * (x > 0))
    waves = pm.gp.cov.WarpedInput(2, pm.gp.cov.ExpQuad(2, ls=1.0), lambda x: x + pt.sin(2.0 * np.pi * x))
    slight = pm.gp.cov.WarpedInput(2, pm.gp.cov.ExpQuad(2, ls=1e-9), lambda x: 1e-9 * x**2)
    known = pm.gp.cov.Periodic(2, 1.0, ls=1.0), pm.gp.cov.ExpQuad(2, ls=1.0) ** 2
    for kernel in (Linear(2), square, bent, waves, slight, *known):
        more = kernel + pm.gp.cov.Constant(1.0)
        model = process_model(bp.Huber, Z, kernel=lambda more=more: more, C=20.0, epsilon=0.1, observed=T)
        with pytest.raises(ValueError, match=f"sums and products of ExpQuad, .*, got {type(kernel).__name__}"):
            to_botorch(at_values(model), model)
