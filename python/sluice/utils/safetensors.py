"""The safetensors format, by the names of safetensors.torch: a header of JSON, and the bytes of tensors behind it."""

from __future__ import annotations

import io
import json
import math
import os
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice._tensor.float8_dtypes import float8_e4m3fn, float8_e5m2, is_float8
from sluice._tensor.pickling import bytes_of, check_concrete
from sluice._base.replaced_file import replaced
from sluice.errors import TypeError, ValueError  # noqa: A004

_DTYPES = {"F64": _C.float64, "F32": _C.float32, "F16": _C.float16, "BF16": _C.bfloat16, "I64": _C.int64, "I32": _C.int32,
           "I16": _C.int16, "I8": _C.int8, "U8": _C.uint8, "BOOL": _C.bool, "F8_E4M3": float8_e4m3fn, "F8_E5M2": float8_e5m2}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000


def save_file(tensors: dict[str, Any], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Writes tensors by name, and texts by name as `metadata`. Tensors that share memory are written each in full. The file has
    what it had, or all of the new one."""
    with replaced(filename) as file:
        write(tensors, file, metadata)


def write(tensors: dict[str, Any], file: Any, metadata: dict[str, str] | None = None) -> None:
    """As save_file, to a file that is open for writing."""
    header, data = _encoded(tensors, metadata)
    file.write(header)
    for t in data:
        file.write(bytes_of(t))


def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """As save_file, as bytes."""
    header, data = _encoded(tensors, metadata)
    return b"".join([header, *map(bytes_of, data)])


def _encoded(tensors: Any, metadata: Any) -> tuple[bytes, list[Any]]:
    if not isinstance(tensors, dict):
        raise TypeError(f"safetensors: expected a dict of tensors by name: got {type(tensors).__name__}")
    for name, t in tensors.items():
        if not isinstance(name, str) or not isinstance(t, Tensor):
            raise TypeError(f"safetensors: {name!r} is {type(t).__name__}; must be tensors by names, which are text")
        check_concrete("safetensors", t)
        if t.dtype not in _NAMES:
            raise TypeError(f"safetensors: {name!r} has dtype {t.dtype}; must be one of {', '.join(d.name for d in _NAMES)}")
    if not all(isinstance(text, str) for item in (metadata or {}).items() for text in item):
        raise TypeError(f"safetensors: metadata is {metadata!r:.200}; must be texts by name")
    if "__metadata__" in tensors:
        raise ValueError("safetensors: a tensor has the name '__metadata__', which the format has for something else")
    header, order = header_of({name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}, metadata)
    return header, [_bits_of(tensors[name].detach().cpu().contiguous()) for name in order]


def _bits_of(t: Any) -> Any:
    return t.view(_C.uint8) if is_float8(t.dtype) else t


def header_of(shapes: dict[str, tuple[Any, tuple[int, ...]]], metadata: dict[str, str] | None = None) -> tuple[bytes, list[str]]:
    """The first bytes of a file, of dtypes and shapes by name, and the order in which the tensors' bytes follow."""
    # The widest first: then all of them are aligned to their elements.
    order = sorted(shapes, key=lambda name: (-shapes[name][0].itemsize, name))
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata is not None else {}
    end = 0
    for name in order:
        dtype, shape = shapes[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a file by name. Whatever is wrong with the file is a ValueError that names it."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def load(data: bytes) -> dict[str, Any]:
    """As load_file, of bytes."""
    return load_file(io.BytesIO(data))


def is_header(start: bytes) -> bool:
    """Whether a file that begins so can be one of safetensors."""
    return len(start) >= 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= _LONGEST_HEADER


class safe_open:  # noqa: N801  # the name of the library that the format is from
    """A file whose tensors are read one by one: keys(), get_tensor(name), metadata()."""

    def __init__(self, filename: Any, framework: str = "sluice", device: Any = "cpu") -> None:
        path = isinstance(filename, (str, os.PathLike))
        self._name = os.fspath(filename) if path else getattr(filename, "name", f"a {type(filename).__name__}")
        self._device = device
        self._file = open(filename, "rb") if path else filename
        self._own = path
        try:
            self._base, header = self._read_header()
            self._metadata = header.pop("__metadata__", None)
            self._entries = {name: self._checked(name, entry) for name, entry in header.items()}
            self._check_places()
        except BaseException:
            self.close()
            raise

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"safetensors: {self._name}: {what}; the file is cut off or damaged, or none of safetensors")

    def _read_header(self) -> tuple[int, dict[str, Any]]:
        start = self._start = self._file.tell()
        self._size = self._file.seek(0, os.SEEK_END) - start
        self._file.seek(start)
        length = int.from_bytes(self._file.read(8), "little")
        if self._size < 8 or length > min(_LONGEST_HEADER, self._size - 8):
            raise self._wrong(f"the header has {length} bytes, the file {self._size}")
        try:
            header = json.loads(self._file.read(length).decode(), object_pairs_hook=_without_repetition)
        except Exception as error:  # not UTF-8, not JSON, nested too deeply
            raise self._wrong(f"the header is no JSON: {error}") from None
        if not isinstance(header, dict):
            raise self._wrong(f"the header is {type(header).__name__}, not an object")
        metadata = header.get("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise self._wrong("__metadata__ is no object of texts")
        return start + 8 + length, header

    def _checked(self, name: str, entry: Any) -> tuple[Any, tuple[int, ...], int, int]:
        if not isinstance(entry, dict) or sorted(entry) != ["data_offsets", "dtype", "shape"]:
            raise self._wrong(f"tensor {name!r:.80} has not dtype, shape and data_offsets")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if kind not in _DTYPES:
            raise ValueError(f"safetensors: {self._name}: tensor {name!r:.80} has dtype {kind!r:.40}; supported are "
                             f"{', '.join(_DTYPES)}")
        if not (_numbers(shape) and _numbers(offsets) and len(offsets) == 2):
            raise self._wrong(f"tensor {name!r:.80} has shape {shape!r:.80} and data_offsets {offsets!r:.80}")
        begin, end = offsets
        if end - begin != math.prod(shape) * _DTYPES[kind].itemsize or self._base - self._start + end > self._size:
            raise self._wrong(f"tensor {name!r:.80} of shape {shape!r:.80} has data_offsets {offsets}, in a file of "
                              f"{self._size} bytes")
        return _DTYPES[kind], tuple(shape), begin, end

    def _check_places(self) -> None:
        """Every byte belongs to one tensor."""
        expected = 0
        for name, (_, _, begin, end) in sorted(self._entries.items(), key=lambda item: item[1][2:]):
            if begin != expected:
                raise self._wrong(f"tensor {name!r:.80} begins at {begin}; the one before it ends at {expected}")
            expected = end
        available = self._size - (self._base - self._start)
        if expected != available:
            raise self._wrong(f"tensors end at {expected}, the data at {available}")

    def keys(self) -> list[str]:
        """Names, in the order of the data."""
        return sorted(self._entries, key=lambda name: self._entries[name][2:])

    def metadata(self) -> dict[str, str] | None:
        return self._metadata

    def get_tensor(self, name: str) -> Any:
        if name not in self._entries:
            raise KeyError(f"safetensors: {self._name}: no tensor {name!r}; there are {self.keys()!r:.400}")
        dtype, shape, begin, _ = self._entries[name]
        t = empty(shape, dtype=_C.uint8 if is_float8(dtype) else dtype)
        self._file.seek(self._base + begin)
        target = bytes_of(t)
        done = 0
        while done < len(target):
            count = self._file.readinto(target[done:])
            if not count:
                raise self._wrong(f"tensor {name!r} ends after {done} of {len(target)} bytes")
            done += count
        t = t.to(self._device)
        return t.view(dtype) if is_float8(dtype) else t

    def close(self) -> None:
        if self._own:
            self._file.close()

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


def _without_repetition(pairs: Any) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name comes twice")
    return result


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)
