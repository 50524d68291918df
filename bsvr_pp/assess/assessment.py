"""The numbers of results, and verdicts on them, as data: which can be trusted, and the reasons against the others.

The verdict on a result uses only its own numbers; `Comparison` has the distance from a reference, and common problems.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import hypot, log, nan
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import binom

from bsvr_pp.assess.evidence import entries_of, evidence_at, has_draws, integrated_evidence, latent_k_hat, verify
from bsvr_pp.assess.loo import CavityLOO, loo
from bsvr_pp.core.arrays import Array, generator, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.approximate import Annealed
from bsvr_pp.inference.integrated import GOOD_K
from bsvr_pp.inference.protocol import Evidence, HasEvidence, Integrates, Method, Normalises, Samples
from bsvr_pp.inference.result import hyperparameters_of, is_mode, is_sampled, shown_names
from bsvr_pp.methods import method_of
from bsvr_pp.model.problem import Problem

Value = float | str
Numbers = dict[str, Value]
type Plain = float | list[Plain]  # a hyperparameter

_DRAWS = 100  # number of draws of the hyperparameters for k-hat and p(y)
COVERAGES = {"coverage 80 %": 0.8, "coverage 95 %": 0.95}  # shares of targets in central intervals of a probability
GOOD_R_HAT = 1.01  # Vehtari et al. 2021
_NATS = 0.3  # smaller errors of the log evidence do not change a decision
_SIGMAS = 3.0
_SHIFT = 1.0  # limit of the shift at the worst point, in posterior standard deviations of f
_RARE = 0.01  # probability of a coverage at least as wrong if the intervals are right
_UNITS = {"ase": 2, "aae": 1, "crps": 1}  # powers of the unit of the targets in scores
_UNKNOWN = Evidence(nan, nan, False)


@dataclass(frozen=True, slots=True)
class Assessment:
    """One result of a comparison: ``numbers`` by column of the table, NaN if the method has none."""

    inference: str
    plug_in: bool
    sampled: bool
    message: str
    point: Mapping[str, Plain]
    numbers: Numbers
    hyperparameters: Mapping[str, Numbers]  # of each scalar, by name, which replaces {}
    n_test: int = 0
    work: tuple[bool, ...] = ()  # of its method, see `work_of`

    def number(self, column: str) -> float:
        """Return a number by its column, or NaN."""
        return float(self.numbers.get(column, nan))


class Status(Enum):
    """Outcome of a verdict."""

    TRUSTED = "trusted"
    RESERVED = "trusted with a reservation"
    NO_ERROR_BARS = "no error bars"
    REJECTED = "rejected"


class Kind(Enum):
    """Kinds of reasons, each with the template of its clause; the last two are remarks on a result without problems."""

    NOT_CONVERGED = "not converged: {}"
    CHAINS_DISAGREE = f"R-hat {{:.3f}} > {GOOD_R_HAT}: the chains do not agree"
    EVIDENCE_IS_OFF = "its log evidence is {:.2f} ± {:.2f} nats too {}"
    WEIGHTS_DEGENERATE = f"k-hat {{:.2f}} > {GOOD_K}: too far from the exact posterior for its draws to be reweighted"
    COVERAGE = "{:.0f} % intervals are too {}: they hold {:.0f} % of the test targets"
    FAR_FROM_REFERENCE = "the mean of f is up to {:.2g} posterior sd off the reference"
    NO_ERROR_BARS = "f has no error bars"
    JOINT_WEIGHTS = f"its evidence is right, but k-hat {{:.2f}} > {GOOD_K} for all of f at once"


_REMARKS = {Kind.NO_ERROR_BARS: Status.NO_ERROR_BARS, Kind.JOINT_WEIGHTS: Status.RESERVED}


class Reason(NamedTuple):
    """A reason for a rejection, or a remark: its kind, and the values for the template."""

    kind: Kind
    values: tuple[float | str, ...] = ()

    def __str__(self) -> str:
        return self.kind.value.format(*self.values)


class Verdict(NamedTuple):
    """Judgement on one result: the reasons for a rejection, and remarks."""

    reasons: tuple[Reason, ...] = ()

    @property
    def status(self) -> Status:
        """Outcome: a remark does not lead to a rejection."""
        found = [_REMARKS.get(reason.kind, Status.REJECTED) for reason in self.reasons]
        return Status.REJECTED if Status.REJECTED in found else found[0] if found else Status.TRUSTED

    @property
    def clauses(self) -> list[str]:
        """The verdict in words."""
        said = list(map(str, self.reasons))
        if self.status is Status.REJECTED:
            return said
        return [(", but " if self.status is Status.NO_ERROR_BARS else ": ").join(["no problem was found", *said])]

    def __str__(self) -> str:
        return "; ".join(self.clauses)


class Recommendation(NamedTuple):
    """Which result to use: that of least work that can be trusted, the others that can be, and those with problems."""

    best: str | None
    others: tuple[str, ...]
    warned: tuple[str, ...]


def judge(found: Assessment) -> Verdict:
    """Judge one result by its own numbers."""
    converged, r_hat, k_hat = bool(found.number("converged")), found.number("R-hat"), found.number("k-hat")
    error, spread = found.number("evidence error"), found.number("evidence error se")
    bound = max(_NATS, _SIGMAS * spread)  # _NATS for a NaN
    # For many values of f jointly the weights degenerate even if each marginal is right; then an accurate evidence
    # decides. For the few hyperparameters of draws they do not degenerate.
    verified = abs(error) <= bound and not found.sampled
    wrong_share = _wrong_share(found)
    reasons = (
        (not converged, Kind.NOT_CONVERGED, (found.message or "no message",)),
        (converged and r_hat > GOOD_R_HAT, Kind.CHAINS_DISAGREE, (r_hat,)),
        (abs(error) > bound, Kind.EVIDENCE_IS_OFF, (abs(error), spread, "high" if error > 0 else "low")),
        (k_hat > GOOD_K and not verified, Kind.WEIGHTS_DEGENERATE, (k_hat,)),
        (wrong_share, Kind.COVERAGE, wrong_share),
        (found.plug_in, Kind.NO_ERROR_BARS, ()),
        (k_hat > GOOD_K and verified and not found.plug_in, Kind.JOINT_WEIGHTS, (k_hat,)),
    )
    return Verdict(tuple(Reason(kind, values) for holds, kind, values in reasons if holds))


def _wrong_share(found: Assessment) -> tuple[float | str, ...]:
    """Return the per cent of intervals, how they are wrong, and the per cent of targets inside, if significant."""
    n = found.n_test
    for column, probability in COVERAGES.items():
        share = found.number(column)
        hits = np.round(share * n)  # NaN without a test
        if min(binom.cdf(hits, n, probability), binom.sf(hits - 1, n, probability)) < _RARE / 2:
            return 100 * probability, "narrow" if share < probability else "wide", 100 * share
    return ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of results, whose distances are measured to the result ``reference``."""

    results: Mapping[str, Assessment]
    theta: Mapping[str, Plain]  # hyperparameters that all results have in common,
    evidence: Mapping[str, Evidence]  # at which methods have these
    reference: str | None = None
    mixed: bool = False  # the likelihood has densities of exact targets and probabilities of intervals

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Map the name of each result to its verdict."""
        return {name: judge(found) for name, found in self.results.items()}

    @property
    def far(self) -> dict[str, Reason]:
        """The results with a mean of f far from the reference's, if the reference has converged."""
        if self.reference is None or not self.results[self.reference].number("converged"):
            return {}
        shifts = {name: found.number("f differs") for name, found in self.results.items()}
        return {name: Reason(Kind.FAR_FROM_REFERENCE, (x,)) for name, x in shifts.items() if x > _SHIFT}

    def clauses(self, name: str) -> list[str]:
        """Return the verdict on a result in words, with a warning if it is far from the reference."""
        far = self.far
        warned = [f"compared with {self.reference}, {far[name]}"] if name in far else []
        return judge(self.results[name]).clauses + warned

    @property
    def shared(self) -> Reason | None:
        """Intervals that are wrong in the same way under every method: the model and not the inference is wrong."""
        found = [r for v in self.verdicts.values() for r in v.reasons if r.kind is Kind.COVERAGE]
        alike = len({reason.values[:2] for reason in found}) == 1
        return found[0] if alike and 1 < len(found) == len(self.results) else None

    @property
    def recommendation(self) -> Recommendation:
        """The trusted result of least work near the reference, ties by mlpd; intervals wrong for all do not count."""
        ignored, far = Kind.COVERAGE if self.shared else None, self.far
        counted = {name: [r for r in v.reasons if r.kind is not ignored] for name, v in self.verdicts.items()}
        status = {name: Verdict(tuple(reasons)).status for name, reasons in counted.items()}
        warned = tuple(name for name in status if status[name] is Status.REJECTED or name in far)
        good = [name for name in status if name not in warned and status[name] is not Status.NO_ERROR_BARS]
        found = {name: self.results[name] for name in good}
        order = {name: (status[name] is Status.RESERVED, x.work, -x.number("mlpd")) for name, x in found.items()}
        best = min(good, key=order.__getitem__, default=None)
        return Recommendation(best, tuple(name for name in good if name != best), warned)

    def in_units(self, scale: float) -> Comparison:
        """Return the comparison with scores of real targets ``scale`` times as large as in the model."""
        results = {}
        for name, found in self.results.items():
            scaled: Numbers = {column: found.number(column) * scale**power for column, power in _UNITS.items()}
            scaled["mlpd"] = found.number("mlpd") - log(scale)
            results[name] = replace(found, numbers=found.numbers | scaled)
        return replace(self, results=results)


