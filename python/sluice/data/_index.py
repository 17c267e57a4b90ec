"""Indexes: which samples there are, in a file of arrays that is mapped into memory and shared by all processes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from typing import Any

import numpy as np

_MAGIC = b"sluice-index-2\n"
_ALIGNMENT = 64


def write(path: str, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Writes facts and arrays; a file of that name is replaced at once or not at all."""
    places, at = {}, 0
    for name, array in arrays.items():
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        places[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "at": at, "crc32": zlib.crc32(np.ascontiguousarray(array))}
        at += array.nbytes
    head = json.dumps({"facts": facts, "arrays": places}).encode()
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            file.write(_MAGIC + len(head).to_bytes(8, "little") + hashlib.sha256(head).digest() + head)
            start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
            for name, array in arrays.items():
                file.seek(start + places[name]["at"])
                file.write(np.ascontiguousarray(array).tobytes())
            file.truncate(max(start + at, file.tell()))
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def read(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and arrays, as mapped memory. Raises FileNotFoundError where there is no such file, or one of another version, OSError where it
    cannot be read, ValueError where it is none."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(len(_MAGIC) + 40)
        if start.startswith(_MAGIC[:-2]) and not start.startswith(_MAGIC):
            raise FileNotFoundError(f"data: {path}: is an index of another version; it is made again")
        length = int.from_bytes(start[len(_MAGIC):len(_MAGIC) + 8], "little")
        if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + 40 or length > size:
            raise ValueError(f"data: {path}: is no index; remove it, and it is made again")
        head = file.read(length)
    if hashlib.sha256(head).digest() != start[len(_MAGIC) + 8:]:
        raise ValueError(f"data: {path}: the index is broken; remove it, and it is made again")
    described = json.loads(head)
    begin = -(-(len(start) + length) // _ALIGNMENT) * _ALIGNMENT
    arrays = {}
    for name, place in described["arrays"].items():
        dtype, shape = np.dtype(place["dtype"]), tuple(place["shape"])
        if begin + place["at"] + dtype.itemsize * int(np.prod(shape)) > size:
            raise ValueError(f"data: {path}: the index ends early; remove it, and it is made again")
        arrays[name] = (np.memmap(path, dtype, "r", begin + place["at"], shape) if 0 not in shape else np.empty(shape, dtype))
        if zlib.crc32(arrays[name]) != place["crc32"]:
            raise ValueError(f"data: {path}: the index is broken; remove it, and it is made again")
    return described["facts"], arrays


def fingerprint(*parts: Any) -> str:
    """A digest of arrays and texts, of 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else np.ascontiguousarray(part).view(np.uint8).reshape(-1)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


class Texts:
    """Many texts in two arrays, which cost no objects until they are asked for."""

    def __init__(self, data: Any, ends: Any) -> None:
        self.data, self.ends = data, ends

    @staticmethod
    def of(texts: Any) -> Texts:
        encoded = [os.fsencode(text) for text in texts]
        return Texts(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(e) for e in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def bytes(self, i: int) -> bytes:
        begin = int(self.ends[i - 1]) if i else 0
        return self.data[begin:int(self.ends[i])].tobytes()

    def __getitem__(self, i: int) -> str:
        return os.fsdecode(self.bytes(i))
