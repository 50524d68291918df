"""The numbers of one result in a comparison, with their errors, as data without words.

A number is None if it was not requested, and NaN if the method does not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, nan
from typing import Any, Literal, NamedTuple

__all__ = [
    "Assessment",
    "Distances",
    "Estimate",
    "EvidenceFigures",
    "Hyperparameter",
    "LeaveOneOut",
    "Sampling",
    "Scores",
]


class Hyperparameter(NamedTuple):
    """A scalar hyperparameter: its name, and its position if it is an entry of a vector."""

    name: str
    position: int | None = None

    @property
    def label(self) -> str:
        """Label such as ``C`` or ``lengthscale[1]``."""
        return self.name if self.position is None else f"{self.name}[{self.position}]"


class Estimate(NamedTuple):
    """A value with its standard error, or for draws their standard deviation; NaN if there is none."""

    value: float = nan
    error: float = nan


@dataclass(frozen=True, slots=True)
class EvidenceFigures:
    """Log evidences of the method of a result, in nats.

    Attributes
    ----------
    own : float
        Log evidence at the hyperparameters of the result; NaN for the mode and for draws.
    error : Estimate or None
        Log evidence of the method minus the annealed one, at the hyperparameters of the result (for draws, at their
        mean).
    common, common_error : Estimate or None
        Log evidence at the common hyperparameters of the comparison, and its difference from the annealed one.
    """

    own: float
    error: Estimate | None = None
    common: Estimate | None = None
    common_error: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of a result from the reference.

    Attributes
    ----------
    mean_f, mean_y : float
        Largest difference of the means of f, in posterior standard deviations of f and in predictive ones of y.
    wasserstein, kl : mapping
        Distances of the marginals of each hyperparameter (`bsvr_pp.assess.scores.marginal_distances`).
    wasserstein_f, kl_f : float
        The same for f, averaged over the training inputs.
    """

    mean_f: float
    mean_y: float
    wasserstein_f: float
    kl_f: float
    wasserstein: Mapping[Hyperparameter, float]
    kl: Mapping[Hyperparameter, float]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of predictions on test data; None where they do not exist for labels. Only labels have `error_rate`.

    Attributes
    ----------
    n : int
        Number of test targets.
    log_density : float
        Mean log predictive density.
    squared_error, absolute_error, crps : float or None
        Averages, in the units of the target (squared for the first).
    coverage : mapping
        Maps the probability of a central interval to the share of targets in it.
    calibration_error : float or None
        Mean distance between predicted and observed shares.
    error_rate : float or None
        Share of wrongly predicted labels.
    """

    n: int
    log_density: float
    squared_error: float | None = None
    absolute_error: float | None = None
    crps: float | None = None
    coverage: Mapping[float, float] | None = None
    calibration_error: float | None = None
    error_rate: float | None = None

    def in_units(self, scale: float) -> Scores:
        """Rescale the scores to targets that are ``scale`` times as large; scores of labels have no units."""
        if self.squared_error is None or self.absolute_error is None or self.crps is None:
            return self
        return replace(
            self,
            log_density=self.log_density - log(scale),
            squared_error=self.squared_error * scale**2,
            absolute_error=self.absolute_error * scale,
            crps=self.crps * scale,
        )


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Leave-one-out log density, its kind, and the number of its terms that are not reliable."""

    elpd: Estimate
    kind: Literal["cavities", "PSIS of cavities", "PSIS"] | None = None
    unreliable: int = 0
    n: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Diagnostics of draws: largest R-hat, smallest effective number of draws, divergences."""

    r_hat: float
    ess: float
    divergences: int


@dataclass(frozen=True, slots=True)
class Assessment:
    """One result of a comparison.

    Attributes
    ----------
    inference : str
        Name of the method.
    plug_in, sampled : bool
        Whether it has only the mode, or draws; neither for a Gaussian approximation at one point.
    converged, seconds, message
        As in the result.
    point : mapping
        Hyperparameters of the result, for draws their mean, as plain numbers and lists.
    hyperparameters : mapping
        Value and standard deviation of each scalar hyperparameter.
    off_bound, on_bound : int or None
        Numbers of support vectors.
    evidence, integrated, k_hat, distances, scores, loo, sampling
        Further numbers, None if they were not requested. ``integrated`` is log p(y).
    """

    inference: str
    plug_in: bool
    sampled: bool
    converged: bool
    seconds: float
    message: str
    point: Mapping[str, Any]
    hyperparameters: Mapping[Hyperparameter, Estimate]
    evidence: EvidenceFigures
    off_bound: int | None = None
    on_bound: int | None = None
    integrated: Estimate | None = None
    k_hat: float | None = None
    distances: Distances | None = None
    scores: Scores | None = None
    loo: LeaveOneOut | None = None
    sampling: Sampling | None = None

    @property
    def draws_per_second(self) -> float | None:
        """Effective draws for each second of the whole run."""
        return None if self.sampling is None else self.sampling.ess / self.seconds
