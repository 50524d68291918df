"""The memory of a fit, checked before it starts: a fit that needs more than the free memory is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
from joblib import cpu_count

from bsvr_pp.inference.protocol import Method, Samples

NO_BLOCKS = "labels that are normalised together have no blocks, fit fewer rows"

_MATRICES = 6.5  # of n² numbers at once, in the gradient of the kernel: Laplace at 8192 rows took 3.1 GiB
_IN_BLOCKS = "cut the rows into blocks, gp.prior(blocks=bp.local_blocks(X))"


def check_budget(method: Method, n: int, *, divisible: bool = True, blocks: float = 1, rank: int | None = None) -> None:
    """Raise a MemoryError if a fit exceeds free memory; ``divisible`` is whether the model could have blocks."""
    n_parts = blocks if rank is None else n / rank
    side_by_side = min(method.chains, cpu_count()) if isinstance(method, Samples) else 1
    needed = 8.0 * (n / n_parts) ** 2 * _MATRICES * side_by_side
    check_memory(method.name, n, _IN_BLOCKS if divisible else NO_BLOCKS, needed=needed)


def check_memory(name: str, n: int, remedy: str, *, needed: float | None = None) -> None:
    """Raise a MemoryError if a dense fit of n rows, or ``needed`` bytes, exceed free memory."""
    free, needed = available_memory(), 8.0 * n**2 * _MATRICES if needed is None else needed
    if needed > free:
        raise MemoryError(
            f"{name} at {n} rows needs about {needed / 1e9:.1f} GB of memory, "
            f"and {free / 1e9:.1f} GB are free: {remedy}"
        )


def available_memory() -> float:
    """Return free memory in bytes: the minimum for the machine, the control group (container) and the process."""
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
    """Return files with the limit and the usage of each control group (version 2) of this process."""
    root, of_process = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
    try:
        paths = [line.removeprefix("0::/") for line in of_process.read_text().splitlines() if line.startswith("0::/")]
    except OSError:
        return []
    folders = [folder for path in paths for folder in ((root / path), *(root / path).parents)]
    return [(folder / "memory.max", folder / "memory.current") for folder in folders if folder.is_relative_to(root)]