def describe(result: xr.DataTree, numbers: Numbers, n_test: int, reference: xr.DataTree | None) -> Assessment:
    """Join ``numbers`` with the numbers of a result and its distances from a reference."""
    attributes, latent = result.attrs, result["latent_posterior"].to_dataset()
    seconds = float(attributes["sampling_time"])
    numbers = {"converged": bool(attributes["converged"]), "seconds": seconds, **numbers}
    if "r_hat" in attributes:
        ess = float(attributes["ess"])
        numbers |= {"R-hat": float(attributes["r_hat"]), "ESS": ess, "ESS/s": ess / seconds}
        numbers["divergences"] = int(attributes["divergences"])
    if "support" in latent:
        support = latent["support"].values
        numbers |= {"off-bound": int(np.sum(support == 1)), "on-bound": int(np.sum(support == 2))}
    if reference is not None:
        numbers |= _distances(result, reference)
    return Assessment(
        inference=str(attributes["inference"]),
        plug_in=is_mode(result),
        sampled=is_sampled(result),
        message=str(attributes.get("message", "")),
        point=own_point(result),
        numbers=numbers,
        hyperparameters={
            entry: {"{}": float(x.mean()), "{} sd": float(x.std(ddof=1)) if np.ptp(x) > 0 else nan}
            for entry, x in hyperparameter_draws(result).items()
        },
        n_test=n_test,
        work=work_of(method_of(result)),
    )


