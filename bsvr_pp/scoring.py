"""Numbers that judge one result: predictions on test data, marginals against a reference, k-hat."""

from __future__ import annotations

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray
from scipy.stats import wasserstein_distance

from bsvr_pp.checks import numbers

__all__ = ["calibration_error", "hyperparameter_draws", "latent_k_hat", "marginal_distances", "scores"]

Array = NDArray[np.float64]

_COVERAGES = (0.8, 0.95)
_BINS = 10


def scores(prediction: xr.Dataset, y: ArrayLike) -> dict[str, float]:
    """Score predictions on test targets.

    Parameters
    ----------
    prediction : Dataset
        Of `predict`, with ``y_new`` and the quantiles 0.025, 0.1, 0.9 and 0.975; or of labels.
    y : (n,) array
        Test targets.

    Returns
    -------
    dict
        ``ase`` and ``aae``, the average squared and absolute error of the latent function (Chu, Keerthi & Ong 2004,
        section VII), in the target's units squared and units; ``mlpd``, the mean log predictive density; ``crps``,
        the mean continuous ranked probability score, in the target's units; ``coverage 80 %`` and ``coverage 95 %``,
        the shares of targets in the central intervals; `calibration_error`. Of labels ``error rate`` and ``mlpd``.

    Raises
    ------
    ValueError
        If the prediction lacks the targets' density or a quantile, or y is of another length or not finite.

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
    if not isinstance(prediction, xr.Dataset) or "y_log_density" not in prediction:
        raise ValueError("prediction must be of predict(..., y_new=...), with the density of the targets")
    targets = numbers("y", y, prediction["y_log_density"].shape)
    mlpd = float(prediction["y_log_density"].mean())
    if "y_probability" in prediction:
        wrong = np.where(prediction["y_probability"].values > 0.5, 1.0, -1.0) != targets
        return {"error rate": float(wrong.mean()), "mlpd": mlpd}
    error = targets - prediction["f_mean"].values
    out = {
        "ase": float(np.mean(error**2)),
        "aae": float(np.mean(np.abs(error))),
        "mlpd": mlpd,
        "crps": float(prediction["y_crps"].mean()),
    }
    for coverage in _COVERAGES:
        ends = [0.5 - coverage / 2, 0.5 + coverage / 2]
        if "y_quantile" not in prediction or not np.isclose(prediction["quantile"].values[:, None], ends).any(0).all():
            raise ValueError(f"prediction must have the quantiles {ends[0]:g} and {ends[1]:g}, for the coverage")
        low, high = prediction["y_quantile"].sel(quantile=ends, method="nearest").values
        out[f"coverage {coverage:.0%}".replace("%", " %")] = float(np.mean((low <= targets) & (targets <= high)))
    out["calibration error"] = calibration_error(prediction["y_cdf"].values)
    return out


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
    >>> from bsvr_pp.scoring import calibration_error
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


def hyperparameter_draws(result: xr.DataTree) -> dict[str, Array]:
    """Draws of every scalar hyperparameter, by label; those of a point are one draw.

    Parameters
    ----------
    result : DataTree
        Of `fit`.

    Returns
    -------
    dict
        ``lengthscale[1]`` and the like for the entries of a vector.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> from bsvr_pp.scoring import hyperparameter_draws
    >>> X = np.linspace(-3, 3, 12)[:, None]
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 1, 1.5)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))
    ...     result = bp.fit(bp.MeanField(), hyperparameters={"C": 10.0}, random_seed=1, progressbar=False)
    >>> hyperparameter_draws(result)["C"].tolist()
    [10.0]
    """
    posterior = result["posterior"].to_dataset()
    sampled = "dual_coef" not in result["latent_posterior"].to_dataset()
    out = {}
    for name in sorted(str(v) for v in posterior.data_vars if "obs" not in posterior[v].dims):
        flat = posterior[name].values.reshape(posterior.sizes["chain"] * posterior.sizes["draw"], -1)
        for i in range(flat.shape[1]):
            out[name if flat.shape[1] == 1 else f"{name}[{i}]"] = flat[:, i] if sampled else flat[:1, i]
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
    >>> from bsvr_pp.scoring import marginal_distances
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
    """Pareto shape of the weights that would turn a Gaussian posterior of f into the exact one.

    The ratio p(y|f) p(f)/q(f) at a draw f = mean + δ is log p(y|f) - dual_coef·δ + ½ Σ τ_i δ_i², up to a constant:
    the prior covariance drops out. Up to 0.7 weighted draws can stand for the exact posterior (Vehtari et al. 2024).
    It judges all n values of f at once, and grows with n although each marginal may be right.

    Parameters
    ----------
    result : DataTree
        Of `fit` with Laplace or MeanField.

    Returns
    -------
    float
        NaN for MAP, which has no draws, and for NUTS, whose draws are exact given the hyperparameters.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> from bsvr_pp.scoring import latent_k_hat
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
    posterior = result["posterior"].to_dataset()
    (f_name,) = (v for v in posterior.data_vars if "obs" in posterior[v].dims)
    n = latent.sizes["obs"]
    step = posterior[f_name].values.reshape(-1, n) - latent["mean"].values
    ratio = likelihood[target].values.reshape(-1, n).sum(axis=1)
    ratio = ratio - step @ latent["dual_coef"].values + 0.5 * step**2 @ latent["site_precision"].values
    return float(array_stats.psislw(-ratio)[1])
