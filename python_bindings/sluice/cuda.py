"""torch.cuda: which CUDA devices there are. Graphs compute on them (docs/devices.md); eager operations compute on the CPU.

Streams and events have no names here: plans have streams (`sluice.stream`), and their actors' messages are what events are
elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any

import sluice
from sluice import _C
from sluice._device import device as _Device

__all__ = ["current_device", "device_count", "empty_cache", "init", "is_available", "is_bf16_supported", "is_initialized",
           "manual_seed", "manual_seed_all", "max_memory_allocated", "memory_allocated", "set_device", "synchronize"]


@functools.cache
def device_count() -> int:
    """How many CUDA devices this process can use; 0 where there is no driver."""
    count = 0
    while _why_not(count) is None:
        count += 1
    return count


def is_available() -> bool:
    """Whether there is a CUDA device for graphs."""
    return device_count() > 0


def _why_not(index: int) -> Any:
    """Why there is no such device; None: there is."""
    try:
        _C.memory_stats(f"cuda:{index}")
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return error
    return None


def _index(device: Any) -> int:
    """Of a device's number, name or object; None: the current one. Raises what says why it is not there."""
    if device is None:
        index = current_device()
    elif isinstance(device, int):
        index = device
    else:
        device = _Device(device)
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        index = device.index or 0
    if (why := _why_not(index)) is not None:
        raise why
    return index


def current_device() -> int:
    """0: "cuda" means "cuda:0" everywhere."""
    return 0


def set_device(device: Any) -> None:
    """Accepts the device that is the current one; others are named where they are used: `.to("cuda:1")`."""
    if _index(device) != current_device():
        raise NotImplementedError(f"cuda.set_device: got {device}; name the device where it is used, as in `.to('cuda:1')` or "
                                  "`with sluice.device('cuda:1')`")


def init() -> None:
    """Nothing: a device is set up when it is first used."""


def is_initialized() -> bool:
    return is_available()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return is_available()


def synchronize(device: Any = None) -> None:
    """Returns: reading a result waits for the step that makes it, and nothing else is to be waited for."""
    _index(device)


def empty_cache() -> None:
    """Nothing: plans hold the memory they were made with, and give it back when they end."""


def memory_allocated(device: Any = None) -> int:
    """Bytes that the engine has allocated there."""
    return int(_C.memory_stats(f"cuda:{_index(device)}")["current_bytes"])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that the engine has had allocated there."""
    return int(_C.memory_stats(f"cuda:{_index(device)}")["peak_bytes"])


def manual_seed(seed: int) -> None:
    """Seeds the generator there is, from which random numbers of graphs come on all devices."""
    if is_available():
        sluice.manual_seed(seed)


manual_seed_all = manual_seed


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'sluice.cuda' has no attribute '{name}'; of torch.cuda there is what asks about devices: "
                         f"{', '.join(__all__)}")
