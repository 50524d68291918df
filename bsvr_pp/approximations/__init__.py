"""Approximations of the posterior of the latent function at fixed hyperparameters, as functions of arrays."""

from bsvr_pp.approximations.annealed import AnnealedPosterior, annealed, reverse_annealed
from bsvr_pp.approximations.block_diagonal import BlockDiagonal
from bsvr_pp.approximations.covariance import Covariance
from bsvr_pp.approximations.laplace import Gradient, laplace, laplace_gradient
from bsvr_pp.approximations.mean_field import mean_field, mean_field_gradient, mean_field_trace
from bsvr_pp.approximations.mode import Mode, find_mode
from bsvr_pp.approximations.nearest import NearestMoments, nearest_moments
from bsvr_pp.approximations.posterior import LatentPosterior
from bsvr_pp.approximations.warm_start import EvidencePath

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
