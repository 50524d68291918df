"""The three evidences of support vector classification (Sollich 2002, sections 4 and 5).

    naive        log Q(Y|X)            (27): not normalised over labels, its C is too small
    conditional  log Q(Y|X) - log N(X) (25): of the labels, given the inputs
    joint        log Q(Y|X) - log N̂    (30): of labels and inputs, up to a constant

The naive part comes by generalised Laplace (32), mean field or chaining, the normalisers always by chaining.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.approximations import laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.checks import check_count, generator
from bsvr_pp.classification.chaining import Chained, chained
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.gradient import MassGradient, mass_gradient
from bsvr_pp.inference.methods import Laplace, MeanField
from bsvr_pp.losses import NoiseModel
from bsvr_pp.problem import ModelError, Point, Problem, read_model

__all__ = [
    "Chaining",
    "ClassificationEvidence",
    "LogMass",
    "classification_evidence",
    "classification_gradient",
    "label_problem",
]

Array = NDArray[np.float64]
Kind = Literal["naive", "conditional", "joint"]

_NORMALIZERS = {"conditional": "survival", "joint": "mean_survival"}


class LogMass(NamedTuple):
    """Log of an integral, with its standard error (0 where the method has none)."""

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Chaining:
    """Monte Carlo chaining: settings of `bsvr_pp.classification.chaining.chained`.

    Parameters
    ----------
    particles, groups, moves : int
        Particles in each independent group and groups, at least 2 each, and elliptical slice moves at each power.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> bp.Chaining(particles=200)
    Chaining(particles=200, groups=16, moves=4)
    """

    particles: int = 1000
    groups: int = 16
    moves: int = 4

    def __post_init__(self) -> None:
        for name, least in (("particles", 2), ("groups", 2), ("moves", 1)):
            check_count(name, getattr(self, name), least)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "chaining"

    def run(
        self, K: Array, factors: Factors, rng: np.random.Generator, labels: tuple[Array, NoiseModel] | None = None
    ) -> Chained:
        """Chain from the prior; with labels and their noise from the mean-field posterior, where that converged."""
        start = mean_field(K, *labels) if labels else None
        return chained(
            K,
            factors,
            start=start if start and start.converged else None,
            particles=self.particles,
            groups=self.groups,
            moves=self.moves,
            random_seed=rng,
        )


@dataclass(frozen=True, slots=True)
class ClassificationEvidence:
    """Result of `classification_evidence`.

    Attributes
    ----------
    value, standard_error : float
        Log evidence (not divided by n) and its standard error, from chaining.
    kind : str
        "naive", "conditional" or "joint".
    parts : dict
        "naive" and, but for the naive kind, "normalizer", each with value and standard error; their difference is
        the value.
    converged : bool
        Whether the method of the naive part converged.
    """

    value: float
    standard_error: float
    kind: Kind
    parts: dict[str, LogMass]
    converged: bool


def classification_evidence(
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    *,
    kind: Kind = "conditional",
    method: Laplace | MeanField | Chaining | None = None,
    normalizer: Chaining | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> ClassificationEvidence:
    """Log evidence of a model of labels at given hyperparameters.

    Parameters
    ----------
    model : pm.Model, optional
        A model whose labels are `bp.SVMLabel`; by default that of the surrounding ``with``.
    hyperparameters : dict, optional
        A value for each hyperparameter; may be left out where there are none.
    kind : {"conditional", "joint", "naive"}
        Which evidence: (25), (30) or (27).
    method : Laplace, MeanField or Chaining, optional
        How to find the naive part; chaining by default.
    normalizer : Chaining, optional
        How to find the normaliser; by default as ``method`` where that is chaining.
    random_seed : int or Generator, optional
        Same seed, same result.

    Returns
    -------
    ClassificationEvidence

    Raises
    ------
    TypeError
        If method or normalizer is none of these.
    ValueError
        If kind is none of these, or a hyperparameter is missing, unknown or outside its support.
    ModelError
        If the model is not one of labels, or its prior mean is not zero.

    Warns
    -----
    UserWarning
        If a conditional evidence comes out above its bound -log 2: where C is large and the amplitude small few
        functions survive, and chaining finds too few of them.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)), jitter=0.0)
    ...     _ = bp.SVMLabel("y", f=f, C=2.0, observed=[1])
    ...     found = bp.classification_evidence(random_seed=1)
    >>> bool(abs(found.value - np.log(0.5)) < 4 * found.standard_error)
    True
    """
    method, normalizer = _methods(kind, method, normalizer)
    problem, _, K, noise = label_problem(model, hyperparameters)
    rng = generator(random_seed)
    y, converged = problem.targets, True
    if isinstance(method, Chaining):
        run = method.run(K, Factors("hinge", noise.parameters["C"], y), rng, (y, noise))
        naive = LogMass(run.log_mass, run.standard_error)
    else:
        posterior = method.solve(K, y, noise, np.zeros(y.size))
        naive, converged = LogMass(float(posterior.log_evidence), 0.0), posterior.converged
    parts = {"naive": naive}
    if kind == "naive":
        return ClassificationEvidence(*naive, kind, parts, converged)
    run = normalizer.run(K, Factors(_NORMALIZERS[kind], noise.parameters["C"]), rng)
    parts["normalizer"] = LogMass(run.log_mass, run.standard_error)
    error = float(np.hypot(naive.standard_error, run.standard_error))
    if kind == "conditional" and naive.value - run.log_mass > 3.0 * error - np.log(2.0):
        # N(X) is the sum of Q over all labels, and Q is the same with their signs reversed.
        warnings.warn(
            f"a conditional evidence is at most -log 2, and {naive.value - run.log_mass:.3g} was found: the particles "
            "of the normaliser have not reached where its mass is; give normalizer=Chaining() more particles and moves",
            UserWarning,
            stacklevel=2,
        )
    return ClassificationEvidence(naive.value - run.log_mass, error, kind, parts, converged)


def classification_gradient(
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    *,
    kind: Kind = "conditional",
    method: Laplace | MeanField | Chaining | None = None,
    normalizer: Chaining | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> dict[str, Array]:
    """Derivatives of `classification_evidence` by the hyperparameters, as averages over the posterior.

    Parameters and errors are those of `classification_evidence`. With `Laplace` or `MeanField` the naive part of
    the gradient is exact for that approximation.

    Returns
    -------
    dict
        Derivative by each hyperparameter, of its shape.

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model():
    ...     C = pm.LogNormal("C", 0, 1)
    ...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=np.zeros((1, 1)))
    ...     _ = bp.SVMLabel("y", f=f, C=C, observed=[1])
    ...     gradient = bp.classification_gradient(hyperparameters={"C": 2.0}, random_seed=1)
    >>> bool(abs(gradient["C"]) < 0.02)  # one label has probability ½
    True
    """
    method, normalizer = _methods(kind, method, normalizer)
    problem, point, K, noise = label_problem(model, hyperparameters)
    rng = generator(random_seed)
    y, C = problem.targets, noise.parameters["C"]
    if isinstance(method, Chaining):
        factors = Factors("hinge", C, y)
        total = mass_gradient(K, factors, method.run(K, factors, rng, (y, noise)).f)
    elif isinstance(method, MeanField):
        found = mean_field_gradient(K, y, noise)[1]
        total = MassGradient(found.K, found.parameters["C"])
    else:
        found = laplace_gradient(K, y, noise, curvature=method.curvature)[1]
        total = MassGradient(found.K, found.parameters["C"])
    if kind != "naive":
        factors = Factors(_NORMALIZERS[kind], C)
        total = total.minus(mass_gradient(K, factors, normalizer.run(K, factors, rng).f))
    return _contract(problem, point, total)


def _methods(kind: str, method: Any, normalizer: Any) -> tuple[Laplace | MeanField | Chaining, Chaining]:
    if kind not in ("naive", *_NORMALIZERS):
        raise ValueError(f"kind must be 'naive', 'conditional' or 'joint', got {kind!r}")
    method = Chaining() if method is None else method
    if not isinstance(method, Laplace | MeanField | Chaining):
        raise TypeError(f"method must be Laplace(), MeanField() or Chaining(), got {method!r}")
    if normalizer is None:
        normalizer = method if isinstance(method, Chaining) else Chaining()
    if not isinstance(normalizer, Chaining):
        raise TypeError(f"normalizer must be Chaining(): N has no other method, got {normalizer!r}")
    return method, normalizer


def label_problem(
    model: pm.Model | None, hyperparameters: Mapping[str, ArrayLike] | None
) -> tuple[Problem, Point, Array, NoiseModel]:
    """Read a model of labels at given hyperparameters, with its prior covariance and its noise."""
    problem = read_model(model)
    if not problem.loss.classification:
        raise ModelError(f"{problem.target} is no label but has {problem.loss.name} noise: use bp.log_evidence")
    point = problem.complete(hyperparameters)
    K, mean, noise = problem.at(point)
    if np.any(mean != 0):
        raise ModelError("the mean of the Gaussian process must be zero, as in Sollich's prior (3)")
    return problem, point, K, noise


def _contract(problem: Problem, point: Point, gradient: MassGradient) -> dict[str, Array]:
    """Chain rule from K and C to the hyperparameters, by PyTensor."""

    def compile_() -> Any:
        d_K, d_C = pt.matrix("d_K"), pt.vector("d_C")
        (C,) = problem.parameters
        total = (d_K * problem.K).sum() + (d_C * C).sum()
        graphs = pytensor.grad(total, problem.variables, disconnected_inputs="ignore")
        return problem.compile(graphs, extra=[d_K, d_C])

    compiled = problem.function("mass gradient", compile_)
    found = compiled(*problem.arguments(point), gradient.K, np.atleast_1d(gradient.C))
    return {name: np.asarray(value) for name, value in zip(problem.hyperparameters, found, strict=True)}
