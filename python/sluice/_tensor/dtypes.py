"""Dtypes: the numbers that they hold, the dtypes of results, and the classes of tensors that are named after a dtype."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._tensor import creation
from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice._base.size import Size
from sluice._tensor.float8_dtypes import is_float8

# Bits of the exponent and of the fraction, and decimal digits that survive.
_FLOATS = {"float16": (5, 10, 3), "bfloat16": (8, 7, 2), "float32": (8, 23, 6), "float64": (11, 52, 15)}


def _dtype(name: str, type: Any) -> Any:
    builtin = {bool: _C.bool, int: _C.int64, float: _C.get_default_dtype(), complex: _C.get_default_dtype().to_complex()}
    type = builtin.get(type, type)
    if not isinstance(type, _C.dtype):
        raise TypeError(f"{name}: got {type!r}; must be a dtype")
    return type


class finfo:
    """The range and precision of a floating dtype, or of the parts of a complex one; torch.finfo."""

    def __init__(self, type: Any = None) -> None:
        type = _C.get_default_dtype() if type is None else _dtype("finfo", type)
        type = type.to_real()
        if not type.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type.name}'")
        if is_float8(type):
            self._of_8_bits(type)
            return
        exponent, fraction, digits = _FLOATS[type.name]
        bias = 2 ** (exponent - 1) - 1
        self.bits, self.dtype, self.eps = 8 * type.itemsize, type.name, 2.0**-fraction
        self.max = (2 - self.eps) * 2.0**bias
        self.min, self.tiny, self.resolution = -self.max, 2.0 ** (1 - bias), float(f"1e-{digits}")
        self.smallest_normal = self.tiny

    def _of_8_bits(self, type: Any) -> None:
        form = type.form
        self.bits, self.dtype, self.eps, self.resolution = 8, type.name, 2.0**-form.fraction, 1.0
        self.max = form.number(form.finite - 1)
        self.min, self.tiny = -self.max, form.number(1 << form.fraction)
        self.smallest_normal = self.tiny

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{n}={getattr(self, n):.6g}' for n in names)}, dtype={self.dtype})"


class iinfo:
    """The range of an integer dtype; torch.iinfo."""

    def __init__(self, type: Any) -> None:
        type = _dtype("iinfo", type)
        if type.is_floating_point or type.is_complex or type is _C.bool:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type.name}'")
        self.bits, self.dtype = 8 * type.itemsize, type.name
        signed = type.is_signed
        self.max, self.min = 2 ** (self.bits - signed) - 1, -(2 ** (self.bits - 1)) if signed else 0

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:.6g}, max={self.max:.6g}, dtype={self.dtype})"


def can_cast(from_: Any, to: Any) -> bool:
    """Whether results of one dtype may be written into tensors of the other; torch.can_cast."""
    def kind(d):
        return 0 if d is _C.bool else 3 if d.is_complex else 2 if d.is_floating_point else 1

    return kind(_dtype("can_cast", from_)) <= kind(_dtype("can_cast", to))


def result_type(tensor: Any, other: Any) -> Any:
    """The dtype of an operation on both, tensors or numbers; torch.result_type."""
    return _C.result_type(tensor, other)


# torch.FloatTensor and its like


def new_tensor(*data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """torch.Tensor(2, 3): of a size, with any contents; torch.Tensor([2, 3]): of data."""
    dtype = dtype or _C.get_default_dtype()
    if not data or all(isinstance(d, Integral) and not isinstance(d, bool) for d in data):
        return empty(data or (0,), dtype=dtype, device=device)
    if len(data) > 1:
        raise TypeError(f"new(): received an invalid combination of arguments: {data!r}; must be sizes, or one sequence of data")
    if isinstance(data[0], Size):
        return empty(data[0], dtype=dtype, device=device)
    if isinstance(data[0], Tensor):
        if data[0].dtype is not dtype:
            raise TypeError(f"expected Tensor of {dtype} but got {data[0].dtype}; convert it with to()")
        return data[0].detach()
    if isinstance(data[0], (bool, float)) or not hasattr(data[0], "__len__"):
        raise TypeError(f"new(): data must be a sequence (got {type(data[0]).__name__}); torch.tensor({data[0]!r}) is one of a number")
    return creation.tensor(data[0], dtype=dtype, device=device)


class _TensorClass(type):
    """FloatTensor: makes float32 tensors, and every float32 tensor is one."""

    def __instancecheck__(cls, object):
        return isinstance(object, Tensor) and object.dtype is cls.dtype and object.is_cpu

    def __call__(cls, *data, device=None):
        return new_tensor(*data, dtype=cls.dtype, device=device)


def _tensor_class(name: str, dtype: Any) -> Any:
    members = {"dtype": dtype, "__module__": "sluice", "__doc__": f"Tensors of {dtype.name}: FloatTensor(2, 3), FloatTensor([1, 2])."}
    return _TensorClass(name, (), members)


TENSOR_CLASSES = {name: _tensor_class(name, dtype) for name, dtype in {
    "FloatTensor": _C.float32, "DoubleTensor": _C.float64, "HalfTensor": _C.float16, "BFloat16Tensor": _C.bfloat16,
    "LongTensor": _C.int64, "IntTensor": _C.int32, "ShortTensor": _C.int16, "CharTensor": _C.int8, "ByteTensor": _C.uint8,
    "BoolTensor": _C.bool}.items()}


def type_name(tensor: Any) -> str:
    """The name that Tensor.type() gives: 'torch.FloatTensor'."""
    prefix = "torch." if tensor.is_cpu else f"torch.{tensor.device.type}."
    if tensor.dtype.is_complex:  # named so, though torch has no such classes
        return prefix + ("ComplexFloatTensor" if tensor.dtype is _C.complex64 else "ComplexDoubleTensor")
    return prefix + next(name for name, cls in TENSOR_CLASSES.items() if cls.dtype is tensor.dtype)


def dtype_of_type(type: Any) -> Any:
    """The dtype that `type` names: a dtype, a class as FloatTensor, or its name."""
    if isinstance(type, str):
        type = TENSOR_CLASSES.get(type.rpartition(".")[2])
    return getattr(type, "dtype", type) if isinstance(type, _TensorClass) else type


def set_default_tensor_type(t: Any) -> None:
    """The default dtype by a class or its name; torch.set_default_tensor_type."""
    dtype = dtype_of_type(t)
    if not isinstance(dtype, _C.dtype) or not dtype.is_floating_point:
        raise TypeError(f"set_default_tensor_type: got {t!r}; only floating-point types are supported as the default type")
    _C.set_default_dtype(dtype)
