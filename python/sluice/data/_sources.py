"""Sources: where samples come from. A source says what there is; which of it comes when is the order's business."""

from __future__ import annotations

import csv as csv_module
import glob as glob_module
import hashlib
import itertools
import os
import pickle
import re
import stat
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np

from sluice import _C
from sluice._C import fn
from sluice._base.progress import with_progress
from sluice.data import _index, records as records_module
from sluice.data._index import Texts
from sluice.data._tuning import Spent

_HEAD = 4  # int64 for each file: base/files/packed_files.h


class Source:
    """`count` samples by number. `images`: their first part is encoded, and to be decoded. `direct`: read() gives any samples at any
    time; else a Mapped makes batches of them, with as many `workers` at least. `random`: samples are others in each epoch.
    `boxes`: values beside an image are places in the whole of it. `kept`: bytes that it keeps in memory."""

    count: int
    images = False
    boxes = False
    direct = False
    random = False
    workers = 0
    kept = 0
    fingerprint: str

    def digest(self) -> str:
        """A digest of what the samples are, for those who keep them: of bytes in memory, and of sizes and times of files. `fingerprint` says
        which samples they are, also of copies elsewhere."""
        return self.fingerprint

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        """Shapes and dtypes of what read() gives."""
        raise NotImplementedError(f"{type(self).__name__}: no parts(); a source must define it")

    def begin(self, coming: Any, policy: str) -> None:
        """Told before the first read(): the ids and keys of all batches to come, for those who make them ahead of time, and what becomes of
        bad samples (Pipeline.on_error)."""

    def read(self, ids: Any, batch: int) -> list[Any]:
        """The arrays of a batch of these samples, which may be fewer than `batch`."""
        raise NotImplementedError(f"{type(self).__name__}: no read(); a source must define it")

    def settled(self) -> tuple[Any, list[tuple[int, str]]]:
        """Of the last read(): which of its samples stand in the rows (None: all, in order), and which are bad, with causes."""
        return None, []

    def spent(self) -> Spent:
        """The time and memory that functions of Python have taken for the last read()."""
        return Spent()

    def tables(self) -> dict[str, Any] | None:
        """Arrays from which gathered() makes batches inside of a plan; None where Python must make them."""
        return None

    def gathered(self, tables: Any, ids: Any, there: Any) -> list[Any]:
        """read() as ops of a plan, whose `tables` have these arrays as tensors: the samples `ids`, zeros where one is not `there`."""
        raise NotImplementedError(f"{type(self).__name__}: no gathered(); a source must define it")

    def name(self, i: int) -> str:
        """What errors call a sample."""
        return f"sample {i}"

    def sample(self, i: int, key: int = 0) -> Any:
        """A sample for functions of Python; `key` is that of the epoch."""
        raise NotImplementedError(f"{type(self).__name__}: no sample(); a source must define it")


def padded(rows: Any, batch: int) -> Any:
    """The rows with zeros behind them, `batch` in all."""
    if len(rows) == batch:
        return rows
    out = np.zeros((batch, *rows.shape[1:]), rows.dtype)
    out[:len(rows)] = rows
    return out


class Files(Source):
    """Encoded images: files, or parts of files, that kernels open. `labels`: int64."""

    images = direct = True

    def __init__(self, names: Texts, labels: Any, fingerprint: str, *, containers: Any = None, files: Any = None, offsets: Any = None,
                 lengths: Any = None, classes: Any = None) -> None:
        self.names, self.labels, self.fingerprint, self.classes = names, labels, fingerprint, classes
        self.containers = None if containers is None else [os.fsencode(c) for c in containers]
        self.files, self.offsets, self.lengths = files, offsets, lengths
        self.count = len(labels)
        self.longest = max(map(len, self.containers)) if self.containers else int(np.diff(names.ends, prepend=0).max(initial=1))
        self.room = 8 * _HEAD + self.longest  # bytes of a file's entry

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch * self.room,), _C.uint8), ((batch,), _C.int64)]

    def digest(self) -> str:
        files = self.containers if self.containers is not None else [self.names.bytes(i) for i in range(self.count)]
        return _index.fingerprint(self.fingerprint, _stamps([os.fsdecode(f) for f in files], "cache"), np.asarray(self.labels))

    def entries(self, ids: Any) -> tuple[list[bytes], Any, Any]:
        """The files' names; where in them the contents lie, int64 (N, 2) as PackedFile has it; and labels."""
        labels = np.asarray(self.labels[ids], np.int64)
        if self.containers is None:
            return [self.names.bytes(i) for i in ids.tolist()], 0, labels
        return [self.containers[f] for f in self.files[ids]], np.stack([-1 - self.offsets[ids], self.lengths[ids]], 1), labels

    def read(self, ids: Any, batch: int) -> list[Any]:
        texts, places, labels = self.entries(ids)
        head, n = np.zeros((batch, _HEAD), np.int64), len(ids)
        lengths = np.array([len(text) for text in texts], np.int64)
        ends = head.nbytes + np.cumsum(lengths)
        head[:n, 0], head[:n, 1], head[:n, 2:] = ends - lengths, lengths, places
        packed = np.zeros(batch * self.room, np.uint8)
        packed[:head.nbytes] = head.reshape(-1).view(np.uint8)
        packed[head.nbytes:head.nbytes + int(lengths.sum())] = np.frombuffer(b"".join(texts), np.uint8)
        return [packed, padded(labels, batch)]

    def tables(self) -> dict[str, Any]:
        names = self.names if self.containers is None else Texts.of(self.containers)
        parts = {} if self.containers is None else {"files": self.files, "begins": -1 - self.offsets, "lengths": self.lengths}
        return {"names": names.data, "ends": names.ends, "labels": np.asarray(self.labels, np.int64), **parts}

    def gathered(self, tables: Any, ids: Any, there: Any) -> list[Any]:
        whole = self.containers is None
        files = fn.where(there, ids if whole else tables.files[ids], -1)
        places = None if whole else fn.stack([tables.begins[ids], tables.lengths[ids]], 1)
        return [_C.ops.pack_files(tables.names, tables.ends, files, places, longest=self.longest), fn.where(there, tables.labels[ids], 0)]

    def name(self, i: int) -> str:
        return self.names[i] if self.containers is None else f"{os.fsdecode(self.containers[self.files[i]])}:{self.names[i]}"

    def content(self, i: int) -> bytes:
        """The bytes of a sample's file."""
        if self.containers is None:
            with open(self.names.bytes(i), "rb") as file:
                return file.read()
        with open(self.containers[self.files[i]], "rb") as file:
            file.seek(int(self.offsets[i]))
            return file.read(int(self.lengths[i]))

    def sample(self, i: int, key: int = 0) -> Any:
        return self.content(i), int(self.labels[i])


