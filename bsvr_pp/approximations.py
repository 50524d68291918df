"""The posterior of f at given hyperparameters, on arrays: the public path of `bsvr_pp.core.approximations`."""

from bsvr_pp.core import approximations as _approximations
from bsvr_pp.core.approximations import *

__all__ = [*_approximations.__all__]
