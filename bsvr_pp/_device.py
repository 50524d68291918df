"""Devices on which JAX solves many problems at once: a GPU, or any other that JAX knows.

JAX is imported when a device is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import psutil

__all__ = ["DEVICES", "Device", "device_named"]

DEVICES = ("cpu", "gpu", "jax", "auto")
_SHARE_OF_DEVICE, _SHARE_OF_PROCESSOR = 0.7, 0.25  # of the memory, that a batch may take


@dataclass(frozen=True, slots=True)
class Device:
    """A device of JAX.

    Parameters
    ----------
    platform : str or None
        "gpu", or None for the default device of JAX, which may be the processor.
    """

    platform: str | None

    @property
    def handle(self) -> Any:
        """The first device of this platform, as JAX names it."""
        import jax

        return jax.devices(self.platform)[0] if self.platform else jax.devices()[0]

    @property
    def memory(self) -> float:
        """Number of bytes that a batch may take."""
        known = self.handle.memory_stats() or {}
        if "bytes_limit" in known:
            return _SHARE_OF_DEVICE * float(known["bytes_limit"])
        return _SHARE_OF_PROCESSOR * float(psutil.virtual_memory().available)


def device_named(name: str) -> Device | None:
    """Return the device of a name; None is the compiled core, which runs on the processor.

    Parameters
    ----------
    name : {"cpu", "gpu", "jax", "auto"}
        "cpu" is the compiled core; "gpu" a GPU; "auto" a GPU if JAX has one, otherwise the compiled core; "jax" is the
        default device of JAX, whatever it is.

    Raises
    ------
    ValueError
        If the name is none of these, JAX is not installed, or it has no GPU.

    Examples
    --------
    >>> from bsvr_pp._device import device_named
    >>> device_named("cpu") is None
    True
    """
    if not isinstance(name, str) or name not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {name!r}")
    if name == "cpu" or (name == "auto" and find_spec("jax") is None):
        return None
    if find_spec("jax") is None:
        raise ValueError(
            f"device={name!r} needs JAX, which is not installed: pip install 'bsvr-pp[jax]' (for a GPU also the JAX of "
            "your GPU, as in its documentation), or use device='cpu'"
        )
    if name == "jax":
        return Device(None)
    if _has_gpu():
        return Device("gpu")
    if name == "auto":
        return None
    raise ValueError(
        "device='gpu' needs a GPU that JAX can use, and it finds none: install the JAX of your GPU as in its "
        "documentation, or use device='cpu'"
    )


def _has_gpu() -> bool:
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # what JAX raises where there is none
        return False
