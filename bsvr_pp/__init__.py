"""Bayesian support vector machines in PyMC: one model, several inferences, results side by side.

Public names are loaded on first use, so that the array layer (`bsvr_pp.losses`, `bsvr_pp.approximations`) can be
imported without PyMC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bsvr_pp.version import __version__

if TYPE_CHECKING:
    from bsvr_pp.calibration import calibrate
    from bsvr_pp.classification.evidence import (
        Chaining,
        ClassificationEvidence,
        classification_evidence,
        classification_gradient,
    )
    from bsvr_pp.classification.predict import class_probability
    from bsvr_pp.comparison import compare
    from bsvr_pp.distributions import EpsilonInsensitive, Huber, SoftInsensitive
    from bsvr_pp.estimators.intervals import ResidualIntervals
    from bsvr_pp.estimators.lssvr import LSSVR, BayesianLSSVR
    from bsvr_pp.estimators.svc import BayesianSVC
    from bsvr_pp.estimators.svr import BayesianSVR
    from bsvr_pp.evidence import Evidence, integrated_evidence, log_evidence
    from bsvr_pp.gp import GP
    from bsvr_pp.inference.fit import ConvergenceWarning, fit
    from bsvr_pp.inference.marginalize import marginalize
    from bsvr_pp.inference.methods import MAP, NUTS, Annealed, Laplace, MeanField
    from bsvr_pp.inference.predict import predict
    from bsvr_pp.inference.recover import recover_latent
    from bsvr_pp.leave_one_out import loo
    from bsvr_pp.plots import (
        plot_calibration,
        plot_convergence,
        plot_evidence,
        plot_hyperparameters,
        plot_predictive,
        plot_relevance,
    )
    from bsvr_pp.priors import default_beta, default_model, default_priors
    from bsvr_pp.problem import ModelError
    from bsvr_pp.report import Picture, report_page
    from bsvr_pp.scoring import scores
    from bsvr_pp.svm_label import SVMLabel
    from bsvr_pp.verification import Verification, verify

_HOMES = {
    "ResidualIntervals": "estimators.intervals",
    "LSSVR": "estimators.lssvr",
    "BayesianLSSVR": "estimators.lssvr",
    "BayesianSVC": "estimators.svc",
    "BayesianSVR": "estimators.svr",
    "class_probability": "classification.predict",
    "Chaining": "classification.evidence",
    "ClassificationEvidence": "classification.evidence",
    "classification_evidence": "classification.evidence",
    "classification_gradient": "classification.evidence",
    "EpsilonInsensitive": "distributions",
    "Huber": "distributions",
    "SoftInsensitive": "distributions",
    "Evidence": "evidence",
    "integrated_evidence": "evidence",
    "log_evidence": "evidence",
    "GP": "gp",
    "compare": "comparison",
    "scores": "scoring",
    "plot_calibration": "plots",
    "plot_convergence": "plots",
    "plot_evidence": "plots",
    "plot_hyperparameters": "plots",
    "plot_predictive": "plots",
    "plot_relevance": "plots",
    "Picture": "report",
    "report_page": "report",
    "ConvergenceWarning": "inference.fit",
    "fit": "inference.fit",
    "loo": "leave_one_out",
    "Annealed": "inference.methods",
    "MAP": "inference.methods",
    "NUTS": "inference.methods",
    "Laplace": "inference.methods",
    "MeanField": "inference.methods",
    "marginalize": "inference.marginalize",
    "predict": "inference.predict",
    "recover_latent": "inference.recover",
    "default_beta": "priors",
    "default_model": "priors",
    "default_priors": "priors",
    "ModelError": "problem",
    "calibrate": "calibration",
    "Verification": "verification",
    "verify": "verification",
    "SVMLabel": "svm_label",
}

__all__ = [
    "GP",
    "LSSVR",
    "MAP",
    "NUTS",
    "Annealed",
    "BayesianLSSVR",
    "BayesianSVC",
    "BayesianSVR",
    "Chaining",
    "ClassificationEvidence",
    "ConvergenceWarning",
    "EpsilonInsensitive",
    "Evidence",
    "Huber",
    "Laplace",
    "MeanField",
    "ModelError",
    "Picture",
    "ResidualIntervals",
    "SVMLabel",
    "SoftInsensitive",
    "Verification",
    "__version__",
    "calibrate",
    "class_probability",
    "classification_evidence",
    "classification_gradient",
    "compare",
    "default_beta",
    "default_model",
    "default_priors",
    "fit",
    "integrated_evidence",
    "log_evidence",
    "loo",
    "marginalize",
    "plot_calibration",
    "plot_convergence",
    "plot_evidence",
    "plot_hyperparameters",
    "plot_predictive",
    "plot_relevance",
    "predict",
    "recover_latent",
    "report_page",
    "scores",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"bsvr_pp.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bsvr_pp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
