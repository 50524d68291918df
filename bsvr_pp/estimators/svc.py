"""Support vector classification with the probabilities of its own model, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bsvr_pp.approximations import LatentPosterior, find_mode, mean_field
from bsvr_pp.checks import check_count
from bsvr_pp.classification.ascent import NORMALIZERS, ascend, default_logs
from bsvr_pp.classification.chaining import chained
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.kernel import LabelPrior
from bsvr_pp.classification.probability import Draws, average_probability, label_probability
from bsvr_pp.compiler import threads_for
from bsvr_pp.estimators.options import seeded, validated, widths
from bsvr_pp.losses import hinge

__all__ = ["BayesianSVC"]

Array = NDArray[np.float64]

_OPTIONS = {
    "evidence": ("conditional", "joint", "naive"),
    "probability": ("average", "mean", "map"),
    "inference": ("mean_field", "chaining"),
}
_GROUPS = 16


@dataclass(frozen=True, slots=True)
class _Binary:
    """One machine for labels -1 and +1: its prior, and mode, mean-field posterior and draws of f."""

    X: Array
    y: Array
    prior: LabelPrior
    dual_coef: Array
    posterior: LatentPosterior
    draws: Draws | None

    def probability(self, X: Array, kind: str) -> Array:
        """P(+1) at new inputs."""
        cross, variance, C = self.prior.cross(X, self.X), self.prior.variance(X), self.prior.C
        if kind == "map":
            return label_probability(cross @ self.dual_coef, C)
        if self.draws is not None:
            if kind == "mean":
                return label_probability(self.draws.mean(cross), C)
            return self.draws.average_probability(cross, variance, C, 0)
        mean, variance = self.posterior.predict(cross, variance)
        return label_probability(mean, C) if kind == "mean" else average_probability(mean, variance, C)


class BayesianSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classifier whose hyperparameters and class probabilities come from its own model.

    Sollich's (2002) normalised model: the most probable latent function is the support vector machine; C, the kernel
    and the offset maximise the evidence, without cross-validation, and class probabilities average over the posterior
    of the latent function. On standardised inputs the function is linear with a smooth deviation, whose Gaussian kernel
    has one length scale an input.

    Parameters
    ----------
    evidence : {"conditional", "joint", "naive"}
        What to maximise, times a weak hyperprior. The naive evidence is not normalised, and makes C too small.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), or the probability at its mean (36) or mode (37). `predict` gives the
        most probable class, so that the two agree.
    inference : {"mean_field", "chaining"}
        The posterior: Gaussian, or draws.
    ard : bool
        Whether each input has its own length scale.
    steps : int
        Steps of the ascent of the evidence; 0 keeps the hyperprior's centre.
    particles : int
        Particles of the normaliser (and in each of 16 groups where chaining is asked for; a quarter for its value).
    random_state : int, RandomState or None
        Same seed, same result.

    Attributes
    ----------
    classes_ : array
        Labels, sorted.
    C_, amplitude_, linear_, offset_ : float, or (n_classes,) array of more than two classes
        Hyperparameters: the penalty, and the variances of the deviation, of the linear part's slopes (a length scale)
        and of the offset.
    lengthscale_ : (n_features_in_,) array, or a row a class
        On the scale of the inputs as given.
    relevance_ : array
        1/lengthscale² on the standardised inputs.
    dual_coef_ : (n,) array, or a row a class
        y·α of the support vector machine.
    support_ : array of int
        Training points with α > 0 (of any class).
    log_evidence_ : float
        Log of the evidence that was maximised, by mean field and chaining; summed over one-vs-rest machines.
    log_evidence_error_ : float
        Its standard error.

    Notes
    -----
    Time and memory grow as n³ and n²: a second or two for two hundred points, minutes for a thousand.

    More than two classes: one machine for each class against the rest, and their probabilities divided by their sum.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> machine = bp.BayesianSVC(steps=20, random_state=1).fit(X, y)
    >>> machine.predict([[-1.5], [1.5]]).tolist()
    ['no', 'yes']
    >>> bool(0.4 < machine.predict_proba([[0.0]])[0, 1] < 0.6)
    True
    """

    def __init__(
        self,
        *,
        evidence: Literal["conditional", "joint", "naive"] = "conditional",
        probability: Literal["average", "mean", "map"] = "average",
        inference: Literal["mean_field", "chaining"] = "mean_field",
        ard: bool = True,
        steps: int = 50,
        particles: int = 100,
        random_state: Any = None,
    ) -> None:
        self.evidence = evidence
        self.probability = probability
        self.inference = inference
        self.ard = ard
        self.steps = steps
        self.particles = particles
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit hyperparameters and posterior.

        Parameters
        ----------
        X : (n, d) array
            Inputs.
        y : (n,) array
            Labels of two or more classes.

        Raises
        ------
        ValueError
            If an option is not allowed, the data are not finite, or there is one class only.
        """
        self._check_options()
        given, labels = validated(self, X, y)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y must hold at least two classes, got one class, {self.classes_[0]!r}")
        rng = seeded(self.random_state)
        self.mean_, self.scale_ = given.mean(axis=0), widths(given)
        inputs = (given - self.mean_) / self.scale_
        positive = [1] if self.classes_.size == 2 else range(self.classes_.size)
        with threads_for(len(inputs)):
            machines = [self._binary(inputs, np.where(index == k, 1.0, -1.0), rng) for k in positive]
        self.machines_ = [machine for machine, _, _ in machines]
        self.log_evidence_ = float(sum(value for _, value, _ in machines))
        self.log_evidence_error_ = float(np.sqrt(sum(error**2 for _, _, error in machines)))
        self._describe()
        return self

    def _check_options(self) -> None:
        for name, allowed in _OPTIONS.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if not isinstance(self.ard, bool | np.bool_):
            raise ValueError(f"ard must be True or False, got {self.ard!r}")
        for name, least in (("steps", 0), ("particles", 2)):
            check_count(name, getattr(self, name), least)

    def _binary(self, X: Array, y: Array, rng: np.random.Generator) -> tuple[_Binary, float, float]:
        """One machine, with its log evidence and the error of that."""
        hyperprior = default_logs(X.shape[1], self.ard)
        prior = LabelPrior(hyperprior[0])
        if self.steps:
            options: dict[str, Any] = {"steps": self.steps, "particles": self.particles, "random_seed": rng}
            prior, _ = ascend(X, y, hyperprior, kind=self.evidence, **options)
        K, noise = prior.covariance(X), hinge(prior.C)
        posterior = mean_field(K, y, noise, jitter=prior.jitter)
        value, error, draws = float(posterior.log_evidence), 0.0, None
        settings: dict[str, Any] = {"particles": self.particles, "groups": _GROUPS, "random_seed": rng}
        if self.inference == "chaining":
            run = chained(K, Factors("hinge", prior.C, y), start=posterior if posterior.converged else None, **settings)
            value, error, draws = run.log_mass, run.standard_error, Draws(K, run.f)
        if self.evidence != "naive":
            fewer = settings | {"particles": max(self.particles // 4, 2)}  # its density is as wide as the prior
            run = chained(K, Factors(NORMALIZERS[self.evidence], prior.C), **fewer)
            value, error = value - run.log_mass, float(np.hypot(error, run.standard_error))
        return _Binary(X, y, prior, find_mode(K, y, noise).dual_coef, posterior, draws), value, error

    def _describe(self) -> None:
        """Hyperparameters and support vectors as attributes."""
        d = self.n_features_in_

        def each(values: list[Any]) -> Any:
            return values[0] if len(values) == 1 else np.array(values)

        priors = [machine.prior for machine in self.machines_]
        self.C_, self.amplitude_ = each([p.C for p in priors]), each([p.amplitude for p in priors])
        self.linear_, self.offset_ = each([p.linear for p in priors]), each([p.offset for p in priors])
        scales = [np.broadcast_to(p.lengthscale, (d,)) for p in priors]
        self.lengthscale_ = each([scale * self.scale_ for scale in scales])
        self.relevance_ = each([scale**-2 for scale in scales])
        self.dual_coef_ = each([machine.dual_coef for machine in self.machines_])
        used = [np.abs(m.dual_coef) > 1e-8 * m.prior.C for m in self.machines_]
        self.support_ = np.flatnonzero(np.any(used, axis=0))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, in the order of ``classes_``.

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
        above = np.stack([m.probability(inputs, self.probability) for m in self.machines_], axis=1)
        if self.classes_.size == 2:
            return np.hstack([1.0 - above, above])
        shares: Array = above / above.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class.

        Parameters
        ----------
        X : (n_new, d) array
            New inputs.
        """
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels
