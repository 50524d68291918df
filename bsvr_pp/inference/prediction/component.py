"""Predictions from components: f at new inputs, and the noise there, at points of the hyperparameters or draws.

With blocks f at a new input belongs to the block whose region contains it. A parameter of the noise may be computed
from `pm.Data` with one row for each training point, and then from the data of new rows. Another vector is unknown at
new rows, since its length does not follow the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from bsvr_pp.core.approximations.posterior import from_sites
from bsvr_pp.core.arrays import Array, agree, check_names, check_order, check_size, labels_of, numbers
from bsvr_pp.core.losses import NoiseModel
from bsvr_pp.core.losses.noise import widen
from bsvr_pp.inference.budget import check_memory
from bsvr_pp.inference.parts import Gaussian, given_parts, given_white, part_cross
from bsvr_pp.inference.prediction.distribution import CHUNK, PredictiveDistribution, mixed
from bsvr_pp.inference.prediction.neighbours import NoiseScales, few, moments_given, nearest_rows
from bsvr_pp.inference.result import other_data
from bsvr_pp.model.gaussian import replace_in, value_of
from bsvr_pp.model.problem import Point, Problem, check_labels

Moments = Callable[[Array], tuple[Array, Array, Array]]
Rows = NDArray[np.int64] | slice
NoiseOfRows = Callable[[Point], NoiseModel]
type Parts = Callable[[], Iterable[Component]]

_ONE = NoiseScales.one()
_MATRICES = 5.0  # of m² numbers at once, in joint draws of m rows
_SURE = 1e12  # site precision times prior variance beyond which f is certain


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the hyperparameters with its weight, and mean and variance of f at any inputs."""

    problem: Problem
    point: Point
    moments: Moments  # also mean log densities of the nearest rows by scale
    weight: float = 1.0
    dual_coef: Array | None = None  # None if f is a draw
    site_precision: Array | None = None
    scales: NoiseScales = _ONE
    apart: bool = False  # each input has a separate fit, and the sites only determine correlations of f

    def draw(self, X: Array, noise: NoiseModel, size: int, rng: np.random.Generator) -> Array:
        """Return draws (size, n_new) of new targets: one f per draw plus noise; f without variance is its mean."""
        mean, variance, near = self.moments(X)
        f = mean + (self.deviations(X, size, rng, variance if self.apart else None) if variance.any() else 0.0)
        drawn = noise.sample((size, len(X)), rng)
        if self.scales.several:
            share = self.scales.at(near).cumsum(axis=0)
            chosen = np.minimum((rng.random((size, len(X), 1)) > share.T).sum(axis=2), share.shape[0] - 1)
            drawn = drawn * self.scales.factors[chosen] + np.asarray(self.scales.offsets)[chosen]
        return np.asarray(f + drawn)

    def deviations(self, X: Array, size: int, rng: np.random.Generator, variance: Array | None = None) -> Array:
        """Draw f minus its mean (size, n_new) if f has sites, jointly in each block; with any given variance."""
        if self.site_precision is None:
            raise ValueError("joint=True takes a result with f integrated out, got draws of f: use NUTS(latent=...)")
        out = np.empty((size, len(X)))
        for block, new in _by_block(self.problem, X):
            part, rows = self.problem.part(block), self.problem.blocks.rows(block)
            n, precision = part.targets.size, np.append(self.site_precision[rows], np.zeros(new.size))
            needed = 8.0 * precision.size**2 * _MATRICES
            check_memory("joint draws", new.size, "draw fewer rows jointly, or rows by themselves", needed=needed)
            prior = part.between(self.point, np.vstack([part.inputs, X[new]]), n)
            joint = prior.factor(np.minimum(precision, _SURE / np.maximum(prior.diag, _SURE * np.finfo(float).tiny)))
            out[:, new] = joint.draw(size, rng)[:, n:]
            if variance is not None:
                out[:, new] *= np.sqrt(variance[new] / joint.marginals()[0][n:])
        return out

    def linear(self, X: Array, weights: Any) -> tuple[Array, Array]:
        """Return mean (k,) and covariance (k, k) of sparse weights (k, m) times f at X (m, d), if f has sites."""
        assert self.site_precision is not None and self.dual_coef is not None
        k = weights.shape[0]
        mean, covariance = np.zeros(k), np.zeros((k, k))
        for block, new in _by_block(self.problem, X):
            part, rows = self.problem.part(block), self.problem.blocks.rows(block)
            factor = part.dense_at(self.point)[0].factor(self.site_precision[rows])
            K_star, _, offset = part.cross(self.point, X[new])
            cross, own, w = np.asarray(K_star), part.between(self.point, X[new]).dense(), weights[:, new]
            mean += w @ (cross @ self.dual_coef[rows] + offset)
            at_sites = w @ cross[:, factor.points]
            covariance += w @ own @ w.T - factor.explained_together(at_sites)
        return mean, 0.5 * (covariance + covariance.T)


