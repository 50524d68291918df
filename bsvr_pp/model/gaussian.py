"""The Gaussian variables of a model, as affine functions of one standard normal vector.

These variables are Gaussian given others: normal and multivariate normal variables, zero-sum normal variables, and
random walks and autoregressions with Gaussian innovations. The mean may be another Gaussian variable. A scale or a
coefficient of an autoregression is a hyperparameter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor import TensorLike
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from bsvr_pp.core.arrays import Array, Tensor

# PyTensor's mode without compilation: the work is in matrices, which NumPy does as fast as compiled code. Its Second,
# which gradients have, is a Python call an element.
INTERPRETED = get_mode("FAST_COMPILE").including("local_second_to_alloc")


def gaussian_variables(model: pm.Model) -> list[Tensor]:
    """Return the free variables of a model that are Gaussian given others."""
    return [v for v in model.free_RVs if parameters_of(v) is not None]


def parameters_of(v: Tensor) -> tuple[list[Tensor], list[Tensor]] | None:
    """Return graphs on which a Gaussian variable depends linearly, and the others; None for other variables."""
    op, inputs = v.owner.op, cast(list[Tensor], v.owner.inputs)
    if isinstance(op, NormalRV | MvNormalRV):
        return inputs[2:3], inputs[3:]
    if isinstance(op, ZeroSumNormalRV):
        return [], list(inputs[2:])
    inner = {RandomWalkRV: inputs[:2], AutoRegressiveRV: inputs[2:3]}.get(type(op), [])
    of_inner = [parameters_of(each) if each.owner is not None else None for each in inner]
    if not inner or None in of_inner or (isinstance(op, AutoRegressiveRV) and v.ndim > 1):
        return None
    linear, others = ([graph for pair in of_inner if pair for graph in pair[i]] for i in (0, 1))
    return linear, [*others, *(inputs[:2] if isinstance(op, AutoRegressiveRV) else [])]


def gaussian_above(
    model: pm.Model,
    graphs: Sequence[Tensor],
    processes: set[Tensor],
    latents: set[Tensor],
    elsewhere: Sequence[Tensor],
) -> list[Tensor]:
    """Return Gaussian variables on which only the location depends, variables without parents first."""
    known, free = above(graphs, processes), [v for v in model.free_RVs if v not in latents]
    parameters = {v: found for v in free if (found := parameters_of(v)) is not None}
    plain = {v for v in free if isinstance(model.rvs_to_transforms.get(v), ZeroSumTransform | None)}
    chosen = [v for v in free if v in known and v in plain and v in parameters]
    while True:
        others = [graph for v in free if v not in chosen for graph in v.owner.inputs]
        scales = [graph for v in chosen for graph in parameters[v][1]]
        held = above([*elsewhere, *others, *scales], set(model.observed_RVs))
        left = [v for v in chosen if v not in held]
        if len(left) == len(chosen):
            return chosen
        chosen = left


def standardised(chosen: Sequence[Tensor], free: set[Tensor]) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """Return a standard normal vector z, and each of some Gaussian variables as a graph of it."""
    unfolded = {v: _unfolded(v) for v in chosen}
    basic = {v: [v] if graph is v else _inner(graph, free) for v, graph in unfolded.items()}
    shapes = {each: shape_of(each) for inner in basic.values() for each in inner}
    z, used = pt.vector(shape=(sum(map(prod, shapes.values())),)), 0
    values: dict[Tensor, Tensor] = {}
    for v, inner in basic.items():
        found = {}
        for each in inner:
            white = z[used : used + prod(shapes[each])].reshape(shapes[each])
            used += prod(shapes[each])
            mean, scale = each.owner.op.dist_params(each.owner)
            many = isinstance(each.owner.op, MvNormalRV)
            found[each] = mean + ((pt.linalg.cholesky(scale) @ white[..., None])[..., 0] if many else scale * white)
        values[v] = replace_in(replace_in(unfolded[v], found), values)
    return z, values


def _unfolded(v: Tensor) -> Tensor:
    """Return a variable as a graph of its normal variables; the variable itself if it is normal."""
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, NormalRV | MvNormalRV):
        return v
    if not isinstance(op, AutoRegressiveRV):
        return op.fgraph.bind(dict(zip(op.fgraph.inputs, inputs, strict=True)))[v.owner.outputs.index(v)]
    rhos, sigma, first = inputs[:3]
    order, length = op.ar_order, shape_of(v)[0]
    rhos = pt.broadcast_to(rhos, (order + op.constant_term,))
    constant, rhos = (rhos[0], rhos[1:]) if op.constant_term else (0.0, rhos)
    steps = pm.Normal.dist(constant, sigma, shape=(length - order,))
    later = pt.constant(np.arange(length) >= order)[:, None]
    before = sum(rhos[k - 1] * pt.eye(length, k=-k) for k in range(1, order + 1))
    values = pt.concatenate([pt.atleast_1d(first), steps])
    return pt.linalg.solve_triangular(pt.eye(length) - later * before, values, lower=True)


def _inner(graph: Tensor, free: set[Tensor]) -> list[Tensor]:
    return [
        cast(Tensor, a)
        for a in ancestors([graph], blockers=free)
        if a not in free and a.owner is not None and isinstance(a.owner.op, NormalRV | MvNormalRV)
    ]


def replace_in[T: Variable, U: Variable](graph: Tensor, known: Mapping[T, U]) -> Tensor:
    """Replace variables in a graph."""
    return replace_in_all([graph], known)[0] if known else graph


def replace_in_all[T: Variable, U: Variable](graphs: Sequence[Variable], known: Mapping[T, U]) -> list[Tensor]:
    """Replace variables in graphs; a graph that is a key, or has none above it, is not copied."""
    changed = [g for g in graphs if g not in known and not above([g]).isdisjoint(known)]
    found = dict(zip(changed, graph_replace(changed, list(known.items()), strict=False), strict=True))
    return cast(list[Tensor], [known.get(cast(T, g), found.get(g, g)) for g in graphs])


def gradients(total: Tensor, by: Sequence[Tensor], constant: Sequence[Tensor] = ()) -> list[Tensor]:
    """Return the derivatives of a scalar by variables, 0 if it does not depend on one."""
    return cast(list[Tensor], pt.grad(total, list(by), consider_constant=list(constant), disconnected_inputs="ignore"))


def above(graphs: Sequence[Variable], blockers: Collection[Variable] = ()) -> set[Tensor]:
    """Return the variables on which graphs depend."""
    return cast(set[Tensor], set(ancestors(graphs, blockers=set(blockers))))


def shape_of(variable: Tensor) -> tuple[int, ...]:
    """Return the shape of a variable; its sizes do not depend on hyperparameters."""
    known = variable.type.shape
    return tuple(int(size) for size in (value_of(variable.shape) if None in known else known))


def value_of(variable: TensorLike) -> Array:
    """Value of data or of a graph without inputs: an array, a constant or a pm.Data."""
    if isinstance(variable, np.ndarray):
        return variable
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value())
    graph = pt.as_tensor_variable(variable)
    return np.array(graph.data) if isinstance(graph, pt.Constant) else cast(Array, graph.eval(mode=INTERPRETED))
