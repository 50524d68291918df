"""The public names, each with the module that defines it; they are loaded on first use."""

from . import classification, cov, scorers
from .assess.assessment import scores
from .assess.calibrate import calibrate
from .assess.evidence import integrated_evidence, log_evidence, verify
from .assess.loo import loo, loo_predict
from .assess.partial_dependence import effect
from .classification.svm_label import SVMLabel
from .core import __version__
from .core.arrays import ModelError
from .estimators.base import LocalBlocks
from .estimators.lssvr import LSSVR, BayesianLSSVR
from .estimators.matrices import PairwiseKernel
from .estimators.ordinal import BayesianOrdinalSVC
from .estimators.residual_intervals import ResidualIntervals
from .estimators.svc import BayesianSVC
from .estimators.svr import BayesianSVR
from .inference.approximate import MAP, Annealed, Laplace, MeanField
from .inference.fit import fit
from .inference.integrated import Integrated
from .inference.netcdf import load, save
from .inference.predict import predict, predict_distribution
from .inference.prediction.distribution import PredictiveDistribution
from .inference.protocol import ConvergenceWarning
from .inference.recover import recover_latent
from .inference.sampling.nuts import NUTS
from .large import FolderModel, fit_folder
from .model.blocks import local_blocks
from .model.distributions import EpsilonInsensitive, Huber, SoftInsensitive
from .model.gp import GP
from .model.marginalize import marginalize
from .model.priors import default_model, default_priors
from .model.row_kinds import Interval, Ordinal
from .show.plots import plot_effect, plot_evidence, plot_predictive, plot_warping
from .show.report import compare, report_page

__all__ = [
    "GP",
    "LSSVR",
    "MAP",
    "NUTS",
    "Annealed",
    "BayesianLSSVR",
    "BayesianOrdinalSVC",
    "BayesianSVC",
    "BayesianSVR",
    "ConvergenceWarning",
    "EpsilonInsensitive",
    "FolderModel",
    "Huber",
    "Integrated",
    "Interval",
    "Laplace",
    "LocalBlocks",
    "MeanField",
    "ModelError",
    "Ordinal",
    "PairwiseKernel",
    "PredictiveDistribution",
    "ResidualIntervals",
    "SVMLabel",
    "SoftInsensitive",
    "__version__",
    "calibrate",
    "classification",
    "compare",
    "cov",
    "default_model",
    "default_priors",
    "effect",
    "fit",
    "fit_folder",
    "integrated_evidence",
    "load",
    "local_blocks",
    "log_evidence",
    "loo",
    "loo_predict",
    "marginalize",
    "plot_effect",
    "plot_evidence",
    "plot_predictive",
    "plot_warping",
    "predict",
    "predict_distribution",
    "recover_latent",
    "report_page",
    "save",
    "scorers",
    "scores",
    "verify",
]
