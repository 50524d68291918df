"""Prior covariances of the latent function: a matrix or a root, or independent blocks; products, factors, draws."""

from bsvr_pp.core.covariance.block_diagonal import BlockDiagonal
from bsvr_pp.core.covariance.covariance import Covariance

__all__ = ["BlockDiagonal", "Covariance"]