class Member(NamedTuple):
    """A Gaussian posterior of f at hyperparameters, by its two vectors, and its weight among others."""

    point: Point
    dual_coef: Array
    site_precision: Array
    weight: float = 1.0


def component(
    problem: Problem,
    member: Member,
    *,
    plug_in: bool = False,
    predict: Gaussian | None = None,
    part: str | None = None,
    neighbours: int | None = None,
    scales: NoiseScales = _ONE,
) -> Component:
    """Make the component of a member, or of a ``part`` of f; ``predict`` is its function if known, of all rows."""
    point, dual_coef, site_precision, weight = member

    def gaussian(own: Problem, rows: Rows) -> Gaussian:
        if predict is not None and not problem.blocks.several:
            return predict
        K, mean, _ = own.dense_at(point)
        return from_sites(K, mean, dual_coef[rows], site_precision[rows]).predict

    def moments(X: Array) -> tuple[Array, Array, Array]:
        mean, variance = _own_block(problem, point, gaussian, X, part)
        variance = np.zeros_like(variance) if plug_in else variance
        if not scales.several:
            return mean, variance, np.zeros((len(X), 1))
        return mean, variance, scales.near(nearest_rows(problem, point, X, few(problem.targets.size)))

    if neighbours is None:
        return Component(problem, point, moments, weight, dual_coef, site_precision, scales)
    own = fits_on_nearest(problem, point, neighbours, scales)
    return replace(own, weight=weight, dual_coef=dual_coef, site_precision=site_precision)


def fits_on_nearest(problem: Problem, point: Point, neighbours: int, scales: NoiseScales) -> Component:
    """Make the component of fits on nearest rows, one for each new input; without sites it has no joint draws."""

    def moments(X: Array) -> tuple[Array, Array, Array]:
        near = nearest_rows(problem, point, X, neighbours)
        return *moments_given(problem, point, X, near), scales.near(near)

    return Component(problem, point, partial(_in_chunks, moments), scales=scales, apart=True)


def component_of_draw(problem: Problem, point: Point, draw: Point, part: str | None) -> Component:
    """Make the component of a draw of f, or of a ``part`` of it, at the training rows; ``draw`` has f or its parts."""
    white = draw.get(str(problem.prior.whitened))

    def gaussian(own: Problem, rows: Rows) -> Gaussian:
        K, mean, _ = own.dense_at(point)
        return given_white(K, K.whiten(draw[problem.prior.name][rows] - mean) if white is None else white[rows])

    moments = partial(_own_block, problem, point, gaussian)
    if problem.composite is not None:
        moments = partial(_in_chunks, given_parts(problem, point, draw, part))
    return Component(problem, point, lambda X: (*moments(X), np.zeros((len(X), 1))))


def _own_block(
    problem: Problem, point: Point, gaussian: Callable[[Problem, Rows], Gaussian], X: Array, part: str | None = None
) -> tuple[Array, Array]:
    """Return mean and variance of f at new inputs from their blocks; call ``gaussian`` once for each block."""

    def of_block(group: tuple[int, NDArray[np.intp]]) -> tuple[Array, ...]:
        block, new = group
        own = problem.part(block)
        predict = gaussian(own, problem.blocks.rows(block))
        cross = own.cross if part is None else partial(part_cross, own, part)
        return _in_chunks(lambda some: predict(*cross(point, some)), X[new])

    groups = _by_block(problem, X)
    mean, variance = np.empty((2, len(X)))
    for (_, new), each in zip(groups, problem.blocks.each(of_block, groups), strict=True):
        mean[new], variance[new] = each
    return mean, variance


def _by_block(problem: Problem, X: Array) -> list[tuple[int, NDArray[np.intp]]]:
    own = problem.blocks.assign(X)
    return [(int(block), np.flatnonzero(own == block)) for block in np.unique(own)]


