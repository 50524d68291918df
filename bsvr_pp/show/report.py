"""A comparison of results, and its forms for readers: a table, words, a self-contained page, lines in a terminal.

The sentences are in ``summary.txt`` and ``evidence.txt``, titles and lines of numbers in ``sections.toml``, titles and
captions of pictures in ``pictures.toml``. The page, for a phone or on paper, is ``report.html``; Jinja escapes all text
in it.
"""

from __future__ import annotations

import base64
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from math import floor, isfinite, log10, nan
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from numpy.typing import ArrayLike
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bsvr_pp.assess import assessment
from bsvr_pp.assess.assessment import GOOD_R_HAT, Comparison, Numbers, Plain, Value, in_words, scores
from bsvr_pp.assess.evidence import Judged
from bsvr_pp.core import __version__
from bsvr_pp.core.arrays import check_choice, generator
from bsvr_pp.core.docs import shared
from bsvr_pp.inference.approximate import Annealed, Laplace, MeanField
from bsvr_pp.inference.integrated import GOOD_K
from bsvr_pp.inference.predict import predict
from bsvr_pp.inference.protocol import Anneals, IntegratesLatent
from bsvr_pp.inference.result import check_results, check_same, data_of
from bsvr_pp.methods import method_of

if TYPE_CHECKING:
    from bsvr_pp.estimators.training_data import Units
    from bsvr_pp.tables.readers import Dataset

_ANNEALED = Annealed(particles=200)
_MISSING = "–"
_DECIMALS = {"evidence at theta": 2, "error at theta": 3, "evidence error": 3}  # at most: further digits do not matter
_EVIDENCE_ROWS = 250  # above this, the plot of the evidence takes minutes
_CALIBRATION_ROWS = 5
_TEXTS = tomllib.loads((files(__package__) / "sections.toml").read_text("utf-8"))["section"]
PICTURES = tomllib.loads((files(__package__) / "pictures.toml").read_text("utf-8"))
_WORDS = "note", "inference", "against the reference", "verdict"  # columns of a comparison that are words
_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")
UNITS = (
    "Exact targets have densities and intervals have probabilities: log evidences depend on the unit of y, and "
    "only their differences on the same data have a meaning."
)


class ComparisonTable(pd.DataFrame):
    """A comparison as a DataFrame; its attribute ``comparison`` has the same as data, but files do not contain it."""

    _metadata: ClassVar[list[str]] = ["comparison"]
    comparison: Comparison | None = None

    @property
    def _constructor(self) -> type[ComparisonTable]:
        return ComparisonTable


