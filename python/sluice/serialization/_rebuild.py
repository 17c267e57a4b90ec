"""Tensors of storages: what checkpoints call while they are read."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._tensor.creation import empty, frombuffer
from sluice._tensor.float8_dtypes import is_float8
from sluice._tensor.pickling import bytes_of, view_of
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
    if is_float8(dtype):
        if requires_grad:
            raise ValueError(f"a tensor of {dtype} that requires grad; must be one that does not")
        return view_of(storage.values, storage_offset, size, stride).view(dtype)
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


def rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A tensor of parts, which are checked as those that a program gives."""
    from sluice.sparse import _make

    if not isinstance(data, tuple) or len(data) not in ((3, 4) if layout == "sparse_coo" else (4,)):
        raise ValueError(f"a tensor of layout {layout!r} of {data!r:.80}; must be a tuple of its parts")
    if layout == "sparse_coo":
        indices, values, size, coalesced = data if len(data) == 4 else (*data, False)
        made = _make.sparse_coo_tensor(_tensor(indices), _tensor(values), size)
        # A file may say so of indices that are not: those that are in order stay as they are.
        return _make.in_order(made) if coalesced else made
    begins, plain, values, size = data
    return _make.sparse_compressed_tensor(_tensor(begins), _tensor(plain), _tensor(values), size, layout=layout)


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