def _in_chunks[T: tuple[Array, ...]](moments: Callable[[Array], T], X: Array) -> T:
    found = [moments(X[at : at + CHUNK]) for at in range(0, len(X), CHUNK)]
    return cast(T, tuple(np.concatenate(each) for each in zip(*found, strict=True)))


def new_rows(
    problem: Problem,
    X_new: ArrayLike | None,
    data: Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
) -> Array:
    """Check new inputs, or data without them, and make an (n_new, d) array with the data of the parts of f.

    Pandas data and targets ``y_new`` have the row labels of the first labelled ones in their order.
    """
    affine, given, own = problem.composite, data or {}, str(problem.own_names[0])
    if affine is not None and not affine.rowwise:
        held = [name for name, (leaf, _) in affine.variables.items() if problem.columns.n in leaf.type.shape] or ["mu"]
        raise ValueError(
            f"{held[0]} has a value for each training row that is not computed from its data, and says nothing about "
            "new ones: use bp.GP, or compute mu row by row"
        )
    labelled = next((rows for rows in (X_new, *given.values()) if labels_of(rows) is not None), None)
    if own in given:
        if X_new is not None:
            raise ValueError(f"X_new are values of {own}, and so are data[{own!r}]: give one of the two")
        X_new = given[own]
    known = rowwise_data(problem) if given else {}
    if unknown := [name for name in given if name != own and name not in known]:
        names = ", ".join(known) or "none"
        raise ValueError(f"data has no {unknown[0]!r} of the model with a row for each training point; it has: {names}")
    computed = _computed_inputs(problem, given, known, required=X_new is None)
    X_new = computed if X_new is None else X_new
    if problem.n_inputs == 0:
        if X_new is not None or not given:
            raise ValueError(
                "f has no inputs X, or other data than they are computed from: leave out X_new, and give data={...} of "
                "the new rows"
            )
        X = np.zeros((len(np.atleast_1d(np.asarray(next(iter(given.values()))))), 0))
    else:
        check_names("X_new", X_new, problem.prior.columns)
        X = numbers("X_new", X_new, ("n_new", problem.n_inputs))
        check_size("X_new", X)
        if computed is not None and not agree(X, computed, 1e-6):
            raise ValueError("X_new must be the values of X that the model computes from data, or left out")
        _check_whole("X_new", X[:, sorted(problem.columns.whole)])
        for k in sorted(problem.columns.same):
            value = problem.inputs[0, k]
            if (others := X[X[:, k] != value, k]).size:
                raise ValueError(
                    f"X_new must have {value:g} in column {k}, as all training rows, got {others[0]:g}: a constant "
                    "of the model also has this value in each row, and may follow this input or not; make it pm.Data"
                )
    values = {}
    for block in problem.columns.data:
        if block.columns[-1] >= problem.width:
            continue
        if block.name is None:
            raise ValueError(
                "a part of f has a constant with a value for each training point, which says nothing about new ones: "
                "make it pm.Data"
            )
        if block.name not in given:
            raise ValueError(
                f"f depends on {block.name}, unknown at X_new: give its values, data={{{block.name!r}: ...}}"
            )
        values[block.name] = _data_of_rows(problem, block.name, given[block.name], (len(X), *block.shape))
    check_order(labelled, y_new=y_new, **given)
    found = problem.columns.values(X, values, problem.width)
    problem.check_prior()
    others = np.repeat(problem.rows[:1, problem.width :], len(X), axis=0)  # of the noise alone
    problem.check_groups(np.hstack([found, others]))
    return found


