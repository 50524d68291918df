"""The numerical core: losses, covariances and approximations on arrays, by NumPy and Numba, without PyTensor."""

__version__ = "0.1.0"
