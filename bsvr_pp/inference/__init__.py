"""From a model to a result: methods, the front door `fit`, predictions."""

from bsvr_pp.inference.fit import ConvergenceWarning, fit
from bsvr_pp.inference.methods import MAP, NUTS, Laplace, MeanField
from bsvr_pp.inference.predict import predict

__all__ = ["MAP", "NUTS", "ConvergenceWarning", "Laplace", "MeanField", "fit", "predict"]