def _computed_inputs(
    problem: Problem, given: Mapping[str, ArrayLike], known: Mapping[str, Array], *, required: bool
) -> Array | None:
    """Return the new inputs of a model that computes X from ``known`` data of the rows, by the data that are given.

    They are None if X depends on none of these, or, where they are not ``required``, cannot be computed.
    """
    above = {v.name for v in ancestors([problem.columns.X]) if isinstance(v, SharedVariable)}
    leaves = [name for name in known if name in above]
    if not set(leaves) & given.keys():
        return None
    missing, names, count = [name for name in leaves if name not in given], ", ".join(leaves), None
    others = {each.name for each in (*problem.noise_data, *problem.columns.data)}
    if missing:
        if not required and set(leaves) & given.keys() <= others:
            return None
        raise ValueError(f"X of the model is computed from {names}: data must have all of them, it has no {missing[0]}")
    stacked = dict[Variable, Variable]()
    for name in leaves:
        new = _data_of_rows(problem, name, given[name], (count or "n_new", *known[name].shape[1:]))
        count, dtype = len(new), known[name].dtype
        stacked[problem.model[name]] = pt.constant(np.concatenate([known[name], new]).astype(dtype))
    n, found = problem.columns.n, problem.inputs[:0]
    with suppress(ValueError, TypeError, AssertionError):  # shapes that do not follow the rows
        found = value_of(replace_in(problem.columns.X, stacked))
    if len(found) == n + cast(int, count) and agree(found[:n], problem.columns.inputs, 1e-12):
        return np.asarray(found[n:], dtype=np.float64)
    if required:
        raise ValueError(f"X of the model is not computed row by row from {names}: give X_new")
    return None


def _data_of_rows(problem: Problem, name: str, given: ArrayLike, shape: tuple[int | str, ...]) -> Array:
    check_labels(f"data[{name!r}]", problem.model, name, given, first=1)
    values = numbers(f"data[{name!r}]", given, shape)
    if problem.data[name].dtype.kind != "f":
        _check_whole(f"data[{name!r}]", values)
    return values


def _check_whole(label: str, values: Array) -> None:
    if (others := values[values != np.rint(values)]).size:
        raise ValueError(f"{label} must be whole numbers, as in the model, got {others[0]:g}")


def noise_of_rows(problem: Problem, X: Array, data: Mapping[str, ArrayLike] | None = None) -> NoiseOfRows:
    """Return a function from hyperparameters to the noise of new rows, which have these values of other data."""
    known = rowwise_data(problem) if data else {}
    beside = {name: value for name, value in (data or {}).items() if name != problem.own_names[0]}  # which are in X
    shapes = {name: (len(X), *known[name].shape[1:]) for name in beside}
    given = {name: _data_of_rows(problem, name, value, shapes[name]) for name, value in beside.items()}
    missing = [each.name for each in problem.noise_data if each.name is not None and each.name not in given]
    if missing:
        raise ValueError(
            f"the noise depends on {', '.join(missing)}, unknown at the new inputs: give its values there, "
            f"data={{{missing[0]!r}: ...}}"
        )
    unknown = any(each.name is None for each in problem.noise_data) or problem.loss.targets.refusal("residual")
    others = [] if unknown else problem.columns.data
    columns = [given.get(str(each.name), np.zeros((len(X), *each.shape))).reshape(len(X), -1) for each in others]
    matrix = np.concatenate([X[:, : problem.n_inputs], *columns], axis=1).astype(np.float64)
    if not unknown:
        problem.check_groups(matrix)

    def noise_of(point: Point) -> NoiseModel:
        noise = problem.noise_at(point)
        if noise.n_points is None:
            return noise
        # If the noise of each row is computed from its data, other rows do not change the noise of the training rows.
        n, same = problem.targets.size, False
        with suppress(ValueError):  # shapes that do not broadcast
            if not unknown:
                more = np.concatenate([problem.rows, matrix])
                at = partial(problem.evaluate, "parameters", lambda: problem.parameters, point)
                pairs = zip(at(matrix=more), at(), strict=True)
                same = all(np.allclose(np.broadcast_to(v, len(more))[:n], w, rtol=1e-8) for v, w in pairs)
        if not same:
            raise ValueError(
                "the noise has a value for each training point, which says nothing about new ones: give it numbers, or "
                "compute it from pm.Data"
            )
        return problem.noise_at(point, matrix)

    return noise_of


def rowwise_data(problem: Problem) -> dict[str, Array]:
    """Return the data of a model with one row for each training point, without inputs and targets."""
    return {name: value for name, value in other_data(problem).items() if np.shape(value)[:1] == (problem.columns.n,)}


def draw_jointly(parts: Parts, X: Array, noise_of: NoiseOfRows, size: int, rng: np.random.Generator) -> Array:
    """Draw f + noise (size, n) at X jointly; ``parts`` makes components, each with n² numbers."""
    out, found = np.empty((size, len(X))), list(parts())
    weights = np.array([part.weight for part in found])
    chosen = rng.choice(len(found), size=size, p=weights / weights.sum())
    for i in np.unique(chosen):
        at = np.flatnonzero(chosen == i)
        out[at] = found[i].draw(X, noise_of(found[i].point), at.size, rng)
    return out


