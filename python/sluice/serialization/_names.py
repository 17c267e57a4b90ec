"""The names that torch gives things in its checkpoints, and those that a checkpoint may call while it is read."""

from __future__ import annotations

import collections
import contextlib
from typing import Any, Iterator

from sluice import _C
from sluice._base.device import device
from sluice._base.size import Size
from sluice._tensor.float8_dtypes import DTYPES as FLOAT8
from sluice.errors import TypeError, ValueError  # noqa: A004
from sluice.nn.parameter import Parameter
from sluice.serialization._allowed import Allowed as Allowed
from sluice.serialization._rebuild import (rebuild_from_type, rebuild_parameter, rebuild_parameter_with_state, rebuild_tensor,
                                           rebuild_sparse_tensor, rebuild_tensor_of_dtype)

_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc")

# torch's storage classes and the dtypes of their elements.
DTYPES = {"DoubleStorage": _C.float64, "FloatStorage": _C.float32, "HalfStorage": _C.float16, "BFloat16Storage": _C.bfloat16,
          "LongStorage": _C.int64, "IntStorage": _C.int32, "ShortStorage": _C.int16, "CharStorage": _C.int8,
          "ByteStorage": _C.uint8, "BoolStorage": _C.bool, "ComplexFloatStorage": _C.complex64,
          "ComplexDoubleStorage": _C.complex128}
STORAGES = {dtype: name for name, dtype in DTYPES.items()}


class StorageType:
    """Stands for a class such as torch.FloatStorage, which only names a dtype; of torch's UntypedStorage it is None."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How protocol 2 writes bytes. Other codecs are none of a checkpoint's business."""
    if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
        raise ValueError(f"codecs.encode with {encoding!r}; must be latin1")
    return text.encode("latin1")


def _bytearray(*args: Any) -> bytearray:
    if len(args) == 2:
        args = (_encode(*args),)
    if args and not isinstance(args[0], bytes):
        raise ValueError(f"bytearray of {type(args[0]).__name__}; must be of bytes")
    return bytearray(*args)


def _layout(name: Any) -> str:
    """Which a text stands for."""
    if name not in [f"torch.{layout}" for layout in _LAYOUTS]:
        raise ValueError(f"layout {name!r}; must be one of {', '.join(_LAYOUTS)}")
    return str(name).removeprefix("torch.")


def _torch_names() -> dict[str, Any]:
    names: dict[str, Any] = {f"torch.{name}": StorageType(dtype) for name, dtype in DTYPES.items()}
    names.update({f"torch.{dtype.name}": dtype for dtype in STORAGES})
    names.update({f"torch.storage.{name}": StorageType(None) for name in ("UntypedStorage", "TypedStorage")})
    names.update({f"torch.{name}": dtype for name, dtype in FLOAT8.items()})
    names["torch.device"], names["torch.Size"] = Allowed(device), Allowed(Size)
    names["torch.Tensor"] = _C.Tensor
    names["torch.nn.parameter.Parameter"] = names["torch.nn.Parameter"] = Parameter
    names["torch.serialization._get_layout"] = Allowed(_layout)
    names["torch._utils._rebuild_sparse_tensor"] = Allowed(rebuild_sparse_tensor)
    names["torch._utils._rebuild_tensor_v2"] = names["torch._utils._rebuild_tensor"] = Allowed(rebuild_tensor)
    names["torch._utils._rebuild_tensor_v3"] = Allowed(rebuild_tensor_of_dtype)
    names["torch._utils._rebuild_parameter"] = Allowed(rebuild_parameter)
    names["torch._utils._rebuild_parameter_with_state"] = Allowed(rebuild_parameter_with_state)
    names["torch._tensor._rebuild_from_type_v2"] = Allowed(rebuild_from_type)
    return names


# torch's names that a checkpoint may have: what they are here.
TORCH = _torch_names()
# Python's. Functions and immutable types: a checkpoint cannot change what they do for others.
PYTHON = {"collections.OrderedDict": collections.OrderedDict, "collections.Counter": Allowed(collections.Counter),
          "builtins.set": set, "builtins.complex": complex, "builtins.bytearray": Allowed(_bytearray),
          "_codecs.encode": Allowed(_encode)}
# Protocol 2 uses Python 2's names.
PYTHON.update({name.replace("builtins", "__builtin__"): value for name, value in PYTHON.items()})

_safe: dict[str, Any] = {}


def name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _named(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, tuple):
        if len(entry) != 2 or not isinstance(entry[1], str):
            raise ValueError(f"add_safe_globals: Expected tuple of size 2 with a callable and its full path: got {entry!r}")
        return entry[1], entry[0]
    if not callable(entry):
        raise TypeError(f"add_safe_globals: got {entry!r}; expected functions or classes, or (callable, 'module.name')")
    return name_of(entry), entry


def safe_globals_by_name() -> dict[str, Any]:
    return _safe


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Functions and classes that checkpoints may name in load(weights_only=True), which calls them with what the file says.

    An entry may be (callable, "module.name") where the checkpoint has another name for it.
    """
    _safe.update(map(_named, safe_globals))


def get_safe_globals() -> list[Any]:
    """The globals that add_safe_globals has added."""
    return [value if callable(value) and name_of(value) == name else (value, name) for name, value in _safe.items()]


def clear_safe_globals() -> None:
    """Takes back what add_safe_globals has added."""
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """add_safe_globals for the body of a with statement."""
    before = dict(_safe)
    try:
        add_safe_globals(safe_globals)
        yield
    finally:
        _safe.clear()
        _safe.update(before)
