"""The interface of methods of inference.

A method is a frozen dataclass with its options. It states its `Capabilities`, and `fit` calls its ``run``; no code
outside the file of a method depends on its class or name. An `Approximation` is a method that integrates the latent
function out at given hyperparameters, for arrays (``solve``) and as a PyTensor graph (``evidence_graph``), so that the
optimiser, `NUTS` and `marginalize` can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import xarray as xr

from bsvr_pp._arrays import Array
from bsvr_pp.approximations import Covariance, LatentPosterior
from bsvr_pp.losses import NoiseModel
from bsvr_pp.model.problem import Point, Problem

Objective = Literal["posterior", "evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a method.

    Attributes
    ----------
    runs : bool
        It has ``run``: `fit` accepts it.
    evidence : bool
        It has a log evidence at given hyperparameters: `log_evidence` accepts it. For an approximation it is that of
        ``solve``, for another method that of ``evidence``.
    integrates : bool
        It has ``solve`` and ``evidence_graph``: ``NUTS(latent=...)`` and `marginalize` accept it.
    continuous : bool
        Its evidence is a continuous function of the hyperparameters.
    takes_draws : bool
        Its ``evidence`` accepts exact draws of f, and then estimates an upper bound.
    plug_in : bool
        Its latent function has no error bars.
    draws : bool
        Its results hold draws of the hyperparameters from their posterior.
    gradient_based : bool
        It samples a PyMC model by gradients of its log density: `calibrate` accepts it. If it does not integrate f out
        it has ``run_unread``, and takes every PyMC model.
    normalises : bool
        It chooses hyperparameters by a normalised evidence where that of the model is not.
    """

    runs: bool = True
    evidence: bool = False
    integrates: bool = False
    continuous: bool = True
    takes_draws: bool = False
    plug_in: bool = False
    draws: bool = False
    gradient_based: bool = False
    normalises: bool = False


def can(method: object, what: str) -> bool:
    """Return whether an object is a method with a capability."""
    capabilities = getattr(method, "capabilities", None)
    # The class of a method has the attribute as well, but only an instance is a method.
    return isinstance(capabilities, Capabilities) and not isinstance(method, type) and bool(getattr(capabilities, what))


class ConvergenceWarning(UserWarning):
    """A result did not converge; it is returned with ``converged`` 0."""


class Options(NamedTuple):
    """Options of `fit` that are not options of a method."""

    restarts: int | None = None
    objective: Objective = "posterior"
    progressbar: bool = False
    start: Point | None = None  # from which alone the one optimum is searched


class Evidence(NamedTuple):
    """Log evidence with its standard error (0 if the method has none), and whether the method converged."""

    value: float
    standard_error: float
    converged: bool


class Solution(Protocol):
    """Output of ``run``, which is converted to a result."""

    def diagnosis(self) -> dict[str, Any]:
        """Attributes of the result: log_evidence, converged (0 or 1), message, and others of the method."""

    def tree(
        self, problem: Problem, attributes: dict[str, Any], rng: np.random.Generator, draws: int | None = None
    ) -> xr.DataTree:
        """The result, in the schema of `bsvr_pp.inference.result`; ``draws`` of f, if the method draws from it."""


class Method(Protocol):
    """A method that `fit` runs."""

    @property
    def name(self) -> str:
        """Name in tables, unique among methods with other options."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the method."""

    @property
    def latent(self) -> Approximation | None:
        """The approximation that integrates the latent function out, if one does."""

    def run(self, problem: Problem, given: Point, options: Options, rng: np.random.Generator) -> Solution:
        """Infer everything that is not in ``given``."""


class Approximation(Method, Protocol):
    """A method that integrates the latent function out at given hyperparameters."""

    def solve(
        self, K: Covariance, y: Array, noise: NoiseModel, mean: Array, start: Array | None = None
    ) -> LatentPosterior:
        """Posterior of the latent function; ``start`` (2, n) are the sites of a similar problem to start from."""

    def evidence_graph(
        self, loss: str, K: Any, mean: Any, targets: Any, parameters: Any, start: Any = None
    ) -> tuple[Any, Any, Any]:
        """Log evidence of ``solve``, its convergence flag and a (2, n) warm start, as PyTensor graphs.

        K is a `CovarianceGraph`, and ``targets`` a `TargetsGraph`, as in `approximations.operation.latent_evidence`.
        """
