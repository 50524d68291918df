"""Names of devices."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from bsvr_pp import _device
from bsvr_pp._device import Device, device_named


@pytest.fixture
def gpus(monkeypatch):
    """A stand-in for JAX with a number of GPUs."""

    def install(count):
        def devices(platform=None):
            if platform == "gpu" and not count:
                raise RuntimeError("Unknown backend gpu")
            return [SimpleNamespace(memory_stats=lambda: {"bytes_limit": 1000})] * max(count, 1)

        monkeypatch.setattr(_device, "find_spec", lambda name: object())
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=devices))

    return install


def test_the_processor_needs_no_jax(monkeypatch):
    monkeypatch.setattr(_device, "find_spec", lambda name: None)
    assert device_named("cpu") is None
    assert device_named("auto") is None
    for name in ("gpu", "jax"):
        with pytest.raises(ValueError, match=f"device='{name}' needs JAX, which is not installed: pip install"):
            device_named(name)


def test_a_gpu_is_used_if_there_is_one(gpus):
    gpus(1)
    assert device_named("auto") == device_named("gpu") == Device("gpu")
    assert device_named("gpu").memory == pytest.approx(700.0)
    gpus(0)
    assert device_named("auto") is None
    assert device_named("jax") == Device(None)
    with pytest.raises(ValueError, match="device='gpu' needs a GPU that JAX can use, and it finds none"):
        device_named("gpu")


def test_the_memory_of_the_processor_is_a_part_of_what_is_free(gpus, monkeypatch):
    gpus(0)
    handle = SimpleNamespace(memory_stats=lambda: None)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda platform=None: [handle]))
    monkeypatch.setattr(_device.psutil, "virtual_memory", lambda: SimpleNamespace(available=4000))
    assert Device(None).memory == 1000.0
