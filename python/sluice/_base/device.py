"""Devices and streams: names of places, and context managers that put the ops inside there."""

from __future__ import annotations

from typing import Any

from sluice import _C


class device:
    """A device by name: device("cpu"), device("sim", 1), device("sim:1").

    As a context manager: tensors are created there, and ops traced inside run there.
    """

    __slots__ = ("type", "index", "_scopes")

    def __init__(self, type: Any, index: Any = None) -> None:
        if isinstance(type, device):
            type = str(type)
        if not isinstance(type, str):
            raise TypeError(f"device: expected a name such as 'cpu' or 'sim:0': got {type!r}")
        if ":" in type and index is not None:
            raise _C.ValueError(f"device: index given twice: {type!r} and {index}")
        name = _C.parse_device(type if ":" in type or index is None else f"{type}:{index}")
        self.type, _, number = name.rpartition("/")[2].partition(":")
        self.index = int(number) if ":" in type or index is not None else None
        self._scopes = []

    @property
    def _sluice_device(self) -> Any:
        return f"{self.type}:{self.index or 0}"

    def __enter__(self) -> Any:
        scope = _C.PlacementScope(device=self._sluice_device)
        self._scopes.append(scope)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._scopes.pop().close()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, device) and (self.type, self.index or 0) == (other.type, other.index or 0)

    def __hash__(self) -> int:
        return hash((self.type, self.index or 0))

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> Any:
        return (device, (self.type, self.index))


_device = device


def set_default_device(device: Any) -> None:
    """Sets the device on which functions create tensors on this thread, when they are not told; None: the cpu.
    torch.set_default_device."""
    made = None if device is None else _device(device)
    if made is not None:
        _C.check_device(made)
    _C.set_default_device(None if made is None or made.type == "cpu" else made)


def get_default_device() -> device:
    """The device of a tensor that is made without one: torch.get_default_device."""
    place = _C.placement_device()
    if place is None:
        return device("cpu")
    place = _device(place)
    return device("cpu") if place.type == "cpu" else device(place.type, place.index or 0)


class _Placement:
    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> Any:
        self._scope = _C.PlacementScope(**self._fields)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._scope.close()


class stream(_Placement):
    """Ops traced inside run on this stream: "compute", "compute:1", ... of their device, or "host", "host:1", ...

    Streams overlap, what is on one stream runs in order. The compute streams of a CPU share its cores evenly.
    """

    def __init__(self, name: Any) -> None:
        super().__init__(stream=name)


class register_quota(_Placement):
    """Registers written inside get `n` slots: how many steps a producer may be ahead of its consumers."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise _C.ValueError(f"register_quota: got {n}; must be at least 1")
        super().__init__(quota=n)
