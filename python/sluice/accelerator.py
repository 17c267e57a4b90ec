"""The accelerator of this machine by torch's names: CUDA where a GPU can be used, else none (`torch.accelerator`)."""

from __future__ import annotations

from typing import Any

from sluice import cuda
from sluice._base import device as _device
from sluice.errors import RuntimeError  # noqa: A004

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "device_count", "is_available", "set_device_idx",
           "set_device_index", "synchronize"]


def is_available() -> bool:
    """Whether there is an accelerator that can be used now."""
    return bool(cuda.is_available())


def device_count() -> int:
    """How many of its kind there are; 0 without one."""
    return int(cuda.device_count()) if is_available() else 0


def current_accelerator(check_available: bool = False) -> Any:
    """Its kind as a device without a number, or None. A backend that finds no device is none, whatever check_available says."""
    return _device.device("cuda") if is_available() else None


def current_device_index() -> int:
    """The number of the device that is chosen. Raises RuntimeError where there is no accelerator."""
    _some("current_device_index")
    return int(cuda.current_device())


def set_device_index(device: Any, /) -> None:
    """Chooses a device, by its number or as a device. Raises RuntimeError where there is no accelerator."""
    _some("set_device_index")
    cuda.set_device(device)


def synchronize(device: Any = None, /) -> None:
    """Waits until a device has done what it was given. Raises RuntimeError where there is no accelerator."""
    _some("synchronize")
    cuda.synchronize(device)


def _some(where: str) -> None:
    if not is_available():
        raise RuntimeError(f"accelerator.{where}: there is no accelerator on this machine; ask is_available() first")


current_device_idx, set_device_idx = current_device_index, set_device_index
