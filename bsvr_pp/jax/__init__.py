"""Experimental: mean field in JAX, for NumPyro and for devices that solve many blocks at once. Not measured on a GPU.

Nothing imports this folder: `bsvr_pp._device.load_jax` loads it where JAX is installed. It then registers the
operations of this package in the JAX back end of PyTensor.
"""

from bsvr_pp.jax.device import JaxDevice, has_gpu

__all__ = ["JaxDevice", "has_gpu"]
