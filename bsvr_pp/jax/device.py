"""A device of JAX, which solves many blocks at once: a GPU, or any other that JAX knows.

Experimental: not measured on a GPU. Kernel, solve and the gradient of the kernel are one compiled function. The
gradient is the explicit one at the solution, as in the compiled core: iterations are not differentiated. Blocks that
have not converged in few sweeps are left to the core.

Blocks are solved in batches of one size. A block is filled up to one of a few sizes, so that few shapes are compiled,
by copies of its first row that have no site, and a batch by copies of its first block, whose results are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytensor.tensor as pt
from numpy.typing import NDArray

from bsvr_pp._arrays import Array, Rows
from bsvr_pp._device import Device
from bsvr_pp.approximations import LatentPosterior
from bsvr_pp.covariance.block_diagonal import progress_of_blocks
from bsvr_pp.jax.back_end import Prior, prior_at, prior_with_gradient
from bsvr_pp.jax.solve import Found, by_parameters, solve_batch
from bsvr_pp.model.problem import Problem

_MATRICES, _VECTORS = 16, 1000  # of the size of a block that a solve with its gradient holds at a time, with a reserve
_STEPS = 2  # sizes between a number and its double
_MULTIPLE = 8
_SHARE_OF_DEVICE, _SHARE_OF_PROCESSOR = 0.7, 0.25  # of the memory, that a batch may take


def has_gpu() -> bool:
    """Return whether JAX has a GPU."""
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # what JAX raises where there is none
        return False


@dataclass(frozen=True, slots=True)
class JaxDevice(Device):
    """The first device of a platform of JAX: "gpu", or None for the default one, which may be the processor."""

    platform: str | None

    @property
    def handle(self) -> Any:
        """The device, as JAX names it."""
        return jax.devices(self.platform)[0] if self.platform else jax.devices()[0]

    @property
    def memory(self) -> float:
        """Number of bytes that a batch may take."""
        known = self.handle.memory_stats() or {}
        if "bytes_limit" in known:
            return _SHARE_OF_DEVICE * float(known["bytes_limit"])
        return _SHARE_OF_PROCESSOR * float(psutil.virtual_memory().available)

    def posteriors(self, problem: Problem, method: Any, point: Any, progress: str = "") -> dict[int, LatentPosterior]:
        """Posteriors of the blocks that have converged; none by another method than mean field, or of intervals."""
        if not _can(problem, method):
            return {}
        solve = problem.function("posteriors in JAX", lambda: _posteriors(problem))
        values, others = problem.arguments(point)[: len(problem.variables)], _others(problem)
        out: dict[int, LatentPosterior] = {}
        with progress_of_blocks(progress, len(_rows(problem))) as advance, self.working() as put:
            for batch in batches(_rows(problem), self.memory):
                found = solve(values, *(put(array) for array in _arrays(problem, batch)), *others)
                out.update(_unpacked(batch, *jax.tree.map(np.asarray, found)))
                advance(batch.blocks.size)
        return out

    def evidences(self, problem: Problem, method: Any) -> Evidences | None:
        """Evidences and gradients of the blocks that have converged; None as in `posteriors`."""
        return Evidences(self, problem, method) if _can(problem, method) else None

    @contextmanager
    def working(self) -> Iterator[Callable[[Any], Any]]:
        """Compute here; gives a function that puts arrays here.

        Raises
        ------
        MemoryError
            If a batch does not fit into the memory.
        """
        handle = self.handle
        try:
            with jax.default_device(handle):
                yield lambda array: jax.device_put(array, handle)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise MemoryError(
                f"the memory of {handle.device_kind} is too small for these blocks: use smaller ones"
            ) from None


class Evidences:
    """Evidence and gradient of each block of a problem, with inputs and targets kept on the device."""

    def __init__(self, device: JaxDevice, problem: Problem, method: Any) -> None:
        self._device, self._others = device, _others(problem)
        self._evaluate = problem.function(f"evidences in JAX by {method!r}", lambda: _evidences(problem, method))
        with device.working() as put:
            of_blocks = batches(_rows(problem), device.memory)
            self._batches = [(batch, [put(array) for array in _arrays(problem, batch)]) for batch in of_blocks]

    def __call__(self, values: list[Array], starts: list[Array]) -> dict[int, list[Any]]:
        """Value, sites (2, m) and gradients of the blocks that have converged, by their numbers."""
        out: dict[int, list[Any]] = {}
        with self._device.working():
            for batch, arrays in self._batches:
                begin = np.zeros((len(batch.rows), 2, batch.rows.shape[1]))
                for place, block in enumerate(batch.blocks):
                    begin[place][:, batch.used[place]] = starts[block]
                found = self._evaluate(values, *arrays, *self._others, begin)
                _, _, converged, *_ = found = [np.asarray(x) for x in found]
                for block, used, (value, sites, _, *gradient) in _converged(batch, converged, found):
                    out[block] = [value, sites[:, used], *gradient]
        return out


def _can(problem: Problem, method: Any) -> bool:
    return bool(method.capabilities.on_device) and problem.ends.kind == "exact"


def _rows(problem: Problem) -> list[Rows]:
    """Row numbers of each block, of all rows if there are no blocks."""
    return [np.arange(problem.targets.size)] if problem.blocks is None else list(problem.blocks)


def _arrays(problem: Problem, batch: Batch) -> tuple[Any, ...]:
    return problem.rows.matrix[batch.rows], problem.targets[batch.rows], batch.used


def _others(problem: Problem) -> tuple[list[Array], Any]:
    """Arguments that are the same for all batches: the data of the model, and the jitter."""
    return list(problem.data.values()), problem.prior.jitter


def _priors(at: Prior, values: Any, inputs: Any, data: Any, jitter: Any) -> tuple[Any, Any, Any]:
    """Prior covariances (b, m, m), prior means, and parameters of the loss of a batch."""
    K, mean, parameters = jax.vmap(lambda rows: at(*values, rows, *data))(inputs)
    return K + jitter * jnp.eye(K.shape[1]), mean, parameters


def _posteriors(problem: Problem) -> Any:
    """Compile the means and the solves of a batch, at constrained hyperparameters, without gradients."""
    at, loss = prior_at(problem), problem.loss.name

    def of_batch(values: Any, inputs: Any, y: Any, used: Any, data: Any, jitter: Any) -> tuple[Any, Found]:
        K, mean, parameters = _priors(at, values, inputs, data, jitter)
        start = jnp.zeros((y.shape[0], 2, y.shape[1]))
        found = solve_batch(loss, K, y - mean, y, parameters, used, start)
        return mean + found.shift, found._replace(by_K=y[:, :0], by_parameters=y[:, :0])

    return jax.jit(of_batch)


def _unpacked(batch: Batch, mean: Array, found: Found) -> Iterator[tuple[int, LatentPosterior]]:
    for block, used, (shifted, here) in _converged(batch, found.converged, (mean, found)):
        posterior = LatentPosterior(
            dual_coef=here.dual_coef[used],
            site_precision=here.site_precision[used],
            mean=shifted[used],
            variance=here.variance[used],
            log_evidence=float(here.value),
            support=np.zeros(0, dtype=np.int64),
            converged=True,
            n_iter=int(here.iterations),
            duality_gap=0.0,
            mismatch=float(here.mismatch),
            cavity_variance=here.cavity_variance[used],
            factor=None,  # type: ignore[arg-type]
        )
        yield block, posterior


def _converged(batch: Batch, converged: Array, arrays: Any) -> Iterator[tuple[int, Any, Any]]:
    """Number, rows that are no copies, and what the arrays hold, of each block that has converged."""
    for place, block in enumerate(batch.blocks):
        if converged[place]:
            yield int(block), batch.used[place], jax.tree.map(itemgetter(place), arrays)


def _evidences(problem: Problem, method: Any) -> Any:
    """Compile the evidences of a batch at unconstrained hyperparameters: kernel, solve and gradient."""
    (at, pull), loss = prior_with_gradient(problem), problem.loss.name
    graph = method.evidence_graph(loss, pt.matrix(), pt.vector(), pt.vector(), [pt.scalar()], pt.matrix())[0]
    target = graph.owner.op.mismatch  # that of a search

    def of_batch(values: Any, inputs: Any, y: Any, used: Any, data: Any, jitter: Any, start: Any) -> tuple[Any, ...]:
        K, mean, parameters = _priors(at, values, inputs, data, jitter)
        found = solve_batch(loss, K, y - mean, y, parameters, used, start, target=target)
        by_mean = -found.by_residual
        if mean.shape[1] == 1:
            by_mean = by_mean.sum(axis=1, keepdims=True)
        along = found.by_K, by_mean, by_parameters(found, parameters)
        gradient = jax.vmap(lambda rows, *by: pull(*values, rows, *data, *by))(inputs, *along)
        return found.value, found.sites, found.converged, *gradient

    return jax.jit(of_batch)


class Batch(NamedTuple):
    """Numbers of c blocks, row numbers (b, m) of b >= c blocks, these first, and which rows are no copies (b, m)."""

    blocks: Rows
    rows: Rows
    used: NDArray[np.bool_]


def common_size(n: int) -> int:
    """Size to which a block of n rows is filled up."""
    size = 2.0 ** (np.ceil(_STEPS * np.log2(n)) / _STEPS)
    return int(_MULTIPLE * np.ceil(size / _MULTIPLE - 1e-9))


def memory_of(size: int) -> float:
    """Number of bytes that a block of a common size takes on a device."""
    return 8.0 * (_MATRICES * size + _VECTORS) * size


def batches(rows: Sequence[Rows], memory: float) -> list[Batch]:
    """Divide blocks, given by their row numbers, into batches of so many bytes; a single one is not filled up."""
    if len(rows) == 1:
        return [Batch(np.zeros(1, dtype=np.int64), rows[0][None], np.ones((1, rows[0].size), dtype=bool))]
    sizes = np.array([common_size(block.size) for block in rows])
    out = []
    for size in np.unique(sizes):
        members = np.flatnonzero(sizes == size)
        most = max(1, int(memory / memory_of(size)))
        count = -(-members.size // most)
        width = -(-members.size // count)
        for first in range(0, members.size, width):
            blocks = members[first : first + width]
            filled = np.concatenate([blocks, np.full(width - blocks.size, blocks[0])])
            numbers = np.stack([np.pad(rows[b], (0, size - rows[b].size), constant_values=rows[b][0]) for b in filled])
            used = np.arange(size) < np.array([rows[b].size for b in filled])[:, None]
            out.append(Batch(blocks, numbers, used))
    return out
