"""What a PyMC model consists of: each part is used by the methods of inference, or refused by its name.

The joint density of a model is a product of densities of its free and observed variables and of its potentials. With
the latent function f integrated out, the targets and the hyperparameters remain. Potentials and observed variables of
hyperparameters alone are terms of their joint prior. A part that depends on f is refused; only `bp.NUTS()`, which
samples f, takes it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pymc as pm
from pymc.data import MinibatchOp
from pymc.logprob.abstract import MeasurableOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.traversal import ancestors

from bsvr_pp.core.arrays import Tensor

_RESERVED = ("chain", "draw")  # dimensions of results


class ModelError(ValueError):
    """The inference cannot be applied to the model; the message states what to change."""


class NotRead(ModelError):
    """The model is none that methods of this package read; `bp.NUTS()` samples it as PyMC does."""


def check_variables(model: pm.Model) -> None:
    """Check names and precision of the variables of a model, and the labels of its coordinates."""
    for dim, labels in model.coords.items():
        if any(isinstance(label, tuple) for label in labels or ()):
            raise ModelError(f"the coordinate {dim} has tuples, and results one label each: join them to text")
    for v in (*model.free_RVs, *model.deterministics, *model.observed_RVs):
        if v.name in _RESERVED:
            raise ModelError(f"the variable {v.name} has a name that results need themselves: rename it")
        if v.dtype == "float32" and v in model.free_RVs:
            raise ModelError(
                f"the variable {v.name} is float32, and evidences need double precision: make the model with "
                "pytensor.config.floatX = 'float64'"
            )


def targets_of(model: pm.Model, latents: Iterable[Tensor]) -> list[Tensor]:
    """The observed variables that depend on latent functions, or on other variables that f consists of: the targets."""
    observed = list(model.observed_RVs)
    found = [v for v in observed if len(observed) == 1 or _depends(model, v, set(latents))]
    if not found:
        names = ", ".join(v.name for v in observed) or "none"
        raise ModelError(f"the model must have an observed variable of f, the targets; it has {names}")
    if other := [v for v in found if v.ndim != 1]:
        raise ModelError(f"the targets {other[0].name} must have one axis, the rows, got {other[0].ndim} axes")
    if part := [v.name for v in found if isinstance(v.owner.op, MinibatchRandomVariable)]:
        raise ModelError(f"{part[0]} has a total_size, and f is integrated out at all rows: give all, without it")
    return found


def inventory_of(
    model: pm.Model, target: Tensor, latents: set[str]
) -> tuple[tuple[str, ...], tuple[Tensor, ...], tuple[str, ...]]:
    """Names of hyperparameters, further terms of their joint prior, and what else depends on f, with its names."""
    f = {model[name] for name in latents}
    free = [v for v in model.free_RVs if v.name not in latents]
    others = [v for v in model.observed_RVs if v is not target]
    of_latent = [v for v in (*free, *others, *model.potentials) if _depends(model, v, f)]
    return (
        tuple(v.name for v in free if v not in of_latent),
        tuple(v for v in (*others, *model.potentials) if v not in of_latent),
        tuple(f"the {'potential' if v in model.potentials else 'variable'} {v.name}" for v in of_latent),
    )


def check_random(model: pm.Model, graphs: Sequence[Tensor]) -> None:
    """Check that graphs have no minibatch, and no random variables from outside the model: draws would change them."""
    known = {*model.free_RVs, *model.observed_RVs}
    for v in ancestors(graphs):
        if v.owner is not None and isinstance(v.owner.op, MinibatchOp):
            raise ModelError(
                "the model uses a pm.Minibatch, and f is integrated out at all rows: give the whole arrays"
            )
    for v in ancestors(graphs, blockers=known):
        if v not in known and v.owner is not None and isinstance(v.owner.op, MeasurableOp):
            raise ModelError(
                f"the model uses the random variable {v.name or v.owner.op}, which it does not have: register it in "
                "the model, or give its value"
            )


def _depends(model: pm.Model, v: Tensor, variables: set[Tensor]) -> bool:
    """Whether the density of a variable, or the value of a potential, depends on some of the model's variables."""
    given = [v] if v in model.potentials else v.owner.inputs
    return not variables.isdisjoint(ancestors(given, blockers=set(model.observed_RVs)))  # whose values are given
