"""Plot of the evidence along hyperparameters, for each method and for the annealed reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import generator, numbers
from bsvr_pp.assess.evidence import evidence_at
from bsvr_pp.inference.annealed import Annealed
from bsvr_pp.inference.approximate import Laplace, MeanField
from bsvr_pp.inference.protocol import Approximation, can
from bsvr_pp.model.problem import Point, Problem, read_model
from bsvr_pp.show.colours import INK, colours

__all__ = ["plot_evidence"]

Array = NDArray[np.float64]

_POINTS = 9  # annealed points along a hyperparameter
_DEPTH = 12.0  # range of the contours in nats below the maximum


def plot_evidence(
    along: Mapping[str, ArrayLike],
    *,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    methods: Sequence[Approximation] = (Laplace(), MeanField()),
    annealed: Annealed | None = None,
    model: pm.Model | None = None,
    random_seed: int | None = 0,
) -> Figure:
    """Plot the log evidence along one or two hyperparameters.

    The figure is drawn in matplotlib.

    Parameters
    ----------
    along : dict
        One or two hyperparameters with increasing values at which the evidence is evaluated; all entries of a vector
        get the same value.
    hyperparameters : dict, optional
        Values of the other hyperparameters; values of those in ``along`` are marked if they are numbers.
    methods : sequence of Laplace, MeanField or other approximations
        Methods; each gives a line for one hyperparameter, or a panel for two.
    annealed : Annealed, optional
        If given, the annealed evidence is added: at nine points with two standard errors, or as another panel.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``.
    random_seed : int, optional
        Random seed of the annealed evidence.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If along does not have one or two names, its values do not increase, or a hyperparameter is missing, unknown or
        outside its support.
    TypeError
        If methods or annealed have a wrong type.

    Examples
    --------
    >>> import numpy as np, bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> figure = bp.plot_evidence({"inverse_lengthscale": np.geomspace(0.2, 2, 10)}, hyperparameters=at, model=model)
    >>> [line.get_label() for line in figure.axes[0].lines][:2]
    ['Laplace', 'mean field']
    """
    problem = read_model(model)
    grids = _checked(along, problem)
    centre = problem.checked(hyperparameters)
    missing = [name for name in problem.hyperparameters if name not in centre and name not in grids]
    if missing:
        raise ValueError(f"hyperparameters must give every hyperparameter but those along, {missing[0]} missing")
    chosen = list(methods)
    if not chosen or not all(can(method, "integrates") for method in chosen):
        raise TypeError(f"methods must hold Laplace(), MeanField() or other approximations, got {methods!r}")
    if annealed is not None and not can(annealed, "takes_draws"):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")
    if len(grids) == 1:
        return _lines(problem, grids, centre, chosen, annealed, random_seed)
    return _surfaces(problem, grids, centre, chosen, annealed, random_seed)


def _checked(along: Mapping[str, ArrayLike], problem: Problem) -> dict[str, Array]:
    if not isinstance(along, Mapping) or len(along) not in (1, 2):
        raise ValueError(f"along must map one or two hyperparameters to their values, got {along!r}")
    grids = {name: numbers(f"along[{name!r}]", values) for name, values in along.items()}
    for name, grid in grids.items():
        if grid.ndim != 1 or grid.size < 2 or not (np.diff(grid) > 0).all():
            raise ValueError(f"along[{name!r}] must be at least two increasing values, got {along[name]!r}")
        for end in (grid[0], grid[-1]):
            problem.checked({name: end})
    return grids


def _evidence(
    problem: Problem,
    centre: Point,
    moved: Mapping[str, Any],
    method: Approximation | Annealed,
    random_seed: int | None,
) -> tuple[float, float]:
    """Log evidence and its standard error; NaN if the method did not converge."""
    shapes = {name: problem.checked({name: value})[name].shape for name, value in moved.items()}
    point = {**centre, **{name: np.full(shapes[name], x) for name, x in moved.items()}}
    found = evidence_at(problem, point, method, generator(random_seed))
    return (found.value if found.converged else np.nan), found.standard_error


def _lines(
    problem: Problem,
    grids: Mapping[str, Array],
    centre: Point,
    methods: Sequence[Approximation],
    annealed: Annealed | None,
    random_seed: int | None,
) -> Figure:
    ((name, grid),) = grids.items()
    figure, axis = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
    colour = colours(method.name for method in methods)
    for method in methods:
        values = [_evidence(problem, centre, {name: x}, method, None)[0] for x in grid]
        axis.plot(grid, values, color=colour[method.name], lw=1.8, label=method.name)
    if annealed is not None:
        at = grid[np.unique(np.linspace(0, grid.size - 1, _POINTS).astype(int))]
        found = np.array([_evidence(problem, centre, {name: x}, annealed, random_seed) for x in at])
        axis.errorbar(
            at, found[:, 0], 2 * found[:, 1], fmt="o", ms=4, color="black", capsize=2, label="annealed (true)", zorder=5
        )
    if name in centre and centre[name].size == 1:
        axis.axvline(float(centre[name].item()), color="0.6", lw=1, ls=":")
    _log_where_wide(axis, "x", grid)
    axis.set_xlabel(name)
    axis.set_ylabel("log evidence")
    axis.legend(fontsize="small", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _surfaces(
    problem: Problem,
    grids: Mapping[str, Array],
    centre: Point,
    methods: Sequence[Approximation],
    annealed: Annealed | None,
    random_seed: int | None,
) -> Figure:
    (first, xs), (second, ys) = grids.items()
    everything: list[Any] = [*methods, *([] if annealed is None else [annealed])]
    n = len(everything)
    figure, axes = plt.subplots(
        1, n, figsize=(3.6 * n + 0.8, 3.5), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axis, method in zip(axes.flat, everything, strict=True):
        surface = np.array(
            [[_evidence(problem, centre, {first: x, second: y}, method, random_seed)[0] for x in xs] for y in ys]
        )
        below = surface - np.nanmax(surface)
        filled = axis.contourf(xs, ys, below, np.linspace(-_DEPTH, 0.0, 13), cmap="viridis", extend="min")
        row, column = np.unravel_index(np.nanargmax(surface), surface.shape)
        axis.plot(xs[column], ys[row], "o", ms=7, mfc="none", mec=INK, mew=1.5)
        if all(name in centre and centre[name].size == 1 for name in grids):
            axis.plot(centre[first].item(), centre[second].item(), "+", color="white", ms=11, mew=2)
        axis.set_title(method.name)
        axis.set_xlabel(first)
        _log_where_wide(axis, "x", xs)
        _log_where_wide(axis, "y", ys)
    axes.flat[0].set_ylabel(second)
    figure.colorbar(filled, ax=axes, label="log evidence minus its maximum")
    return figure


def _log_where_wide(axes: Any, which: str, grid: Array) -> None:
    """Use a log scale with plain numbers if the grid spans more than a factor of five."""
    if grid[0] > 0 and grid[-1] > 5 * grid[0]:
        axes.set(**{f"{which}scale": "log"})
        axis = getattr(axes, f"{which}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
