"""Record files: TensorFlow's framing of records, with an index at the end, so that any record is found at once.

A record is its length (8 bytes), a masked CRC-32C of that, its bytes, and a masked CRC-32C of them. The last but one record of a
file that Writer has made is the index, and the last says where it begins. Other programs read such a file, and see two records more.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Iterator

import numpy as np

from sluice.utils._framing import framed, masked

__all__ = ["Writer", "read", "read_index"]

_INDEX = b"sluice-records-index-1\n"
_END = b"sluice-records-end-1\n"
_AROUND = 16  # bytes of lengths and check sums for each record


class Writer:
    """Writes a record file: `with Writer(path) as file: file.write(data, label)`. The file is there under its name once it is whole."""

    def __init__(self, path: Any) -> None:
        self._path = os.fspath(path)
        self._unfinished = f"{self._path}.unfinished-{os.getpid()}"
        self._file: Any = open(self._unfinished, "wb")  # noqa: SIM115
        self._rows: list[tuple[int, int, int]] = []

    def write(self, data: Any, label: int = 0) -> int:
        """Adds a record, with a label in the index; returns its number."""
        data = bytes(data)
        self._rows.append((self._file.tell() + 12, len(data), int(label)))
        self._file.write(framed(data))
        return len(self._rows) - 1

    def close(self) -> None:
        if self._file is None:
            return
        at = self._file.tell()
        table = np.array(self._rows, "<i8").reshape(-1, 3)
        self._file.write(framed(_INDEX + table.tobytes()) + framed(_END + struct.pack("<Q", at)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        os.replace(self._unfinished, self._path)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            return self.close()
        self._file.close()
        self._file = None
        os.unlink(self._unfinished)


def _record(file: Any, path: str, at: int, size: int, what: str) -> tuple[int, bytes]:
    """(where the next record begins, the bytes of the one at `at`)."""
    file.seek(at)
    head = file.read(12)
    if len(head) < 12 or struct.unpack("<I", head[8:])[0] != masked(head[:8]):
        raise ValueError(f"{what}: {path}: no record at byte {at}: its length is broken; must be a file of records")
    length = struct.unpack("<Q", head[:8])[0]
    if length > size - at - _AROUND:
        raise ValueError(f"{what}: {path}: the record at byte {at} has {length} bytes; the file ends before")
    data = file.read(length)
    if struct.unpack("<I", file.read(4))[0] != masked(data):
        raise ValueError(f"{what}: {path}: the record at byte {at} is broken: its check sum is another one")
    return at + length + _AROUND, data


def read(path: Any) -> Iterator[bytes]:
    """All records of a file in order, without the index; each is checked. Raises ValueError where one is broken."""
    path = os.fspath(path)
    size, at = os.path.getsize(path), 0
    with open(path, "rb") as file:
        while at < size:
            at, data = _record(file, path, at, size, "records.read")
            if data.startswith(_INDEX) and at < size and _footer(file, path, size) == at - len(data) - _AROUND:
                return
            yield data


def _footer(file: Any, path: str, size: int) -> int | None:
    """Where the index begins, where there is one."""
    at = size - len(_END) - 8 - _AROUND
    if at < 0:
        return None
    file.seek(at + 12)
    if not file.read(len(_END)) == _END:
        return None
    _, data = _record(file, path, at, size, "data.records")
    return int(struct.unpack("<Q", data[len(_END):])[0])


def read_index(path: Any) -> Any:
    """(offset, length, label) of each record, int64: from the index at the end, else by reading all lengths, with labels 0."""
    path = os.fspath(path)
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        at = _footer(file, path, size)
        if at is not None:
            _, data = _record(file, path, at, size, "data.records")
            rows = data[len(_INDEX):]
            if not data.startswith(_INDEX) or len(rows) % 24:
                raise ValueError(f"data.records: {path}: the index at byte {at} is none; write the file again")
            table = np.frombuffer(rows, "<i8").reshape(-1, 3).astype(np.int64)
            if len(table) and (table[:, :2].min() < 0 or (table[:, 0] + table[:, 1]).max() > size or table.max() > 1 << 62):
                raise ValueError(f"data.records: {path}: the index names records beyond the file; write the file again")
            return table
        found, at = [], 0
        while at < size:
            file.seek(at)
            head = file.read(12)
            if len(head) < 12 or struct.unpack("<I", head[8:])[0] != masked(head[:8]):
                raise ValueError(f"data.records: {path}: no record at byte {at}: its length is broken; must be a file of records")
            length = struct.unpack("<Q", head[:8])[0]
            if length > size - at - _AROUND:
                raise ValueError(f"data.records: {path}: the record at byte {at} has {length} bytes; the file ends before")
            found.append((at + 12, length, 0))
            at += length + _AROUND
        return np.array(found, np.int64).reshape(-1, 3)
