"""Kernels beside those of `pm.gp.cov`: the public path of `bsvr_pp.model.kernels`."""

from bsvr_pp.model.kernels import MainEffects, RationalQuadratic

__all__ = ["MainEffects", "RationalQuadratic"]
