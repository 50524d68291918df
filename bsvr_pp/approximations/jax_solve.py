"""The approximations that JAX computes, by their names as of `bsvr_pp.approximations.operation.LatentEvidence`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from bsvr_pp.approximations.jax_laplace import laplace_local
from bsvr_pp.approximations.jax_mean_field import mean_field
from bsvr_pp.approximations.jax_outcome import Found
from bsvr_pp.approximations.jax_pieces import table

__all__ = ["SOLVERS", "by_parameters", "solve"]

SOLVERS: dict[str, Callable[..., Found]] = {"laplace_local": laplace_local, "mean_field": mean_field}


def solve(
    approximation: str,
    loss: str,
    K: Array,
    t: Array,
    y: Array,
    parameters: Array,
    used: Array,
    start: Array,
    **limits: Any,
) -> Found:
    """Solve one problem.

    Parameters
    ----------
    approximation : str
        Key of `SOLVERS`.
    loss : str
        Key of `bsvr_pp.approximations.jax_pieces.TABLES`.
    K : (n, n) array
        Prior covariance.
    t, y : (n,) arrays
        Targets minus prior mean, and targets.
    parameters : (p, k) array
        Parameters of the loss, k = 1 or n, and after them the sample weights, if there are any.
    used : (n,) array of bool
        Rows that are data.
    start : (2, n) array
        Dual coefficients and site precisions from which the solve begins.
    **limits
        Options of the solver.
    """
    return SOLVERS[approximation](K, t, table(loss, parameters, y), used, start, **limits)


def by_parameters(found: Found, parameters: Array) -> Array:
    """Derivatives by the parameters as they were given, (..., p, k); 0 by the weights."""
    rows = found.by_parameters
    if parameters.shape[-1] == 1:
        rows = rows.sum(axis=-1, keepdims=True)
    weights = jnp.zeros((*rows.shape[:-2], parameters.shape[-2] - rows.shape[-2], rows.shape[-1]))
    return jnp.concatenate([rows, weights], axis=-2)
