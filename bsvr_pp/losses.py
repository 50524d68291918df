"""Losses as tables of quadratic pieces, and their noise models: the public path of `bsvr_pp.core.losses`."""

from bsvr_pp.core import losses as _losses
from bsvr_pp.core.losses import *

__all__ = [*_losses.__all__]
__getattr__ = _losses.__getattr__
