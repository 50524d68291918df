"""What each input does: main effects of the posterior of f, with bands, and their shares of its variance.

The main effect of input i at a value is the mean of f over rows of which this input is set to the value, less its mean
over the values: E[f | x_i] - E[f] if the other inputs are independent of it. It is linear in f, so that it is
Gaussian for any kernel, with a mean and a covariance in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from bsvr_pp._arrays import Array
from bsvr_pp._checks import check_count, check_share, check_size, generator, numbers
from bsvr_pp.inference.fitted import components, is_mode
from bsvr_pp.inference.prediction.component import Component, Sums
from bsvr_pp.inference.result import check_match
from bsvr_pp.model.inventory import ModelError
from bsvr_pp.model.problem import read_model

DRAWS = 1000  # of f, from which bands and shares are computed
_ROWS = 400  # most rows over which the variance of f is computed
_MEMBERS = 50  # most points of the hyperparameters of a result with draws


def main_effects(
    result: xr.DataTree,
    X: ArrayLike,
    *,
    model: pm.Model | None = None,
    values: int = 30,
    rows: int = 100,
    coverage: float = 0.9,
    random_seed: int | np.random.Generator | None = 0,
) -> xr.Dataset:
    """Compute the main effect of each input on the latent function, and its share of the variance.

    An effect says what f does on average when one input is changed in all rows and the others are kept (a partial
    dependence; Friedman 2001), with the uncertainty of f. If inputs are correlated, rows occur that no data are like,
    and the shares need not add up to what the inputs explain together; the rest of 1 is then interactions and overlap.

    Parameters
    ----------
    result : DataTree
        Result of `fit` that integrates f out: of Laplace, mean field, a committee, or NUTS over the hyperparameters.
    X : (m, d) array
        Rows whose distribution the inputs have, such as the training inputs.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.
    values : int
        Number of values of each input, which are quantiles of its column.
    rows : int
        Number of rows of X, chosen at random, over which f is averaged. Time grows as (values·rows)² for each input.
        Shares and means are over up to 400 rows.
    coverage : float
        Probability with which a band holds the whole effect of one input.
    random_seed : int or Generator
        Of the choice of rows and of the draws.

    Returns
    -------
    xarray.Dataset
        Over ``input`` and ``value``: ``x``, the values, ``effect``, its standard deviation ``sd``, and the ends
        ``lower`` and ``upper`` of the band; NaN where an input has fewer values. If the kernel has
        `bp.cov.MainEffects`, also ``term`` and ``term_sd``: mean and standard deviation of the part of f with their
        kernel of this input, to which what the product kernel says of the input alone does not belong. Over
        ``chain``, ``draw`` and ``input``: draws of ``share``, the variance of an effect relative to that of f over the
        rows, as ArviZ shows them.

    Raises
    ------
    ValueError
        If X does not fit the model, an option is out of range, or f is only a mode or drawn itself.
    ModelError
        If the model is a sum of processes, of whose parts `predict` has the effects (``component=``).

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = bp.default_model(X, 2.0 * X[:, 0])
    >>> effects = bp.main_effects(bp.fit(bp.MeanField(), model, progressbar=False), X, model=model)
    >>> effects["share"].mean(["chain", "draw"]).values.round(2) + 0.0
    array([1., 0.])
    """
    problem = read_model(model)
    if problem.composite is not None:
        raise ModelError("main_effects takes one process: predict(..., component=...) has the parts of a sum")
    check_match(problem, result)
    if is_mode(result):
        raise ValueError("main_effects takes a result that integrates f out, and this one has only its mode")
    parts = components(problem, result)
    return effects_of(parts, numbers("X", X, ("m", problem.n_inputs)), values, rows, coverage, generator(random_seed))


def effects_of(
    parts: Iterable[Component], X: Array, values: int, rows: int, coverage: float, rng: np.random.Generator
) -> xr.Dataset:
    """`main_effects` of components of f."""
    check_size("X", X)
    check_count("values", values, 2)
    check_count("rows", rows, 2)
    check_share("coverage", coverage)
    parts, weights = members(parts)
    every, chosen = (
        X if len(X) <= most else X[np.sort(rng.choice(len(X), most, replace=False))] for most in (_ROWS, rows)
    )
    inputs = [_Input.of(i, X, values, every, chosen) for i in range(X.shape[1])]
    draws: list[list[Array]] = [[] for _ in inputs]
    gaussians: list[list[tuple[Array, Array]]] = [[] for _ in inputs]
    terms: list[list[tuple[Array, Array]]] = [[] for _ in inputs]
    sums = [one.of_f for one in inputs]
    if parts[0].problem.has_main_effects:
        sums += [one.of_term for one in inputs]
    for part, size in zip(parts, rng.multinomial(DRAWS, weights), strict=True):
        found = part.linear(sums)
        for i, one in enumerate(inputs):
            mean, covariance = one.centred(*found[i])
            k = one.x.size
            draws[i].append(one.reduced(gaussian_draws(mean, covariance, size, rng)))
            gaussians[i].append((mean[:k], np.diag(covariance)[:k]))
        for i, (mean, covariance) in enumerate(found[len(inputs) :]):
            terms[i].append((mean, np.diag(covariance)))
    names = ["x", "effect", "sd", "lower", "upper", *(["term", "term_sd"] if terms[0] else [])]
    arrays = {name: np.full((len(inputs), values), np.nan) for name in names}
    share = np.empty((DRAWS, len(inputs)))
    for i, one in enumerate(inputs):
        drawn = np.concatenate(draws[i])
        effect, share[:, i] = drawn[:, :-1], drawn[:, -1]
        mean, sd = mixture_moments(weights, gaussians[i])
        band = joint_band(effect, mean, sd, coverage)
        of_term = mixture_moments(weights, terms[i]) if terms[i] else ()
        for name, row in zip(names, (one.x, mean, sd, *band, *of_term), strict=True):
            arrays[name][i, : one.x.size] = row
    variables: dict[str, Any] = {name: (("input", "value"), array) for name, array in arrays.items()}
    return xr.Dataset(variables | {"share": (("chain", "draw", "input"), share[None])})


def members(parts: Iterable[Component]) -> tuple[list[Component], Array]:
    """Components of f, at most 50 of draws, and their weights, which sum to one; ValueError if f is drawn itself."""
    found = list(parts)
    if found[0].site_precision is None:
        raise ValueError("effects are of a result that integrates f out, and this one has draws of f")
    found = [found[i] for i in np.unique(np.linspace(0, len(found) - 1, min(len(found), _MEMBERS)).astype(int))]
    weights = np.array([part.weight for part in found])
    return found, weights / weights.sum()


def in_units(effects: xr.Dataset, unit: float, centre: Array, width: Array, names: Sequence[str]) -> xr.Dataset:
    """Effects of standardised inputs in units of the target and of inputs of given means, widths and names."""
    of_target = ("effect", "sd", "lower", "upper", "term", "term_sd")
    scaled: dict[str, Any] = {name: effects[name] * unit for name in of_target if name in effects}
    scaled["x"] = effects["x"] * xr.DataArray(width, dims="input") + xr.DataArray(centre, dims="input")
    return effects.assign(scaled).assign_coords(input=list(names))


def joint_band(drawn: Array, mean: Array, sd: Array, coverage: float) -> tuple[Array, Array]:
    """Ends (k,) of the band that holds this share of drawn curves (draws, k), as wide at each value as ``sd`` says."""
    largest = np.max(np.abs(drawn - mean) / np.where(sd > 0, sd, 1.0), axis=1)
    reach = np.quantile(largest, coverage) * sd
    return mean - reach, mean + reach


def mixture_moments(weights: Array, gaussians: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Mean and standard deviation of a mixture of means and variances (k,)."""
    means, variances = (np.stack(each) for each in zip(*gaussians, strict=True))
    mean = weights @ means
    return mean, np.sqrt(np.maximum(weights @ (variances + (means - mean) ** 2), 0.0))


