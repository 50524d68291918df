"""Fits of regressions: gross errors and rows of far wider noise are set aside in rounds.

Each round makes a fit, and one of the fits is chosen (`bsvr_pp.estimators.outliers`). In blocks all rows are tested by
a dense fit of a subset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp.core.approximations import Mode, find_mode
from bsvr_pp.core.arrays import Array, Mask, numbers, warn
from bsvr_pp.core.compiler import interruptible, threads_for
from bsvr_pp.estimators.base import LocalBlocks, warn_unless_converged
from bsvr_pp.estimators.outliers import (
    HALF,
    ROUNDS,
    ScaledFit,
    determining_rows,
    gross_errors,
    listed,
    robust_width,
)
from bsvr_pp.estimators.standard_fit import StandardFit, StandardModel, integrated
from bsvr_pp.estimators.training_data import TrainingData, Units
from bsvr_pp.estimators.validation import NO_DIRECTIONS, Columns, Directions
from bsvr_pp.inference.approximate import solve_at
from bsvr_pp.inference.fitted import Fitted, fitted_at
from bsvr_pp.inference.integrated import BY_DRAWS, Integrated
from bsvr_pp.inference.monotone import ALLOWED, SMOOTH_KERNELS, GivenSlopes, Slopes, solve_monotone
from bsvr_pp.inference.prediction.component import Component, mixture_of
from bsvr_pp.inference.prediction.distribution import LOGARITHM, UNSCALED, PredictiveDistribution, Root, Unscaled
from bsvr_pp.inference.prediction.neighbours import (
    Cavities,
    NoiseScales,
    OtherRows,
    choose_neighbours,
    is_biased,
    is_far,
    precision_of_rows,
    scales_of_left_out,
    scales_of_posterior,
    solved_rows,
)
from bsvr_pp.inference.protocol import Integrates, IntegratesLatent, MatchesMoments, Method, Options, Samples
from bsvr_pp.inference.search.at_size import AtSize, Stage, subset_of
from bsvr_pp.inference.search.optimize import Optimum, check_alike, maximize_shared
from bsvr_pp.model.blocks import mostly_repeated
from bsvr_pp.model.matrices import OfTrainingRows
from bsvr_pp.model.priors import Kernel, mostly_equal, quantiles_of
from bsvr_pp.model.problem import Point, Problem

_EFFECTS = 200  # number of rows from which the kernel has main effects,
_SCALES = 200  # and a dense fit several scales of the noise: fewer rows say little about them
_SHARE, _LARGE = 0.02, 0.9  # of positive targets set aside, and quantile they exceed, if noise grows with the targets
_ALIKE = 2.0  # largest ratio of the shares of rows of far wider noise in all rows and in the subset
_INTEGRATED = 300  # largest number of rows whose hyperparameters are integrated out,
_FEW = Integrated(points=32, kept=12)  # in this way: more points gain little (the benchmark "integrated")
_COPIED, _NO_NOISE = 0.9, 0.01  # share of different rows, and width of the noise, below which copies may explain it
_LEAST = 20  # number of rows of which some can be left out
_EACH = 4  # rows for each lengthscale below which rows that are left out judge these (docs/defaults.md),
_FOLDS = 3  # in parts, in turn,
_BEHIND = 1.6  # and a loss in one part, relative to the best, from which the others are not needed
_VALUES, _ROWS = 3, 10  # largest number of values of targets that are few, and smallest number of rows that say so
_SKEWED = 4.0  # standard errors by which few rows miss their mean if their noise has scales
_SKEW, _SKEWED_ROWS = 0.05, 50  # skewness of the quantiles of targets from which roots are tried, and fewest rows;
_WIDE, _FREQUENT = 8.0, 0.02  # scale of the noise of wrong targets, and their share, by which a root would move means
_ALL, _SOME = 400, 250  # largest number of rows that all decide, and number of those of more;
_SURE = 5.0  # log evidence by which roots are ahead (docs/defaults.md),
_SURE_IN_BLOCKS, _PARTS = 15.0, 2  # and in blocks, on each of so many parts of the rows
_FARTHER = 2.0  # distance from the median, relative to the end of these rows, beyond which others have gross errors
_CHECKED = 20, 60  # smallest number of rows whose coverage is checked, and largest number of those checked,
_TOO_FEW = 0.7  # and share of them in intervals of 90 % that chance does not explain: of 29 real sets none has less


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
    target_scale: Unscaled | None  # None is chosen by the rows
    warping: bool
    integrate: bool = False  # out the hyperparameters of few rows
    monotone: Directions = NO_DIRECTIONS
    shared: bool = False  # whether several targets share the kernel
    lengthscales: tuple[bool, ...] = ()  # of each input or of all, between which rows that are left out may decide
    size: int | None = None
    chooses_noise: bool = False  # Gaussian for targets of few values

    def with_noise(self, data: Sequence[TrainingData]) -> Self:
        """Return the options with Gaussian noise if they choose it, and all these targets have few values."""
        few = self.chooses_noise and all(map(few_values, data))
        return replace(self, model=replace(self.model, noise="gaussian")) if few else self

    def for_rows(self, rows: TrainingData, columns: Columns) -> tuple[Self, TrainingData]:
        """Decide what depends on the number of rows; return the rows in the form that is fitted."""
        n = len(rows.y)
        kernel = self.kernel_for(n) if columns.matrix is None else self.model.kernel
        model = replace(self.model, tied=columns.tied, kernel=columns.kernel(kernel))
        if self.shared and self.local.divides(n):
            raise ValueError(f"shared=True takes a dense fit, and {n} rows need blocks: use blocks=None")
        rows, size = self.local.divided(rows, self.method, undivided=columns.undivided)
        if self.monotone and model.kernel not in SMOOTH_KERNELS:
            got = repr(model.kernel) if isinstance(model.kernel, str) else "a kernel without a name"
            raise ValueError(f"monotone takes kernel='auto' or {', '.join(SMOOTH_KERNELS)}, got {got}")
        if self.monotone and size is not None:
            raise ValueError(f"monotone takes a dense fit, and {n} rows need blocks: use blocks=None")
        method = _FEW if self.integrate and n <= _INTEGRATED and size is None else self.method
        return replace(self, model=model, size=size, method=method), rows

    def are_judged(self, rows: TrainingData, model: StandardModel) -> bool:
        """Return whether rows that are left out judge the lengthscales of a dense fit, and the noise of predictions."""
        n, d = len(rows.y), rows.X.shape[1] if model.tied is None else np.unique(model.tied).size
        few = isinstance(model.kernel, str) and d > 1 and _LEAST <= n < _EACH * d
        judged = few and bool(self.lengthscales) and self.size is None and rows.exact
        return judged and not mostly_equal(rows.y, rows.weight)

    def root_of(self, rows: TrainingData) -> Root | None:
        """Return the root of skewed targets, where it may be chosen; None for others."""
        n, given = len(rows.y), self.target_scale is not None or self.shared or self.model.noise == "pinball"
        refused = self.local.divides(n) and (self.monotone or isinstance(self.method, Integrates))
        if given or refused or not rows.exact or n < _SKEWED_ROWS:
            return None
        low, middle, high = quantiles_of(rows.y, [0.1, 0.5, 0.9], rows.weight)
        skew = (low + high - 2.0 * middle) / max(high - low, np.finfo(float).tiny)
        alike = abs(skew) <= _SKEW or mostly_equal(rows.y, rows.weight)
        return None if alike else Root.of_targets(middle, low if skew > 0.0 else high).with_end(rows.y)

    def read_scale(self, name: str, given: ArrayLike) -> Unscaled:
        """Return the scale of the targets of a fit from an array of its constants, checked."""
        root = numbers(name, given)
        chosen = self.target_scale is None and root.shape == (3,) and root[0] != root[1] and root[2] > 0.0
        if root.shape != (0,) and not chosen:
            raise ValueError(f"{name} must be middle, end and offset > 0, or empty, got {root}")
        return Root(*map(float, root)) if chosen else self.target_scale or UNSCALED

    def slopes(self, columns: Columns) -> Slopes | None:
        """Return the slopes of inputs along which f is monotone, at no row yet; None if there are none."""
        return Slopes.none(self.monotone.signs(columns)) if self.monotone else None

    def kernel_for(self, n: int) -> Kernel:
        """Return the kernel of n rows that have inputs."""
        return "main_effects" if self.automatic and self.model.ard and n >= _EFFECTS else self.model.kernel

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of nearest rows between which the fit chooses; none in a dense fit, or where draws predict."""
        return () if self.size is None or isinstance(self.method, Samples) else self.local.counts()

    def equal_targets(self, rows: TrainingData) -> bool:
        """Return whether many targets share a value that f follows, so that non-Gaussian noise misses their mean."""
        return rows.exact and self.model.noise not in ("gaussian", "pinball") and mostly_equal(rows.y, rows.weight)

    def choose_neighbours(
        self, problem: Problem, point: Point, far: TrainingData | None = None
    ) -> tuple[int | None, NoiseScales]:
        """Return the number of nearest rows for predictions in blocks, and the scales of the noise of these fits.

        It is None for the block of the new row, which has several inputs where most are repeated.
        """
        if self.local.neighbours == "auto" and mostly_repeated(problem.inputs):
            return None, NoiseScales.one()
        if not (self.counts and problem.ends.exact and (self.noise_scales or len(self.counts) > 1)):
            return next(iter(self.counts), None), NoiseScales.one()
        rng, progressbar = np.random.default_rng(0), self.options.progressbar
        others = None if far is None else OtherRows(far.X, far.y, far.weight)
        neighbours, scales = choose_neighbours(problem, point, self.counts, rng, progressbar, others)
        return neighbours, scales if self.noise_scales else NoiseScales.one()


