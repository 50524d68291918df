"""Approximations of the posterior of the latent function at fixed hyperparameters, as functions of arrays."""

from bsvr_pp.core.approximations.laplace import laplace, laplace_gradient
from bsvr_pp.core.approximations.mean_field import mean_field, mean_field_gradient
from bsvr_pp.core.approximations.mode import Mode, find_mode
from bsvr_pp.core.approximations.posterior import LatentPosterior
from bsvr_pp.core.approximations.smc import annealed
from bsvr_pp.core.covariance.covariance import BlockDiagonal, Covariance

__all__ = [
    "BlockDiagonal",
    "Covariance",
    "LatentPosterior",
    "Mode",
    "annealed",
    "find_mode",
    "laplace",
    "laplace_gradient",
    "mean_field",
    "mean_field_gradient",
]
