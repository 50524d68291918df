"""Many blocks at once in JAX.

The iterations of a batch go on until its slowest block has converged, so that they are few: the compiled core solves
the blocks that need more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bsvr_pp._device import Device
from bsvr_pp.approximations._jax import register
from bsvr_pp.approximations.batches import Batch, batches
from bsvr_pp.approximations.jax_outcome import Found
from bsvr_pp.approximations.jax_solve import solve
from bsvr_pp.approximations.posterior import LatentPosterior
from bsvr_pp.covariance.block_diagonal import BlockDiagonal
from bsvr_pp.losses import NoiseModel
from bsvr_pp.losses.noise import check_targets

__all__ = ["posteriors_of_blocks", "solve_batch", "working_on"]

Array = NDArray[np.float64]

_MOST = {"laplace_local": 60, "mean_field": 25}  # iterations of a batch, which take about the same time


@contextmanager
def working_on(device: Device) -> Iterator[Callable[[Any], Any]]:
    """Compute on a device in double precision; gives a function that puts arrays there.

    Raises
    ------
    MemoryError
        If a batch does not fit into the memory of the device.
    """
    register()
    handle = device.handle
    try:
        with jax.default_device(handle):
            yield lambda array: jax.device_put(array, handle)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            f"the memory of {handle.device_kind} is too small for these blocks: use smaller ones"
        ) from None


def solve_batch(
    approximation: str,
    loss: str,
    K: Any,
    t: Any,
    y: Any,
    parameters: Any,
    used: Any,
    start: Any = None,
    **options: Any,
) -> Found:
    """Solve a batch of b problems of m rows, as `bsvr_pp.approximations.jax_solve.solve`.

    Parameters
    ----------
    approximation : str
        Key of `bsvr_pp.approximations.jax_solve.SOLVERS`.
    loss : str
        Key of `bsvr_pp.losses.LOSSES`.
    K : (b, m, m) array
        Prior covariances.
    t, y : (b, m) arrays
        Targets minus prior mean, and targets.
    parameters : (b, p, k) array
        Parameters of the loss, k = 1 or m, and after them the sample weights, if there are any.
    used : (b, m) array of bool
        Rows that are data.
    start : (b, 2, m) array, optional
        Dual coefficients and site precisions from which the solves begin.
    **options
        Options of the solver, other than its limits.
    """
    begin = jnp.zeros((t.shape[0], 2, t.shape[1])) if start is None else start
    arrays = K, t, y, parameters, used, begin
    one = partial(solve, approximation, loss, **options)
    if t.shape[0] == 1:  # libraries have other routines for batches
        return jax.tree.map(lambda x: x[None], one(*(x[0] for x in arrays)))
    return jax.vmap(partial(one, max_iterations=_MOST[approximation], attempts=1))(*arrays)


@partial(jax.jit, static_argnames=("approximation", "loss"))
def _vectors(approximation: str, loss: str, *arrays: Any) -> Found:
    """What a posterior needs of `solve_batch`, without the gradient."""
    found = solve_batch(approximation, loss, *arrays)
    nothing = found.dual_coef[:, :0]
    return found._replace(by_K=nothing, by_residual=nothing, by_parameters=nothing)


def posteriors_of_blocks(
    approximation: str, K: BlockDiagonal, y: Array, noise: NoiseModel, mean: Array, show: Callable[[int], None]
) -> dict[int, LatentPosterior]:
    """Posteriors of the blocks that have converged, by their numbers, without factors.

    Parameters
    ----------
    approximation : str
        Key of `bsvr_pp.approximations.jax_solve.SOLVERS`.
    K : BlockDiagonal
        Prior covariance, with a `Stack`.
    y, mean : (n,) arrays
        Targets and prior mean.
    noise : NoiseModel
        The noise, of exact targets.
    show : callable
        Called with the number of blocks of each batch that is done.

    Raises
    ------
    ValueError
        If the targets are not those of the noise.
    """
    assert K.stack is not None
    check_targets(noise, y)
    t, given = y - mean, _given(noise)
    out: dict[int, LatentPosterior] = {}
    with working_on(K.stack.device):
        for batch in batches(K.rows, K.stack.device.memory):
            rows = batch.rows
            parameters = np.broadcast_to(given, (given.shape[0], y.size))[:, rows].swapaxes(0, 1)
            arrays = K.stack.make(rows), t[rows], y[rows], parameters, batch.used
            found = jax.tree.map(np.asarray, _vectors(approximation, noise.name, *arrays))
            out.update(_posteriors(batch, found, mean))
            show(batch.blocks.size)
    return out


def _given(noise: NoiseModel) -> Array:
    """Parameters of the noise and sample weights, (p, k)."""
    rows = noise.stacked_parameters()
    return rows if noise.weight is None else np.vstack(np.broadcast_arrays(*rows, noise.weight))


def _posteriors(batch: Batch, found: Found, mean: Array) -> Iterator[tuple[int, LatentPosterior]]:
    for place, block in enumerate(batch.blocks):
        if not found.converged[place]:
            continue
        used, here = batch.used[place], Found(*(values[place] for values in found))
        yield (
            int(block),
            LatentPosterior(
                dual_coef=here.dual_coef[used],
                site_precision=here.site_precision[used],
                mean=mean[batch.rows[place][used]] + here.shift[used],
                variance=here.variance[used],
                log_evidence=float(here.value),
                support=here.support[used] if here.support.size else here.support,
                converged=True,
                n_iter=int(here.iterations),
                duality_gap=float(here.gap),
                mismatch=float(here.mismatch),
                cavity_variance=here.cavity_variance[used],
                factor=None,  # type: ignore[arg-type]
            ),
        )
