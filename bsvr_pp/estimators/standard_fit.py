"""Default models of standardised rows, compiled once per structure, and fits of them: values with all that predicts.

The fit of a regression sets gross errors aside in rounds, and targets whose noise is far wider than most in further
rounds (`bsvr_pp.estimators.outliers`). Each round makes a fit of its own, of which one is chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Self, cast

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray

from bsvr_pp.assess.partial_dependence import sums_of_f
from bsvr_pp.classification.default_models import class_thresholds, standard_label_model, standard_ordinal_model
from bsvr_pp.core.approximations import LatentPosterior, Mode, find_mode
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import interruptible, rarely_collected, threads_for
from bsvr_pp.estimators.base import HoldsFit, LocalBlocks, warn_unless_converged
from bsvr_pp.estimators.outliers import Mask, ScaledFit, determining_rows, kept_rows, listed
from bsvr_pp.estimators.training_data import PACKAGE, TrainingData, Units
from bsvr_pp.estimators.validation import new_inputs
from bsvr_pp.inference.approximate import at_optimum, solve_at
from bsvr_pp.inference.budget import check_budget
from bsvr_pp.inference.fit import fit
from bsvr_pp.inference.fitted import Fitted, fitted_at, fitted_draws, light, read_fitted
from bsvr_pp.inference.integrated import Integrated
from bsvr_pp.inference.prediction.component import Component, draw_jointly, mixture_of
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.inference.prediction.neighbours import NoiseScales, choose_neighbours, scales_of_posterior
from bsvr_pp.inference.protocol import Integrates, IntegratesLatent, MatchesMoments, Method, Options, Samples
from bsvr_pp.inference.result import blocks_of
from bsvr_pp.inference.search.at_size import AtSize, cut, search_in_blocks
from bsvr_pp.inference.search.optimize import initial_point
from bsvr_pp.model.blocks import ONE_BLOCK, Partition
from bsvr_pp.model.inputs import AS_GIVEN, CONSTANTS, Levels, Warping
from bsvr_pp.model.priors import Inputs, Kernel, Tied, mostly_equal, standard_model, taken_by_main_effects
from bsvr_pp.model.problem import Point, Problem, read_model

_EFFECTS = 200  # number of rows from which the kernel has main effects,
_SCALES = 200  # and a dense fit several scales of the noise, of which fewer tell little
_INTEGRATED = 250  # largest number of rows whose hyperparameters are integrated out,
_FEW = Integrated(points=32, kept=12)  # in this way: more points gain little (the benchmark "integrated")


@dataclass(frozen=True, slots=True)
class StandardModel:
    """A default model without data: noise, kernel, and options of both.

    The noises "hinge" and "known_label" are for labels -1 and +1, with a fixed ``C`` if it is not learned, and
    ``n_cutpoints`` > 0 for ordered classes 0, 1, ..., n_cutpoints. Inputs of one number in ``tied``
    have one lengthscale, and the values of the inputs ``levels`` are categories as well. ``warping`` has the scales of
    inputs, and with ``pairs`` main effects have products of two.
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

    def suited(self, rows: TrainingData, *, warping: bool = True) -> Self:
        """The model with what a kernel with main effects takes from standardised rows: levels, scales and products."""
        if self.kernel != "main_effects":
            return self
        levels, scales, pairs = taken_by_main_effects(rows.X, self.tied, rows.weight, warping)
        return replace(self, levels=levels, warping=scales, pairs=pairs)

    def problem(self, rows: TrainingData, blocks: Partition = ONE_BLOCK) -> Problem:
        """The model of standardised rows, read; models of one structure share compiled functions."""
        if callable(self.kernel):  # the function may look at the inputs
            return read_model(self.make(rows, blocks))
        known: dict[str, ArrayLike] = {"beta": self.beta, "targets": rows.y, **rows.of_targets}
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

    def make(self, rows: TrainingData, blocks: Partition = ONE_BLOCK) -> pm.Model:
        """A PyMC model of the rows in these blocks, whose priors are the same for all rows."""
        return self._made(rows.X, rows.y, rows.of_targets, blocks)

    def _made(self, X: Array, y: Array, of_targets: Mapping[str, Array], blocks: Partition = ONE_BLOCK) -> pm.Model:
        seen = {"levels": Levels.of(X, self.levels), "warping": self.warping, "pairs": self.pairs}
        inputs = Inputs.standardised(X, ard=self.ard, tied=self.tied, **seen)
        if self.n_cutpoints:
            return standard_ordinal_model(inputs, y, self.n_cutpoints, self.noise, self.kernel)
        options: dict[str, Any] = {"blocks": blocks, "of_targets": of_targets}
        if self.noise in ("hinge", "known_label"):
            known = self.noise == "known_label"
            return standard_label_model(inputs, y, self.kernel, known=known, C=self.C, **options)
        of_noise = {"beta": self.beta, "quantile": self.quantile}
        return standard_model(inputs, y, self.noise, self.kernel, of_noise=of_noise, **options)


@lru_cache(maxsize=64)
@rarely_collected()
def _compiled(model: StandardModel, d: int, of_targets: tuple[str, ...]) -> Problem:
    """The problem of a structure, with data that do not matter."""
    y = np.arange(model.n_cutpoints + 1.0) if model.n_cutpoints else np.array([1.0, -1.0])
    X = np.tile(np.linspace(1.0, -1.0, y.size)[:, None], (1, d))
    problem = read_model(model._made(X, y, dict.fromkeys(of_targets, np.ones(y.size))))
    initial_point(problem)  # kept for all data
    return problem


@dataclass(frozen=True)
class StandardFit:
    """A default model, fitted to rows in given units; ``at_size`` says how hyperparameters of blocks were found."""

    model: StandardModel
    units: Units
    rows: TrainingData
    blocks: Partition
    method: Method
    fitted: Fitted
    at_size: AtSize | None = None

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
        **more: Any,
    ) -> Self:
        """Fit rows in these units, in blocks of at most ``size``; ``known`` were found before for almost these rows."""
        problem, latent, found = model.problem(rows), method.latent, None
        assert latent is not None  # as the estimators check
        if size is not None:
            if known is None:
                found = search_in_blocks(problem, latent, rows=size, options=options, rng=rng)
            else:
                found = replace(known, blocks=cut(problem, known.point, size))
            problem = problem.take(np.arange(problem.targets.size), found.blocks)
        if isinstance(method, Samples):
            draws = fit(method, model.make(rows, problem.blocks), random_seed=rng, progressbar=False)
            state = fitted_draws(problem, draws)
        elif found is not None:
            posterior = light(solve_at(problem, latent, found.point, options.progressbar))
            state = fitted_at(found.point, posterior, found.optima, at_size=found.record())
            message = found.end.message if posterior.converged else "the solve of a block"
            state = replace(state, converged=posterior.converged and found.end.converged, message=message)
        else:
            check_budget(method, problem.targets.size)
            state = at_optimum(latent, problem, {}, options, rng)
        return cls(model, units, rows, problem.blocks, method, state, found, **more).keeping(problem)

    @classmethod
    def of_result(
        cls, model: StandardModel, units: Units, rows: TrainingData, method: Method, result: xr.DataTree, **more: Any
    ) -> Self:
        """Read a fit from its result."""
        blocks = blocks_of(result)
        problem = model.problem(rows, blocks)
        return cls(model, units, rows, blocks, method, read_fitted(problem, result), **more).keeping(problem)

    def keeping(self, problem: Problem) -> Self:
        """The same fit, with its problem."""
        vars(self)["problem"] = problem
        return self

    @interruptible()
    def integrated(self, method: Integrates) -> Self:
        """The fit with the hyperparameters integrated out around its own, by the same points whatever the seed."""
        with threads_for(len(self.rows.y)):
            fitted = method.around(self.problem, {}, self.fitted, np.random.default_rng(0))
        return self.changed(fitted=fitted, method=method)

    def changed(self, **fields: Any) -> Self:
        """The fit of the same problem with other fields."""
        return replace(self, **fields).keeping(self.problem)

    @cached_property
    def problem(self) -> Problem:
        """The model with the rows."""
        return self.model.problem(self.rows, self.blocks)

    def __getstate__(self) -> dict[str, object]:
        """All but what is compiled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def point(self) -> Point:
        """Hyperparameters of the optimum, or the means of draws."""
        return self.fitted.points[0]

    @property
    def cut(self) -> Partition | None:
        """The blocks as an attribute; None for a dense fit."""
        return self.blocks if self.blocks.local else None

    def components(self, neighbours: int | None = None) -> Iterable[Component]:
        """The fitted function."""
        return self.fitted.components(self.problem, neighbours if self.blocks.local else None)

    def result(self) -> xr.DataTree:
        """The result in the format of `bp.fit`."""
        return self.fitted.result(self.problem, self.method)


class OfStandardModel(HoldsFit):
    """An estimator that holds the fit of a default model to standardised inputs."""

    def _standardised(self, X: ArrayLike) -> Array:
        """New inputs on the standardised scale."""
        inputs = new_inputs(self, X)
        return np.asarray(self._fit.units.inputs(inputs))

    def _sums_of_f(self, X: ArrayLike, weights: sparray) -> tuple[Array, list[tuple[Array, Array]]]:
        """Shares of the members, and moments of sparse weights (k, m) times f at X, in units of the targets."""
        inputs, units = self._standardised(X), self._fit.units
        return sums_of_f(self._function(), inputs, weights, location=units.location, unit=units.unit)

    def _function(self) -> Iterable[Component]:
        """The function whose effects are described."""
        return cast(Iterable[Component], self._fit.components())


@dataclass(frozen=True, slots=True)
class RegressionSpec:
    """Checked options of a regression; the rows decide an ``automatic`` kernel, and the ``size`` of any blocks."""

    model: StandardModel
    automatic: bool
    method: Method
    options: Options
    local: LocalBlocks
    set_aside: bool
    noise_scales: bool
    logarithm: bool
    warping: bool
    integrate: bool = False  # out the hyperparameters of few rows
    size: int | None = None

    def for_rows(self, rows: TrainingData, tied: Tied) -> Self:
        """Decide what depends on the number of rows."""
        n, model, size = len(rows.y), replace(self.model, tied=tied), None
        if self.local.divides(n):
            if isinstance(self.method, Integrates):
                raise ValueError(f"{self.method.name} takes a dense fit, and {n} rows need blocks: use blocks=None")
            size = self.local.rows
            self.local.tell(n)
        if self.automatic and n >= _EFFECTS:
            model = replace(model, kernel="main_effects")
        method = _FEW if self.integrate and n <= _INTEGRATED and size is None else self.method
        return replace(self, model=model, size=size, method=method)

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of nearest rows between which the fit chooses; none in a dense fit, or where draws predict."""
        return () if self.size is None or isinstance(self.method, Samples) else self.local.counts()

    def choose_neighbours(self, problem: Problem, point: Point) -> tuple[int | None, NoiseScales]:
        """The number of nearest rows of predictions in blocks, and the scales of the noise of fits on them."""
        if not (self.counts and problem.ends.exact and (self.noise_scales or len(self.counts) > 1)):
            return next(iter(self.counts), None), NoiseScales.one()
        rng, progressbar = np.random.default_rng(0), self.options.progressbar
        neighbours, scales = choose_neighbours(problem, point, self.counts, rng, progressbar)
        return neighbours, scales if self.noise_scales else NoiseScales.one()


@dataclass(frozen=True, kw_only=True)
class RegressionFit(StandardFit):
    """A regression of standardised rows.

    ``outliers`` are the given rows that were set aside, and ``neighbours`` is the number of nearest rows on which each
    prediction has a fit of its own, None if there is none.
    """

    neighbours: int | None
    outliers: NDArray[np.intp]

    def predictive(self, X: Array, local: LocalBlocks, noise_scales: bool = True) -> PredictiveDistribution:
        """The distribution of new targets at standardised inputs, in units of the target."""
        fitted = self.fitted if noise_scales else replace(self.fitted, scales=NoiseScales.one())
        neighbours = local.neighbours_of(self.neighbours) if self.blocks.local else None
        parts = partial(fitted.components, self.problem, neighbours)
        with threads_for(len(self.rows.y)), local.threads():
            return mixture_of(parts(), X, joint=partial(draw_jointly, parts, X), **self.units.of_targets)[0]

    @cached_property
    def machine(self) -> Mode:
        """The support vector machine, which is the most probable latent function."""
        with threads_for(len(self.rows.y)):
            K, mean, noise = self.problem.at(self.point)
            mode = find_mode(K, self.problem.targets, noise, mean=mean)
        return replace(mode, dual_coef=np.where(mode.support > 0, mode.dual_coef, 0.0))

    def given_others(self, X: Array, kept: Mask, local: LocalBlocks) -> tuple[Array, Array]:
        """Mean and deviation of all targets given the others, at all standardised inputs; rows set aside have these."""
        posterior, noise, units = self.fitted.posteriors[0], self.problem.noise_at(self.point), self.units
        mean, deviation = np.empty(len(X)), np.empty(len(X))
        mean[kept] = units.location + units.unit * (posterior.cavity_mean + noise.mean)
        deviation[kept] = units.unit * np.sqrt(posterior.cavity_variance + noise.variance)
        if not kept.all():
            found = self.predictive(X[~kept], local)
            found = found.log if units.logarithm else found
            mean[~kept], deviation[~kept] = found.mean(), found.std()
        return mean, deviation

    def with_scales(self, far: TrainingData) -> tuple[Self, Array, Array]:
        """The fit with scales of the noise of its rows and of ``far`` ones; and log densities and precisions of all."""
        given = self.problem, self.point, self.fitted.posteriors[0], self.rows.weight
        found = scales_of_posterior(*given, far.X, far.y, far.weight)
        fitted = self.fitted.with_scales(self.problem, found.scales)
        log_density = found.log_density - np.log(self.units.unit)
        return self.changed(fitted=fitted), log_density, found.precision

    def with_rows(self, new: TrainingData) -> Self:
        """The fit with more rows, in the units of the data, at the same hyperparameters and scales of the noise.

        A row changes the sites of all others: the solver starts at the present ones and runs until it converges. Of
        blocks only those with new rows are solved.
        """
        new, before, fitted = new.in_units(self.units), self.problem, self.fitted
        rows, places = self.rows.joined(new)
        place, blocks = places[: len(self.rows.y)], self.blocks.grown(new.X, places)
        problem, method = self.model.problem(rows, blocks), cast(IntegratesLatent, self.method.latent)

        def solved(some: Problem, start: Array, point: Point = self.point) -> LatentPosterior:
            K, mean, noise = some.at(point)
            return method.solve(K, some.targets, noise, mean, start)

        def spread(old: LatentPosterior) -> dict[str, Any]:
            names = "dual_coef", "site_precision", "mean", "variance", "cavity_variance"
            vectors = {name: np.zeros(len(rows.y)) for name in names}
            for name, values in vectors.items():
                values[place] = getattr(old, name)
            return vectors

        def sites_of(vectors: Mapping[str, Array]) -> Array:
            return np.stack([vectors["dual_coef"], vectors["site_precision"]])

        with threads_for(len(rows.y)):
            if not blocks.several:
                pairs = zip(fitted.posteriors, fitted.points, strict=True)
                found = [solved(problem, sites_of(spread(old)), point) for old, point in pairs]
            else:
                (old,) = fitted.posteriors
                vectors, value, converged = spread(old), fitted.log_evidence, old.converged
                sites = sites_of(vectors)
                for block in np.unique(blocks.label_of(len(rows.y))[places[len(place) :]]):
                    index, known = blocks.rows(block), place[before.blocks.rows(block)]
                    part = solved(problem.part(block), sites[:, index])
                    value += part.log_evidence - solved(before.part(block), sites[:, known]).log_evidence
                    converged = converged and part.converged
                    for name, values in vectors.items():
                        values[index] = getattr(part, name)
                found = [replace(old, **vectors, support=old.support[:0], log_evidence=value, converged=converged)]
            state = fitted.updated(found, method).with_scales(problem, fitted.scales)
        return replace(self, rows=rows, blocks=blocks, fitted=state).keeping(problem)


