"""Losses as tables of quadratic pieces, and the corresponding noise models.

The functions work on arrays and do not need PyMC. Each loss of the registry has a function of its name here, which
makes its noise model.
"""

from typing import TYPE_CHECKING

from bsvr_pp.losses.noise import NoiseModel, noise_function
from bsvr_pp.losses.registry import LOSSES, NOISES, Loss

__all__ = ["LOSSES", "NOISES", "Loss", "NoiseModel", "noise_function", *LOSSES]

globals().update({name: noise_function(name) for name in LOSSES})

if TYPE_CHECKING:
    from collections.abc import Callable

    def __getattr__(name: str) -> Callable[..., NoiseModel]: ...
