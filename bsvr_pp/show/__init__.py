"""Plots, tables and the report; plots made by ArviZ return its `PlotCollection`, the others a matplotlib figure."""

from bsvr_pp.show.plot_calibration import plot_calibration
from bsvr_pp.show.plot_convergence import plot_convergence
from bsvr_pp.show.plot_evidence import plot_evidence
from bsvr_pp.show.plot_hyperparameters import plot_hyperparameters, plot_relevance
from bsvr_pp.show.plot_predictive import plot_predictive

__all__ = [
    "plot_calibration",
    "plot_convergence",
    "plot_evidence",
    "plot_hyperparameters",
    "plot_predictive",
    "plot_relevance",
]
