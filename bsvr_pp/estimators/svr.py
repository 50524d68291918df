"""Support vector regression with error bars and without a grid search, as a scikit-learn estimator."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bsvr_pp.approximations import find_mode
from bsvr_pp.checks import check_count, check_share, checked_levels, is_number
from bsvr_pp.estimators.fitted import optimized, restored, sampled
from bsvr_pp.estimators.options import ends, seeded, validated, widths
from bsvr_pp.estimators.recipe import Recipe
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.methods import NUTS, Laplace, MeanField, from_record, to_record
from bsvr_pp.inference.predict import predictions
from bsvr_pp.inference.result import draw_sites
from bsvr_pp.priors import KERNELS, NOISES, Kernel, default_beta
from bsvr_pp.problem import Problem

__all__ = ["BayesianSVR"]

Array = NDArray[np.float64]
Inference = str | Laplace | MeanField | NUTS

_METHODS: dict[str, Laplace | MeanField | NUTS] = {
    "laplace": Laplace(),
    "mean_field": MeanField(),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}
_SAVED = ("noise", "kernel", "beta", "quantile", "ard", "restarts", "committee")
_LEARNED = ("mean_", "scale_", "location_", "unit_", "beta_", "n_features_in_")


class BayesianSVR(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector regression whose hyperparameters and error bars come from its own model.

    A Gaussian process with support vector noise (Chu, Keerthi & Ong 2004) on standardised inputs and targets: the most
    probable latent function is the support vector machine; C, epsilon and the kernel maximise the evidence times weak
    priors (`bp.default_priors`), or are sampled. It stands where `sklearn.svm.SVR` stands in a pipeline, without a
    grid search.

    Parameters
    ----------
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "laplace", "gaussian", "quantile"}
        Noise model. With "quantile" the latent function, and `predict`, is a quantile of the target.
    kernel : {"rbf", "matern32", "matern52", "linear"} or callable
        A function is called inside a PyMC model with the standardised inputs and gives a kernel of `pm.gp.cov` with
        its priors; a constant is added.
    beta : float or "auto"
        Smooth fraction of the soft insensitive loss; "auto" is the rule of `bp.default_beta`.
    quantile : float
        Of quantile noise.
    ard : bool
        Whether each input has its own length scale.
    inference : {"auto", "laplace", "mean_field", "nuts"} or a method
        Laplace's approximation, mean field, or `bp.NUTS` over the hyperparameters with mean field inside; or
        `bp.Laplace`, `bp.MeanField` or `bp.NUTS(latent=...)` with options of their own. "auto" is Laplace where the
        loss has a smooth part at its kinks, and mean field, some five times slower, where it has none
        ("epsilon_insensitive", "laplace", "quantile", beta = 0): there Laplace has no curvature to go by.
    restarts : int
        Starts of the optimiser, as of `bp.fit`; one or two save time beyond 500 rows.
    committee : bool
        Whether predictions average over all optima that were found, weighted by their evidence (Chu, Keerthi & Ong
        2004, section V-B), rather than take the best.
    random_state : int, RandomState or None
        Same seed, same result.

    Attributes
    ----------
    C_, epsilon_, beta_ : float
        Parameters of the noise, in units of the target (1/unit, of Gaussian noise 1/unit², and unit); only those
        that the noise has. Means, if they were sampled.
    noise_variance_ : float
        Variance of the noise, in squared units of the target.
    lengthscale_ : (n_features_in_,) array
        In units of the inputs; not for a kernel function.
    relevance_ : (n_features_in_,) array
        1/lengthscale² on the standardised inputs.
    log_evidence_ : float
        Of the targets as given (that is, with the Jacobian of their standardisation); NaN if sampled.
    support_ : array of int
        Training points that are support vectors of the most probable latent function.
    dual_coef_ : (n,) array
        Its dual coefficients, α - α* at most C_ in size, in 1/units of the target.
    n_support_ : int
        How many support vectors.
    committee_ : (m,) array
        Weights of the optima that predictions average over.
    converged_ : bool
        Whether the optimum or the chains converged.
    result_ : xarray.DataTree
        The result as `bp.fit` gives it, on the standardised scale; for a committee that of its best member. Save it
        with ``to_netcdf`` and read it back by `from_result`.

    Notes
    -----
    There are no sample weights: noise of unequal scale is a PyMC model with a vector C, in a few lines.
    Time grows as n³ and memory as n².

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).laplace(size=40)
    >>> machine = bp.BayesianSVR(restarts=2, random_state=0).fit(X, y)
    >>> mean, std = machine.predict([[0.0], [1.5]], return_std=True)
    >>> bool(np.all(np.abs(mean - np.sin([0.0, 1.5])) < 2 * std))
    True
    >>> machine.predict_interval([[0.0]], coverage=0.8).shape
    (1, 2)
    """

    def __init__(
        self,
        noise: str = "soft_insensitive",
        *,
        kernel: Kernel = "rbf",
        beta: float | Literal["auto"] = "auto",
        quantile: float = 0.5,
        ard: bool = True,
        inference: Inference = "auto",
        restarts: int = 5,
        committee: bool = False,
        random_state: Any = None,
    ) -> None:
        self.noise = noise
        self.kernel = kernel
        self.beta = beta
        self.quantile = quantile
        self.ard = ard
        self.inference = inference
        self.restarts = restarts
        self.committee = committee
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find (or sample) the hyperparameters, and the posterior of the latent function.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array
            Targets.

        Raises
        ------
        ValueError
            If an option is out of range, or the data are not finite numbers.

        Warns
        -----
        ConvergenceWarning
            If the optimum or the chains did not converge.
        """
        self._check_options()
        inputs, targets = validated(self, X, y, y_numeric=True)
        rng = seeded(self.random_state)
        self.mean_, self.scale_ = inputs.mean(axis=0), widths(inputs)
        self.location_, self.unit_ = float(np.mean(targets)), float(widths(np.asarray(targets, np.float64)))
        self.beta_ = default_beta(len(targets)) if self.beta == "auto" else float(self.beta)
        self._X, self._y = (inputs - self.mean_) / self.scale_, (targets - self.location_) / self.unit_
        method = self._method()
        with self._problem() as problem:
            if isinstance(method, NUTS):
                self._fitted = sampled(problem, method, rng)
            else:
                self._fitted = optimized(problem, method, self.restarts, bool(self.committee), rng)
                if not self._fitted.converged:
                    message = f"{method.name} did not converge: {self._fitted.message}"
                    warnings.warn(message, ConvergenceWarning, stacklevel=2)
            self._describe(problem)
        return self

    def _check_options(self) -> None:
        if self.noise not in NOISES:
            raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {self.noise!r}")
        if not callable(self.kernel) and self.kernel not in KERNELS:
            raise ValueError(f"kernel must be {', '.join(KERNELS)} or a function of the inputs, got {self.kernel!r}")
        if not (self.beta == "auto" or (is_number(self.beta) and 0 <= float(self.beta) <= 1)):
            raise ValueError(f"beta must be 'auto' or lie between 0 and 1, got {self.beta!r}")
        check_share("quantile", self.quantile)
        for name in ("ard", "committee"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        check_count("restarts", self.restarts, 1)
        if isinstance(self.inference, NUTS) and self.inference.latent is None:
            raise ValueError("inference must integrate the latent function out: NUTS(latent=...), got NUTS()")
        if not isinstance(self.inference, Laplace | MeanField | NUTS) and self.inference not in ("auto", *_METHODS):
            raise ValueError(
                f"inference must be one of auto, {', '.join(_METHODS)} or a method, got {self.inference!r}"
            )

    def _method(self) -> Laplace | MeanField | NUTS:
        if not isinstance(self.inference, str):
            return self.inference
        smooth = self.noise in ("huber", "gaussian") or (self.noise == "soft_insensitive" and self.beta_ > 0)
        if self.inference == "laplace" and not smooth:
            raise ValueError(
                f"inference='laplace' has no curvature to go by where noise={self.noise!r} has kinks: use 'mean_field'"
            )
        if self.inference == "auto":
            return Laplace() if smooth else MeanField()
        return _METHODS[self.inference]

    def _problem(self) -> Any:
        """The model with the training data, as a context."""
        d = self.n_features_in_
        quantile = float(self.quantile) if self.noise == "quantile" else 0.5
        recipe = Recipe(self.noise, self.kernel, bool(self.ard) and d > 1, d, quantile)
        return recipe.problem(self._X, self._y, self.beta_)

    def _describe(self, problem: Problem) -> None:
        """Hyperparameters in the data's units, and the support vector machine."""
        point = self._fitted.points[0]
        K, mean, noise = problem.at(point)
        mode = find_mode(K, problem.targets, noise, mean=mean, jitter=problem.prior.jitter)
        self.C_ = float(noise.parameters["C"]) / self.unit_ ** (2 if self.noise == "gaussian" else 1)
        if "epsilon" in noise.parameters:
            self.epsilon_ = float(noise.parameters["epsilon"]) * self.unit_
        self.noise_variance_ = float(noise.variance) * self.unit_**2
        if not callable(self.kernel):
            lengthscale = np.broadcast_to(point["lengthscale"], (self.n_features_in_,))
            self.lengthscale_, self.relevance_ = lengthscale * self.scale_, lengthscale**-2.0
        self.committee_, self.converged_ = self._fitted.weights, self._fitted.converged
        self.log_evidence_ = self._fitted.log_evidence - len(self._y) * float(np.log(self.unit_))
        self.dual_coef_ = np.where(mode.support > 0, mode.dual_coef, 0.0) / self.unit_
        self.support_ = np.flatnonzero(mode.support)
        self.n_support_ = int(self.support_.size)

    @property
    def result_(self) -> xr.DataTree:
        """The result as `bp.fit` gives it, on the standardised scale, with all that `from_result` needs."""
        check_is_fitted(self)
        with self._problem() as problem:
            tree = self._fitted.result(problem, self._method())
        learned = {name: np.asarray(getattr(self, name)).tolist() for name in _LEARNED}
        method = self.inference if isinstance(self.inference, str) else to_record(self.inference)
        names = getattr(self, "feature_names_in_", None)
        recipe = {
            "options": {name: getattr(self, name) for name in _SAVED} if not callable(self.kernel) else None,
            "inference": method,
            "learned": learned,
            "names": None if names is None else list(names),
        }
        tree.attrs["recipe"] = json.dumps(recipe)
        return tree

    @classmethod
    def from_result(cls, result: xr.DataTree) -> Self:
        """The fitted estimator of a saved ``result_``.

        Parameters
        ----------
        result : DataTree
            As it was, or as ``xarray.open_datatree`` reads it.

        Raises
        ------
        ValueError
            If it is not the result of an estimator, or its kernel was a function.

        Examples
        --------
        >>> import numpy as np, bsvr_pp as bp
        >>> X = np.linspace(-3, 3, 20)[:, None]
        >>> machine = bp.BayesianSVR(restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> again = bp.BayesianSVR.from_result(machine.result_)
        >>> bool(np.allclose(again.predict(X), machine.predict(X)))
        True
        """
        if "recipe" not in getattr(result, "attrs", {}):
            raise ValueError("result must be the result_ of a BayesianSVR, it carries no recipe")
        recipe = json.loads(result.attrs["recipe"])
        if recipe["options"] is None:
            raise ValueError("result has a kernel function, which is not saved with it: pickle the estimator instead")
        method = recipe["inference"]
        self = cls(**recipe["options"], inference=method if isinstance(method, str) else from_record(method))
        for name, value in recipe["learned"].items():
            setattr(self, name, np.array(value) if isinstance(value, list) else value)
        if recipe["names"] is not None:
            self.feature_names_in_ = np.array(recipe["names"], dtype=object)
        self._X = result["constant_data"]["X"].values
        self._y = next(iter(result["observed_data"].to_dataset().values())).values
        with self._problem() as problem:
            self._fitted = restored(problem, result)
            self._describe(problem)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict targets: their mean, or with quantile noise their quantile.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        return_std : bool
            Whether to give the standard deviation of a new target as well.

        Returns
        -------
        mean, or mean and standard deviation, (n_new,) arrays
        """
        found = self._predictions(X)
        centre = found["f_mean"] if self.noise == "quantile" else found["y_mean"]
        mean = self.location_ + self.unit_ * centre
        return (mean, self.unit_ * np.sqrt(found["y_variance"])) if return_std else mean

    def predict_latent(self, X: ArrayLike) -> tuple[Array, Array]:
        """Mean and standard deviation of the latent function, without the noise.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.

        Returns
        -------
        mean, standard deviation : (n_new,) arrays
        """
        found = self._predictions(X)
        return self.location_ + self.unit_ * found["f_mean"], self.unit_ * np.sqrt(found["f_variance"])

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Central interval in which a new target lies with the given probability.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        coverage : float
            Between 0 and 1.

        Returns
        -------
        (n_new, 2) array
            Lower and upper end.

        Raises
        ------
        ValueError
            If coverage is out of range.
        """
        return self.predict_quantiles(X, ends(coverage))

    def predict_quantiles(self, X: ArrayLike, quantiles: Sequence[float]) -> Array:
        """Quantiles of a new target.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        quantiles : sequence of float
            Between 0 and 1.

        Returns
        -------
        (n_new, len(quantiles)) array

        Raises
        ------
        ValueError
            If a quantile is out of range.
        """
        found = self._predictions(X, checked_levels(quantiles))["y_quantile"]
        return np.asarray(self.location_ + self.unit_ * found.T)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new targets at several inputs jointly: one latent function a draw, and noise.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        n_samples : int
            Number of draws.
        random_state : int, RandomState or None
            Same seed, same draws.

        Returns
        -------
        (n_new, n_samples) array
        """
        check_count("n_samples", n_samples, 1)
        inputs = self._standardised(X)
        rng = seeded(random_state)
        out = np.empty((len(inputs), n_samples))
        with self._problem() as problem:
            parts = list(self._fitted.components(problem, rng))
            weights = np.array([part.weight for part in parts])
            chosen = rng.choice(len(parts), size=n_samples, p=weights / weights.sum())
            for i in np.unique(chosen):
                at = np.flatnonzero(chosen == i)
                mean, _ = parts[i].latent(problem, inputs)
                sites = np.append(parts[i].site_precision, np.zeros(len(inputs)))
                joint = problem.joint(parts[i].point, inputs)
                f = mean + draw_sites(joint, sites, at.size, rng)[:, len(self._y) :]
                out[:, at] = (f + parts[i].noise.sample(f.shape, rng)).T
        return np.asarray(self.location_ + self.unit_ * out)

    def _standardised(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        inputs: Array = (validated(self, X, reset=False) - self.mean_) / self.scale_
        return inputs

    def _predictions(self, X: ArrayLike, levels: Array | None = None) -> dict[str, Array]:
        inputs, rng = self._standardised(X), np.random.default_rng(0)
        with self._problem() as problem:
            parts = self._fitted.components(problem, rng)
            return predictions(problem, parts, inputs, np.empty(0) if levels is None else levels, None, rng)
