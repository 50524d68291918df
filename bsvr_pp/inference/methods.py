"""The registry of methods, and the records of methods that results contain.

A line of `METHODS` gives a method its name on the command line and makes its class a public name of `bsvr_pp`. The
modules are imported when a method is used.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bsvr_pp._checks import check_fields

if TYPE_CHECKING:
    import xarray as xr

    from bsvr_pp.inference.protocol import Method


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the registry: name on the command line, name of the class and its module in `bsvr_pp.inference`.

    The key implies ``options``, in which ``latent`` is another key; ``bsvr-pp compare`` offers what is ``compared``.
    """

    key: str
    class_name: str
    module: str
    options: dict[str, Any] = field(default_factory=dict)
    compared: bool = True


METHODS: dict[str, Entry] = {
    entry.key: entry
    for entry in (
        Entry("map", "MAP", "approximate"),
        Entry("laplace", "Laplace", "approximate"),
        Entry("laplace_local", "Laplace", "approximate", {"curvature": "local"}),
        Entry("mean_field", "MeanField", "approximate"),
        Entry("nuts", "NUTS", "sampling.nuts"),
        Entry("nuts_laplace_local", "NUTS", "sampling.nuts", {"latent": "laplace_local"}),
        Entry("nuts_mean_field", "NUTS", "sampling.nuts", {"latent": "mean_field"}),
        Entry("committee", "Committee", "approximate", compared=False),
        Entry("annealed", "Annealed", "approximate", compared=False),
    )
}

_OF_LABELS = {
    "NormalisedEvidence": "normalised_evidence",
    "Exchange": "exchange",
}  # of `bsvr_pp.classification`


def make_method(key: str, **options: Any) -> Any:
    """Make the method of a key of the registry."""
    if key not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {key!r}")
    entry = METHODS[key]
    chosen = dict(entry.options)
    if "latent" in chosen:
        chosen["latent"] = make_method(chosen["latent"])
    return _class(entry)(**chosen, **options)


def to_record(method: Method) -> dict[str, Any]:
    """Convert a method to a record of names and numbers, for a file."""
    from bsvr_pp.inference.protocol import Method

    record: dict[str, Any] = {"method": type(method).__name__, "module": type(method).__module__}
    for option in fields(method):
        value = getattr(method, option.name)
        value = value.item() if hasattr(value, "item") else value  # a number of NumPy
        record[option.name] = to_record(value) if isinstance(value, Method) else value
    return record


def from_record(record: Any) -> Any:
    """Make the method of a record of `to_record`, whose options are checked as always.

    A file makes only methods of the registry, those of labels, and dataclasses with ``run`` or ``evidence`` that the
    running program has defined. It makes Python import no other module.
    """
    name, module = (str(record.get(key)) if isinstance(record, dict) else "" for key in ("method", "module"))
    found = class_named(name) or vars(sys.modules.get(module, object)).get(name)
    if module == f"bsvr_pp.classification.{_OF_LABELS.get(name)}":
        found = getattr(import_module(module), name)
    if not isinstance(found, type) or not {"run", "evidence"} & {*dir(found)} or not is_dataclass(found):
        raise ValueError(f"method {name!r} of {module} is not known here: import its module first")
    options = check_fields(f"method {name}", record, ("method", "module", *(option.name for option in fields(found))))
    for option, value in options.items():
        if isinstance(value, dict) and {"method", "module"} <= value.keys():
            options[option] = from_record(value)
    return found(**{option: options[option] for option in list(options)[2:]})


def method_of(result: xr.DataTree) -> Any:
    """Return the method that made a result."""
    return from_record(json.loads(result.attrs["method"]))


def class_named(name: str) -> Any:
    """The class of a method of the registry; None if there is none of that name."""
    return next((_class(entry) for entry in METHODS.values() if entry.class_name == name), None)


def _class(entry: Entry) -> Any:
    return getattr(import_module(f"bsvr_pp.inference.{entry.module}"), entry.class_name)