def fit_regression(rows: TrainingData, spec: RegressionSpec, rng: np.random.Generator) -> RegressionFit:
    """Fit the rows, and warn of what was set aside and did not converge."""
    n, exact, noise, method = len(rows.y), rows.exact, spec.model.noise, spec.method
    around = method if isinstance(method, Integrates) else None
    if around is not None:
        method = cast(Method, around.latent)
    set_aside, draws = spec.set_aside and exact, isinstance(method, Samples)
    units_of = partial(Units.of, tied=spec.model.tied, targets=True, logarithm=spec.logarithm)
    whole = units_of(rows)
    model = spec.model.suited(rows.in_units(whole), warping=spec.warping)

    def fit(kept: Mask, last: RegressionFit | None, by: Method = method) -> RegressionFit:
        """Fit the rows that are kept, from where the last fit ended if it was without some rows."""
        some = rows if kept.all() else rows.taken(kept)
        units, options = whole if kept.all() else units_of(some), spec.options
        if last is not None and len(last.rows.y) < n:  # gross errors move the optimum far; later rounds change few rows
            options = options._replace(start=last.point)
        more: dict[str, Any] = {"size": spec.size, "known": None if last is None else last.at_size}
        more |= {"neighbours": next(iter(spec.counts), None), "outliers": rows.given(~kept)}
        return RegressionFit.of_rows(model, units, some.in_units(units), by, options, rng, **more)

    def leave_one_out(kept: Mask, last: RegressionFit | None) -> tuple[Array, Array, RegressionFit]:
        found = fit(kept, last, method.latent or method if draws else method)
        return *found.given_others(found.units.inputs(rows.X), kept, spec.local), found

    # f follows a value that many targets have, and one noise around it, but a Gaussian one, misses their mean
    equal = exact and noise not in ("gaussian", "pinball") and mostly_equal(rows.y, rows.weight)
    enough = exact and isinstance(method, MatchesMoments) and n >= _SCALES
    with threads_for(n), spec.local.threads():
        kept, best = np.ones(n, dtype=bool), None
        if set_aside:
            kept, best = kept_rows(leave_one_out, whole.inputs(rows.X), rows.y, rows.weight)
        first = fit(kept, best) if best is None or draws else best
        if spec.size is not None:
            neighbours, scales = spec.choose_neighbours(first.problem, first.point)
            chosen = first.changed(fitted=first.fitted.with_scales(first.problem, scales), neighbours=neighbours)
        elif spec.noise_scales and (enough or (equal and len(first.fitted.posteriors) == 1)):

            def scaled(near: Mask) -> ScaledFit[RegressionFit]:
                found, far = first if (near == kept).all() else fit(near, first), kept & ~near
                found, *known = found.with_scales(rows.taken(far).in_units(found.units))
                of_rows = np.full((2, n), np.nan)
                of_rows[:, np.append(np.flatnonzero(near), np.flatnonzero(far))] = known
                return ScaledFit(of_rows[0], of_rows[1], found)

            if set_aside and noise != "pinball":  # a quantile is that of all targets
                chosen = determining_rows(scaled, kept, rows.y, rows.weight)[1].fit
            else:
                chosen = scaled(kept).fit
        else:
            chosen = first
        if around is not None:
            integrated = chosen.integrated(around)
            chosen = chosen if spec.integrate and not integrated.fitted.converged else integrated
        chosen.predictive(chosen.rows.X[:1], spec.local)  # which makes what other predictions need
    _warn_of_targets(chosen, equal)
    warn_unless_converged(chosen.fitted, chosen.method)
    return chosen


def _warn_of_targets(fit: RegressionFit, equal: bool) -> None:
    """Warn of targets that were set aside, and of equal ones that predictions miss."""
    if fit.outliers.size:
        warnings.warn(
            f"gross errors among {fit.rows.place.size} targets, or targets with far wider noise than most, are set "
            f'aside: {listed(fit.outliers)} (outliers="keep" keeps them)',
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    if equal and not fit.fitted.scales.several:
        warnings.warn(
            "a third of the targets or more have one value, which f follows, and the noise is as wide below f as "
            "above, so that predictions may be far from the mean of such targets: noise='gaussian' fits the mean",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
