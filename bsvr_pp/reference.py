"""Reference posteriors: small problems whose evidence and moments are known from long annealing runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsvr_pp.losses import LOSSES, NoiseModel

__all__ = ["FILE", "ReferencePosterior", "reference_posteriors"]

Array = NDArray[np.float64]

FILE = files("bsvr_pp") / "data" / "reference_posteriors.json"


@dataclass(frozen=True, slots=True)
class ReferencePosterior:
    """A problem with the accurate evidence and moments of its posterior.

    The prior is a zero-mean Gaussian process with covariance
    signal_variance·exp(-½‖x - x'‖²/lengthscale²) + bias_variance + jitter·δ.

    Attributes
    ----------
    name : str
        Name, which describes the problem.
    X : (n, d) array
    y : (n,) array
        Targets, or labels for the hinge; a number of each interval where targets are intervals.
    lengthscale, signal_variance, bias_variance, jitter : float
        Parameters of the covariance.
    noise : NoiseModel
        The noise model, which has the ends of targets that are intervals.
    log_evidence, standard_error : float
        Natural log of the evidence by `bsvr_pp.approximations.annealed`.
    mean, variance : (n,) arrays
        Mean and variance of f at the inputs, from 200,000 particles (5,000 for intervals).
    """

    name: str
    X: Array
    y: Array
    lengthscale: float
    signal_variance: float
    bias_variance: float
    jitter: float
    noise: NoiseModel
    log_evidence: float
    standard_error: float
    mean: Array
    variance: Array

    @property
    def K(self) -> Array:
        """Prior covariance (n, n)."""
        distance = ((self.X[:, None] - self.X) ** 2).sum(-1)
        K: Array = self.signal_variance * np.exp(-0.5 * distance / self.lengthscale**2) + self.bias_variance
        return K + self.jitter * np.eye(len(K))


def reference_posteriors() -> list[ReferencePosterior]:
    """Load the reference posteriors, with which approximations can be tested.

    Examples
    --------
    >>> from bsvr_pp.approximations import mean_field
    >>> from bsvr_pp.reference import reference_posteriors
    >>> first = reference_posteriors()[0]
    >>> bool(abs(mean_field(first.K, first.y, first.noise).log_evidence - first.log_evidence) < 0.3)
    True
    """
    out = []
    for record in json.loads(FILE.read_text()):
        arrays: dict[str, Any] = {key: np.asarray(record.pop(key)) for key in ("X", "y", "mean", "variance")}
        noise, ends = NoiseModel(LOSSES[record.pop("loss")], record.pop("parameters")), record.pop("ends", None)
        if ends is not None:  # JSON has no infinite numbers
            lower, upper = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
            noise = noise.between(np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf))
        out.append(ReferencePosterior(noise=noise, **arrays, **record))
    return out
