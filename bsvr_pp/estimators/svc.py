"""Support vector classification as a probability model, as a scikit-learn estimator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from math import fsum
from typing import Any, ClassVar, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bsvr_pp._checks import check_choice, check_count
from bsvr_pp._compiler import threads_for
from bsvr_pp.approximations import LatentPosterior, find_mode
from bsvr_pp.approximations.posterior import LatentDraws, from_sites
from bsvr_pp.classification.evidences import probability_of
from bsvr_pp.classification.exchange import Exchange
from bsvr_pp.classification.normalised_evidence import NormalisedEvidence
from bsvr_pp.estimators.base import SavedEstimator, check_flag, seeded
from bsvr_pp.estimators.standard_models import OfStandardModel, StandardModel
from bsvr_pp.estimators.training_data import checked_weights, merged, validated
from bsvr_pp.inference.approximate import Annealed
from bsvr_pp.inference.budget import NO_BLOCKS, check_memory
from bsvr_pp.inference.fitted import components
from bsvr_pp.inference.methods import to_record
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.prediction.predictive import predictions
from bsvr_pp.inference.protocol import Options, can
from bsvr_pp.inference.result import row_of
from bsvr_pp.losses.registry import label_probability
from bsvr_pp.model.priors import Kernel, check_kernel

Array = NDArray[np.float64]

_INFERENCES = ("mean_field", "annealed", "exchange")
_GROUPS = 16
_LEAST = 1e-15  # smallest probability in log odds


@dataclass(frozen=True, slots=True)
class _BinaryModel:
    """The result of a fit to labels -1 and +1, and what follows from it.

    ``point`` are the hyperparameters, medians if they were sampled, and ``dual_coef`` (n,) those of the mode of f
    there. ``posterior`` is that of f there; None if the hyperparameters were sampled.
    """

    model: StandardModel
    result: xr.DataTree
    point: dict[str, Array]
    dual_coef: Array
    posterior: LatentPosterior | LatentDraws | None

    @classmethod
    def of(cls, model: StandardModel, result: xr.DataTree) -> _BinaryModel:
        """Compute what follows from a result."""
        problem = model.problem
        drawn, latent = result["posterior"].to_dataset(), result["latent_posterior"].to_dataset()
        point = {name: np.median(drawn[name].values, axis=(0, 1)) for name in problem.hyperparameters}
        K, mean, noise = problem.at(point)
        posterior: LatentPosterior | LatentDraws | None = None
        if "annealed" in result.children:
            posterior = LatentDraws(K, result["annealed"].to_dataset()["f"].values)
        elif "dual_coef" in latent:
            posterior = from_sites(K, mean, latent["dual_coef"].values, latent["site_precision"].values)
        return cls(model, result, point, find_mode(K, problem.targets, noise).dual_coef, posterior)

    def probability(self, X: Array, kind: str) -> Array:
        """P(+1) at new inputs."""
        problem = self.model.problem
        if kind == "average" and self.posterior is None:
            return predictions(components(problem, self.result), X, np.empty(0), None)["y_probability"]
        cross = problem.cross(self.point, X)
        C = float(self.point["C"])
        if kind == "map" or self.posterior is None:
            return label_probability(cross[0] @ self.dual_coef, C)
        return probability_of(self.posterior, kind, C, cross, np.random.default_rng(0))


@dataclass(eq=False, repr=False)
class BayesianSVC(OfStandardModel, ClassifierMixin, SavedEstimator):  # type: ignore[misc]
    """Support vector classifier as a probability model, which gives the hyperparameters and the class probabilities.

    This is the normalised model of Sollich (2002). Its most probable latent function is the support vector machine. C,
    the parameters of the kernel and the offset maximise the evidence, without cross-validation. Class probabilities are
    averages over the posterior of the latent function. On standardised inputs the function is linear plus a smooth
    deviation, whose kernel has one lengthscale per input.

    Parameters
    ----------
    kernel : {"rbf", "main_effects", "rational_quadratic", "matern32", "matern52", "linear"} or callable
        Kernel of the deviation, as in `bp.classification.default_label_model`; with "linear" the function is linear. A
        function is called inside a PyMC model with the standardised inputs and returns a kernel of `pm.gp.cov` with its
        priors, to which only the offset is added. The default is not that of `BayesianSVR`, "rational_quadratic",
        because the linear part is here in the place of its long lengthscales, and labels say little about one more
        hyperparameter.
    evidence : {"conditional", "joint", "naive"}
        Evidence that is maximised, times a weak hyperprior. The naive evidence is not normalised, and makes C too
        small.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), or the probability at its mean (36) or mode (37). `predict` gives the
        most probable class, so that the two agree.
    inference : {"mean_field", "annealed", "exchange"} or Exchange
        The posterior of the function at the optimum of the hyperparameters, Gaussian or as draws; or draws of the
        hyperparameters from their posterior by the exchange algorithm (`bp.classification.Exchange`), which takes
        minutes for a hundred points.
    ard : bool
        Whether each input has its own lengthscale.
    steps : int
        Number of steps of the optimiser; 0 uses the centre of the hyperpriors.
    particles : int
        Number of particles for the normaliser, and in each of 16 groups if ``inference`` is "annealed".
    class_weight : dict, "balanced" or None
        Factors of the sample weights of each class, by label; "balanced" makes the total weights of all classes equal.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    classes_ : array
        Labels, sorted.
    C_, amplitude_, linear_, offset_ : float, or (n_classes,) array for more than two classes
        Hyperparameters: the penalty, and the variances of the deviation, of the slopes of the linear part (for one
        lengthscale) and of the offset; medians if they were sampled. A kernel function has neither amplitude_ nor
        linear_, the linear kernel has no amplitude_.
    lengthscale_ : (n_features_in_,) array, or one row per class
        Lengthscales in units of the inputs; absent for a kernel function.
    relevance_ : array
        1/lengthscale² on the standardised inputs.
    dual_coef_ : (n,) array, or one row per class
        Dual coefficients y·α of the support vector machine, where α is at most C_ times the weight of the row.
    intercept_ : float, or (n_classes,) array
        Its offset: the function is intercept_ + Σ dual_coef_[i]·k(x, x_i), with the kernel k without its offset.
    support_, support_vectors_ : array of int, array
        Training points with α > 0 (of any class), and their inputs.
    log_evidence_ : float
        Log of the evidence that was maximised, with its normaliser by annealing; summed over one-vs-rest models. NaN if
        the hyperparameters were sampled.
    log_evidence_error_ : float
        Its standard error.
    result_ : xarray.DataTree
        Result in the format of `bp.fit`, standardised; for more than two classes one for each. `from_result` loads it.

    Notes
    -----
    Time and memory grow as n³ and n²: a second or two for two hundred points, minutes for a thousand. It is practical
    to about 4,000 rows: the normaliser of its evidence does not divide into blocks as that of `BayesianSVR` does.

    With more than two classes, one model is fitted for each class against the rest, and their probabilities are divided
    by their sum.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> svc = bp.BayesianSVC(steps=20, random_state=1).fit(X, y)
    >>> svc.predict([[-1.5], [1.5]]).tolist()
    ['no', 'yes']
    >>> bool(0.4 < svc.predict_proba([[0.0]])[0, 1] < 0.6)
    True
    """

    _learned: ClassVar = ("classes_", "mean_", "scale_", "n_features_in_")

    _: KW_ONLY
    kernel: Kernel = "rbf"
    evidence: Literal["conditional", "joint", "naive"] = "conditional"
    probability: Literal["average", "mean", "map"] = "average"
    inference: Literal["mean_field", "annealed", "exchange"] | Exchange = "mean_field"
    ard: bool = True
    steps: int = 50
    particles: int = 100
    class_weight: dict[Any, float] | Literal["balanced"] | None = None
    random_state: Any = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the hyperparameters, and compute the posterior.

        Equal rows with one label are merged into one row, whose weight is the sum of theirs.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array
            Labels of two or more classes.
        sample_weight : (n,) array, optional
            Weights, >= 0: a row of weight w counts as if it were there w times, and a row of weight 0 is left out.

        Raises
        ------
        ValueError
            If an option is not allowed, the data are not finite, there is only one class, or the hyperparameters are
            sampled and a weight is not a whole number.
        """
        self._check_options()
        given, labels = validated(self, X, y)
        check_classification_targets(labels)
        rows = merged(given, labels, self._weights(labels, sample_weight))
        self.classes_, index = np.unique(rows.y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y must hold at least two classes, got one class, {self.classes_[0]!r}")
        rng = seeded(self.random_state)
        if self._sampler() is not None and rows.weight is not None:
            rows = rows.repeated()  # labels are drawn for each row
            index = np.searchsorted(self.classes_, rows.y)
        check_memory("BayesianSVC", len(rows.y), NO_BLOCKS)
        self._standardise(replace(rows, y=index))
        with threads_for(len(rows.X)):
            self._fits = [self._binary(model, rng) for model in self._models()]
        self._describe()
        return self

    def _check_options(self) -> None:
        check_choice("evidence", self.evidence, ("conditional", "joint", "naive"))
        check_choice("probability", self.probability, ("average", "mean", "map"))
        check_kernel(self.kernel)
        if callable(self.kernel) and not self.ard:
            raise ValueError("ard is an option of kernels by name, got ard=False with a kernel function")
        check_flag("ard", self.ard)
        for name, least in (("steps", 0), ("particles", 2)):
            check_count(name, getattr(self, name), least)
        method = self.inference
        named = isinstance(method, str) and method in _INFERENCES
        if not named and not (can(method, "normalises") and can(method, "draws")):
            raise ValueError(f"inference must be one of {', '.join(_INFERENCES)} or Exchange(...), got {method!r}")
        if self._sampler() is not None and self.probability != "average":
            raise ValueError(f"hyperparameters that are sampled have probability='average', got {self.probability!r}")

    def _sampler(self) -> Any:
        """The method that samples the hyperparameters; None if they are optimised."""
        if isinstance(self.inference, str):
            return Exchange() if self.inference == "exchange" else None
        return self.inference

    def _weights(self, labels: NDArray[Any], sample_weight: ArrayLike | None) -> Array:
        """Sample weights times class weights."""
        weight = checked_weights(sample_weight, len(labels))
        if self.class_weight is None:
            return weight
        classes, index = np.unique(labels, return_inverse=True)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            total = np.bincount(index, weight)
            factor = weight.sum() / (np.count_nonzero(total) * np.maximum(total, 1e-300))
        else:
            factor = compute_class_weight(self.class_weight, classes=classes, y=labels)
        return weight * factor[index]

    def _models(self) -> list[StandardModel]:
        """The models of labels -1 and +1: of the second class, or of each class against the rest."""
        positive = [1] if self.classes_.size == 2 else range(self.classes_.size)
        labels = [np.where(self._rows.y == k, 1.0, -1.0) for k in positive]
        return [StandardModel("hinge", self.kernel, bool(self.ard), replace(self._rows, y=y)) for y in labels]

    def _binary(self, model: StandardModel, rng: np.random.Generator) -> _BinaryModel:
        """Hyperparameters and posterior for labels -1 and +1."""
        problem, sampler = model.problem, self._sampler()
        method = sampler or NormalisedEvidence(self.evidence, steps=self.steps, particles=self.particles)
        found = method.run(problem, {}, Options(), rng)
        attributes = {"inference": method.name, "method": json.dumps(to_record(method)), **found.diagnosis()}
        draws: Array | None = None
        if self.inference == "annealed":
            K, mean, noise = problem.at(found.points[0])
            run = Annealed(self.particles, _GROUPS, moves=4, efficiency=0.93).posterior(
                K, problem.targets, noise, mean, rng
            )
            draws = run.f
            attributes["log_evidence"] += run.log_evidence - float(found.posteriors[0].log_evidence)
            attributes["log_evidence_error"] = float(np.hypot(attributes["log_evidence_error"], run.standard_error))
        tree = found.tree(problem, attributes, np.random.default_rng(0) if sampler is None else rng)
        if draws is not None:
            tree["annealed"] = xr.DataTree(xr.Dataset({"f": (("particle", row_of(tree)), draws)}))
        return _BinaryModel.of(model, tree)

    def _describe(self) -> None:
        """Set hyperparameters and support vectors as attributes."""

        def each(values: list[Any]) -> Any:
            return values[0] if len(values) == 1 else np.array(values)

        attributes = [fitted.result.attrs for fitted in self._fits]
        self.log_evidence_ = fsum(each.get("log_evidence", np.nan) for each in attributes)
        errors = [each.get("log_evidence_error", np.nan) for each in attributes]
        self.log_evidence_error_ = float(np.sqrt(np.sum(np.square(errors))))
        points, rows = [fitted.point for fitted in self._fits], self._rows
        for name in ("C", "amplitude", "linear", "offset"):
            if name in points[0] and not (callable(self.kernel) and name in ("amplitude", "linear")):
                setattr(self, f"{name}_", each([float(point[name]) for point in points]))
        if not callable(self.kernel):
            scales = [np.broadcast_to(np.exp(point["log_lengthscale"]), self.scale_.shape) for point in points]
            self.lengthscale_ = each([scale * self.scale_ for scale in scales])
            self.relevance_ = each([scale**-2 for scale in scales])
        self.dual_coef_ = each([rows.spread(m.dual_coef) for m in self._fits])
        self.intercept_ = each([float(m.point["offset"] * m.dual_coef.sum()) for m in self._fits])
        used = np.any([np.abs(m.dual_coef) > 1e-8 * m.point["C"] for m in self._fits], axis=0)
        self.support_ = rows.given(used)
        self.support_vectors_ = self.mean_ + self.scale_ * rows.X[rows.place[self.support_]]

    def _result(self) -> xr.DataTree:
        """The tree of the only model, or those of all classes against the rest, class_0, class_1, ...."""
        trees = [fitted.result for fitted in self._fits]
        if len(trees) == 1:
            return trees[0].copy()
        tree = xr.DataTree(children={f"class_{k}": each for k, each in enumerate(trees)})
        tree.attrs["inference"] = trees[0].attrs["inference"]
        return tree

    def _restore(self, result: xr.DataTree) -> None:
        models, trees = self._models(), [result]
        if len(models) > 1:
            trees = [result.children[f"class_{k}"] for k in range(len(models))]
        self._fits = [_BinaryModel.of(model, tree) for model, tree in zip(models, trees, strict=True)]
        self._describe()

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
        above = self._above(X)
        if self.classes_.size == 2:
            return np.hstack([1.0 - above, above])
        shares: Array = above / above.sum(axis=1, keepdims=True)
        return shares

    def decision_function(self, X: ArrayLike) -> Array:
        """Log odds of the second class, or of each class against the rest; `predict` gives the class with the largest.

        With ``probability="map"`` they are 2·C_·f where the support vector machine f is between -1 and 1.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.

        Returns
        -------
        (n_new,) array, or (n_new, n_classes) array for more than two classes
        """
        odds: Array = logit(np.clip(self._above(X), _LEAST, 1.0 - _LEAST))
        return odds[:, 0] if self.classes_.size == 2 else odds

    def _components(self) -> Iterable[Component]:
        if len(self._fits) > 1:
            raise ValueError(f"main_effects takes two classes, got {len(self.classes_)}")
        return components(self._fits[0].model.problem, self._fits[0].result)

    def _above(self, X: ArrayLike) -> Array:
        """Probability of the positive class of each binary model, (n_new, models)."""
        inputs = self._standardised(X)
        return np.stack([fitted.probability(inputs, self.probability) for fitted in self._fits], axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        """
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels
