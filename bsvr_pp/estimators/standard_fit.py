"""Default models of standardised rows, compiled once per structure, and their fits, which can predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, sparray
from sklearn.utils import Tags

from bsvr_pp.assess.partial_dependence import sums_of_f
from bsvr_pp.classification.default_models import class_thresholds, standard_label_model, standard_ordinal_model
from bsvr_pp.core.arrays import Array, check_order
from bsvr_pp.core.compiler import interruptible, rarely_collected, threads_for
from bsvr_pp.estimators.base import HoldsFit, LocalBlocks, blocks_from, warn_unless_converged
from bsvr_pp.estimators.matrices import MatrixOption, PairwiseKernel, SparseInputs, new_rows, values_of
from bsvr_pp.estimators.training_data import TrainingData, Units
from bsvr_pp.estimators.validation import new_inputs
from bsvr_pp.inference.approximate import at_optimum, solve_at
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.fitted import Fitted, fitted_draws, light, read_fitted
from bsvr_pp.inference.monotone import GivenSlopes, Slopes
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.prediction.distribution import Unscaled
from bsvr_pp.inference.protocol import Integrates, Method, Options, Samples
from bsvr_pp.inference.result import blocks_of
from bsvr_pp.inference.search.at_size import AtSize, Stage, cut, search_in_blocks
from bsvr_pp.inference.search.starts import initial_point
from bsvr_pp.model.blocks import ONE_BLOCK, Partition
from bsvr_pp.model.inputs import AS_GIVEN, CONSTANTS, Levels, Warping
from bsvr_pp.model.matrices import UNITS, MatrixKernel, ProductKernel
from bsvr_pp.model.priors import Inputs, Kernel, Tied, standard_model, taken_by_main_effects
from bsvr_pp.model.problem import Point, Problem
from bsvr_pp.model.reader import read_model

_OF_LABELS = "hinge", "known_label"


@dataclass(frozen=True, slots=True)
class StandardModel:
    """A default model without data: noise, kernel, and options of both.

    The noises "hinge" and "known_label" are for labels -1 and +1; ``C`` fixes the penalty. ``n_cutpoints`` > 0 is for
    ordered classes 0, 1, ..., n_cutpoints. The other fields are as in `model.priors.Inputs`.
    """

    noise: str
    kernel: Kernel
    ard: bool
    beta: float = 0.0
    quantile: float = 0.5
    n_cutpoints: int = 0
    C: float | None = None
    tied: Tied = None
    levels: tuple[int, ...] = ()
    warping: Warping = AS_GIVEN
    pairs: bool = False

    def suited(self, rows: TrainingData, *, warping: bool = True, automatic: bool = False) -> Self:
        """Return the model with levels, scales and products of a main-effects kernel for standardised rows.

        An ``automatic`` kernel without main effects has only scales. Those of classes have one share.
        """
        main = self.kernel == "main_effects"
        if not main and not (automatic and isinstance(self.kernel, str)):
            return self
        classes = self.n_cutpoints > 0 or self.noise in _OF_LABELS
        levels, scales, pairs = taken_by_main_effects(rows.X, self.tied, rows.weight, warping, together=classes)
        return replace(self, levels=levels if main else (), warping=scales, pairs=main and pairs)

    def problem(self, rows: TrainingData, blocks: Partition = ONE_BLOCK) -> Problem:
        """Return the problem of standardised rows; models of one structure share compiled functions."""
        known: dict[str, ArrayLike] = {"beta": self.beta, "targets": rows.y, **rows.of_targets}
        if isinstance(self.kernel, MatrixKernel):
            known[UNITS] = self.kernel.unit(rows.X)
        elif callable(self.kernel):  # the function may look at the inputs
            return read_model(self.make(rows.X, rows.y, rows.of_targets, blocks))
        if self.C is not None:
            known["C"] = float(self.C)
        if self.n_cutpoints:
            known["thresholds"] = class_thresholds(rows.y, self.n_cutpoints)
        known["levels"] = Levels.of(rows.X, self.levels).values
        known[CONSTANTS] = self.warping.array
        d = rows.X.shape[1]
        structure = replace(self, ard=self.ard and d > 1, beta=0.5, C=None if self.C is None else 1.0)
        structure = replace(structure, warping=self.warping.without_constants())
        return _compiled(structure, d, tuple(rows.of_targets)).with_data(rows.X, rows.y, blocks=blocks, **known)

    def make(self, X: Array, y: Array, of_targets: Mapping[str, Array], blocks: Partition = ONE_BLOCK) -> pm.Model:
        """Return a PyMC model of rows in these blocks, whose priors are the same for all rows."""
        seen = {"levels": Levels.of(X, self.levels), "warping": self.warping, "pairs": self.pairs}
        inputs = Inputs.standardised(X, ard=self.ard, tied=self.tied, **seen)
        if isinstance(self.kernel, ProductKernel):  # one lengthscale, for inputs of about unit scale
            inputs = Inputs(X, np.ones(1), ard=False)
        if self.n_cutpoints:
            return standard_ordinal_model(inputs, y, self.n_cutpoints, self.noise, self.kernel, blocks)
        options: dict[str, Any] = {"blocks": blocks, "of_targets": of_targets}
        if self.noise in _OF_LABELS:
            return standard_label_model(inputs, y, self.kernel, known=self.noise == "known_label", C=self.C, **options)
        of_noise = {"beta": self.beta, "quantile": self.quantile}
        return standard_model(inputs, y, self.noise, self.kernel, of_noise=of_noise, scale=(1.0, 1.0), **options)


@lru_cache(maxsize=64)
@rarely_collected()
def _compiled(model: StandardModel, d: int, of_targets: tuple[str, ...]) -> Problem:
    """Return the problem of a structure, with data that do not matter."""
    y = np.arange(model.n_cutpoints + 1.0) if model.n_cutpoints else np.array([1.0, -1.0])
    X = np.tile(np.linspace(1.0, -1.0, y.size)[:, None], (1, d))
    problem = read_model(model.make(X, y, dict.fromkeys(of_targets, np.ones(y.size))))
    initial_point(problem)  # kept for all data
    return problem


@dataclass(frozen=True)
class StandardFit:
    """A default model, fitted to rows in given units; ``at_size`` records how hyperparameters of blocks were found.

    ``found`` has no posteriors before blocks are solved; `fitted` solves them. ``slopes`` make f monotone.
    """

    model: StandardModel
    units: Units
    rows: TrainingData
    blocks: Partition
    method: Method
    found: Fitted
    at_size: AtSize | None = None
    slopes: Slopes | None = None

    @classmethod
    @interruptible()
    def of_rows(
        cls,
        model: StandardModel,
        units: Units,
        rows: TrainingData,
        method: Method,
        options: Options,
        rng: np.random.Generator,
        *,
        size: int | None = None,
        known: AtSize | None = None,
        first: Stage | None = None,
        **more: Any,
    ) -> Self:
        """Fit rows in these units, in blocks of at most ``size``.

        In blocks the hyperparameters may be ``known`` from almost the same rows, or the ``first`` stage of the search.
        """
        problem, latent, at_size = model.problem(rows), method.latent, None
        assert latent is not None  # as the estimators check
        if size is not None:
            if known is None:
                at_size = search_in_blocks(problem, latent, rows=size, options=options, rng=rng, known=first)
            else:
                at_size = replace(known, blocks=cut(problem, known.point, size))
            problem = problem.take(np.arange(problem.targets.size), at_size.blocks)
        if isinstance(method, Samples):
            sampled = model.make(rows.X, rows.y, rows.of_targets, problem.blocks)
            found = fitted_draws(problem, fit(method, sampled, random_seed=rng, progressbar=False))
        elif at_size is not None:  # without posteriors
            end, record = at_size.end, {"at_size": at_size.record()}
            state = at_size.optima, end.converged, end.message, np.nan, record
            found = Fitted([at_size.point], [], np.ones(1), *state)
        else:
            check_budget(method, problem.targets.size)
            found = at_optimum(latent, problem, {}, options, rng)
        return cls(model, units, rows, problem.blocks, method, found, at_size, **more).keeping(problem)

    @classmethod
    def of_result(
        cls, model: StandardModel, units: Units, rows: TrainingData, method: Method, result: xr.DataTree, **more: Any
    ) -> Self:
        """Read a fit from its result."""
        blocks = blocks_of(result)
        problem = GivenSlopes.of(model.problem(rows, blocks), more.get("slopes"))
        return cls(model, units, rows, blocks, method, read_fitted(problem, result), **more).keeping(problem)

    def keeping(self, problem: Problem) -> Self:
        """Return the same fit, with its problem."""
        vars(self)["problem"] = problem
        return self

    def changed(self, **fields: Any) -> Self:
        """Return the fit of the same problem with other fields."""
        return replace(self, **fields).keeping(self.problem)

    @cached_property
    def problem(self) -> Problem:
        """The model with the rows."""
        return GivenSlopes.of(self.model.problem(self.rows, self.blocks), self.slopes)

    @cached_property
    @interruptible()
    def fitted(self) -> Fitted:
        """The record of the fit, with posteriors of all blocks, which are solved at first use."""
        if self.found.posteriors or self.found.draws is not None:
            return self.found
        assert self.method.latent is not None
        with threads_for(len(self.rows.y)):
            fitted = self.found.with_posterior(light(solve_at(self.problem, self.method.latent, self.point)))
        if self.found.converged:  # else the fit has warned
            warn_unless_converged(fitted, self.method)
        return fitted

    @property
    def converged(self) -> bool:
        """Whether the search converged, and the solves of blocks if there were any."""
        return bool(vars(self).get("fitted", self.found).converged)

    def __getstate__(self) -> dict[str, object]:
        """Everything except compiled functions."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"found": vars(self).get("fitted", self.found)}

    @property
    def point(self) -> Point:
        """Hyperparameters of the optimum, or the means of draws."""
        return self.found.points[0]

    @property
    def shares(self) -> Array:
        """Share of the transform of each input on a scale."""
        columns = self.model.warping.columns
        return np.broadcast_to(self.point["warping"], len(columns)) if columns else np.empty(0)

    @property
    def cut(self) -> Partition | None:
        """The blocks as an attribute; None for a dense fit."""
        return self.blocks if self.blocks.local else None

    def components(self, neighbours: int | None = None) -> Iterable[Component]:
        """Return the fitted function."""
        return self.fitted.components(self.problem, neighbours if self.blocks.local else None)

    def function(self) -> Iterable[Component]:
        """Return the function for effects: at the optimum, since several points take long."""
        one = self.fitted
        if len(one.points) > 1:
            one = replace(one, points=one.points[:1], posteriors=one.posteriors[:1], weights=np.ones(1), draws=None)
        return one.components(self.problem)

    def result(self) -> xr.DataTree:
        """Return the result in the format of `bp.fit`."""
        tree = self.fitted.result(self.problem, self.method)
        if self.slopes is not None and len(self.slopes.X):
            tree["slopes"] = xr.DataTree(self.slopes.dataset())
        return tree


@interruptible()
def integrated[Fit: StandardFit](fits: Sequence[Fit], method: Method) -> list[Fit]:
    """Return the fits (several share a kernel) with hyperparameters integrated out, independent of the seed."""
    problems, fitted = [fit.problem for fit in fits], [fit.fitted for fit in fits]
    found = cast(Integrates, method).around(problems, {}, fitted, np.random.default_rng(0))
    return [fit.changed(found=one, method=method) for fit, one in zip(fits, found, strict=True)]


def factors_of(fit: StandardFit) -> dict[str, Array]:
    """Return attributes of a kernel that is a sum of matrices: factors, and shares of the prior variance."""
    kernel = fit.model.kernel
    if not isinstance(kernel, MatrixKernel):
        return {}
    square = fit.point["amplitude"] ** 2
    return {"factors_": square * fit.units.unit**2 / kernel.unit(fit.rows.X), "shares_": square / square.sum()}


class OfStandardModel(HoldsFit):
    """An estimator with the fit of a default model to standardised inputs."""

    kernel: Kernel | MatrixOption | Literal["auto"]
    blocks: LocalBlocks | int | Literal["auto"] | None = "auto"
    _sparse: ClassVar[bool] = True  # whether it takes sparse inputs

    def _local(self) -> LocalBlocks:
        return blocks_from(self.blocks)

    def _check_predictions(self) -> None:
        self._local()

    def _standardised(self, X: ArrayLike) -> Array:
        return np.asarray(self._fit.units.inputs(new_inputs(self, X)))

    def _new_rows(self, X: ArrayLike, diagonal: ArrayLike | None = None, *, moments: bool = True) -> Array:
        """Return standardised new inputs, or rows of a kernel matrix with the diagonal for ``moments`` of f."""
        fit, columns = self._checked(), self._columns
        kernel = self._given["kernel"] if columns.matrix is not None else None
        if diagonal is not None and kernel != "precomputed":
            raise ValueError("diagonal is for kernel='precomputed': other kernels give it themselves")
        if columns.matrix is None:
            return self._standardised(X)
        if isinstance(columns.matrix, SparseInputs):
            return columns.matrix.new_rows(new_inputs(self, X))
        check_order(X, diagonal=diagonal)
        K = new_inputs(self, values_of(kernel, X, columns.matrix))
        known = kernel.own(cast(Sequence[object], X)) if isinstance(kernel, PairwiseKernel) else diagonal
        return new_rows(K, fit.rows.X, MatrixKernel(columns.count), known, moments)

    @property
    def support_vectors_(self: Any) -> Array | csr_array:  # of estimators with support_
        """Inputs of the support vectors in their original form, or their rows of a kernel matrix."""
        index, rows, units, n = self.support_, self._fit.rows, self._fit.units, self._columns.count
        found, matrix = np.asarray(units.mean + units.scale * rows.X[rows.place[index]]), self._columns.matrix
        if isinstance(matrix, SparseInputs):
            return matrix.rows[found[:, -1].astype(np.intp)] * matrix.scale
        return found if matrix is None else found[:, : found.shape[1] // (n + 1) * n]

    @property
    def warping_(self) -> pd.DataFrame | list[pd.DataFrame]:
        """The learned scale of each input, in words, with the share and the power of its transform."""
        self._alone("warping_ is", AttributeError)
        found, named = [], self._columns.named(self._fit.units.mean)
        names = list(named.index) if isinstance(named, pd.Series) else [f"x{k}" for k in range(len(named))]
        for each in self._fits_on_scales():
            warping, share = each.model.warping, each.shares
            columns = {"scale": warping.described(share), "share": share, "power": warping.powers}
            found.append(pd.DataFrame(columns, index=[names[k] for k in warping.columns]))
        return found if len(found) > 1 else found[0]

    def _fits_on_scales(self) -> Sequence[StandardFit]:
        """Return the fit, or one for each class against the rest."""
        return [self._alone("scales of inputs are")]

    def _inputs_on_scales(self) -> dict[str, tuple[Array, Array]]:
        """Return by name the training inputs with a scale: as given, and standardised on this scale."""
        fit, *others = self._fits_on_scales()
        if others:
            raise ValueError(f"scales are plotted of two classes, got {1 + len(others)}")
        X, units, warping, names = fit.rows.X, fit.units, fit.model.warping, cast(pd.DataFrame, self.warping_).index
        given, scaled = (units.mean + units.scale * X)[:, list(warping.columns)], warping.on_scales(X, fit.shares)
        return {name: (x, z) for name, x, z in zip(names, given.T, scaled.T, strict=True)}

    @property
    def _scale_of_f(self) -> Unscaled:
        return self._fit.units.target_scale.of_f

    def _sums_of_f(self, X: ArrayLike, weights: sparray) -> tuple[Array, list[tuple[Array, Array]]]:
        """Return shares of the members, and moments of sparse weights (k, m) times f at X, in units of the targets."""
        if self._alone("effects are") and self._columns.matrix is not None:
            raise ValueError(f"effects are of inputs that are no {self._columns.words}")
        inputs, units = self._standardised(X), self._fit.units
        return sums_of_f(self._fit.function(), inputs, weights, location=units.location, unit=units.unit)

    def __sklearn_tags__(self) -> Tags:
        """Tags of scikit-learn: cross-validation cuts rows and columns of a kernel matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.sparse = self._sparse and isinstance(self.kernel, str) and self.kernel in SparseInputs.kernels
        return tags