@dataclass(frozen=True, kw_only=True)
class RegressionFit(StandardFit):
    """A regression of standardised rows, without ``outliers``; predictions have fits on ``neighbours`` if not None."""

    neighbours: int | None
    outliers: NDArray[np.intp]

    def predictive(self, X: Array, local: LocalBlocks, noise_scales: bool = True) -> PredictiveDistribution:
        """Return the distribution of new targets at standardised inputs, in units of the target."""
        neighbours = local.neighbours_of(self.neighbours) if self.blocks.local else None

        def parts(fitted: Fitted) -> Iterable[Component]:
            used = fitted if noise_scales else replace(fitted, scales=NoiseScales.one())
            return used.components(self.problem, neighbours)

        with threads_for(len(self.rows.y)), local.threads():
            given = parts(self.fitted if neighbours is None else self.found)
            jointly = None if isinstance(self.model.kernel, OfTrainingRows) else lambda: parts(self.fitted)
            return mixture_of(given, X, jointly=jointly, **self.units.of_targets)[0]

    @property
    def log_evidence(self) -> float:
        """Log evidence of the targets at the optimum; of their logarithms if these are the targets of the model."""
        return self.fitted.at_optimum + self.units.log_jacobian(self.rows)

    @property
    def cavities(self) -> Cavities:
        """Moments of f at each row given the others (in blocks, given near rows)."""
        return solved_rows(self.problem, self.point) if self.blocks.several else self.fitted.posteriors[0]

    @interruptible()
    def monotone(self, slopes: Slopes) -> Self:
        """Return the fit with a mean of f that has the signs of slopes; slopes are added until it has."""
        plain, latent = self.model.problem(self.rows), cast(IntegratesLatent, self.method.latent)
        with threads_for(len(self.rows.y)):
            fitted, slopes, fall = solve_monotone(plain, self.fitted, latent, slopes)
        problem = GivenSlopes.of(plain, slopes)
        state = fitted.with_scales(problem, self.fitted.scales)
        if fall > ALLOWED:
            message = f"the mean still falls by {fall:.2g} standard deviations where monotone says that it rises"
            state = replace(state, converged=False, message=message)
        return replace(self, found=state, slopes=slopes).keeping(problem)

    @cached_property
    def machine(self) -> Mode:
        """The support vector machine, which is the most probable latent function."""
        with threads_for(len(self.rows.y)):
            K, mean, noise = self.problem.at(self.point)
            mode = find_mode(K, self.problem.targets, noise, mean=mean)
        return replace(mode, dual_coef=np.where(mode.support > 0, mode.dual_coef, 0.0))

    def given_others(self, X: Array, kept: Mask, local: LocalBlocks) -> tuple[Array, Array]:
        """Return mean and deviation of all targets given the other kept rows, at standardised inputs X."""
        found, noise, units = self.cavities, self.problem.noise_at(self.point), self.units
        mean, deviation = np.empty(len(X)), np.empty(len(X))
        mean[kept] = units.location + units.unit * (found.cavity_mean + noise.mean)
        deviation[kept] = units.unit * np.sqrt(found.cavity_variance + noise.variance)
        if not kept.all():
            others = self.predictive(X[~kept], local)
            mean[~kept], deviation[~kept] = others.modelled.mean(), others.modelled.std()
        return mean, deviation

    def is_skewed(self, equal: bool) -> bool:
        """Return whether the noise of exact targets misses their mean, since many are ``equal`` or they are skewed."""
        if self.model.noise in ("gaussian", "pinball") or not self.rows.exact or len(self.fitted.posteriors) != 1:
            return False
        mean = self.fitted.posteriors[0].cavity_mean + self.problem.noise_at(self.point).mean
        return equal or is_biased(self.problem.targets - mean, self.rows.weight, _SKEWED)

    def with_scales(self, far: TrainingData, means: bool = True) -> tuple[Self, Array, Array]:
        """Return the fit with noise scales learned from its rows and ``far`` ones; log densities, precisions of all.

        With ``means`` the scales may have offsets.
        """
        given = self.problem, self.point, self.fitted.posteriors[0], self.rows.weight
        found = scales_of_posterior(*given, far.X, far.y, far.weight, means=means)
        fitted = self.fitted.with_scales(self.problem, found.scales)
        log_density = found.log_density - np.log(self.units.unit)
        return self.changed(found=fitted), log_density, found.precision

    def with_rows(self, new: TrainingData) -> Self:
        """Return the fit with more rows, in units of the data, solved at the same hyperparameters and noise scales."""
        new = new.in_units(self.units)
        rows, blocks = self.rows.joined(new, merge=not self.blocks.local), self.blocks.grown(new.X)
        problem, latent = self.model.problem(rows, blocks), cast(IntegratesLatent, self.method.latent)
        with threads_for(len(rows.y)):
            if blocks.several:  # solved at first use
                state = replace(self.found, posteriors=[], log_evidence=np.nan)
            else:
                state = self.fitted.updated([solve_at(problem, latent, point) for point in self.fitted.points], latent)
            state = state.with_scales(problem, self.found.scales)
        fit = replace(self, rows=rows, blocks=blocks, found=state).keeping(problem)
        return fit if self.slopes is None else fit.monotone(self.slopes)


class _Determined(NamedTuple):
    """Rows without gross errors and their fit; the rows that determine f, and their fit with scales of the noise."""

    kept: Mask
    first: RegressionFit
    near: Mask
    fit: RegressionFit


@dataclass(frozen=True)
class _Rounds:
    """Fits of a regression, each without some of the rows, by ``latent`` at an optimum; the last is by ``method``."""

    spec: RegressionSpec
    model: StandardModel
    units: Units  # of all rows
    method: Method
    latent: Method
    rng: np.random.Generator
    begun: RegressionFit | None = None  # the fit to all rows by ``latent``, if it is known

    @classmethod
    def of(
        cls, rows: TrainingData, spec: RegressionSpec, columns: Columns, rng: np.random.Generator
    ) -> tuple[Self, TrainingData]:
        """Return the rounds, and the rows in the form that is fitted."""
        spec, rows = spec.for_rows(rows, columns)
        slopes = spec.slopes(columns)
        method = cast(Method, spec.method.latent) if isinstance(spec.method, Integrates) else spec.method
        latent = cast(Method, method.latent) if isinstance(method, Samples) else method
        units = Units.of(rows, spec.model.tied, targets=True, target_scale=spec.target_scale or UNSCALED)
        model = spec.model.suited(rows.in_units(units), warping=spec.warping, automatic=spec.automatic)
        if slopes is not None:  # the effect of a level has no slope
            model = replace(model, levels=tuple(k for k in model.levels if not slopes.signs[k]))
        return cls(spec, model, units, method, latent, rng), rows

    def units_of(self, rows: TrainingData) -> Units:
        found = Units.of(rows, self.spec.model.tied, targets=True, target_scale=self.units.target_scale)
        return replace(found, mean=self.units.mean, scale=self.units.scale) if self.spec.shared else found

    def fit(
        self,
        rows: TrainingData,
        kept: Mask,
        last: RegressionFit | None = None,
        by: Method | None = None,
        units: Units | None = None,
        first: Stage | None = None,
        known: AtSize | None = None,
    ) -> RegressionFit:
        """Fit the kept rows, from the end of the last fit if it was without some rows.

        In blocks the ``first`` stage of the search, or its whole result, may be known.
        """
        if self.begun is not None and last is None and kept.all() and (by or self.latent) == self.latent:
            return self.begun
        some, options, spec = rows if kept.all() else rows.taken(kept), self.spec.options, self.spec
        if units is None:
            units = self.units if kept.all() else self.units_of(some)
        if last is not None and len(last.rows.y) < len(rows.y):
            options = options._replace(start=last.point)  # gross errors move the optimum far; later rounds little
        return RegressionFit.of_rows(
            *(self.model, units, some.in_units(units), by or self.latent, options, self.rng),
            size=spec.size,
            known=known if last is None else last.at_size,
            first=first,
            neighbours=next(iter(spec.counts), None),
            outliers=rows.given(~kept),
        )

    def explained(self, rows: TrainingData, first: Stage | None = None) -> tuple[Mask, RegressionFit]:
        """Return the rows that explain each other, without gross errors, and their fit."""
        kept, last, kernel = np.ones(len(rows.y), dtype=bool), None, self.model.kernel
        if not self.spec.set_aside:
            return kept, self.fit(rows, kept, by=self.method, first=first)
        X = kernel.coordinates(rows.X) if isinstance(kernel, OfTrainingRows) else self.units.inputs(rows.X)
        unit = robust_width(rows.y, rows.weight)
        for _ in range(ROUNDS):
            last = self.fit(rows, kept, last, first=first)
            mean, deviation = last.given_others(last.units.inputs(rows.X), kept, self.spec.local)
            again = ~gross_errors(X, rows.nearest(mean), mean, deviation, unit, rows.weight)
            if (again == kept).all():
                return kept, last
            kept = again
        return kept, self.fit(rows, kept, last, first=first)

    def dense(self, rows: TrainingData) -> _Determined:
        """Find the rows that determine f in a dense fit."""
        spec, n = self.spec, len(rows.y)
        kept, first = self.explained(rows)
        if spec.set_aside and self.method is not self.latent:
            first = self.fit(rows, kept, first, self.method)
        if not self.has_scales(rows, first):
            return _Determined(kept, first, kept, first)

        def with_scales(fit: RegressionFit, near: Mask, means: bool) -> tuple[RegressionFit, Array, Array]:
            return fit.with_scales(rows.taken(kept & ~near).in_units(fit.units), means)

        def scaled(near: Mask, last: RegressionFit | None) -> ScaledFit[RegressionFit]:
            found, far = first if last is None else self.fit(rows, near, last, self.method), kept & ~near
            found, *known = with_scales(found, near, means=False)  # which would explain errors on one side
            of_rows = np.full((2, n), np.nan)
            of_rows[:, np.append(np.flatnonzero(near), np.flatnonzero(far))] = known
            mean, _ = found.given_others(found.units.inputs(rows.X), near, self.spec.local)
            return ScaledFit(of_rows[0], of_rows[1], np.abs(rows.y - mean), found)

        if not spec.set_aside or self.model.noise == "pinball":  # a quantile refers to all targets
            return _Determined(kept, first, kept, with_scales(first, kept, means=True)[0])
        near, best = determining_rows(scaled, kept, rows.y, rows.weight)
        return _Determined(kept, first, near, with_scales(best.fit, near, means=True)[0])

    def has_scales(self, rows: TrainingData, first: RegressionFit) -> bool:
        """Return whether a dense fit may have several scales of the noise."""
        enough = rows.exact and isinstance(self.method, MatchesMoments) and len(rows.y) >= _SCALES
        skewed = first.is_skewed(self.spec.equal_targets(rows))
        return self.spec.noise_scales and (enough or skewed)

    def at(self, optimum: Optimum, rows: TrainingData, alone: _Determined) -> RegressionFit:
        """Return the fit at another optimum of the hyperparameters, by the rows that determine f."""
        posterior = solve_at(alone.fit.problem, cast(IntegratesLatent, self.latent), optimum.point)
        fit = alone.fit.changed(found=fitted_at(optimum.point, posterior, [optimum]))
        far = rows.taken(alone.kept & ~alone.near).in_units(fit.units)
        return fit.with_scales(far)[0] if self.has_scales(rows, alone.first) else fit

    def in_blocks(self, rows: TrainingData) -> RegressionFit:
        """Fit in blocks; a dense fit of a subset shows whether rows must be set aside, and tests all rows."""
        kept, far, first = np.ones(len(rows.y), dtype=bool), None, None
        if self.spec.set_aside and isinstance(self.latent, MatchesMoments):
            subset = subset_of(len(rows.y), self.rng)
            inside = np.isin(np.arange(len(rows.y)), subset)
            few = replace(self, spec=replace(self.spec, size=None), method=self.latent).dense(rows.taken(inside))
            first = (subset, few.first.found.optima[0]) if few.kept.all() else None
            if not few.near.all():
                kept, far = self._judged(rows, few)
        if kept.all():
            kept, found = self.explained(rows, first)
        else:
            chosen, inside[subset] = few.fit, few.near
            first = np.flatnonzero(inside[kept]), chosen.found.optima[0]
            found = self.fit(rows, kept, units=chosen.units, first=first)
        if self.spec.set_aside and self.method is not self.latent:
            found = self.fit(rows, kept, found, self.method)
        others = None if far is None or not far.any() else rows.taken(far).in_units(found.units)
        neighbours, scales = self.spec.choose_neighbours(found.problem, found.point, others)
        return found.changed(found=found.found.with_scales(found.problem, scales), neighbours=neighbours)

    def _judged(self, rows: TrainingData, few: _Determined) -> tuple[Mask, Mask]:
        """Return rows that determine f in blocks, and rows of far wider noise, by a fit of few rows."""
        best, every = few.fit.found.optima[0], np.ones(len(rows.y), dtype=bool)
        judged = self.fit(rows, every, units=few.fit.units, known=AtSize([best, best]))
        mean, deviation = judged.given_others(judged.rows.X, every, self.spec.local)
        unit, y = robust_width(rows.y, rows.weight), rows.nearest(mean)
        gross = gross_errors(judged.rows.X, y, mean, deviation, unit, rows.weight)
        scales = few.fit.found.scales
        far = ~gross & is_far(precision_of_rows(judged.problem, judged.point, judged.cavities, scales))
        far &= rows.weight[far].sum() <= HALF * rows.weight.sum()
        expected = np.mean(few.kept & ~few.near)
        far &= rows.exact and expected / _ALIKE <= far.mean() <= _ALIKE * expected  # others do not stand out by density
        kept = ~(gross | far)
        return kept, far if not few.kept.all() else ~kept  # errors that are frequent are noise


def fit_targets(
    data: Sequence[TrainingData], spec: RegressionSpec, columns: Columns, rng: np.random.Generator
) -> list[RegressionFit]:
    """Fit targets, each alone or all with a shared kernel; from the second on in threads.

    Warnings of rows set aside and of failed convergence come at the end, with the name of the target if there are
    several.
    """
    together = not isinstance(spec.method, Samples)
    specs = [spec.with_noise(data if spec.shared else [rows]) for rows in data]

    def fit_target(j: int) -> RegressionFit:
        local = replace(spec.local, n_jobs=1) if together and j > 0 else spec.local
        return _fit_alone(data[j], replace(specs[j], local=local), columns, deepcopy(rng))

    if spec.shared:
        fits = _fit_sharing(data, specs[0], columns, rng)
    else:
        fits = spec.local.each_fit(fit_target, len(data), first=1, together=together)
    for fit, rows, own, name in zip(fits, data, specs, columns.targets or [None], strict=True):
        where = "" if name is None else f"target {name!r}: "
        _warn_of_targets(fit, rows, own, where)
        warn_unless_converged(fit.found, fit.method, where)
    return fits


def choose_scale(
    rows: TrainingData, columns: Columns, spec: RegressionSpec, rng: np.random.Generator
) -> tuple[Unscaled, RegressionFit | None]:
    """Return the scale of targets as given, by dense fits to some rows; the fit on it, if these are all rows.

    Gross errors of targets without a scale are left out of both, unless the fit keeps them.
    """
    if (root := spec.root_of(rows)) is None:
        return spec.target_scale or UNSCALED, None
    n = len(rows.y)
    few, dense = n if n <= _ALL else _SOME, replace(spec, local=replace(spec.local, size=None))

    def rounds(some: TrainingData, scale: Unscaled) -> tuple[_Rounds, TrainingData]:
        found, own = _Rounds.of(some.on_scale(scale), replace(dense, target_scale=scale), columns, deepcopy(rng))
        return replace(found, method=found.latent), own

    with threads_for(few), spec.local.threads():
        parts, sure = (_PARTS, _SURE_IN_BLOCKS) if few < n and spec.local.divides(n) else (1, _SURE)
        for part in range(parts):
            some = rows.taken(np.isin(np.arange(n), rows.mixed(part)[:few]))
            of_plain, own = rounds(some, UNSCALED)
            kept, plain = of_plain.explained(own)  # gross errors that the fit sets aside decide nothing
            if part == 0:
                reach = abs(root.with_end(own.y[kept]).end - root.middle) * (1.0 if few == n else _FARTHER)
                near = np.abs(rows.y - root.middle) <= (reach if spec.set_aside else np.inf)
                root = root.with_end(rows.y[near])
            of_root, own = rounds(some, root)
            on_root = of_root.fit(own, kept)
            known = few == n and kept.all()
            if not on_root.log_evidence > plain.log_evidence + sure:
                return UNSCALED, plain if known else None
        scales = replace(of_root, begun=on_root if kept.all() else None).dense(own).fit.found.scales
        if scales.weights[scales.factors >= _WIDE].sum() > _FREQUENT:
            return UNSCALED, plain if known else None
    return root, on_root if known else None


def _fit_alone(rows: TrainingData, spec: RegressionSpec, columns: Columns, rng: np.random.Generator) -> RegressionFit:
    scale, begun = choose_scale(rows, columns, spec, rng)
    rows = rows.on_scale(scale) if spec.target_scale is None else rows
    spec = replace(spec, target_scale=scale)
    rounds, rows = _Rounds.of(rows, spec, columns, rng)
    with threads_for(len(rows.y)), spec.local.threads():
        if rounds.spec.size is not None:
            return _finished([rounds.in_blocks(rows)], rounds.spec, columns)[0]
        if not spec.are_judged(rows, rounds.model):
            return _finished([replace(rounds, begun=begun).dense(rows).fit], rounds.spec, columns)[0]
        optimised = replace(spec, method=rounds.latent, integrate=False, lengthscales=())
        ard, mean, deviation = _judged_by_left_out(rows, optimised, spec.lengthscales, columns, rng)
        rounds = _Rounds.of(rows, replace(spec, model=replace(spec.model, ard=ard)), columns, rng)[0]
        kept, *_, fit = rounds.dense(rows)
        if spec.noise_scales:
            noise, unit, y = fit.problem.noise_at(fit.point), fit.units.unit, fit.units.targets(rows.y[kept])
            moments = fit.units.targets(mean[kept]), (deviation[kept] / unit) ** 2
            scales = scales_of_left_out(*moments, noise, y, rows.weight[kept])
            fit = fit.changed(found=fit.found.with_scales(fit.problem, scales))
        return _finished([fit], rounds.spec, columns)[0]


