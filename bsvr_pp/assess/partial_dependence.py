"""The effect of a column of a table on the function of a fit: partial dependence with joint bands, shares of variance.

The effect of a column at a value is the mean of f over rows that are set to this value (Friedman 2001, section 8.2).
The effect on a single row is its individual conditional expectation (Goldstein et al. 2015). Both are linear in f, and
their posterior is in closed form, whatever the kernel and the encoding of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.interpolate import CubicSpline
from sklearn.pipeline import Pipeline

from bsvr_pp.core.arrays import Array, ModelError, Rows, check_count, check_names, check_share, numbers
from bsvr_pp.inference.budget import check_memory
from bsvr_pp.inference.fitted import components
from bsvr_pp.inference.prediction.component import Component
from bsvr_pp.inference.prediction.distribution import UNSCALED, mixed
from bsvr_pp.inference.result import check_match, check_result, is_mode
from bsvr_pp.model.reader import read_model
from bsvr_pp.tables.columns import Dates, Words, kind_of, place_of, table_of, times_of

Column = str | int

Moments = tuple[Array, Array]  # mean (k,) and covariance (k, k)

_DRAWS = 1000  # of f, from which bands are computed
_MEMBERS = 50  # most points of the hyperparameters of a result with draws
_ONE, _TWO = (30, 100), (10, 40)  # values of each column, and rows, for one column and for two
_MATRICES = 5.0  # of m² numbers at once, for m changed rows


def effect(
    estimator: object,
    X: ArrayLike | pd.DataFrame,
    feature: Column | tuple[Column, Column],
    *,
    model: pm.Model | None = None,
    values: int | None = None,
    rows: int | None = None,
    ice: int = 0,
    coverage: float = 0.9,
) -> pd.DataFrame:
    """Compute the effect of one or two columns on the function of a fit, with a joint band.

    The effect is the mean of f over the rows of X with the column set to a value (partial dependence; Friedman 2001).
    docs/how-to/effects.md describes it for each estimator, for skewed targets, and for correlated columns.

    Parameters
    ----------
    estimator : estimator or DataTree
        A fitted `BayesianSVR`, `BayesianOrdinalSVC`, or `BayesianSVC` of two classes; a pipeline or search of
        scikit-learn that ends in one; or a result of `fit` that integrates f out.
    X : (m, d) array or DataFrame
        Rows over which f is averaged, such as the training rows, in the form that the estimator takes.
    feature : str, int or tuple of two
        A column of X by its name (``x0``, ``x1``, ... in an array), or by its number if no column has it as its name;
        or two.
    model : pm.Model, optional
        The model of a result; by default the model of the surrounding ``with``.
    values : int, optional
        Largest number of values of a column; by default 30, or 10 for each of two. They are quantiles of numbers and
        dates, and the most frequent words, without gaps.
    rows : int, optional
        Number of rows of X, chosen at random with a fixed seed; by default 100, or 40 for two columns.
    ice : int
        Number of rows whose own curves are added (individual conditional expectations).
    coverage : float
        Probability that the band contains the whole effect.

    Returns
    -------
    DataFrame
        Indexed by the values, in units of the target. ``mean`` and standard deviation ``sd`` of the effect are exact
        given the hyperparameters; ``lower`` and ``upper`` are the ends of the band. Means of single rows follow, "row
        3" for row number 3. Its ``attrs`` have the ``share`` of the variance of f and, for two columns, their
        ``interaction``.

    Raises
    ------
    ValueError
        If X has no such column, an option is out of range, f was sampled or is a mode, or nothing is fitted.
    ModelError
        If a result is of a sum of processes, of whose parts `predict` has the effects (``component=``).
    TypeError
        If it is another estimator.
    MemoryError
        If rows times values are too many.

    Examples
    --------
    >>> import numpy as np, pandas as pd, bsvr_pp as bp
    >>> X = pd.DataFrame({"town": ["Ulm", "Bonn"] * 20, "size": np.linspace(1.0, 5.0, 40)})
    >>> svr = bp.BayesianSVR(kernel="rbf", restarts=1).fit(X, 3.0 * (X["town"] == "Ulm") + X["size"])
    >>> bp.effect(svr, X, "town")["mean"].round(1).to_dict()
    {'Bonn': 3.0, 'Ulm': 6.0}
    """
    if isinstance(estimator, xr.DataTree):
        estimator = ResultInUnits.of(estimator, model)
        check_names("X", X, estimator.parts[0].problem.prior.columns)
        numbers("X", X, ("m", estimator.parts[0].problem.n_inputs))
    fitted, steps = in_steps(estimator)
    if not hasattr(fitted, "_sums_of_f"):  # as of `ResultInUnits`
        raise TypeError(
            "estimator must be a fitted BayesianSVR, BayesianSVC or BayesianOrdinalSVC, or end in one, got "
            f"{type(estimator).__name__}"
        )
    table = table_of(X)
    data = _columns_of(X) if table is None else table
    names = _names(data, feature)
    default = _ONE if len(names) == 1 else _TWO
    values, rows = default[0] if values is None else values, default[1] if rows is None else rows
    check_count("values", values, 2)
    check_count("rows", rows, 1)
    check_count("ice", ice, 0)
    check_share("coverage", coverage)
    rng = np.random.default_rng(0)
    chosen = np.arange(len(data)) if len(data) <= rows else np.sort(rng.choice(len(data), rows, replace=False))
    found = [_values_of(name, data[name].reset_index(drop=True), values, chosen) for name in names]
    grid, at_rows = [index for index, _ in found], [weights for _, weights in found]
    index = grid[0] if len(grid) == 1 else pd.MultiIndex.from_product(grid, names=names)
    at = index.to_frame(index=False)
    if len(names) == 2:  # and at the pairs of the rows, for the share
        at = pd.concat([at, data.iloc[chosen][names].dropna()], ignore_index=True)
    k, m, r = len(index), len(at), len(chosen)
    check_memory("effect", m * r, "fewer values or rows", needed=8.0 * (m * r + r) ** 2 * _MATRICES)
    moved = data.iloc[np.tile(chosen, m)].reset_index(drop=True)
    for name in names:
        moved[name] = at[name].repeat(r).array
    moved = pd.concat([moved, data.iloc[chosen]], ignore_index=True)
    inputs = moved.to_numpy() if table is None else moved
    for step in steps:
        inputs = step.transform(inputs)
    single = np.unique(np.linspace(0, r - 1, min(ice, r)).astype(int))
    of_row = [np.full((1, r), 1.0 / r), *(np.eye(r)[[i]] for i in single)]
    averages = sparse.vstack([sparse.kron(sparse.eye_array(k), each) for each in of_row])
    of_pairs = sparse.kron(sparse.eye_array(m - k), of_row[0])
    weights = sparse.block_diag([averages, of_pairs, sparse.eye_array(r)], format="csr")
    shares, gaussians = fitted._sums_of_f(inputs, weights)
    mean, variance = mixed(shares[:, None], *np.stack([(m, np.diag(C)) for m, C in gaussians], axis=1))
    sd = np.sqrt(np.maximum(variance, 0.0))
    draw = partial(rng.multivariate_normal, method="eigh", check_valid="ignore")  # the covariance may be singular
    sizes = rng.multinomial(_DRAWS, shares)
    drawn = [draw(m[:k], C[:k, :k], size) for (m, C), size in zip(gaussians, sizes, strict=True)]
    largest = np.max(np.abs(np.concatenate(drawn) - mean[:k]) / np.where(sd[:k] > 0, sd[:k], 1.0), axis=1)
    reach = np.quantile(largest, coverage) * sd[:k]  # proportional to the deviation at each value
    alone = mean[k : k * len(of_row)].reshape(-1, k)
    curves = {f"row {row}": curve for row, curve in zip(chosen[single], alone, strict=True)}
    band = {"mean": mean[:k], "lower": mean[:k] - reach, "upper": mean[:k] + reach}
    scale = getattr(fitted, "_scale_of_f", UNSCALED)
    out = pd.DataFrame({name: scale.inverse(values) for name, values in (band | curves).items()}, index)
    out.insert(1, "sd", sd[:k] * scale.stretch(mean[:k]))
    if values == default[0]:
        out.attrs |= _shares_of_f(shares, gaussians, at_rows, m - k)
    else:  # shares do not depend on the values that are shown
        out.attrs |= effect(estimator, X, feature, rows=min(rows, default[1])).attrs
    return out


@dataclass(frozen=True, slots=True)
class ResultInUnits:
    """A result of `fit` for `effect`, with inputs and targets in other units than in its model."""

    parts: Sequence[Component]
    centre: Array | float = 0.0
    width: Array | float = 1.0
    location: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, result: xr.DataTree, model: pm.Model | None, *units: Any) -> ResultInUnits:
        """Make it from a result that integrates f out, for a model of one process."""
        check_result("result", result)
        problem = read_model(model)
        if problem.composite is not None:
            raise ModelError("effect takes one process: predict(..., component=...) has the parts of a sum")
        check_match(problem, result)
        if is_mode(result):
            raise ValueError("effect takes a result that integrates f out, and this one has only its mode")
        return cls(list(components(problem, result)), *units)

    def _sums_of_f(self, X: ArrayLike | pd.DataFrame, weights: sparse.csr_array) -> tuple[Array, list[Moments]]:
        """Return shares of components, and moments of weights (k, m) times f at the given rows."""
        inputs = (np.asarray(X, dtype=np.float64) - self.centre) / self.width
        return sums_of_f(self.parts, inputs, weights, location=self.location, unit=self.unit)


def sums_of_f(
    parts: Iterable[Component], X: Array, weights: sparse.csr_array, *, location: float = 0.0, unit: float = 1.0
) -> tuple[Array, list[Moments]]:
    """Return shares of at most 50 components of f, and for each the moments of sparse weights (k, m) times f at X."""
    found = list(parts)
    if found[0].site_precision is None:
        raise ValueError("effects are of a result that integrates f out, and this one has draws of f")
    found = [found[i] for i in np.unique(np.linspace(0, len(found) - 1, min(len(found), _MEMBERS)).astype(int))]
    shares, level = np.array([part.weight for part in found]), location * weights.sum(axis=1)
    moments = [part.linear(X, weights) for part in found]
    return shares / shares.sum(), [(level + unit * mean, unit**2 * covariance) for mean, covariance in moments]


def _shares_of_f(shares: Array, gaussians: Sequence[Moments], at_rows: Sequence[Array], pairs: int) -> dict[str, float]:
    """Return the share of the variance of f over the rows, and of two columns the share of what they do together.

    The moments are of the effect at k values, and last of the effect at pairs of the rows, and of f at the rows;
    ``at_rows`` has the weights of values at rows, 0 of gaps. Between few values of two columns a spline is too rough.
    """
    r, known = len(at_rows[0]), np.all([weights.any(axis=1) for weights in at_rows], axis=0)

    def variance(weights: Array, first: int = 0) -> float:
        """Return the expected variance over rows of weights (n, k) times the vector (k,) from the ``first`` place."""
        if not len(weights):
            return np.nan
        at, w = slice(first, first + weights.shape[1] or None), weights - weights.mean(axis=0)
        each = [np.mean((w @ m[at]) ** 2 + np.einsum("ik,kl,il->i", w, C[at, at], w)) for m, C in gaussians]
        return float(shares @ each)

    of_f = variance(np.eye(r), -r) or np.nan
    if len(at_rows) == 1:
        return {"share": variance(at_rows[0][known]) / of_f}
    centred = (weights - weights[known].sum(axis=0) / max(int(known.sum()), 1) for weights in at_rows)
    both = np.einsum("ij,ik->ijk", *centred).reshape(r, -1)[known]
    return {"share": variance(np.eye(pairs), -r - pairs) / of_f, "interaction": variance(both) / of_f}


def in_steps(estimator: Any) -> tuple[Any, list[Any]]:
    """Return the estimator that a search or a pipeline ends in, and the steps before it that change inputs."""
    steps: list[Any] = []
    while isinstance(estimator, Pipeline) or hasattr(estimator, "best_estimator_"):
        if isinstance(estimator, Pipeline):
            steps += [step for _, step in estimator.steps[:-1] if hasattr(step, "transform")]
        estimator = estimator[-1] if isinstance(estimator, Pipeline) else estimator.best_estimator_
    return estimator, steps


def _columns_of(X: ArrayLike | pd.DataFrame) -> pd.DataFrame:
    """Return the columns x0, x1, ... of an array."""
    if sparse.issparse(X):
        raise ValueError("X must be a table or an (m, d) array, got a sparse matrix: effects are of dense inputs")
    given = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    if given.ndim != 2 or given.size == 0:
        raise ValueError(f"X must be a table or an (m, d) array, and not empty, got shape {given.shape}")
    return pd.DataFrame(given, columns=[f"x{i}" for i in range(given.shape[1])])


def _names(table: pd.DataFrame, feature: Column | tuple[Column, ...]) -> list[str]:
    names = list(map(str, table.columns))
    found = [place_of(each, names) for each in (feature if isinstance(feature, tuple) else (feature,))]
    places = [place for place in found if place is not None]
    if len(found) not in (1, 2) or len(set(places)) < len(found):
        raise ValueError(
            f"feature must be a column of X by name or number, or a tuple of two, got {feature!r}; X has: "
            f"{', '.join(names)}"
        )
    return [names[place] for place in places]


def _values_of(name: str, column: pd.Series, most: int, rows: Rows) -> tuple[pd.Index, Array]:
    """Return at most ``most`` words or quantiles of a column, and their weights (n, k) at rows.

    Between the values the effect is a natural cubic spline, which halves the error of shares by lines, or more.
    """
    present = column.dropna()
    kind = kind_of(name, present)
    if present.empty:
        raise ValueError(f"column {name!r} of X has no values")
    if kind is Words:
        counts = present.value_counts()
        found = pd.Index(counts[counts > 0].index[:most], name=name).sort_values()  # not of unused categories
        words = column.iloc[rows].to_numpy(object)
        return found, (words[:, None] == found.to_numpy(object)).astype(np.float64)
    ordered = times_of(name, present)[0] if kind is Dates else pd.to_numeric(present)
    found = pd.Index(ordered.unique(), name=name).sort_values()
    if len(found) > most:
        levels = np.linspace(0.0, 1.0, most)
        found = pd.Index(ordered.quantile(levels, interpolation="nearest").unique(), name=name)
    kept = "int64" if kind is Dates else "float64"
    at = ordered.astype(kept).astype("float64").reindex(rows).to_numpy()
    x = found.to_series().astype(kept).to_numpy(np.float64)
    between = CubicSpline(x, np.eye(len(x)), bc_type="natural")(at) if len(x) > 1 else 0.0 * at[:, None] + 1.0
    return found, np.nan_to_num(between)