@shared
def compare(
    results: Mapping[str, xr.DataTree],
    reference: str | None = None,
    *,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    data: Mapping[str, ArrayLike] | None = None,
    model: pm.Model | None = None,
    hyperparameters: Mapping[str, ArrayLike] | None = None,
    annealed: Annealed | None = _ANNEALED,
    integrated: bool = True,
    loo: bool = True,
    k_hat: bool = True,
    random_seed: int | None = 0,
) -> ComparisonTable:
    """Compare the results of several methods on one model, and state which of them can be trusted.

    The verdict on a result is made at its own hyperparameters (for draws, at their mean). It does not depend on the
    other results.

    Parameters
    ----------
    results : dict
        Results of `fit` by name.
    reference : str, optional
        The result with which the others are compared.
    X_test, y_test : arrays, optional
        Test data, for `scores`.
    data : dict, optional
        Other data of the test rows by name, as in `predict`.
    model : pm.Model, optional
        The model; by default the model of the surrounding ``with`` block. Without a model, columns that need it are
        omitted.
    hyperparameters : dict, optional
        The common hyperparameters θ at which the evidences of all methods are compared. By default the mean of the
        reference; without a reference the mean-field optimum, or the hyperparameters of the first result.
    annealed : Annealed, optional
        The reference method for the evidences; None to omit it.
    integrated : bool
        Whether to estimate p(y) for sampled results, by a hundred evidences each.
    loo : bool
        Whether to compute leave-one-out densities.
    k_hat : bool
        Whether to compute k-hat for approximations; `verify` does this for sampled hyperparameters.
    random_seed : int, optional
        Random seed of the annealed and integrated evidences and of k-hat.

    Returns
    -------
    ComparisonTable
        A DataFrame with a row for each result. Its columns, of which ``se`` and ``sd`` are errors:

        - the `scores` on test data;
        - log evidences of the method: ``evidence at theta`` at the common point (exact, by annealing, if f was
          sampled), and ``log_evidence`` at the result's own point; their differences from the annealed evidence of the
          same kind, ``error at theta`` and ``evidence error``, which decides the verdict; ``p(y)`` with the
          hyperparameters integrated out;
        - ``elpd`` of leave-one-out and its ``kind`` (compare only values of the same kind);
        - mean and ``sd`` of each hyperparameter (``sd`` is NaN for a point estimate);
        - ``f differs`` and ``y differs``, the largest difference of the means of f from the reference, in posterior
          standard deviations of f and predictive ones of y, and ``against the reference``, a warning if it is large;
        - ``converged``; ``k-hat``; ``R-hat``, ``ESS``, ``ESS/s`` and ``divergences`` (only for sampling); numbers of
          support vectors; ``seconds``, ``note``, ``inference``; and the ``verdict`` in words.

        Its attribute ``comparison`` has the same as data (`bsvr_pp.assess.assessment.Comparison`). ``attrs`` has the
        common hyperparameters ``theta``, the ``reference``, and the ``summary`` and ``evidence_summary`` in words.

    Raises
    ------
    ValueError
        If there is no result, or the reference is not among them. If one of X_test and y_test is missing, or the
        hyperparameters do not fit the model.
    TypeError
        If results is not a dict of results, annealed is neither `Annealed` nor None, or test data or hyperparameters
        are given without a model.

    <sinc_model>
    >>> methods = (bp.Laplace(), bp.MeanField())
    >>> results = {m.name: bp.fit(m, model, hyperparameters=at, progressbar=False) for m in methods}
    >>> table = bp.compare(results, reference="mean field", model=model)
    >>> table["converged"].tolist(), table.attrs["theta"]["C"]
    ([True, True], 5.0)
    """
    _check_comparable(results, reference, X_test, y_test, annealed)
    generator(random_seed)  # raises an error for an invalid value
    model = model if model is not None else pm.Model.get_context(error_if_none=False)
    needed = model is not None or X_test is not None or hyperparameters is not None
    judged = [Judged(result, model, f"results[{name!r}]") for name, result in results.items() if needed]
    first = judged[0].problem if judged else None
    if first is None or hyperparameters is None:
        fields = (name for name, result in results.items() if method_of(result) == MeanField())
        theta = assessment.own_point(results[next(fields, next(iter(results))) if reference is None else reference])
    else:
        theta = {name: value.tolist() for name, value in sorted(first.checked(hyperparameters).items())}
    evidence, common = None, {}
    if first is not None:
        evidence = partial(assessment.known_evidence, first, random_seed)
        usual = [MeanField()] if first.loss.targets.refusal("mode") else [Laplace(), MeanField()]
        methods = dict.fromkeys([*usual, *(method_of(result).latent for result in results.values())])
        common = {m.name: evidence(theta, m) for m in methods if m is not None}
        common |= {} if annealed is None else {"annealed": evidence(theta, annealed)}
    # Without a probability of the targets neither the integrated evidence nor leave-one-out is one.
    targets = first.model if first is not None and not first.loss.targets.refusal("leave one out") else None
    found = {}
    for name, result in results.items():
        numbers = assessment.evidences(result, evidence, annealed, theta)
        if integrated and targets is not None:
            numbers |= assessment.integrated(result, targets, random_seed)
        if loo and targets is not None:
            numbers |= assessment.leave_one_out(result, targets)
        if k_hat:
            numbers["k-hat"] = assessment.k_hat(result, model, random_seed)
        if X_test is not None and y_test is not None:
            numbers |= scores(predict(result, X_test, model=model, y_new=y_test, data=data), y_test)
        n_test = 0 if y_test is None else np.size(y_test)
        found[name] = assessment.describe(result, numbers, n_test, None if reference is None else results[reference])
    mixed = any("evidence_unit" in result.attrs for result in results.values())
    return to_table(Comparison(found, theta, common, reference, mixed))


