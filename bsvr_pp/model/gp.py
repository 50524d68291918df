"""The Gaussian process prior of a support vector model.

`GP` is a `pm.gp.Latent` that also records its prior on the latent variable, for methods that integrate it out. Copies
of the model keep the record; its kernel and mean function have the variables of the original model, and `localize`
replaces them. It knows them by a mark: another tensor may have the name of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.gp.cov import BaseCovariance
from pymc.gp.mean import Mean
from pymc.gp.util import JITTER_DEFAULT, stabilize
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor import TensorLike
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.variable import TensorVariable

from bsvr_pp.core.arrays import Array, ModelError, Tensor, check_jitter, names_of, numbers
from bsvr_pp.model.blocks import ONE_BLOCK, Blocks, Partition
from bsvr_pp.model.gaussian import replace_in


@dataclass(frozen=True, slots=True)
class Prior:
    """Arguments of a call of `GP.prior`; a sum of processes has the same record as one process."""

    name: str  # of the latent variable
    X: Tensor | Array  # (n, d)
    cov_func: BaseCovariance
    mean_func: Mean
    jitter: float
    whitened: str | None  # name of the standard normal v, if f = mean + chol(K)·v
    blocks: Partition = ONE_BLOCK
    parts: frozenset[str] = frozenset()  # for a sum, names of the variables of its parts
    root: Callable[[TensorVariable], TensorVariable] | None = None  # for a sum, a root with few columns, from rows
    columns: tuple[str, ...] = ()  # names of the inputs, required of new tables

    @property
    def latents(self) -> set[str]:
        """Names of the variables that are integrated out: f and v, or the variables of each part of f."""
        return set(self.parts) or {name for name in (self.name, self.whitened) if name is not None}


class GP(pm.gp.Latent):
    """Latent Gaussian process whose model can run under any inference of this package.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Prior mean function; by default zero.
    cov_func : pm.gp.cov.BaseCovariance
        Any kernel of `pm.gp.cov`, sums and products included. The bias of a support vector machine is a
        `pm.gp.cov.Constant` (Chu, Keerthi & Ong 2004, (3)).

    Examples
    --------
    >>> import numpy as np, pymc as pm, bsvr_pp as bp
    >>> with pm.Model() as model:
    ...     lengthscale = pm.InverseGamma("lengthscale", 3, 1)
    ...     gp = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(10.0))
    ...     f = gp.prior("f", X=np.linspace(-1, 1, 5)[:, None])
    >>> f.eval().shape
    (5,)
    """

    def prior(
        self,
        name: str,
        X: Tensor | ArrayLike,
        *,
        blocks: Partition | None = None,
        reparameterize: bool = True,
        jitter: float = JITTER_DEFAULT,
        columns: Sequence[str] | None = None,
        **kwargs: object,
    ) -> TensorVariable:
        """Make the prior of the function at the inputs, like `pm.gp.Latent.prior`.

        Parameters
        ----------
        name : str
            Name of the latent variable.
        X : (n, d) array or pm.Data
            Inputs.
        blocks : Blocks, optional
            Blocks of rows, as from `bp.local_blocks`, between which f is independent a priori: time then grows with the
            number of rows instead of its cube. The graph of f has a dense matrix, which only methods that sample f
            evaluate.
        reparameterize : bool
            Whether f is a linear map of a standard normal vector (default) or a multivariate normal variable.
        jitter : float
            Number added to the diagonal of the covariance.
        columns : sequence of str, optional
            Names of the inputs, which a new table must have in this order. By default they are the names of a table X,
            or the coordinates of the columns of `pm.Data`, if these are words.
        **kwargs
            Further arguments of PyMC, such as ``dims``.

        Raises
        ------
        ValueError
            If X is not two-dimensional or not finite, blocks have other rows, jitter is negative, or n_outputs is not
            1.
        TypeError
            If cov_func is not a kernel, or blocks is not a partition.
        """
        if not isinstance(self.cov_func, BaseCovariance):
            raise TypeError(f"cov_func must be a kernel of pm.gp.cov, got {self.cov_func!r}")
        _check_no_arrays(self.cov_func)
        names = (names_of(X) or _words_of(X)) if columns is None else tuple(columns)
        X = X if isinstance(X, TensorVariable) else numbers("X", X, ("n", "d")).copy()  # the caller may change it
        if X.ndim != 2:
            raise ValueError(f"X must have two axes, got {X.ndim}")
        check_jitter(jitter)
        if kwargs.pop("n_outputs", 1) != 1:
            raise ValueError("n_outputs must be 1: a support vector model has one latent function")
        partition = ONE_BLOCK if blocks is None else blocks
        if not isinstance(partition, Partition):
            raise TypeError(f"blocks must come from bp.local_blocks, got {type(blocks).__name__}")
        if isinstance(X, np.ndarray):
            partition.check(len(X))
        model = pm.modelcontext(None)
        mark_variables(model.root)
        prior = Prior(
            model.name_for(name),
            X,
            self.cov_func,
            self.mean_func,
            float(jitter),
            model.name_for(f"{name}_rotated_") if reparameterize else None,
            partition if partition.several else ONE_BLOCK,
            columns=names,
        )
        f = add_latent(prior, self.mean_func(X), in_blocks(self.cov_func(X), prior.blocks), **kwargs)
        self.X, self.f, self.n_outputs = X, f, 1
        return f


def _check_no_arrays(kernel: BaseCovariance) -> None:
    """Check that sums and products in a kernel have no arrays, which would be of the training rows."""
    inner = [getattr(kernel, name, None) for name in ("kernel", "cov_func")]
    for part in getattr(kernel, "_factor_list", inner):
        if isinstance(part, BaseCovariance):
            _check_no_arrays(part)
        elif any(size != 1 for size in getattr(getattr(part, "type", part), "shape", ())):
            raise ModelError(
                "cov_func has an array in a sum or product of kernels, which says nothing about new rows: use "
                "bp.cov.Precomputed for a matrix between rows, pm.gp.cov.ScaledCov for a scale of each row, and eta[0] "
                "for the number in a vector eta"
            )


def _words_of(X: object) -> tuple[str, ...]:
    """The coordinates of the columns of `pm.Data`, which keeps no names of a table, if they are words."""
    model = pm.modelcontext(None)
    dims = model.named_vars_to_dims.get(str(getattr(X, "name", "")), ())
    labels = model.coords.get(dims[1]) if len(dims) == 2 else None
    return tuple(labels or ()) if all(isinstance(label, str) for label in labels or ()) else ()


def in_blocks(covariance: Tensor, blocks: Partition) -> Tensor:
    """Return the graph of a covariance of rows, zero between blocks."""
    if not isinstance(blocks, Blocks):
        return covariance
    return pt.switch(pt.eq(blocks.label[:, None], blocks.label[None, :]), covariance, 0.0)


def add_latent(prior: Prior, mean: Tensor, covariance: Tensor, **kwargs: object) -> TensorVariable:
    """Add the latent variable of a record to the surrounding model, with this mean and covariance without jitter."""
    stable = stabilize(covariance, prior.jitter)
    if prior.whitened is None:
        f = pm.MvNormal(prior.name, mu=mean, cov=stable, **kwargs)
        f.tag.gp_prior = prior
        return f
    size = {} if "dims" in kwargs else {"size": prior.X.shape[0]}
    white = pm.Normal(prior.whitened, **size, **kwargs)
    cholesky = _PriorCholesky(lower=True)
    cholesky.prior = prior
    factor = cast(Tensor, Blockwise(cholesky)(stable))
    return pm.Deterministic(prior.name, mean + factor.dot(white), dims=kwargs.get("dims"))


class _PriorCholesky(Cholesky):
    """The Cholesky factor of a prior covariance; it passes the record of the prior to copies of the model."""

    prior: Prior


def prior_of(variable: TensorVariable) -> Prior | None:
    """Return the record that `GP.prior` stored on a latent variable, in the original model or in a copy."""
    prior = getattr(variable.tag, "gp_prior", None)
    if isinstance(prior, Prior):
        return prior
    factor = factor_of(variable)
    return None if factor is None else factor.owner.op.core_op.prior


def processes_of(model: pm.Model) -> dict[TensorVariable, Prior]:
    """Return the latent functions of a model and their records, without those whose coordinates `pm.do` has fixed."""
    free, records = {v.name for v in model.free_RVs}, {v: prior_of(v) for v in [*model.deterministics, *model.free_RVs]}
    return {v: prior for v, prior in records.items() if prior is not None and (prior.whitened or prior.name) in free}


def factor_of(variable: TensorVariable) -> TensorVariable | None:
    """Return the Cholesky factor of the prior covariance in the graph of a latent variable; None without one."""
    for ancestor in ancestors([variable]):
        core = getattr(getattr(ancestor.owner, "op", None), "core_op", None)
        if isinstance(core, _PriorCholesky) and core.prior.name == variable.name:
            return cast(Tensor, ancestor)
    return None


_MADE: WeakKeyDictionary[pm.Model, dict[str, tuple[object, object]]] = WeakKeyDictionary()


def made_of[Made](model: pm.Model, what: str, held: object, make: Callable[[], Made]) -> Made:
    """Return what ``make`` makes of a model, once while what it is made of, ``held``, is the same."""
    known = _MADE.setdefault(model, {})
    if known.get(what, (None,))[0] != held:
        known[what] = held, make()
    return cast(Made, known[what][1])


def mark_variables(model: pm.Model) -> None:
    """Mark the variables of a model, so that `localize` finds them in graphs of its copies."""
    for v in model.named_vars.values():
        v.tag.of_model = True


def copies_in(graph: Variable, model: pm.Model) -> list[TensorVariable]:
    """Return variables of a graph that another copy of the model has instead of this one's."""
    marked = [v for v in ancestors([graph]) if getattr(v.tag, "of_model", False)]
    return [cast(Tensor, v) for v in marked if v is not model.named_vars.get(v.name, v)]


