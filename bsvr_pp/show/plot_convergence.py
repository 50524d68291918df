"""Convergence of the mean field to its fixed point."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from bsvr_pp.approximations import mean_field_trace
from bsvr_pp.approximations.mean_field import TOLERANCE
from bsvr_pp.model.problem import read_model
from bsvr_pp.show.colours import colours

__all__ = ["plot_convergence"]


def plot_convergence(
    hyperparameters: Mapping[str, ArrayLike] | None = None, *, model: pm.Model | None = None
) -> Figure:
    """Plot the sweeps of mean field: mismatch of moments, and difference of the evidence from its last value.

    The figure is drawn in matplotlib.

    For draws of NUTS use `arviz.plot_trace`. The mode takes few Newton steps; its duality gap is in the result.

    Parameters
    ----------
    hyperparameters : dict, optional
        A value for each hyperparameter of the model; not needed if there are none.
    model : pm.Model, optional
        The model; by default that of the surrounding ``with``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a hyperparameter is missing, unknown or outside its support.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> figure = bp.plot_convergence(at, model=model)
    >>> [axis.get_ylabel() for axis in figure.axes]
    ['mismatch of moments, in sd', 'error of the log evidence']
    """
    problem = read_model(model)
    K, mean, noise = problem.at(problem.complete(hyperparameters))
    mismatch, evidence = mean_field_trace(K, problem.targets, noise, mean=mean)
    sweeps = np.arange(1, mismatch.size + 1)
    colour = colours(["mean field"])["mean field"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    left.semilogy(sweeps, mismatch, "o-", ms=4, color=colour)
    left.axhline(TOLERANCE, color="0.6", lw=1, ls=":")
    left.annotate("converged below", (sweeps[0], TOLERANCE), (0, 4), textcoords="offset points", fontsize="small")
    left.set_ylabel("mismatch of moments, in sd")
    # The last value is the reference, so that it has no difference to plot.
    right.semilogy(sweeps[:-1], np.abs(evidence[:-1] - evidence[-1]), "o-", ms=4, color=colour)
    right.set_ylabel("error of the log evidence")
    for axis in (left, right):
        axis.set_xlabel("sweep")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
    return figure
