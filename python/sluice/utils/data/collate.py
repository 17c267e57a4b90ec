"""Batches of samples: tensors are stacked, numbers become tensors, and containers keep their form."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import math
import threading
import weakref
from typing import Any, Callable, Iterator

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import as_tensor, empty, frombuffer, tensor
from sluice._base.numbers import numpy as lazy_numpy
from sluice.errors import RuntimeError, TypeError  # noqa: A004

_LARGE = 1 << 20  # bytes
_MOST_BLOCKS = 4

_memory = threading.local()


@contextlib.contextmanager
def outputs(make: Callable) -> Iterator[None]:
    """Large batches that this thread collates are tensors of `make(shape, dtype)`. A dataset may iterate over loaders of its own within."""
    before = getattr(_memory, "output", None)
    _memory.output = make
    try:
        yield
    finally:
        _memory.output = before


class Recycled:
    """Memory of large batches, used again when nothing uses it any more: fresh memory costs more than what is written to it."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Any, Any]] = []  # arrays, and weak references to what is lent of them
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:  # a copy begins without memory
        return Recycled, ()

    def output(self, shape: Any, dtype: Any) -> Any:
        """A tensor of memory that is its own as long as anything uses it. Thread-safe."""
        with self._lock:
            lent = self._take(math.prod(shape) * dtype.itemsize)
        return frombuffer(lent, dtype=dtype).view(shape)

    def _take(self, nbytes: int) -> Any:
        for i, (block, user) in enumerate(self._blocks):
            if user() is None and nbytes <= block.nbytes <= 2 * nbytes:
                break
        else:
            if len(self._blocks) == _MOST_BLOCKS:
                self._blocks.pop(0)
            # glibc learns from a block that is freed: from then on it keeps that much, and so the memory of samples, for the next batch.
            _numpy().empty(nbytes, "u1")
            i, block = len(self._blocks), _numpy().empty(nbytes, "u1")
            self._blocks.append((block, None))
        lent = block[:nbytes]
        self._blocks[i] = (block, weakref.ref(lent))
        return lent


def stacked(arrays: Any) -> Any:
    """NumPy arrays of one shape and dtype, stacked; a large result lies in the memory of outputs(), where there is some."""
    first, make = arrays[0], getattr(_memory, "output", None)
    nbytes = len(arrays) * first.nbytes
    if make is None or nbytes < _LARGE:
        return _numpy().stack(arrays)
    target = make((nbytes,), _C.uint8).numpy().view(first.dtype).reshape(len(arrays), *first.shape)
    return _numpy().stack(arrays, out=target)


def default_convert(data: Any) -> Any:
    """A sample with its arrays as tensors that share their memory: what a loader without batches gives."""
    if isinstance(data, Tensor):
        return data
    if _is_numpy(data):
        return data if data.dtype.kind in "SUO" else as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        parts = [default_convert(d) for d in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [default_convert(d) for d in data])
    return data


def default_collate(batch: Any) -> Any:
    """A batch of a list of samples, which must be alike; torch.utils.data.default_collate.

    Tensors and arrays are stacked along a new first axis; floats become float64, ints int64 and bools bool; text stays a list.
    Each part of dicts, tuples and lists is a batch: a tuple gives a list, a named tuple one of its kind.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """As default_collate, with a function `f(batch, *, collate_fn_map)` for each type, or tuple of types, of samples."""
    first = batch[0]
    for kind, function in (collate_fn_map or {}).items():
        if isinstance(first, kind):
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return _like_mapping(first, {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
                                     for key in first})
    if isinstance(first, collections.abc.Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate: each element in list of batch should be of equal size: got "
                               f"{[len(s) for s in batch]}")
        parts = [collate(part, collate_fn_map=collate_fn_map) for part in zip(*batch)]
        if isinstance(first, tuple):
            return type(first)(*parts) if hasattr(first, "_fields") else parts
        return _like_sequence(first, parts)
    raise TypeError(_unknown(type(first)))


def _unknown(kind: Any) -> str:
    return f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}"


def _is_numpy(data: Any) -> bool:
    return type(data).__module__ == "numpy" or isinstance(data, _numpy().ndarray)


def _numpy() -> Any:
    return lazy_numpy()


def _like_mapping(sample: Any, items: dict) -> Any:
    with contextlib.suppress(Exception):  # some mappings can be neither copied nor made of a dict
        if isinstance(sample, collections.abc.MutableMapping):
            clone = copy.copy(sample)  # may have more than its items, such as a default
            clone.update(items)
            return clone
        return type(sample)(items)
    return items


def _like_sequence(sample: Any, parts: list) -> Any:
    if type(sample) is list:
        return parts
    with contextlib.suppress(Exception):
        if isinstance(sample, collections.abc.MutableSequence):
            clone = copy.copy(sample)
            for i, part in enumerate(parts):
                clone[i] = part
            return clone
        return type(sample)(parts)
    return parts


def _tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    first = batch[0]
    shape = (len(batch), *first.shape)
    for i, t in enumerate(batch):
        if t._shape != first._shape:
            raise RuntimeError("default_collate: stack expects each tensor to be equal size, but got "
                               f"{list(first.shape)} at entry 0 and "
                               f"{list(t.shape)} at entry {i}")
    if len(batch) * first.nbytes >= _LARGE and first.dtype is not _C.bfloat16 and all(_alike(t, first) for t in batch):
        # One thread copies as fast as memory takes it; more only wait for each other on a machine whose cores make samples.
        make = getattr(_memory, "output", None)
        target = empty(shape, dtype=first.dtype) if make is None else make(shape, first.dtype)
        _numpy().stack([t.numpy() for t in batch], out=target.numpy())
        return target
    return fn.stack(list(batch))


def _alike(t: Any, first: Any) -> bool:
    return t.dtype is first.dtype and t.is_cpu and not t.requires_grad and not t._traced and not t._global


def _arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(_unknown(batch[0].dtype))
    if batch[0].ndim == 0:
        return as_tensor(_numpy().stack(batch))
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def _numpy_numbers(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return as_tensor(_numpy().asarray(batch))


def _floats(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return tensor(batch, dtype=_C.float64)


def _integers(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return tensor(batch)


def _texts(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


class _Defaults(dict):
    """Functions by type. Those of numpy's types come last and at the first look, since importing numpy takes long."""

    def items(self) -> Any:
        np = _numpy()
        self.setdefault(np.ndarray, _arrays)
        self.setdefault((np.bool_, np.number), _numpy_numbers)
        return super().items()


default_collate_fn_map: Any = _Defaults({Tensor: _tensors, float: _floats, int: _integers, str: _texts, bytes: _texts})
