"""What the parts of a sparse tensor must be. Those that are traced have no values yet: of them shapes and dtypes are checked."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.size import sizes_of
from sluice._C import Tensor
from sluice._tensor.creation import tensor
from sluice.sparse._tensor import SparseTensor


def dense_of(where: str, what: str, value: Any) -> Any:
    """The value as a dense tensor."""
    if isinstance(value, SparseTensor):
        raise _C.TypeError(f"{where}: {what}: a sparse tensor; must be dense: use to_dense()")
    return value if isinstance(value, Tensor) else tensor(value)


def whole(where: str, what: str, value: Any) -> Any:
    """Indices as int64."""
    t = dense_of(where, what, value)
    if t.dtype.is_floating_point and not t.numel():  # as of an empty list
        t = t.to(_C.int64)
    if t.dtype.is_floating_point or t.dtype.is_complex or t.dtype is _C.bool:
        raise _C.TypeError(f"{where}: {what}: {t.dtype.name}; must be whole numbers, as of int64")
    return t.to(_C.int64)


def sizes(where: str, size: Any) -> tuple[int, ...]:
    size = tuple(sizes_of((size,)))
    for n in size:
        if n < 0:
            raise _C.ValueError(f"{where}: size: {size}; no size may be negative")
    return size


def within(where: str, what: str, t: Any, size: int) -> None:
    """Raises where an index of a dim of that size is none."""
    if t._traced or not t.numel() or t.is_meta:
        return
    least, most = int(t.min()), int(t.max())
    if least < 0:
        raise _C.ValueError(f"{where}: {what}: {least}; must not be negative")
    if most >= size:
        raise _C.ValueError(f"{where}: {what}: {most}; must be less than {size}, the size of its dim")


def coo(where: str, indices: Any, values: Any, size: Any) -> None:
    """Of sparse_coo_tensor."""
    if indices.ndim != 2:
        raise _C.ValueError(f"{where}: indices: {indices.ndim} dims; must have 2: (dims, nnz)")
    count = indices._shape[0]
    if values.ndim == 0 or values._shape[0] != indices._shape[1]:
        raise _C.ValueError(f"{where}: values: shape {tuple(values._shape)}; must have {indices._shape[1]} rows, as many as there "
                            "are columns of indices")
    if values._device != indices._device and not values._traced and not indices._traced:
        raise _C.ValueError(f"{where}: values: on {values.device}; must be where indices are, on {indices.device}")
    if size is None:
        return
    if len(size) != count + values.ndim - 1:
        raise _C.ValueError(f"{where}: size: {size}; must have {count + values.ndim - 1} dims, {count} of indices and "
                            f"{values.ndim - 1} of values")
    if tuple(values._shape[1:]) != size[count:]:
        raise _C.ValueError(f"{where}: values: shape {tuple(values._shape)}; must end with {size[count:]}, the dense dims of size")
    for d in range(count):
        within(where, f"indices of dim {d}", indices[d], size[d])


def compressed(where: str, begins: Any, plain: Any, values: Any, names: Any) -> None:
    """Of sparse_csr_tensor and sparse_csc_tensor; names: of the two kinds of indices."""
    for what, t in ((names[0], begins), (names[1], plain)):
        if t.ndim != 1:
            raise _C.NotImplementedError(f"{where}: {what}: {t.ndim} dims; must have 1: of batches make one tensor each")
    if values.ndim != 1:
        raise _C.NotImplementedError(f"{where}: values: {values.ndim} dims; must have 1: use sparse_coo_tensor for dense dims")
    if values._shape[0] != plain._shape[0]:
        raise _C.ValueError(f"{where}: values: {values._shape[0]} elements; must be {plain._shape[0]}, as many as {names[1]}")
    if not begins._shape[0]:
        raise _C.ValueError(f"{where}: {names[0]}: empty; must have one element more than there are rows")
    if begins._traced or begins.is_meta:
        return
    first, last = int(begins[0]), int(begins[-1])
    if first != 0:
        raise _C.ValueError(f"{where}: {names[0]}: begins with {first}; must begin with 0")
    if last != plain._shape[0]:
        raise _C.ValueError(f"{where}: {names[0]}: ends with {last}; must end with {plain._shape[0]}, the number of elements")
    steps = begins[1:] - begins[:-1]
    if steps.numel() and int(steps.min()) < 0:
        raise _C.ValueError(f"{where}: {names[0]}: falls by {-int(steps.min())}; must not fall")
