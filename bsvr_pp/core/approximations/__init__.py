"""Approximations of the posterior of the latent function at fixed hyperparameters, as functions of arrays."""

from bsvr_pp.core.approximations.gradient import EvidencePath, Gradient, laplace_gradient, mean_field_gradient
from bsvr_pp.core.approximations.laplace import laplace
from bsvr_pp.core.approximations.mean_field import mean_field, mean_field_trace
from bsvr_pp.core.approximations.mode import Mode, find_mode
from bsvr_pp.core.approximations.nearest import NearestMoments, nearest_moments
from bsvr_pp.core.approximations.posterior import LatentPosterior
from bsvr_pp.core.approximations.smc import AnnealedPosterior, annealed, reverse_annealed
from bsvr_pp.core.covariance import BlockDiagonal, Covariance

__all__ = [
    "AnnealedPosterior",
    "BlockDiagonal",
    "Covariance",
    "EvidencePath",
    "Gradient",
    "LatentPosterior",
    "Mode",
    "NearestMoments",
    "annealed",
    "find_mode",
    "laplace",
    "laplace_gradient",
    "mean_field",
    "mean_field_gradient",
    "mean_field_trace",
    "nearest_moments",
    "reverse_annealed",
]