def _check_comparable(
    results: Mapping[str, xr.DataTree], reference: object, X_test: object, y_test: object, annealed: object
) -> None:
    """Check that results are of the same data, and the other arguments of `bsvr_pp.compare`."""
    check_results(results)
    (first, first_data), *others = ((name, data_of(result)) for name, result in results.items())
    for name, data in others:
        for label in data.keys() & first_data.keys():
            words = f"results[{name!r}] was computed with other {label} than results[{first!r}]"
            check_same(words, data[label], first_data[label])
    if reference is not None:
        check_choice("reference", reference, results)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together")
    if annealed is not None and not isinstance(annealed, Anneals):
        raise TypeError(f"annealed must be Annealed(...) or None, got {annealed!r}")


def to_table(comparison: Comparison) -> ComparisonTable:
    """Write a comparison as a table."""
    results, far = comparison.results, comparison.far
    held: dict[str, list[Value]] = {}  # numbers computed for a result, and their errors
    pairs = [(key, f"{key} {text['error']}") for text in _TEXTS for key in text["columns"]]
    taken = {*_WORDS, *(column for pair in pairs for column in pair)}
    for pair in pairs:
        for entry, rows in _rows(comparison, pair[0]).items():
            for column in pair:
                name = column.format(entry)
                name = f"hyperparameter {name}" if entry and name in (*taken, *held) else name
                if any(column in row for row in rows):
                    held[name] = [row.get(column, nan) for row in rows]
    held["note"] = [found.message for found in results.values()]
    held["inference"] = [found.inference for found in results.values()]
    if comparison.reference is not None:
        held["against the reference"] = [str(far.get(name, "")) for name in results]
    held["verdict"] = [str(verdict) for verdict in comparison.verdicts.values()]
    table = ComparisonTable(held, index=pd.Index(list(results), name="method"))
    words = {"summary": summary(comparison), "evidence_summary": evidence_words(comparison)}
    table.attrs = {"theta": comparison.theta, "reference": comparison.reference, **words}
    table.comparison = comparison
    return table


def summary(comparison: Comparison) -> str:
    """State which result to use, in one to three sentences."""
    return _ENVIRONMENT.get_template("summary.txt").render(comparison=comparison).strip()


def evidence_words(comparison: Comparison) -> str:
    """State whether the evidences at the common hyperparameters agree, and what their values depend on."""
    return _ENVIRONMENT.get_template("evidence.txt").render(comparison=comparison, units=UNITS).strip()


class Picture(NamedTuple):
    """A picture for the report page: title, explanation for the reader, and the image."""

    title: str
    caption: str
    png: bytes


