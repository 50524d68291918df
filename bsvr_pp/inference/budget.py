"""Estimates of time and memory of a fit before it starts; their constants are from `benchmarks/results.md`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import psutil
from joblib import cpu_count

from bsvr_pp.inference.protocol import Method, Samples

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