def _kept(path: Any, key: str, make: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and arrays of the index at `path`, where it is there and made of the same; else made, and written there."""
    if path is None:
        return make()
    path = os.fspath(path)
    try:
        facts, arrays = _index.read(path)
        if facts.get("key") == key:
            return facts, arrays
    except FileNotFoundError:
        pass
    facts, arrays = make()
    _index.write(path, {**facts, "key": key}, arrays)
    return _index.read(path)


_IMAGES = (".jpg", ".jpeg", ".png", ".webp")


def _directories(folder: str) -> tuple[list[str], str]:
    """The folder of each class, sorted, and a digest that changes when a file comes, goes or is renamed."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir())
    stamps = [f"{name}/{os.stat(os.path.join(folder, name)).st_mtime_ns}" for name in ["", *names]]
    return names, _index.fingerprint(os.path.abspath(folder), *stamps)


def _size(entry: os.DirEntry[str]) -> int:
    """0 of a link to nothing, which whoever reads it finds out."""
    try:
        return entry.stat().st_size
    except OSError:
        return 0


def image_folder(folder: Any, index: Any = None) -> Files:
    folder = os.fspath(folder)
    try:
        classes, key = _directories(folder)
    except OSError as error:
        raise type(error)(f"data.images: {folder}: cannot be read: {error.strerror}") from None
    if not classes:
        raise ValueError(f"data.images: {folder}: has no folders; must have one for each class, with its images in it")

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        names, labels, sizes = [], [], []
        for label, name in enumerate(with_progress(classes, "data.images")):
            with os.scandir(os.path.join(folder, name)) as entries:
                found = sorted((e.name, _size(e)) for e in entries if e.name.lower().endswith(_IMAGES))
            names += [f"{name}/{file}" for file, _ in found]
            sizes += [size for _, size in found]
            labels += [label] * len(found)
        start = os.path.join(folder, "")
        texts = Texts.of([start + name for name in names])
        facts = {"classes": classes, "fingerprint": _index.fingerprint("\n".join(names), np.array(sizes, np.int64))}
        return facts, {"data": texts.data, "ends": texts.ends, "labels": np.array(labels, np.int64)}

    facts, arrays = _kept(index, key, make)
    if not len(arrays["labels"]):
        raise ValueError(f"data.images: {folder}: has no images in its folders; must have {', '.join(_IMAGES)}")
    return Files(Texts(arrays["data"], arrays["ends"]), arrays["labels"], facts["fingerprint"], classes=facts["classes"])


def expanded(pattern: Any) -> list[str]:
    """The files that a name, a pattern of glob's, one with ranges as {000..012} or lists as {a,b}, or a list of these mean."""
    if isinstance(pattern, (list, tuple)):
        return list(itertools.chain.from_iterable(map(expanded, pattern)))
    text = os.fspath(pattern)
    braces = re.search(r"\{([^{}]*)\}", text)
    if braces is None:
        if re.search(r"[*?\[]", text) and not os.path.exists(text):
            return sorted(glob_module.glob(text))
        return [text]
    span = re.fullmatch(r"(\d+)\.\.(\d+)", braces[1])
    if span is None:
        inner = braces[1].split(",")
    else:
        first, last = int(span[1]), int(span[2])
        if last - first > 10_000_000:
            raise ValueError(f"data: {text}: {last - first + 1} files; must be 10000000 at most")
        inner = [str(n).zfill(len(span[1])) for n in range(first, last + 1)]
    return [name for part in inner for name in expanded(text[:braces.start()] + part + text[braces.end():])]


def _stamps(paths: list[str], what: str) -> str:
    if not paths:
        raise ValueError(f"{what}: no files of this name; must be at least one")
    try:
        facts = [os.stat(path) for path in paths]
    except OSError as error:
        raise type(error)(f"{what}: {error.filename}: cannot be read: {error.strerror}") from None
    for path, found in zip(paths, facts):
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise ValueError(f"{what}: {path}: a folder, a device or a pipe; must be a file")
    return _index.fingerprint(*(f"{os.path.abspath(p)}/{f.st_size}/{f.st_mtime_ns}" for p, f in zip(paths, facts)))


def tar_members(path: str) -> Any:
    """(key, extension, offset, length) of a tar's files. The key ends at the first dot of the base name."""
    try:
        members = fn.tar_members(os.fsencode(path))
    except ValueError as error:
        raise ValueError(f"data.tar: {path}: is no tar file that can be read: {str(error).removeprefix(f'{path}: ')}; must be whole, and not "
                         "compressed") from None
    for name, offset, length in members:
        folder, base = os.path.split(os.fsdecode(name))
        key, _, extension = base.partition(".")
        yield os.path.join(folder, key), extension.lower(), offset, length


def tar(pattern: Any, index: Any = None, label: str = "cls") -> Files:
    paths = expanded(pattern)
    key = _stamps(paths, "data.tar") + label

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        names: list[str] = []
        rows: list[tuple[int, int, int, int]] = []
        for number, path in enumerate(with_progress(paths, "data.tar")):
            with open(path, "rb") as content:
                for sample, members in itertools.groupby(tar_members(path), key=lambda member: member[0]):
                    parts = {extension: place for _, extension, *place in members}
                    image = next((parts[e] for e in parts if "." + e in _IMAGES), None)
                    if image is None:
                        raise ValueError(f"data.tar: {path}: sample '{sample}' has {', '.join(parts)}; must have an image "
                                         f"({', '.join(_IMAGES)})")
                    rows.append((number, *image, _label(content, parts.get(label), path, sample)))
                    names.append(sample)
        texts, table = Texts.of(names), np.array(rows, np.int64).reshape(-1, 4)
        facts = {"fingerprint": _index.fingerprint("\n".join(names), table)}
        return facts, {"data": texts.data, "ends": texts.ends, "table": table}

    facts, arrays = _kept(index, key, make)
    table = arrays["table"]
    if not len(table):
        raise ValueError(f"data.tar: {paths[0]}: has no samples; must have files in it")
    return Files(Texts(arrays["data"], arrays["ends"]), table[:, 3], facts["fingerprint"], containers=paths, files=table[:, 0],
                 offsets=table[:, 1], lengths=table[:, 2])


def _label(content: Any, place: Any, path: str, sample: str) -> int:
    if place is None:
        return 0
    content.seek(place[0])
    text = content.read(min(place[1], 64))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"data.tar: {path}: the label of sample '{sample}' is {text!r}; must be an int") from None


