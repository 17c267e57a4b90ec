"""The module of functions for each kind of device: sluice.cuda, and the like of it for others."""

from __future__ import annotations

from typing import Any

from sluice._device import device as _Device, get_default_device
from sluice._device_module import DeviceModule

_modules: dict[str, Any] = {}


def get_device_module(device: Any = None) -> Any:
    """What torch has a module for: `sluice.cuda`, or the like of it for another kind; torch.get_device_module.

    device: its name or object, of which the kind counts; None: the default device's.
    """
    kind = _Device(get_default_device() if device is None else device).type
    if kind == "cuda":
        from sluice import cuda

        return cuda
    return _modules.setdefault(kind, DeviceModule(kind))
