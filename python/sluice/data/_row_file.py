"""A file of rows, which may be larger than memory: a header of one page, then the rows, one after another."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
from typing import Any

import numpy as np

from sluice import _C

PAGE = 4096
FORMAT = "sluice rows 1"
KEYS = {"format", "rows", "dim", "states", "optimizer", "options", "step", "closed"}
ROWS_AT_ONCE = 1024  # a row brings up to 64 KiB of the file into this process's memory, until its pages are let go of


class RowFile:
    """Reads by a mapping, whose pages are let go of at once; writes by the system's calls, which say when the disk is full.

    A row is `dim` numbers, and `states` times as many of what the optimizer keeps of it. Rows that were never written are
    zeros, and take no room on the disk.
    """

    def __init__(self, path: Any, writes: bool, recover: bool = False) -> None:
        self.path = os.fspath(path)
        try:
            self._file = os.open(self.path, os.O_RDWR if writes else os.O_RDONLY)
        except OSError as error:
            raise _C.OSError(f"DiskTable: {self.path}: cannot be opened: {error.strerror}") from None
        self._map: Any = None
        try:
            self._lock(writes)
            self.header = self._read_header(recover or not writes)
            self.width = self.header["dim"] * (1 + self.header["states"])
            expected = PAGE + self.header["rows"] * self.width * 4
            if os.fstat(self._file).st_size != expected:
                raise _C.ValueError(f"DiskTable: {self.path}: has {os.fstat(self._file).st_size} bytes; must have {expected}, as its header "
                                    "says")
            self._map = mmap.mmap(self._file, expected, access=mmap.ACCESS_READ)
            self._map.madvise(mmap.MADV_RANDOM)
            self._rows = np.frombuffer(self._map, np.float32, offset=PAGE).reshape(self.header["rows"], self.width)
            if writes:
                self.write_header(closed=False)
        except BaseException:
            self._release()
            raise

    @staticmethod
    def make(path: Any, header: dict[str, Any]) -> None:
        """A file of zeros. FileExistsError if there is one: what it holds would be lost."""
        width = header["dim"] * (1 + header["states"])
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise FileExistsError(f"DiskTable: {os.fspath(path)}: is there already; open it, or remove it first") from None
        except OSError as error:
            raise _C.OSError(f"DiskTable: {os.fspath(path)}: cannot be made: {error.strerror}") from None
        try:
            os.pwrite(file, _header_bytes({**header, "format": FORMAT, "step": 0, "closed": True}), 0)
            os.ftruncate(file, PAGE + header["rows"] * width * 4)
        except OSError as error:
            os.unlink(path)
            raise _C.OSError(f"DiskTable: {os.fspath(path)}: cannot be made: {error.strerror}") from None
        finally:
            os.close(file)

    def _lock(self, writes: bool) -> None:
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if writes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            raise _C.RuntimeError(f"DiskTable: {self.path}: is open elsewhere, and one of the two writes; close it there first") from None

    def _read_header(self, unclosed: bool) -> dict[str, Any]:
        try:
            header = json.loads(os.pread(self._file, PAGE, 0).rstrip(b"\0 \n"))
        except ValueError:
            header = None
        numbers = ("rows", "dim", "states", "step")
        if not isinstance(header, dict) or set(header) != KEYS or header["format"] != FORMAT \
                or not all(isinstance(header[name], int) and header[name] >= 0 for name in numbers) \
                or not 1 <= header["rows"] <= 2**40 or not 1 <= header["dim"] <= 2**16 or header["states"] > 2:
            raise _C.ValueError(f"DiskTable: {self.path}: is no file of a DiskTable; its header must be that of '{FORMAT}'")
        if not header["closed"] and not unclosed:
            raise _C.RuntimeError(f"DiskTable: {self.path}: was not closed, so some rows may be newer than others; take its last checkpoint, "
                                  "or open it with recover=True")
        return header

    def write_header(self, **changes: Any) -> None:
        self.header.update(changes)
        os.pwrite(self._file, _header_bytes(self.header), 0)

    def read(self, rows: Any, out: Any) -> None:
        """The rows of these numbers, which ascend."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            np.take(self._rows, rows[some], axis=0, out=out[some])
            self._map.madvise(mmap.MADV_DONTNEED)

    def write(self, rows: Any, values: Any) -> None:
        """Writes rows, whose numbers ascend, those that follow each other together."""
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        for start, end in zip([0, *ends], [*ends, len(rows)]):
            data = memoryview(np.ascontiguousarray(values[start:end])).cast("B")
            at = PAGE + int(rows[start]) * self.width * 4
            while data:
                try:
                    written = os.pwrite(self._file, data, at)
                except OSError as error:
                    raise _C.OSError(f"DiskTable: {self.path}: rows {rows[start]} to {rows[end - 1]} cannot be written: "
                                     f"{error.strerror}") from None
                data, at = data[written:], at + written

    def copy_to(self, path: Any) -> None:
        """A whole file with what this one holds, its holes included. It is there at once, or not at all."""
        made = f"{os.fspath(path)}.{os.getpid()}.part"
        try:
            target = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                size = os.fstat(self._file).st_size
                os.ftruncate(target, size)
                at = PAGE
                while at < size:
                    try:
                        start = os.lseek(self._file, at, os.SEEK_DATA)
                    except OSError as error:
                        if error.errno == errno.ENXIO:  # a hole up to the end
                            break
                        raise
                    at = os.lseek(self._file, start, os.SEEK_HOLE)
                    while start < at:
                        data = os.pread(self._file, min(at - start, 1 << 24), start)
                        start += os.pwrite(target, data, start)
                os.pwrite(target, _header_bytes({**self.header, "closed": True}), 0)
                os.fsync(target)
            finally:
                os.close(target)
            os.replace(made, path)
            folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            if os.path.exists(made):
                os.unlink(made)
            raise _C.OSError(f"DiskTable.save: {os.fspath(path)}: cannot be written: {error.strerror}") from None

    def close(self, whole: bool) -> None:
        """whole: all that was changed has been written."""
        if self._file >= 0 and whole:
            os.fsync(self._file)
            self.write_header(closed=True)
        self._release()

    def _release(self) -> None:
        self._rows = None
        if self._map is not None:
            self._map.close()
        if self._file >= 0:
            os.close(self._file)
        self._map, self._file = None, -1


def _header_bytes(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    if len(text) > PAGE:
        raise _C.ValueError(f"DiskTable: the options of the optimizer take {len(text)} bytes; a header has room for {PAGE}")
    return text.ljust(PAGE, b"\0")
