"""Tensor methods that compute: shapes, arithmetic and reductions in torch's argument forms."""

from __future__ import annotations

import math
from collections import namedtuple

import sluice
from sluice import _C
from sluice._C import Tensor, fn
from sluice._size import sizes_of

_ValuesIndices = {name: namedtuple(name, ["values", "indices"]) for name in ("max", "min", "sort", "topk")}


def method(f):
    """Adds `f` to Tensor under its own name."""
    setattr(Tensor, f.__name__, f)
    return f


# Views and shapes


@method
def view(self, *args):
    if len(args) == 1 and isinstance(args[0], _C.dtype):
        raise NotImplementedError("view: reinterpreting as another dtype is not supported; to(dtype) converts the values")
    sizes = sizes_of(args)
    result = fn.reshape(self, sizes)
    if not self._traced and self.numel() and result.data_ptr() != self.data_ptr():
        raise RuntimeError(f"view: size {tuple(sizes)} does not fit the strides {self.stride()} of shape {tuple(self._shape)}; "
                           "use reshape")
    return result


@method
def view_as(self, other):
    return self.view(*other._shape)


@method
def reshape_as(self, other):
    return fn.reshape(self, other._shape)


@method
def expand_as(self, other):
    return fn.expand(self, other._shape)


@method
def repeat(self, *sizes):
    sizes = sizes_of(sizes)
    if len(sizes) < self.ndim:
        raise RuntimeError(f"repeat: {len(sizes)} repeats for a tensor of {self.ndim} dims; there must be at least as many")
    return fn.tile(self, sizes)


@method
def t(self):
    if self.ndim > 2:
        raise RuntimeError(f"t: expects a tensor with at most 2 dims: got {self.ndim}")
    return self if self.ndim < 2 else self.transpose(0, 1)


@method
def unflatten(self, dim, sizes):
    dim %= self.ndim
    return self.reshape(*self._shape[:dim], *sizes, *self._shape[dim + 1:])


Tensor.swapaxes = Tensor.swapdims = Tensor.transpose
Tensor.broadcast_to = Tensor.expand

# Arithmetic in torch's argument forms


@method
def add(self, other, *, alpha=1):
    return self._add(other if alpha == 1 else other * alpha)


@method
def sub(self, other, *, alpha=1):
    return self._sub(other if alpha == 1 else other * alpha)


@method
def div(self, other, *, rounding_mode=None):
    if rounding_mode is None:
        return self._div(other)
    if rounding_mode == "floor":
        return self.floor_divide(other)
    if rounding_mode == "trunc":
        result = self._div(other).trunc()
        both = [x.dtype for x in (self, other) if isinstance(x, Tensor)]
        return result if any(d.is_floating_point for d in both) or isinstance(other, float) else result.to(self.dtype)
    raise ValueError(f"div: rounding_mode is {rounding_mode!r}; must be None, 'trunc' or 'floor'")


@method
def addcmul(self, tensor1, tensor2, *, value=1):
    return self + tensor1 * tensor2 * value if value != 1 else self + tensor1 * tensor2


@method
def addcdiv(self, tensor1, tensor2, *, value=1):
    return self + tensor1 / tensor2 * value if value != 1 else self + tensor1 / tensor2


@method
def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    product = mat1 @ mat2
    return (self if beta == 1 else self * beta) + (product if alpha == 1 else product * alpha)


@method
def mm(self, mat2):
    if self.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"mm: operands must be matrices: got shapes {tuple(self._shape)} and {tuple(mat2._shape)}")
    return self @ mat2


@method
def bmm(self, mat2):
    if self.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError(f"bmm: operands must have 3 dims: got shapes {tuple(self._shape)} and {tuple(mat2._shape)}")
    return self @ mat2


@method
def mv(self, vec):
    return self @ vec


@method
def dot(self, other):
    return (self * other).sum()


@method
def clamp(self, min=None, max=None):
    return self._clamp(min, max)


