"""The interface of methods of inference, and the time and memory that they take.

A method is a frozen dataclass with its options, which `fit` runs. What it can do is a protocol, asked by isinstance; no
code outside the file of a method depends on its class or name. A method that integrates the latent function out at
given hyperparameters does so for arrays (``solve``) and as a PyTensor graph (``evidence_graph``), so that the
optimiser, `NUTS` and `marginalize` can use it. Constants of time and memory are from `benchmarks/results.md`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol, _ProtocolMeta, runtime_checkable

import numpy as np
import psutil
import xarray as xr
from joblib import cpu_count
from numpy.random import Generator

from bsvr_pp.core.approximations import Covariance
from bsvr_pp.core.approximations.smc import AnnealedPosterior, LogLikelihood
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.covariance.block_diagonal import AnyCovariance
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.model.marginalize import Integrator
from bsvr_pp.model.problem import Point, Problem

Objective = Literal["posterior", "evidence"]
NO_BLOCKS = "models of labels and intervals have no blocks, fit fewer rows"

_MATRICES = 6.5  # of n² numbers at once, in the gradient of the kernel; 8192 rows took 6.2 and 5.7 minutes
_EVALUATION = 0.16  # seconds for the evidence with its gradient at 2000 rows
_SEARCH = 65  # evaluations
_PER_DRAW = 8  # evaluations, with the latent function integrated out
_FULL_DRAW = 0.9  # seconds for a draw of full NUTS at 404 rows
_GROWTH = 2.5  # exponent of n
_LONG = 60.0  # seconds
_IN_BLOCKS = "cut the rows into blocks, gp.prior(blocks=bp.local_blocks(X))"
_LARGE = 0.25  # share of the memory


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


class Search(NamedTuple):
    """How hyperparameters are searched by an evidence; the defaults are for one that is continuous in them."""

    starts: int = 2  # their number, if it is not given
    kept: float = 0.0  # share of the optima that are continued with all rows; 0 for only the best
    tolerance: float = 0.1  # ascent of three steps, in nats, below which it ends: no data tell such points apart


class Solution(Protocol):
    """Output of ``run``, which is converted to a result."""

    def diagnosis(self) -> dict[str, object]:
        """Attributes of the result: log_evidence, converged (0 or 1), message, and others of the method."""

    def tree(
        self, problem: Problem, attributes: dict[str, object], rng: Generator, draws: int | None = None
    ) -> xr.DataTree:
        """The result, in the schema of `bsvr_pp.inference.result`; ``draws`` of f, if the method draws from it."""


class _OfInstances(_ProtocolMeta):
    """A class can do nothing, though it has the attributes of its instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return not isinstance(instance, type) and super().__instancecheck__(instance)


@runtime_checkable
class Method(Protocol, metaclass=_OfInstances):
    """What `fit` and the estimators run: all methods but `Annealed`."""

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

    Asked for by ``NUTS(latent=...)`` and other options of methods, `log_evidence`, plots and folders of rows. A class
    that inherits from it needs a name, ``solve``, ``core`` or ``evidence_graph``, and ``run = run_at_optimum``.
    """

    @property
    def latent(self) -> IntegratesLatent:
        """The method itself."""
        return self

    @property
    def search(self) -> Search:
        """How hyperparameters are searched by the evidence."""
        return Search()

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Log evidence of ``solve``; -inf if it did not converge."""
        found = self.solve(K, y, noise, mean)
        return Evidence(float(found.log_evidence) if found.converged else -np.inf, 0.0, found.converged)

    def check_sampling(self, problem: Problem) -> None:
        """Warn if samplers fail on the evidence of this model."""
        return


@runtime_checkable
class MatchesMoments(IntegratesLatent, Protocol):
    """Sites with the moments of the factors, up to a ``mismatch``; cavities predict rows as fits without them do."""

    mismatch: float


@runtime_checkable
class Averages(Method, Protocol):
    """Predictions averaged over several optima of the hyperparameters: `Committee`."""

    def members(self, points: Sequence[Point], objectives: Sequence[float]) -> list[int]:
        """Numbers of the optima that are averaged; the best is first."""


def check_latent(latent: object, instead: str = "") -> None:
    """Check the option of a method by which another integrates f out; ``instead`` says what else it may be."""
    if not isinstance(latent, IntegratesLatent):
        raise TypeError(f"latent must {instead}integrate f out, as Laplace() and MeanField() do, got {latent!r}")


@runtime_checkable
class Anneals(Protocol, metaclass=_OfInstances):
    """An estimate by draws of f, the reference for approximations: `Annealed`."""

    def posterior(
        self, K: Covariance, y: Array | None, likelihood: NoiseModel | LogLikelihood, mean: Array, rng: Generator
    ) -> AnnealedPosterior:
        """Draws of f and the log evidence."""

    def evidence(self, K: AnyCovariance, y: Array, noise: NoiseModel, mean: Array, rng: Generator) -> Evidence:
        """Log evidence with its standard error."""


