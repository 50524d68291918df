"""The device of a fit."""

from __future__ import annotations

from typing import Any

from bsvr_pp._device import Device, device_named
from bsvr_pp.inference.protocol import Method

__all__ = ["device_for"]


def device_for(name: Any, method: Method, exact: bool) -> Device | None:
    """Return the device on which the latent function is integrated out; None is the processor.

    Parameters
    ----------
    name : {"cpu", "gpu", "auto", "jax"}
        As of `bsvr_pp._device.device_named`.
    method : Method
        Method that integrates the latent function out.
    exact : bool
        Whether the targets are exact, and not intervals.

    Raises
    ------
    ValueError
        If there is no such device, or it is asked for by name and cannot be used.
    """
    device = device_named(name)
    if device is None or name == "auto":
        usable = exact and method.capabilities.on_device
        return device if usable else None
    if not method.capabilities.on_device:
        raise ValueError(
            f"device={name!r} computes mean field and local Laplace, got inference by {method.name}: use device='cpu'"
        )
    if not exact:
        raise ValueError(f"device={name!r} takes exact targets, and y has intervals: use device='cpu'")
    return device
