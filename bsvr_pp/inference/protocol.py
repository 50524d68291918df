"""The interface of methods of inference.

A method is a frozen dataclass with its options, which `fit` runs. Protocols, checked by isinstance, define what it can
do; no code outside the file of a method depends on its class or name. A method that integrates the latent function out
does so for arrays (``solve``) and as a PyTensor graph (``evidence_graph``). The optimiser, `NUTS` and `marginalize` can
then use it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import Field, fields
from typing import ClassVar, Literal, NamedTuple, Protocol, _ProtocolMeta, runtime_checkable

import numpy as np
import xarray as xr
from numpy.random import Generator

from bsvr_pp.core.approximations import Covariance
from bsvr_pp.core.approximations.smc import AnnealedPosterior, LogLikelihood
from bsvr_pp.core.arrays import Array, warn
from bsvr_pp.core.covariance.covariance import AnyCovariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.model.marginalize import Integrator
from bsvr_pp.model.problem import Point, Problem

Objective = Literal["posterior", "evidence"]


class ConvergenceWarning(UserWarning):
    """A result did not converge; it is returned with ``converged`` 0."""


def warn_unconverged(message: str) -> None:
    """Warn that something did not converge."""
    warn(message, ConvergenceWarning)


class Options(NamedTuple):
    """Options of `fit` that are not options of a method."""

    restarts: int | None = None
    objective: Objective = "posterior"
    progressbar: bool = False
    start: Point | None = None  # the only start of the search


class Evidence(NamedTuple):
    """Log evidence with its standard error (0 if the method has none), and whether the method converged."""

    value: float
    standard_error: float
    converged: bool


class Search(NamedTuple):
    """Options of the search for hyperparameters by an evidence; the defaults are for a continuous evidence."""

    starts: int = 2  # default number
    kept: float = 0.0  # share of the optima that are continued with all rows; 0 for only the best
    tolerance: float = 0.1  # ascent of three steps, in nats, below which it ends: data cannot distinguish such points


class Solution(Protocol):
    """Output of ``run``, to be converted to a result."""

    def diagnosis(self) -> dict[str, object]:
        """Return attributes of the result: log_evidence, converged (0 or 1), message, and others of the method."""

    def tree(
        self, problem: Problem, attributes: dict[str, object], rng: Generator, draws: int | None = None
    ) -> xr.DataTree:
        """Return the result, in the schema of `bsvr_pp.inference.result`, with ``draws`` of f if the method draws."""


class _OfInstances(_ProtocolMeta):
    """Only instances satisfy a protocol, although their class has the same attributes."""

    def __instancecheck__(cls, instance: object) -> bool:
        return not isinstance(instance, type) and super().__instancecheck__(instance)


@runtime_checkable
class Method(Protocol, metaclass=_OfInstances):
    """A method that `fit` and the estimators run: all except `Annealed`."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @property
    def name(self) -> str:
        """Name in tables, unique among methods with other options."""

    @property
    def latent(self) -> IntegratesLatent | None:
        """The approximation that integrates the latent function out, if one does."""

    def run(self, problem: Problem, given: Point, options: Options, rng: Generator) -> Solution:
        """Infer everything that is not in ``given``."""


@runtime_checkable
class IntegratesLatent(Integrator, Method, Protocol):
    """A Gaussian posterior of f at given hyperparameters: `Laplace`, `MeanField`, and classes that inherit from this.

    ``NUTS(latent=...)`` and other options of methods, `log_evidence`, plots and folders of rows require it. A class
    that inherits from it needs a name, ``solve``, ``core`` or ``evidence_graph``, and ``run = at_optimum``.
    """

    @property
    def latent(self) -> IntegratesLatent:
        """The method itself."""
        return self

    @property
    def search(self) -> Search:
        """Options of the search for hyperparameters by the evidence."""
        return Search()

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Return the log evidence of ``solve``; -inf if it did not converge."""
        found = self.solve(K, y, noise, mean)
        return Evidence(float(found.log_evidence) if found.converged else -np.inf, 0.0, found.converged)

    def check_sampling(self, problem: Problem) -> None:
        """Warn if samplers fail on the evidence of this model."""
        return


@runtime_checkable
class MatchesMoments(IntegratesLatent, Protocol):
    """Sites with the moments of the factors, up to a ``mismatch``: cavities predict rows like fits without them."""

    mismatch: float


@runtime_checkable
class Integrates(Method, Protocol):
    """Predictions averaged over points of the hyperparameters around an optimum: `Integrated`."""

    def around[Found: Solution](
        self, problems: Sequence[Problem], given: Point, found: Sequence[Found], rng: Generator
    ) -> list[Found]:
        """Return records of all points, the ``found`` optimum first; the problems share their kernel."""


def check_latent(latent: object, instead: str = "") -> None:
    """Check the ``latent`` option of a method; ``instead`` says what else it may be."""
    if not isinstance(latent, IntegratesLatent):
        raise TypeError(f"latent must {instead}integrate f out, as Laplace() and MeanField() do, got {latent!r}")


@runtime_checkable
class Anneals(Protocol, metaclass=_OfInstances):
    """An estimate by draws of f, the reference for approximations: `Annealed`."""

    def posterior(
        self, K: Covariance, y: Array | None, likelihood: NoiseModel | LogLikelihood, mean: Array, rng: Generator
    ) -> AnnealedPosterior:
        """Return draws of f and the log evidence."""

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Return the log evidence with its standard error."""


HasEvidence = IntegratesLatent | Anneals  # at given hyperparameters: what `log_evidence` accepts


@runtime_checkable
class Samples(Method, Protocol):
    """Draws of the hyperparameters, and of f if ``latent`` is None: `NUTS` and `Exchange`."""

    draws: int  # per chain, after
    tune: int  # steps of adaptation
    chains: int


@runtime_checkable
class Normalises(Method, Protocol):
    """Hyperparameters of labels by a normalised evidence, of a ``kind``: `NormalisedEvidence` and `Exchange`."""

    kind: str


def attributes_of(method: Method, objective: Objective = "posterior") -> dict[str, object]:
    """Return the attributes of a result that say how it was made."""
    return {"inference": method.name, "method": json.dumps(to_record(method)), "objective": objective}


def to_record(method: Method) -> dict[str, object]:
    """Convert a method to a record of names and numbers, for a file."""
    record: dict[str, object] = {"method": type(method).__name__, "module": type(method).__module__}
    for option in fields(method):
        value = getattr(method, option.name)
        value = value.item() if hasattr(value, "item") else value  # a number of NumPy
        record[option.name] = to_record(value) if isinstance(value, Method) else value
    return record
