"""What each input does: main effects of the posterior of f, with bands, and their shares of its variance.

The main effect of input i at a value is the mean of f over rows of which this input is set to the value, less its mean
over the values: E[f | x_i] - E[f] if the other inputs are independent of it. It is linear in f, so that it is
Gaussian for any kernel, with a mean and a covariance in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bsvr_pp._checks import check_count, check_share, check_size, generator, numbers
from bsvr_pp.inference.fitted import components, is_mode
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.result import check_match
from bsvr_pp.model.problem import ModelError, read_model

Array = NDArray[np.float64]

_DRAWS = 1000  # of f, from which bands and shares are computed
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
        ``lower`` and ``upper`` of the band; NaN where an input has fewer values. Over ``chain``, ``draw`` and
        ``input``: draws of ``share``, the variance of an effect relative to that of f over the rows, as ArviZ shows
        them.

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
    parts = list(parts)
    if parts[0].site_precision is None:
        raise ValueError("main_effects takes a result that integrates f out, and this one has draws of f")
    parts = [parts[i] for i in np.unique(np.linspace(0, len(parts) - 1, min(len(parts), _MEMBERS)).astype(int))]
    every, chosen = (
        X if len(X) <= most else X[np.sort(rng.choice(len(X), most, replace=False))] for most in (_ROWS, rows)
    )
    weights = np.array([part.weight for part in parts])
    weights /= weights.sum()
    sizes = rng.multinomial(_DRAWS, weights)
    d = X.shape[1]
    found = {name: np.full((d, values), np.nan) for name in ("x", "effect", "sd", "lower", "upper")}
    share = np.empty((_DRAWS, d))
    for i in range(d):
        x, rows_at = _values(X[:, i], values, every[:, i])
        gaussians = [_gaussian(part, every, chosen, i, x, rows_at.mean(axis=0)) for part in parts]
        drawn = np.concatenate([_draws(*each, size, rng) for each, size in zip(gaussians, sizes, strict=True)])
        effect, f = drawn[:, : x.size], drawn[:, x.size :]
        means = np.stack([average[: x.size] for average, _ in gaussians])
        variances = np.stack([np.diag(covariance)[: x.size] for _, covariance in gaussians])
        mean = weights @ means
        sd = np.sqrt(np.maximum(weights @ (variances + (means - mean) ** 2), 0.0))
        # The band holds the largest deviation, in standard deviations, with the probability asked for.
        largest = np.max(np.abs(effect - mean) / np.where(sd > 0, sd, 1.0), axis=1)
        reach = np.quantile(largest, coverage) * sd
        for name, row in (("x", x), ("effect", mean), ("sd", sd), ("lower", mean - reach), ("upper", mean + reach)):
            found[name][i, : x.size] = row
        total = f.var(axis=1)
        share[:, i] = np.var(effect @ rows_at.T, axis=1) / np.where(total > 0, total, 1.0)
    arrays: dict[str, Any] = {name: (("input", "value"), array) for name, array in found.items()}
    return xr.Dataset(arrays | {"share": (("chain", "draw", "input"), share[None])})


def in_units(effects: xr.Dataset, unit: float, centre: Array, width: Array, names: Sequence[str]) -> xr.Dataset:
    """Effects of standardised inputs in units of the target and of inputs of given means, widths and names."""
    scaled: dict[str, Any] = {name: effects[name] * unit for name in ("effect", "sd", "lower", "upper")}
    scaled["x"] = effects["x"] * xr.DataArray(width, dims="input") + xr.DataArray(centre, dims="input")
    return effects.assign(scaled).assign_coords(input=list(names))


def _values(column: Array, values: int, rows: Array) -> tuple[Array, Array]:
    """Values of an input: all if there are few, else quantiles; and the matrix that interpolates from them to rows."""
    x = np.unique(column)
    if x.size > values:
        x = np.unique(np.quantile(column, np.linspace(0.0, 1.0, values)))
    return x, np.stack([np.interp(rows, x, one) for one in np.eye(x.size)], axis=1)


def _gaussian(part: Component, every: Array, rows: Array, i: int, x: Array, weight: Array) -> tuple[Array, Array]:
    """Mean and covariance of the effect of input i at its values x, of a given weight each, and of f at every row."""
    moved = np.repeat(rows[None], x.size, axis=0)
    moved[:, :, i] = x[:, None]
    average = sparse.kron(sparse.eye_array(x.size), np.full((1, len(rows)), 1.0 / len(rows)))
    sums = sparse.block_diag([average, sparse.eye_array(len(every))], format="csr")
    mean, covariance = part.linear(np.concatenate([*moved, every]), sums)
    less_mean = np.eye(mean.size)
    less_mean[: x.size, : x.size] -= weight
    return less_mean @ mean, less_mean @ covariance @ less_mean.T


def _draws(mean: Array, covariance: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws (size, k) of a Gaussian whose covariance may be singular."""
    scale, axes = np.linalg.eigh(covariance)
    return np.asarray(mean + (rng.standard_normal((size, mean.size)) * np.sqrt(np.maximum(scale, 0.0))) @ axes.T)
