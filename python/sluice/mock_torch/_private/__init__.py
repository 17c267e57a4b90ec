"""Parts of torch that packages are known to import and Sluice does not have, as far as these use them: torchvision, timm, transformers,
and others. What is of one kind is in one module of this room.

Names that are only there to be imported refuse to be used.
"""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base import device as _device
from sluice._base.recorded import _assert, note
from sluice._base.size import Size
from sluice._tensor import creation
from sluice.distributions import Dirichlet, _sampling, transforms
from sluice.distributions.utils import sum_rightmost
from sluice.sparse._parts import begins_of, rows_of
from sluice.mock_torch._private import datapipes, devices, dtypes, exports, files, ops, parallel, tracers
from sluice.mock_torch._private.bases import ALSO as ALSO, BASES as BASES, PLACES
from sluice.mock_torch._private.made import module
from sluice.mock_torch._private.pytree import PYTREE
from sluice.mock_torch._private.refused import REFUSED, refused_module
from sluice.nn.modules.module import RemovableHandle


def _check_with(error: Any, condition: Any, message: Any = None) -> None:
    if not condition:
        raise error("Expected cond to be True, but got False." if message is None else message())


def _check(condition: Any, message: Any = None) -> None:
    _check_with(RuntimeError, condition, message)


def _check_tensor_all_with(error: Any, condition: Any, message: Any = None) -> None:
    """Raises where an element is false. A graph does not ask: its values are not there while it is traced."""
    _check_with(error, _C.touches_graph(condition) or condition.all().item(), message)


def _check_tensor_all(condition: Any, message: Any = None) -> None:
    _check_tensor_all_with(RuntimeError, condition, message)


def _assert_async(condition: Any, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raises for a value that is zero. A graph does not ask: its values are not there while it is traced."""
    if not _C.touches_graph(condition) and not condition:
        raise RuntimeError(message)


def _shape_as_tensor(t: Any) -> Any:
    return creation.tensor(list(t.shape))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return creation.randn(shape, dtype=dtype, device=device)


def _sample_dirichlet(concentration: Any, generator: Any = None) -> Any:
    if generator is not None:
        raise NotImplementedError("torch._sample_dirichlet: a generator; Sluice draws from its default one (sluice.manual_seed)")
    return Dirichlet(concentration).sample()


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:  # noqa: A002
    """Where each row begins, of rows that are in order."""
    return begins_of(input, size).to(_C.int32 if out_int32 else _C.int64)


def _convert_indices_from_csr_to_coo(crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False) -> Any:
    """(2, nnz): the row and column of each element."""
    pair = [rows_of(crow_indices, col_indices._shape[0]), col_indices]
    return _C.fn.stack(pair[::-1] if transpose else pair).to(_C.int32 if out_int32 else _C.int64)


def _ntuple(n: int) -> Any:
    """A number n times; what is iterable already, as a tuple."""
    return lambda value: tuple(value) if hasattr(value, "__iter__") else (value,) * n


# Modules that Sluice has not, or by another name.
PRIVATE: dict[str, Any] = {
    **PLACES, **files.MODULES, **devices.MODULES, **tracers.MODULES, **exports.MODULES, **parallel.MODULES, **datapipes.MODULES,
    "torch.utils._pytree": PYTREE,
    "torch.futures": refused_module("torch.futures"),
    "torch.nn.modules.utils": module("torch.nn.modules.utils", _ntuple=_ntuple, _single=_ntuple(1), _pair=_ntuple(2), _triple=_ntuple(3),
                                     _quadruple=_ntuple(4)),
    "torch.types": module("torch.types", _device=_device.device, _dtype=_C.dtype, _size=Size, Device=_device.device, Tensor=_C.Tensor,
                          Number=(int, float, bool), _bool=bool, _int=int, _float=float),
    "torch.utils.hooks": module("torch.utils.hooks", RemovableHandle=RemovableHandle),
}

# Names of modules that Sluice has.
MEMBERS: dict[str, dict[str, Any]] = {
    "torch": {**REFUSED["torch"], "_assert": _assert, "_check": _check, "_check_with": _check_with, "_assert_async": _assert_async,
              "_check_tensor_all": _check_tensor_all, "_check_tensor_all_with": _check_tensor_all_with,
              "_shape_as_tensor": _shape_as_tensor, "_sample_dirichlet": _sample_dirichlet,
              "_convert_indices_from_coo_to_csr": _convert_indices_from_coo_to_csr,
              "_convert_indices_from_csr_to_coo": _convert_indices_from_csr_to_coo,
              "_standard_gamma": _sampling.standard_gamma},
    "torch.distributions.transforms": {"_InverseTransform": transforms._Inverse},
    "torch.distributions.utils": {"_sum_rightmost": sum_rightmost, "_standard_normal": _standard_normal},
}
note(MEMBERS["torch"], "_assert")
for _part in (devices, dtypes, files, ops, parallel, tracers):
    for _name, _members in _part.MEMBERS.items():
        MEMBERS.setdefault(_name, {}).update(_members)
