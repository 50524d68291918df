from .default_models import default_label_model, default_ordinal_model
from .evidences import (
    ClassificationEvidence,
    class_probability,
    evidence,
    evidence_gradient,
)
from .exchange import Exchange
from .normalised_evidence import NormalisedEvidence
from .svm_label import KnownLabel

__all__ = [
    "ClassificationEvidence",
    "Exchange",
    "KnownLabel",
    "NormalisedEvidence",
    "class_probability",
    "default_label_model",
    "default_ordinal_model",
    "evidence",
    "evidence_gradient",
]
