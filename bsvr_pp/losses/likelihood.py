"""The log likelihood of a noise model for many draws of the latent function, with its derivatives.

It is computed from the table of pieces, by the same code for all losses. Annealing also accepts any other function that
maps f (draws, n) to log likelihoods (draws,), such as the normalisers of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._compiler import compiled
from bsvr_pp.losses.factors import row_of, site_derivatives, site_energy
from bsvr_pp.losses.pieces import Pieces

if TYPE_CHECKING:
    from bsvr_pp.losses import NoiseModel

__all__ = ["Differentiable", "NoiseLikelihood", "log_factors", "noise_likelihood"]

Array = NDArray[np.float64]


class Differentiable(Protocol):
    """A log likelihood with derivatives."""

    def __call__(self, f: Array) -> Array:
        """Log likelihood of each row of f (draws, n)."""

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Derivatives by f, (draws, n), and by each parameter, (draws,) if it is a number, else (draws, n)."""


@dataclass(frozen=True, slots=True)
class NoiseLikelihood:
    """Log p(y|f) of a noise model, for draws of f: ``residual`` (n,) is y, minus the prior mean if f is relative to it.

    The ``pieces`` are the energies of the points (`NoiseModel.sites`), the ``parameters`` of the loss numbers or (n,).
    """

    residual: Array
    pieces: Pieces
    parameters: Mapping[str, float | Array]

    def __call__(self, f: Array) -> Array:
        """Log likelihood of each row of f (draws, n)."""
        out: Array = _log_likelihoods(np.ascontiguousarray(f, dtype=np.float64), self.residual, self.pieces)
        return out

    def slopes(self, f: ArrayLike) -> tuple[Array, dict[str, Array]]:
        """Derivatives by f, (draws, n), and by each parameter, (draws,) if it is a number, else (draws, n).

        At a kink they are those from the right.
        """
        draws = np.ascontiguousarray(f, dtype=np.float64)
        by_f, by_parameter = _slopes(draws, self.residual, self.pieces)
        named = zip(self.parameters.items(), by_parameter, strict=True)
        return by_f, {name: slope if np.ndim(value) else slope.sum(axis=1) for (name, value), slope in named}


def noise_likelihood(noise: NoiseModel, y: ArrayLike) -> NoiseLikelihood:
    """Make the log likelihood of targets (n,), of labels -1 and +1 for `hinge`, under a noise model."""
    pieces = noise.sites(y)
    return NoiseLikelihood(noise.reference(np.asarray(y, dtype=np.float64)), pieces, noise.parameters)


@compiled
def _log_likelihoods(f: Array, residual: Array, pieces: Pieces) -> Array:
    out = np.zeros(f.shape[0])
    for p in range(f.shape[0]):
        for i in range(f.shape[1]):
            k = row_of(i, pieces)
            out[p] -= site_energy(residual[i] - f[p, i], k, pieces)[0] + pieces.log_normalizer[k]
    return out


@compiled
def log_factors(f: Array, t: Array, pieces: Pieces) -> Array:
    """Log of each factor p(y_i|f_i), for draws of f (draws, n)."""
    out = np.empty(f.shape)
    for p in range(f.shape[0]):
        for i in range(f.shape[1]):
            k = row_of(i, pieces)
            out[p, i] = -site_energy(t[i] - f[p, i], k, pieces)[0] - pieces.log_normalizer[k]
    return out


@compiled
def _slopes(f: Array, residual: Array, pieces: Pieces) -> tuple[Array, Array]:
    n_parameters = pieces.d_energy.shape[0]
    by_f, by_parameter, here = np.empty(f.shape), np.empty((n_parameters, *f.shape)), np.empty(n_parameters)
    for p in range(f.shape[0]):
        for i in range(f.shape[1]):
            by_f[p, i] = -site_derivatives(residual[i] - f[p, i], row_of(i, pieces), pieces, here)[1]
            for q in range(n_parameters):
                by_parameter[q, p, i] = here[q]
    return by_f, by_parameter