def work_of(method: Method) -> tuple[bool, ...]:
    """Order of methods by what they do in general; the seconds of a run are not the same in the next one."""
    latent, samples = method.latent, isinstance(method, Samples)
    return samples and latent is None, samples, isinstance(method, Integrates)


def own_point(result: xr.DataTree) -> dict[str, Plain]:
    """Return the hyperparameters of a result, as plain numbers and lists; for draws their mean."""
    posterior, sampled = result["posterior"].to_dataset(), is_sampled(result)
    drawn = {name: posterior[name] for name in sorted(hyperparameters_of(result))}
    return {name: (x.mean(("chain", "draw")) if sampled else x[0, 0]).values.tolist() for name, x in drawn.items()}


def known_evidence(
    problem: Problem, random_seed: int | None, point: Mapping[str, Plain], method: HasEvidence, kind: str = "naive"
) -> Evidence:
    """Return the evidence at a point by a method: computed once for the problem, with the same seed at every point."""
    key, rng = (json.dumps(point, sort_keys=True), method, kind), generator(random_seed)
    return problem.cached(key, lambda: evidence_at(problem, problem.complete(point), method, rng, kind))


def evidences(
    result: xr.DataTree, evidence: Callable[..., Evidence] | None, annealed: Annealed | None, theta: Mapping[str, Plain]
) -> Numbers:
    """Return log evidence of the method of a result, at its own point and at ``theta``, and errors from annealing."""
    method, sampled = method_of(result), is_sampled(result)
    latent = method.latent
    # The mode has no evidence, and draws have none without further computation.
    own = nan if is_mode(result) else float(result.attrs["log_evidence"])
    if evidence is None:
        return {"log_evidence": own}
    # Where f was sampled as well, the evidence is the exact one.
    known = latent or (annealed if sampled else None)
    there = _UNKNOWN if known is None else evidence(theta, known)
    out = {"log_evidence": own, **_pair("evidence at theta", *there[:2])}
    if annealed is None:
        return out
    point, error = own_point(result), float(result.attrs.get("log_evidence_error", 0.0))
    kind = method.kind if isinstance(method, Normalises) and not sampled else "naive"
    here = evidence(point, latent, kind) if sampled and latent is not None else Evidence(own, error, True)
    for column, at, found, of in (("error at theta", theta, there, "naive"), ("evidence error", point, here, kind)):
        exact = _UNKNOWN if latent is None else evidence(at, annealed, of)
        out |= _pair(column, found.value - exact.value, hypot(found.standard_error, exact.standard_error))
    return out


