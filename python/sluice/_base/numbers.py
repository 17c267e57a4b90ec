"""Numbers of Python in nested lists as arrays, and the dtypes that torch infers for them."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor

_lazy_numpy = None


def numpy() -> Any:
    """numpy, imported when first needed: importing it takes longer than importing Sluice."""
    global _lazy_numpy
    if _lazy_numpy is None:
        import numpy

        _lazy_numpy = numpy
    return _lazy_numpy


def is_whole(number: Any) -> bool:
    if isinstance(number, Tensor):
        return not number.dtype.is_floating_point and not number.dtype.is_complex
    return isinstance(number, Integral)


def array_of(data: Any, dtype: Any = None) -> Any:
    """`data` as an array, and the dtype torch infers for it; dtype: the one that is asked for."""
    np = numpy()
    if hasattr(data, "__array__"):
        return np.asarray(data), None
    if isinstance(data, (list, tuple)) and _has_tensors(data):
        return np.stack([array_of(d, dtype)[0] for d in data]) if len(data) else np.asarray(data), None
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise _C.ValueError(f"tensor: cannot be made of nested sequences of unequal length: {error}") from None
    if _has_long_ints(array, data):
        numbers = list(_leaves(data))
        if all(map(is_whole, numbers)) and not (dtype is not None and dtype.is_floating_point):
            longest = max(n.bit_length() for n in numbers)
            raise _C.ValueError(f"tensor: an int of {longest} bits was given; must fit into 64 with its sign, or be a float")
        array = np.asarray(data, np.float64)
    if array.dtype == object or array.dtype.kind in "USO":
        raise _C.TypeError(f"tensor: got {type(data).__name__} with elements of {array.dtype}; must be numbers, nested lists of numbers, or "
                           "an array of numbers")
    if array.dtype.kind == "c" and not _has_dtype(data):
        return array, _C.get_default_dtype().to_complex()
    return array, (_C.get_default_dtype() if array.dtype.kind == "f" and not _has_dtype(data) else None)


def _has_long_ints(array: Any, data: Any) -> bool:
    """Whether NumPy found whole numbers that int64 has not, and took something else."""
    if array.dtype == object:
        return array.size > 0 and all(isinstance(n, (int, float)) for n in _leaves(data))
    return array.dtype.kind in "uf" and not _has_dtype(data) and bool((abs(array) >= 2.0**63).any())


def _leaves(data: Any) -> Iterator[Any]:
    for item in data if isinstance(data, (list, tuple)) else (data,):
        yield from _leaves(item) if isinstance(item, (list, tuple)) else (item,)


def _has_tensors(data: Any) -> Any:
    return any(isinstance(d, Tensor) or (isinstance(d, (list, tuple)) and _has_tensors(d)) for d in data)


def _has_dtype(data: Any) -> bool:
    """Its first element is a scalar of numpy."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return hasattr(data, "dtype")