def gaussian_draws(mean: Array, covariance: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws (size, k) of a Gaussian whose covariance may be singular."""
    scale, axes = np.linalg.eigh(covariance)
    return np.asarray(mean + (rng.standard_normal((size, mean.size)) * np.sqrt(np.maximum(scale, 0.0))) @ axes.T)


@dataclass(frozen=True, slots=True)
class _Input:
    """Values (k,) of an input, and what of f and of its term in the prior is asked for there.

    ``of_f`` are the means of f over rows that are moved to each value, and f at every row (r); ``at_rows`` (r, k)
    interpolates from the values to the rows.
    """

    x: Array
    at_rows: Array
    of_f: Sums
    of_term: Sums

    @classmethod
    def of(cls, i: int, X: Array, values: int, every: Array, rows: Array) -> Self:
        """Of column i: all values if there are few, else quantiles."""
        x = np.unique(X[:, i])
        if x.size > values:
            x = np.unique(np.quantile(X[:, i], np.linspace(0.0, 1.0, values)))
        moved = np.repeat(rows[None], x.size, axis=0)
        moved[:, :, i] = x[:, None]
        average = sparse.kron(sparse.eye_array(x.size), np.full((1, len(rows)), 1.0 / len(rows)))
        of_f = Sums(
            np.concatenate([*moved, every]), sparse.block_diag([average, sparse.eye_array(len(every))], format="csr")
        )
        alone = np.arange(X.shape[1]) == i
        of_term = Sums(x[:, None] * alone, sparse.eye_array(x.size, format="csr"), alone.astype(np.float64))
        at_rows = np.stack([np.interp(every[:, i], x, one) for one in np.eye(x.size)], axis=1)
        return cls(x, at_rows, of_f, of_term)

    def centred(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and covariance with the effect less its mean over the rows."""
        less_mean = np.eye(mean.size)
        less_mean[: self.x.size, : self.x.size] -= self.at_rows.mean(axis=0)
        return less_mean @ mean, less_mean @ covariance @ less_mean.T

    def reduced(self, drawn: Array) -> Array:
        """Draws of the effect (draws, k), and in a last column their share in the variance of f over the rows."""
        effect, total = drawn[:, : self.x.size], drawn[:, self.x.size :].var(axis=1)
        return np.column_stack([effect, np.var(effect @ self.at_rows.T, axis=1) / np.where(total > 0, total, 1.0)])
