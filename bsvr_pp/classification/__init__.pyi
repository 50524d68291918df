from .default_models import default_label_model, default_ordinal_model
from .exchange import Exchange
from .normalised_evidence import ClassificationEvidence, NormalisedEvidence, evidence
from .svm_label import KnownLabel

__all__ = [
    "ClassificationEvidence",
    "Exchange",
    "KnownLabel",
    "NormalisedEvidence",
    "default_label_model",
    "default_ordinal_model",
    "evidence",
]
