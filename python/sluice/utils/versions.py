"""Parameters that are read while they are trained: readers see whole versions.

    versions = Versions(net, lambda net: Serve(net))    # Serve: a graph, or any function of a module
    for x, y in batches:
        train(x, y)
        versions.publish()                              # what readers see from now on
    ...
    y = versions(x)                                     # in any other thread, at any time
"""

from __future__ import annotations

import contextlib
import copy
import threading
import zlib
from typing import Any, Callable, Iterator

from sluice import _C
from sluice._base.grad_mode import no_grad

__all__ = ["Version", "Versions"]


def _checksum(module: Any) -> int:
    """A checksum of the names and bytes of all parameters and buffers."""
    sum = 0
    for name, value in module.state_dict().items():
        sum = zlib.crc32(value.detach().contiguous().numpy().tobytes(), zlib.crc32(name.encode(), sum))
    return sum


class Version:
    """A published state: its number, from 1 on, its checksum, and `run`, which computes with it."""

    def __init__(self, number: int, checksum: int, module: Any, run: Callable[..., Any]) -> None:
        self.number, self.checksum, self.module, self.run = number, checksum, module, run

    def whole(self) -> bool:
        """Whether the memory that `run` reads still holds what was published."""
        return _checksum(self.module) == self.checksum


class _Slot:
    def __init__(self, module: Any, make: Callable[[Any], Any]) -> None:
        self.module = copy.deepcopy(module).eval()
        self.module.requires_grad_(False)
        self.run, self.readers, self.version = make(self.module), 0, None  # type: ignore[var-annotated]
        self.turn = threading.Lock()  # a graph takes one call at a time


class Versions:
    """Versions of a module's parameters and buffers in `slots` copies. publish() writes a copy that nobody reads, and then lets readers
    see it; who reads the one before goes on with that. So no reader waits for the training, and none sees a state that is half of one
    step and half of another. With 2 slots publish() waits for readers of the version before the last one.

    make: from a module, what computes with it, such as a graph; called once for each slot.
    """

    def __init__(self, module: Any, make: Callable[[Any], Callable[..., Any]], slots: int = 2) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 2:
            raise _C.ValueError(f"Versions: slots: got {slots!r}; must be an int of at least 2, one to read and one to write")
        self._source = module
        self._slots = [_Slot(module, make) for _ in range(slots)]
        self._changed = threading.Condition()
        self._publishing = threading.Lock()
        self._newest: Any = None
        self._count = 0
        self.publish()

    def publish(self) -> int:
        """Makes what the module holds now the newest version; returns its number. Call it between steps, as you would save the module."""
        with self._publishing:
            with self._changed:
                self._changed.wait_for(lambda: self._free() is not None)
                slot: Any = self._free()
            with no_grad():
                given = self._source.state_dict()
                for name, value in slot.module.state_dict().items():
                    value.copy_(given[name])
            version = Version(self._count + 1, _checksum(slot.module), slot.module, slot.run)
            with self._changed:
                slot.version, self._newest = version, slot
                self._count = version.number
            return version.number

    def _free(self) -> Any:
        return next((slot for slot in self._slots if slot.readers == 0 and slot is not self._newest), None)

    @property
    def newest(self) -> int:
        """The number of the newest version."""
        return self._count

    @contextlib.contextmanager
    def read(self) -> Iterator[Version]:
        """The newest version, which stays as it is in the block. One reader at a time computes with a version."""
        with self._changed:
            slot = self._newest
            slot.readers += 1
        try:
            with slot.turn:
                yield slot.version
        finally:
            with self._changed:
                slot.readers -= 1
                self._changed.notify_all()

    def __call__(self, *args: Any) -> Any:
        """The results of the newest version. Values of a graph that is still under way are waited for."""
        with self.read() as version:
            results = version.run(*args)
            synchronize = getattr(version.run, "synchronize", None)
            if synchronize is not None:
                synchronize()
            return results
