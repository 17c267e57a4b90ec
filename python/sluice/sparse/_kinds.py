"""The kinds of sparse tensors: COO, which has the indices of every element, and CSR and CSC, which have where rows or columns begin."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.memory_format import sparse_coo, sparse_csc, sparse_csr
from sluice._C import fn
from sluice.sparse import _parts
from sluice.sparse._tensor import higher, layouts, SparseTensor
from sluice.sparse._text import sparse_text


def rebuilt_coo(indices: Any, values: Any, shape: Any, coalesced: Any) -> Any:
    return CooTensor(indices, values, tuple(shape), bool(coalesced))


def rebuilt_compressed(layout: Any, begins: Any, plain: Any, values: Any, shape: Any) -> Any:
    return CompressedTensor(sparse_csr if layout == "sparse_csr" else sparse_csc, begins, plain, values, tuple(shape))


class CooTensor(SparseTensor):
    """indices (sparse dims, nnz), values (nnz, *dense dims). Coalesced: its indices are in order, each is there once."""

    layout = sparse_coo

    def __init__(self, indices: Any, values: Any, shape: Any, coalesced: bool) -> None:
        self.__dict__.update(_places=indices, _contents=values, _shape=tuple(shape), _coalesced=coalesced)

    _places: Any
    _coalesced: bool

    def _to_parts(self) -> Any:
        rest = self.layout, self._shape, self._places._shape[0], self._coalesced
        return {"_places": self._places, "_contents": self._contents}, rest

    @staticmethod
    def _of_parts(rest: Any, parts: Any) -> Any:
        return CooTensor(*parts, rest[1], rest[-1])

    def _like(self, values: Any) -> Any:
        return CooTensor(self._places, values, self._shape, self._coalesced)

    def _indices_of_all(self) -> Any:
        return self._places

    def _moved(self, place: Any, values: Any) -> Any:
        places = self._places.clone() if place is None else self._places.to(place)
        return CooTensor(places, values, self._shape, self._coalesced)

    def to_sparse_coo(self) -> Any:
        return self

    def _as(self, coo: Any) -> Any:
        return coo

    def _coalesced_(self, coalesced: bool) -> Any:
        self.__dict__["_coalesced"] = bool(coalesced)
        return self

    def is_coalesced(self) -> bool:
        return self._coalesced

    def indices(self) -> Any:
        return self._of_coalesced("indices", self._places)

    def values(self) -> Any:
        return self._of_coalesced("values", self._contents)

    def _of_coalesced(self, name: str, part: Any) -> Any:
        if not self._coalesced:
            raise _C.RuntimeError(f"{name}: the tensor is not coalesced; must be: use coalesce().{name}(), or _{name}() as it is")
        return part

    def _indices(self) -> Any:
        return self._places

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuilt_coo, (self._places, self._contents, self._shape, self._coalesced)

    def __repr__(self) -> str:
        return sparse_text(self, (("indices", self._places), ("values", self._contents)))

    @property
    def _sizes(self) -> Any:
        return self._shape[:self._places._shape[0]]

    def coalesce(self) -> Any:
        """The sums of what has equal indices, in row-major order; torch.Tensor.coalesce."""
        if self._coalesced:
            return self
        if self._traced or self._places._traced:
            raise _C.RuntimeError("coalesce: how many elements there are is not known while a graph is built; must be known: coalesce "
                                  "before, and say is_coalesced=True where parts are inputs")
        keys, values = _parts.summed(_parts.keys_of(self._places, self._sizes), self._contents)
        return CooTensor(_parts.indices_of(keys, self._sizes), values, self._shape, True)

    def _joined(self, where: str, other: Any) -> None:
        if other._shape != self._shape or other.sparse_dim() != self.sparse_dim():
            raise _C.ValueError(f"{where}: other: shape {other._shape} with {other.sparse_dim()} sparse dims; must be {self._shape} with "
                                f"{self.sparse_dim()}")

    def _plus(self, other: Any, alpha: Any) -> Any:
        self._joined("add", other)
        added = other._contents if alpha == 1 else other._contents * alpha
        dtype = _C.promote_types(self.dtype, added.dtype)
        values = fn.cat([self._contents.to(dtype), added.to(dtype)])
        both = CooTensor(fn.cat([self._places, other._places], 1), values, self._shape, False)
        return both.coalesce() if self._coalesced and other._coalesced and not both._traced else both

    def _times(self, other: Any) -> Any:
        self._joined("mul", other)
        a, b = self.coalesce(), other.coalesce()
        here, there = _parts.common(_parts.keys_of(a._places, a._sizes), _parts.keys_of(b._places, b._sizes))
        return CooTensor(fn.index_select(a._places, 1, here), a._contents[here] * b._contents[there], self._shape, True)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two sparse dims change places; torch.Tensor.transpose."""
        order = list(range(self._places._shape[0]))
        a, b = (d + self.ndim if d < 0 else d for d in (dim0, dim1))
        if a >= len(order) or b >= len(order) or min(a, b) < 0:
            raise _C.IndexError(f"transpose: dims: {dim0} and {dim1}; must be sparse dims, of which there are {len(order)}")
        shape = list(self._shape)
        order[a], order[b], shape[a], shape[b] = order[b], order[a], shape[b], shape[a]
        index = fn.stack([self._places[d] for d in order])
        return CooTensor(index, self._contents, shape, self._coalesced and (a == b or not self._nnz()))

    def t(self) -> Any:
        _matrix("t", self)
        return self.transpose(0, 1) if self.ndim == 2 else self

    T = property(t)

    def index_select(self, dim: int, index: Any) -> Any:
        """The slices that index names, in its order; of sparse dims. torch.index_select."""
        dim = dim + self.ndim if dim < 0 else dim
        if not 0 <= dim < self.sparse_dim():
            raise _C.IndexError(f"index_select: dim: {dim}; must be a sparse dim, of which there are {self.sparse_dim()}")
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < self._shape[dim]:
            raise _C.IndexError(f"index_select: index: {index.tolist()}; must be from 0 to {self._shape[dim] - 1}")
        ordered, order = index.sort(stable=True)
        own = self._places[dim]
        first = fn.searchsorted(ordered, own)
        counts = fn.searchsorted(ordered, own, right=True) - first
        source = fn.repeat_interleave(_parts.numbers_like(own, own._shape[0]), counts)
        begins = fn.cumsum(counts, 0) - counts
        at = order[first[source] + _parts.numbers_like(own, source._shape[0]) - begins[source]]
        rows = [at if d == dim else self._places[d][source] for d in range(self.sparse_dim())]
        shape = [index._shape[0] if d == dim else n for d, n in enumerate(self._shape)]
        return CooTensor(fn.stack(rows), self._contents[source], shape, False)

    def select(self, dim: int, index: int) -> Any:
        """One slice of a sparse dim; torch.select."""
        size = self._shape[dim]
        if not -size <= index < size:
            raise _C.IndexError(f"select: index: {index}; must be from {-size} to {size - 1}")
        found = fn.nonzero(self._places[dim] == index % size).reshape(-1)
        dim = dim % self.ndim
        if self.sparse_dim() == 1:
            return self._contents[found].sum(0)
        rows = [self._places[d][found] for d in range(self.sparse_dim()) if d != dim]
        shape = [n for d, n in enumerate(self._shape) if d != dim]
        return CooTensor(fn.stack(rows), self._contents[found], shape, self._coalesced)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int) or isinstance(index, bool):
            raise _C.TypeError(f"getitem: index: {type(index).__name__}; must be a whole number: use index_select(), or to_dense()")
        return self.select(0, index)

    def zero_(self) -> Any:
        """Becomes a tensor of no elements."""
        values = self._contents.detach().new_zeros((0, *self._contents._shape[1:])).requires_grad_(self.requires_grad)
        self.__dict__.update(_places=self._places.new_zeros((self.sparse_dim(), 0)), _contents=values, _coalesced=True)
        return self

    def sparse_mask(self, mask: Any) -> Any:
        """The elements where `mask` has some; torch.Tensor.sparse_mask."""
        return higher("._make").masked(self.to_dense(), mask)


