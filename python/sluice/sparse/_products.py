"""Products of sparse matrices."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.sparse import _parts
from sluice.sparse._kinds import CooTensor
from sluice.sparse._tensor import SparseTensor


def _matrix(where: str, what: str, t: Any) -> None:
    """REQUIRES: t is sparse."""
    if t.ndim != 2 or t.sparse_dim() != 2:
        raise _C.ValueError(f"{where}: {what}: shape {t._shape} with {t.sparse_dim()} sparse dims; must be a matrix of 2 sparse dims")


def _checked(where: str, a: Any, b: Any, dims: tuple[int, ...]) -> None:
    for what, t in (("input", a), ("mat2", b)):
        if not isinstance(t, Tensor):
            raise _C.TypeError(f"{where}: {what}: {type(t).__name__}; must be a tensor")
        if isinstance(t, SparseTensor):
            _matrix(where, what, t)
        elif t.ndim not in dims:
            raise _C.ValueError(f"{where}: {what}: {t.ndim} dims; must have {' or '.join(map(str, dims))}")
    if a._shape[-1] != b._shape[0]:
        raise _C.ValueError(f"{where}: mat2: shape {tuple(b._shape)}; must have {a._shape[-1]} rows, as {tuple(a._shape)} has columns")
    if a.dtype is not b.dtype:
        raise _C.TypeError(f"{where}: mat2: {b.dtype.name}; must be {a.dtype.name}, as the other is")


def _both_sparse(a: Any, b: Any) -> Any:
    left, right = a.to_sparse_coo().coalesce(), b.to_sparse_csr()
    parts = (*left._places.unbind(0), left._contents), (right._begins, right._plain, right._contents)
    shape = (a._shape[0], b._shape[1])
    keys, values = _parts.product_of_sparse(*parts, shape[1])
    coo = CooTensor(_parts.indices_of(keys, shape), values, shape, True)
    return a._as(coo)


def matmul(a: Any, b: Any, where: str = "matmul", reduce: str = "sum") -> Any:
    """A sparse matrix times a matrix or vector. REQUIRES: a is sparse."""
    _checked(where, a, b, (1, 2) if where == "matmul" else (2,))
    if isinstance(b, SparseTensor):
        if reduce != "sum":
            raise _C.NotImplementedError(f"{where}: reduce: {reduce!r} of two sparse matrices; must be 'sum': use mat2.to_dense()")
        return _both_sparse(a, b)
    rows, columns = a._indices_of_all().unbind(0)
    return _parts.reduced(rows, columns, a._contents, a._shape[0], b, reduce)


def matmul_of_dense(a: Any, b: Any, where: str = "matmul") -> Any:
    """A dense matrix or vector times a sparse matrix, by the product of their transposes."""
    if not isinstance(a, Tensor):
        raise _C.TypeError(f"{where}: input: {type(a).__name__}; must be a tensor")
    _checked(where, a, b, (1, 2))
    return matmul(b.t(), a.t() if a.ndim == 2 else a, "matmul").t() if a.ndim == 2 else matmul(b.t(), a)


def mm(mat1: Any, mat2: Any, reduce: str = "sum") -> Any:
    """The product of two matrices of which one at least is sparse; dense unless both are. torch.sparse.mm.

    reduce: 'mean', 'amax' or 'amin' in place of sums over the elements that a row has.
    """
    if isinstance(mat1, SparseTensor):
        return matmul(mat1, mat2, "sparse.mm", reduce)
    if not isinstance(mat2, SparseTensor):
        if reduce == "sum" and isinstance(mat1, Tensor) and isinstance(mat2, Tensor):
            return mat1.mm(mat2)
        raise _C.TypeError("sparse.mm: neither matrix is sparse; one at least must be")
    if reduce != "sum":
        raise _C.NotImplementedError(f"sparse.mm: reduce: {reduce!r} of a dense mat1; must be 'sum'")
    return matmul_of_dense(mat1, mat2, "sparse.mm")


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    """beta * input + alpha * (mat1 @ mat2), of a dense input; torch.sparse.addmm."""
    product = mm(mat1, mat2)
    if isinstance(input, SparseTensor) != isinstance(product, SparseTensor):
        kinds = ["sparse" if isinstance(t, SparseTensor) else "dense" for t in (input, product)]
        raise _C.TypeError(f"sparse.addmm: input: {kinds[0]}; must be {kinds[1]}, as the product is: use to_dense() or to_sparse()")
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


def spmm(input: Any, mat2: Any) -> Any:  # noqa: A002
    """sluice.sparse.mm; torch.spmm, torch.smm and torch.hspmm."""
    return mm(input, mat2)


smm = hspmm = spmm


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:  # noqa: A002
    """beta * input + alpha * (mat1 @ mat2) at the elements that the sparse matrix input has; torch.sparse.sampled_addmm."""
    if not isinstance(input, SparseTensor):
        raise _C.TypeError("sparse.sampled_addmm: input: a dense tensor; must be sparse: use addmm")
    _matrix("sparse.sampled_addmm", "input", input)
    if mat1.ndim != 2 or mat2.ndim != 2 or (mat1._shape[0], mat2._shape[1]) != input._shape or mat1._shape[1] != mat2._shape[0]:
        raise _C.ValueError(f"sparse.sampled_addmm: mat1 and mat2: shapes {tuple(mat1._shape)} and {tuple(mat2._shape)}; must be matrices "
                            f"whose product has shape {input._shape}")
    rows, columns = input._indices_of_all().unbind(0)
    products = (mat1[rows] * mat2.t()[columns]).sum(1)
    return input._like(input._contents * beta + products * alpha)
