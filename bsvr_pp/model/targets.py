"""The observed variable of a model: its loss, location, parameters, sample weights, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm

from bsvr_pp.losses import Loss
from bsvr_pp.model.ends import Ends, ends_of
from bsvr_pp.model.observation import noise_of
from bsvr_pp.model.weighted_targets import unweighted

__all__ = ["ModelError", "noise_in"]


class ModelError(ValueError):
    """The inference cannot be applied to the model; the message states what to change."""


def noise_in(model: pm.Model) -> tuple[Any, Loss, Any, Sequence[Any], Any, Ends]:
    """Find the targets, their loss, its location and parameters, sample weights, and what is known of the targets."""
    missing = [v.name for v in model.free_RVs if v.name.endswith("_unobserved")]
    if missing:
        raise ModelError(
            f"the targets have missing values ({missing[0]}): drop those rows, and predict them afterwards"
        )
    if len(model.observed_RVs) != 1:
        names = ", ".join(v.name for v in model.observed_RVs) or "none"
        raise ModelError(f"the model must have one observed variable, the targets; it has {names}")
    target = model.observed_RVs[0]
    single, weight = unweighted(target)
    ends = ends_of(single)
    noise = noise_of(ends.noise)
    if noise is None or (ends.kind != "exact" and noise[0].classification):
        kind = getattr(ends.noise.owner.op, "name", None) or type(ends.noise.owner.op).__name__
        raise ModelError(
            f"the noise of {target.name} is {kind}: use bp.SoftInsensitive, bp.EpsilonInsensitive, bp.Huber, "
            "bp.SVMLabel, pm.Laplace, pm.AsymmetricLaplace or pm.Normal"
        )
    return target, *noise, weight, ends
