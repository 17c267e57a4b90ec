"""Sparse tensors, COO, CSR and CSC: torch.sparse. They are made by sparse_coo_tensor and the like, and by to_sparse(); docs/sparse.md."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice.sparse import _functions as _functions, _parts
from sluice.sparse._kinds import CooTensor as _CooTensor
from sluice.sparse._products import addmm as addmm, mm as mm, sampled_addmm as sampled_addmm
from sluice.sparse._tensor import SparseTensor as SparseTensor


def _sparse(where: str, t: Any) -> Any:
    if not isinstance(t, SparseTensor):
        raise _C.TypeError(f"sparse.{where}: input: {type(t).__name__}; must be sparse: use to_sparse()")
    return t


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:  # noqa: A001,A002
    """The sum of all, as a dense scalar, or over dims, which is sparse while sparse dims are left; torch.sparse.sum."""
    t = _sparse("sum", input)
    t = t if dtype is None else t.to(dtype)
    if dim is None:
        return t._contents.sum()
    dims = {dim} if isinstance(dim, int) else set(dim)
    if any(not -t.ndim <= d < t.ndim for d in dims):
        raise _C.IndexError(f"sparse.sum: dim: {dim}; must be from {-t.ndim} to {t.ndim - 1}")
    gone, coo = {d % t.ndim for d in dims}, t.to_sparse_coo()
    count, values = coo.sparse_dim(), coo._contents
    if dense := [d - count + 1 for d in gone if d >= count]:
        values = values.sum(dense)
    left = [d for d in range(count) if d not in gone]
    if not left:
        return values.sum(0)
    places = coo._places if len(left) == count else _C.fn.stack([coo._places[d] for d in left])
    made = _CooTensor(places, values, [n for d, n in enumerate(t._shape) if d not in gone], coo._coalesced and len(left) == count)
    return made if made._traced else made.coalesce()


def _normalized(where: str, input: Any, dim: int, dtype: Any, log: bool) -> Any:  # noqa: A002
    t = _sparse(where, input)
    t = (t if dtype is None else t.to(dtype)).coalesce()
    if not -t.ndim <= dim < t.ndim:
        raise _C.IndexError(f"sparse.{where}: dim: {dim}; must be from {-t.ndim} to {t.ndim - 1}")
    dim, count = dim % t.ndim, t.sparse_dim()
    if dim >= count:
        f = _C.fn.log_softmax if log else _C.fn.softmax
        return t._like(f(t._contents, dim - count + 1))
    others = [d for d in range(count) if d != dim]
    places = t._indices_of_all()
    keys = _parts.keys_of(_C.fn.stack([places[d] for d in others]), [t._shape[d] for d in others]) if others else places[0] * 0
    return t._like(_parts.softmax(keys, t._contents, log))


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:  # noqa: A002
    """The softmax over the elements that there are; others count as -inf, and stay zeros. torch.sparse.softmax."""
    return _normalized("softmax", input, dim, dtype, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:  # noqa: A002
    """The logarithm of softmax(); torch.sparse.log_softmax."""
    return _normalized("log_softmax", input, dim, dtype, True)
