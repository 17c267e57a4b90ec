"""Writing the pickle of a checkpoint, with torch's names for what torch has, too."""

from __future__ import annotations

import collections
import ctypes
import io
import pickle
from typing import Any

from sluice import _C
from sluice._base.device import device
from sluice._base.parts import has_parts
from sluice._tensor.float8_dtypes import DTYPES as FLOAT8, Float8Dtype, is_float8
from sluice._tensor.pickling import address_range, check_concrete
from sluice._base.size import Size
from sluice.errors import TypeError  # noqa: A004
from sluice._graph.graph import Graph
from sluice.nn._rows import RowsParameter
from sluice.nn.parameter import Parameter
from sluice.serialization._names import STORAGES


class _Name:
    """Pickles as a global of torch, which need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> None:  # pickle wants functions to be callable
        raise NotImplementedError(f"{self.module}.{self.name}")


_TENSOR = _Name("torch._utils", "_rebuild_tensor_v2")
_OF_DTYPE, _UNTYPED = _Name("torch._utils", "_rebuild_tensor_v3"), _Name("torch.storage", "UntypedStorage")
_PARAMETER = _Name("torch._utils", "_rebuild_parameter")
_PARAMETER_WITH_STATE = _Name("torch._utils", "_rebuild_parameter_with_state")
_SPARSE, _LAYOUT = _Name("torch._utils", "_rebuild_sparse_tensor"), _Name("torch.serialization", "_get_layout")
_FROM_TYPE = _Name("torch._tensor", "_rebuild_from_type_v2")
_DEVICE, _SIZE = _Name("torch", "device"), _Name("torch", "Size")
_TORCH_TYPES = {_C.Tensor: _Name("torch", "Tensor"), Parameter: _Name("torch.nn.parameter", "Parameter")}
_STORAGES = {dtype: _Name("torch", name) for dtype, name in STORAGES.items()}
_DTYPES = {dtype: _Name("torch", dtype.name) for dtype in (*STORAGES, *FLOAT8.values())}


class Storage:
    """Memory that tensors of a checkpoint share: from the first to the last element that any of them sees."""

    def __init__(self, key: str, dtype: Any, location: str) -> None:
        self.key, self.dtype, self.location = key, dtype, location
        self.start, self.end, self.tensors = 2**64, 0, []  # type: ignore[var-annotated]

    def add(self, t: Any) -> None:
        begin = t.data_ptr() if t.numel() else address_range(t)[0]
        self.start, self.end = min(self.start, begin), max(self.end, address_range(t)[1])
        self.tensors.append(t)

    @property
    def nbytes(self) -> int:
        return max(0, self.end - self.start)

    def data(self) -> Any:
        if not self.nbytes:
            return b""
        return (ctypes.c_ubyte * self.nbytes).from_address(self.start)


class Storages:
    """The storages of a checkpoint. They are known in full when all tensors have been added."""

    def __init__(self) -> None:
        self._by_place: dict[Any, Storage] = {}
        self.all: list[Storage] = []
        self._copies: dict[int, tuple[Any, Any]] = {}

    def of(self, t: Any, dtype: Any = None) -> tuple[Storage, Any]:
        """The storage of a tensor, and the tensor on the CPU that lies there. dtype: that of its elements, where its own is that of bits."""
        if id(t) in self._copies:
            t_cpu = self._copies[id(t)][1]
        else:
            check_concrete("save", t)
            t_cpu = t.detach() if t.is_cpu else t.detach().cpu()
            self._copies[id(t)] = (t, t_cpu)
        dtype = dtype or t_cpu.dtype
        place = (address_range(t_cpu)[0], dtype) if t_cpu.numel() else (id(t), None)
        storage = self._by_place.get(place)
        if storage is None:
            storage = self._by_place[place] = Storage(str(len(self.all)), dtype, str(t.device))
            self.all.append(storage)
        return storage, t_cpu


class Pickler(pickle._Pickler):  # type: ignore[name-defined]  # Python's own can write names of what is not there
    def __init__(self, file: Any, protocol: int, storages: Storages, collecting: bool) -> None:
        super().__init__(file, protocol)
        self._storages, self._collecting = storages, collecting

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Storage):
            return None
        kind = _UNTYPED if is_float8(obj.dtype) else _STORAGES[obj.dtype]
        return ("storage", kind, obj.key, obj.location, obj.nbytes // obj.dtype.itemsize)

    def reducer_override(self, obj: Any) -> Any:
        if has_parts(obj):
            return self._reduced_float8(obj.detach()) if is_float8(obj.dtype) else _reduced_sparse(obj.detach())
        if isinstance(obj, _C.Tensor):
            return self._reduced(obj)
        if isinstance(obj, Graph):
            raise TypeError(f"save: graph '{obj.name}' is a part of other data; save the state_dict() of its modules there, "
                            "or the graph alone as a bundle")
        if isinstance(obj, device):
            return _DEVICE, (str(obj),)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        return NotImplemented

    def _reduced(self, t: Any) -> Any:
        t = t.as_saved() if isinstance(t, RowsParameter) else t
        storage, data = self._storages.of(t)
        if self._collecting:
            storage.add(data)
        offset = (data.data_ptr() - storage.start) // data.dtype.itemsize if data.numel() else 0
        args = (storage, offset, tuple(data._shape), tuple(data._strides()), t.requires_grad, collections.OrderedDict())
        state = t.__dict__ or None
        if type(t) is Parameter:
            plain = _Reduced(_TENSOR, (*args[:4], False, args[5]))
            parts = (plain, t.requires_grad, collections.OrderedDict())
            return (_PARAMETER, parts) if state is None else (_PARAMETER_WITH_STATE, (*parts, state))
        if type(t) is _C.Tensor and state is None:
            return _TENSOR, args
        return _FROM_TYPE, (_TENSOR, _TORCH_TYPES.get(type(t), type(t)), args, state or {})

    def _reduced_float8(self, t: Any) -> Any:
        storage, data = self._storages.of(t._bits, t.dtype)
        if self._collecting:
            storage.add(data)
        offset = data.data_ptr() - storage.start if data.numel() else 0
        return _OF_DTYPE, (storage, offset, tuple(data._shape), tuple(data._strides()), False, collections.OrderedDict(), t.dtype)

    def _save_name(self, obj: _Name) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    def _save_dtype(self, obj: Any) -> None:
        self.save(_DTYPES[obj])

    def _save_reduced(self, obj: Any) -> None:
        self.save_reduce(obj.function, obj.args)

    dispatch = {**pickle._Pickler.dispatch, _Name: _save_name, _C.dtype: _save_dtype, Float8Dtype: _save_dtype}  # type: ignore[attr-defined]


def _reduced_sparse(t: Any) -> Any:
    parts, shape = list(t._to_parts()[0].values()), Size(t._shape)
    data = (*parts, shape, t.is_coalesced()) if t.is_sparse else (*parts, shape)
    return _SPARSE, (_Reduced(_LAYOUT, (str(t.layout),)), data)


class _Reduced:
    """Pickles as the result of a call."""

    def __init__(self, function: Any, args: Any) -> None:
        self.function, self.args = function, args


Pickler.dispatch[_Reduced] = Pickler._save_reduced


def pickled(obj: Any, protocol: int) -> tuple[bytes, list[Storage]]:
    """The pickle of an object, and its storages. It is pickled twice: first to see how large storages are."""
    storages = Storages()
    Pickler(io.BytesIO(), protocol, storages, True).dump(obj)
    out = io.BytesIO()
    Pickler(out, protocol, storages, False).dump(obj)
    return out.getvalue(), storages.all
