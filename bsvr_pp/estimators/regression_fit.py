"""The fit of a regression, a value: checked options and rows go in, and what predicts comes out.

Gross errors are set aside in rounds, and targets whose noise is far wider than most in further rounds
(`bsvr_pp.estimators.outliers`). Each round makes a fit of its own, of which one is chosen.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.core.approximations import LatentPosterior, Mode, find_mode
from bsvr_pp.core.arrays import Array
from bsvr_pp.core.compiler import threads_for
from bsvr_pp.estimators.base import LocalBlocks, warn_unless_converged
from bsvr_pp.estimators.outliers import Mask, ScaledFit, determining_rows, kept_rows, listed
from bsvr_pp.estimators.standard_models import StandardFit, StandardModel
from bsvr_pp.estimators.training_data import PACKAGE, TrainingData, Units
from bsvr_pp.inference.prediction.component import JointTargets, mixture_of
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution
from bsvr_pp.inference.prediction.neighbours import NoiseScales, choose_neighbours, scales_of_posterior
from bsvr_pp.inference.protocol import Averages, IntegratesLatent, MatchesMoments, Method, Options, Samples
from bsvr_pp.model.priors import Tied, mostly_equal
from bsvr_pp.model.problem import Point, Problem

_EFFECTS = 200  # number of rows from which the kernel has main effects,
_SCALES = 200  # and a dense fit several scales of the noise, of which fewer tell little


@dataclass(frozen=True, slots=True)
class RegressionSpec:
    """Checked options of a regression.

    The rows decide a kernel that is ``automatic``, and ``size``, that of blocks, None for a dense fit.
    """

    model: StandardModel
    automatic: bool
    method: Method
    options: Options
    local: LocalBlocks
    set_aside: bool
    noise_scales: bool
    logarithm: bool
    size: int | None = None

    def for_rows(self, rows: TrainingData, tied: Tied) -> tuple[Self, TrainingData]:
        """Decide what depends on the number of rows; the rows come back as they are fitted.

        ValueError if these rows cannot be fitted in blocks as the options ask.
        """
        n, model, size = len(rows.y), replace(self.model, tied=tied), None
        if rows.exact and self.local.divides(n):
            if isinstance(self.method, Averages):
                raise ValueError(f"a committee averages over optima of a dense fit, and {n} rows are fitted in blocks")
            rows, size = rows.unmerged(), self.local.rows
            self.local.tell(len(rows.y))
        if self.automatic and size is None and n >= _EFFECTS:
            model = replace(model, kernel="main_effects")
        return replace(self, model=model, size=size), rows

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of nearest rows between which the fit chooses; none in a dense fit, or where draws predict."""
        return () if self.size is None or isinstance(self.method, Samples) else self.local.counts()

    def choose_neighbours(self, problem: Problem, point: Point) -> tuple[int | None, NoiseScales]:
        """The number of nearest rows of predictions in blocks, and the scales of the noise of fits on them."""
        if not self.counts or not (self.noise_scales or len(self.counts) > 1):
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
        """The distribution of new targets at standardised inputs, in units of the target.

        The options decide on the number of neighbours in blocks, and whether the noise has its scales.
        """
        fitted = self.fitted if noise_scales else replace(self.fitted, scales=NoiseScales.one())
        neighbours = local.neighbours_of(self.neighbours) if self.blocks.local else None
        parts = partial(fitted.components, self.problem, neighbours)
        with threads_for(len(self.rows.y)), local.threads():
            return mixture_of(parts(), X, joint=JointTargets(parts, X), **self.units.of_targets)[0]

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
        """The fit with scales of the noise, which it and standardised ``far`` rows, that it does not have, tell.

        Also the log densities and precisions of its rows and of these.
        """
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
        (old,), new, before = self.fitted.posteriors, new.in_units(self.units), self.problem
        rows, place = self.rows.joined(new, merge=not self.blocks.local)
        blocks = self.blocks.grown(new.X)
        problem, method = self.model.problem(rows, blocks), cast(IntegratesLatent, self.method.latent)

        def solved(some: Problem, start: Array) -> LatentPosterior:
            K, mean, noise = some.at(self.point)
            return method.solve(K, some.targets, noise, mean, start)

        names = "dual_coef", "site_precision", "mean", "variance", "cavity_variance"
        vectors: dict[str, Any] = {name: np.zeros(len(rows.y)) for name in names}
        for name, values in vectors.items():
            values[place] = getattr(old, name)
        sites = np.stack([vectors["dual_coef"], vectors["site_precision"]])
        with threads_for(len(rows.y)):
            if not blocks.several:
                found = solved(problem, sites)
            else:
                value, converged = self.fitted.log_evidence, old.converged
                for block in np.unique(blocks.assign(new.X)):
                    index, known = blocks.rows(block), place[before.blocks.rows(block)]
                    part = solved(problem.part(block), sites[:, index])
                    value += part.log_evidence - solved(before.part(block), sites[:, known]).log_evidence
                    converged = converged and part.converged
                    for name, values in vectors.items():
                        values[index] = getattr(part, name)
                found = replace(old, **vectors, support=old.support[:0], log_evidence=value, converged=converged)
            converged = self.fitted.converged and found.converged
            state = replace(self.fitted, posteriors=[found], converged=converged, log_evidence=found.log_evidence)
            state = state.with_scales(problem, self.fitted.scales)
        return replace(self, rows=rows, blocks=blocks, fitted=state).keeping(problem)


def fit_regression(rows: TrainingData, spec: RegressionSpec, rng: np.random.Generator) -> RegressionFit:
    """Fit the rows, as `RegressionSpec.for_rows` gives them, and warn of what was set aside and did not converge."""
    n, exact, noise, method = len(rows.y), rows.exact, spec.model.noise, spec.method
    set_aside, draws = spec.set_aside and exact, isinstance(method, Samples)
    units_of = partial(Units.of, tied=spec.model.tied, targets=True, logarithm=spec.logarithm)
    whole = units_of(rows)

    def fit(kept: Mask, last: RegressionFit | None, by: Method = method) -> RegressionFit:
        """Fit the rows that are kept, from where the last fit ended if it was without some rows."""
        some = rows if kept.all() else rows.taken(kept)
        units, options = whole if kept.all() else units_of(some), spec.options
        if last is not None and len(last.rows.y) < n:  # gross errors move the optimum far; later rounds change few rows
            options = options._replace(start=last.point)
        more: dict[str, Any] = {"size": spec.size, "known": None if last is None else last.at_size}
        more |= {"neighbours": next(iter(spec.counts), None), "outliers": rows.given(~kept)}
        return RegressionFit.of_rows(spec.model, units, some.in_units(units), by, options, rng, **more)

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
        chosen.predictive(chosen.rows.X[:1], spec.local)  # which makes what other predictions need
    if chosen.outliers.size:
        warnings.warn(
            f"gross errors among {rows.place.size} targets, or targets with far wider noise than most, are set "
            f'aside: {listed(chosen.outliers)} (outliers="keep" keeps them)',
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    if equal and not chosen.fitted.scales.several:
        warnings.warn(
            "a third of the targets or more have one value, which f follows, and the noise is as wide below f as "
            "above, so that predictions may be far from the mean of such targets: noise='gaussian' fits the mean",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    warn_unless_converged(chosen.fitted, method)
    return chosen
