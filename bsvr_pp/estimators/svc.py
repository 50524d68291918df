"""Support vector classification as a probability model, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import combinations
from math import fsum
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from scipy.stats import entropy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight

from bsvr_pp.classification.default_models import DEVIATION
from bsvr_pp.classification.normalised_evidence import NormalisedEvidence
from bsvr_pp.core.approximations import find_mode
from bsvr_pp.core.arrays import Array, check_choice, check_count, checked_weights, is_number
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import LOSSES, NoiseModel
from bsvr_pp.core.losses.factors import tilted_moments
from bsvr_pp.core.losses.registry import label_log_odds, label_probability
from bsvr_pp.estimators.base import LocalBlocks, SavedClassifier, check_prior, seeded, warn_unless_converged
from bsvr_pp.estimators.matrices import MatrixOption
from bsvr_pp.estimators.standard_fit import OfStandardModel, StandardFit, StandardModel, factors_of
from bsvr_pp.estimators.training_data import TrainingData, Units, merge_rows
from bsvr_pp.estimators.validation import (
    Columns,
    Labels,
    Learned,
    RandomState,
    classes_of,
    in_products,
    training_arrays,
)
from bsvr_pp.inference.approximate import MeanField
from bsvr_pp.inference.budget import NO_BLOCKS, check_memory
from bsvr_pp.inference.prediction.component import Component, Member, component, predictions
from bsvr_pp.inference.protocol import Options
from bsvr_pp.methods import method_of
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks
from bsvr_pp.model.priors import Kernel
from bsvr_pp.model.problem import Point

_NONE = 1e-12  # weight of a row without labels
_STARTS = 3  # of a repeated search after one without success
_ALIKE = 3  # classes whose hyperparameters start the next search: half the time, less than a nat of evidence
_LEAST = 1e-15  # smallest probability in log odds
_FIRST, _BOUNDS = (0.5, 0.02, 0.5, 0.1), ((0.0, 1.0), (0.0, 0.5), (0.0, 1.0), (0.0, 1.0))  # of a coupling
_PRIOR = 1.0  # slope of the log prior of its powers: no set is then more than 2 % worse (docs/defaults.md)
_PAIRED = 6  # largest number of classes whose pairs may have models too,
_LOSS, _GAIN = 50.0, 6.0  # if the log loss of all left-out labels is larger, and if pairs make it so much smaller
_RIDGE = 1e-9  # of quadratic forms, and smallest probability


@dataclass(frozen=True)
class BinaryFit(StandardFit):
    """A fit to labels -1 and +1, and what follows from it."""

    @cached_property
    def noise(self) -> NoiseModel:
        """The label noise, with a learned or given penalty."""
        return self.problem.noise_at(self.point)

    @property
    def learned(self) -> bool:
        """Whether the evidence is above the evidence of a constant probability."""
        constant = -entropy([self.rows.weight[self.rows.y == label].sum() for label in (-1.0, 1.0)])
        return self.fitted.converged and self.fitted.log_evidence > constant * np.sum(self.rows.weight)

    @property
    def C(self) -> float:
        """The penalty."""
        return float(self.noise.parameters["C"])

    @cached_property
    def dual_coef(self) -> Array:
        """Dual coefficients (n,) of the support vector machine, which is the mode of f under the hinge."""
        K, mean, noise = self.problem.at(self.point)
        hinge = NoiseModel(LOSSES["hinge"], {"C": self.C}, noise.weight)
        return find_mode(K, self.problem.targets, hinge, mean=mean).dual_coef

    def attributes(self, columns: Columns) -> Learned:
        """Return the hyperparameters."""
        found: Learned = {"C_": self.C, "lapse_": float(label_probability(-np.inf, **self.noise.parameters))}
        found |= {"blocks_": self.cut, "offset_": float(self.point["offset"])} | factors_of(self)
        if not callable(self.model.kernel):
            found |= {f"{name}_": float(self.point[name]) for name in ("amplitude", "linear") if name in self.point}
            scale = columns.of_each(np.exp(self.point["log_lengthscale"]))
            found |= {"lengthscale_": scale * columns.width(self.units), "relevance_": scale**-2}
        return found

    @property
    def left_out(self) -> Array:
        """P(+1) of one of the labels of each row, of its weight at most 1, given all other labels."""
        (posterior,), y = self.fitted.posteriors, self.rows.y
        rest = np.maximum(self.rows.weight - 1.0, _NONE)
        residual, variance = self.noise.reference(y) - posterior.cavity_mean, posterior.cavity_variance
        masses = [tilted_moments(residual, variance, self.noise.weighted(w).sites(y))[0] for w in (rest + 1.0, rest)]
        own = np.exp(np.minimum(masses[0] - masses[1], 0.0))
        return np.where(y > 0.0, own, 1.0 - own)

    def log_odds(self, X: Array, kind: str, neighbours: int | None) -> Array:
        """Return the log odds of +1 at new inputs."""
        if kind == "average":
            probability = predictions(self.components(neighbours), X, np.empty(0), None)["y_probability"]
            return np.asarray(logit(np.clip(probability, _LEAST, 1.0 - _LEAST)))
        if kind == "map":
            part = component(self.problem, Member(self.point, self.dual_coef, np.zeros_like(self.dual_coef)))
            return label_log_odds(part.moments(X)[0], self.C)
        (part,) = self.components(neighbours)
        return label_log_odds(part.moments(X)[0], **self.noise.parameters)


class Coupling(NamedTuple):
    """Probabilities of classes from those of each class against the rest: in the ratio p_k/(1 - p_k)^power.

    They are between the sum and the odds, and mixed with equal probabilities by the ``rate`` of random labels. If pairs
    of classes have models too, their probabilities to the power 1 + ``sharpness`` enter with a ``share`` of the logs.
    The numbers maximise the leave-one-out likelihood of the labels (docs/classification.md, how probabilities are
    joined). Two classes are combined in the same way.
    """

    power: float = 0.0
    rate: float = 0.0
    share: float = 0.0
    sharpness: float = 0.0

    @classmethod
    def of_left_out(cls, P: Array, y: NDArray[np.intp], weight: Array, pairs: Array | None = None) -> Self:
        """Find the coupling of least loss for P and ``pairs`` as in `join`, leave-one-out."""
        first, bounds = (given if pairs is not None else given[:2] for given in (_FIRST, _BOUNDS))

        def loss(values: Array) -> float:
            return cls(*values).loss(P, y, weight, pairs) / weight.sum()

        return cls(*minimize(loss, first, method="Nelder-Mead", bounds=bounds, options={"xatol": 1e-3}).x.tolist())

    def loss(self, P: Array, y: NDArray[np.intp], weight: Array, pairs: Array | None = None) -> float:
        """Return minus the log posterior density of the coupling by labels y (n,), which are numbers of classes."""
        joined = self.join(P, pairs)[np.arange(len(y)), y]
        return _PRIOR * (self.power + self.sharpness) - float(weight @ np.log(joined))

    def join(self, P: Array, pairs: Array | None = None) -> Array:
        """Return probabilities (m, k) of classes from one-against-the-rest ones, or (m, 1) of the second of two.

        ``pairs`` are probabilities (m, k) by models of two classes each.
        """
        p = np.clip(np.hstack([1.0 - P, P]) if P.shape[1] == 1 else P, _LEAST, 1.0 - _LEAST)
        logs = np.log(p) - self.power * np.log1p(-p)
        if pairs is not None:
            logs = (1.0 - self.share) * logs + self.share * (1.0 + self.sharpness) * np.log(pairs)
        return np.asarray((1.0 - self.rate) * softmax(logs, axis=1) + self.rate / p.shape[1])


def join_pairs(R: Array) -> Array:
    """Return probabilities (m, k) from those (m, k, k) of class i if it is i or j (Wu, Lin & Weng 2004, (21))."""
    k = R.shape[-1]
    r = np.where(np.eye(k), 0.0, R)
    Q = (np.sum(r**2, axis=1) + _RIDGE)[:, None] * np.eye(k) - r * np.swapaxes(r, 1, 2)
    p = np.maximum(np.linalg.solve(Q, np.ones((len(R), k, 1)))[..., 0], _RIDGE)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _of_class(k: int) -> str:
    return f"class_{k}"


def _of_pair(pair: tuple[int, int]) -> str:
    return f"pair_{pair[0]}_{pair[1]}"


def _rows_of_pair(rows: TrainingData, pair: tuple[int, int]) -> TrainingData:
    """Return the rows of two classes with labels -1 and +1."""
    some = rows.taken(np.isin(rows.y, pair))
    return replace(some, y=np.where(some.y == pair[1], 1.0, -1.0))


@dataclass(frozen=True)
class LabelFit:
    """A binary model of the second class, or one of each class against the rest; the labels of rows are numbers.

    Where they predict better there are also models of each pair of classes, whose label +1 is the second one.
    """

    classes: Labels
    units: Units
    rows: TrainingData
    binaries: list[BinaryFit]
    pairs: Sequence[BinaryFit] = ()

    def result(self) -> xr.DataTree:
        """Return the tree of the only model; or of each class against the rest, class_0, and of each pair, pair_0_1."""
        if len(self.binaries) == 1:
            return self.binaries[0].result()
        named = {_of_class(k): each.result() for k, each in enumerate(self.binaries)}
        if self.pairs:
            named |= {_of_pair(pair): each.result() for pair, each in zip(self.of_two, self.pairs, strict=True)}
        tree = xr.DataTree(children=named)
        tree.attrs["inference"] = named[_of_class(0)].attrs["inference"]
        return tree

    def function(self) -> Iterable[Component]:
        """Return the fitted function of two classes, for effects."""
        if len(self.binaries) > 1:
            raise ValueError(f"effects are of two classes, got {self.classes.size}")
        return self.binaries[0].function()

    @property
    def of_two(self) -> list[tuple[int, int]]:
        """The pairs of classes."""
        return list(combinations(range(self.classes.size), 2))

    @cached_property
    def coupling(self) -> Coupling:
        """The coupling of the class probabilities; their sum if labels are normalised together."""
        known = self.binaries[0].model.noise == "known_label"
        return Coupling.of_left_out(*self.left_out) if known else Coupling()

    @cached_property
    def left_out(self) -> tuple[Array, NDArray[np.intp], Array, Array | None]:
        """Probabilities of the classes of rows that are left out, their labels and weights, and those by pairs."""
        P, labels = np.stack([each.left_out for each in self.binaries], axis=1), self.rows.y.astype(np.intp)
        return P, labels, self.rows.weight, self.by_pairs(self.rows.X, labels)

    def by_pairs(self, X: Array, left_out: NDArray[np.intp] | None = None) -> Array | None:
        """Return probabilities of classes by models of pairs, if there are; at training rows without their own labels.

        These are given as ``left_out``.
        """
        if not self.pairs:
            return None
        R = np.zeros((len(X), self.classes.size, self.classes.size))
        for (i, j), each in zip(self.of_two, self.pairs, strict=True):
            p = expit(each.log_odds(X, "average", None))
            if left_out is not None:
                p[(left_out == i) | (left_out == j)] = each.left_out
            R[:, i, j], R[:, j, i] = 1.0 - p, p
        return join_pairs(R)

    def of_each(self, values: Iterable[Any]) -> Any:
        """Return the value of the only model, or a value for each class."""
        found = list(values)
        if len(found) == 1:
            return found[0]
        return found if found[0] is None or isinstance(found[0], Blocks) else np.array(found)


@shared
@dataclass(eq=False, repr=False)
class BayesianSVC(OfStandardModel, SavedClassifier, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classifier as a probability model, with learned hyperparameters and class probabilities.

    Labels have the hinge's probabilities, normalised at each point (`bp.classification.KnownLabel`). All parameters of
    `bp.classification.default_label_model` on standardised inputs maximise the evidence times weak hyperpriors, without
    cross-validation. docs/how-to/classification.md compares options and attributes with `sklearn.svm.SVC`.

    Parameters
    ----------
    kernel : {"auto", "rbf", "main_effects", "rational_quadratic", "matern32", "matern52", "linear"} or callable
        As in `bp.classification.default_label_model`; also "precomputed" or `bp.PairwiseKernel`, to which the offset is
        added. "auto" is "rbf" and, with the pointwise evidence, a learned scale of the inputs (docs/defaults.md). X may
        be sparse for "auto", "linear", "rbf" and "rational_quadratic" (see `BayesianSVR`).
    C : float, optional
        Penalty of the hinge; by default it is learned.
    evidence : {"pointwise", "conditional", "joint", "naive"}
        The labels are normalised at each point, or all together (`bp.classification.NormalisedEvidence`). The naive
        evidence is not normalised, and makes C too small.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), or the probability at its mean (36), or by the machine (37). `predict`
        gives the most probable class.
    ard : bool
        Whether each input has its own lengthscale.
    steps : int
        Steps of the optimiser of Sollich's evidences; 0 uses the centre of the hyperpriors.
    class_weight : dict, "balanced" or None
        Factors of the sample weights of each class, by label; "balanced" makes the total weights of all classes equal.
        The probabilities then hold in a population with these weights.
    blocks : LocalBlocks, int, "auto" or None
        Local blocks for many rows with the pointwise evidence, as in `BayesianSVR`. Predictions use the block of the
        new row unless a number of neighbours is given.
    random_state : int, RandomState or None
        Random seed; the same seed gives the same result.

    Attributes
    ----------
    classes_ : array
        Labels, sorted.
    C_, amplitude_, linear_, offset_ : float, or (n_classes,) array for more than two classes
        Hyperparameters: the penalty, and the variances of the deviation, of the slopes of the linear part (for one
        lengthscale) and of the offset. A kernel function has neither amplitude_ nor linear_; the linear kernel has no
        amplitude_.
    lengthscale_, relevance_ : (d,) array, or one row per class
        Lengthscales in units of the inputs on their scale, and 1/lengthscale² on the standardised inputs; absent for a
        kernel function.
    warping_ : DataFrame, or a list with one for each class
        The learned scale of each input in words, its share w and the power of its transform.
    lapse_ : float, or (n_classes,) array
        Probability of a wrong label at any distance from the boundary; 0 for Sollich's evidences.
    dual_coef_ : (n,) array, or one row per class
        Dual coefficients y·α of the support vector machine, where α is at most C_ times the weight of the row.
    intercept_ : float, or (n_classes,) array
        Its offset: the function is intercept_ + Σ dual_coef_[i]·k(x, x_i), with the kernel k without its offset.
    support_, support_vectors_, n_support_ : array of int, array, (n_classes,) array of int
        Training points with α > 0 (of any class), their inputs, and their number in each class. These attributes
        describe the machine with the same C and kernel.
    blocks_ : Blocks or None, or a list of them
        Blocks of the rows.
    log_evidence_, log_evidence_error_ : float
        Log of the evidence that was maximised, summed over one-vs-rest models, and the standard error of its
        normaliser, 0 without one.
    converged_ : bool
        Whether the optimum was found.
    result_ : xarray.DataTree
        Standardised result in the format of `bp.fit`; with more than two classes one for each, and for each pair that
        has a model. `from_result` loads it.

    Notes
    -----
    A dense fit takes seconds for a thousand rows and grows as n³; blocks grow as n. Sollich's evidences take minutes
    for a thousand rows, and have no blocks. With more than two classes, one model is fitted for each class against the
    rest. With the pointwise evidence and at most six classes each pair has a model, too, if these predict left-out
    labels better. Attributes describe the models of one class against the rest. docs/classification.md describes how
    all probabilities are combined.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> svc = bp.BayesianSVC(random_state=1).fit(X, y)
    >>> svc.predict([[-1.5], [1.5]]).tolist()
    ['no', 'yes']
    >>> bool(0.4 < svc.predict_proba([[0.0]])[0, 1] < 0.6)
    True
    """

    _learned: ClassVar = ("classes_", "mean_", "scale_", "n_features_in_")
    _of_predictions: ClassVar = ("blocks", "probability")

    _: KW_ONLY
    kernel: Kernel | MatrixOption | Literal["auto"] = "auto"
    C: float | None = None
    evidence: Literal["pointwise", "conditional", "joint", "naive"] = "pointwise"
    probability: Literal["average", "mean", "map"] = "average"
    ard: bool = True
    steps: int = 50
    class_weight: dict[Any, float] | Literal["balanced"] | None = None
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    random_state: RandomState = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the hyperparameters, and compute the posterior.

        Equal rows with one label are merged into one row, with the sum of their weights.

        <inputs>
        y : (n,) array
            Labels of two or more classes.
        <counts>

        Raises
        ------
        ValueError
            If an option is not allowed or would be ignored, the data are not finite, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            If the optimum of the hyperparameters was not found.
        UserWarning
            If rows are fitted in blocks by default, or the weights sum to less than a fifth of the rows.
        """
        self._check_options()
        if self.evidence == "pointwise" and self.steps != type(self).steps:
            raise ValueError(f"steps is for an evidence other than 'pointwise', got {self.steps}")
        if self.evidence != "pointwise" and self._local().size not in (None, "auto"):
            raise ValueError(f"blocks is for evidence='pointwise', got {self.blocks} with {self.evidence!r}")
        given, labels, columns = training_arrays(self, X, y, sample_weight)
        weight = self._weights(labels, sample_weight)
        classes = classes_of(labels[weight > 0])
        given, columns = in_products(given, columns, weight)
        rows, size = merge_rows(given, np.searchsorted(classes, labels).astype(np.float64), weight), None
        rng, local, together = seeded(self.random_state), self._local(), self.evidence == "pointwise"
        if together:
            rows, size = local.divided(rows, MeanField(), undivided=columns.undivided)
        if size is None:
            remedy = "blocks='auto' fits them in blocks" if together else NO_BLOCKS
            check_memory("BayesianSVC", len(rows.y), remedy)
        with threads_for(len(rows.X)), local.threads():
            units = Units.of(rows, columns.tied)
            rows = rows.in_units(units)
            parts, model = self._binary_rows(rows, classes), self._model(rows, columns)
            # The largest class first, whatever the names of the classes, the signs of inputs, and their order.
            own = [np.sort(part.X[part.y > 0] ** 2, axis=None) for part in parts]
            order = sorted(range(len(own)), key=lambda k: (-len(own[k]), own[k].sum()))
            found = self._fits(model, units, [parts[k] for k in order], size, rng, tries=3)
            fit = LabelFit(classes, units, rows, [found[i] for i in np.argsort(order)])
            if together and 2 < classes.size <= _PAIRED:
                fit = self._with_pairs(fit, model, np.argsort(order), rng)
        for each in (*fit.binaries, *fit.pairs):
            warn_unless_converged(each.found, each.method)
        return self._keep(fit, columns)

    def _fits(
        self,
        model: StandardModel,
        units: Units,
        parts: list[TrainingData],
        size: int | None,
        rng: np.random.Generator,
        *,
        tries: int,
    ) -> list[BinaryFit]:
        """Fit labels -1 and +1 of several rows, each with so many searches at most; the first fits start the others."""
        seeds, alike, together = rng.spawn(len(parts)), list[Point](), self.evidence == "pointwise"

        def fit_part(i: int) -> BinaryFit:
            found = self._binary(model, units, parts[i], size, seeds[i], alike, tries)
            if i < _ALIKE:
                alike.append(found.point)
            return found

        return self._local().each_fit(fit_part, len(parts), first=_ALIKE, together=together)

    def _with_pairs(
        self, fit: LabelFit, model: StandardModel, rank: NDArray[np.intp], rng: np.random.Generator
    ) -> LabelFit:
        """Return the fit with a model of each pair of classes if these predict left-out labels better."""
        of_two = fit.of_two
        order = sorted(range(len(of_two)), key=lambda k: sorted(rank[list(of_two[k])]))
        parts = [_rows_of_pair(fit.rows, of_two[k]) for k in order]
        if self._local().divides(max(len(part.y) for part in parts)):
            return fit
        loss = fit.coupling.loss(*fit.left_out)
        if loss < _LOSS:
            return fit
        found = self._fits(model, fit.units, parts, None, rng, tries=1)
        paired = replace(fit, pairs=[found[i] for i in np.argsort(order)])
        return paired if paired.coupling.loss(*paired.left_out) < loss - _GAIN else fit

    def _check_options(self) -> None:
        check_choice("evidence", self.evidence, ("pointwise", "conditional", "joint", "naive"))
        check_prior(self)
        if self.C is not None and not (is_number(self.C) and 0 < self.C < np.inf):
            raise ValueError(f"C must be a number > 0, or None to learn it, got {self.C!r}")
        check_count("steps", self.steps, 0)
        self._check_predictions()

    def _check_predictions(self) -> None:
        super()._check_predictions()
        check_choice("probability", self.probability, ("average", "mean", "map"))

    def _weights(self, labels: Labels, sample_weight: ArrayLike | None) -> Array:
        weight = checked_weights(sample_weight, len(labels))
        classes, index = np.unique(labels, return_inverse=True)
        if isinstance(self.class_weight, dict):
            for label, each in self.class_weight.items():
                if not (is_number(each) and 0.0 <= each < np.inf):
                    raise ValueError(f"class_weight must be numbers of at least 0, got {each!r} for {label!r}")
                if label not in classes and not {*classes.tolist()} <= {*self.class_weight}:  # as in a part of the rows
                    raise ValueError(
                        f"class_weight has {label!r}, which is no class of y: {', '.join(map(str, classes))}"
                    )
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            total = np.bincount(index, weight)
            factor = weight.sum() / (np.count_nonzero(total) * np.maximum(total, 1e-300))
        else:
            factor = compute_class_weight(self.class_weight, classes=classes, y=labels)
        return weight * factor[index]

    def _binary_rows(self, rows: TrainingData, classes: Labels) -> list[TrainingData]:
        """Return rows with labels -1 and +1: of the second class, or of each class against the rest."""
        positive = [1] if classes.size == 2 else range(classes.size)
        return [replace(rows, y=np.where(rows.y == k, 1.0, -1.0)) for k in positive]

    def _model(self, rows: TrainingData, columns: Columns) -> StandardModel:
        automatic = self.kernel == "auto"
        kernel = columns.kernel(cast(Kernel, "rbf" if automatic else self.kernel), DEVIATION)
        pointwise = self.evidence == "pointwise"
        noise = "known_label" if pointwise else "hinge"  # which is normalised for all rows together
        model = StandardModel(noise, kernel, self.ard, C=self.C, tied=columns.tied)
        return model.suited(rows, automatic=automatic and pointwise)

    def _fits_on_scales(self) -> Sequence[StandardFit]:
        return self._checked().binaries

    def _binary(
        self,
        model: StandardModel,
        units: Units,
        rows: TrainingData,
        size: int | None,
        rng: np.random.Generator,
        others: list[Point],
        tries: int,
    ) -> BinaryFit:
        """Fit hyperparameters and posterior for labels -1 and +1; a number ``size`` is the largest block.

        A dense fit without success is compared with fits from other starts, of at most three ``tries``. The first start
        is the median of the hyperparameters of any ``others``: the classes of a set are similar.
        """
        options = Options(1, progressbar=self._local().progressbar)
        if model.noise == "known_label":
            searches = [options, options._replace(restarts=_STARTS)]
            if len(others) >= _ALIKE:
                median = {name: np.median([point[name] for point in others], axis=0) for name in others[0]}
                searches.insert(0, options._replace(start=median))
            found: list[BinaryFit] = []
            for search in searches[:tries]:
                found.append(BinaryFit.of_rows(model, units, rows, MeanField(), search, rng=rng, size=size))
                if size is not None or found[-1].learned:
                    break
            return max(found, key=lambda each: (each.fitted.converged, each.fitted.log_evidence))
        problem, method = model.problem(rows), NormalisedEvidence(cast(Any, self.evidence), steps=self.steps)
        fitted = method.run(problem, {}, options, rng)
        return BinaryFit(model, units, rows, ONE_BLOCK, method, fitted).keeping(problem)

    def _read(self, rows: TrainingData, learned: Learned, columns: Columns, result: xr.DataTree) -> LabelFit:
        units, classes = Units(learned["mean_"], learned["scale_"]), learned["classes_"]
        parts, model = self._binary_rows(rows, classes), self._model(rows, columns)

        def read(part: TrainingData, tree: xr.DataTree) -> BinaryFit:
            return BinaryFit.of_result(model, units, part, method_of(tree), tree)

        if len(parts) == 1:
            return LabelFit(classes, units, rows, [read(parts[0], result)])
        trees = result.children
        fit = LabelFit(classes, units, rows, [read(part, trees[_of_class(k)]) for k, part in enumerate(parts)])
        pairs = [pair for pair in fit.of_two if _of_pair(pair) in trees]
        return replace(fit, pairs=[read(_rows_of_pair(rows, pair), trees[_of_pair(pair)]) for pair in pairs])

    def _attributes(self, fit: LabelFit, columns: Columns) -> Learned:
        fitted = [each.fitted for each in fit.binaries]
        errors = [each.more.get("log_evidence_error", 0.0) for each in fitted]
        found: Learned = {
            "classes_": fit.classes,
            "mean_": fit.units.mean,
            "scale_": fit.units.scale,
            "log_evidence_": fsum(each.log_evidence for each in fitted),
            "log_evidence_error_": float(np.sqrt(np.sum(np.square(errors)))),
            "converged_": all(each.converged for each in (*fit.binaries, *fit.pairs)),
        }
        of_classes = [each.attributes(columns) for each in fit.binaries]
        found |= {name: fit.of_each(each[name] for each in of_classes) for name in of_classes[0]}
        return found | {name: columns.named(found[name]) for name in ("relevance_",) if name in found}

    @property
    def dual_coef_(self) -> Array:
        """Dual coefficients of the rows."""
        fit = self._checked()
        with self._local().threads():
            return np.asarray(fit.of_each(fit.rows.spread(each.dual_coef) for each in fit.binaries))

    @property
    def intercept_(self) -> Any:
        """Value of the machine where the kernel vanishes."""
        fit = self._checked()
        return fit.of_each(float(each.point["offset"] * each.dual_coef.sum()) for each in fit.binaries)

    @property
    def support_(self) -> NDArray[np.intp]:
        """Rows that are support vectors."""
        fit = self._checked()
        return fit.rows.given(np.any([np.abs(each.dual_coef) > 1e-8 * each.C for each in fit.binaries], axis=0))

    @property
    def n_support_(self) -> NDArray[np.intp]:
        """Their number in each class."""
        rows = self._checked().rows
        return np.bincount(rows.y[rows.place[self.support_]].astype(np.intp), minlength=self._fit.classes.size)

    def _probabilities(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Array:
        average = self.probability == "average"
        inputs, fit = self._new_rows(X, diagonal, moments=average), cast(LabelFit, self._fit)
        above = expit(self._odds_at(inputs))
        if not average:
            return Coupling().join(above)
        with threads_for(len(fit.rows.X)), self._local().threads():
            return fit.coupling.join(above, fit.by_pairs(inputs))

    def decision_function(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Array:
        """Return log odds (n_new,) of the second class, or (n_new, n_classes) of each class against the rest.

        ``diagonal`` is as in `predict_proba`.

        `predict` gives the class with the largest log odds. They are those of the models, before probabilities are
        combined, or of `predict_proba` if pairs of classes have models. With ``probability="map"`` they are 2·C_·f if
        the support vector machine f is between -1 and 1.
        """
        if self._checked().pairs and self.probability == "average":
            return np.asarray(logit(np.clip(self._probabilities(X, diagonal), _LEAST, 1.0 - _LEAST)))
        odds = self._log_odds(X, diagonal)
        return odds[:, 0] if self._fit.classes.size == 2 else odds

    def _log_odds(self, X: ArrayLike, diagonal: ArrayLike | None = None, *, chosen: bool = False) -> Array:
        """Return log odds of the positive class by each binary model, (n_new, models); or the ``chosen`` class."""
        chosen = chosen and self._checked().classes.size == 2  # by the sign of the mean
        return self._odds_at(self._new_rows(X, diagonal, moments=self.probability == "average" and not chosen))

    def _odds_at(self, inputs: Array) -> Array:
        local = self._local()
        neighbours = local.neighbours_of(None)  # a label has little information: the block has more of them
        with threads_for(len(self._fit.rows.X)), local.threads():
            found = [each.log_odds(inputs, self.probability, neighbours) for each in self._fit.binaries]
        return np.stack(found, axis=1)

    def predict(self, X: ArrayLike, diagonal: ArrayLike | None = None) -> Labels:
        """Predict the most probable class at inputs (n_new, d); ``diagonal`` is as in `predict_proba`."""
        classes = self._checked().classes
        if self.probability == "average" and classes.size > 2:
            return np.asarray(classes[np.argmax(self._probabilities(X, diagonal), axis=1)])
        odds = self._log_odds(X, diagonal, chosen=True)
        return np.asarray(classes[(odds[:, 0] > 0.0).astype(int) if classes.size == 2 else np.argmax(odds, axis=1)])
