"""torch.cuda: which CUDA devices there are, what they hold, and waiting for them (docs/devices.md).

There is one stream of eager operations per device, and plans have streams of their own (`sluice.stream`); events have no names
here, for the order of calls is all there is to wait for.
"""

from __future__ import annotations

import functools
from typing import Any

from sluice._tensor import creation
from sluice._C import MemoryError as OutOfMemoryError
from sluice._base.device_module import DeviceModule, Stream as _Stream

_cuda = DeviceModule("cuda")

__all__ = ["current_device", "current_stream", "default_stream", "device_count", "empty_cache",
           "get_per_process_memory_fraction", "init", "is_available", "is_bf16_supported", "is_initialized", "manual_seed",
           "manual_seed_all", "max_memory_allocated", "memory_allocated", "memory_reserved", "memory_stats", "OutOfMemoryError",
           "reset_peak_memory_stats", "set_device", "set_per_process_memory_fraction", "synchronize"]


@functools.cache
def device_count() -> int:
    """How many CUDA devices this process can use; 0 where there is no driver."""
    return _cuda.device_count()


def is_available() -> bool:
    """Whether there is a CUDA device."""
    return device_count() > 0


def current_device() -> int:
    """0: "cuda" means "cuda:0" everywhere."""
    return 0


def set_device(device: Any) -> None:
    """Accepts the device that is the current one; others are named where they are used: `.to("cuda:1")`."""
    if (_cuda._device(device).index or 0) != current_device():
        raise NotImplementedError(f"cuda.set_device: got {device}; name the device where it is used, as in `.to('cuda:1')` or "
                                  "`with sluice.device('cuda:1')`")


def init() -> None:
    """Nothing: a device is set up when it is first used."""


def is_initialized() -> bool:
    return is_available()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return is_available()


def current_stream(device: Any = None) -> _Stream:
    """The stream of the device's eager operations."""
    return _cuda.current_stream(device)


default_stream = current_stream


def synchronize(device: Any = None) -> None:
    """Waits for the eager operations queued there; raises a failure of one that nobody has been told yet."""
    _cuda.synchronize(device)


def empty_cache() -> None:
    """Gives memory that is kept for the next tensors back to the devices."""
    _cuda.empty_cache()


def memory_allocated(device: Any = None) -> int:
    """Bytes in use there, by eager tensors and by plans."""
    return _cuda.memory_allocated(device)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that have been in use there, since reset_peak_memory_stats()."""
    return _cuda.max_memory_allocated(device)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the device: in use, or kept for the next tensors."""
    return _cuda.memory_reserved(device)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The counts of memory by torch's names, as far as there are such."""
    return _cuda.memory_stats(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """max_memory_allocated() counts from what is in use now."""
    _cuda.reset_peak_memory_stats(device)


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits the bytes in use there to a part of the device's, from 0 to 1; `sluice.memory.set_limit` takes bytes."""
    _cuda.set_per_process_memory_fraction(fraction, device)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part that was set, or 1."""
    return _cuda.get_per_process_memory_fraction(device)


def manual_seed(seed: int) -> None:
    """Seeds the generator there is, from which random numbers come on all devices."""
    if is_available():
        creation.manual_seed(seed)


manual_seed_all = manual_seed


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'sluice.cuda' has no attribute '{name}'; of torch.cuda there is what asks about devices: "
                         f"{', '.join(__all__)}")
