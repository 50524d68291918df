"""Reading of a PyMC model: Gaussian process, noise, data and hyperparameters are found by name and make a `Problem`.

Copies of a model (`pm.do`, `pm.observe`) are read as well, since nothing is kept but the names of variables.

The joint density of a model is a product of densities of its free and observed variables and of its potentials. With
the latent function f integrated out, the targets and the hyperparameters remain. Potentials and observed variables of
hyperparameters alone are terms of their joint prior. A part that depends on f is refused; only `bp.NUTS()`, which
samples f, takes it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.logprob.abstract import MeasurableOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from bsvr_pp.core.arrays import ModelError, NotRead, Tensor, check_spread
from bsvr_pp.model.affine import Affine, RowValues, affine_of, has_gaussian_mean
from bsvr_pp.model.compiled import Columns, chosen_rows, data_of, prior_at
from bsvr_pp.model.gaussian import above, gaussian_variables, shape_of, value_of
from bsvr_pp.model.gp import Prior, localize, made_of, mark_variables, processes_of
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.row_kinds import noise_in, with_known_targets
from bsvr_pp.model.sources import with_one_target

_RESERVED, _OF_PARTS = ("chain", "draw"), "moment"  # dimensions of results
_FAR = 1e-5  # of the size of inputs: kernels of PyMC square them, and with this spread lose ten of 16 digits


def read_model(model: pm.Model | None = None, *, samples_f: bool = False) -> Problem:
    """Find the Gaussian process, the noise, the data and the hyperparameters of a model, or of the surrounding one.

    A potential or a variable that depends on f is refused, unless the method ``samples_f``. Another structure is a
    `NotRead`, which is no mistake where PyMC samples the model; wrong names and data are other errors.
    """
    if model is None:
        model = pm.Model.get_context(error_if_none=False)
    if model is None:
        raise TypeError("model must be given, or come from a surrounding with block: there is none")
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {type(model).__name__}")
    check_variables(model)
    try:
        problem = _read(with_known_targets(model))
        if not samples_f:
            problem.check_integrable()
    except ModelError as error:
        raise NotRead(str(error)) from None
    given = [problem.columns.X, problem.latent, problem.y, problem.covariance.given]
    check_random(problem.model, [problem.mean, *problem.site_parameters, *problem.ends.bounds, *given])
    _check_data(problem)
    for f, record in processes_of(problem.model).items():
        check_spread(f"the inputs X of {f.name}", value_of(localize(record.X, problem.model)), _FAR)
    return problem


def _read(model: pm.Model) -> Problem:
    mark_variables(model)
    processes = processes_of(model)
    target, *others = targets_of(model, processes or gaussian_variables(model))
    if others:
        model, sources = with_one_target(model, [target, *others], processes)
        return replace(_read(model), sources=sources)
    if value_of(model.rvs_to_values[target]).size == 0:
        raise ModelError(f"the targets {target.name} have no value: observe at least one of them")
    loss, latent, parameters, weight, ends = noise_in(model, target)
    composite, prior, columns = _locate(model, target, latent, processes, [*parameters, *ends.bounds, weight])
    hyperparameters, terms, of_latent = inventory_of(model, target, prior.latents)
    width, blocks = columns.width, prior.blocks
    of_rows = [*parameters, weight, *ends.row_bounds]
    known = {graph: _is_rowwise(graph, columns) for graph in [*of_rows, *ends.bounds]}
    columns.add([graph for graph in of_rows if known[graph]])
    matrix = pt.matrix(shape=(None, columns.width))  # without a name, which data may have
    inside = matrix if columns.width == width else matrix[:, :width]
    covariance, mean = prior_at(prior, model, inside)
    data = {str(v.name): v.get_value() for v in data_of(model)}
    names = hyperparameters, [term.name for term in terms], target.name, loss.name, prior.name
    # What values of data and sizes of dims decide is fixed in graphs, and other data may decide otherwise.
    structure = (names, columns.places, [*known.values()], covariance.by_root, composite and _decided(composite))
    problem = Problem(
        model,
        prior,
        str(target.name),
        loss,
        hyperparameters,
        columns,
        matrix,
        covariance,
        mean,
        tuple(_at_rows(parameter, columns, matrix, known) for parameter in parameters),
        _at_rows(weight, columns, matrix, known),
        ends._replace(bounds=tuple(_at_rows(bound, columns, matrix, known) for bound in ends.bounds)),
        latent,
        columns.used(list(parameters)),
        terms,
        of_latent,
        made_of(model, "functions", structure, dict[str, object]),
        composite,
        columns.values(columns.inputs)[slice(None) if columns.kept is None else columns.kept],
        np.asarray(value_of(model.rvs_to_values[target]), dtype=np.float64),
        width,
        data,
        blocks,
        noise_rowwise=all(known[graph] for graph in of_rows),
    )
    held = ancestors([covariance.given, mean, *problem.site_parameters, *problem.ends.bounds])
    if {v.name for v in held if v in model.free_RVs} & prior.latents:
        raise ModelError(
            f"the kernel or the noise depends on the latent function {prior.name}: it cannot be integrated out"
        )
    return problem


def _decided(composite: Affine) -> object:
    """What graphs of a location have beside the model: sizes of its parts, and how rows depend on processes."""
    sizes = [leaf.type.shape for leaf, _ in composite.variables.values()]
    processes = composite.processes.values()
    return composite.rowwise, sizes, [(p.single, p.aligned or p.leaf.type.shape) for p in processes]


def _locate(
    model: pm.Model, target: Tensor, latent: Tensor, processes: dict[Tensor, Prior], of_noise: Sequence[Tensor]
) -> tuple[Affine | None, Prior, Columns]:
    """Read the location of the noise: its parts if it is no single process, its prior, and the columns of its rows."""
    for f, record in processes.items():
        of_inputs = set(ancestors([pt.as_tensor_variable(record.X)]))
        if free := [v.name for v in model.free_RVs if v in of_inputs]:
            raise ModelError(f"the inputs X of {f.name} depend on {free[0]}: they must be data")
    if latent in processes and len(processes) == 1 and not has_gaussian_mean(model, processes[latent]):
        return None, processes[latent], Columns(model, localize(processes[latent].X, model))
    observed = [graph for v in model.observed_RVs if v is not target for graph in v.owner.inputs]
    elsewhere = [*of_noise, *observed, *model.potentials]
    location, kept = chosen_rows(latent)  # as known targets have, and f at some of its inputs
    n = shape_of(location)[0]
    if kept is not None and kept.size == n and not np.array_equal(kept, np.arange(n)):  # another order of all rows,
        same = {v for v in above(of_noise) if np.array_equal(np.asarray(chosen_rows(v)[1]), kept)}
        held = above(of_noise, same.union(model.free_RVs)) - same  # which data of the noise do not have
        if any(v.owner is None and getattr(v, "ndim", 0) and len(value_of(v)) == n for v in held):
            location, kept = latent, None
    composite, columns = affine_of(model, target, location, processes, elsewhere, kept)
    if kept is not None and not composite.rowwise:
        composite, columns = affine_of(model, target, latent, processes, elsewhere)
    if any(process.blocks.several for process in processes.values()):
        raise ModelError("blocks take one process alone: add the kernels of several, and leave linear terms out")
    return composite, composite.prior(latent, target), columns


def _at_rows(graph: Tensor, columns: Columns, matrix: Tensor, rowwise: Mapping[Tensor, bool]) -> Tensor:
    """A graph with a value for each row, at the rows of a matrix; any other graph as it is."""
    return columns.at(graph, matrix) if graph.ndim > 0 and rowwise[graph] else graph


def _is_rowwise(graph: Tensor, columns: Columns) -> bool:
    """Whether a graph is one number, or is computed row by row from data."""
    free = columns.model.free_RVs
    if columns.kept is None:  # what is computed number by number needs no values of data for the answer
        held = above([graph], free)
        each = {v for v in held if v not in free and getattr(v, "ndim", 2) <= 1}
        elementwise = all(v.owner is None or isinstance(v.owner.op, Elemwise | DimShuffle) for v in each)
        if elementwise and all(getattr(v, "ndim", 2) == 0 for v in held - each):
            return True
    return graph.ndim == 0 or RowValues(columns.model, graph, {}, columns.n, columns.kept).follows()


def _check_data(problem: Problem) -> None:
    name, inputs, targets = problem.target, problem.inputs, problem.targets
    n = inputs.shape[0]
    if targets.shape != (n,):
        raise ModelError(f"{name} must be a ({n},) array as X has {n} rows, got shape {targets.shape}")
    if not np.isfinite(targets).all() or not np.isfinite(inputs).all():
        raise ModelError(f"{name} and X must be finite")
    blocks = problem.blocks
    if blocks.several:
        problem.check_rows()
        blocks.check(n)
        if refusal := problem.loss.targets.refusal("blocks", target=name):
            raise ModelError(refusal)
    for label, values in (("X", inputs), (name, targets)):
        check_spread(label, values)
    kind = problem.loss.targets
    if (unlike := kind.unlike(targets)).size:
        raise ModelError(f"the observed {name} must be {kind.words}, got {unlike[0]:g}: drop what is not known")


def check_variables(model: pm.Model) -> None:
    """Check names and precision of the variables of a model, and the labels of its coordinates."""
    for dim, labels in model.coords.items():
        if dim == _OF_PARTS:
            raise ModelError(f"the dimension {dim} has a name that results need themselves: rename it")
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
