from .default_models import default_label_model, default_ordinal_model
from .exchange import Exchange
from .normalised_evidence import NormalisedEvidence
from .svm_label import KnownLabel

__all__ = [
    "Exchange",
    "KnownLabel",
    "NormalisedEvidence",
    "default_label_model",
    "default_ordinal_model",
]
