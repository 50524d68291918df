"""Targets of which some are missing.

PyMC makes two variables of them, ``y_observed`` and the free ``y_unobserved``, and a Deterministic ``y`` of both. A
missing target has no factor: integrated out, it adds nothing to the density of all others. So the model is read without
it, and results have draws of it under its name.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from pymc.distributions.distribution import PartialObservedRV
from pymc.model.fgraph import fgraph_from_model, model_deterministic, model_from_fgraph, model_observed_rv
from pymc.pytensorf import toposort_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from bsvr_pp.core.arrays import Rows, Tensor
from bsvr_pp.model.distributions import noise_of
from bsvr_pp.model.gp import copied, set_initial_values, share_data
from bsvr_pp.model.row_kinds import ends_of

_KNOWN: WeakKeyDictionary[pm.Model, tuple[list[str], pm.Model]] = WeakKeyDictionary()


def missing_name(target: str) -> str:
    """Name of the missing targets beside known ones of a name."""
    return f"{target.removesuffix('_observed')}_unobserved"


def with_known_targets(model: pm.Model) -> pm.Model:
    """The model without its missing targets, whose name a Deterministic of their location has; or the model itself."""
    observed = {v.name for v in model.observed_RVs}
    missing = [v for v in model.free_RVs if any(v.name == missing_name(name) != name for name in observed)]
    if not missing:
        return model
    names, known = _KNOWN.get(model, ([], model))
    if names != list(model.named_vars):
        known = share_data(set_initial_values(_without(model, missing), model), model)
        _KNOWN[model] = list(model.named_vars), known
    known._coords = dict(model._coords)
    return known


def _without(model: pm.Model, missing: list[Tensor]) -> pm.Model:
    fgraph, memo = copied(model, fgraph_from_model)
    for v in missing:
        free, seen = memo[v], memo[model[f"{str(v.name).removesuffix('_unobserved')}_observed"]]
        rv = free.owner.inputs[0]
        if isinstance(rv.owner.op, PartialObservedRV):
            whole, mask = rv.owner.inputs
            rv, known = (_taken(whole, np.flatnonzero(each)) for each in (mask.data, ~mask.data))
            dims = seen.owner.op.dims
            toposort_replace(fgraph, ((seen, model_observed_rv(known, seen.owner.inputs[1], seen.name, *dims)),))
        for i in reversed(range(len(fgraph.outputs))):
            if free in ancestors([fgraph.outputs[i]]):  # also what is computed from all targets
                fgraph.remove_output(i)
        if (noise := noise_of(ends_of(rv).noise)) is not None:  # another one is refused by its name
            location = model_deterministic(noise[1], v.name, *free.owner.op.dims)
            fgraph.add_output(location, import_missing=True)
    return model_from_fgraph(fgraph, mutate_fgraph=True)


def _taken(rv: Tensor, index: Rows) -> Tensor:
    """Some of the entries of a random vector, as a random vector."""
    op, given = rv.owner.op, []
    for v, n_core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
        if hasattr(getattr(v.owner, "op", None), "dist_params"):
            given.append(_taken(v, index))
        else:
            given.append(v[index] if v.ndim > n_core and not v.type.broadcastable[0] else v)
    make = op if isinstance(op, RandomVariable) else type(op).rv_op
    return make(*given, size=(len(index),))
