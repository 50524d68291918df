"""What the numbers of a comparison say, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

__all__ = [
    "GOOD_K",
    "GOOD_R_HAT",
    "NO_ERROR_BARS",
    "NO_OBJECTION",
    "duration",
    "evidence_sentence",
    "summary",
    "verdicts",
]

GOOD_K = 0.7  # Vehtari et al. 2024
GOOD_R_HAT = 1.01  # Vehtari et al. 2021
_NATS = 0.3  # errors of the log evidence below do not change a decision
_SIGMAS = 3.0
_SHIFT = 1.0  # posterior standard deviations of f, at the worst point
_RARE = 0.01  # chance of a coverage that is as far off, if the intervals were right

NO_OBJECTION = "no objection"
NO_ERROR_BARS = f"{NO_OBJECTION}, but f has no error bars"


def verdicts(table: pd.DataFrame, reference: str | None = None, n_test: int = 0) -> tuple[list[str], list[str]]:
    """Say of each result what speaks against it.

    Parameters
    ----------
    table : DataFrame
        Rows of `compare`.
    reference : str, optional
        Row to which the others are compared; one that did not converge is no yardstick.
    n_test : int
        Number of test targets.

    Returns
    -------
    verdicts : list of str
        One a row.
    shared : list of str
        What is wrong under every method, which is for the model to answer and not for the inference; sentences.

    Examples
    --------
    >>> import pandas as pd
    >>> from bsvr_pp.verdict import verdicts
    >>> row = {"inference": "Laplace", "converged": True, "k-hat": 0.9}
    >>> verdicts(pd.DataFrame([row]))[0]
    ['k-hat 0.90 > 0.7: too far from the exact posterior for its draws to be reweighted']
    """
    rows = [{str(k): v for k, v in row.items()} for _, row in table.iterrows()]
    far = _SHIFT if reference is not None and table.loc[reference, "converged"] else np.inf
    covered = [_coverage(row, n_test) for row in rows]
    everywhere = len(rows) > 1 and all(covered)
    out = []
    for row, clause in zip(rows, covered, strict=True):
        found = [*_objections(row, far), *([clause] if clause and not everywhere else [])]
        out.append("; ".join(found) or _remark(row))
    shared = [f"Under every method {covered[0]}: look at the noise model or the split."] if everywhere else []
    return out, shared


def _objections(row: Mapping[str, Any], far: float) -> list[str]:
    out = []
    if not row["converged"]:
        out.append(f"not converged: {row.get('note') or 'no message'}")
    elif _number(row, "R-hat") > GOOD_R_HAT:
        out.append(f"R-hat {row['R-hat']:.3f} > {GOOD_R_HAT}: the chains do not agree")
    gap, error = _number(row, "evidence error"), _number(row, "evidence error se")
    if abs(gap) > max(_NATS, _SIGMAS * error):
        out.append(f"log evidence {abs(gap):.2f} ± {error:.2f} nats too {'high' if gap > 0 else 'low'}")
    # Jointly over many values of f the weights degenerate even where each marginal is right: an evidence that is
    # known to be right outweighs them. Of the few hyperparameters of draws they do not.
    verified = abs(gap) <= max(_NATS, _SIGMAS * error) and not str(row["inference"]).startswith("NUTS")
    if _number(row, "k-hat") > GOOD_K and not verified:
        out.append(
            f"k-hat {row['k-hat']:.2f} > {GOOD_K}: too far from the exact posterior for its draws to be reweighted"
        )
    if (shift := _number(row, "f differs")) > far:
        out.append(f"the mean of f is up to {shift:.2g} posterior sd off the reference")
    return out


def _remark(row: Mapping[str, Any]) -> str:
    """Verdict on a result against which nothing speaks."""
    if row["inference"] == "MAP":
        return NO_ERROR_BARS
    if _number(row, "k-hat") > GOOD_K:
        return f"{NO_OBJECTION}: its evidence is right, but k-hat {row['k-hat']:.2f} > {GOOD_K} for all of f at once"
    return NO_OBJECTION


def _coverage(row: Mapping[str, Any], n_test: int) -> str:
    """What is wrong with the intervals, if it can hardly be chance."""
    for share in (80, 95):
        covered = _number(row, f"coverage {share} %")
        if not n_test or not np.isfinite(covered):
            continue
        hits, level = round(covered * n_test), share / 100
        fewer, more = binom.cdf(hits, n_test, level), binom.sf(hits - 1, n_test, level)
        if min(fewer, more) < _RARE / 2:
            way = "narrow" if fewer < more else "wide"
            return f"{share} % intervals are too {way}: they hold {covered:.0%} of the test targets".replace(
                "% of", " % of"
            )
    return ""


def _number(row: Mapping[str, Any], name: str) -> float:
    return float(row.get(name, np.nan))


def evidence_sentence(evidence: Mapping[str, tuple[float, float, bool]]) -> str:
    """Say whether Laplace, mean field and annealed evidence agree at one point of the hyperparameters.

    Parameters
    ----------
    evidence : mapping
        Name of the method to value, standard error and convergence.

    Returns
    -------
    str
        One sentence; empty with fewer than two evidences.

    Examples
    --------
    >>> from bsvr_pp.verdict import evidence_sentence
    >>> evidence_sentence({"mean field": (-10.1, 0.0, True), "annealed": (-10.0, 0.05, True)})
    'Against the annealed log evidence of -10.00 ± 0.05, mean field is off by -0.10 nats.'
    """
    if len(evidence) < 2:
        return ""
    yardstick = "annealed" if "annealed" in evidence else "mean field"
    value, error, _ = evidence[yardstick]
    parts = [
        f"{name} is off by {other - value:+.2f} nats" if converged else f"{name} did not converge"
        for name, (other, _, converged) in evidence.items()
        if name != yardstick
    ]
    spread = f" ± {error:.2f}" if error else ""
    return f"Against the {yardstick} log evidence of {value:.2f}{spread}, {_listed(parts)}."


def duration(seconds: float) -> str:
    """Write a time to two digits.

    Parameters
    ----------
    seconds : float
        The time.

    Returns
    -------
    str
        In seconds, minutes or hours.

    Examples
    --------
    >>> from bsvr_pp.verdict import duration
    >>> duration(1.26), duration(23.2), duration(142.4), duration(9000.0)
    ('1.3 s', '23 s', '2.4 min', '2.5 h')
    """
    for unit, size, least in (("h", 3600.0, 5400.0), ("min", 60.0, 99.5)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def summary(verdicts: Mapping[str, str], seconds: Mapping[str, float]) -> str:
    """Say which result to use, for a reader in a hurry.

    Parameters
    ----------
    verdicts : mapping
        Name to verdict, as in the table.
    seconds : mapping
        Name to running time.

    Returns
    -------
    str
        One or two sentences.

    Examples
    --------
    >>> from bsvr_pp.verdict import summary
    >>> summary({"NUTS": "not converged", "mean field": "no objection"}, {"NUTS": 60, "mean field": 2})
    'Use mean field: nothing speaks against it, and it took 2 s. Read what speaks against NUTS.'
    """
    good = [name for name, said in verdicts.items() if said.startswith(NO_OBJECTION) and said != NO_ERROR_BARS]
    bad = [name for name, verdict in verdicts.items() if not verdict.startswith(NO_OBJECTION)]
    if not good and not bad:
        return f"Nothing speaks against {_listed(list(verdicts))}, but there are no error bars of f."
    if not good:
        return "None of these results can be trusted as it is: read what speaks against each."
    best = min(good, key=lambda name: (verdicts[name] != NO_OBJECTION, seconds[name]))
    others = [name for name in good if name != best]
    out = f"Use {best}: nothing speaks against it, and it took {duration(seconds[best])}"
    out += f" ({_listed(others)} may be trusted as well)." if others else "."
    return f"{out} Read what speaks against {_listed(bad)}." if bad else out


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
