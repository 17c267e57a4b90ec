"""Copies of tensors by Python's own means: copy.copy shares data, copy.deepcopy and pickle do not."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._base.numbers import numpy as lazy_numpy
from sluice._C import Tensor
from sluice._tensor.creation import empty, from_numpy, frombuffer, tensor
from sluice.errors import ValueError  # noqa: A004


def address_range(t: Any) -> tuple[int, int]:
    """The range of a tensor's storage on the CPU: its begin, and the end of the last byte that the tensor can see."""
    size = t.dtype.itemsize
    start = t.data_ptr() - t.storage_offset() * size
    if t.numel() == 0:
        return start, start
    return start, t.data_ptr() + (1 + sum((n - 1) * stride for n, stride in zip(t._shape, t._strides()))) * size


def bytes_of(t: Any) -> memoryview:
    """The memory of a contiguous tensor on the CPU, which it keeps."""
    if not t.numel():
        return memoryview(bytearray())
    import ctypes  # at its first use, as pickle below

    array = (ctypes.c_ubyte * t.nbytes).from_address(t.data_ptr())
    array.tensor = t  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def check_concrete(where: str, t: Any) -> None:
    """Refuses tensors that have no values in this process."""
    if t._traced:
        raise _C.RuntimeError(f"{where}: got a traced tensor, which has no values while a graph is traced; do this "
                              "outside of build")
    if t._global:
        raise _C.RuntimeError(f"{where}: got a global tensor, of which this process may have a part; take to_local(), "
                              "or to_global() with "
                              "sbp.broadcast before")


def check_sendable(t: Any) -> None:
    """Refuses tensors whose gradients another process could not pass on."""
    if t.requires_grad and not t.is_leaf:
        raise _C.RuntimeError("cannot send a non-leaf tensor which requires_grad to another process, since gradients do not cross "
                              "processes; send tensor.detach()")


def _dense(t: Any) -> tuple[Any, tuple[int, ...]]:
    """The values as a contiguous tensor, and the axes that permute it back: strides stay where elements lie densely."""
    if t.is_contiguous():
        return t, ()
    order = sorted(range(t.ndim), key=lambda i: -t._strides()[i])
    permuted = t.permute(*order)
    if not permuted.is_contiguous():
        return t.contiguous(), ()
    return permuted, tuple(order.index(i) for i in range(t.ndim))


def cloned(t: Any) -> Tensor:
    """The values in memory of their own, with the strides where elements lie densely."""
    data, axes = _dense(t.detach())
    copied = data.clone()
    return copied.permute(*axes) if axes else copied


def _reduced(t: Any, protocol: int) -> tuple[Any, ...]:
    """Arguments of `rebuild`."""
    import pickle  # at its first use: sluice is imported more often than tensors are pickled

    check_concrete("pickle", t)
    data, axes = _dense(t.detach().cpu())
    raw = bytes_of(data)
    buffer = pickle.PickleBuffer(raw) if protocol >= 5 else raw.tobytes()
    return buffer, t.dtype, tuple(data._shape), axes, None if t.is_cpu else str(t.device)


def rebuild(buffer: Any, dtype: Any, shape: Any, axes: Any, device: Any) -> Tensor:
    """A tensor of the bytes, which it shares where they may be written to."""
    raw = memoryview(buffer).cast("B")
    if not raw.nbytes:
        t = empty(shape, dtype=dtype)
    else:
        if raw.readonly:
            raw = memoryview(bytearray(raw))
        t = frombuffer(raw, dtype=dtype).view(shape)
    if axes:
        t = t.permute(*axes)
    return t if device is None else t.to(device)


def rebuild_tensor(cls: Any, requires_grad: bool, *parts: Any) -> Tensor:
    """A tensor, or one of a subclass that can be made of a tensor."""
    t = rebuild(*parts)
    return (t if cls is Tensor else cls(t)).requires_grad_(requires_grad)


def rebuild_parameter(cls: Any, requires_grad: bool, *parts: Any) -> Any:
    return cls(rebuild(*parts), requires_grad)


