"""NumPy's arrays as arguments of layers, losses and graphs."""

from __future__ import annotations

import itertools
import sys
from typing import Any
from sluice import _C
from sluice._tensor.creation import tensor


def _tensor_of(array: Any, modules: Any) -> Any:
    tensors = itertools.chain.from_iterable(itertools.chain(m.parameters(), m.buffers()) for m in modules)
    first = next((t for t in tensors if t.is_floating_point()), None)
    dtype = None
    if array.dtype.kind == "f" and (first is not None or array.dtype == "float64"):
        dtype = _C.get_default_dtype() if first is None else first.dtype
    return tensor(array, dtype=dtype, device=None if first is None or first.is_global else first.device)


def _replaced(nest: Any, ndarray: Any, modules: Any) -> Any:
    if isinstance(nest, ndarray):
        return _tensor_of(nest, modules)
    if type(nest) in (tuple, list):
        return type(nest)(_replaced(entry, ndarray, modules) for entry in nest)
    if type(nest) is dict:
        return {name: _replaced(entry, ndarray, modules) for name, entry in nest.items()}
    return nest


def with_tensors(modules: Any, args: Any, kwargs: Any) -> Any:
    """(args, kwargs) with tensors, copies, in the place of NumPy's arrays, also within tuples, lists and dicts.

    A floating array gets the dtype of the first floating parameter or buffer of `modules`, and any goes where that is. If
    there is none, float64, which is what NumPy makes by itself, becomes the default dtype.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return args, kwargs
    return _replaced(args, numpy.ndarray, modules), _replaced(kwargs, numpy.ndarray, modules)