def mixture_of(
    parts: Iterable[Component],
    X: Array,
    noise_of: NoiseOfRows | None = None,
    jointly: Parts | None = None,
    **units: Any,
) -> tuple[PredictiveDistribution, list[Array]]:
    """Return the distribution of new targets, with a component for each noise scale, and any cut points.

    Joint draws have the components that ``jointly`` makes, and the same noise.
    """
    moments, noises, weights, offsets = [], [], [], []
    cutpoints: list[Array] = []
    for part in parts:  # one at a time, since each holds a factor of n² numbers
        noise_of = noise_of or noise_of_rows(part.problem, X)
        mean, variance, near = part.moments(X)
        noise, scales = noise_of(part.point), part.scales
        for factor, offset, share in zip(scales.factors, np.asarray(scales.offsets), scales.at(near), strict=True):
            moments.append((mean + offset, variance))
            offsets.append([offset])
            noises.append(noise if factor == 1.0 else widen(noise, factor))
            weights.append(part.weight * share)
        classes = part.problem.cutpoints_at(part.point)
        if classes is not None:
            cutpoints.append(classes)
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    shares = np.stack(weights) / np.sum(weights, axis=0)
    joint = partial(draw_jointly, jointly, X, noise_of) if jointly and noise_of else None
    units = {**units, "offsets": np.array(offsets), "joint": joint}
    return PredictiveDistribution(shares, means, variances, tuple(noises), **units), cutpoints


def predictions(
    parts: Iterable[Component], X: Array, levels: Array, targets: Array | None, noise_of: NoiseOfRows | None = None
) -> dict[str, Array]:
    """Compute the arrays that `predict` returns from components; labels and classes need no levels."""
    found, cutpoints = mixture_of(parts, X, noise_of)
    if cutpoints or found.noises[0].kind.targets.values:
        return new_values(found, cutpoints, targets)
    return new_targets(found, levels, targets)


def new_targets(distribution: PredictiveDistribution, levels: Array, targets: Array | None) -> dict[str, Array]:
    """Return moments of f and of real targets, quantiles (levels, n), and scores of any given targets."""
    f = distribution.mean_and_variance_of_f()
    out = {"f_mean": f[0], "f_variance": f[1], "y_mean": distribution.mean(), "y_variance": distribution.var()}
    out["y_quantile"] = distribution.ppf(levels[:, None])
    if targets is not None:
        out["y_cdf"], out["y_crps"] = distribution.cdf(targets), distribution.crps(targets)
        out["y_log_density"] = distribution.logpdf(targets)
    return out


def new_values(found: PredictiveDistribution, cutpoints: list[Array], targets: Array | None) -> dict[str, Array]:
    """Predict labels, or ordered classes by the cut points of each component."""
    kind: Any = found.noises[0].kind.targets
    values = np.arange(cutpoints[0].size + 1.0) if cutpoints else np.array(kind.values)
    probability = np.zeros((values.size, len(found)))
    components = zip(found.weights, found.means, found.variances, found.noises, strict=True)
    for i, (share, mean, variance, noise) in enumerate(components):
        if cutpoints:
            zero = np.zeros_like(mean)
            of_classes = pairwise(np.concatenate([[-np.inf], cutpoints[i], [np.inf]]))
            between = [noise.between(zero + low, zero + high) for low, high in of_classes]
            probability += share * np.exp([each.predictive_log_density(zero, mean, variance) for each in between])
        else:
            probability += share * kind.masses(noise.parameters, mean, variance)
    probability /= probability.sum(axis=0)
    f, y = found.mean_and_variance_of_f(), mixed(probability, values[:, None], np.zeros_like(probability))
    out = {"f_mean": f[0], "f_variance": f[1], "y_mean": y[0], "y_variance": y[1]}
    out |= {"y_class_probability": probability} if cutpoints else {"y_probability": probability[-1]}
    if targets is not None:
        if not np.isin(targets, values).all():
            words = f"classes from 0 to {len(values) - 1}" if cutpoints else f"the {kind.words}"
            raise ValueError(f"y_new must hold {words}, got {targets[~np.isin(targets, values)][0]}")
        out["y_log_density"] = np.log(probability[np.searchsorted(values, targets), np.arange(targets.size)])
    return out
