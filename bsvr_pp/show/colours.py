"""One colour per method, the same in every plot; also distinct for colour-blind readers (Paul Tol's bright scheme)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from types import MappingProxyType

__all__ = ["BAND", "INK", "OFF_BOUND", "ON_BOUND", "colours"]

BAND, INK, OFF_BOUND, ON_BOUND = "#4477aa", "#224466", "#ee6677", "#aa3377"
_METHODS = MappingProxyType(
    {
        "MAP": "#777777",
        "Laplace": "#ee6677",
        "Laplace (local)": "#ccbb44",
        "mean field": "#4477aa",
        "NUTS": "#228833",
        "NUTS (mean field)": "#66ccee",
        "NUTS (Laplace (local))": "#aa3377",
    }
)


def colours(names: Iterable[str]) -> dict[str, str]:
    """Assign a colour to every name.

    Parameters
    ----------
    names : iterable of str
        Names of methods, in the order of the results.

    Returns
    -------
    dict
        Name to colour.

    Examples
    --------
    >>> from bsvr_pp.show.colours import colours
    >>> colours(["Laplace", "mean field, 40 rows"])
    {'Laplace': '#ee6677', 'mean field, 40 rows': '#777777'}
    """
    wanted = list(names)
    free = cycle([colour for method, colour in _METHODS.items() if method not in wanted] or _METHODS.values())
    return {name: _METHODS.get(name) or next(free) for name in wanted}
