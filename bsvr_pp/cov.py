"""Kernels that `pm.gp.cov` does not have: the public path of `bsvr_pp.model.kernels`."""

from bsvr_pp.model.kernels import MainEffects, RationalQuadratic

__all__ = ["MainEffects", "RationalQuadratic"]