def reduce_tensor(self: Any, protocol: int) -> tuple[Any, ...]:
    return rebuild_tensor, (type(self), self.requires_grad, *_reduced(self, protocol)), self.__dict__ or None


def reduce_parameter(self: Any, protocol: int) -> tuple[Any, ...]:
    return rebuild_parameter, (type(self), self.requires_grad, *_reduced(self, protocol)), self.__dict__ or None


def _copy(self: Any) -> Any:
    """A tensor of its own over the same data."""
    check_concrete("copy", self)
    data = self.detach()
    same = (data if type(self) is Tensor else type(self)(data)).requires_grad_(self.requires_grad)
    same.__dict__.update(self.__dict__)
    return same


def copied(t: Any, memo: Any) -> Tensor:
    """The values in memory of their own, which copies share as the tensors do that they are made of: torch keeps storages
    in `memo`. The copy of a view is a view of the copy of its base, so that graphs can follow it."""
    import copy

    base = t._base
    if base is not None and base.is_leaf:
        return _C.viewed_alike(copy.deepcopy(base, memo), t)
    memory = t.detach()
    key = ("memory of tensors", _C.memory_of(memory))
    if key not in memo:
        memo[key] = _C.copied_memory(memory), memory  # the latter keeps the key's memory alive
    return _C.seen_alike(memo[key][0], memory)


def _deepcopy(self: Any, memo: Any) -> Any:
    import copy

    if id(self) not in memo:
        check_concrete("deepcopy", self)
        if not self.is_leaf:
            raise _C.RuntimeError("deepcopy: Only Tensors created explicitly by the user (graph leaves) support the "
                                  "deepcopy protocol at "
                                  "the moment; use .detach().clone()")
        data = copied(self, memo)
        made = (data if type(self) is Tensor else type(self)(data)).requires_grad_(self.requires_grad)
        memo[id(self)] = made
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return memo[id(self)]


Tensor.__reduce_ex__ = reduce_tensor
Tensor.__copy__ = _copy
Tensor.__deepcopy__ = _deepcopy


def view_of(values: Any, offset: Any, size: Any, stride: Any) -> Any:
    """The elements of a tensor of one dim that a size and strides describe; it shares them. Checks all of it."""
    size, stride = tuple(size), tuple(stride)
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError(f"a tensor of size {size!r:.200} with strides {stride!r:.200} at {offset!r:.40}; must be "
                         "numbers >= 0, alike in count")
    if 0 in size:
        return empty(size, dtype=values.dtype, device=values.device)
    end = offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))
    if end > len(values):
        raise ValueError(f"a tensor of size {size} with strides {stride} at {offset} ends at element {end}; its storage "
                         f"has {len(values)}")
    # Axes that elements are repeated along, or that have one, come last: they need no memory.
    axes = [i for i in range(len(size)) if size[i] > 1 and stride[i] > 0]
    axes.sort(key=lambda i: -stride[i])
    others = [i for i in range(len(size)) if i not in axes]
    inner = [size[i] for i in axes]
    if all(stride[i] == math.prod(inner[k + 1:]) for k, i in enumerate(axes)):  # dense, in some order of axes
        t = values if end - offset == len(values) else values.narrow(0, offset, end - offset)
        t = t.view([*inner, *(1 for _ in others)]).expand([*inner, *(size[i] for i in others)])
        order = [*axes, *others]
        back = [order.index(i) for i in range(len(size))]
        return t if back == list(range(len(size))) else t.permute(*back)
    return _strided(values, offset, size, stride)


def _strided(values: Any, offset: int, size: Any, stride: Any) -> Any:
    np = lazy_numpy()
    if values.is_cpu and values.dtype is not _C.bfloat16:
        array = np.lib.stride_tricks.as_strided(values.numpy()[offset:], size, [s * values.dtype.itemsize for s in stride])
        return from_numpy(array)
    # NumPy has no such elements, or cannot reach them: these are copies.
    where = np.lib.stride_tricks.as_strided(np.arange(len(values))[offset:], size, [8 * s for s in stride])
    return values[tensor(where.reshape(-1), device=values.device)].view(size)