def _pair(column: str, value: float = nan, error: float = nan) -> Numbers:
    return {column: value, f"{column} se": error}


def integrated(result: xr.DataTree, model: pm.Model, random_seed: int | None) -> Numbers:
    """Return log p(y) with all hyperparameters integrated out; NaN if not all of them were sampled."""
    if not has_draws(result, hyperparameters_of(result)):
        return _pair("p(y)")
    if "effective_points" in result.attrs:  # the method has integrated them out
        return _pair("p(y)", result.attrs["log_evidence"], result.attrs["log_evidence_error"])
    found = integrated_evidence(result, model=model, draws=_DRAWS, random_seed=random_seed)
    return _pair("p(y)", found.value, found.standard_error if found.converged else np.inf)


def _distances(result: xr.DataTree, reference: xr.DataTree) -> Numbers:
    """Return largest differences of the means of f and y from a reference, in standard deviations of the reference."""
    latent, exact = (each["latent_posterior"].to_dataset() for each in (result, reference))
    predicted = reference["posterior_predictive"].to_dataset()
    sd_y = predicted[next(iter(predicted.data_vars))].std(("chain", "draw")).values
    sd_f = np.sqrt(exact["variance"].values)
    shift = np.abs(latent["mean"].values - exact["mean"].values)
    of_f = float(np.max(shift / sd_f)) if sd_f.any() else nan
    return {"f differs": of_f, "y differs": float(np.max(shift / sd_y))}


def in_words(name: str) -> str:
    """Write the name of a hyperparameter, such as "1/lengthscale"."""
    return name.replace("inverse_", "1/").replace("_", " ")


def hyperparameter_draws(result: xr.DataTree) -> dict[str, Array]:
    """Return draws of every scalar hyperparameter; a point is one draw."""
    found = entries_of(result, shown_names(result))
    return found if is_sampled(result) else {entry: draws[:1] for entry, draws in found.items()}