def _judged_by_left_out(
    rows: TrainingData, spec: RegressionSpec, kinds: Sequence[bool], columns: Columns, rng: np.random.Generator
) -> tuple[bool, Array, Array]:
    """Return which lengthscales predict rows best that fits leave out; mean and deviation of f at all rows by these.

    The evidence of almost as many lengthscales as rows prefers some that predict nothing, and leaves no noise.
    """
    n = len(rows.y)
    parts = np.array_split(rows.mixed(1), _FOLDS)

    def judge(ard: bool, others: NDArray[np.intp]) -> Array:
        """Return loss, mean and deviation (3, m) of rows that the fit leaves out; widths are learned afterwards."""
        alone = replace(spec, model=replace(spec.model, ard=ard))
        fit = _fit_alone(rows.taken(~np.isin(np.arange(n), others)), alone, columns, deepcopy(rng))
        found = fit.predictive(fit.units.inputs(rows.X[others]), spec.local)
        mean, deviation = found.modelled.moments_of_f()
        return np.vstack([rows.weight[others] * np.abs(rows.y[others] - mean), mean, deviation])

    def of_all(ard: bool) -> Array:
        others = spec.local.each_fit(lambda k: judge(ard, parts[k + 1]), _FOLDS - 1, first=0, together=True)
        return np.hstack([begun[ard], *others])

    begun = {ard: judge(ard, parts[0]) for ard in kinds}
    best = min(of_rows[0].sum() for of_rows in begun.values())
    kinds = [ard for ard, of_rows in begun.items() if of_rows[0].sum() <= _BEHIND * best]
    each = [of_all(ard) for ard in kinds]
    chosen = int(np.argmin([of_rows[0].sum() for of_rows in each]))
    _, mean, deviation = each[chosen][:, np.argsort(np.concatenate(parts))]
    return kinds[chosen], mean, deviation