def make_pictures(
    results: Mapping[str, xr.DataTree], comparison: Comparison, known: Mapping[str, Any], train: Dataset, units: Units
) -> dict[str, Picture]:
    """Make the pictures of a default model in its ``units``, by file name; ``known`` has X_test, y_test and model."""
    # They are slow to import, and `compare` needs none.
    import matplotlib.pyplot as plt

    from bsvr_pp.assess.partial_dependence import ResultInUnits, effect
    from bsvr_pp.show import plots

    n, d = train.X.shape
    facts = {"target": train.target, "along": "inverse_lengthscale" if d == 1 else "C"}
    options = {"labels": (train.inputs[0], train.target), "input_units": (units.mean[0], units.scale[0])}
    drawn = {
        "predictive": plots.plot_predictive(results, **known, **options, target_units=(units.location, units.unit)),
        "hyperparameters": plots.hyperparameters_picture(results, {"lengthscale": train.inputs}),
    }
    # Results of a mode have no bands.
    banded = [name for name, result in results.items() if isinstance(method_of(result), IntegratesLatent)]
    if d > 1 and banded:
        facts["shown"] = min(banded, key=lambda name: name != comparison.recommendation.best)
        rows = pd.DataFrame(train.X, columns=train.inputs)
        given = units.mean, units.scale, units.location, units.unit
        seen = ResultInUnits.of(results[facts["shown"]], known["model"], *given)
        shares = [effect(seen, rows, i).attrs["share"] for i in range(d)]
        largest = np.argsort(-np.array(shares), kind="stable")[:4].tolist()
        drawn["effects"] = plots.plot_effect(seen, rows, largest, target=train.target)
    if len(known["y_test"]) >= _CALIBRATION_ROWS:
        drawn["calibration"] = plots.calibration_picture(results, **known)
    if n <= _EVIDENCE_ROWS:
        used = [method_of(result).latent for result in results.values()]
        drawn["evidence"] = plots.plot_evidence(
            {facts["along"]: comparison.theta[facts["along"]] * np.geomspace(1 / 3, 3.0, 31)},
            hyperparameters=comparison.theta,
            methods=list(dict.fromkeys([Laplace(), *(m for m in used if m is not None), MeanField()])),
            annealed=Annealed(particles=50),
            model=known["model"],
        )
    out = {}
    for file, picture in drawn.items():
        text = PICTURES["predictive_of_several" if file == "predictive" and d > 1 else file]
        buffer = io.BytesIO()
        (picture.viz["figure"].item() if hasattr(picture, "viz") else picture).savefig(buffer, dpi=130)
        out[file] = Picture(text["title"].format(**facts), text["caption"].format(**facts), buffer.getvalue())
    plt.close("all")
    return out


