"""Prior covariances of the latent function: a matrix or a root, or independent blocks; products, factors, draws."""

from bsvr_pp.core.covariance.covariance import BlockDiagonal, Covariance

__all__ = ["BlockDiagonal", "Covariance"]
