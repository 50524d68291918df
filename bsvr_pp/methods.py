"""The registry of methods, and the records of methods that results contain.

A line of `METHODS` gives a method its name on the command line. The modules are imported when a method is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import xarray as xr

    from bsvr_pp.inference.protocol import Method


class Entry(NamedTuple):
    """Name of a class and its options; ``latent`` is a key of the registry."""

    class_name: str
    options: Mapping[str, str] = {}


METHODS: dict[str, Entry] = {
    "map": Entry("MAP"),
    "laplace": Entry("Laplace"),
    "laplace_local": Entry("Laplace", {"curvature": "local"}),
    "mean_field": Entry("MeanField"),
    "integrated": Entry("Integrated", {"latent": "mean_field"}),
    "nuts": Entry("NUTS"),
    "nuts_laplace_local": Entry("NUTS", {"latent": "laplace_local"}),
    "nuts_mean_field": Entry("NUTS", {"latent": "mean_field"}),
}


def _classes() -> dict[str, Callable[..., Method]]:
    """Return the classes of all methods by name, from the registry and for labels."""
    from bsvr_pp.classification.exchange import Exchange
    from bsvr_pp.classification.normalised_evidence import NormalisedEvidence
    from bsvr_pp.inference.approximate import MAP, Annealed, Laplace, MeanField
    from bsvr_pp.inference.integrated import Integrated
    from bsvr_pp.inference.sampling.nuts import NUTS

    methods: list[Any] = [MAP, Laplace, MeanField, NUTS, Integrated, Annealed, NormalisedEvidence, Exchange]
    return {method.__name__: method for method in methods}


def make_method(key: str) -> Method:
    """Make the method of a key of the registry."""
    from bsvr_pp.core.arrays import check_choice

    check_choice("method", key, METHODS)
    entry = METHODS[key]
    options = {name: make_method(of) if name == "latent" else of for name, of in entry.options.items()}
    return _classes()[entry.class_name](**options)


def from_record(record: object) -> Method:
    """Make the method of a record: of this package, or a dataclass defined in the running program."""
    from bsvr_pp.core.arrays import check_fields

    name, module = (str(record.get(key)) if isinstance(record, dict) else "" for key in ("method", "module"))
    # A file does not make Python import another module.
    found: Any = _classes().get(name) or vars(sys.modules.get(module, object)).get(name)
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