HasEvidence = IntegratesLatent | Anneals  # at given hyperparameters: what `log_evidence` accepts


def check_evidence(method: object) -> None:
    """Check that a method has an evidence."""
    if not isinstance(method, HasEvidence):
        raise TypeError(f"method must have an evidence, as Laplace(), MeanField() and Annealed() have, got {method!r}")


@runtime_checkable
class Samples(Method, Protocol):
    """Draws of the hyperparameters, and of f where ``latent`` is None: `NUTS` and `Exchange`."""

    draws: int  # per chain, after
    tune: int  # steps of adaptation
    chains: int


@runtime_checkable
class Normalises(Method, Protocol):
    """Hyperparameters of labels by a normalised evidence, of a ``kind``: `NormalisedEvidence` and `Exchange`."""

    kind: str


def to_record(method: Method) -> dict[str, object]:
    """Convert a method to a record of names and numbers, for a file."""
    record: dict[str, object] = {"method": type(method).__name__, "module": type(method).__module__}
    for option in fields(method):
        value = getattr(method, option.name)
        value = value.item() if hasattr(value, "item") else value  # a number of NumPy
        record[option.name] = to_record(value) if isinstance(value, Method) else value
    return record


class Budget(NamedTuple):
    """Seconds and bytes that a fit takes."""

    seconds: float
    memory: float

    def __str__(self) -> str:
        """The estimate in words."""
        minutes = max(self.seconds / 60, 1)
        number = f"{minutes:.0f} {'minute' if round(minutes) == 1 else 'minutes'}"
        time = f"{minutes / 60:.1f} hours" if minutes > 100 else number
        return f"at least about {time} and {self.memory / 1e9:.1f} GB of memory"


def estimate(method: Method, n: int, *, search: bool = True, blocks: float = 1, rank: int | None = None) -> Budget:
    """Estimate time and memory for n rows; ``search`` is whether there are hyperparameters to optimise.

    A covariance of low ``rank`` takes as long as blocks of as many rows.
    """
    blocks = blocks if rank is None else n / rank
    parts = 1 if rank is None else blocks  # of f as it is sampled, which knows no blocks
    chains = method.chains if isinstance(method, Samples) else 1
    side_by_side = min(chains, cpu_count())
    evaluation = _EVALUATION * blocks * (n / blocks / 2000) ** _GROWTH
    seconds = evaluation * (_SEARCH if search else 1)
    if isinstance(method, Samples):
        full = _FULL_DRAW * parts * (n / parts / 404) ** _GROWTH
        draw = full if method.latent is None else _PER_DRAW * evaluation
        seconds = draw * (method.draws + method.tune) * chains / side_by_side
    return Budget(seconds, 8.0 * (n / blocks) ** 2 * _MATRICES * side_by_side)


def check_budget(
    method: Method, n: int, *, divisible: bool = True, search: bool = True, blocks: float = 1, rank: int | None = None
) -> None:
    """Warn if a fit takes more than a minute or a quarter of the free memory; a MemoryError if it does not fit.

    ``divisible`` is whether the model could have blocks; other options are those of `estimate`.
    """
    budget = estimate(method, n, search=search, blocks=blocks, rank=rank)
    remedy = _IN_BLOCKS if divisible else NO_BLOCKS
    free = check_memory(method.name, n, remedy, needed=budget.memory)
    if budget.seconds > _LONG or budget.memory > _LARGE * free:
        warnings.warn(f"{method.name} at {n} rows takes {budget}", UserWarning, stacklevel=4)


def check_memory(name: str, n: int, remedy: str, *, needed: float | None = None) -> float:
    """Return the free memory in bytes; a MemoryError if a dense fit of n rows does not fit into it."""
    free, needed = available_memory(), 8.0 * n**2 * _MATRICES if needed is None else needed
    if needed > free:
        raise MemoryError(
            f"{name} at {n} rows needs about {needed / 1e9:.1f} GB of memory, "
            f"and {free / 1e9:.1f} GB are free: {remedy}"
        )
    return free


def available_memory() -> float:
    """Free memory in bytes: the minimum for the machine, the control group (container) and the process."""
    free = float(psutil.virtual_memory().available)
    for limit, used in _control_groups():
        try:
            free = min(free, float(limit.read_text()) - float(used.read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    if sys.platform != "win32":
        import resource

        limit_of_process = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit_of_process != resource.RLIM_INFINITY:
            free = min(free, float(limit_of_process - psutil.Process().memory_info().vms))
    return max(free, 0.0)


def _control_groups() -> list[tuple[Path, Path]]:
    """Files with the limit and the usage of each control group of this process."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        inside = root / "memory" if controllers else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        place = inside / path.strip("/")
        for folder in (place, *(above for above in place.parents if above.is_relative_to(inside))):
            found.append((folder / names[0], folder / names[1]))
    return found
