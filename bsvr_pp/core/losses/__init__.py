"""Losses as tables of quadratic pieces, and the corresponding noise models.

The functions work on arrays and do not need PyMC. Each loss of the registry has a function of its name here, which
makes its noise model.
"""

from collections.abc import Callable

from bsvr_pp.core.losses.noise import NoiseModel, noise_function
from bsvr_pp.core.losses.registry import LOSSES

__all__ = [
    "LOSSES",
    "NoiseModel",
    "absolute",
    "epsilon_insensitive",
    "gaussian",
    "hinge",
    "huber",
    "pinball",
    "soft_insensitive",
]

soft_insensitive = noise_function("soft_insensitive")
epsilon_insensitive = noise_function("epsilon_insensitive")
huber = noise_function("huber")
absolute = noise_function("absolute")
gaussian = noise_function("gaussian")
pinball = noise_function("pinball")
hinge = noise_function("hinge")


def __getattr__(name: str) -> Callable[..., NoiseModel]:
    """Return the function of any other loss of the registry."""
    if name in LOSSES:
        return noise_function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
