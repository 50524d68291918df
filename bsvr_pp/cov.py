"""Kernels that `pm.gp.cov` does not have: the public path of `bsvr_pp.model.kernels` and `bsvr_pp.model.matrices`."""

from bsvr_pp.model.kernels import MainEffects, RationalQuadratic
from bsvr_pp.model.matrices import Precomputed

__all__ = ["MainEffects", "Precomputed", "RationalQuadratic"]
