"""The rows of a file that are in memory: those that were looked up last, and those that will be looked up next."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from sluice import _C


class RowCache:
    """Slots for rows of a RowFile.

    Pinned rows stay where they are; of others, those go first that were used longest ago, and changed ones are written to the
    file then. One thread at a time may call pin() and flush(), which read and write the file; the other methods may be called
    meanwhile by whoever has pinned the rows.
    """

    def __init__(self, file: Any, capacity: int) -> None:
        self._file, self.capacity = file, capacity
        self.values = np.empty((capacity, file.width), np.float32)
        self._lock = threading.Lock()  # of what follows
        self._row_of = np.full(capacity, -1, np.int64)
        self._used = np.zeros(capacity, np.int64)
        self._pins = np.zeros(capacity, np.int32)
        self._changed = np.zeros(capacity, bool)
        self._keys = np.empty(0, np.int64)  # rows in memory, ascending
        self._slots = np.empty(0, np.int64)  # and where
        self._free = np.arange(capacity, dtype=np.int64)
        self._clock = 0
        self.hits = self.misses = self.written = 0

    def pin(self, rows: Any) -> Any:
        """The slots of these rows, which are different and ascend. MemoryError, with nothing pinned, where too many others are."""
        with self._lock:
            self._clock += 1
            at = np.searchsorted(self._keys, rows)
            known = np.zeros(len(rows), bool)
            inside = at < len(self._keys)
            known[inside] = self._keys[at[inside]] == rows[inside]
            slots = np.full(len(rows), -1, np.int64)
            slots[known] = self._slots[at[known]]
            missing = rows[~known]
            room = self.capacity - int((self._pins > 0).sum()) - int((self._pins[slots[known]] == 0).sum())
            if len(missing) > room:
                raise _C.MemoryError(f"DiskTable: a batch looks up {len(rows)} rows, of which {len(missing)} are on the disk, and {room} of "
                                     f"the {self.capacity} slots of the cache are not in use; make the cache larger, or the batch or `depth` "
                                     "smaller")
            self._pins[slots[known]] += 1
            self._used[slots[known]] = self._clock
            gone = self._choose(len(missing) - len(self._free))
        try:
            if len(gone):
                self._write(gone)
            with self._lock:
                self._forget(gone)
                fresh, self._free = self._free[:len(missing)], self._free[len(missing):]
            read = np.empty((len(missing), self._file.width), np.float32)
            self._file.read(missing, read)
        except BaseException:
            with self._lock:
                self._pins[slots[known]] -= 1
            raise
        with self._lock:
            self.values[fresh] = read
            slots[~known] = fresh
            self._row_of[fresh], self._used[fresh], self._pins[fresh] = missing, self._clock, 1
            where = np.searchsorted(self._keys, missing)
            self._keys, self._slots = np.insert(self._keys, where, missing), np.insert(self._slots, where, fresh)
            self.hits, self.misses = self.hits + int(known.sum()), self.misses + len(missing)
        return slots

    def _choose(self, wanted: int) -> Any:
        """Slots to be emptied: as many as are wanted, and a few more, since they are looked for in all of them."""
        if wanted <= 0:
            return np.empty(0, np.int64)
        idle = np.flatnonzero((self._pins == 0) & (self._row_of >= 0))
        count = min(len(idle), max(wanted, self.capacity // 16))
        return idle[np.argpartition(self._used[idle], count - 1)[:count]] if count < len(idle) else idle

    def _forget(self, slots: Any) -> None:
        kept = ~np.isin(self._slots, slots, assume_unique=True)
        self._keys, self._slots = self._keys[kept], self._slots[kept]
        self._row_of[slots] = -1
        self._free = np.concatenate([self._free, slots])

    def _write(self, slots: Any) -> None:
        slots = slots[self._changed[slots]]
        slots = slots[np.argsort(self._row_of[slots])]
        if len(slots):
            self._file.write(self._row_of[slots], self.values[slots])
            self._changed[slots] = False
            self.written += len(slots)

    def change(self, slots: Any, values: Any) -> None:
        """New contents of pinned rows."""
        with self._lock:
            self.values[slots] = values
            self._changed[slots] = True

    def unpin(self, slots: Any) -> None:
        with self._lock:
            self._pins[slots] -= 1

    def pinned(self) -> int:
        with self._lock:
            return int((self._pins > 0).sum())

    def flush(self) -> None:
        """Writes what was changed. REQUIRES: nobody changes anything meanwhile."""
        self._write(np.flatnonzero(self._changed))