def localize(graph: TensorLike, model: pm.Model) -> TensorVariable:
    """Return the graph with variables of this model instead of another copy's; observed ones have values."""
    graph = pt.as_tensor_variable(graph)
    graph = replace_in(graph, {v: model[v.name] for v in copies_in(graph, model)})
    above = ancestors([graph], blockers=model.free_RVs)
    observed = {v: model.rvs_to_values[v] for v in above if v in model.observed_RVs}
    if not observed:
        return graph
    # Do not copy variables whose priors have observed ones.
    free = {v: v.type() for v in {*model.free_RVs, *processes_of(model)}}
    return replace_in(replace_in(graph, free | observed), {own: v for v, own in free.items()})


def copy_model[Made](model: pm.Model, copy: Callable[[pm.Model], Made]) -> Made:
    """Copy a model by a PyMC function, without what it refuses: initial values, and axes without a name."""
    mark_variables(model)
    bare = object.__new__(type(model))
    dims = {name: each for name, each in model.named_vars_to_dims.items() if None not in each}
    without = {"rvs_to_initial_values": dict.fromkeys(model.rvs_to_initial_values), "named_vars_to_dims": dims}
    vars(bare).update(vars(model) | without)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*likely created by GP objects.*", UserWarning)
        return copy(bare)


def remove_below(fgraph: FunctionGraph, gone: Collection[Variable]) -> None:
    """Remove from a copied model what depends on variables."""
    for i in reversed(range(len(fgraph.outputs))):
        if not set(gone).isdisjoint(ancestors([fgraph.outputs[i]])):
            fgraph.remove_output(i)


def share_data(model: pm.Model, source: pm.Model) -> pm.Model:
    """Let a copy share the data of a model, also after changes; return the copy."""
    for v in model.data_vars:
        if isinstance(v, SharedVariable) and isinstance(source.named_vars.get(v.name), SharedVariable):
            v.container = source[v.name].container
    return model


def set_initial_values(model: pm.Model, source: pm.Model) -> pm.Model:
    """Give the free variables of a copy the initial values of its source; return the copy."""
    for variable in model.free_RVs:
        value = source.rvs_to_initial_values.get(source.named_vars.get(variable.name))
        model.rvs_to_initial_values[variable] = localize(value, model) if isinstance(value, pt.Variable) else value
    return model