def _fit_sharing(
    data: Sequence[TrainingData], spec: RegressionSpec, columns: Columns, rng: np.random.Generator
) -> list[RegressionFit]:
    """Fit several targets by one kernel, after fits of each alone (docs/how-to/several-targets.md)."""
    longest = max(data, key=lambda rows: len(rows.y))
    most, _ = _Rounds.of(longest, spec, columns, rng)
    each = [replace(most, units=most.units_of(rows), rng=deepcopy(rng)) for rows in data]
    every = range(len(data))
    check_alike([most.model.problem(data[j].in_units(each[j].units)) for j in every])
    with threads_for(len(longest.y)), spec.local.threads():
        alone = spec.local.each_fit(lambda j: each[j].dense(data[j]), len(data), first=1, together=True)
        problems, points = [one.fit.problem for one in alone], [one.fit.point for one in alone]
        optima = maximize_shared(problems, cast(IntegratesLatent, most.latent), points)
        return _finished([each[j].at(optima[j], data[j], alone[j]) for j in every], most.spec, columns)


def _finished(fits: list[RegressionFit], spec: RegressionSpec, columns: Columns) -> list[RegressionFit]:
    """Integrate hyperparameters out, make f monotone, and prepare predictions."""
    if isinstance(spec.method, Integrates):
        around = integrated(fits, spec.method)
        if spec.shared or spec.monotone:  # which take no draws
            said = [fit.found.message.replace(BY_DRAWS, "use inference='auto'") for fit in around]
            around = [fit.changed(found=replace(fit.found, message=m)) for fit, m in zip(around, said, strict=True)]
        fits = around if not spec.integrate or all(fit.found.converged for fit in around) else fits
    slopes = spec.slopes(columns)
    if slopes is not None:
        fits = [fit.monotone(slopes) for fit in fits]
    for fit in fits:
        fit.predictive(fit.rows.X[:1], spec.local)  # prepares other predictions
    return fits


