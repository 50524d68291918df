"""Scores of one result: predictions on test data, distances of marginals from a reference, k-hat."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import wasserstein_distance

from bsvr_pp._checks import numbers
from bsvr_pp.assess.assessment import Hyperparameter, Scores
from bsvr_pp.assess.weights import pareto_weights
from bsvr_pp.inference.layout import latent_draws
from bsvr_pp.inference.result import shown_names

__all__ = ["calibration_error", "hyperparameter_draws", "latent_k_hat", "marginal_distances", "score", "scores"]

Array = NDArray[np.float64]

_COVERAGES = (0.8, 0.95)
_BINS = 10


def scores(prediction: xr.Dataset, y: ArrayLike) -> dict[str, float]:
    """Score predictions on test targets.

    Parameters
    ----------
    prediction : Dataset
        Output of `predict` with ``y_new`` and the quantiles 0.025, 0.1, 0.9 and 0.975; or for labels.
    y : (n,) array
        Test targets.

    Returns
    -------
    dict
        ``ase`` and ``aae``, the average squared and absolute error of the latent function (Chu, Keerthi & Ong 2004,
        section VII), in the target's units squared and units; ``mlpd``, the mean log predictive density; ``crps``, the
        mean continuous ranked probability score, in the target's units; ``coverage 80 %`` and ``coverage 95 %``, the
        shares of targets in the central intervals; `calibration_error`. For labels ``error rate`` and ``mlpd``.

    Raises
    ------
    ValueError
        If the prediction lacks the targets' density or a quantile, or y is not what `predict` was given as y_new.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=10.0, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     prediction = bp.predict(bp.fit(bp.MeanField(), progressbar=False), [[0.5], [1.5]], y_new=[0.5, 1.0])
    >>> bp.scores(prediction, [0.5, 1.0])["coverage 95 %"]
    1.0
    """
    found = score(prediction, y)
    if found.error_rate is not None:
        return {"error rate": found.error_rate, "mlpd": found.log_density}
    assert found.squared_error is not None and found.absolute_error is not None
    assert found.crps is not None and found.calibration_error is not None and found.coverage is not None
    return {
        "ase": found.squared_error,
        "aae": found.absolute_error,
        "mlpd": found.log_density,
        "crps": found.crps,
        **{f"coverage {100 * probability:.0f} %": share for probability, share in found.coverage.items()},
        "calibration error": found.calibration_error,
    }


def score(prediction: xr.Dataset, y: ArrayLike) -> Scores:
    """Score predictions on test targets, as data; see `scores` for the scores and errors.

    Parameters
    ----------
    prediction : Dataset
        Result of `predict`, with ``y_new``.
    y : (n,) array
        Test targets.

    Returns
    -------
    Scores
    """
    if not isinstance(prediction, xr.Dataset) or not {"y_log_density", "y_new"} <= set(prediction.variables):
        raise ValueError("prediction must be of predict(..., y_new=...), with the density of the targets")
    targets = numbers("y", y, prediction["y_log_density"].shape)
    if not np.array_equal(targets, prediction["y_new"].values):
        raise ValueError("y must be the targets that predict was given as y_new, and differs from them")
    log_density = float(prediction["y_log_density"].mean())
    if "y_probability" in prediction:
        wrong = np.where(prediction["y_probability"].values > 0.5, 1.0, -1.0) != targets
        return Scores(targets.size, log_density, error_rate=float(wrong.mean()))
    if "y_class_probability" in prediction:
        wrong = prediction["y_class_probability"].values.argmax(axis=0) != targets
        return Scores(targets.size, log_density, error_rate=float(wrong.mean()))
    error = targets - prediction["f_mean"].values
    return Scores(
        n=targets.size,
        log_density=log_density,
        squared_error=float(np.mean(error**2)),
        absolute_error=float(np.mean(np.abs(error))),
        crps=float(prediction["y_crps"].mean()),
        coverage={probability: _covered(prediction, targets, probability) for probability in _COVERAGES},
        calibration_error=calibration_error(prediction["y_cdf"].values),
    )


def _covered(prediction: xr.Dataset, targets: Array, probability: float) -> float:
    """Share of the targets in the central intervals of a probability."""
    ends = [0.5 - probability / 2, 0.5 + probability / 2]
    if "y_quantile" not in prediction or not np.isclose(prediction["quantile"].values[:, None], ends).any(0).all():
        raise ValueError(f"prediction must have the quantiles {ends[0]:g} and {ends[1]:g}, for the coverage")
    low, high = prediction["y_quantile"].sel(quantile=ends, method="nearest").values
    return float(np.mean((low <= targets) & (targets <= high)))


def calibration_error(pit: ArrayLike) -> float:
    """Mean distance between the predicted and the observed share of targets below a quantile.

    Parameters
    ----------
    pit : (n,) array
        Probability integral transforms: the predicted probability of a target at most as large as the observed.

    Returns
    -------
    float
        ∫ |F_n(u) - u| du, between 0 and 0.5; about 0.31/√n for perfect predictions.

    Examples
    --------
    >>> from bsvr_pp.assess.scores import calibration_error
    >>> calibration_error([0.25, 0.75]), calibration_error([1.0, 1.0])
    (0.125, 0.5)
    """
    u = np.sort(np.asarray(pit, dtype=np.float64))
    # In one dimension the distance between distribution functions is that between quantile functions, cell by cell.
    edges = np.arange(u.size + 1) / u.size
    low, high = edges[:-1] - u, edges[1:] - u
    crossing = (low < 0) & (high > 0)
    area = np.where(crossing, 0.5 * (low**2 + high**2), 0.5 * np.abs(low + high) / u.size)
    return float(area.sum())


def hyperparameter_draws(result: xr.DataTree) -> dict[Hyperparameter, Array]:
    """Draws of every scalar hyperparameter; those of a point are one draw.

    Parameters
    ----------
    result : DataTree
        Result of `fit`.

    Returns
    -------
    dict
        `Hyperparameter` to draws; a vector has an entry for each of its elements.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> from bsvr_pp.assess.scores import hyperparameter_draws
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     result = bp.fit(bp.MeanField(), hyperparameters={"C": 10.0}, random_seed=1, progressbar=False)
    >>> {entry.label: draws.tolist() for entry, draws in hyperparameter_draws(result).items()}
    {'C': [10.0]}
    """
    posterior = result["posterior"].to_dataset()
    sampled = "dual_coef" not in result["latent_posterior"].to_dataset()
    out = {}
    for name in shown_names(result):
        flat = posterior[name].values.reshape(posterior.sizes["chain"] * posterior.sizes["draw"], -1)
        for i in range(flat.shape[1]):
            out[Hyperparameter(name, i if flat.shape[1] > 1 else None)] = flat[:, i] if sampled else flat[:1, i]
    return out


def marginal_distances(draws: Array, reference: Array) -> tuple[float, float]:
    """Wasserstein distance, in standard deviations of the reference, and KL divergence of one marginal.

    Parameters
    ----------
    draws, reference : (draws,) arrays
        Draws of the same quantity; a single draw is a point.

    Returns
    -------
    wasserstein, kl : float
        The divergence is that of the reference from the other, between the shares that fall into the tenths of the
        reference, less what it is on average for equal distributions; NaN for a point. Both are NaN where the
        reference is a point.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.assess.scores import marginal_distances
    >>> reference = np.random.default_rng(0).normal(size=4000)
    >>> [bool(d < 0.05) for d in marginal_distances(-reference, reference)]
    [True, True]
    """
    sd = reference.std(ddof=1) if reference.size > 1 else 0.0
    if not sd > 0:
        return np.nan, np.nan
    wasserstein = float(wasserstein_distance(draws, reference) / sd)
    if draws.size == 1:
        return wasserstein, np.nan
    edges = np.quantile(reference, np.arange(1, _BINS) / _BINS)
    p, q = (
        (np.bincount(np.searchsorted(edges, x), minlength=_BINS) + 0.5) / (x.size + 0.5 * _BINS)
        for x in (reference, draws)
    )
    excess = 0.5 * (_BINS - 1) * (1 / reference.size + 1 / draws.size)
    return wasserstein, max(float(p @ np.log(p / q)) - excess, 0.0)


def latent_k_hat(result: xr.DataTree) -> float:
    """Compute k-hat, the Pareto shape of the importance weights from a Gaussian posterior of f to the exact one.

    The ratio p(y|f) p(f)/q(f) at a draw f = mean + δ is log p(y|f) - dual_coef·δ + ½ Σ τ_i δ_i², up to a constant: the
    prior covariance cancels. Up to 0.7, weighted draws can represent the exact posterior (Vehtari et al. 2024). k-hat
    is for all n values of f jointly, and grows with n even if each marginal is right.

    Parameters
    ----------
    result : DataTree
        Result of `fit` with Laplace or MeanField.

    Returns
    -------
    float
        NaN for MAP, which has no draws, and for NUTS, whose draws are exact given the hyperparameters.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> from bsvr_pp.assess.scores import latent_k_hat
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     result = bp.fit(bp.MeanField(), hyperparameters={"C": 10.0}, random_seed=1, progressbar=False)
    >>> latent_k_hat(result) < 0.7
    True
    """
    latent = result["latent_posterior"].to_dataset()
    if "dual_coef" not in latent or not latent["variance"].values.any():
        return np.nan
    likelihood = result["log_likelihood"].to_dataset()
    target = next(iter(likelihood.data_vars))
    step = latent_draws(result) - latent["mean"].values
    ratio = likelihood[target].values.reshape(step.shape).sum(axis=1)
    ratio = ratio - step @ latent["dual_coef"].values + 0.5 * step**2 @ latent["site_precision"].values
    return pareto_weights(ratio)[1]
