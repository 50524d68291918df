"""The model of Chu, Keerthi & Ong 2004 on arrays, with the settings of their experiments.

The model has soft insensitive noise and a Gaussian process with the kernel (3), or the kernel (41) with one κ_l per
input. The signal variance κ₀ is the variance of the targets; ln C, ln ε, ln κ_b and ln κ maximise the evidence, from
the two starts of the paper. The same optimiser runs the Laplace evidence (37), mean field, and Gaussian noise, which
gives Gaussian process regression. `model` is the same model in PyMC; experiments with hundreds of fits use `maximize`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy.spatial.distance import cdist
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import SVR

import bsvr_pp as bp
from bsvr_pp.core.approximations import (
    Covariance,
    find_mode,
    laplace,
    laplace_gradient,
    mean_field,
    mean_field_gradient,
)
from bsvr_pp.inference.search.quasi_newton import ascend
from bsvr_pp.losses import gaussian, soft_insensitive

JITTER = 1e-6  # of the signal variance
METHODS = {"laplace": laplace, "mean field": mean_field}
GRADIENTS = {"laplace": laplace_gradient, "mean field": mean_field_gradient}


def model(X, y, beta=0.3, ard=True, flat=True):
    """Build the PyMC model. With flat priors on the logs it is fitted by ``objective="evidence"``.

    Sampling needs proper priors: the default priors, and a bias variance of the size of the targets.
    """
    with pm.Model() as svm:
        if flat:
            lengthscale = pm.HalfFlat("lengthscale", shape=X.shape[1]) if ard else pm.HalfFlat("lengthscale")
            C, epsilon, bias = pm.HalfFlat("C"), pm.HalfFlat("epsilon"), pm.HalfFlat("bias")
        else:
            priors = bp.default_priors(X, y, ard=ard)
            lengthscale, C, epsilon = priors["lengthscale"], priors["C"], priors["epsilon"]
            bias = pm.LogNormal("bias", np.log(np.var(y)), 1.0)
        kernel = float(np.var(y)) * pm.gp.cov.ExpQuad(X.shape[1], ls=lengthscale) + pm.gp.cov.Constant(bias)
        f = bp.GP(cov_func=kernel).prior("f", X=X, jitter=JITTER * float(np.var(y)))
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=beta, observed=y)
    return svm


def normalized(train, *others):
    """Scale the inputs so that the training set has mean 0 and variance 1."""
    centre, width = train.mean(axis=0), train.std(axis=0)
    width = np.where(width > 0, width, 1.0)
    return [(X - centre) / width for X in (train, *others)]


@dataclass(frozen=True)
class FittedModel:
    """A fitted model: C, epsilon (0 for Gaussian noise), bias variance κ_b and relevances κ (d,)."""

    X: np.ndarray
    signal: float
    C: float
    epsilon: float
    bias: float
    relevance: np.ndarray
    noise: object
    posterior: object
    support: np.ndarray
    evaluations: int
    seconds: float

    def predict(self, X_new):
        """Mean and variance of f, (44)."""
        cross = kernel(X_new, self.X, self.signal, self.relevance) + self.bias
        return self.posterior.predict(cross, np.full(len(X_new), self.signal + self.bias))

    @property
    def n_support(self):
        """Support vectors of the mode: off-bound and on-bound."""
        return int(np.sum(self.support == 1)), int(np.sum(self.support == 2))

    def covers(self, X_new, y_new, coverage):
        """Return whether each target lies inside the central interval around the mean of f."""
        mean, variance = self.predict(X_new)
        below = self.noise.predictive_cdf(np.abs(y_new - mean), np.zeros_like(mean), variance)
        return below <= 0.5 + 0.5 * coverage


def kernel(X, Z, signal, relevance):
    """κ₀ exp(-½ Σ κ_l (x_l - z_l)²)."""
    root = np.sqrt(relevance)
    return signal * np.exp(-0.5 * cdist(X * root, Z * root, "sqeuclidean"))


def maximize(
    X, y, *, beta=0.3, ard=False, method="laplace", noise="soft_insensitive", starts=2, start=None, search=True
):
    """Fit the hyperparameters at the optimum of the evidence, the best of one or two starts.

    A `FittedModel`, such as the optimum of a faster method, can replace the starts of the paper. Without optimisation
    its hyperparameters are used unchanged.
    """
    began = time.perf_counter()
    d, signal = X.shape[1], float(np.var(y))
    n_noise = 1 if noise == "gaussian" else 2
    jitter = JITTER * signal
    same = np.eye(len(y)) * jitter

    def unpack(theta):
        values = np.exp(theta)
        found = gaussian(values[0]) if n_noise == 1 else soft_insensitive(values[0], values[1], beta)
        return found, values[n_noise], np.broadcast_to(values[n_noise + 1 :], (d,))

    def evaluate(theta):
        noise, bias, relevance = unpack(theta)
        K0 = kernel(X, X, signal, relevance)
        value, by = GRADIENTS[method](Covariance(K0 + bias + same, jitter=jitter), y, noise)
        W = by.K * K0  # by ln κ_l: -½ κ_l Σ_ij W_ij (x_il - x_jl)², (40)
        spread = 2 * (W.sum(axis=0) @ X**2 - np.einsum("il,il->l", X, W @ X))
        by_relevance = -0.5 * relevance * spread
        by_noise = [by.parameters[name] * noise.parameters[name] for name in ("C", "epsilon")[:n_noise]]
        slope = np.array([*by_noise, by.K.sum() * bias, *(by_relevance if ard else [by_relevance.sum()])])
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return -np.inf, np.zeros_like(theta)
        return value, slope

    first = [1.0, 0.05, 100.0] if n_noise == 2 else [1.0, 100.0]
    second = [10.0, 0.05, 100.0] if n_noise == 2 else [10.0, 100.0]
    both = (np.log([*first, *[0.5] * (d if ard else 1)]), np.log([*second, *[1.0 / d] * (d if ard else 1)]))
    if start is not None:
        relevance = start.relevance if ard else start.relevance[:1]
        both = (np.log([start.C, *[start.epsilon] * (n_noise - 1), start.bias, *relevance]),)
    best, evaluations = both[0], 0
    if search:
        found = [ascend(evaluate, point, len(y)) for point in both[:starts]]
        best = max(found, key=lambda ascent: ascent.value).x
        evaluations = sum(ascent.n_evaluations for ascent in found)
    noise, bias, relevance = unpack(best)
    K = Covariance(kernel(X, X, signal, relevance) + bias + same, jitter=jitter)
    posterior = METHODS[method](K, y, noise)
    epsilon = noise.parameters.get("epsilon", 0.0)
    seconds = time.perf_counter() - began
    C = noise.parameters["C"]
    support = posterior.support if posterior.support.size else find_mode(K, y, noise).support
    return FittedModel(X, signal, C, epsilon, bias, relevance, noise, posterior, support, evaluations, seconds)


def sampled(X, y, X_new, y_new, *, beta=0.3, ard=False, draws=300, seed=0):
    """Sample the hyperparameters by NUTS, with f integrated out by mean field; the paper has no sampling.

    Returns hyperparameters at the posterior means of their logs, and the errors of the averaged prediction.
    """
    svm = model(X, y, beta, ard, flat=False)
    method = bp.NUTS(latent=bp.MeanField(), draws=draws, tune=draws, target_accept=0.8)
    result = bp.fit(method, svm, random_seed=seed, progressbar=False)
    middle = np.exp(np.log(result["posterior"].to_dataset()).mean(("chain", "draw")))
    C, epsilon = result["posterior"]["C"].values, result["posterior"]["epsilon"].values
    variances = [soft_insensitive(*pair, beta).variance for pair in zip(C.ravel(), epsilon.ravel(), strict=True)]
    prediction = bp.predict(result, X_new, model=svm)
    low, high = (prediction["y_quantile"].sel(quantile=q).values for q in (0.025, 0.975))
    return {
        "C": float(middle["C"]),
        "ε": float(middle["epsilon"]),
        "σ_n²": float(np.exp(np.mean(np.log(variances)))),
        "κ": np.atleast_1d(middle["lengthscale"].values) ** -2.0,
        **errors(prediction["f_mean"].values, y_new),
        "inside 95 %": float(np.mean((low <= y_new) & (y_new <= high))),
        "seconds": result.attrs["sampling_time"],
        "ESS": result.attrs["ess"],
        "R-hat": result.attrs["r_hat"],
    }


def errors(predicted, y):
    """Compute the average squared and the average absolute error."""
    return {"ASE": float(np.mean((y - predicted) ** 2)), "AAE": float(np.mean(np.abs(y - predicted)))}


def cross_validated_svr(X, y, epsilon, seed=0):
    """Fit standard support vector regression as in section VII: C and κ by five folds on a coarse and a fine grid."""

    def search(log_C, log_kappa):
        grid = {"C": 10.0**log_C, "gamma": 0.5 * 10.0**log_kappa}
        folds = KFold(5, shuffle=True, random_state=seed)
        svr = SVR(epsilon=epsilon, max_iter=1_000_000)
        return GridSearchCV(svr, grid, scoring="neg_mean_squared_error", cv=folds).fit(X, y)

    began = time.perf_counter()
    coarse = search(np.linspace(-0.5, 2.5, 7), np.linspace(-2.5, 0.5, 7)).best_params_
    around = 0.1 * np.arange(-4, 5)
    fine = search(np.log10(coarse["C"]) + around, np.log10(2 * coarse["gamma"]) + around)
    return fine.best_estimator_, time.perf_counter() - began
