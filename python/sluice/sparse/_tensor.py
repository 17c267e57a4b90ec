"""Sparse tensors: objects of dense tensors, with the methods of torch's that make sense for them."""

from __future__ import annotations

import importlib
import numbers
from typing import Any

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._base.size import Size
from sluice._C import Tensor
from sluice._tensor.methods import parse_to

# f(0) = 0: what these make of a sparse tensor has the same zeros.
_KEEP_ZEROS = ("abs sgn sign sin sinh asin asinh tan tanh atan atanh sqrt expm1 log1p floor ceil round trunc deg2rad rad2deg erf "
               "erfinv relu square").split()
_CASTS = {"double": _C.float64, "float": _C.float32, "half": _C.float16, "bfloat16": _C.bfloat16, "long": _C.int64, "int": _C.int32,
          "bool": _C.bool}


def higher(name: str) -> Any:
    """A module of this folder that stands on this one."""
    return importlib.import_module(f"sluice.sparse{name}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, bool)) or isinstance(value, Tensor) and not isinstance(value, SparseTensor) and value.ndim == 0


class SparseTensor:
    """A tensor of which the elements that are not zeros are kept: indices, values and a shape.

    isinstance(t, Tensor) holds as in torch, and the ops of dense tensors refuse it: only what is defined here computes with it.
    """

    layout: Any = None
    is_quantized = is_nested = is_mkldnn = is_conj = is_neg = _global = is_global = False
    _contents: Any
    _shape: tuple[int, ...]
    __hash__ = object.__hash__

    @property
    def __class__(self) -> Any:
        return Tensor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if name.startswith("_"):
            raise AttributeError(f"a sparse tensor of layout {self.layout} is not a dense one, which this function takes; use to_dense(), a "
                                 "method of it, or sluice.sparse (docs/sparse.md)")
        raise AttributeError(f"{name}: a sparse tensor of layout {self.layout}; must be dense: use to_dense().{name}, or values() where "
                             f"zeros stay zeros; docs/sparse.md lists the methods of sparse tensors")

    # Kinds define these.

    def _like(self, values: Any) -> Any:
        """The same places with other values."""
        raise NotImplementedError(f"{type(self).__name__}: no _like(); a layout must define it")

    def _indices_of_all(self) -> Any:
        """(dims, nnz)"""
        raise NotImplementedError(f"{type(self).__name__}: no _indices_of_all(); a layout must define it")

    def _moved(self, place: Any, values: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: no _moved(); a layout must define it")

    def to_sparse_coo(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: no to_sparse_coo(); a layout must define it")

    def _as(self, coo: Any) -> Any:
        """A COO tensor in this one's layout."""
        raise NotImplementedError(f"{type(self).__name__}: no _as(); a layout must define it")

    # Facts

    shape = property(lambda self: Size(self._shape))
    ndim = property(lambda self: len(self._shape))
    dtype = property(lambda self: self._contents.dtype)
    device = property(lambda self: self._contents.device)
    _device = property(lambda self: self._contents._device)
    _traced = property(lambda self: self._contents._traced)
    is_cpu = property(lambda self: self._contents.is_cpu)
    is_cuda = property(lambda self: self._contents.is_cuda)
    is_meta = property(lambda self: self._contents.is_meta)
    is_sparse = property(lambda self: self.layout == "sparse_coo")
    is_sparse_csr = property(lambda self: self.layout == "sparse_csr")
    is_leaf = property(lambda self: self._contents.is_leaf)
    grad_fn = property(lambda self: self._contents.grad_fn)

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self._shape[dim]

    def dim(self) -> int:
        return len(self._shape)

    def numel(self) -> int:
        return self.shape.numel()

    def __len__(self) -> int:
        return self._shape[0]

    def _nnz(self) -> int:
        return self._contents._shape[0]

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def element_size(self) -> int:
        return self.dtype.itemsize

    def values(self) -> Any:
        return self._contents

    def _values(self) -> Any:
        return self._contents

    def sparse_dim(self) -> int:
        return self._indices_of_all()._shape[0]

    def dense_dim(self) -> int:
        return self._contents.ndim - 1

    # Gradients are those of the values.

    @property
    def requires_grad(self) -> bool:
        return self._contents.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._contents.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._contents.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        grad = self._contents.grad
        return None if grad is None else self._like(grad)

    @grad.setter
    def grad(self, grad: Any) -> None:
        if grad is not None:
            raise _C.TypeError("grad: a tensor; must be None: assign to values().grad what a sparse tensor's values are to have")
        self._contents.grad = None

    def detach(self) -> Any:
        return self._like(self._contents.detach())

    data = property(detach)

    def clone(self, memory_format: Any = None) -> Any:
        return self._moved(None, self._contents.clone())

    def retain_grad(self) -> None:
        self._contents.retain_grad()

    # Moves and copies

    def to(self, *args: Any, **kwargs: Any) -> Any:
        copy = kwargs.get("copy", False)
        place, dtype = parse_to(args, dict(kwargs))
        values = self._contents.to(device=place, dtype=dtype)
        if values is self._contents:
            return self.clone() if copy else self
        return self._moved(place, values)

    def cpu(self) -> Any:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Any:
        return self.to(f"cuda:{device or 0}" if device is None or isinstance(device, int) else device)

    def type(self, dtype: Any) -> Any:
        return self.to(dtype)

    def contiguous(self, memory_format: Any = None) -> Any:
        return self

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return True

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            if not self.is_leaf:
                raise _C.RuntimeError("deepcopy: a sparse tensor whose values were computed; must be a leaf: use detach()")
            memo[id(self)] = self._moved(None, self._contents.detach().clone()).requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __copy__(self) -> Any:
        return self._like(self._contents)

    # Conversions

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Any:
        """The dense tensor; torch.Tensor.to_dense."""
        from sluice.sparse._parts import dense

        t = dense(self._indices_of_all(), self._contents, self._shape)
        return t if dtype is None else t.to(dtype)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None) -> Any:
        """This tensor in another layout; torch.Tensor.to_sparse."""
        if sparse_dim not in (None, self.sparse_dim()):
            raise _C.NotImplementedError(f"to_sparse: sparse_dim: {sparse_dim} of a sparse tensor; must be {self.sparse_dim()}: use "
                                         f"to_dense().to_sparse({sparse_dim})")
        return to_layout(self, "sparse_coo" if layout is None else layout)

    def to_sparse_csr(self, dense_dim: Any = None) -> Any:
        return to_layout(self, "sparse_csr")

    def to_sparse_csc(self, dense_dim: Any = None) -> Any:
        return to_layout(self, "sparse_csc")

    # Arithmetic

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        """The sum with another sparse tensor; torch.add."""
        if not isinstance(other, SparseTensor):
            raise _C.TypeError(f"add: other: {'a dense tensor' if isinstance(other, Tensor) else type(other).__name__}; must be sparse, as "
                               "this is: use dense + sparse, or to_dense()")
        return self._as(self.to_sparse_coo()._plus(other.to_sparse_coo(), alpha))

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return self.add(other, alpha=-alpha)

    def mul(self, other: Any) -> Any:
        """Times a number, a dense tensor, or a sparse tensor of this shape; torch.mul."""
        if _is_number(other):
            return self._like(self._contents * other)
        if isinstance(other, SparseTensor):
            return self._as(self.to_sparse_coo()._times(other.to_sparse_coo()))
        if not isinstance(other, Tensor):
            raise _C.TypeError(f"mul: other: {type(other).__name__}; must be a number or a tensor")
        at = other.expand(self._shape)[tuple(self._indices_of_all().unbind(0))]
        return self._like(self._contents * at)

    def div(self, other: Any, *, rounding_mode: Any = None) -> Any:
        """Divided by a number; torch.div."""
        if not _is_number(other):
            raise _C.TypeError("div: other: a tensor; must be a number, since 0 / 0 is not 0: use mul(1 / other)")
        return self._like(self._contents.div(other, rounding_mode=rounding_mode))

    def pow(self, exponent: Any) -> Any:
        if not _is_number(exponent) or not float(exponent) > 0:
            raise _C.ValueError(f"pow: exponent: {exponent}; must be a number above 0, so that zeros stay zeros")
        return self.coalesce()._map(lambda v: v.pow(exponent))

    def neg(self) -> Any:
        return self._like(-self._contents)

    def _map(self, f: Any) -> Any:
        return self._like(f(self._contents))

    def coalesce(self) -> Any:
        return self

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum over dims; see sluice.sparse.sum, which does not have keepdim either."""
        sparse = higher("")

        if keepdim:
            raise _C.NotImplementedError("sum: keepdim: True of a sparse tensor; must be False: use unsqueeze of to_dense()")
        return sparse.sum(self, dim, dtype)

    def mm(self, mat2: Any) -> Any:
        sparse = higher("")

        return sparse.mm(self, mat2)

    def matmul(self, other: Any) -> Any:
        """The product with a dense matrix or vector, or a sparse matrix."""
        return higher("._products").matmul(self, other)

    mv = matmul

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Becomes a copy of another sparse tensor of its shape, in its own layout, dtype and device."""
        if not isinstance(src, SparseTensor) or src._shape != self._shape:
            what = f"shape {src._shape}" if isinstance(src, SparseTensor) else "not sparse"
            raise _C.ValueError(f"copy_: src: {what}; must be sparse, of shape {self._shape}")
        if self.requires_grad and self.is_leaf and _C.is_grad_enabled():
            raise _C.RuntimeError("copy_: a leaf that requires grad; must be written within no_grad()")
        requires_grad, kept = self.requires_grad, to_layout(src.detach(), self.layout).to(self._device, self.dtype).clone()
        there, own = kept._to_parts(), self._to_parts()
        if there[1] == own[1] and all(t._shape == there[0][name]._shape for name, t in own[0].items()):
            with no_grad():  # in place, which graphs see
                for name, t in own[0].items():
                    t.copy_(there[0][name])
            return self
        self.__dict__.update(kept.__dict__)
        return self.requires_grad_(True) if requires_grad else self

    def mul_(self, other: Any) -> Any:
        self._contents.mul_(_number("mul_", other))
        return self

    def div_(self, other: Any) -> Any:
        self._contents.div_(_number("div_", other))
        return self

    def __repr__(self) -> str:
        raise NotImplementedError(f"{type(self).__name__}: no __repr__(); a layout must define it")

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, Tensor):
            return other + self.to_dense()
        raise _C.TypeError(f"add: other: {type(other).__name__}; must be a tensor: a number would be added to the zeros, too")

    def __rsub__(self, other: Any) -> Any:
        return (-self).__radd__(other)

    def __rmul__(self, other: Any) -> Any:
        return self.mul(other)

    def __rmatmul__(self, other: Any) -> Any:
        return higher("._products").matmul_of_dense(other, self)

    def __eq__(self, other: Any) -> Any:
        if self is other:
            return True
        raise _C.TypeError("eq: a sparse tensor; must be dense, since zeros equal zeros: use to_dense()")

    def __bool__(self) -> bool:
        raise _C.RuntimeError(f"Boolean value of a sparse tensor of shape {self._shape} is ambiguous; use values() or to_dense()")

    __neg__, __add__, __sub__, __mul__, __truediv__, __pow__, __matmul__ = neg, add, sub, mul, div, pow, matmul
    ndimension = dim


def _number(where: str, value: Any) -> Any:
    if not _is_number(value):
        raise _C.TypeError(f"{where}: other: {type(value).__name__}; must be a number: out of place there is more")
    return value


def _add_methods() -> None:
    def unary(name: str) -> Any:
        def method(self: Any) -> Any:
            return self.coalesce()._map(lambda values: getattr(values, name)())

        method.__name__, method.__doc__ = name, f"{name} of the values; torch.{name} of a sparse tensor."
        return method

    for name in _KEEP_ZEROS:
        setattr(SparseTensor, name, unary(name))
    setattr(SparseTensor, "__abs__", unary("abs"))
    for name, dtype in _CASTS.items():
        setattr(SparseTensor, name, lambda self, dtype=dtype: self.to(dtype))


_add_methods()
_layouts: dict[str, Any] = {}  # by layout: what makes a COO tensor one


def layouts(**made_by: Any) -> None:
    """The kinds of sparse tensors stand on this module, and say here how each is made of a COO tensor."""
    _layouts.update(made_by)


def to_layout(t: Any, layout: Any) -> Any:
    """A sparse tensor in a layout."""
    if layout == "strided":
        return t.to_dense()
    if layout not in _layouts:
        raise _C.NotImplementedError(f"to_sparse: layout: {layout}; must be sparse_coo, sparse_csr or sparse_csc")
    return t if t.layout == layout else _layouts[layout](t.to_sparse_coo())
