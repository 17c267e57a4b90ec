"""How much memory tensors, graphs and variables take, and limits of it, for every device.

Counts cover what Sluice allocates: eager tensors, what their kernels work in, the arenas, weights and results of graphs.
Memory shared with NumPy, pages of files that are mapped, and Python's own objects are not.
"""

from __future__ import annotations

import operator
from typing import Any

from sluice import _C
from sluice._base.device import device as _Device, get_default_device

__all__ = ["active", "cache_limit", "cached", "empty_cache", "limit", "peak", "reset_peak", "set_cache_limit", "set_limit"]


def _named(device: Any) -> str:
    return str(_Device(get_default_device() if device is None else device))


def _bytes(what: str, number: Any) -> int | None:
    if number is None:
        return None
    try:
        if isinstance(number, bool):
            raise TypeError
        number = operator.index(number)
    except TypeError:
        raise TypeError(f"memory.{what}: bytes: {type(number).__name__}; must be an int, or None for no limit") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"memory.{what}: bytes: {number}; must be 0 to 2**63 - 1, or None for no limit")
    return int(number)


def active(device: Any = None) -> int:
    """Bytes in use on a device: by eager tensors, and by the arenas, weights and results of graphs.

    device: its name or object; None, here and below: the default device.
    """
    return int(_C.device_memory(_named(device))["current_bytes"])


def peak(device: Any = None) -> int:
    """The most bytes that have been in use, since reset_peak()."""
    return int(_C.device_memory(_named(device))["peak_bytes"])


def reset_peak(device: Any = None) -> None:
    """peak() counts from what is in use now."""
    _C.reset_device_peak(_named(device))


def cached(device: Any = None) -> int:
    """Bytes that are not in use, but kept for the next tensors."""
    counts = _C.device_memory(_named(device))
    return int(counts["reserved_bytes"] - counts["current_bytes"])


def empty_cache(device: Any = None) -> None:
    """Gives what is kept for the next tensors back to the device."""
    _C.empty_device_cache(_named(device))


def limit(device: Any = None) -> int | None:
    """The limit of bytes in use, as set_limit() set it; None: there is none."""
    return _C.device_memory(_named(device))["limit"]


def set_limit(bytes: int | None, device: Any = None) -> int | None:  # noqa: A002
    """Limits the bytes in use on a device; None: no more. Returns the limit before.

    An op, a graph that is loaded, or whatever else would exceed it raises sluice.OutOfMemoryError, which is a MemoryError
    and a RuntimeError, with its name and line; nothing has changed then. The limit may be less than what is in use: nothing can
    be allocated until enough has been freed. Memory that is kept for the next tensors goes back to the device if it would
    exceed the limit together with the memory in use.
    """
    before = limit(device)
    _C.set_device_limit(_named(device), _bytes("set_limit", bytes))
    return before


def cache_limit(device: Any = None) -> int | None:
    """The limit of bytes kept for the next tensors, as set_cache_limit() set it; None: there is none but twice the peak and
    64 MiB."""
    return _C.device_memory(_named(device))["cache_limit"]


def set_cache_limit(bytes: int | None, device: Any = None) -> int | None:  # noqa: A002
    """Limits what is kept for the next tensors; 0: memory goes back at once; None: no more. Returns the limit before."""
    before = cache_limit(device)
    _C.set_device_cache_limit(_named(device), _bytes("set_cache_limit", bytes))
    return before
