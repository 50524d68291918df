"""Evidences and class probabilities of support vector classification at given hyperparameters (Sollich 2002).

The three evidences (sections 4 and 5) are

- naive, log Q(Y|X) (27): not normalised over labels, so that C is too small;
- conditional, log Q(Y|X) - log N(X) (25): for the labels given the inputs;
- joint, log Q(Y|X) - log N̂ (30): for labels and inputs, up to a constant.

The naive part is computed by generalised Laplace (32), mean field or annealing, the normalisers always by
annealing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from bsvr_pp.classification.normalised_evidence import NORMALISER, label_scale, labels_at
from bsvr_pp.classification.normaliser import KINDS, EvidenceKind, averaged_gradient, check_kind
from bsvr_pp.core.approximations import LatentPosterior, find_mode
from bsvr_pp.core.approximations.posterior import LatentDraws
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.checks import generator, numbers
from bsvr_pp.core.losses.noise import noise_likelihood
from bsvr_pp.core.losses.registry import average_probability, label_probability
from bsvr_pp.inference.protocol import Anneals, Evidence, HasEvidence, IntegratesLatent, check_evidence
from bsvr_pp.model.gaussian import gradients
from bsvr_pp.model.operation import TargetsGraph
from bsvr_pp.model.problem import read_model


@dataclass(frozen=True, slots=True)
class ClassificationEvidence:
    """Result of `evidence`.

    Attributes
    ----------
    value, standard_error : float
        Log evidence (not divided by n) and its standard error, from annealing.
    kind : str
        "naive", "conditional" or "joint".
    parts : dict
        "naive" and, except for the naive kind, "normaliser", each with value and standard error; ``value`` is their
        difference.
    converged : bool
        Whether the method of the naive part converged.
    """

    value: float
    standard_error: float
    kind: EvidenceKind
    parts: dict[str, Evidence]
    converged: bool


def evidence(
    method: HasEvidence,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    kind: EvidenceKind = "conditional",
    normaliser: Anneals | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> ClassificationEvidence:
    """Compute the log evidence of a model with labels at given hyperparameters.

    Parameters
    ----------
    method : Laplace, MeanField, Annealed or another method with an evidence
        Method for the naive part.
    model : pm.Model, optional
        A model whose labels are `bp.SVMLabel`; by default that of the surrounding ``with``.
    hyperparameters : dict, optional
        A value for each hyperparameter; not needed if there are none.
    kind : {"conditional", "joint", "naive"}
        Kind of evidence: (25), (30) or (27).
    normaliser : Annealed, optional
        Method for the normaliser; by default annealing with 16 groups of 1000 particles.
    random_seed : int or Generator, optional
        Random seed; the same seed gives the same result.

    Returns
    -------
    ClassificationEvidence

    Raises
    ------
    TypeError
        If method or normaliser is not one of these.
    ValueError
        If kind is not one of these, or a hyperparameter is missing, unknown or outside its support.
    ModelError
        If the model has no labels, or its prior mean is not zero.

    Warns
    -----
    UserWarning
        If a conditional evidence is above its bound -log 2. This happens if C is large and the amplitude small: then
        all labels are known for only few functions, and annealing finds too few of them.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)), jitter=0.0)
    ...     _ = bp.SVMLabel("y", f=f, C=2.0, observed=[1])
    ...     found = bp.classification.evidence(bp.MeanField(), random_seed=1)
    >>> bool(abs(found.value - np.log(0.5)) < 4 * found.standard_error)
    True
    """
    normaliser = _checked(method, kind, normaliser)
    problem = read_model(model)
    K, mean, noise = labels_at(problem, problem.complete(hyperparameters))
    rng = generator(random_seed)
    value, error, converged = naive = method.evidence(K, problem.targets, noise, mean, rng)
    parts = {"naive": naive}
    for known in KINDS[kind].known(noise):
        run = normaliser.posterior(K, None, known, mean, rng)
        parts["normaliser"] = Evidence(run.log_evidence, run.standard_error, True)
        value, error = value - run.log_evidence, float(np.hypot(error, run.standard_error))
    if value > 3.0 * error + KINDS[kind].most:
        warnings.warn(
            f"a conditional evidence is at most -log 2, and {value:.3g} was found: the particles of the normaliser "
            "have not reached where its mass is; give normaliser=Annealed() more particles and moves",
            UserWarning,
            stacklevel=2,
        )
    return ClassificationEvidence(value, error, kind, parts, converged)


def evidence_gradient(
    method: HasEvidence,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    kind: EvidenceKind = "conditional",
    normaliser: Anneals | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> dict[str, Array]:
    """Compute the derivatives of `evidence` by the hyperparameters, as averages over the posterior.

    Parameters and errors are those of `evidence`. With `Laplace` or `MeanField` the naive part of
    the gradient is exact for that approximation.

    Returns
    -------
    dict
        Derivative by each hyperparameter, with the same shape.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 0, 1)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)))
    ...     _ = bp.SVMLabel("y", f=f, C=C, observed=[1])
    ...     gradient = bp.classification.evidence_gradient(bp.MeanField(), hyperparameters={"C": 2.0}, random_seed=1)
    >>> bool(abs(gradient["C"]) < 0.02)  # one label has probability ½
    True
    """
    normaliser = _checked(method, kind, normaliser)
    problem = read_model(model)
    point = problem.complete(hyperparameters)
    K, mean, noise = labels_at(problem, point)
    rng = generator(random_seed)
    by_K, by_C = np.zeros((mean.size, mean.size)), np.zeros(np.size(noise.parameters["C"]))
    if isinstance(method, Anneals):
        run = method.posterior(K, problem.targets, noise, mean, rng)
        found = averaged_gradient(K, noise_likelihood(noise, problem.targets), run.f)
        by_K, by_C = found.K, np.atleast_1d(found.parameters["C"])
    for known in KINDS[kind].known(noise):
        found = averaged_gradient(K, known, normaliser.posterior(K, None, known, mean, rng).f)
        by_K, by_C = by_K - found.K, by_C - found.parameters["C"]
    # The chain rule from K and C to the hyperparameters, and the gradient of the naive part that is a graph.
    scale = problem.parameters[0]
    total = (pt.constant(by_K) * problem.covariance.smooth).sum() + (pt.constant(by_C) * scale).sum()
    if isinstance(method, IntegratesLatent):
        targets = TargetsGraph.of(pt.constant(problem.targets), weight=problem.weight)
        total += method.evidence_graph(problem.loss.name, problem.covariance, 0.0, targets, [scale])[0]
    values = problem.compile(gradients(total, problem.variables))(*problem.arguments(point))
    return {name: np.asarray(value) for name, value in zip(problem.hyperparameters, values, strict=True)}


def class_probability(
    method: HasEvidence,
    X_new: ArrayLike,
    model: pm.Model | None = None,
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    probability: Literal["average", "mean", "map"] = "average",
    random_seed: int | np.random.Generator | None = None,
) -> Array:
    """Compute the probability of the label +1 at new inputs.

    The other parameters and the errors are those of `evidence`.

    Parameters
    ----------
    method : Laplace, MeanField, Annealed or another method with an evidence
        Method for the posterior of f; "map" does not use it.
    X_new : (n_new, d) array
        New inputs.
    probability : {"average", "mean", "map"}
        The average over the posterior (33), at its mean (36), or at its mode, the support vector classifier (37).

    Returns
    -------
    (n_new,) array

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> X = np.linspace(-1, 1, 6)[:, None]
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
    ...     _ = bp.SVMLabel("y", f=f, C=2.0, observed=[-1, -1, -1, 1, 1, 1])
    ...     found = bp.classification.class_probability(bp.MeanField(), [[-1.0], [0.0], [1.0]], probability="map")
    >>> found.round(3).tolist()
    [0.011, 0.5, 0.989]
    """
    _checked(method)
    if probability not in ("average", "mean", "map"):
        raise ValueError(f"probability must be 'average', 'mean' or 'map', got {probability!r}")
    problem = read_model(model)
    point = problem.complete(hyperparameters)
    K, prior_mean, noise = labels_at(problem, point)
    X = numbers("X_new", X_new, ("n_new", problem.inputs.shape[1]))
    C = label_scale(noise)
    y, cross = problem.targets, problem.cross(point, X)
    if probability == "map":
        return label_probability(cross[0] @ find_mode(K, y, noise).dual_coef, C)
    rng = generator(random_seed)
    if isinstance(method, IntegratesLatent):
        posterior: LatentPosterior | LatentDraws = method.solve(K, y, noise, prior_mean)
    else:
        posterior = LatentDraws(K, method.posterior(K, y, noise, prior_mean, rng).f)
    return probability_of(posterior, probability, C, cross, rng)


def probability_of(
    posterior: LatentPosterior | LatentDraws, kind: str, C: float, cross: tuple[Array, ...], rng: np.random.Generator
) -> Array:
    """P(+1) at new inputs, as `class_probability` without "map"; ``cross`` is `Problem.cross` of them."""
    K_star, variance, _ = cross
    if isinstance(posterior, LatentDraws):
        if kind == "mean":
            return label_probability(posterior.mean(K_star), C)
        return np.asarray(label_probability(posterior.sample(K_star, variance, rng), C).mean(axis=0))
    mean, variance = posterior.predict(K_star, variance)
    return label_probability(mean, C) if kind == "mean" else average_probability(mean, variance, C)


def _checked(method: object, kind: str = "naive", normaliser: Anneals | None = None) -> Anneals:
    check_kind(kind)
    check_evidence(method)
    normaliser = NORMALISER if normaliser is None else normaliser
    if not isinstance(normaliser, Anneals):
        raise TypeError(f"normaliser must be Annealed(): N has no other method, got {normaliser!r}")
    return normaliser
