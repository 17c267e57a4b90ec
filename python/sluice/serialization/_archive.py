"""The zip file of a checkpoint: records that are not compressed, at multiples of 64 bytes."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import struct
import zipfile
from typing import Any, Iterator

from sluice._base.replaced_file import replaced
from sluice.errors import RuntimeError, ValueError  # noqa: A004

ALIGNMENT = 64
_LOCAL_HEADER = 30  # bytes, before name and extra field
_PADDING_ID = 0x4246  # "FB": an extra field that readers skip
_PIECE = 1 << 22
_DATE = (1980, 1, 1, 0, 0, 0)  # equal contents are equal files


def describe(f: Any) -> str:
    """A file for messages."""
    if isinstance(f, (str, os.PathLike)):
        return os.fspath(f)
    name = getattr(f, "name", None)
    return name if isinstance(name, str) else f"a {type(f).__name__}"


class Writer:
    def __init__(self, file: Any, name: str) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._name = name

    def write(self, record: str, data: Any) -> None:
        info = zipfile.ZipInfo(f"{self._name}/{record}", _DATE)
        view = memoryview(data).cast("B")
        info.file_size = view.nbytes
        large = view.nbytes * 1.05 > zipfile.ZIP64_LIMIT
        start = self._zip.start_dir + _LOCAL_HEADER + len(info.filename.encode()) + 4 + (20 if large else 0)
        padding = -start % ALIGNMENT
        info.extra = struct.pack("<HH", _PADDING_ID, padding) + b"\0" * padding
        with self._zip.open(info, "w", force_zip64=large) as out:
            for begin in range(0, view.nbytes, _PIECE):
                out.write(view[begin:begin + _PIECE])

    def close(self) -> None:
        self._zip.close()


@contextlib.contextmanager
def written(f: Any) -> Iterator[Writer]:
    """A Writer to a path or a file. A path has the old file or all of the new one, whatever happens."""
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise AttributeError(f"save: expected a path or an object with a 'write' attribute, but got {type(f).__name__}")
        whole = all(hasattr(f, name) for name in ("flush", "tell", "seek"))
        target = f if whole else io.BytesIO()
        with contextlib.closing(Writer(target, "archive")) as writer:
            yield writer
        if not whole:
            f.write(target.getvalue())
        return
    path = os.fspath(f)
    parent = os.path.dirname(path) or "."
    if not os.path.isdir(parent):
        raise RuntimeError(f"save: {path}: Parent directory {parent} does not exist.")
    with replaced(path) as file:
        inside = os.fsencode(os.path.splitext(os.path.basename(path))[0]).decode(errors="replace")
        with contextlib.closing(Writer(file, inside or "archive")) as writer:
            yield writer


class Reader:
    """Records by name, without the archive's own name before it. Everything that is wrong is an error that names the file."""

    def __init__(self, f: Any, mapped: bool) -> None:
        self.name = describe(f)
        if isinstance(f, (str, os.PathLike)):
            file = self._own = open(f, "rb")
        else:
            self._own = None
            for method in ("read", "seek", "tell"):
                if not hasattr(f, method):
                    raise AttributeError(f"load: '{type(f).__name__}' object has no attribute '{method}'. A checkpoint "
                                         "is loaded from a path "
                                         "or a file that is seekable; read the data into an io.BytesIO first")
            file = f
        try:
            self._open(file)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if mapped else None
        except BaseException:
            self.close()
            raise

    def _open(self, file: Any) -> None:
        start = file.tell()
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        self._size = file.tell()
        file.seek(start)
        if self._size == start:
            raise EOFError(f"load: {self.name}: the file is empty; must be a checkpoint that save() has written")
        if head[:2] != b"PK":
            raise RuntimeError(f"load: {self.name}: not a zip file; must be a checkpoint in the format of torch.save "
                               "since torch 1.6 (an older "
                               "one: load it in torch and save it again; a graph that was saved: load_graph)")
        try:
            self._zip = zipfile.ZipFile(file)
            records = {info.filename: info for info in self._zip.infolist()}
        except Exception as error:  # of what a broken directory leads zipfile to
            raise RuntimeError(f"load: {self.name}: failed reading zip archive: {error}; the file is cut off or "
                               "damaged") from None
        pickles = [n for n in records if n.count("/") == 1 and n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RuntimeError(f"load: {self.name}: a zip file without data.pkl; must be a checkpoint that save() has written")
        prefix = pickles[0][:-len("data.pkl")]
        if prefix + "constants.pkl" in records:
            raise RuntimeError(f"load: {self.name}: a TorchScript archive, which is code; save a state_dict() in torch instead")
        self._records = {name[len(prefix):]: info for name, info in records.items() if name.startswith(prefix)}
        if "byteorder" in self._records and self.read("byteorder") != b"little":
            raise RuntimeError(f"load: {self.name}: byteorder is {self.read('byteorder')!r:.40}; only little-endian "
                               "checkpoints can be read")

    def size(self, record: str) -> int:
        info = self._records.get(record)
        if info is None:
            raise RuntimeError(f"load: {self.name}: no record {record}; the file is damaged")
        if info.compress_type != zipfile.ZIP_STORED or not info.file_size == info.compress_size <= self._size:
            raise RuntimeError(f"load: {self.name}: record {record} has {info.compress_size} bytes for "
                               f"{info.file_size}, in a file of {self._size}; "
                               "checkpoints are not compressed")
        return info.file_size

    def read(self, record: str) -> bytearray:
        data = bytearray(self.size(record))
        self.read_into(record, memoryview(data))
        return data

    def read_into(self, record: str, target: memoryview) -> None:
        """Fills `target`, which is as long as the record, and checks the record's sum."""
        try:
            with self._zip.open(self._records[record]) as source:
                done = 0
                while done < len(target):
                    piece = source.read(min(_PIECE, len(target) - done))
                    if not piece:
                        raise EOFError(f"ends after {done} of {len(target)} bytes")
                    target[done:done + len(piece)] = piece
                    done += len(piece)
                source.read(1)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, struct.error, ValueError) as error:
            raise RuntimeError(f"load: {self.name}: record {record}: {error}; the file is cut off or damaged") from None

    def mapped(self, record: str) -> memoryview | None:
        """The record in the mapped file, if that is wanted and it lies at a multiple of 8 bytes. Its sum is not checked."""
        if self._map is None:
            return None
        size, start = self.size(record), self._records[record].header_offset
        header = self._map[start:start + _LOCAL_HEADER]
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise RuntimeError(f"load: {self.name}: record {record} has no header; the file is damaged")
        name, extra = struct.unpack_from("<HH", header, 26)
        start += _LOCAL_HEADER + name + extra
        if start + size > len(self._map):
            raise RuntimeError(f"load: {self.name}: record {record} ends beyond the file, which is cut off")
        return None if start % 8 else memoryview(self._map)[start:start + size]

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
