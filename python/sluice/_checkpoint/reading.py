"""Loading: each rank reads the pieces that lie in what it has, whatever ranks have written them."""

from __future__ import annotations

import math
import mmap
import os
from typing import Any

from sluice import serialization
from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice._base.job import state as job
from sluice._base.json_file import read_json
from sluice._checkpoint import files, ranks
from sluice._checkpoint.pieces import Spans, in_parts, mine, span_of, whole
from sluice._checkpoint.trees import Tree, restored
from sluice._tensor.components import common, cut, sizes_of
from sluice._tensor.creation import empty, frombuffer
from sluice._tensor.pickling import bytes_of
from sluice.errors import OSError, ValueError  # noqa: A004
from sluice.utils import safetensors


class Source:
    """A checkpoint whose index, files and pieces have been looked at."""

    def __init__(self, path: Any) -> None:
        self.path = os.path.abspath(os.fspath(path))
        index = os.path.join(self.path, files.INDEX)
        if not os.path.exists(index):
            raise OSError(f"checkpoint: {self.path}: no checkpoint; it has no {files.INDEX}")
        self._read_index(read_json(index, "checkpoint: "))
        self._open: dict[str, _Shard] = {}

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"checkpoint: {self.path}: {what}")

    def _read_index(self, index: Any) -> None:
        if not isinstance(index, dict) or index.get("format") != files.FORMAT:
            raise self._wrong(f"{files.INDEX} has no format {files.FORMAT}; another version has written it, or something else")
        try:
            self.id = str(index["id"])
            self.ranks = int(index["ranks"])
            listed = {files.check_name(self.path, name): int(size) for name, size in index["files"].items()}
            self.tensors = {name: _Entry(self, name, entry) for name, entry in index["tensors"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise self._wrong(f"{files.INDEX} is damaged: {type(error).__name__}: {error}") from None
        for name, size in listed.items():
            there = os.path.join(self.path, name)
            if not os.path.exists(there):
                raise self._wrong(f"the file {name} is missing")
            if os.path.getsize(there) != size:
                raise self._wrong(f"the file {name} has {os.path.getsize(there)} bytes; must have {size}: it is cut off, or another's")
        unknown = {file for entry in self.tensors.values() for _, file, _ in entry.pieces} - listed.keys()
        if unknown or files.REST not in listed:
            raise self._wrong(f"{files.INDEX} is damaged: it has no size of {min(unknown, default=files.REST)}")

    def rest(self) -> Any:
        return serialization.load(os.path.join(self.path, files.REST))

    def look(self, name: str, spans: Spans) -> None:
        """Opens what fill() will read."""
        entry = self.tensors[name]
        for within, file, key in entry.pieces:
            if common(spans, within) is not None:
                self._shard(file).check(key, entry.dtype, sizes_of(within))

    def fill(self, target: Tensor, name: str, spans: Spans) -> None:
        """Writes the part `spans` of a tensor to `target`."""
        for within, file, key in self.tensors[name].pieces:
            both = common(spans, within)
            if both is not None:
                cut(target, both, spans).copy_(cut(self._shard(file).tensor(key), both, within))

    def read(self, name: str) -> Tensor:
        """The whole tensor."""
        entry = self.tensors[name]
        t = empty(entry.shape, dtype=entry.dtype)
        self.fill(t, name, whole(entry.shape))
        return t

    def _shard(self, file: str) -> _Shard:
        if file not in self._open:
            self._open[file] = _Shard(self, file)
        return self._open[file]


class _Entry:
    """The pieces of a tensor, as the index says: together they are the whole, and each is there once."""

    def __init__(self, source: Source, name: str, entry: Any) -> None:
        self.dtype = safetensors._DTYPES[entry["dtype"]]
        self.shape = tuple(_sizes(entry["shape"]))
        self.model = entry.get("model")
        self.pieces = []
        for piece in entry["pieces"]:
            spans = tuple((start, end) for start, end in (_sizes(span) for span in piece["spans"]))
            if len(spans) != len(self.shape) or not all(start <= end <= n for (start, end), n in zip(spans, self.shape)):
                raise source._wrong(f"{files.INDEX} is damaged: a piece of '{name}' lies at {spans} of {self.shape}")
            self.pieces.append((spans, files.check_name(source.path, piece["file"]), str(piece["key"])))
        covered = sum(math.prod(sizes_of(spans)) for spans, _, _ in self.pieces)
        apart = len(self.pieces) < 2 or not any(common(a[0], b[0]) for i, a in enumerate(self.pieces) for b in self.pieces[:i])
        if covered != math.prod(self.shape) or not apart or (not self.shape and len(self.pieces) != 1):
            raise source._wrong(f"{files.INDEX} is damaged: the pieces of '{name}' are not the whole, each once")


def _sizes(values: Any) -> list[int]:
    if not safetensors._numbers(values):
        raise TypeError(f"{values!r:.80} for numbers")
    return list(values)


class _Shard:
    """A file of safetensors, in memory page by page as it is read."""

    def __init__(self, source: Source, name: str) -> None:
        self._where, self._source = os.path.join(source.path, name), source
        with safetensors.safe_open(self._where) as file:
            self._entries, self._base = file._entries, file._base
            said = (file.metadata() or {}).get("checkpoint")
        if said != source.id:
            raise source._wrong(f"the file {name} is of another checkpoint ({said!r:.40}; the index is of {source.id!r})")
        with open(self._where, "rb") as opened:
            self._pages = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)

    def check(self, key: str, dtype: Any, shape: list[int]) -> None:
        entry = self._entries.get(key)
        if entry is None or (entry[0], list(entry[1])) != (dtype, shape):
            raise self._source._wrong(f"the file {os.path.basename(self._where)} has no {key!r} of {dtype.name}{tuple(shape)}")

    def tensor(self, key: str) -> Tensor:
        dtype, shape, begin, end = self._entries[key]
        if begin == end:
            return empty(shape, dtype=dtype)
        return frombuffer(self._pages, dtype=dtype, count=(end - begin) // dtype.itemsize, offset=self._base + begin).reshape(shape)


def load(state: dict[str, Any], path: Any) -> None:
    """Reads what save() has written into `state`, which may lie in any other way, on any number of ranks.

    Tensors are written in place; what is neither a tensor nor has load_state_dict() takes the place of the entry of the dict. All
    ranks must call it. Missing, cut off or foreign files, and names, shapes or dtypes that differ, are an error on every rank by
    name, before anything is written.
    """
    source, tree, rest = ranks.together("checkpoint", lambda: _looked_at(state, path))
    with no_grad():
        for name, t in tree.tensors.items():
            spans = span_of(t, name, job.rank)
            if spans is None or not math.prod(sizes_of(spans)):
                continue
            if in_parts(t):
                source.fill(mine(t), name, spans)
            else:
                t.detach().copy_(source.read(name))
    for key, value in rest.items():
        found = restored(value, tree.tensors)
        if key in tree.stateful:
            tree.stateful[key].load_state_dict(found)
        else:
            state[key] = found


def _looked_at(state: Any, path: Any) -> tuple[Source, Tree, Any]:
    """Everything that can be wrong is found here."""
    source, tree = Source(path), Tree(state, "checkpoint")
    rest = source.rest()
    here, there = {*tree.tensors, *tree.rest}, {*source.tensors, *rest}
    wrong = [f"no '{name}' is saved" for name in sorted(here - there)] + [f"'{name}' is saved, and not in the state" for name in sorted(there - here)]
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise source._wrong(f"it does not fit the state: {', '.join(wrong[:5])}{more}")
    for name, t in tree.tensors.items():
        entry = source.tensors[name]
        if entry.shape != tuple(t._shape) or entry.dtype is not t.dtype:
            raise source._wrong(f"'{name}' is {entry.dtype.name}{entry.shape} there; the state has {t.dtype.name}{tuple(t._shape)}")
        spans = span_of(t, name, job.rank)
        if spans is not None:
            source.look(name, spans)
    return source, tree, rest


def export(path: Any, to: Any) -> None:
    """Writes the model of a checkpoint with all of its tensors whole, one after another, to the new folder `to`: model.safetensors,
    and config.json where there is one. One process does that; it needs the memory of the largest tensor."""
    source, to = Source(path), os.path.abspath(os.fspath(to))
    names = {entry.model: name for name, entry in source.tensors.items() if entry.model is not None}
    if not names:
        raise source._wrong("it has no tensors of a model; save with a module, or one graph with one module")
    if os.path.lexists(to):
        raise ValueError(f"export: {to}: is there already; must be a new folder")
    shapes = {own: (source.tensors[name].dtype, source.tensors[name].shape) for own, name in names.items()}
    folder = files.begun(to)
    with files.synced(folder, "model.safetensors") as file:
        header, order = safetensors.header_of(shapes, {"format": "pt"})
        file.write(header)
        for own in order:
            file.write(bytes_of(source.read(names[own])))
    config = os.path.join(source.path, "config.json")
    if os.path.exists(config):
        with open(config, "rb") as there, files.synced(folder, "config.json") as file:
            file.write(there.read())
    files.commit(folder, to)

