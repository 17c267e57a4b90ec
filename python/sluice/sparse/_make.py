"""Sparse tensors of their parts, and of dense tensors."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.memory_format import sparse_csc, sparse_csr
from sluice._C import fn, Tensor
from sluice._tensor.creation import get_default_dtype, zeros
from sluice.sparse import _check, _parts
from sluice.sparse._kinds import CompressedTensor, CooTensor
from sluice.sparse._tensor import SparseTensor, to_layout


def _values_of(where: str, values: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    t = _check.dense_of(where, "values", values)
    if dtype is not None or device is not None:
        t = t.to(device=device, dtype=dtype)
    if requires_grad and not (t.is_floating_point() or t.is_complex()):
        raise _C.RuntimeError(f"{where}: requires_grad: True of {t.dtype.name}; must be floating or complex")
    return t.detach().clone() if requires_grad else t


def _done(made: Any, requires_grad: bool) -> Any:
    return made.requires_grad_(True) if requires_grad else made


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: Any = None,
                      is_coalesced: Any = None) -> Any:
    """A tensor with values (nnz, *dense dims) at indices (sparse dims, nnz); torch.sparse_coo_tensor.

    Without `size` it is just large enough. Values that require grad get gradients through it; requires_grad makes a leaf of its own.
    """
    where = "sparse_coo_tensor"
    if values is None:  # sparse_coo_tensor(size), of no elements
        size = _check.sizes(where, indices if size is None else size)
        place = zeros((len(size), 0), dtype=_C.int64, device=device)
        return _done(CooTensor(place, zeros(0, dtype=dtype or get_default_dtype(), device=device), size, True), requires_grad)
    v = _values_of(where, values, dtype, device, requires_grad)
    index = _check.whole(where, "indices", indices)
    if index.ndim == 1 and not index.numel() and size is not None:  # of an empty list
        index = index.reshape(len(_check.sizes(where, size)) - max(v.ndim - 1, 0), 0)
    if device is not None or not isinstance(indices, Tensor):
        index = index if v._traced else index.to(v._device)
    if v.ndim == 0 and index.ndim == 2:
        v = v.expand(index._shape[1])
    size = None if size is None else _check.sizes(where, size)
    _check.coo(where, index, v, size)
    if size is None:
        if index._traced:
            raise _C.ValueError(f"{where}: size: None; must be given where indices have no values, as while a graph is built")
        most = [int(row.max()) + 1 for row in index] if index._shape[1] else [0] * index._shape[0]
        size = (*most, *v._shape[1:])
        _check.coo(where, index, v, size)
    return _done(CooTensor(index, v, size, not index._shape[1] if is_coalesced is None else bool(is_coalesced)), requires_grad)


def in_order(t: Any) -> Any:
    """A COO tensor as coalesced: itself where its indices are in order, and each is there once."""
    keys = _parts.keys_of(t._indices(), t._shape[:t.sparse_dim()])
    return t._coalesced_(True) if not keys.numel() or bool((keys[1:] > keys[:-1]).all()) else t.coalesce()


def _compressed(where: str, layout: Any, begins: Any, plain: Any, values: Any, size: Any, dtype: Any, device: Any,
                requires_grad: bool) -> Any:
    by_rows = layout == "sparse_csr"
    names = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    v = _values_of(where, values, dtype, device, requires_grad)
    begins, plain = (_check.whole(where, name, t) for name, t in zip(names, (begins, plain)))
    if not v._traced and not begins._traced:
        begins, plain = begins.to(v._device), plain.to(v._device)
    _check.compressed(where, begins, plain, v, names)
    if size is None:
        if plain._traced:
            raise _C.ValueError(f"{where}: size: None; must be given where indices have no values, as while a graph is built")
        other = int(plain.max()) + 1 if plain.numel() else 0
        size = (begins._shape[0] - 1, other)[::1 if by_rows else -1]
    size = _check.sizes(where, size)
    if len(size) != 2:
        raise _C.NotImplementedError(f"{where}: size: {size}; must have 2 dims: make one tensor for each matrix of a batch")
    rows, columns = size[::1 if by_rows else -1]
    if begins._shape[0] != rows + 1:
        raise _C.ValueError(f"{where}: {names[0]}: {begins._shape[0]} elements; must be {rows + 1}, one more than size {size} has "
                            f"{'rows' if by_rows else 'columns'}")
    _check.within(where, names[1], plain, columns)
    return _done(CompressedTensor(sparse_csr if by_rows else sparse_csc, begins, plain, v, size), requires_grad)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: Any = None) -> Any:
    """A matrix of which row i has values[crow_indices[i]:crow_indices[i + 1]] in the columns that col_indices say; torch.sparse_csr_tensor."""
    return _compressed("sparse_csr_tensor", sparse_csr, crow_indices, col_indices, values, size, dtype, device, requires_grad)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: Any = None) -> Any:
    """sparse_csr_tensor with rows and columns exchanged; torch.sparse_csc_tensor."""
    return _compressed("sparse_csc_tensor", sparse_csc, ccol_indices, row_indices, values, size, dtype, device, requires_grad)


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                             layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                             check_invariants: Any = None) -> Any:
    """A matrix in the layout sparse_csr or sparse_csc; torch.sparse_compressed_tensor."""
    where = "sparse_compressed_tensor"
    if layout not in ("sparse_csr", "sparse_csc"):
        raise _C.NotImplementedError(f"{where}: layout: {layout}; must be sparse_csr or sparse_csc")
    return _compressed(where, layout, compressed_indices, plain_indices, values, size, dtype, device, requires_grad)


def masked(t: Any, mask: Any) -> Any:
    """The elements of a dense tensor where a sparse one has some, in its layout; torch.Tensor.sparse_mask."""
    if not isinstance(mask, SparseTensor) or mask._shape != tuple(t._shape):
        raise _C.ValueError(f"sparse_mask: mask: shape {tuple(mask.shape)}; must be sparse, of shape {tuple(t._shape)}")
    mask = mask.coalesce()
    return mask._like(t[tuple(mask._indices_of_all().unbind(0))])


# Methods of dense tensors.


def to_sparse(self: Any, sparse_dim: Any = None, *, layout: Any = None, dense_dim: Any = None) -> Any:
    """The elements that are not zeros; torch.Tensor.to_sparse. sparse_dim: how many dims have indices; the others are dense."""
    if self._traced:
        raise _C.RuntimeError("to_sparse: how many elements are not zeros is not known while a graph is built; must be known: use "
                              "sparse_coo_tensor with indices that are inputs or constants")
    count = self.ndim if sparse_dim is None else int(sparse_dim)
    if not 0 <= count <= self.ndim or (count == 0) != (self.ndim == 0):
        raise _C.ValueError(f"to_sparse: sparse_dim: {count}; must be from 1 to {self.ndim}, the number of dims")
    there = self.detach() != 0
    if count < self.ndim:
        there = there.reshape(*self._shape[:count], -1).any(-1)
    if count == 0:
        found = zeros((0, int(bool(there))), dtype=_C.int64, device=self._device)
        values = self.reshape(1)[:found._shape[1]]
    else:
        found = fn.nonzero(there).t().contiguous()
        keys = _parts.keys_of(found, self._shape[:count])
        values = fn.index_select(self.reshape(-1, *self._shape[count:]), 0, keys)
    return to_layout(CooTensor(found, values, self._shape, True), "sparse_coo" if layout is None else layout)


def to_sparse_coo(self: Any) -> Any:
    return to_sparse(self)


def to_sparse_csr(self: Any, dense_dim: Any = None) -> Any:
    return to_sparse(self, layout="sparse_csr")


def to_sparse_csc(self: Any, dense_dim: Any = None) -> Any:
    return to_sparse(self, layout="sparse_csc")


def sparse_mask(self: Any, mask: Any) -> Any:
    return masked(self, mask)
