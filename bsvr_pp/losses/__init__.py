"""Losses as tables of quadratic pieces, and the corresponding noise models.

The functions work on arrays and do not need PyMC.
"""

from typing import Any

from bsvr_pp.losses.functions import (
    epsilon_insensitive,
    gaussian,
    hinge,
    huber,
    laplace,
    noise_function,
    pinball,
    soft_insensitive,
)
from bsvr_pp.losses.noise import NoiseModel
from bsvr_pp.losses.tables import LOSSES, NOISES, Loss

__all__ = [
    "LOSSES",
    "NOISES",
    "Loss",
    "NoiseModel",
    "epsilon_insensitive",
    "gaussian",
    "hinge",
    "huber",
    "laplace",
    "pinball",
    "soft_insensitive",
]


def __getattr__(name: str) -> Any:
    """The function that makes the noise model of a loss of the registry."""
    if name in LOSSES:
        return noise_function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
