"""Checkpoints in torch's format, both ways: torch.save, torch.load and torch.serialization."""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import empty, frombuffer
from sluice._base.device import device
from sluice._tensor.pickling import bytes_of
from sluice._base.grad_mode import no_grad
from sluice.errors import RuntimeError, TypeError, ValueError  # noqa: A004
from sluice.serialization import _archive, _unpickler
from sluice.serialization._names import (StorageType, add_safe_globals as add_safe_globals,
                                         clear_safe_globals as clear_safe_globals, get_safe_globals as get_safe_globals,
                                         safe_globals as safe_globals)
from sluice.serialization._rebuild import Storage
from sluice.utils import safetensors


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True, *, freeze: bool = False) -> None:
    """Writes an object with its tensors to a path or file, as torch.save does: torch.load reads it. A graph becomes a bundle.

    Tensors that share memory share it after load(), too; of a storage only what they see is written. A path has the file of
    before, or all of the new one. A compiled nn.Graph, or a list of them, is written as a directory (load_graph); so is a
    pipeline of sluice.data.

    freeze: of a graph, take the weights that no step changes for constants, and compute what depends on them alone now.
    """
    from sluice._graph.bundle import LoadedGraph, save_graph
    from sluice._graph.graph import Graph

    if hasattr(type(obj), "as_graph"):
        obj = obj.as_graph()
        obj.compile()
    graphs = obj if isinstance(obj, (list, tuple)) else [obj]
    if graphs and all(isinstance(g, (Graph, LoadedGraph)) for g in graphs):
        return save_graph(obj, f, freeze=freeze)
    if freeze:
        raise ValueError(f"save: freeze: got {type(obj).__name__}; only compiled graphs can be frozen")
    if pickle_module is not pickle:
        raise NotImplementedError(f"save: pickle_module {getattr(pickle_module, '__name__', pickle_module)!r} is not "
                                  "supported; only pickle is")
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("save: the format of before torch 1.6 is not written; leave out "
                                  "_use_new_zipfile_serialization=False")
    from sluice.serialization._pickler import pickled

    data, storages = pickled(obj, pickle_protocol)
    with _archive.written(f) as writer:
        writer.write("data.pkl", data)
        writer.write("byteorder", b"little")
        for storage in storages:
            writer.write(f"data/{storage.key}", storage.data())
        writer.write("version", b"3\n")


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """Reads what save() or torch.save has written, from a path or a file that is seekable; torch.load.

    A file of safetensors gives its dict of tensors (sluice.utils.safetensors).

    map_location: a device, a dict from saved devices to others, or a function of a storage, as a tensor of one dim, and its
    saved device, which returns the storage where it shall be (None: where it was). None: as they were saved.
    weights_only: read only tensors, containers, numbers, text and what add_safe_globals has added; everything else is
    refused by name and never run. False runs whatever code the file names. None is True, unless a pickle_module is given.
    mmap: tensors are pages of the file, read when first used; writing changes memory only. Needs a path.
    """
    if weights_only is None:
        weights_only = pickle_module is None
    if weights_only and pickle_module is not None:
        raise RuntimeError("load: Can not safely load weights when explicit pickle_module is specified; leave it out, "
                           "or say weights_only=False")
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("load: f must be a file path in order to use the mmap argument")
    if isinstance(f, (str, os.PathLike)) and os.path.isdir(f):
        raise IsADirectoryError(f"load: {os.fspath(f)}: a directory; a graph that was saved is loaded by load_graph")
    if _is_safetensors(f):
        if map_location is not None and not isinstance(map_location, (str, device)):
            raise TypeError(f"load: map_location is {map_location!r:.80}; of a file of safetensors it is a device, "
                            "since the file names none")
        return safetensors.load_file(f, map_location or "cpu")
    reader = _archive.Reader(f, bool(mmap))
    try:
        return _Loading(reader, map_location).run(weights_only, pickle_module or pickle, pickle_load_args)
    finally:
        reader.close()


