"""Prior covariances of the latent function: a matrix or a root, or independent blocks; products, factors, draws."""