def records(pattern: Any, index: Any = None) -> Files:
    paths = expanded(pattern)
    key = _stamps(paths, "data.records")

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        tables = [records_module.read_index(path) for path in with_progress(paths, "data.records")]
        files = np.concatenate([np.full(len(t), i) for i, t in enumerate(tables)])
        table = np.concatenate([files[:, None], np.concatenate(tables)], 1).astype(np.int64)
        return {"fingerprint": _index.fingerprint(table)}, {"table": table}

    facts, arrays = _kept(index, key, make)
    table = arrays["table"]
    if not len(table):
        raise ValueError(f"data.records: {paths[0]}: has no records; must have some")
    names = Texts.of([f"record {i}" for i in range(len(table))])
    return Files(names, table[:, 3], facts["fingerprint"], containers=paths, files=table[:, 0], offsets=table[:, 1],
                 lengths=table[:, 2])


class Arrays(Source):
    """Rows of arrays."""

    direct = True

    def __init__(self, *arrays: Any, fingerprint: str = "") -> None:
        self.arrays = [array if isinstance(array, np.ndarray) else np.asarray(array) for array in arrays]
        lengths = [len(array) for array in self.arrays]
        if not lengths or len(set(lengths)) != 1 or not lengths[0]:
            raise ValueError(f"data.arrays: arrays of {lengths} rows; must be at least one array, all of as many rows, and of one at least")
        self.count = lengths[0]
        kinds = [f"{a.dtype}{a.shape}" for a in self.arrays]
        self.fingerprint = fingerprint or _index.fingerprint(*kinds, *(a[:64] for a in self.arrays), *(a[-64:] for a in self.arrays))

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch, *array.shape[1:]), dtype_of(array.dtype, "data.arrays")) for array in self.arrays]

    def read(self, ids: Any, batch: int) -> list[Any]:
        return [padded(array[ids], batch) for array in self.arrays]

    def digest(self) -> str:
        return _index.fingerprint(self.fingerprint, *self.arrays)

    def tables(self) -> dict[str, Any]:
        return {f"array{k}": array for k, array in enumerate(self.arrays)}

    def gathered(self, tables: Any, ids: Any, there: Any) -> list[Any]:
        rows = [getattr(tables, f"array{k}")[ids] for k in range(len(self.arrays))]
        return [fn.where(there.reshape(-1, *[1] * (row.dim() - 1)), row, 0) for row in rows]

    def sample(self, i: int, key: int = 0) -> Any:
        return tuple(array[i].copy() for array in self.arrays)  # which the function may change


def dtype_of(dtype: Any, what: str) -> Any:
    found = getattr(_C, np.dtype(dtype).name, None)
    if np.dtype(dtype) == np.bool_:
        found = _C.bool
    if found is None or not isinstance(found, _C.dtype):
        raise TypeError(f"{what}: NumPy's {np.dtype(dtype)}; must be a dtype that Sluice has, as float32, int64 or uint8")
    return found


