"""Where the latent function is solved: on the processor by the compiled core, or on a device of an optional back end.

`bsvr_pp.jax` is the only back end, and no other module loads it. A device is found once, by `device_for`; the problem
has it from then on, and asks it for what it can compute.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

DEVICES = ("cpu", "gpu", "jax", "auto")


class Device:
    """The processor, and the contract of any device: it solves what it can, and the compiled core solves the rest."""

    def posteriors(self, problem: Any, method: Any, point: Any, progress: str = "") -> dict[int, Any]:
        """Posteriors at a point of the hyperparameters, without factors, by the numbers of the blocks.

        ``progress`` is the text of a progress bar, none if it is empty.
        """
        return {}

    def evidences(self, problem: Any, method: Any) -> Any:
        """A function for the search for hyperparameters, or None if the core computes all.

        From the unconstrained values and a (2, m) warm start of each block it computes, by the numbers of the blocks,
        what the compiled function of one block returns: value, sites (2, m), gradients.
        """
        return None


PROCESSOR = Device()


def device_for(name: Any, method: Any, exact: bool) -> Device:
    """The device of a fit by a method, whose targets are exact or intervals.

    Raises
    ------
    ValueError
        If there is no such device, or it is asked for by name and cannot be used.
    """
    device = device_named(name)
    if device is PROCESSOR:
        return device
    if method.capabilities.on_device and exact:
        return device
    if name == "auto":
        return PROCESSOR
    if exact:
        raise ValueError(
            f"device={name!r} computes mean field alone, got inference by {method.name}: use bp.MeanField() or "
            "device='cpu'"
        )
    raise ValueError(f"device={name!r} takes exact targets, and y has intervals: use device='cpu'")


def device_named(name: Any) -> Device:
    """The device of a name: "auto" is a GPU if JAX has one, otherwise the processor; "jax" the default device of JAX.

    Raises
    ------
    ValueError
        If the name is none of `DEVICES`, JAX is not installed, or it has no GPU.
    """
    if not isinstance(name, str) or name not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {name!r}")
    if name == "cpu":
        return PROCESSOR
    back_end = load_jax()
    if back_end is None and name != "auto":
        raise ValueError(
            f"device={name!r} needs JAX, which is not installed: pip install 'bsvr-pp[jax]' (for a GPU also the JAX of "
            "your GPU, as in its documentation), or use device='cpu'"
        )
    if name == "jax":
        return back_end.JaxDevice(None)
    if back_end is not None and back_end.has_gpu():
        return back_end.JaxDevice("gpu")
    if name == "auto":
        return PROCESSOR
    raise ValueError(
        "device='gpu' needs a GPU that JAX can use, and it finds none: install the JAX of your GPU as in its "
        "documentation, or use device='cpu'"
    )


@cache
def load_jax() -> Any:
    """Load `bsvr_pp.jax` if JAX is installed, otherwise None; it registers our operations with PyTensor's back end."""
    return import_module("bsvr_pp.jax") if find_spec("jax") else None
