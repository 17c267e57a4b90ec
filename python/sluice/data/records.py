"""Record files: TensorFlow's framing of records, with an index at the end, so that any record is found at once.

A record is its length (8 bytes), a masked CRC-32C of that, its bytes, and a masked CRC-32C of them. The last but one record of a
file that Writer has made is the index, and the last says where it begins. Other programs read such a file, and see two records more.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Iterator

import numpy as np

from sluice._C import fn
from sluice.utils._framing import framed, masked

__all__ = ["Writer", "read", "read_index"]

_INDEX = b"sluice-records-index-1\n"
_END = b"sluice-records-end-1\n"


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


def read(path: Any) -> Iterator[bytes]:
    """All records of a file in order, without the index; each is checked. Raises ValueError where one is broken."""
    path = os.fspath(path)
    places = _places(path, "records.read", lengths=True)
    with open(path, "rb") as file:
        for offset, length in places[:, :2].tolist():
            file.seek(offset)
            data, told = file.read(length), file.read(4)
            if len(told) < 4 or struct.unpack("<I", told)[0] != masked(data):
                raise ValueError(f"records.read: {path}: the record at byte {offset - 12} is broken: its check sum is another one")
            yield data


def read_index(path: Any) -> Any:
    """(offset, length, label) of each record, int64: from the index at the end, else by reading all lengths, with labels 0."""
    return _places(os.fspath(path), "data.records", lengths=False)


def _places(path: str, what: str, lengths: bool) -> Any:
    try:
        return np.frombuffer(fn.record_places(os.fsencode(path), lengths), np.int64).reshape(-1, 3)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
