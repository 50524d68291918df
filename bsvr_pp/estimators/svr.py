"""Support vector regression with error bars and without grid search, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._arrays import Array
from bsvr_pp._checks import check_choice, check_share, is_number
from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import find_mode
from bsvr_pp.estimators.base import (
    LocalBlocks,
    SavedEstimator,
    blocks_from,
    check_flag,
    check_model_options,
    seeded,
    warn_unless_converged,
)
from bsvr_pp.estimators.outliers import ScaledFit, determining_rows, kept_rows, listed
from bsvr_pp.estimators.standard_models import StandardModel, fit_problem
from bsvr_pp.estimators.target_predictions import TargetPredictions
from bsvr_pp.estimators.training_data import (
    TrainingData,
    arriving_data,
    mean_and_width,
    regression_data,
    tied_inputs,
)
from bsvr_pp.inference.approximate import Committee, Laplace, MeanField
from bsvr_pp.inference.arrivals import with_rows
from bsvr_pp.inference.prediction.neighbours import FarRows, choose_neighbours, scales_of_posterior
from bsvr_pp.inference.protocol import Method, Options, Samples
from bsvr_pp.inference.sampling.nuts import NUTS
from bsvr_pp.inference.search.at_size import AtSize
from bsvr_pp.losses import NOISES
from bsvr_pp.losses.noise import unit_noise
from bsvr_pp.model.blocks import Blocks
from bsvr_pp.model.priors import BETA, BIAS, Kernel, check_unused, location_and_scale, mostly_equal

_EFFECTS = 200  # number of rows from which the kernel has main effects,
_SCALES = 200  # and a dense fit several scales of the noise, of which fewer tell little

METHODS: dict[str, Method] = {
    "mean_field": MeanField(),
    "laplace": Laplace(),
    "nuts": NUTS(latent=MeanField(), draws=250, tune=500),
}


class _Machine(NamedTuple):
    """The support vector machine of the most probable latent function."""

    dual_coef: Array
    intercept: float
    support: NDArray[np.intp]


@dataclass(eq=False, repr=False)
class BayesianSVR(TargetPredictions, RegressorMixin, SavedEstimator):  # type: ignore[misc]
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
    kernel : {"auto", "main_effects", "rational_quadratic", "rbf", "matern32", "matern52", "linear"} or callable
        "auto" is "main_effects" for dense fits of at least 200 rows, and "rational_quadratic" for others. The rational
        quadratic kernel is a mixture of Gaussian kernels ("rbf") of several lengthscales, and "main_effects" adds a
        function of each input alone (`bp.default_model`). A function is called inside a PyMC model with the
        standardised inputs and returns a kernel of `pm.gp.cov` with its priors; a constant kernel is added.
    beta : float or "auto"
        Smooth fraction; only for the soft insensitive loss. "auto" is 0.8.
    quantile : float
        Level of the quantile; only for pinball noise.
    ard : bool
        Whether each input has its own lengthscale.
    inference : {"mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation, or `bp.NUTS` with f integrated out by mean field; or a method with options.
        `bp.Committee` averages predictions over all optima by evidence.
        Mean field gives better predictions than Laplace on most data (the benchmark "quality"). Laplace needs a
        curvature, which losses with kinks have not ("epsilon_insensitive", "absolute", "pinball", beta = 0).
    restarts : int, optional
        Number of starts of the optimiser, as in `bp.fit`: by default 2, or 5 for Laplace and for a committee.
    outliers : {"set_aside", "keep"}
        Whether rows are set aside, and named in a warning, whose targets are gross errors, which no noise of the model
        explains and with which their neighbours do not agree, or have far wider noise than most: these do not determine
        f, if all rows are then more probable given the others, and count for the scales of the noise
        (`bsvr_pp.estimators.outliers`). The latter needs ``noise_scales`` of a dense fit and another noise than
        "pinball". Intervals are kept, and all rows where a third of the targets have one value.
    log_targets : bool
        Whether the model is one of log y, for positive targets such as times. `predict` is then exp of the mean of
        log y: the median, if log y is symmetric about its mean. The evidence and the parameters of the noise are those
        of log y.
    intervals : bool
        Whether y has two columns, lower and upper ends of intervals.
    blocks : "auto", int, `bp.LocalBlocks` or None
        Local blocks of rows, between which the latent function is independent a priori: "auto" is a dense fit up to
        3000 rows and blocks of 1000 rows above, a number is the size of a block; None is always a dense fit, as is that
        of intervals. The hyperparameters of blocks are found on a random subset and on neighbourhoods of random rows
        (`bsvr_pp.inference.search.at_size`). `bp.LocalBlocks` has the options of many rows, such as the number of
        threads.
    noise_scales : bool
        Whether the noise of predictions is a mixture of several scales, chosen by the nearest rows, where one is not
        enough (`bsvr_pp.inference.prediction.neighbours`): with blocks, in dense fits of at least 200 rows by mean
        field, and where a third of the targets have one value, which one noise around f would take for their mean.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    kernel_ : str
        The kernel that was used; "function" for a function.
    C_, epsilon_, beta_ : float
        Parameters of the noise, as far as the noise has them, in units of the target: C_ in 1/unit (for Gaussian noise
        1/unit²), epsilon_ in units. Posterior means, if they were sampled.
    noise_variance_ : float
        Variance of the noise, in squared units of the target.
    encoding_ : Encoding or None
        How the columns of a DataFrame become the d inputs, whose names are ``encoding_.names``.
    lengthscale_ : (d,) array
        Lengthscales in units of the inputs; absent for a kernel function. Of a kernel with main effects they are those
        of the interactions, and `main_effects` says what each input does.
    relevance_ : (d,) array or Series
        1/lengthscale² on the standardised inputs, with their names if X had names. The words of a column have one
        value.
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
    neighbours_ : int or None
        Number of nearest rows on which each prediction has a fit of its own; None for a dense fit, or the own block.
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
    Time grows as n³ and memory as n² for a dense fit, practical to about 4000 rows, and both as n for blocks. With
    blocks `sample_y` draws jointly only inputs of one block; the mode behind ``dual_coef_`` is that of the own block.
    The attributes of the support vector machine (``support_`` to ``intercept_``) are computed when one of them is first
    read.

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

    _learned: ClassVar = (
        "mean_",
        "scale_",
        "location_",
        "unit_",
        "beta_",
        "kernel_",
        "n_features_in_",
        "outliers_",
        "neighbours_",
    )
    _methods: ClassVar = METHODS

    noise: str = "soft_insensitive"
    _: KW_ONLY
    kernel: Kernel | Literal["auto"] = "auto"
    beta: float | Literal["auto"] = "auto"
    quantile: float = 0.5
    ard: bool = True
    inference: str | Method = "mean_field"
    restarts: int | None = None
    outliers: Literal["set_aside", "keep"] = "set_aside"
    log_targets: bool = False
    intervals: bool = False
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    noise_scales: bool = True
    random_state: Any = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        Gross errors among the targets are set aside first, unless ``outliers="keep"``. Equal rows are merged into one
        row, whose weight is the sum of theirs.

        Parameters
        ----------
        X : (n, d) array or DataFrame
            Inputs; the columns of a DataFrame are encoded, as far as they are not numbers.
        y : (n,) array, (n, 2) array or structured array
            Targets; or with ``intervals=True`` the ends of the intervals in which they are known to lie, equal for an
            exact target and one of them infinite for a censored one; or the fields event and time: whether the event
            was observed, and its time or the time of censoring.
        sample_weight : (n,) array, optional
            Weights of exact targets, >= 0: a row of weight w has the likelihood p(y|f)^w, as if it were there w times,
            and a row of weight 0 is left out. The sum of the weights is the number of rows that the data are worth.

        Raises
        ------
        ValueError
            If an option is out of range or would be ignored, or the data are not finite, constant or lost in rounding.

        Warns
        -----
        ConvergenceWarning
            If the optimum or the chains did not converge.
        UserWarning
            If rows are set aside, the weights make the data worth less than a fifth of the rows, rows are fitted in
            blocks without being asked, or a third of the targets have one value and predictions miss their mean.
        """
        self._check_options()
        rows = regression_data(self, X, y, sample_weight, log_targets=bool(self.log_targets))
        rng, method, exact = seeded(self.random_state), self._method(), rows.ends is None
        in_blocks = self._rows_of_blocks(rows) is not None
        if in_blocks:
            if isinstance(method, Committee):
                raise ValueError(
                    f"a committee averages over optima of a dense fit, and {len(rows.y)} rows are fitted in blocks"
                )
            self._local().check(len(rows.y), weighted=sample_weight is not None and rows.weight is not None)
            rows = rows if rows.weight is None else rows.unmerged()  # blocks have no weights
        elif self.kernel == "auto" and len(rows.y) >= _EFFECTS:
            self.kernel_ = "main_effects"
        draws, set_aside = isinstance(method, Samples), self.outliers == "set_aside" and exact
        first: Method = method.latent or method if draws else method
        counts = self._local().counts() if in_blocks and not draws else ()
        self.neighbours_ = next(iter(counts), None)
        self._at_size: AtSize | None = None
        options = Options(self.restarts, progressbar=self._local().progressbar)

        def leave_one_out(kept: NDArray[np.bool_]) -> tuple[Array, Array]:
            nonlocal options
            self._fit_rows(rows.taken(kept), first, options, rng)
            if not kept.all():  # gross errors move the optimum far; later rounds change few rows
                options = options._replace(start=self._fitted.points[0])
            return self._leave_one_out(rows.X, kept)

        # f follows a value that many targets have, and one noise around it, but a Gaussian one, misses their mean
        equal = exact and self.noise not in ("gaussian", "pinball") and mostly_equal(rows.y, rows.weight)
        enough = exact and isinstance(method, MeanField) and len(rows.y) >= _SCALES
        kept = np.ones(len(rows.y), dtype=bool)
        with threads_for(len(rows.y)), self._local().threads():
            if set_aside:
                mean, width = mean_and_width(rows.X, rows.weight, tied_inputs(self))
                kept = kept_rows(leave_one_out, (rows.X - mean) / width, rows.y, rows.weight)
            if not set_aside or draws:
                self._fit_rows(rows.taken(kept), method, options, rng)
            if counts and (self.noise_scales or len(counts) > 1):
                self._choose_neighbours(counts)
            elif self.noise_scales and (enough or (equal and len(self._fitted.posteriors) == 1)):

                def scaled(near: NDArray[np.bool_]) -> ScaledFit:
                    if not (near == kept).all():
                        self._fit_rows(rows.taken(near), method, options, rng)
                    return self._learn_scales(rows, near, kept & ~near)

                if set_aside and self.noise != "pinball":  # a quantile is that of all targets
                    kept, best = determining_rows(scaled, kept, rows.y, rows.times)
                    self.__dict__.update(best.state)
                else:
                    scaled(kept)
            self.outliers_ = rows.given(~kept)
            self._describe()
        if self.outliers_.size:
            warnings.warn(
                f"gross errors among {rows.place.size} targets, or targets with far wider noise than most, are set "
                f'aside: {listed(self.outliers_)} (outliers="keep" keeps them)',
                UserWarning,
                stacklevel=2,
            )
        if equal and self._fitted.scales is None:
            warnings.warn(
                "a third of the targets or more have one value, which f follows, and the noise is as wide below f as "
                "above, so that predictions may be far from the mean of such targets: noise='gaussian' fits the mean",
                UserWarning,
                stacklevel=2,
            )
        warn_unless_converged(self._fitted, method)
        return self

    def add(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows that arrive after `fit`, at its hyperparameters, standardisation and scales of the noise.

        The result is that of a solve with all rows, which starts at the present one. With blocks a row joins the block
        whose region holds it. No row is set aside, and `add` does not judge whether a new search is due.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Raises
        ------
        ValueError
            If there are several points of the hyperparameters, or the rows are not of the kind of those of `fit`.

        Warns
        -----
        ConvergenceWarning
            If the solve did not converge.

        Examples
        --------
        >>> import numpy as np, bsvr_pp as bp
        >>> X = np.linspace(-3, 3, 30)[:, None]
        >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * np.cos(9 * X[:, 0]))
        >>> before = svr.predict_f([[3.5]])[1]
        >>> bool(svr.add([[3.4]], [-0.2]).predict_f([[3.5]])[1] < before)
        True
        """
        check_is_fitted(self)
        if len(self._fitted.posteriors) != 1:
            raise ValueError("rows are added at one point of the hyperparameters, and a committee or NUTS has many")
        known, blocks, exact = self._rows, self._model.blocks, self._rows.ends is None
        new = arriving_data(self, X, y, sample_weight, exact=exact, log_targets=bool(self.log_targets))
        if blocks is not None:
            if sample_weight is not None:
                raise ValueError("sample_weight is for a dense fit, and the rows are in blocks: use blocks=None")
            new = new.unmerged()
        new = self._in_standard_units(new, self.location_, self.unit_)
        rows, place = known.joined(new, merge=blocks is None and exact)
        if blocks is not None:
            blocks = replace(blocks, label=np.append(blocks.label, blocks.assign(new.X)))
        model, method = replace(self._model, rows=rows, blocks=blocks), self._method()
        with threads_for(len(rows.y)), self._local().threads():
            fitted = with_rows(self._fitted, self._problem(), model.problem, place, method.latent)
        self._model, self._rows, self._fitted = model, rows, fitted
        self._describe()
        warn_unless_converged(self._fitted, method)
        return self

    def _check_options(self) -> None:
        check_choice("noise", self.noise, NOISES)
        if not (self.beta == "auto" or (is_number(self.beta) and 0 <= float(self.beta) <= 1)):
            raise ValueError(f"beta must be 'auto' or lie between 0 and 1, got {self.beta!r}")
        check_share("quantile", self.quantile)
        if self.outliers not in ("set_aside", "keep"):
            raise ValueError(f"outliers must be 'set_aside' or 'keep', got {self.outliers!r}")
        for name in ("log_targets", "noise_scales", "intervals"):
            check_flag(name, getattr(self, name))
        if isinstance(self.inference, Samples) and self.inference.latent is None:
            raise ValueError("inference must integrate the latent function out: NUTS(latent=...), got NUTS()")
        check_model_options(self, METHODS, "auto")
        check_unused(self.noise, self.kernel, beta=self.beta, quantile=self.quantile, ard=bool(self.ard))
        blocks_from(self.blocks)
        self.beta_ = BETA if self.beta == "auto" else float(self.beta)
        named = "function" if callable(self.kernel) else self.kernel
        self.kernel_ = "rational_quadratic" if named == "auto" else named
        if self.inference == "laplace" and not unit_noise(self.noise, beta=self.beta_).smooth:
            raise ValueError(
                f"inference='laplace' has no curvature to go by where noise={self.noise!r} has kinks: use 'mean_field'"
            )

    def _rows_of_blocks(self, rows: TrainingData) -> int | None:
        """Largest number of rows of a block; None for a dense fit, as is that of intervals."""
        local = self._local()
        return local.rows if rows.ends is None and local.divides(len(rows.y)) else None

    def _fit_rows(self, rows: TrainingData, method: Method, options: Options, rng: np.random.Generator) -> None:
        """Standardise and fit."""
        self.location_, self.unit_ = location_and_scale(rows.y, rows.weight)
        self._standardise(rows, self.location_, self.unit_)
        self._model = self._standard_model(self._rows)
        self._fitted, self._at_size = fit_problem(
            self._problem(),
            method,
            self._model.make,
            rows=self._rows_of_blocks(rows),
            known=self._at_size,
            options=options,
            rng=rng,
        )
        if self._at_size is not None:
            self._model = replace(self._model, blocks=self._at_size.blocks)

    def _leave_one_out(self, inputs: Array, kept: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Mean and standard deviation of each target given the others; those set aside are given the kept rows."""
        posterior, noise = self._fitted.posteriors[0], self._problem().noise_at(self._fitted.points[0])
        mean, deviation = np.empty(len(inputs)), np.empty(len(inputs))
        mean[kept] = self.location_ + self.unit_ * (posterior.cavity_mean + noise.mean)
        deviation[kept] = self.unit_ * np.sqrt(posterior.cavity_variance + noise.variance)
        if not kept.all():
            found = self._at((inputs[~kept] - self.mean_) / self.scale_)
            mean[~kept], deviation[~kept] = found.mean(), found.std()
        return mean, deviation

    def _choose_neighbours(self, counts: tuple[int, ...]) -> None:
        """Choose the number of nearest rows, and learn the scales of the noise of fits on them."""
        problem, point, rng = self._problem(), self._fitted.points[0], np.random.default_rng(0)
        self.neighbours_, scales = choose_neighbours(problem, point, counts, rng, self._local().progressbar)
        self._fitted = self._fitted.with_scales(problem, scales if self.noise_scales else None)

    def _learn_scales(self, rows: TrainingData, near: NDArray[np.bool_], far: NDArray[np.bool_]) -> ScaledFit:
        """Learn the scales of the noise of the fit of some rows from these, and from others that it does not have."""
        problem, left = self._problem(), self._in_standard_units(rows.taken(far), self.location_, self.unit_)
        others = FarRows(left.X, left.y, left.times)
        found = scales_of_posterior(problem, self._fitted.points[0], self._fitted.posteriors[0], others)
        self._fitted = self._fitted.with_scales(problem, None if found.scales.one else found.scales)
        log_density, precision = np.full((2, len(rows.y)), np.nan)
        for values, of_rows in ((log_density, found.log_density - np.log(self.unit_)), (precision, found.precision)):
            values[near], values[far] = np.split(of_rows, [np.count_nonzero(near)])
        return ScaledFit(log_density, precision, dict(self.__dict__))

    def _standard_model(self, rows: TrainingData, blocks: Blocks | None = None) -> StandardModel:
        """The model of standardised rows."""
        quantile = float(self.quantile) if self.noise == "pinball" else 0.5
        kernel: Any = self.kernel if callable(self.kernel) else self.kernel_
        return StandardModel(
            self.noise, kernel, bool(self.ard), rows, self.beta_, quantile, blocks=blocks, tied=tied_inputs(self)
        )

    def _describe(self) -> None:
        """Set the attributes: hyperparameters in the units of the data."""
        point = self._fitted.points[0]
        self._machine: _Machine | None = None
        self.outliers_ = self.outliers_.astype(np.intp)
        inverse = None if callable(self.kernel) else point["inverse_lengthscale"]
        self._set_hyperparameters(self._problem().noise_at(point), inverse)
        self.blocks_, self.noise_scales_ = self._model.blocks, self._fitted.scales
        self.committee_, self.converged_ = self._fitted.weights, self._fitted.converged
        self.log_evidence_ = self._fitted.log_evidence - self._rows.n_exact * float(np.log(self.unit_))

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the rows, (n,)."""
        return self._support_vector_machine().dual_coef

    @property
    def intercept_(self) -> float:
        """Value where the kernel vanishes."""
        return self._support_vector_machine().intercept

    @property
    def support_(self) -> NDArray[np.intp]:
        """Rows that are support vectors."""
        return self._support_vector_machine().support

    @property
    def support_vectors_(self) -> Array:
        """Their inputs."""
        vectors: Array = self.mean_ + self.scale_ * self._rows.X[self._rows.place[self.support_]]
        return vectors

    @property
    def n_support_(self) -> int:
        """Their number."""
        return int(self.support_.size)

    def _support_vector_machine(self) -> _Machine:
        check_is_fitted(self)
        if self._machine is None:
            problem, rows = self._problem(), self._rows
            with threads_for(problem.targets.size), self._local().threads():
                K, mean, noise = problem.at(self._fitted.points[0])
                mode = find_mode(K, problem.targets, noise, mean=mean)
            dual_coef = np.where(mode.support > 0, mode.dual_coef, 0.0)
            intercept = self.location_ + self.unit_ * BIAS * float(dual_coef.sum())
            support = rows.given(mode.support > 0)
            self._machine = _Machine(rows.spread(dual_coef) / self.unit_, intercept, support)
        return self._machine
