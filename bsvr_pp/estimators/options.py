"""Checks and scales used by all estimators."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from bsvr_pp._checks import check_count, check_share, check_size, check_spread, check_varies, is_number
from bsvr_pp.inference.protocol import can
from bsvr_pp.losses import NOISES
from bsvr_pp.model.priors import KERNELS, check_unused

__all__ = ["check_regression", "ends", "seeded", "validated", "widths"]

Array = NDArray[np.float64]


def check_regression(estimator: Any, methods: Collection[str]) -> None:
    """Check the options of `BayesianSVR`, given the names of its methods.

    Raises
    ------
    ValueError
        Naming the option, its value and what is allowed.
    """
    if estimator.noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {estimator.noise!r}")
    if not callable(estimator.kernel) and estimator.kernel not in KERNELS:
        raise ValueError(f"kernel must be {', '.join(KERNELS)} or a function of the inputs, got {estimator.kernel!r}")
    if not (estimator.beta == "auto" or (is_number(estimator.beta) and 0 <= float(estimator.beta) <= 1)):
        raise ValueError(f"beta must be 'auto' or lie between 0 and 1, got {estimator.beta!r}")
    check_share("quantile", estimator.quantile)
    if estimator.outliers not in ("set_aside", "keep"):
        raise ValueError(f"outliers must be 'set_aside' or 'keep', got {estimator.outliers!r}")
    for name in ("ard", "committee", "log_targets", "noise_scales"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {getattr(estimator, name)!r}")
    if estimator.restarts is not None:
        check_count("restarts", estimator.restarts, 1)
    check_unused(
        estimator.noise, estimator.kernel, beta=estimator.beta, quantile=estimator.quantile, ard=bool(estimator.ard)
    )
    if estimator.committee and (estimator.inference == "nuts" or can(estimator.inference, "draws")):
        raise ValueError("committee=True averages over optima, and NUTS has draws in their place: leave it out")
    if can(estimator.inference, "draws") and estimator.inference.latent is None:
        raise ValueError("inference must integrate the latent function out: NUTS(latent=...), got NUTS()")
    named = isinstance(estimator.inference, str) and estimator.inference in methods
    if not named and not (can(estimator.inference, "runs") and estimator.inference.latent is not None):
        raise ValueError(f"inference must be one of {', '.join(methods)} or a method, got {estimator.inference!r}")


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Data as arrays of numbers, by scikit-learn's checks; words among them are refused by name.

    Training data, which come with y, must vary by more than rounding, and numeric targets must not be constant.
    """
    try:
        if not isinstance(y, str) and options.get("y_numeric") and np.asarray(y).dtype.kind in "US":
            y = np.asarray(y).astype(np.float64)
        found = validate_data(estimator, X, y, dtype=np.float64, **options)
    except (TypeError, ValueError) as error:
        if "float" not in str(error):
            raise
        raise type(error)(f"X and y must be arrays of numbers: {error}") from None
    for name, values in zip("Xy", found if isinstance(found, tuple) else (found,), strict=False):
        if values.dtype.kind == "f":
            check_size(name, values)
            if isinstance(found, tuple):
                check_spread(name, values)
    if isinstance(found, tuple) and options.get("y_numeric"):
        check_varies("y", found[1])
    return found


def seeded(random_state: Any) -> np.random.Generator:
    """Return the generator of a random_state as in scikit-learn."""
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise ValueError(
            f"random_state must be an integer of at least 0, a RandomState or None, got {random_state!r}"
        ) from None


def ends(coverage: Any) -> list[float]:
    """Levels of the ends of the central interval of a given coverage."""
    check_share("coverage", coverage)
    return [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]


def widths(values: Array, weight: Array | None = None) -> Array:
    """Standard deviation of each column, of rows with weights; 1 for a constant column."""
    spread = np.sqrt(np.average((values - np.average(values, axis=0, weights=weight)) ** 2, axis=0, weights=weight))
    tiny = 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    out: Array = np.where(spread > tiny, spread, 1.0)
    return out