@method
def outer(self, other):
    return self.unsqueeze(1) * other.unsqueeze(0)


Tensor.subtract, Tensor.multiply, Tensor.divide, Tensor.true_divide = Tensor.sub, Tensor.mul, Tensor.div, Tensor.div
Tensor.clip, Tensor.absolute, Tensor.negative = Tensor.clamp, Tensor.abs, Tensor.neg
Tensor.greater, Tensor.less, Tensor.not_equal, Tensor.fix = Tensor.gt, Tensor.lt, Tensor.ne, Tensor.trunc


@method
def clamp_min(self, min):
    return self._clamp(min, None)


@method
def clamp_max(self, max):
    return self._clamp(None, max)


@method
def erfinv(self):
    """Inverse of erf by a rational start and two Newton steps; not differentiable."""
    with sluice.no_grad():
        x = self.to(sluice.float64)
        w = (-x * x).log1p()
        a = 0.147
        head = w / 2 + 2 / (math.pi * a)
        y = x.sign() * ((head * head - w / a).sqrt() - head).sqrt()
        for _ in range(3):
            error = y.erf() - x
            slope = 2 / math.sqrt(math.pi) * (-y * y).exp()
            step = error / slope
            y = y - step / (1 + y * step)
        y = sluice.where(x.abs() == 1, x * math.inf, y)
        return y.to(self.dtype if self.dtype.is_floating_point else sluice.float32)


# Reductions


def _extremum(name):
    pick, indices, both = getattr(Tensor, "a" + name), getattr(Tensor, "arg" + name), getattr(Tensor, name + "imum")

    def reduce(self, dim=None, keepdim=False, *, other=None) -> Any:
        if isinstance(dim, Tensor):
            other, dim = dim, None
        if other is not None:
            return both(self, other)
        if dim is None:
            return pick(self)
        index = indices(self, dim, True)
        values = self.gather(dim, index) if self.ndim else self
        if self.ndim and not keepdim:
            values, index = values.squeeze(dim), index.squeeze(dim)
        return _ValuesIndices[name](values, index)

    reduce.__name__ = name
    return reduce


Tensor.max = _extremum("max")
Tensor.min = _extremum("min")


@method
def var(self, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return self._var(dim, float(correction if unbiased is None else unbiased), keepdim)


@method
def std(self, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return self._std(dim, float(correction if unbiased is None else unbiased), keepdim)


@method
def allclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False) -> bool:
    return bool(self.isclose(other, rtol, atol, equal_nan).all())


@method
def isclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    close = ((self - other).abs() <= atol + rtol * other.abs()) | (self == other)
    return close | (self.isnan() & other.isnan()) if equal_nan else close


@method
def equal(self, other) -> bool:
    return self._shape == other._shape and bool((self == other).all())


@method
def nonzero(self, as_tuple=False) -> Any:
    np = sluice._numpy()
    found = tuple(sluice.from_numpy(i) for i in np.nonzero(self.detach().numpy()))
    return found if as_tuple else sluice.stack(found, 1)


@method
def masked_select(self, mask):
    return self.expand(*sluice.broadcast_shapes(self._shape, mask._shape))[mask.expand(*sluice.broadcast_shapes(self._shape, mask._shape))]


def _host_sort(self, dim, descending):
    np = sluice._numpy()
    array = self.detach().numpy()
    order = np.argsort(-array if descending else array, axis=dim, kind="stable")
    return sluice.from_numpy(np.ascontiguousarray(order))


@method
def sort(self, dim=-1, descending=False, stable=False) -> Any:
    index = _host_sort(self, dim, descending)
    return _ValuesIndices["sort"](self.gather(dim, index), index)


@method
def argsort(self, dim=-1, descending=False, stable=False):
    return _host_sort(self, dim, descending)


@method
def topk(self, k, dim=-1, largest=True, sorted=True) -> Any:
    index = _host_sort(self, dim, largest).narrow(dim, 0, k).contiguous()
    return _ValuesIndices["topk"](self.gather(dim, index), index)
