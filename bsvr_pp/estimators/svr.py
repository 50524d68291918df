"""Support vector regression with error bars and without grid search, as a scikit-learn estimator."""

from __future__ import annotations

import json
import warnings
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import find_mode
from bsvr_pp.estimators.censored import concordance, ends_of_targets, logs_of_targets
from bsvr_pp.estimators.fitted import optimized, reading, restored, sampled
from bsvr_pp.estimators.options import check_regression, seeded, validated, widths
from bsvr_pp.estimators.outliers import kept_rows, listed
from bsvr_pp.estimators.recipe import Recipe
from bsvr_pp.estimators.target_predictions import TargetPredictions
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.methods import from_record, to_record
from bsvr_pp.inference.nuts import NUTS
from bsvr_pp.inference.protocol import Method
from bsvr_pp.inference.result import data_of
from bsvr_pp.losses.functions import unit_noise
from bsvr_pp.model.intervals import representative
from bsvr_pp.model.priors import Kernel, default_beta, location_and_scale
from bsvr_pp.model.problem import Problem

__all__ = ["BayesianSVR"]

Array = NDArray[np.float64]
Inference = str | Method

_METHODS: dict[str, Method] = {
    "mean_field": MeanField(),
    "laplace": Laplace(),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}
_SAVED = ("noise", "kernel", "beta", "quantile", "ard", "restarts", "committee", "outliers", "log_targets")
_LEARNED = ("mean_", "scale_", "location_", "unit_", "beta_", "n_features_in_", "outliers_")