def _is_safetensors(f: Any) -> bool:
    with open(f, "rb") if isinstance(f, (str, os.PathLike)) else contextlib.nullcontext(f) as file:
        if not all(hasattr(file, name) for name in ("read", "seek", "tell")):
            return False
        start = file.tell()
        head = file.read(9)
        file.seek(start)
    return safetensors.is_header(head)


class _Loading:
    """One load: the storages that were read so far."""

    def __init__(self, reader: _archive.Reader, map_location: Any) -> None:
        self._reader, self._map_location = reader, map_location
        self._storages: dict[str, Storage] = {}
        self._error: Exception | None = None  # of a storage: no fault of the pickle, which reads on through it

    def run(self, weights_only: bool, module: Any, options: dict[str, Any]) -> Any:
        data, encoding = bytes(self._reader.read("data.pkl")), options.pop("encoding", "utf-8")
        where = f"load: {self._reader.name}"
        if weights_only and options:
            raise TypeError(f"load: got an unexpected keyword argument '{next(iter(options))}'")
        try:
            with no_grad():
                if not weights_only:
                    return _unpickler.full(module, data, self._persistent, encoding, **options)
                return _unpickler.Restricted(data, self._persistent, encoding).load()
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{where}: {'Weights only load failed: ' if weights_only else ''}{error}") from None
        except Exception as error:  # whatever broken or hostile data leads to
            if self._error is not None:
                raise self._error from None
            if not weights_only:
                raise  # of code that the file names
            raise pickle.UnpicklingError(f"{where}: Weights only load failed: data.pkl is damaged: "
                                         f"{type(error).__name__}: {error}") from None

    def _persistent(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], StorageType)
                and isinstance(pid[2], str) and isinstance(pid[3], str) and type(pid[4]) is int):
            raise pickle.UnpicklingError(f"the persistent id {pid!r:.200}; must be a storage")
        _, kind, key, location, count = pid[:5]
        dtype = kind.dtype or _C.uint8
        if key not in self._storages:
            try:
                self._storages[key] = Storage(self._place(self._read(key, dtype, count), location))
            except Exception as error:
                self._error = error
                raise
        storage = self._storages[key]
        if storage.values.dtype is not dtype:
            raise pickle.UnpicklingError(f"storage {key} is of {storage.values.dtype} and of {dtype}; must be of one dtype")
        return storage

    def _read(self, key: str, dtype: Any, count: int) -> Any:
        record = f"data/{key}"
        size = self._reader.size(record)
        if size != count * dtype.itemsize:
            raise RuntimeError(f"load: {self._reader.name}: record {record} has {size} bytes; its tensors need {count} "
                               f"elements of {dtype}")
        if not count:
            return empty(0, dtype=dtype)
        mapped = self._reader.mapped(record)
        if mapped is not None:
            return frombuffer(mapped, dtype=dtype)
        values = empty(count, dtype=dtype)
        self._reader.read_into(record, bytes_of(values))
        return values

    def _place(self, values: Any, location: str) -> Any:
        """The storage on the device that map_location says."""
        place = self._map_location
        if callable(place):
            result = place(values, location)
            if result is not None:
                if not isinstance(result, Tensor) or result.shape != values.shape or result.dtype is not values.dtype:
                    raise TypeError(f"load: map_location returned {result!r:.80}; must be the storage that it got, on "
                                    "some device, or None")
                return result
            place = None
        if isinstance(place, dict):
            place = place.get(location)
        try:
            return values.to(location if place is None else place)
        except Exception as error:
            if place is not None:
                raise
            raise RuntimeError(f"load: {self._reader.name}: Attempting to deserialize object on device {location}, "
                               f"which is not there: {error}; "
                               "map_location='cpu' loads to the CPU") from None


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a checkpoint that load(weights_only=True) would refuse. Runs nothing of it."""
    from sluice.serialization import _names

    reader = _archive.Reader(f, False)
    try:
        found = _unpickler.globals_of(bytes(reader.read("data.pkl")))
    finally:
        reader.close()
    known = {**_names.TORCH, **_names.PYTHON, **_names.safe_globals_by_name()}
    return sorted({name for name in found if name not in known})
