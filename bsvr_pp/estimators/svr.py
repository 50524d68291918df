"""Support vector regression with error bars and without grid search, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, Self, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags

from bsvr_pp.core.approximations import Mode
from bsvr_pp.core.arrays import (
    Array,
    check_choice,
    check_flag,
    check_order,
    check_share,
    check_size,
    checked_weights,
    is_number,
    numbers,
)
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses.noise import unit_noise
from bsvr_pp.core.losses.registry import NOISES
from bsvr_pp.estimators.base import (
    FitsOfTargets,
    LocalBlocks,
    SavedEstimator,
    check_model_options,
    seeded,
    warn_unless_converged,
)
from bsvr_pp.estimators.matrices import MatrixOption
from bsvr_pp.estimators.regression_fit import RegressionFit, RegressionSpec, fit_targets
from bsvr_pp.estimators.standard_fit import StandardModel, factors_of
from bsvr_pp.estimators.target_predictions import TargetPredictions, hyperparameters
from bsvr_pp.estimators.training_data import TrainingData, Units
from bsvr_pp.estimators.validation import (
    Columns,
    Directions,
    Learned,
    Monotone,
    RandomState,
    new_inputs,
    regression_data,
    targets_of,
)
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.prediction.distribution import LOGARITHM, UNSCALED
from bsvr_pp.inference.protocol import Method, Options, Samples
from bsvr_pp.inference.result import hyperparameters_of
from bsvr_pp.methods import method_of
from bsvr_pp.model.inputs import CONSTANTS, Warping
from bsvr_pp.model.priors import BETA, BIAS, Kernel, check_unused


@shared
@dataclass(eq=False, repr=False)
class BayesianSVR(TargetPredictions, SavedEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector regression as a probability model, with learned hyperparameters and error bars.

    The model is a Gaussian process with support vector noise (Chu, Keerthi & Ong 2004) on standardised inputs and
    targets. The support vector machine is its most probable latent function. C, epsilon and the parameters of the
    kernel maximise the evidence times weak priors (`bp.default_priors`), or are sampled. It replaces `sklearn.svm.SVR`
    in a pipeline. docs/defaults.md explains the defaults.

    Parameters
    ----------
    noise : {"auto", "soft_insensitive", "epsilon_insensitive", "huber", "absolute", "gaussian", "pinball"}
        A loss of residuals of `bsvr_pp.losses.LOSSES`. With "pinball" the latent function and `predict` are a quantile
        of the target. "auto" is "soft_insensitive"; or "gaussian", with ``beta="auto"`` and targets of 2 or 3 values.
    kernel : {"auto", "main_effects", "rational_quadratic", "rbf", "matern32", "matern52", "linear"} or callable
        "auto" is "main_effects" from 200 rows, and "rational_quadratic" with scales of the inputs below
        (`bp.default_model` has none). A function is called inside a PyMC model with the standardised inputs and returns
        a kernel of `pm.gp.cov` with priors; a constant kernel is added. With "precomputed" X is the matrix (n, n) of a
        kernel, or (n, n, q) of q kernels, and (n_new, n) in predictions. With `bp.PairwiseKernel` X is a list of
        objects. Sparse X is not centred, and has one lengthscale. It takes the kernels "linear", "rbf",
        "rational_quadratic" and "auto", which here is "rational_quadratic".
    beta : float or "auto"
        Smooth fraction; only for the soft insensitive loss. "auto" is 0.8.
    quantile : float
        Level of the quantile; only for pinball noise.
    ard : bool or "auto"
        Whether each input has its own lengthscale. "auto" is True; with fewer than four rows for each input of a dense
        fit rows that are left out decide, and learn scales of the noise (docs/defaults.md).
    warping : bool
        Whether "auto" and "main_effects" learn a scale for each input: as given, like a logarithm, or between. Skewed
        targets are on a root scale where this has more evidence (docs/defaults.md).
    inference : {"auto", "mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation, or `bp.NUTS` with f integrated out by mean field; or a method with options.
        "auto" is mean field, and up to 300 rows of a dense fit `bp.Integrated`. Its predictions average over points of
        the hyperparameters; the attributes describe the optimum. Laplace needs a curvature, which losses with kinks
        lack ("epsilon_insensitive", "absolute", "pinball", beta = 0).
    monotone : dict or sequence, optional
        Inputs in which the mean of f rises, 1, or falls, -1, by the names of numeric columns, or by numbers that are no
        names. Or a value for each column, 0 for no direction, as ``monotonic_cst`` of scikit-learn
        (docs/how-to/monotone-effects.md). In dense fits without `bp.NUTS`, with a named kernel other than "linear".
    restarts : int, optional
        Number of starts of the optimiser, as in `bp.fit`: by default 2, or 5 for Laplace.
    outliers : {"set_aside", "keep"}
        Whether rows are set aside, with a warning, if their targets are gross errors or have far wider noise than most
        (`bsvr_pp.estimators.outliers`). The latter needs ``noise_scales`` of a dense fit and another noise than
        "pinball", and exact targets. All rows are kept if a third of the targets have one value.
    log_targets : bool
        Whether log y is modelled, for positive targets such as times. `predict` is then exp of the mean of log y: the
        median, if log y is symmetric about its mean. The evidence and the parameters of the noise refer to log y.
    intervals : bool
        Whether y has two columns, lower and upper ends of intervals.
    shared : bool
        Whether several targets share the hyperparameters of the kernel (docs/how-to/several-targets.md). Only in dense
        fits without `bp.NUTS`.
    blocks : "auto", int, `bp.LocalBlocks` or None
        Local blocks of rows, between which f is independent a priori. "auto" is a dense fit up to 2000 rows, and blocks
        of 1000 above. A number is the size of a block; None is always a dense fit. `bp.LocalBlocks` has all options.
    noise_scales : bool
        Whether the noise of predictions is a mixture of several scales, weighted by the nearest rows, if one is not
        enough. It applies with blocks, in dense mean-field fits of at least 200 rows, and if a third of the targets
        have one value (docs/defaults.md).
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    kernel_, noise_ : str
        The kernel and the noise used; "function" for a function.
    factors_, shares_ : (q,) array
        For kernel matrices, the factor of each matrix in k, and its share of the prior variance.
    target_scale_ : (0,) or (3,) array
        Middle, end and offset of roots of the targets. Function and noise are on this scale, whose unit is that of the
        target at the middle (docs/defaults.md).
    levels_ : (q,) array of int
        Inputs with few values, which are also categories in a kernel with main effects.
    warping_ : DataFrame
        For each input with a learned scale: the scale in words, the share of the transform, and its power.
    C_, epsilon_, beta_ : float
        Parameters that the noise has, in units of the target: C_ in 1/unit (for Gaussian noise 1/unit²), epsilon_ in
        units. Posterior means, if they were sampled.
    noise_variance_ : float
        Variance of the noise, in squared units of the target.
    encoding_ : Encoding or None
        How the columns of a DataFrame become the d inputs, whose names are ``encoding_.names``.
    lengthscale_ : (d,) array
        Lengthscales in units of the inputs; absent for a kernel function. With main effects they describe only the
        interactions; `bp.effect` shows what each input does.
    relevance_ : (d,) array or Series
        1/lengthscale² on the standardised inputs, with any names of X. The words of a column share one value.
    log_evidence_ : float
        Log evidence at the optimum, of the original targets (with the Jacobian of their standardisation); NaN if
        sampled. With ``monotone`` it is given the slopes that were found, and cannot compare directions. Blocks are
        solved when it is first read.
    support_, n_support_ : array of int, int
        Training points that are support vectors of the most probable latent function, and their number.
    support_vectors_ : (n_support_, d) array
        Their inputs.
    dual_coef_ : (n,) array
        Its dual coefficients α - α*, whose absolute values are at most C_ times the sample weight, in 1/units of the
        target.
    intercept_ : float
        Its value where the kernel k vanishes (without its constant, in squared units of the target): the function is
        intercept_ + Σ dual_coef_[i]·k(x, x_i).
    blocks_ : Blocks or None
        Blocks of the rows that are kept; None for a dense fit.
    neighbours_ : int or None
        Number of nearest rows on which each prediction is fitted; None for a dense fit, or predictions from blocks.
    noise_scales_ : NoiseScales
        Factors of the width of the noise, their weights, and how far neighbours share them.
    outliers_ : array of int
        Rows that were set aside; their dual coefficients are 0.
    converged_ : bool
        Whether the optimum or the chains converged, and any solved blocks.
    target_names_, estimators_ : list
        For several targets, their names (y0, y1, ... for an array) and an estimator for each, which has the other
        attributes.
    result_ : xarray.DataTree
        Result of standardised targets, and their log densities, in the format of `bp.fit`; its attribute ``inference``
        is the method. `from_result` loads it.

    Notes
    -----
    For a dense fit time grows as n³ and memory as n², practical to about 2000 rows; for blocks both grow as n. With
    blocks `sample_y` draws jointly only inputs of one block, and ``dual_coef_`` describes the mode of each block. The
    attributes of the support vector machine (``support_`` to ``intercept_``) are computed when one of them is first
    read.

    <curve>
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
        "levels_",
        "target_scale_",
        "n_features_in_",
        "outliers_",
        "neighbours_",
    )
    _of_predictions: ClassVar = ("blocks", "noise_scales")

    noise: str = "auto"
    _: KW_ONLY
    kernel: Kernel | MatrixOption | Literal["auto"] = "auto"
    beta: float | Literal["auto"] = "auto"
    quantile: float = 0.5
    ard: bool | Literal["auto"] = "auto"
    warping: bool = True
    monotone: Monotone = None
    inference: str | Method = "auto"
    restarts: int | None = None
    outliers: Literal["set_aside", "keep"] = "set_aside"
    log_targets: bool = False
    intervals: bool = False
    shared: bool = False
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    noise_scales: bool = True
    random_state: RandomState = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        Gross errors among the targets are set aside first, unless ``outliers="keep"``. Equal rows are merged into one
        row, with the sum of their weights.

        <inputs>
        y : (n,) array, (n, k) array or DataFrame, (n, 2) array or structured array
            Targets; or a column for each of k targets, NaN where a row lacks it (docs/how-to/several-targets.md). With
            ``intervals=True`` the ends of intervals that contain the targets: equal for an exact target, one end
            infinite for a censored one. Or the fields event and time: whether the event was observed, and its time or
            the time of censoring.
        sample_weight : (n,) array, optional
            Weights of exact targets, >= 0: a row of weight w has the likelihood p(y|f)^w of w copies, and a row of
            weight 0 is left out. The sum of the weights is the effective number of rows.

        Raises
        ------
        ValueError
            If an option is out of range or would be ignored, or the data are not finite, constant or lost in rounding.

        <not_converged>
        UserWarning
            If rows are set aside, or are fitted in blocks by default, or the weights sum to less than a fifth of the
            rows. Also if the targets have two or three values, a third of them have one value and predictions miss
            their mean, or two targets may be ends.
        """
        spec = self._check_options()
        data, columns = regression_data(self, X, y, sample_weight, spec.target_scale or UNSCALED)
        if spec.shared and columns.targets is None:
            raise ValueError("shared=True takes several targets, y (n, k), got one: use shared=False")
        fits = fit_targets(data, spec, columns, seeded(self.random_state))
        names = columns.targets
        return self._keep(fits[0] if names is None else FitsOfTargets(names, tuple(fits)), columns)

    def add(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows that arrive after `fit`, at its hyperparameters, standardisation and scales of the noise.

        The result equals a solve with all rows. docs/how-to/arrivals.md says when a new search is due.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Raises
        ------
        ValueError
            If the hyperparameters were sampled, or the rows are of another kind than in `fit`.

        Warns
        -----
        ConvergenceWarning
            If the solve did not converge.

        <curve>
        >>> svr = bp.BayesianSVR(restarts=1, random_state=0).fit(X, y)
        >>> before = svr.predict_f([[3.5]])[1]
        >>> bool(svr.add([[3.4]], [-0.2]).predict_f([[3.5]])[1] < before)
        True
        """
        fit = self._alone("rows are added to the fit")
        if fit.found.sampled:
            raise ValueError("rows are added to posteriors of f, and NUTS has draws: use inference='auto'")
        if self._columns.matrix is not None:
            words = self._columns.words
            raise ValueError(f"rows are added to inputs, and new rows change the columns of a {words}: fit again")
        check_order(X, y=y, sample_weight=sample_weight)
        inputs, targets = new_inputs(self, X), targets_of(y, allowed=True)
        weight, values = checked_weights(sample_weight, len(inputs)), numbers("y", targets.y, (len(inputs),))
        check_size("y", values)
        new = targets.rows(inputs, values, weight).on_scale(fit.units.target_scale)
        if new.exact != fit.rows.exact:
            kind, got = ("exact targets", "intervals") if fit.rows.exact else ("intervals", "exact targets")
            raise ValueError(f"y must be {kind}, as for fit, got {got}")
        with self._local().threads():
            fit = fit.with_rows(new)
        warn_unless_converged(fit.found, fit.method)
        return self._keep(fit, self._columns, self._given)

    def _check_predictions(self) -> None:
        super()._check_predictions()
        check_flag("noise_scales", self.noise_scales)

    def _check_options(self) -> RegressionSpec:
        check_choice("noise", self.noise, ("auto", *NOISES))
        noise = "soft_insensitive" if self.noise == "auto" else self.noise
        automatic = isinstance(self.beta, str) and self.beta == "auto"
        if not (automatic or (is_number(self.beta) and 0 <= float(self.beta) <= 1)):
            raise ValueError(f"beta must be 'auto' or lie between 0 and 1, got {self.beta!r}")
        check_share("quantile", self.quantile)
        if not isinstance(self.outliers, str) or self.outliers not in ("set_aside", "keep"):
            raise ValueError(f"outliers must be 'set_aside' or 'keep', got {self.outliers!r}")
        self._check_predictions()
        for name in ("log_targets", "intervals", "warping", "shared"):
            check_flag(name, getattr(self, name))
        if isinstance(self.inference, Samples) and self.inference.latent is None:
            raise ValueError("inference must integrate the latent function out: NUTS(latent=...), got NUTS()")
        method = check_model_options(self, {"auto": MeanField()})
        check_unused(noise, beta=self.beta, quantile=self.quantile)
        local, beta = self._local(), BETA if automatic else float(self.beta)
        kernel = cast(Kernel, "rational_quadratic" if self.kernel == "auto" else self.kernel)
        if self.inference == "laplace" and not unit_noise(noise, beta=beta).smooth:
            raise ValueError(
                f"inference='laplace' has no curvature to go by where noise={noise!r} has kinks: use 'mean_field'"
            )
        monotone, scaled = Directions.of(self.monotone), self.kernel in ("auto", "main_effects")
        if monotone and isinstance(method, Samples):
            raise ValueError(f"monotone takes posteriors of f, and {method.name} has draws: use inference='auto'")
        if self.shared and isinstance(method, Samples):
            raise ValueError(f"shared=True takes one optimum, and {method.name} has draws: use inference='auto'")
        return RegressionSpec(
            StandardModel(noise, kernel, bool(self.ard), beta, float(self.quantile)),
            self.kernel == "auto",
            method,
            Options(self.restarts, progressbar=local.progressbar),
            local,
            self.outliers == "set_aside",
            bool(self.noise_scales),
            LOGARITHM if self.log_targets else None if self.warping and scaled else UNSCALED,
            bool(self.warping),
            self.inference == "auto",
            monotone,
            bool(self.shared),
            () if isinstance(method, Samples) or not self.ard else (True, False) if self.ard == "auto" else (True,),
            chooses_noise=self.noise == "auto" and automatic,
        )

    def _read(self, rows: TrainingData, learned: Learned, columns: Columns, result: xr.DataTree) -> RegressionFit:
        spec = self._check_options()
        mean, scale, location, unit = (learned[name] for name in ("mean_", "scale_", "location_", "unit_"))
        target_scale = spec.read_scale("target_scale_ of result", learned["target_scale_"])
        units = Units(mean, scale, location, unit, target_scale)
        if not set(levels := tuple(learned["levels_"])) <= set(range(rows.X.shape[1])):
            raise ValueError(f"levels_ of result must be numbers of its inputs, got {list(levels)}")
        data = result["constant_data"].to_dataset()
        known = {"levels": tuple(map(int, levels)), "beta": learned["beta_"]}
        known["pairs"] = "effect_pairs" in hyperparameters_of(result)
        if self.ard == "auto" and "inverse_lengthscale" in hyperparameters_of(result):
            known["ard"] = result["posterior"]["inverse_lengthscale"].ndim > 2  # chain, draw, lengthscale
        if CONSTANTS in data:
            constants = data[CONSTANTS].values
            if constants.dtype == bool:
                raise ValueError(f"{CONSTANTS} of result must be an array of numbers, got bool")
            known["warping"] = Warping.of_array(numbers(f"{CONSTANTS} of result", constants, ("q", 7)))
        known["kernel"] = columns.kernel(learned["kernel_"])
        if spec.chooses_noise and result.attrs.get("loss") == "gaussian":
            known["noise"] = "gaussian"
        model = replace(spec.model, tied=columns.tied, **known)
        more = {"neighbours": learned["neighbours_"], "outliers": learned["outliers_"].astype(np.intp)}
        if (slopes := spec.slopes(columns)) is not None:
            more["slopes"] = slopes.read(result["slopes"].to_dataset()) if "slopes" in result.children else slopes
        return RegressionFit.of_result(model, units, rows, method_of(result), result, **more)

    def _attributes(self, fit: RegressionFit, columns: Columns) -> Learned:
        kernel = fit.model.kernel
        inverse = None if callable(kernel) else fit.point["inverse_lengthscale"]
        return hyperparameters(fit.problem.noise_at(fit.point), inverse, fit.units, columns) | {
            "beta_": fit.model.beta,
            "kernel_": columns.name_of(kernel),
            "noise_": fit.model.noise,
            "levels_": np.array(fit.model.levels, dtype=np.intp),
            "outliers_": fit.outliers,
            "neighbours_": fit.neighbours,
            "blocks_": fit.cut,
            "noise_scales_": fit.found.scales,
            **factors_of(fit),
        }

    @property
    def estimators_(self) -> list[Self]:
        """For several targets, an estimator of each, as if fitted to it alone."""
        fit = self._checked()
        if not isinstance(fit, FitsOfTargets):
            raise AttributeError("estimators_ are of several targets, and the fit has one")
        return self._each(fit, shared=False)

    @property
    def converged_(self) -> bool:
        """Whether the search for the hyperparameters converged, and the solves of all blocks if they were needed."""
        return bool(self._alone("converged_ is", AttributeError).converged)

    @property
    def log_evidence_(self) -> float:
        """Log evidence of the targets at the optimum of the hyperparameters; reading it solves blocks."""
        fit = self._alone("log_evidence_ is", AttributeError)
        with self._local().threads():
            return fit.log_evidence

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the rows, (n,)."""
        fit, machine = self._machine()
        return np.asarray(fit.rows.spread(machine.dual_coef) / fit.units.unit)

    @property
    def intercept_(self) -> float:
        """Value where the kernel vanishes."""
        fit, machine = self._machine()
        return float(fit.units.location + fit.units.unit * BIAS * machine.dual_coef.sum())

    @property
    def support_(self) -> NDArray[np.intp]:
        """Rows that are support vectors."""
        fit, machine = self._machine()
        return np.asarray(fit.rows.given(machine.support > 0))

    @property
    def n_support_(self) -> int:
        """Their number."""
        return int(self.support_.size)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn: several targets are possible, unless two columns are ends of intervals."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = not self.intervals
        return tags

    def _machine(self) -> tuple[RegressionFit, Mode]:
        fit = self._alone("a support vector machine is", AttributeError)
        if fit.slopes is not None:
            raise AttributeError(
                "a function that is monotone by slopes is no sum of kernels of rows: fit without monotone"
            )
        with self._local().threads():
            return fit, fit.machine
