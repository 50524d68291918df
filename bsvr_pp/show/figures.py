"""The figures of a comparison: their columns in the table, their labels for readers, and their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bsvr_pp.assess.assessment import Assessment, Distances, Estimate, EvidenceFigures, Hyperparameter, Scores
from bsvr_pp.assess.compare import Comparison
from bsvr_pp.assess.verdict import GOOD_R_HAT
from bsvr_pp.assess.weights import GOOD_K
from bsvr_pp.show.words import loo_kind

__all__ = ["Figure", "Group", "Value", "groups"]

_NATS = 3  # decimals of errors of a log evidence: less decides nothing
Value = Estimate | float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that is shown for every result.

    Attributes
    ----------
    column : str
        Its column in the table.
    label : str
        Its label for readers; ``{}`` is replaced by the name of the hyperparameter.
    of : callable
        Function that reads it from an `Assessment`; it returns None if the number was not computed.
    entry : Hyperparameter, optional
        The hyperparameter that it describes.
    error : str
        Suffix of the column name for the standard error of an `Estimate`.
    decimals : int
        Largest number of decimals of an `Estimate`.
    distance : bool
        Whether it is a distance from the reference, so that zeros are not shown.
    detail : bool
        Whether it is shown only on the page and in the table, not in the terminal.
    """

    column: str
    label: str
    of: Callable[[Assessment], Value]
    entry: Hyperparameter | None = None
    error: str = "se"
    decimals: int = 6
    distance: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Figures that answer one question, with a title and an explanation."""

    title: str
    explanation: str
    figures: Sequence[Figure]


def groups(comparison: Comparison) -> list[Group]:
    """List all figures of a comparison, in the order of their columns.

    Parameters
    ----------
    comparison : Comparison
        The results.

    Returns
    -------
    list of Group
    """
    entries = list(dict.fromkeys(e for found in comparison.results.values() for e in found.hyperparameters))
    return [
        Group(
            "Predictions on test data",
            "Log predictive density: larger is better. CRPS and errors: smaller is better. Calibration error: mean "
            "distance between predicted and observed shares, 0 at best.",
            _scores(comparison),
        ),
        Group(
            "Evidence",
            "Log evidence of each method, and its difference from annealing, which is exact up to its standard error, "
            "at the common hyperparameters θ, and at the hyperparameters of each result (for draws, their mean), where "
            "the result is judged. log p(y) has θ integrated out. LOO density: expected log density of each target "
            "given the others; compare only those that are computed in the same way.",
            [
                Figure("evidence at theta", "at common θ", _evidence(lambda e: e.common), decimals=2),
                Figure("error at theta", "its error", _evidence(lambda e: e.common_error), decimals=_NATS),
                Figure("log_evidence", "at its own θ", _evidence(lambda e: e.own)),
                Figure("evidence error", "its error there", _evidence(lambda e: e.error), decimals=_NATS),
                Figure("p(y)", "log p(y)", lambda a: a.integrated),
                Figure("elpd", "LOO density", lambda a: None if a.loo is None else a.loo.elpd),
                Figure("elpd kind", "LOO by", lambda a: None if a.loo is None else loo_kind(a.loo)),
            ],
        ),
        Group(
            "Hyperparameters",
            "Value of a point estimate, or mean ± standard deviation of draws.",
            [Figure(e.label, "{}", partial(_hyperparameter, e), e, "sd") for e in entries],
        ),
        Group(
            f"Distance from {comparison.reference}",
            "Largest difference of means, in standard deviations of f and of y. Wasserstein distance of marginals, "
            "in standard deviations, and their KL divergence, in nats; those of f are averages over the inputs.",
            [
                Figure("f differs", "mean of f", _distance(lambda d: d.mean_f)),
                Figure("y differs", "mean of y", _distance(lambda d: d.mean_y)),
                Figure("W f", "Wasserstein, f", _distance(lambda d: d.wasserstein_f), distance=True),
                *[_marginal("W", "Wasserstein", e, lambda d: d.wasserstein) for e in entries],
                Figure("KL f", "KL divergence, f", _distance(lambda d: d.kl_f), distance=True),
                *[_marginal("KL", "KL divergence", e, lambda d: d.kl) for e in entries],
            ],
        ),
        Group(
            "Diagnostics and cost",
            f"k-hat up to {GOOD_K}: the joint approximation of all of f is close enough to the exact posterior for its "
            f"draws to be reweighted; k-hat grows with the number of rows. R-hat up to {GOOD_R_HAT}: chains agree. "
            "Off-bound support vectors (SVs) lie at the edge of the tube, on-bound ones outside. "
            "Seconds include compilation.",
            [
                Figure("converged", "converged", lambda a: a.converged),
                Figure("k-hat", "k-hat", lambda a: a.k_hat),
                Figure("R-hat", "R-hat", lambda a: None if a.sampling is None else a.sampling.r_hat),
                Figure("ESS", "effective draws", lambda a: None if a.sampling is None else a.sampling.ess),
                Figure("ESS/s", "draws per second", lambda a: a.draws_per_second),
                Figure("divergences", "divergences", lambda a: None if a.sampling is None else a.sampling.divergences),
                Figure("off-bound", "SVs, off-bound", lambda a: a.off_bound),
                Figure("on-bound", "SVs, on-bound", lambda a: a.on_bound),
                Figure("seconds", "seconds", lambda a: a.seconds),
            ],
        ),
    ]


def _scores(comparison: Comparison) -> list[Figure]:
    scores = [found.scores for found in comparison.results.values() if found.scores is not None]
    covered = dict.fromkeys(probability for each in scores for probability in each.coverage or {})
    return [
        Figure("mlpd", "log density", _score("log_density")),
        Figure("crps", "CRPS", _score("crps")),
        Figure("ase", "squared error", _score("squared_error")),
        Figure("aae", "absolute error", _score("absolute_error")),
        Figure("error rate", "error rate", _score("error_rate")),
        *[Figure(f"coverage {100 * p:.0f} %", f"in {100 * p:.0f} % interval", partial(_coverage, p)) for p in covered],
        Figure("calibration error", "calibration error", _score("calibration_error")),
    ]


def _score(name: str) -> Callable[[Assessment], float | None]:
    return lambda found: None if found.scores is None else getattr(found.scores, name)


def _coverage(probability: float, found: Assessment) -> float | None:
    scores: Scores | None = found.scores
    return None if scores is None or scores.coverage is None else scores.coverage.get(probability)


def _evidence(of: Callable[[EvidenceFigures], Value]) -> Callable[[Assessment], Value]:
    return lambda found: of(found.evidence)


def _hyperparameter(entry: Hyperparameter, found: Assessment) -> Estimate | None:
    return found.hyperparameters.get(entry)


def _distance(of: Callable[[Distances], float]) -> Callable[[Assessment], float | None]:
    return lambda found: None if found.distances is None else of(found.distances)


def _marginal(
    column: str, label: str, entry: Hyperparameter, of: Callable[[Distances], Mapping[Hyperparameter, float]]
) -> Figure:
    distance = _distance(lambda distances: of(distances)[entry])
    return Figure(f"{column} {entry.label}", f"{label}, {{}}", distance, entry, distance=True, detail=True)