@shared
def report_page(
    table: pd.DataFrame,
    *,
    title: str,
    description: str = "",
    pictures: Sequence[Picture] = (),
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> str:
    """Write a comparison as one self-contained HTML page that begins with the verdict.

    Parameters
    ----------
    table : ComparisonTable
        Result of `compare`.
    title, description : str
        Title and description of the data.
    pictures : sequence of Picture
        The pictures, in order: `bsvr_pp.show.report.Picture(title, caption, png)`, with the bytes of a PNG file.
    names : dict, optional
        Names of the entries of a vector hyperparameter, such as the inputs for ``lengthscale``.
    skipped : dict, optional
        Methods that were not run, with the reason.

    Returns
    -------
    str
        The page; it needs no other files and no network.

    Raises
    ------
    ValueError
        If the table is not of `compare`.
    TypeError
        If a picture is not a `Picture`.

    <sinc_model>
    >>> results = {"mean field": bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)}
    >>> page = bp.report_page(bp.compare(results, model=model), title="sinc")
    >>> page.startswith("<!doctype html>")
    True
    """
    comparison = getattr(table, "comparison", None)
    if not isinstance(comparison, Comparison) or "verdict" not in table:
        found = f"columns {list(table.columns)}" if isinstance(table, pd.DataFrame) else type(table).__name__
        raise ValueError(f"table must be of compare(), with all columns, got {found}")
    if not all(isinstance(picture, Picture) for picture in pictures):
        raise TypeError(f"pictures must be of Picture(title, caption, png), got {pictures!r}")
    return _ENVIRONMENT.get_template("report.html").render(
        title=str(title),
        description=description,
        summary=summary(comparison),
        comparison=comparison,
        skipped=skipped or {},
        evidence=evidence_words(comparison),
        sections=sections(comparison, names),
        pictures=pictures,
        version=__version__,
    )


def print_comparison(
    console: Console,
    comparison: Comparison,
    *,
    title: str,
    names: Mapping[str, Sequence[str]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> None:
    """Print a comparison, with verdicts and summary visible at the end; options as for `report_page`."""
    shown = sections(comparison, names)
    labels, cells_of = zip(*(line for section in shown for line in section.lines), strict=True)
    width = min(max(map(len, labels)), console.width // 3)
    share = (console.width - width) // len(comparison.results) - 1
    columns = [Column(width=width)]
    for name, *cells in zip(comparison.results, *cells_of, strict=True):
        longest = max(map(len, (*name.split(), *cells)))
        columns.append(Column(escape(name), justify="right", width=min(longest, share)))
    console.print(f"\n{escape(title)}", soft_wrap=True)
    for i, section in enumerate(shown):
        console.print(f"\n[bold]{escape(section.title)}[/]", soft_wrap=True)
        own = [column.copy() for column in columns]
        block = Table(*own, box=None, show_header=i == 0, pad_edge=False, padding=(0, 1, 0, 0))
        for label, of_results in section.lines:
            block.add_row(escape(label), *map(escape, of_results))
        console.print(block)
    console.print()
    for name, why in (skipped or {}).items():
        console.print(f"{escape(name)}: {escape(why)}", soft_wrap=True)
    for name in comparison.results:
        console.print(f"[bold]{escape(name)}[/]: {escape('; '.join(comparison.clauses(name)))}", soft_wrap=True)
    if comparison.mixed:
        console.print(escape(UNITS), soft_wrap=True)
    console.print(f"[bold]{escape(summary(comparison))}[/]", soft_wrap=True)


def point_words(point: Mapping[str, Plain]) -> str:
    """Write hyperparameters, numbers or lists of them, in one line."""
    return ", ".join(f"{in_words(name)} = {_entries(value)}" for name, value in point.items())


def duration(seconds: float) -> str:
    """Write a time to two digits, in seconds, minutes or hours."""
    for unit, size, least in (("h", 3600.0, 5400.0), ("min", 60.0, 99.5)):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


class Section(NamedTuple):
    """Numbers that answer one question, with a title and an explanation."""

    title: str
    explanation: str
    lines: Sequence[tuple[str, tuple[str, ...]]]  # labels, with a cell for each result


def sections(comparison: Comparison, names: Mapping[str, Sequence[str]] | None = None) -> list[Section]:
    """Arrange a comparison in the sections that have numbers."""
    facts = {"reference": comparison.reference, "k_hat": GOOD_K, "r_hat": GOOD_R_HAT}
    named = {f"{name}[{i}]": f"{name} {x}" for name, each in (names or {}).items() for i, x in enumerate(each)}
    out = []
    for text in _TEXTS:
        lines = []
        for key, label in text["columns"].items():
            error, most = f"{key} {text['error']}", _DECIMALS.get(key, 6)
            for entry, rows in _rows(comparison, key).items():
                cells = tuple(cell(row.get(key), row.get(error), most) for row in rows)
                if set(cells) != {_MISSING}:
                    lines.append((label.format(in_words(named.get(entry, entry))), cells))
        if lines:
            out.append(Section(text["title"].format(**facts), text["explanation"].format(**facts), lines))
    return out


def _rows(comparison: Comparison, key: str) -> dict[str, list[Numbers]]:
    """Return the numbers of every result in which to find a key, by the hyperparameters for its ``{}``."""
    results = comparison.results.values()
    if "{}" not in key:
        return {"": [found.numbers for found in results]}
    entries = dict.fromkeys(entry for found in results for entry in found.hyperparameters)
    return {entry: [found.hyperparameters.get(entry, {}) for found in results] for entry in entries}


def cell(value: Value | None, error: Value | None = None, most: int = 6) -> str:
    """Write one value with four digits, or "–" if there is no value; an unknown value is never written as 0.

    A value with an error is rounded to the error, to at most ``most`` decimals.
    """
    if isinstance(value, str):
        return value or _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or not isfinite(value):
        return _MISSING
    text = f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e6 else f"{value:.4g}"
    spread = float(error or 0)
    if not spread > 0:
        return text
    if not isfinite(spread):
        return f"{text} ± ?"
    decimals = 1 - floor(log10(spread))
    if decimals < 0 or spread < 0.5 * 10.0**-most:
        return f"{text} ± {spread:.2g}"
    decimals = min(decimals, most)
    return f"{value:.{decimals}f} ± {spread:.{decimals}f}"


def _entries(value: Plain) -> str:
    return "(" + ", ".join(map(_entries, value)) + ")" if isinstance(value, list) else cell(value)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


_ENVIRONMENT = Environment(
    loader=PackageLoader("bsvr_pp", "show"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
)
_ENVIRONMENT.filters |= {
    "minus": lambda text: _MINUS.sub("−", text),
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "duration": duration,
    "point": point_words,
    "listed": _listed,
}