def _covered(fit: RegressionFit, local: LocalBlocks) -> float:
    """Return the share of some exact targets of the fit inside central intervals of 90 %; 1 of few targets."""
    rows, n = fit.rows, len(fit.rows.y)
    if n < _CHECKED[0] or not rows.exact or isinstance(fit.method, Samples):
        return 1.0
    some = np.random.default_rng(0).permutation(n)[: _CHECKED[1]]
    found, y = fit.predictive(rows.X[some], local), fit.units.location + fit.units.unit * rows.y[some]
    below = found.modelled.cdf(y)
    return float(np.average((below > 0.05) & (below < 0.95), weights=rows.weight[some]))


def few_values(rows: TrainingData) -> int:
    """Return the number of values of exact targets if they have at most three; 0 if they have more, or rows are few."""
    count = np.unique(rows.y).size if rows.exact and len(rows.y) >= _ROWS else 0
    return count if count <= _VALUES else 0


def warn_of_few_values(rows: TrainingData, noise: str, where: str = "") -> bool:
    """Warn of targets of few values, and return whether they are."""
    if count := few_values(rows):
        mean = "" if noise in ("gaussian", "pinball") else ", and noise='gaussian' their mean"
        classes = "bp.BayesianSVC and bp.BayesianOrdinalSVC predict probabilities of classes"
        warn(f"{where}targets have {count} values: {classes}{mean}")
    return count > 0


def _warn_of_targets(fit: RegressionFit, rows: TrainingData, spec: RegressionSpec, where: str) -> None:
    """Warn of targets that were set aside, of few values or equal ones, and of those outside intervals."""
    if fit.outliers.size:
        aside, growing = rows.y[rows.place[fit.outliers]], spec.target_scale != LOGARITHM and rows.y.min() > 0.0
        large = growing and aside.size > _SHARE * rows.y.size and np.median(aside) > np.quantile(rows.y, _LARGE)
        logs = "; log_targets=True describes noise that grows with the targets" if large else ""
        warn(
            f"{where}gross errors among {fit.rows.place.size} targets, or targets with far wider noise than most, are "
            f'set aside: {listed(fit.outliers)} (outliers="keep" keeps them{logs})'
        )
    if warn_of_few_values(rows, spec.model.noise, where):
        return
    n, different = rows.weight.sum(), len(rows.y)
    if rows.exact and different < _COPIED * n and np.max(fit.problem.noise_at(fit.point).variance) < _NO_NOISE**2:
        warn(
            f"{where}the fit has no noise, and {different} different rows count as {n:.3g}, since others repeat them "
            "with equal targets, or by their weights: drop_duplicates() leaves copies out, and weights that are no "
            "counts can be divided by their mean"
        )
    if spec.equal_targets(rows) and not fit.found.scales.several:
        warn(
            f"{where}a third of the targets or more have one value, which f follows, and the noise is as wide below f "
            "as above, so that predictions may be far from the mean of such targets: noise='gaussian' fits the mean"
        )
    if (share := _covered(fit, spec.local)) < _TOO_FEW:
        kind = "function" if fit.slopes is None else "monotone function"
        warn(
            f"{where}intervals of 90 % hold only {100 * share:.0f} % of the targets: no noise around one {kind} "
            "describes them; separate them if they are of two kinds, and leave out codes such as -999"
        )
