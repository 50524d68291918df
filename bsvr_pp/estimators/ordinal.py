"""Ordered classes by a support vector model with error bars, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._checks import check_count
from bsvr_pp._compiler import threads_for
from bsvr_pp.classification.default_models import check_ordinal_options, class_thresholds, standard_ordinal_model
from bsvr_pp.estimators.options import seeded, validated, widths
from bsvr_pp.estimators.saved import SavedEstimator
from bsvr_pp.inference.approximate import Laplace, MeanField, fit_problem
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.fitted import read_fitted
from bsvr_pp.inference.nuts import NUTS
from bsvr_pp.inference.objective import initial_point
from bsvr_pp.inference.predictive import predictions
from bsvr_pp.inference.protocol import Method, can
from bsvr_pp.inference.result import data_of
from bsvr_pp.model.priors import Kernel
from bsvr_pp.model.problem import Problem, read_model

__all__ = ["BayesianOrdinalSVC"]

Array = NDArray[np.float64]

_METHODS: dict[str, Method] = {
    "mean_field": MeanField(),
    "laplace": Laplace(curvature="local"),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}


class BayesianOrdinalSVC(SavedEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ordered classes as intervals of a latent target: a Gaussian process plus support vector noise.

    The model is `bp.classification.default_ordinal_model` on standardised inputs: a class is the number of cut points
    below the latent target. The tails of the default noise are learned, from Laplace noise, in which a wrong label has
    a bounded influence, to nearly Gaussian noise, which is the ordinal regression of Chu & Ghahramani 2005. Amplitude,
    lengthscales, cut points and tails maximise the evidence times weak priors, or are sampled; class probabilities are
    averages over the posterior of the function.

    Parameters
    ----------
    noise : {"soft_insensitive", "absolute", "gaussian"}
        Noise of standard deviation 1: with learned tails, or Laplace or Gaussian noise.
    kernel : {"rational_quadratic", "rbf", "matern32", "matern52", "linear"} or callable
        As in `bp.classification.default_ordinal_model`.
    ard : bool
        Whether each input has its own lengthscale.
    inference : {"mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation with local curvature, or `bp.NUTS` with f integrated out by mean field.
    decision : {"median", "mode"}
        Whether `predict` gives the median class, which minimises the mean absolute error of the class number, or the
        most probable class, which minimises the error rate.
    restarts : int, optional
        Number of starts of the optimiser, as in `bp.fit`.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    classes_ : array
        Labels in their order, that is, sorted.
    cutpoints_ : (n_classes - 1,) array
        Cut points, in standard deviations of the noise; posterior means if they were sampled.
    tails_ : float
        Shape of the noise: 1 is Laplace noise, and 0.02 Gaussian noise; absent for noise without a tube.
    amplitude_ : float
        Standard deviation of the latent function, in the same unit; absent for a kernel function.
    lengthscale_ : (n_features_in_,) array
        Lengthscales in units of the inputs; absent for a kernel function.
    relevance_ : (n_features_in_,) array
        1/lengthscale² on the standardised inputs.
    log_evidence_ : float
        Log evidence, the log probability of the training labels; NaN if hyperparameters were sampled.
    converged_ : bool
        Whether the optimum or the chains converged.

    References
    ----------
    Chu W. and Ghahramani Z. (2005). "Gaussian processes for ordinal regression". Journal of Machine Learning
    Research, 6, 1019-1041.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-2, 2, 30)[:, None]
    >>> y = np.digitize(X[:, 0], [-1.0, 0.5])
    >>> svc = bp.BayesianOrdinalSVC(kernel="rbf", random_state=0).fit(X, y)
    >>> svc.predict([[-1.8], [0.0], [1.8]]).tolist(), svc.predict_proba([[0.0]]).shape
    ([0, 1, 2], (1, 3))
    """

    _options_saved: ClassVar[tuple[str, ...]] = ("noise", "kernel", "ard", "inference", "decision", "restarts")
    _learned: ClassVar[tuple[str, ...]] = ("classes_", "mean_", "scale_", "n_features_in_")

    def __init__(
        self,
        noise: str = "soft_insensitive",
        *,
        kernel: Kernel = "rational_quadratic",
        ard: bool = True,
        inference: str | Method = "mean_field",
        decision: Literal["median", "mode"] = "median",
        restarts: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.noise = noise
        self.kernel = kernel
        self.ard = ard
        self.inference = inference
        self.decision = decision
        self.restarts = restarts
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array
            Labels of two or more classes, whose order is that of their values.

        Raises
        ------
        ValueError
            If an option is not allowed, the data are not finite, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            If the optimum or the chains did not converge.
        """
        self._check_options()
        inputs, labels = validated(self, X, y)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y must hold at least two classes, got one class, {self.classes_[0]!r}")
        rng = seeded(self.random_state)
        self.mean_, self.scale_ = inputs.mean(axis=0), widths(inputs)
        self._X, self._y = (inputs - self.mean_) / self.scale_, index.astype(np.float64)
        method, problem = self._method(), self._problem()
        with threads_for(len(self._y)):
            data = self._X, self._y, self._thresholds()
            self._fitted, _ = fit_problem(
                problem, method, lambda _: self._model(*data), restarts=self.restarts, rng=rng
            )
        self._describe(problem)
        if not self._fitted.converged and not method.capabilities.draws:
            message = f"{method.name} did not converge: {self._fitted.message}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _check_options(self) -> None:
        check_ordinal_options(self.noise, self.kernel)
        if self.decision not in ("median", "mode"):
            raise ValueError(f"decision must be 'median' or 'mode', got {self.decision!r}")
        if not isinstance(self.ard, bool | np.bool_):
            raise ValueError(f"ard must be True or False, got {self.ard!r}")
        if self.restarts is not None:
            check_count("restarts", self.restarts, 1)
        named = isinstance(self.inference, str) and self.inference in _METHODS
        if not named and not (can(self.inference, "runs") and getattr(self.inference, "latent", None) is not None):
            raise ValueError(f"inference must be one of {', '.join(_METHODS)} or a method, got {self.inference!r}")

    def _method(self) -> Method:
        return _METHODS[self.inference] if isinstance(self.inference, str) else self.inference

    def _thresholds(self) -> Array:
        return class_thresholds(self._y, self.classes_.size - 1)

    def _structure(self) -> tuple[str, Kernel, bool, int, int]:
        d = self._X.shape[1]
        return self.noise, self.kernel, bool(self.ard) and d > 1, d, self.classes_.size - 1

    def _model(self, X: Array, y: Array, thresholds: Array) -> Any:
        noise, kernel, ard, _, _ = self._structure()
        return standard_ordinal_model(X, y, thresholds, noise=noise, kernel=kernel, ard=ard)

    def _problem(self) -> Problem:
        """The model with the training data."""
        if callable(self.kernel):  # the function may look at the inputs
            return read_model(self._model(self._X, self._y, self._thresholds()))
        return _compiled(*self._structure()).with_data(self._X, self._y, thresholds=self._thresholds())

    def _describe(self, problem: Problem) -> None:
        """Set hyperparameters as attributes."""
        point = self._fitted.points[0]
        cutpoints = problem.cutpoints_at(point)
        assert cutpoints is not None
        self.cutpoints_ = cutpoints
        if "tails" in point:
            self.tails_ = float(point["tails"])
        if not callable(self.kernel):
            self.amplitude_ = float(point["amplitude"])
            inverse = np.broadcast_to(point["inverse_lengthscale"], (self.n_features_in_,))
            self.lengthscale_, self.relevance_ = self.scale_ / inverse, inverse**2
        self.log_evidence_, self.converged_ = self._fitted.log_evidence, self._fitted.converged

    @property
    def result_(self) -> xr.DataTree:
        """The result in the format of `bp.fit`, on the standardised inputs, with all that `from_result` needs."""
        check_is_fitted(self)
        tree = self._fitted.result(self._problem(), self._method())
        tree.attrs["recipe"] = self._recipe_text()
        return tree

    def _restore(self, result: xr.DataTree) -> None:
        data = data_of(result)
        self._X, self._y = data["inputs"], data["targets"]
        problem = self._problem()
        self._fitted = read_fitted(problem, result)
        self._describe(problem)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Predict the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.

        Returns
        -------
        (n_new, n_classes) array
        """
        check_is_fitted(self)
        inputs = (validated(self, X, reset=False) - self.mean_) / self.scale_
        problem, rng = self._problem(), np.random.default_rng(0)
        with threads_for(problem.targets.size):
            parts = self._fitted.components(problem)
            found = predictions(parts, inputs, np.empty(0), None, rng)["y_class_probability"]
        return np.ascontiguousarray(found.T)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the median class, or the most probable class.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        """
        probability = self.predict_proba(X)
        if self.decision == "mode":
            chosen = np.argmax(probability, axis=1)
        else:
            chosen = np.minimum((np.cumsum(probability, axis=1) < 0.5).sum(axis=1), self.classes_.size - 1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels


@lru_cache(maxsize=32)
def _compiled(noise: str, kernel: Kernel, ard: bool, d: int, m: int) -> Problem:
    """The problem of a structure, with data that do not matter."""
    X, y = np.tile(np.linspace(-1, 1, m + 1)[:, None], (1, d)), np.arange(m + 1.0)
    model = standard_ordinal_model(X, y, class_thresholds(y, m), noise=noise, kernel=kernel, ard=ard)
    problem = read_model(model)
    initial_point(problem)  # kept for all data
    return problem
