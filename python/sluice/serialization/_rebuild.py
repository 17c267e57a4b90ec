"""Tensors of storages: what checkpoints call while they are read."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._creation import empty, from_numpy, frombuffer, tensor
from sluice._numbers import numpy as lazy_numpy
from sluice._pickling import bytes_of
from sluice.errors import ValueError  # noqa: A004
from sluice.nn.parameter import Parameter
from sluice.serialization._allowed import Allowed


class Storage:
    """A storage that was read: its bytes as a tensor of one dim, typed when its first tensor is made of it."""

    def __init__(self, values: Any) -> None:
        self.values = values


def rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any = False,
                   backward_hooks: Any = None, metadata: Any = None) -> Any:
    """A view of a storage."""
    if not isinstance(storage, Storage):
        raise ValueError(f"a tensor of {type(storage).__name__}; must be of a storage")
    t = view_of(storage.values, storage_offset, size, stride)
    flags = {name for name, is_set in (metadata or {}).items() if is_set}
    if flags - {"neg"}:
        raise ValueError(f"a tensor with flags {sorted(flags)}; only 'neg' is supported")
    t = -t if flags else t  # torch keeps the sign of a whole view beside the values
    return t.requires_grad_(True) if requires_grad else t


def rebuild_tensor_of_dtype(storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any,
                            dtype: Any, metadata: Any = None) -> Any:
    """A view of a storage of bytes."""
    if not isinstance(storage, Storage) or storage.values.dtype is not _C.uint8:
        raise ValueError("a tensor with a dtype must be of an untyped storage")
    data = bytes_of(storage.values)
    typed = frombuffer(data, dtype=dtype) if len(data) else empty(0, dtype=dtype)
    return rebuild_tensor(Storage(typed), storage_offset, size, stride, requires_grad)


def rebuild_parameter(data: Any, requires_grad: Any, backward_hooks: Any = None) -> Any:
    return Parameter(_tensor(data), bool(requires_grad))


def rebuild_parameter_with_state(data: Any, requires_grad: Any, backward_hooks: Any, state: Any) -> Any:
    return _with_state(rebuild_parameter(data, requires_grad), state)


def rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes, or of a subclass, which must be allowed and can be made of a tensor."""
    if not isinstance(function, Allowed) or not isinstance(kind, type) or not issubclass(kind, _C.Tensor):
        raise ValueError(f"a tensor of type {kind!r}; must be a subclass of Tensor")
    t = _tensor(function(*args))
    return _with_state(t if type(t) is kind else kind(t), state)


def _tensor(value: Any) -> Any:
    if not isinstance(value, _C.Tensor):
        raise ValueError(f"got {type(value).__name__}; must be a tensor")
    return value


def _with_state(t: Any, state: Any) -> Any:
    if isinstance(state, tuple):  # with slots, of which tensors have none of their own here
        state = state[0]
    if state is not None and (not isinstance(state, dict) or not all(isinstance(name, str) for name in state)):
        raise ValueError(f"attributes of a tensor are {type(state).__name__}; must be a dict by name")
    t.__dict__.update(state or {})
    return t


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
