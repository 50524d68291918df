"""Evidences of blocks and their gradients by the hyperparameters, batch by batch on a device.

Kernel, solve and the gradient of the kernel are one compiled function of JAX. The gradient is the explicit one at the
solution, as in the compiled core: iterations are not differentiated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray

from bsvr_pp._device import Device
from bsvr_pp.approximations.batches import Batch, batches
from bsvr_pp.inference.protocol import Approximation
from bsvr_pp.model.on_device import prior_in_jax
from bsvr_pp.model.problem import Problem

__all__ = ["DeviceEvidence", "runs_on_device"]

Array = NDArray[np.float64]


def runs_on_device(problem: Problem, method: Approximation) -> bool:
    """Return whether the device of a problem computes its evidences by a method: not those of intervals."""
    return problem.device is not None and method.capabilities.on_device and problem.ends.kind == "exact"


class _OnDevice(NamedTuple):
    """A batch, with its inputs, targets and used rows on the device."""

    batch: Batch
    arrays: tuple[Any, Any, Any]


class DeviceEvidence:
    """Evidence and gradient of each block of a problem that runs on a device.

    Parameters
    ----------
    problem : Problem
        The problem, with a device.
    method : Approximation
        A method that runs there.
    """

    def __init__(self, problem: Problem, method: Approximation) -> None:
        from bsvr_pp.approximations.jax_blocks import working_on

        assert problem.device is not None
        self._device: Device = problem.device
        self._evaluate = problem.function(f"on a device by {method!r}", lambda: _compiled(problem, method))
        self._others = list(problem.data.values()), problem.prior.jitter
        rows = [np.arange(problem.targets.size)] if problem.blocks is None else list(problem.blocks)
        self._batches = []
        with working_on(self._device) as put:
            for batch in batches(rows, self._device.memory):
                arrays = put(problem.rows.matrix[batch.rows]), put(problem.targets[batch.rows]), put(batch.used)
                self._batches.append(_OnDevice(batch, arrays))

    def __call__(self, values: list[Array], starts: list[Array]) -> dict[int, list[Any]]:
        """Compute value, sites (2, m) and gradient by each hyperparameter of the blocks that have converged.

        Parameters
        ----------
        values : list of arrays
            Unconstrained hyperparameters.
        starts : list of (2, m) arrays
            Dual coefficients and site precisions of each block, from which the solves begin.

        Returns
        -------
        dict
            By the number of the block: a list as the compiled function of a block on the processor returns it.
        """
        from bsvr_pp.approximations.jax_blocks import working_on

        out: dict[int, list[Any]] = {}
        with working_on(self._device):
            for batch, arrays in self._batches:
                begin = np.zeros((len(batch.rows), 2, batch.rows.shape[1]))
                for place, block in enumerate(batch.blocks):
                    begin[place][:, batch.used[place]] = starts[block]
                found = self._evaluate(values, *arrays, begin, *self._others)
                value, sites, converged, *gradient = (np.asarray(x) for x in found)
                for place, block in enumerate(batch.blocks):
                    if converged[place]:
                        own = sites[place][:, batch.used[place]]
                        out[int(block)] = [value[place], own, *(g[place] for g in gradient)]
        return out


def _compiled(problem: Problem, method: Approximation) -> Any:
    """Compile the evidences of a batch: kernel, solve and gradient."""
    import jax
    import jax.numpy as jnp

    from bsvr_pp.approximations.jax_blocks import solve_batch
    from bsvr_pp.approximations.jax_solve import by_parameters

    prior, loss = prior_in_jax(problem), problem.loss.name
    nodes = method.evidence_graph(loss, pt.matrix(), pt.vector(), pt.vector(), [pt.scalar()], pt.matrix())
    op = nodes[0].owner.op
    options = {"target": op.mismatch} if op.approximation == "mean_field" else {}  # that of a search

    def of_batch(values: Any, inputs: Any, y: Any, used: Any, starts: Any, data: Any, jitter: Any) -> tuple[Any, ...]:
        K, mean, parameters = jax.vmap(lambda rows: prior.at(*values, rows, *data))(inputs)
        K = K + jitter * jnp.eye(K.shape[1])
        found = solve_batch(op.approximation, loss, K, y - mean, y, parameters, used, starts, **options)
        by_mean = -found.by_residual
        if mean.shape[1] == 1:
            by_mean = by_mean.sum(axis=1, keepdims=True)
        along = found.by_K, by_mean, by_parameters(found, parameters)
        gradient = jax.vmap(lambda rows, *by: prior.pull(*values, rows, *data, *by))(inputs, *along)
        sites = jnp.stack([found.dual_coef, found.site_precision], axis=1)
        return found.value, sites, found.converged, *gradient

    return jax.jit(of_batch)