def leave_one_out(result: xr.DataTree, model: pm.Model) -> Numbers:
    """Return the leave-one-out density, and how it was computed; NaN for the mode, which has no posterior of f."""
    if is_mode(result):
        return {**_pair("elpd"), "elpd kind": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unreliable terms, for which ArviZ warns, are counted below
        found = loo(result, model=model)
    kind = "cavities, θ fixed"
    if not isinstance(found, CavityLOO):
        kind = "PSIS of cavities" if "leave_one_out" in result.children else "PSIS"
        unreliable = int(np.sum(found.pareto_k.values > found.good_k))
        kind += f", {unreliable} of {int(found.n_data_points)} not reliable" if unreliable else ""
    return {**_pair("elpd", float(found.elpd), float(found.se)), "elpd kind": kind}


def k_hat(result: xr.DataTree, model: pm.Model | None, random_seed: int | None) -> float:
    """Return k-hat of the weights of f or, if f was integrated out, of the hyperparameters; NaN if there is neither."""
    if "latent_draws" not in result.children:
        return latent_k_hat(result)
    drawn = result["posterior"].sizes
    if model is None or drawn["chain"] * drawn["draw"] < _DRAWS:
        return np.nan
    return verify(result, model=model, draws=_DRAWS, random_seed=random_seed, progressbar=False).k_hat


@shared
def scores(prediction: xr.Dataset, y: ArrayLike) -> dict[str, float]:
    """Score predictions on test targets.

    Parameters
    ----------
    prediction : Dataset
        Output of `predict` with ``y_new`` and the quantiles 0.025, 0.1, 0.9 and 0.975; or for labels.
    y : (n,) array
        Test targets.

    Returns
    -------
    dict
        ``ase`` and ``aae`` are the average squared and absolute error of the latent function (Chu, Keerthi & Ong 2004,
        section VII); ase has squared units. ``mlpd`` is the mean log predictive density, and ``crps`` the mean
        continuous ranked probability score, in the target's units. ``coverage 80 %`` and ``coverage 95 %`` are the
        shares of targets in the central intervals. Also `calibration_error`. For labels ``error rate`` and ``mlpd``.

    Raises
    ------
    ValueError
        If the prediction lacks the targets' density or a quantile, or y is not the ``y_new`` of `predict`.

    <sinc_result>
    >>> prediction = bp.predict(result, [[0.0], [5.0]], model=model, y_new=[1.0, -0.2])
    >>> bp.scores(prediction, [1.0, -0.2])["coverage 95 %"]
    1.0
    """
    if not isinstance(prediction, xr.Dataset) or not {"y_log_density", "y_new"} <= set(prediction.variables):
        raise ValueError("prediction must be of predict(..., y_new=...), with the density of the targets")
    targets = numbers("y", y, prediction["y_log_density"].shape)
    if not np.array_equal(targets, prediction["y_new"].values):
        raise ValueError("y must be the targets that predict was given as y_new, and differs from them")
    log_density = float(prediction["y_log_density"].mean())
    binary = "y_probability" in prediction
    if binary or "y_class_probability" in prediction:
        share = prediction["y_probability" if binary else "y_class_probability"].values
        labels = np.where(share > 0.5, 1.0, -1.0) if binary else share.argmax(axis=0)
        return {"error rate": float((labels != targets).mean()), "mlpd": log_density}
    error, coverages = targets - prediction["f_mean"].values, {}
    for column, probability in COVERAGES.items():
        ends = [0.5 - probability / 2, 0.5 + probability / 2]
        if "y_quantile" not in prediction or not np.isclose(prediction["quantile"].values[:, None], ends).any(0).all():
            raise ValueError(f"prediction must have the quantiles {ends[0]:g} and {ends[1]:g}, for the coverage")
        low, high = prediction["y_quantile"].sel(quantile=ends, method="nearest").values
        coverages[column] = float(np.mean((low <= targets) & (targets <= high)))
    return {
        "ase": float(np.mean(error**2)),
        "aae": float(np.mean(np.abs(error))),
        "mlpd": log_density,
        "crps": float(prediction["y_crps"].mean()),
        **coverages,
        "calibration error": calibration_error(prediction["y_cdf"].values),
    }


def calibration_error(pit: ArrayLike) -> float:
    """Return the mean distance ∫ |F_n(u) - u| du of probability integral transforms (n,) from uniform ones."""
    u = np.sort(np.asarray(pit, dtype=np.float64))
    # In one dimension distribution functions and quantile functions have the same distance; it is summed cell by cell.
    edges = np.arange(u.size + 1) / u.size
    low, high = edges[:-1] - u, edges[1:] - u
    return float(0.5 * np.sum(high * np.abs(high) - low * np.abs(low)))  # the integral of |x| from low to high
