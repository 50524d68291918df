"""The posterior of f at given hyperparameters, on arrays: the public path of `bsvr_pp.core.approximations`."""

from bsvr_pp.core.approximations import (
    BlockDiagonal,
    Covariance,
    LatentPosterior,
    annealed,
    find_mode,
    laplace,
    mean_field,
)

__all__ = ["BlockDiagonal", "Covariance", "LatentPosterior", "annealed", "find_mode", "laplace", "mean_field"]
