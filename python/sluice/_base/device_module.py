"""The functions that torch.cuda has, for every kind of device: waiting, and counts of memory."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._base.device import device as _Device

class Stream:
    """The stream that eager operations of a device are queued on: there is one, in the order of the calls."""

    def __init__(self, device: Any) -> None:
        self.device = _Device(device)
        self.device_index, self.device_type = self.device.index or 0, self.device.type

    def synchronize(self) -> None:
        """Waits for what has been queued; raises a failure of it that nobody has been told yet."""
        _C.synchronize_device(self.device)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"<sluice.Stream of {self.device}>"


class DeviceModule:
    """The functions of torch.cuda for devices of one kind; `sluice.get_device_module(kind)`."""

    def __init__(self, kind: str) -> None:
        self.kind, self.__name__ = kind, f"sluice.get_device_module({kind!r})"

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def _device(self, device: Any) -> Any:
        """By its number, name or object; None: the first. Raises what says why it is not there."""
        if device is None or isinstance(device, Integral):
            device = _Device(self.kind, device or 0)
        device = _Device(device)
        if device.type != self.kind:
            raise _C.ValueError(f"{self.kind}: Expected a {self.kind} device, but got: {device}")
        _C.check_device(device)
        return _Device(self.kind, device.index or 0)

    def _why_not(self, index: int) -> Any:
        """Why there is no such device; None: there is."""
        try:
            _C.check_device(f"{self.kind}:{index}")
        except (RuntimeError, NotImplementedError, ValueError) as error:
            return error
        return None

    def device_count(self) -> int:
        """How many there are; of `sim`, of which there are as many as are asked for, one."""
        if self.kind in ("cpu", "sim"):
            return 1
        count = 0
        while self._why_not(count) is None:
            count += 1
        return count

    def is_available(self) -> bool:
        return self._why_not(0) is None

    def current_device(self) -> int:
        """0: a kind's name means its first device everywhere."""
        return 0

    def current_stream(self, device: Any = None) -> Stream:
        return Stream(self._device(device))

    def synchronize(self, device: Any = None) -> None:
        """Waits for the eager operations queued there; raises a failure of one that nobody has been told yet."""
        _C.synchronize_device(self._device(device))

    def empty_cache(self) -> None:
        """Gives memory that is kept for the next tensors back to the devices."""
        for index in range(self.device_count()):
            _C.empty_device_cache(f"{self.kind}:{index}")

    def _counts(self, device: Any) -> Any:
        return _C.device_memory(self._device(device))

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in use there, by eager tensors and by plans."""
        return int(self._counts(device)["current_bytes"])

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most bytes that have been in use there, since reset_peak_memory_stats()."""
        return int(self._counts(device)["peak_bytes"])

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes taken from the device: in use, or kept for the next tensors."""
        return int(self._counts(device)["reserved_bytes"])

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        counts = self._counts(device)
        return {"allocated_bytes.all.current": counts["current_bytes"], "allocated_bytes.all.peak": counts["peak_bytes"],
                "reserved_bytes.all.current": counts["reserved_bytes"]}

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        _C.reset_device_peak(self._device(device))

    def _total(self, device: Any) -> int:
        total = int(self._counts(device)["total_bytes"])
        if total == 0:
            raise NotImplementedError(f"{self._device(device)}: how much memory there is, is not known; use "
                                      "sluice.memory.set_limit, which takes bytes")
        return total

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Limits the bytes in use there to a part of all there is, from 0 to 1; sluice.memory.set_limit takes bytes."""
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise _C.ValueError(f"set_per_process_memory_fraction: Invalid fraction value: {fraction}. Allowed range: 0~1")
        _C.set_device_limit(self._device(device), int(self._total(device) * fraction))

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        """The part that was set, or 1."""
        limit = self._counts(device)["limit"]
        return 1.0 if limit is None else min(limit / self._total(device), 1.0)
