"""The registry of methods, and the records of methods that results contain.

A line of `METHODS` gives a method its name on the command line and makes its class a public name of `bsvr_pp`. The
modules are imported when a method is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from bsvr_pp.core.checks import check_fields

if TYPE_CHECKING:
    import xarray as xr

    from bsvr_pp.inference.protocol import Method


class Entry(NamedTuple):
    """A line of the registry: name on the command line, name of the class and its module in `bsvr_pp.inference`.

    The key implies ``options``, in which ``latent`` is another key; ``bsvr-pp compare`` offers what is ``compared``.
    """

    key: str
    class_name: str
    module: str
    options: Mapping[str, str] = {}
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

_OF_LABELS = ("bsvr_pp.classification.normalised_evidence", "bsvr_pp.classification.exchange")


def make_method(key: str) -> Method:
    """Make the method of a key of the registry."""
    if key not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {key!r}")
    entry = METHODS[key]
    return _class(entry)(**{name: make_method(of) if name == "latent" else of for name, of in entry.options.items()})


def to_record(method: Method) -> dict[str, object]:
    """Convert a method to a record of names and numbers, for a file."""
    from bsvr_pp.inference.protocol import Method

    record: dict[str, object] = {"method": type(method).__name__, "module": type(method).__module__}
    for option in fields(method):
        value = getattr(method, option.name)
        value = value.item() if hasattr(value, "item") else value  # a number of NumPy
        record[option.name] = to_record(value) if isinstance(value, Method) else value
    return record


def from_record(record: object) -> Method:
    """Make the method of a record of `to_record`, whose options are checked as always.

    A file makes only methods of the registry, those of labels, and dataclasses with a name and ``run`` or ``evidence``
    that the running program has defined. It makes Python import no other module.
    """
    name, module = (str(record.get(key)) if isinstance(record, dict) else "" for key in ("method", "module"))
    if module in _OF_LABELS:
        import_module(module)
    found: Any = class_named(name) or vars(sys.modules.get(module, object)).get(name)
    members = {*dir(found)} if isinstance(found, type) and is_dataclass(found) else set()
    if "name" not in members or members.isdisjoint(("run", "evidence")):
        raise ValueError(f"method {name!r} of {module} is not known here: import its module first")
    options = check_fields(f"method {name}", record, ("method", "module", *(option.name for option in fields(found))))
    for option, value in options.items():
        if isinstance(value, dict) and {"method", "module"} <= value.keys():
            options[option] = from_record(value)
    return found(**{option: options[option] for option in list(options)[2:]})


def method_of(result: xr.DataTree) -> Method:
    """Return the method that made a result."""
    return from_record(json.loads(result.attrs["method"]))


def class_named(name: str) -> Callable[..., Method] | None:
    """The class of a method of the registry; None if there is none of that name."""
    return next((_class(entry) for entry in METHODS.values() if entry.class_name == name), None)


def _class(entry: Entry) -> Callable[..., Method]:
    return getattr(import_module(f"bsvr_pp.inference.{entry.module}"), entry.class_name)
