"""Ordered classes by a support vector model with error bars, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, Self, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from bsvr_pp.classification.default_models import AMPLITUDE, OF_CLASSES
from bsvr_pp.core.arrays import Array, check_choice, warn
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.docs import shared
from bsvr_pp.estimators.base import LocalBlocks, SavedClassifier, check_model_options, seeded, warn_unless_converged
from bsvr_pp.estimators.matrices import MatrixOption
from bsvr_pp.estimators.standard_fit import OfStandardModel, StandardFit, StandardModel, factors_of, integrated
from bsvr_pp.estimators.training_data import TrainingData, Units, as_given
from bsvr_pp.estimators.validation import Columns, Labels, Learned, RandomState, classes_of, training_arrays
from bsvr_pp.inference.approximate import Laplace
from bsvr_pp.inference.prediction.component import predictions
from bsvr_pp.inference.protocol import Integrates, Method, Options
from bsvr_pp.model.priors import Kernel


@dataclass(frozen=True, kw_only=True)
class OrdinalFit(StandardFit):
    """The fit to classes in their order."""

    classes: Labels


@shared
@dataclass(eq=False, repr=False)
class BayesianOrdinalSVC(OfStandardModel, SavedClassifier, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ordered classes as intervals of a latent target: a Gaussian process plus support vector noise.

    All parameters of `bp.classification.default_ordinal_model` on standardised inputs maximise the evidence times weak
    priors, or are sampled. Class probabilities are averages over the posterior of the function.

    Parameters
    ----------
    noise : {"soft_insensitive", "absolute", "gaussian"}
        Noise of standard deviation 1: with learned tails, or Laplace or Gaussian noise.
    kernel : {"auto", "rational_quadratic", "main_effects", "rbf", "matern32", "matern52", "linear"} or callable
        As in `bp.classification.default_ordinal_model`; also "precomputed" or `bp.PairwiseKernel`, as in `BayesianSVR`.
        "auto" is "rational_quadratic" on a learned scale of the inputs (docs/defaults.md).
    ard : bool
        Whether each input has its own lengthscale.
    inference : {"mean_field", "laplace", "nuts"} or a method
        Mean field, Laplace's approximation with local curvature, or `bp.NUTS` with f integrated out by mean field.
    decision : {"median", "mode"}
        Output of `predict`. The median class minimises the mean absolute error of the class number; the most probable
        class (the mode) minimises the error rate.
    restarts : int, optional
        Number of starts of the optimiser, as in `bp.fit`.
    blocks : LocalBlocks, int, "auto" or None
        Local blocks for many rows, as in `BayesianSVR`; predictions use the block of the new row unless a number of
        neighbours is given.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    classes_ : array
        Sorted labels; this is their order.
    warping_ : DataFrame
        The learned scale of each input in words, its share w and the power of its transform.
    cutpoints_ : (n_classes - 1,) array
        Cut points, in standard deviations of the noise; posterior means if they were sampled.
    tails_ : float
        Shape of the noise: 1 is Laplace noise, and 0.02 Gaussian noise; absent for noise without a tube.
    amplitude_ : float
        Standard deviation of the latent function, in the same unit; absent for a kernel function.
    lengthscale_ : (d,) array
        Lengthscales in units of the inputs on their scale; absent for a kernel function.
    relevance_ : (d,) array or Series
        1/lengthscale² on the standardised inputs.
    blocks_ : Blocks or None
        Blocks of the rows.
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
    >>> svc = bp.BayesianOrdinalSVC(kernel="rbf", restarts=1).fit(X, y)
    >>> svc.predict([[-1.8], [0.0], [1.8]]).tolist(), svc.predict_proba([[0.0]]).shape
    ([0, 1, 2], (1, 3))
    """

    _sparse: ClassVar = False
    _learned: ClassVar = ("classes_", "mean_", "scale_", "n_features_in_")
    _of_predictions: ClassVar = ("blocks", "decision")

    noise: str = "soft_insensitive"
    _: KW_ONLY
    kernel: Kernel | MatrixOption | Literal["auto"] = "auto"
    ard: bool = True
    inference: str | Method = "mean_field"
    decision: Literal["median", "mode"] = "median"
    restarts: int | None = None
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    random_state: RandomState = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Optimise or sample the hyperparameters, and compute the posterior of the latent function.

        <inputs>
        y : (n,) array
            Labels of two or more classes, which are ordered by their values. Numbers give any order.

        Raises
        ------
        ValueError
            If an option is not allowed, the data are not finite, or there is only one class. Also if y is an ordered
            Categorical with another order than the sorted one.

        <not_converged>
        UserWarning
            If rows are fitted in blocks by default, or classes are words, whose order may differ from the sorted one.
        """
        method, local = self._check_options(), self._local()
        inputs, labels, columns = training_arrays(self, X, y)
        classes = _sorted_classes(y, labels)
        rng, rows = seeded(self.random_state), as_given(inputs, np.searchsorted(classes, labels).astype(np.float64))
        units, options = Units.of(rows, columns.tied), Options(self.restarts, progressbar=local.progressbar)
        rows, size = local.divided(rows.in_units(units), method, classes=True, undivided=columns.undivided)
        model = self._model(rows, classes, columns)
        with threads_for(len(labels)), local.threads():
            fit = OrdinalFit.of_rows(model, units, rows, method, options, rng, size=size, classes=classes)
            if isinstance(method, Integrates):
                (fit,) = integrated([fit], method)
            warn_unless_converged(fit.found, fit.method)
            return self._keep(fit, columns)

    def _check_options(self) -> Method:
        check_choice("noise of classes", self.noise, OF_CLASSES)
        self._check_predictions()
        return check_model_options(self, {"laplace": Laplace(curvature="local")})

    def _check_predictions(self) -> None:
        super()._check_predictions()
        check_choice("decision", self.decision, ("median", "mode"))

    def _model(self, rows: TrainingData, classes: Labels, columns: Columns) -> StandardModel:
        m, automatic = classes.size - 1, self.kernel == "auto"
        kernel = columns.kernel(cast(Kernel, "rational_quadratic" if automatic else self.kernel), AMPLITUDE)
        model = StandardModel(self.noise, kernel, bool(self.ard), n_cutpoints=m, tied=columns.tied)
        return model.suited(rows, automatic=automatic)

    def _read(self, rows: TrainingData, learned: Learned, columns: Columns, result: xr.DataTree) -> OrdinalFit:
        units, classes = Units(learned["mean_"], learned["scale_"]), learned["classes_"]
        model = self._model(rows, classes, columns)
        return OrdinalFit.of_result(model, units, rows, self._check_options(), result, classes=classes)

    def _attributes(self, fit: OrdinalFit, columns: Columns) -> Learned:
        point, units = fit.point, fit.units
        found: Learned = {"classes_": fit.classes, "mean_": units.mean, "scale_": units.scale, "blocks_": fit.cut}
        found |= {"cutpoints_": fit.problem.cutpoints_at(point)}
        found |= {"log_evidence_": fit.fitted.at_optimum, "converged_": fit.fitted.converged}
        if "tails" in point:
            found["tails_"] = float(point["tails"])
        found |= factors_of(fit)
        if not callable(fit.model.kernel):
            inverse = columns.of_each(point["inverse_lengthscale"])
            found |= {"amplitude_": float(point["amplitude"]), "lengthscale_": units.scale / inverse}
            found["relevance_"] = columns.named(inverse**2)
        return found

    def _probabilities(self, X: ArrayLike, diagonal: ArrayLike | None = None, *, chosen: bool = False) -> Array:
        # The median of one symmetric distribution is its mean, and needs no variance.
        moments = not chosen or self.decision == "mode" or len(self._checked().found.posteriors) != 1
        inputs, local = self._new_rows(X, diagonal, moments=moments), self._local()
        with threads_for(len(self._fit.rows.y)), local.threads():
            parts = self._fit.components(local.neighbours_of(None))  # as for labels
            found = predictions(parts, inputs, np.empty(0), None)["y_class_probability"]
        return np.ascontiguousarray(found.T)

    def predict(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Labels:
        """Predict the median or the most probable class at inputs (n_new, d); ``diagonal`` as in `predict_proba`."""
        probability = self._probabilities(X, diagonal, chosen=True)
        if self.decision == "mode":
            chosen = np.argmax(probability, axis=1)
        else:
            chosen = np.minimum((np.cumsum(probability, axis=1) < 0.5).sum(axis=1), self._fit.classes.size - 1)
        return np.asarray(self._fit.classes[chosen])


def _sorted_classes(y: ArrayLike, labels: Labels) -> Labels:
    """Return the classes in the order of their values, which must agree with any order of the data."""
    found = classes_of(labels)
    column = y.iloc[:, 0] if isinstance(y, pd.DataFrame) else y
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    classes, arrow = found.tolist(), getattr(dtype, "pyarrow_dtype", dtype)
    if getattr(arrow, "ordered", False) or type(dtype).__name__ == "Enum":  # of pandas, Arrow or Polars
        known = getattr(dtype, "categories", None)
        order = ["the order of a dictionary"] if known is None else [label for label in known if label in classes]
        if order != classes:
            raise ValueError(
                f"y must have categories in sorted order, got {' < '.join(map(str, order))}: give their numbers, "
                "pd.Series(y).cat.codes"
            )
    elif any(isinstance(label, str) for label in classes):
        letters = all(len(label) == 1 for label in classes)
        if not letters or max(np.diff([ord(label) for label in classes])) > 2:  # A, B, D are sorted as meant
            warn(f"the order of the classes is that of their names, {' < '.join(classes)}: numbers give another")
    return found