def csv(path: Any, columns: Any = None, label: Any = None) -> Arrays:
    path = os.fspath(path)
    _stamps([path], "data.csv")
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv_module.reader(file)
        head = next(rows, None)
        if head is None:
            raise ValueError(f"data.csv: {path}: is empty; must have a line with the names of its columns")
        wanted = [c for c in head if c != label] if columns is None else list(columns)
        for name in [*wanted, *([] if label is None else [label])]:
            if name not in head:
                raise ValueError(f"data.csv: {path}: has no column '{name}'; must be one of {', '.join(head)}")
        places, labels = [head.index(c) for c in wanted], None if label is None else head.index(label)
        x, y = [], []
        for row in rows:
            if not row:
                continue
            try:
                x.append([float(row[p]) for p in places])
                y.append(0 if labels is None else int(row[labels]))
            except (ValueError, IndexError) as error:
                raise ValueError(f"data.csv: {path}: line {rows.line_num}: {error}; must have a number in each column asked for") from None
    values = np.array(x, np.float32).reshape(len(x), len(places))
    return Arrays(values) if labels is None else Arrays(values, np.array(y, np.int64))


class Lines(Source):
    """Lines of text files, as UTF-8 bytes in rows of a fixed width, and their lengths."""

    direct = True

    def __init__(self, pattern: Any, width: int, index: Any = None) -> None:
        self.paths, self.width = expanded(pattern), int(width)
        if self.width < 1:
            raise ValueError(f"data.lines: width: {width}; must be at least 1 byte")

        def make() -> tuple[dict[str, Any], dict[str, Any]]:
            rows = []
            for number, path in enumerate(self.paths):
                size = os.path.getsize(path)
                data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
                ends = np.flatnonzero(data == 10)
                if size and (not len(ends) or ends[-1] != size - 1):
                    ends = np.append(ends, size)
                begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
                rows.append(np.stack([np.full(len(ends), number), begins, ends - begins], 1))
            table = np.concatenate(rows).astype(np.int64)
            return {"fingerprint": _index.fingerprint(table)}, {"table": table}

        facts, arrays = _kept(index, _stamps(self.paths, "data.lines"), make)
        self.table, self.fingerprint = arrays["table"], facts["fingerprint"]
        self.count, self.lengths = len(self.table), self.table[:, 2]
        if not self.count:
            raise ValueError(f"data.lines: {self.paths[0]}: has no lines; must have some")
        self._data = [np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8) for path in self.paths]

    def digest(self) -> str:
        return _index.fingerprint(self.fingerprint, _stamps(self.paths, "cache"))

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch, self.width), _C.uint8), ((batch,), _C.int64)]

    def read(self, ids: Any, batch: int) -> list[Any]:
        rows, lengths = np.zeros((batch, self.width), np.uint8), np.zeros(batch, np.int64)
        for k, i in enumerate(ids.tolist()):
            line = self._line(i)[:self.width]
            rows[k, :len(line)], lengths[k] = line, len(line)
        return [rows, lengths]

    def _line(self, i: int) -> Any:
        number, begin, length = self.table[i].tolist()
        line = self._data[number][begin:begin + length]
        return line[:-1] if len(line) and line[-1] == 13 else line

    def sample(self, i: int, key: int = 0) -> Any:
        return self._line(i).tobytes().decode(errors="replace")


class Items(Source):
    """Samples of a dataset of Python: anything with len() and [i]."""

    def __init__(self, dataset: Any) -> None:
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                raise TypeError(f"data.dataset: {type(dataset).__name__} has no {method}; must be a dataset with len() and [i]")
        self.dataset, self.count = dataset, len(dataset)
        if not self.count:
            raise ValueError("data.dataset: has no samples; must have at least one")
        self.fingerprint = _index.fingerprint(f"{type(dataset).__qualname__}/{self.count}")

    def digest(self) -> str:
        """The digest of the dataset as pickle writes it; where it cannot, type and length are all that is known."""
        digest = hashlib.sha256(self.fingerprint.encode())
        try:
            pickle.Pickler(SimpleNamespace(write=digest.update), protocol=4).dump(self.dataset)
        except Exception:  # noqa: BLE001 anything may be in it
            return self.fingerprint
        return digest.hexdigest()[:32]

    def sample(self, i: int, key: int = 0) -> Any:
        return self.dataset[i]
