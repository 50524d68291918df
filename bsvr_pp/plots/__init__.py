"""Pictures of results; where ArviZ draws, its `PlotCollection` is returned, elsewhere matplotlib's figure."""

from bsvr_pp.plots.calibration import plot_calibration
from bsvr_pp.plots.convergence import plot_convergence
from bsvr_pp.plots.evidence import plot_evidence
from bsvr_pp.plots.hyperparameters import plot_hyperparameters, plot_relevance
from bsvr_pp.plots.predictive import plot_predictive

__all__ = [
    "plot_calibration",
    "plot_convergence",
    "plot_evidence",
    "plot_hyperparameters",
    "plot_predictive",
    "plot_relevance",
]
