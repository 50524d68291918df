"""Bayesian support vector machines in PyMC: one model, several inferences, results side by side.

Public names are listed in ``__init__.pyi`` and loaded on first use, so that the array layer (`bsvr_pp.losses`,
`bsvr_pp.approximations`) can be imported without PyMC. Distributions of the registry of losses are public names too.
"""

from typing import Any

import lazy_loader

_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _listed(name)
    except AttributeError:
        if name.startswith("_"):
            raise
    from bsvr_pp.model.distributions import distribution_named

    found = distribution_named(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
