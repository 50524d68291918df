"""Mean field of many blocks at once in JAX.

The sweeps of a batch go on until its slowest block has converged, so that they are few: the compiled core solves the
blocks that need more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bsvr_pp._device import Device
from bsvr_pp.approximations._jax import register
from bsvr_pp.approximations.batches import Batch, batches
from bsvr_pp.approximations.jax_mean_field import MAX_SWEEPS, TARGET, Found, mean_field
from bsvr_pp.approximations.jax_pieces import table
from bsvr_pp.approximations.posterior import LatentPosterior
from bsvr_pp.losses.arguments import check_targets

if TYPE_CHECKING:
    from bsvr_pp.approximations.block_diagonal import BlockDiagonal
    from bsvr_pp.losses import NoiseModel

__all__ = ["mean_field_of_blocks", "mean_fields", "working_on"]

Array = NDArray[np.float64]

_SWEEPS = 25  # of a batch


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


def mean_fields(
    loss: str, K: Any, t: Any, y: Any, parameters: Any, used: Any, start: Any = None, target: float = TARGET
) -> Found:
    """Fixed points of a batch of b problems of m rows, as `bsvr_pp.approximations.jax_mean_field.mean_field`.

    Parameters
    ----------
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
        Dual coefficients and site precisions from which the sweeps begin.
    target : float
        Moment mismatch that ends the sweeps.
    """
    alone = t.shape[0] == 1
    sweeps, attempts = (MAX_SWEEPS, 2) if alone else (_SWEEPS, 1)
    begin = jnp.zeros((t.shape[0], 2, t.shape[1])) if start is None else start

    def one(K: Any, t: Any, y: Any, parameters: Any, used: Any, begin: Any) -> Found:
        pieces = table(loss, parameters, y)
        return mean_field(K, t, pieces, used, begin, target=target, max_sweeps=sweeps, attempts=attempts)

    if alone:  # libraries have other routines for batches
        found = one(*(x[0] for x in (K, t, y, parameters, used, begin)))
        return jax.tree.map(lambda x: x[None], found)
    return jax.vmap(one)(K, t, y, parameters, used, begin)


@partial(jax.jit, static_argnames=("loss",))
def _vectors(loss: str, K: Any, t: Any, y: Any, parameters: Any, used: Any) -> dict[str, Any]:
    """What a posterior needs of `mean_fields`."""
    found = mean_fields(loss, K, t, y, parameters, used)
    names = "value", "dual_coef", "site_precision", "shift", "variance", "cavity_variance", "sweeps", "mismatch"
    return {"converged": found.converged, **{name: getattr(found, name) for name in names}}


def mean_field_of_blocks(
    K: BlockDiagonal, y: Array, noise: NoiseModel, mean: Array, show: Callable[[int], None]
) -> dict[int, LatentPosterior]:
    """Posteriors of the blocks that have converged, by their numbers, without factors and supports.

    Parameters
    ----------
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
            found = _vectors(noise.name, K.stack.make(rows), t[rows], y[rows], parameters, batch.used)
            out.update(_posteriors(batch, {name: np.asarray(value) for name, value in found.items()}, mean))
            show(batch.blocks.size)
    return out


def _given(noise: NoiseModel) -> Array:
    """Parameters of the noise and sample weights, (p, k)."""
    rows = noise.stacked_parameters()
    return rows if noise.weight is None else np.vstack(np.broadcast_arrays(*rows, noise.weight))


def _posteriors(batch: Batch, found: dict[str, Array], mean: Array) -> Iterator[tuple[int, LatentPosterior]]:
    for place, block in enumerate(batch.blocks):
        if not found["converged"][place]:
            continue
        used = batch.used[place]
        vectors = {
            name: found[name][place][used] for name in ("dual_coef", "site_precision", "variance", "cavity_variance")
        }
        yield (
            int(block),
            LatentPosterior(
                **vectors,
                mean=mean[batch.rows[place][used]] + found["shift"][place][used],
                log_evidence=float(found["value"][place]),
                support=np.empty(0, dtype=np.int64),
                converged=True,
                n_iter=int(found["sweeps"][place]),
                duality_gap=0.0,
                mismatch=float(found["mismatch"][place]),
                factor=None,  # type: ignore[arg-type]
            ),
        )
