"""Support vector regression with error bars and without grid search, as a scikit-learn estimator."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._checks import check_varies
from bsvr_pp._compiler import threads_for
from bsvr_pp._device import Device, device_for
from bsvr_pp.estimators.fitted import optimized, reading, restored, sampled
from bsvr_pp.estimators.from_results import from_recipe
from bsvr_pp.estimators.many_rows import (
    check_blocks,
    fitted_in_blocks,
    joblib_threads,
    rows_for_blocks,
    size_of_blocks,
    with_noise_scales,
)
from bsvr_pp.estimators.options import check_regression, seeded, widths
from bsvr_pp.estimators.outliers import kept_rows, listed
from bsvr_pp.estimators.recipe import Recipe
from bsvr_pp.estimators.support_vectors import SupportVectors
from bsvr_pp.estimators.target_predictions import TargetPredictions
from bsvr_pp.estimators.weighted_rows import Rows, as_given, merged, of_intervals
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.at_size import AtSize
from bsvr_pp.inference.fit import ConvergenceWarning
from bsvr_pp.inference.methods import to_record
from bsvr_pp.inference.nuts import NUTS
from bsvr_pp.inference.protocol import Method
from bsvr_pp.inference.result import blocks_of, data_of
from bsvr_pp.losses.noise import unit_noise
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.priors import BETA, Kernel, location_and_scale
from bsvr_pp.model.problem import Problem

__all__ = ["METHODS", "BayesianSVR"]

Array = NDArray[np.float64]
Inference = str | Method

METHODS: dict[str, Method] = {
    "mean_field": MeanField(),
    "laplace": Laplace(),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}
_OF_BLOCKS = ("blocks", "nearest", "neighbours", "noise_scales")
_OF_TARGETS = ("outliers", "log_targets")
_SAVED = ("noise", "kernel", "beta", "quantile", "ard", "restarts", "committee", *_OF_TARGETS, *_OF_BLOCKS)
_LEARNED = ("mean_", "scale_", "location_", "unit_", "beta_", "n_features_in_", "outliers_")


class BayesianSVR(SupportVectors, TargetPredictions, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector regression as a probability model, which gives the hyperparameters and the error bars.

    The model is a Gaussian process with support vector noise (Chu, Keerthi & Ong 2004) on standardised inputs and
    targets. The support vector machine is its most probable latent function. C, epsilon and the parameters of the
    kernel maximise the evidence times weak priors (`bp.default_priors`), or are sampled. It replaces `sklearn.svm.SVR`
    in a pipeline.

    Parameters
    ----------
    noise : {"soft_insensitive", "epsilon_insensitive", "huber", "absolute", "gaussian", "pinball"}
        A loss of residuals of `bsvr_pp.losses.LOSSES`. With "pinball" the latent function, and `predict`, is a
        quantile of the target.
    kernel : {"rational_quadratic", "rbf", "matern32", "matern52", "linear"} or callable
        The rational quadratic kernel is a mixture of Gaussian kernels ("rbf") of several lengthscales. A function is
        called inside a PyMC model with the standardised inputs and returns a kernel of `pm.gp.cov` with its priors; a
        constant kernel is added.
    beta : float or "auto"
        Smooth fraction; only for the soft insensitive loss. "auto" is 0.8.
    quantile : float
        Level of the quantile; only for pinball noise.
    ard : bool
        Whether each input has its own lengthscale.
    inference : {"mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation, or `bp.NUTS` with f integrated out by mean field; or a method with options.
        Mean field gives better predictions than Laplace on most data (the benchmark "quality"). Laplace needs a
        curvature, which losses with kinks have not ("epsilon_insensitive", "absolute", "pinball", beta = 0).
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
    blocks : "auto", int or None
        Number of rows of a local block, between which the latent function is independent a priori: "auto" is a dense
        fit up to 4000 rows and blocks of 1000 rows above; None is always a dense fit, as is that of intervals. The
        hyperparameters of blocks are found on a random subset and on neighbourhoods of random rows
        (`bsvr_pp.inference.at_size`).
    nearest : int
        Number of blocks that are combined in a prediction, as in `bp.predict`, if neighbours are None or the
        hyperparameters are sampled; 1 is the own block.
    neighbours : "auto", int or None
        Number of nearest rows on which each prediction has a fit of its own, as in `bp.predict`, instead of blocks:
        "auto" is 64 if there are blocks; with None blocks are combined.
    noise_scales : bool
        Whether the noise of predictions is a mixture of several scales, chosen by the nearest rows, where one is not
        enough (`bsvr_pp.inference.noise_scales`): with blocks, and in dense fits of at least 200 rows by mean field.
    n_jobs : int, optional
        Number of threads that solve blocks; -1 is one for each processor. The results do not depend on it.
    device : {"cpu", "gpu", "auto", "jax"}
        Where mean field is computed, experimental (not measured on a GPU): "cpu" by the compiled code, "gpu" on a GPU,
        "auto" on a GPU if JAX has one, "jax" on the default device of JAX, whatever it is. Everything else is computed
        on the processor.
    progressbar : bool
        Whether to show progress.
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
    support_vectors_ : (n_support_, d) array
        Their inputs.
    dual_coef_ : (n,) array
        Its dual coefficients α - α*, whose absolute values are at most C_ times the sample weight, in 1/units of the
        target.
    intercept_ : float
        Its value where the kernel k, without its constant and in squared units of the target, vanishes: the function is
        intercept_ + Σ dual_coef_[i]·k(x, x_i).
    blocks_ : Blocks or None
        Blocks of the rows that are kept; None for a dense fit. ``result_.attrs["at_size"]`` says how their
        hyperparameters were found.
    noise_scales_ : NoiseScales or None
        Factors of the width of the noise, their weights, and how far neighbours share them; None for one noise.
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
    Time grows as n³ and memory as n² for a dense fit, and both as n for blocks. With blocks `sample_y` draws jointly
    only inputs of one block; the mode behind ``dual_coef_`` is that of the own block. The attributes of the support
    vector machine (``support_`` to ``intercept_``) are computed when one of them is first read.

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
        blocks: int | Literal["auto"] | None = "auto",
        nearest: int = 3,
        neighbours: int | Literal["auto"] | None = "auto",
        noise_scales: bool = True,
        n_jobs: int | None = None,
        device: Literal["cpu", "gpu", "auto", "jax"] = "cpu",
        progressbar: bool = False,
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
        self.blocks = blocks
        self.nearest = nearest
        self.neighbours = neighbours
        self.noise_scales = noise_scales
        self.n_jobs = n_jobs
        self.device = device
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        Gross errors among the targets are set aside first, unless ``outliers="keep"``. Equal rows are merged into one
        row, whose weight is the sum of theirs.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array, (n, 2) array or structured array
            Targets; or lower and upper ends of the intervals in which they are known to lie, equal for an exact target
            and one of them infinite for a censored one; or the fields event and time (`bsvr_pp.estimators.censored`).
        sample_weight : (n,) array, optional
            Weights of exact targets, >= 0: a row of weight w has the likelihood p(y|f)^w, as if it were there w times,
            and a row of weight 0 is left out.

        Raises
        ------
        ValueError
            If an option is out of range or would be ignored, or the data are not finite, constant or lost in rounding.

        Warns
        -----
        ConvergenceWarning
            If the optimum or the chains did not converge.
        UserWarning
            If rows are set aside, or rows are fitted in blocks without being asked.
        """
        check_regression(self, METHODS)
        check_blocks(self.blocks, self.nearest, self.neighbours, self.n_jobs)
        inputs, targets, ends = self._targets_of(X, y)
        rows = (
            merged(inputs, targets, sample_weight)
            if ends is None
            else of_intervals(inputs, targets, ends, sample_weight)
        )
        check_varies("y", rows.y)
        rng = seeded(self.random_state)
        self.beta_ = BETA if self.beta == "auto" else float(self.beta)
        method = self._method()
        device = device_for(self.device, method.latent or method, ends is None)
        latent: Method = method.latent or method if method.capabilities.draws else method

        def given_others(kept: NDArray[np.bool_]) -> tuple[Array, Array]:
            self._fit_rows(rows.taken(kept), latent, device, rng)
            return self._given_others(rows.X, kept)

        rows = rows_for_blocks(rows, inputs, targets, self.blocks, bool(self.committee), sample_weight)
        kept = np.ones(len(rows.y), dtype=bool)
        self._at_size: AtSize | None = None
        set_aside = self.outliers == "set_aside" and ends is None
        with threads_for(len(rows.y)), joblib_threads(self.n_jobs):
            if set_aside:
                mean, width = np.average(rows.X, axis=0, weights=rows.weight), widths(rows.X, rows.weight)
                kept = kept_rows(given_others, (rows.X - mean) / width, rows.y, rows.weight)
            if not set_aside or method.capabilities.draws:
                self._fit_rows(rows.taken(kept), method, device, rng)
            if self.noise_scales and ends is None:
                given = self._problem(), self._fitted, method, self.neighbours, bool(self.progressbar)
                self._fitted = with_noise_scales(*given)
            self.outliers_ = np.flatnonzero((rows.place >= 0) & (self._rows.place < 0))
            self._describe()
        if self.outliers_.size:
            warnings.warn(
                f"gross errors among {len(inputs)} targets, which no noise of the model explains, are set aside: "
                f'{listed(self.outliers_)} (outliers="keep" keeps them)',
                UserWarning,
                stacklevel=2,
            )
        if not self._fitted.converged and not method.capabilities.draws:
            message = f"{method.name} did not converge: {self._fitted.message}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _fit_rows(self, rows: Rows, method: Method, device: Device, rng: np.random.Generator) -> None:
        """Standardise and fit."""
        self.mean_, self.scale_ = np.average(rows.X, axis=0, weights=rows.weight), widths(rows.X, rows.weight)
        self.location_, self.unit_ = location_and_scale(rows.y, rows.weight)
        self._rows = rows.standardised(self.mean_, self.scale_, self.location_, self.unit_)
        most, self.blocks_ = size_of_blocks(self.blocks, rows), None
        if most is not None and method.latent is not None:
            options: dict[str, Any] = {"restarts": self.restarts, "rng": rng, "progressbar": bool(self.progressbar)}
            given = self._recipe(), self._data()[:-1]

            def make(blocks: Blocks | None) -> Problem:
                return replace(given[0].problem(*given[1], blocks), device=device)

            self._at_size, self._fitted = fitted_in_blocks(make, method.latent, most, self._at_size, **options)
            self.blocks_ = self._at_size.blocks
        problem = replace(self._problem(), device=device)
        if method.capabilities.draws:
            self._fitted = sampled(self._recipe().model(*self._data()), problem, method, rng)
        elif most is None:
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

    def _method(self) -> Method:
        if not isinstance(self.inference, str):
            return self.inference
        if self.inference == "laplace" and not unit_noise(self.noise, beta=self.beta_).smooth:
            raise ValueError(
                f"inference='laplace' has no curvature to go by where noise={self.noise!r} has kinks: use 'mean_field'"
            )
        return METHODS[self.inference]

    def _problem(self) -> Problem:
        """The model with the training data."""
        return self._recipe().problem(*self._data())

    def _data(self) -> tuple[Array, Array, float, Array | None, Array | None, Blocks | None]:
        return self._rows.X, self._rows.y, self.beta_, self._rows.weight, self._rows.ends, self.blocks_

    def _recipe(self) -> Recipe:
        d = self.n_features_in_
        quantile = float(self.quantile) if self.noise == "pinball" else 0.5
        return Recipe(self.noise, self.kernel, bool(self.ard) and d > 1, d, quantile)

    def _describe(self) -> None:
        """Set the attributes: hyperparameters in the units of the data."""
        point, self._machine = self._fitted.points[0], None
        inverse = None if callable(self.kernel) else point["inverse_lengthscale"]
        self._set_hyperparameters(self._problem().noise_at(point), inverse)
        self.committee_, self.converged_ = self._fitted.weights, self._fitted.converged
        self.noise_scales_ = self._fitted.scales
        self.log_evidence_ = self._fitted.log_evidence - self._rows.n_exact * float(np.log(self.unit_))

    @property
    def result_(self) -> xr.DataTree:
        """The result in the format of `bp.fit`, on the standardised scale, with everything that `from_result` needs."""
        check_is_fitted(self)
        problem = self._problem()
        tree = self._fitted.result(problem, self._method())
        learned = {name: np.asarray(getattr(self, name)).tolist() for name in _LEARNED}
        names = getattr(self, "feature_names_in_", None)
        recipe = self._options() | {"learned": learned, "names": None if names is None else list(names)}
        tree.attrs["recipe"] = json.dumps(recipe)
        if self._rows.weight is not None:
            given = {name: ("given", getattr(self._rows, name)) for name in ("place", "share")}
            tree["weighted_rows"] = xr.DataTree(xr.Dataset({"weight": ("obs", self._rows.weight), **given}))
        return tree

    def _options(self) -> dict[str, Any]:
        """The options as plain data, from which `from_options` makes the estimator; None for a kernel function."""
        method = self.inference if isinstance(self.inference, str) else to_record(self.inference)
        options = {name: getattr(self, name) for name in _SAVED} if not callable(self.kernel) else None
        return {"options": options, "inference": method}

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
        self = from_recipe(cls, result.attrs["recipe"])
        self.outliers_ = self.outliers_.astype(np.intp)
        data, known = data_of(result), result["constant_data"].to_dataset()
        self._rows = as_given(data["inputs"], data["targets"], self.outliers_)
        if "lower" in known:
            self._rows = replace(self._rows, ends=np.stack([known["lower"], known["upper"]], axis=1))
        if "weighted_rows" in result.children:
            saved = result["weighted_rows"].to_dataset()
            named = {name: saved[name].values for name in ("weight", "place", "share")}
            self._rows = replace(self._rows, **named)
        self.blocks_ = blocks_of(result)
        problem = self._problem()
        self._fitted = restored(problem, result)
        self._describe()
        return self
