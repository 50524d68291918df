"""Targets with sample weights in a PyMC model: the log density of each row is multiplied by its weight."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.abstract import _logprob

__all__ = ["WeightedTargetsRV", "observe_weighted", "unweighted"]


class WeightedTargetsRV(SymbolicRandomVariable):
    """Targets whose likelihood is p(y|f)^weight; draws are those of single targets.

    The inputs are those of the random variable of the targets, and the weights; ``base`` is its operation.
    """

    name = "weighted_targets"
    _print_name = ("WeightedTargets", "\\operatorname{WeightedTargets}")

    def __init__(self, *args: Any, base: Any, **kwargs: Any) -> None:
        self.base = base
        super().__init__(*args, ndim_supp=0, **kwargs)


@_logprob.register(WeightedTargetsRV)
def _weighted_logp(op: WeightedTargetsRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    return inputs[-1] * _logprob(op.base, values, *inputs[:-1])


def observe_weighted(name: str, targets: Any, weight: Any, observed: Any) -> Any:
    """Make targets with sample weights, in the surrounding PyMC model."""
    node = targets.owner
    inputs = [*node.inputs, weight]
    inner = [v.type() for v in inputs]
    op = WeightedTargetsRV(inner, node.op.make_node(*inner[:-1]).outputs, base=node.op)
    return pm.modelcontext(None).register_rv(op(*inputs)[-1], name, observed=observed)


def unweighted(target: Any) -> tuple[Any, Any]:
    """Return the targets without weights, and the weights; None if they have none."""
    op = target.owner.op
    if not isinstance(op, WeightedTargetsRV):
        return target, None
    *inputs, weight = target.owner.inputs
    return op.base.make_node(*inputs).outputs[-1], weight
