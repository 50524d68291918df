"""The hyperprior of a model with labels as a function of one vector, and checks of such a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from pytensor.gradient import zero_grad
from scipy.optimize import minimize

from bsvr_pp.approximations.gradient import Gradient
from bsvr_pp.approximations.operation import CovarianceGraph, TargetsGraph
from bsvr_pp.covariance.covariance import Covariance
from bsvr_pp.inference.objective import initial_point
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.registry import LABELS
from bsvr_pp.model.problem import ModelError, Point, Problem

__all__ = ["LabelPrior", "label_scale", "labels_at"]

Array = NDArray[np.float64]

_FAR = 20.0  # change of an unconstrained value above which a hyperprior is considered improper
_TO_ROUNDING = {"ftol": 0.0, "gtol": 1e-9}


def labels_at(problem: Problem, point: Point) -> tuple[Covariance, NoiseModel]:
    """Return prior covariance and noise of a model with labels at given hyperparameters."""
    if problem.loss.targets is not LABELS:
        raise ModelError(f"{problem.target} is no label but has {problem.loss.name} noise: use bp.log_evidence")
    K, mean, noise = problem.at(point)
    if np.any(mean != 0):
        raise ModelError("the mean of the Gaussian process must be zero, as in Sollich's prior (3)")
    return K, noise


def label_scale(noise: NoiseModel) -> float:
    """Return C as a number; it must not have a value for each training point."""
    C = noise.parameters["C"]
    if np.ndim(C):
        raise ValueError("C has a value for each training point, which says nothing about new ones: give it a number")
    return float(C)


class LabelPrior:
    """Covariance, C and log hyperprior of a model with labels, as functions of its free hyperparameters.

    The free hyperparameters are one vector of unconstrained values as in the samplers of PyMC (usually logs). ``start``
    is the mode of their hyperprior, or the initial point of the model if the hyperprior has no mode, and ``weight`` are
    the sample weights of the labels.
    """

    def __init__(self, problem: Problem, given: Point) -> None:
        initial = initial_point(problem) | given
        noise = labels_at(problem, initial)[1]
        label_scale(noise)
        self._problem, self.weight = problem, noise.weight
        values = dict(zip(problem.hyperparameters, problem.to_unconstrained(initial), strict=True))
        self._given = {name: values[name] for name in given}
        packed = DictToArrayBijection.map({name: value for name, value in values.items() if name not in given})
        self._layout = packed.point_map_info
        self.start: Array = self._mode(np.asarray(packed.data, dtype=np.float64))

    def _mode(self, initial: Array) -> Array:
        def compile_() -> Any:
            model = self._problem.model
            log_prior = model.logp(vars=self._problem.variables)
            slopes = pt.grad(log_prior, self._problem.values, disconnected_inputs="ignore")
            return self._problem.compile_on(self._problem.values, [log_prior, *slopes])

        compiled = self._problem.function("hyperprior of labels", compile_)

        def descent(x: Array) -> tuple[float, Array]:
            value, *slopes = compiled(*self._values(x), *self._problem.given_data)
            return -float(value), -self._free(slopes)

        bounds = np.stack([initial - _FAR, initial + _FAR], axis=1)
        found = minimize(descent, initial, jac=True, method="L-BFGS-B", bounds=bounds, options=_TO_ROUNDING)
        proper = (np.abs(found.x - initial) < _FAR).all()
        return np.asarray(found.x) if proper else initial

    def at(self, x: Array) -> tuple[Covariance, float, float]:
        """Covariance with its jitter, C, and log hyperprior (a density of the unconstrained hyperparameters)."""

        def compile_() -> Any:
            return self._problem.compile_on(self._problem.values, list(self._graphs()))

        forward = self._problem.function("prior of labels", compile_)
        K, C, log_prior = forward(*self._values(x), *self._problem.given_data)
        jitter = self._problem.prior.jitter
        K[np.diag_indices_from(K)] += jitter
        return Covariance(K, jitter=jitter), float(C), float(log_prior)

    def gradient(
        self, x: Array, latent: Approximation, normaliser: Gradient | None, start: Array
    ) -> tuple[Array, Array]:
        """Compute the gradient of log evidence plus log hyperprior, given that of the normaliser by K and C.

        ``start`` (2, n) is the warm start of the naive part; the next one is returned. If the naive part fails, the
        gradient is that of the hyperprior.
        """

        def compile_() -> Any:
            problem = self._problem
            K, C, log_prior = self._graphs()
            y, sites, d_K, d_C = pt.vector(), pt.matrix(), pt.matrix(), pt.scalar()
            covariance = CovarianceGraph(K, problem.prior.jitter)
            targets = TargetsGraph.of(y, weight=problem.weight)
            naive, _, found = latent.evidence_graph(problem.loss.name, covariance, 0.0, targets, [C], sites)
            solved = zero_grad(pt.switch(pt.isinf(naive), 0.0, 1.0))
            total = naive - solved * ((d_K * K).sum() + d_C * C) + log_prior
            slopes = pt.grad(total, problem.values, disconnected_inputs="ignore")
            return problem.compile_on(problem.values, [found, *slopes], [y, sites, d_K, d_C])

        compiled = self._problem.function(f"gradient of labels by {latent!r}", compile_)
        y = self._problem.targets
        by_K = np.zeros((y.size, y.size)) if normaliser is None else normaliser.K
        by_C = 0.0 if normaliser is None else float(normaliser.parameters["C"])
        found, *slopes = compiled(*self._values(x), *self._problem.given_data, y, start, by_K, by_C)
        return self._free(slopes), found

    def point(self, x: Array) -> Point:
        """Return all hyperparameters, constrained."""
        return self._problem.to_constrained(self._values(x))

    def _graphs(self) -> tuple[Any, Any, Any]:
        """Graphs of covariance without jitter, C and log hyperprior, in the unconstrained values."""
        problem, model = self._problem, self._problem.model
        (C,) = problem.parameters
        K, C = model.replace_rvs_by_values([problem.smooth, C])
        return K, C, model.logp(vars=problem.variables)

    def _values(self, x: Array) -> list[Array]:
        """Return all unconstrained values, in the order of the model."""
        values = DictToArrayBijection.rmap(RaveledVars(x, self._layout)) | self._given
        return [values[name] for name in self._problem.hyperparameters]

    def _free(self, slopes: list[Array]) -> Array:
        """Select the derivatives by the free values, as a vector."""
        named = zip(self._problem.hyperparameters, slopes, strict=True)
        parts = [np.ravel(slope) for name, slope in named if name not in self._given]
        return np.concatenate(parts or [np.empty(0)])