class CompressedTensor(SparseTensor):
    """A matrix of which each row's elements (CSC: each column's) lie one after another: begins (rows + 1), plain (nnz), values (nnz)."""

    _begins: Any
    _plain: Any

    def __init__(self, layout: Any, begins: Any, plain: Any, values: Any, shape: Any) -> None:
        self.__dict__.update(layout=layout, _begins=begins, _plain=plain, _contents=values, _shape=tuple(shape))

    def _to_parts(self) -> Any:
        return {"_begins": self._begins, "_plain": self._plain, "_contents": self._contents}, (self.layout, self._shape)

    @staticmethod
    def _of_parts(rest: Any, parts: Any) -> Any:
        return CompressedTensor(rest[0], *parts, rest[1])

    def _like(self, values: Any) -> Any:
        return CompressedTensor(self.layout, self._begins, self._plain, values, self._shape)

    def _indices_of_all(self) -> Any:
        pair = [_parts.rows_of(self._begins, self._nnz()), self._plain]
        return fn.stack(pair if self.layout == "sparse_csr" else pair[::-1])

    def _moved(self, place: Any, values: Any) -> Any:
        begins, plain = (t.clone() if place is None else t.to(place) for t in (self._begins, self._plain))
        return CompressedTensor(self.layout, begins, plain, values, self._shape)

    def to_sparse_coo(self) -> Any:
        coo = CooTensor(self._indices_of_all(), self._contents, self._shape, False)
        return coo if coo._traced or coo._places._traced else coo.coalesce()

    def _as(self, coo: Any) -> Any:
        return compressed_of(coo, self.layout)

    def _part(self, name: str, layout: str, part: Any) -> Any:
        if self.layout != layout:
            raise _C.RuntimeError(f"{name}: layout {self.layout}; must be {layout}")
        return part

    def crow_indices(self) -> Any:
        return self._part("crow_indices", "sparse_csr", self._begins)

    def col_indices(self) -> Any:
        return self._part("col_indices", "sparse_csr", self._plain)

    def ccol_indices(self) -> Any:
        return self._part("ccol_indices", "sparse_csc", self._begins)

    def row_indices(self) -> Any:
        return self._part("row_indices", "sparse_csc", self._plain)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Of CSR a CSC tensor with the same parts, and the other way about; torch.Tensor.transpose."""
        if {dim0 % 2, dim1 % 2} != {0, 1}:
            return self
        other = sparse_csc if self.layout == "sparse_csr" else sparse_csr
        return CompressedTensor(other, self._begins, self._plain, self._contents, self._shape[::-1])

    def t(self) -> Any:
        return self.transpose(0, 1)

    T = property(t)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuilt_compressed, (str.__str__(self.layout), self._begins, self._plain, self._contents, self._shape)

    def __repr__(self) -> str:
        names = ("crow_indices", "col_indices") if self.layout == "sparse_csr" else ("ccol_indices", "row_indices")
        return sparse_text(self, ((names[0], self._begins), (names[1], self._plain), ("values", self._contents)))


def _matrix(where: str, t: Any) -> None:
    if t.ndim > 2:
        raise _C.ValueError(f"{where}: {t.ndim} dims; must be 2 or fewer")


def compressed_of(coo: Any, layout: Any) -> Any:
    """A COO matrix as CSR or CSC."""
    if coo.ndim != 2 or coo.sparse_dim() != 2:
        raise _C.ValueError(f"to_{layout}: shape {coo._shape} with {coo.sparse_dim()} sparse dims; must be a matrix of 2 sparse dims")
    by_rows = layout == "sparse_csr"
    t = (coo if by_rows else coo.t()).coalesce()
    rows, plain = t._places.unbind(0)
    begins = _parts.begins_of(rows.contiguous(), t._shape[0])
    return CompressedTensor(sparse_csr if by_rows else sparse_csc, begins, plain, t._contents, coo._shape)


layouts(sparse_coo=lambda coo: coo, sparse_csr=lambda coo: compressed_of(coo, "sparse_csr"),
        sparse_csc=lambda coo: compressed_of(coo, "sparse_csc"))