class BayesianSVR(TargetPredictions, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector regression as a probability model, which gives the hyperparameters and the error bars.

    The model is a Gaussian process with support vector noise (Chu, Keerthi & Ong 2004) on standardised inputs and
    targets. The support vector machine is its most probable latent function. C, epsilon and the parameters of the
    kernel maximise the evidence times weak priors (`bp.default_priors`), or are sampled. It replaces `sklearn.svm.SVR`
    in a pipeline.

    Parameters
    ----------
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "laplace", "gaussian", "pinball"}
        A loss of residuals of `bsvr_pp.losses.LOSSES`. With "pinball" the latent function, and `predict`, is a
        quantile of the target.
    kernel : {"rational_quadratic", "rbf", "matern32", "matern52", "linear"} or callable
        The rational quadratic kernel is a mixture of Gaussian kernels ("rbf") of several lengthscales. A function is
        called inside a PyMC model with the standardised inputs and returns a kernel of `pm.gp.cov` with its priors; a
        constant kernel is added.
    beta : float or "auto"
        Smooth fraction; only for the soft insensitive loss. "auto" is the rule of `bp.default_beta`.
    quantile : float
        Level of the quantile; only for pinball noise.
    ard : bool
        Whether each input has its own lengthscale.
    inference : {"mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation, or `bp.NUTS` with f integrated out by mean field; or a method with options.
        Mean field gives better predictions than Laplace on most data (the benchmark "quality"). Laplace needs a
        curvature, which losses with kinks have not ("epsilon_insensitive", "laplace", "pinball", beta = 0).
    restarts : int, optional
        Number of starts of the optimiser, as in `bp.fit`: by default 2, or 5 for Laplace and for a committee.
    committee : bool
        Whether predictions average over all optima by evidence (Chu, Keerthi & Ong 2004, section V-B); not for NUTS.
    outliers : {"set_aside", "keep"}
        Whether rows are set aside whose targets are gross errors: no noise of the model explains them, and their
        neighbours do not agree (`bsvr_pp.estimators.outliers`). A warning names them. Intervals are kept.
    log_targets : bool
        Whether the model is one of log y, for positive targets such as times. `predict` is then the median, which is
        exp of the mean of log y; the evidence and the parameters of the noise are those of log y.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    C_, epsilon_, beta_ : float
        Parameters of the noise, as far as the noise has them, in units of the target: C_ in 1/unit (for Gaussian noise
        1/unit²), epsilon_ in units. Posterior means, if they were sampled.
    noise_variance_ : float
        Variance of the noise, in squared units of the target.
    lengthscale_ : (n_features_in_,) array
        Lengthscales in units of the inputs; absent for a kernel function.
    relevance_ : (n_features_in_,) array
        1/lengthscale² on the standardised inputs.
    log_evidence_ : float
        Log evidence of the original targets (with the Jacobian of their standardisation); NaN if sampled.
    support_, n_support_ : array of int, int
        Training points that are support vectors of the most probable latent function, and their number.
    dual_coef_ : (n,) array
        Its dual coefficients α - α*, whose absolute values are at most C_, in 1/units of the target.
    outliers_ : array of int
        Rows that were set aside; their dual coefficients are 0.
    committee_ : (m,) array
        Weights of the optima in the averaged predictions.
    converged_ : bool
        Whether the optimum or the chains converged.
    result_ : xarray.DataTree
        Result in the format of `bp.fit`, standardised; for a committee its best member. `from_result` loads it.

    Notes
    -----
    Time grows as n³ and memory as n². For sample weights use a PyMC model with a vector C.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).laplace(size=40)
    >>> svr = bp.BayesianSVR(restarts=2, random_state=0).fit(X, y)
    >>> mean, std = svr.predict([[0.0], [1.5]], return_std=True)
    >>> bool(np.all(np.abs(mean - np.sin([0.0, 1.5])) < 2 * std))
    True
    >>> svr.predict_interval([[0.0]], coverage=0.8).shape
    (1, 2)
    """

    def __init__(
        self,
        noise: str = "soft_insensitive",
        *,
        kernel: Kernel = "rational_quadratic",
        beta: float | Literal["auto"] = "auto",
        quantile: float = 0.5,
        ard: bool = True,
        inference: Inference = "mean_field",
        restarts: int | None = None,
        committee: bool = False,
        outliers: Literal["set_aside", "keep"] = "set_aside",
        log_targets: bool = False,
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
        self.outliers = outliers
        self.log_targets = log_targets
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        Gross errors among the targets are set aside first, unless ``outliers="keep"``.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array, (n, 2) array or structured array
            Targets; or lower and upper ends of the intervals in which they are known to lie, equal for an exact target
            and one of them infinite for a censored one; or the fields event and time (`bsvr_pp.estimators.censored`).

        Raises
        ------
        ValueError
            If an option is out of range or would be ignored, or the data are not finite, constant or lost in rounding.

        Warns
        -----
        ConvergenceWarning
            If the optimum or the chains did not converge.
        UserWarning
            If rows are set aside.
        """
        check_regression(self, _METHODS)
        ends = ends_of_targets(y)
        given = y if ends is None else representative(ends[:, 0], ends[:, 1])
        inputs, targets = validated(self, X, given, y_numeric=True, ensure_min_samples=2)
        targets = np.asarray(targets, np.float64)
        if self.log_targets:
            targets, ends = logs_of_targets(targets, ends)
        rng = seeded(self.random_state)
        self.beta_ = default_beta(len(targets)) if self.beta == "auto" else float(self.beta)
        method = self._method()
        latent: Method = method.latent or method if method.capabilities.draws else method

        def given_others(kept: NDArray[np.bool_]) -> tuple[Array, Array]:
            self._fit_rows(inputs[kept], targets[kept], None, latent, rng)
            return self._given_others(inputs, kept)

        kept = np.ones(len(targets), dtype=bool)
        with threads_for(len(targets)):
            if self.outliers == "set_aside" and ends is None:
                kept = kept_rows(given_others, (inputs - inputs.mean(axis=0)) / widths(inputs), targets)
            if self.outliers == "keep" or ends is not None or method.capabilities.draws:
                self._fit_rows(inputs[kept], targets[kept], ends, method, rng)
            self.outliers_ = np.flatnonzero(~kept)
            self._describe()
        if self.outliers_.size:
            warnings.warn(
                f"gross errors among {len(targets)} targets, which no noise of the model explains, are set aside: "
                f'{listed(self.outliers_)} (outliers="keep" keeps them)',
                UserWarning,
                stacklevel=2,
            )
        if not self._fitted.converged and not method.capabilities.draws:
            message = f"{method.name} did not converge: {self._fitted.message}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _fit_rows(
        self, inputs: Array, targets: Array, ends: Array | None, method: Method, rng: np.random.Generator
    ) -> None:
        """Standardise and fit."""
        self.mean_, self.scale_ = inputs.mean(axis=0), widths(inputs)
        self.location_, self.unit_ = location_and_scale(targets)
        self._X, self._y = (inputs - self.mean_) / self.scale_, (targets - self.location_) / self.unit_
        self._ends = None if ends is None else (ends - self.location_) / self.unit_
        problem = self._problem()
        if method.capabilities.draws:
            model = self._recipe().model(self._X, self._y, self.beta_, self._ends)
            self._fitted = sampled(model, problem, method, rng)
        else:
            self._fitted = optimized(problem, method, self.restarts, bool(self.committee), rng)

    def _given_others(self, inputs: Array, kept: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Mean and standard deviation of each target given the others; those set aside are given the kept rows."""
        posterior, noise = self._fitted.posteriors[0], self._problem().noise_at(self._fitted.points[0])
        mean, deviation = np.empty(len(inputs)), np.empty(len(inputs))
        mean[kept] = self.location_ + self.unit_ * (posterior.cavity_mean + noise.mean)
        deviation[kept] = self.unit_ * np.sqrt(posterior.cavity_variance + noise.variance)
        if not kept.all():
            found = self._at((inputs[~kept] - self.mean_) / self.scale_)
            mean[~kept] = self.location_ + self.unit_ * found["y_mean"]
            deviation[~kept] = self.unit_ * np.sqrt(found["y_variance"])
        return mean, deviation

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the predictions; for intervals, also censored ones, their concordance.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : array
            Targets, as in `fit`.
        sample_weight : (n,) array, optional
            Weights, of targets that are exact.

        Raises
        ------
        ValueError
            If no pair of the intervals has a known order, or they come with weights.
        """
        ends = ends_of_targets(y)
        if ends is None:
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError("sample_weight is for exact targets, and y has intervals")
        return concordance(ends, np.asarray(self.predict(X)))

    def _method(self) -> Method:
        if not isinstance(self.inference, str):
            return self.inference
        if self.inference == "laplace" and not unit_noise(self.noise, beta=self.beta_).smooth:
            raise ValueError(
                f"inference='laplace' has no curvature to go by where noise={self.noise!r} has kinks: use 'mean_field'"
            )
        return _METHODS[self.inference]

    def _problem(self) -> Problem:
        """The model with the training data."""
        return self._recipe().problem(self._X, self._y, self.beta_, self._ends)

    def _recipe(self) -> Recipe:
        d = self.n_features_in_
        quantile = float(self.quantile) if self.noise == "pinball" else 0.5
        return Recipe(self.noise, self.kernel, bool(self.ard) and d > 1, d, quantile, self._ends is not None)

    def _describe(self) -> None:
        """Set the attributes: hyperparameters in the units of the data, and the support vector machine."""
        problem = self._problem()
        point = self._fitted.points[0]
        K, mean, noise = problem.at(point)
        mode = find_mode(K, problem.targets, noise, mean=mean)
        for name, value in noise.parameters.items():
            parameter = noise.kind.parameter(name)
            if parameter.prior is not None:
                setattr(self, f"{name}_", float(value) * self.unit_**parameter.power)
        self.noise_variance_ = float(noise.variance) * self.unit_**2
        if not callable(self.kernel):
            inverse = np.broadcast_to(point["inverse_lengthscale"], (self.n_features_in_,))
            self.lengthscale_, self.relevance_ = self.scale_ / inverse, inverse**2
        self.committee_, self.converged_ = self._fitted.weights, self._fitted.converged
        exact = len(self._y) if self._ends is None else int(np.sum(self._ends[:, 0] == self._ends[:, 1]))
        self.log_evidence_ = self._fitted.log_evidence - exact * float(np.log(self.unit_))
        n = len(self._y) + len(self.outliers_)
        rows = np.delete(np.arange(n), self.outliers_)
        self.dual_coef_ = np.zeros(n)
        self.dual_coef_[rows] = np.where(mode.support > 0, mode.dual_coef, 0.0) / self.unit_
        self.support_ = rows[mode.support > 0]
        self.n_support_ = int(self.support_.size)

    @property
    def result_(self) -> xr.DataTree:
        """The result in the format of `bp.fit`, on the standardised scale, with everything that `from_result` needs."""
        check_is_fitted(self)
        problem = self._problem()
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
    @reading()
    def from_result(cls, result: xr.DataTree) -> Self:
        """Make the fitted estimator from a saved ``result_``.

        Parameters
        ----------
        result : DataTree
            The ``result_``, or what `load` reads from its file.

        Raises
        ------
        ValueError
            If it is not the result of an estimator, or its kernel was a function.

        Examples
        --------
        >>> import numpy as np, bsvr_pp as bp
        >>> X = np.linspace(-3, 3, 20)[:, None]
        >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> bool(np.allclose(bp.BayesianSVR.from_result(svr.result_).predict(X), svr.predict(X)))
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
        self.outliers_ = self.outliers_.astype(np.intp)
        if recipe["names"] is not None:
            self.feature_names_in_ = np.array(recipe["names"], dtype=object)
        self._X = data_of(result)["inputs"]
        self._y = data_of(result)["targets"]
        known = result["constant_data"].to_dataset()
        self._ends = np.stack([known["lower"], known["upper"]], axis=1) if "lower" in known else None
        problem = self._problem()
        self._fitted = restored(problem, result)
        self._describe()
        return self
