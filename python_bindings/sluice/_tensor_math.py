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
    return fn.view(self, sizes_of(args))


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
    return self.view(self._shape) if self.ndim < 2 else self.transpose(0, 1)


@method
def unflatten(self, dim, sizes):
    dim %= self.ndim
    return self.reshape(*self._shape[:dim], *sizes, *self._shape[dim + 1:])


Tensor.swapaxes = Tensor.swapdims = Tensor.transpose
Tensor.broadcast_to = Tensor.expand

# Arithmetic in torch's argument forms


def _floating(self):
    return self if self.dtype.is_floating_point else self.to(sluice.get_default_dtype())


def _scaled(name, self, other, alpha):
    """`alpha * other`, computed in the dtype of the result."""
    if isinstance(alpha, bool) or alpha != 1:
        dtype = _C.result_type(self, other)
        if isinstance(alpha, bool) and dtype is not _C.bool:
            raise RuntimeError(f"{name}: Boolean alpha only supported for Boolean results: the result is {dtype}")
        if isinstance(alpha, float) and not dtype.is_floating_point:
            raise RuntimeError(f"{name}: For integral input tensors, argument alpha must not be a floating point number: got {alpha}")
        other = other.to(dtype) * alpha if isinstance(other, Tensor) else other * alpha
    return other


@method
def add(self, other, *, alpha=1):
    return self._add(_scaled("add", self, other, alpha))


@method
def sub(self, other, *, alpha=1):
    return self._sub(_scaled("sub", self, other, alpha))


@method
def div(self, other, *, rounding_mode=None):
    if rounding_mode is None:
        return self._div(other)
    if rounding_mode == "floor":
        return self.floor_divide(other)
    if rounding_mode == "trunc":
        if _C.result_type(self, other).is_floating_point:
            return self._div(other).trunc()
        return (self - self.fmod(other)).floor_divide(other)  # exact, as a quotient of floats is not
    raise ValueError(f"div: rounding_mode is {rounding_mode!r}; must be None, 'trunc' or 'floor'")


@method
def addcmul(self, tensor1, tensor2, *, value=1):
    return self + tensor1 * tensor2 * value if value != 1 else self + tensor1 * tensor2


@method
def addcdiv(self, tensor1, tensor2, *, value=1):
    return self + tensor1 / tensor2 * value if value != 1 else self + tensor1 / tensor2


@method
def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    product = mat1.mm(mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # self is not read, whatever it holds
        return product if self._shape == product._shape else product.clone()
    return (self if beta == 1 else self * beta) + product


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
    """Inverse of erf by a rational start and three Newton steps."""
    input = _floating(self)
    with sluice.no_grad():
        x = input.double()
        w = (-x * x).log1p()
        a = 0.147
        head = w / 2 + 2 / (math.pi * a)
        y = x.sign() * ((head * head - w / a).sqrt() - head).sqrt()
        for _ in range(3):
            error = y.erf() - x
            slope = 2 / math.sqrt(math.pi) * (-y * y).exp()
            step = error / slope
            y = y - step / (1 + y * step)
        y = sluice.where(x.abs() == 1, x * math.inf, y).to(input.dtype)

    def backward(grads):
        again = input.erfinv()
        return [grads[0] * (math.sqrt(math.pi) / 2) * (again * again).exp()]

    return _C.record_function("erfinv", [input], [y], backward)[0]


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
        index = indices(self.byte() if self.dtype is sluice.bool else self, dim, True)
        values = self.gather(dim, index)
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
    if self.dtype is not other.dtype:
        raise RuntimeError(f"isclose: {self.dtype} did not match {other.dtype}; both tensors must have one dtype")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise RuntimeError(f"isclose: {name} must be greater than or equal to zero, but got {tolerance}")
    x, y = _floating(self), _floating(other)  # differences of integers may not fit theirs
    error = (x - y).abs()
    close = (self == other) | (error.isfinite() & (error <= atol + (rtol * y).abs()))
    return close | (x.isnan() & y.isnan()) if equal_nan else close


@method
def equal(self, other) -> bool:
    return self._shape == other._shape and bool((self == other).all())


@method
def nonzero(self, as_tuple=False) -> Any:
    np = sluice._numpy()
    chosen = (self.detach() != 0).numpy()
    if as_tuple:
        return tuple(sluice.from_numpy(i) for i in np.nonzero(np.atleast_1d(chosen)))
    return sluice.from_numpy(np.argwhere(chosen))


@method
def masked_select(self, mask):
    if mask.dtype is not sluice.bool:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask: got {mask.dtype}")
    shape = sluice.broadcast_shapes(self._shape, mask._shape) or (1,)
    return self.expand(shape)[mask.expand(shape)]


def _host_order(self, dim, descending):
    """The stable order along `dim`, as an array of indices; NaN is the largest."""
    np = sluice._numpy()
    values = self.detach()
    array = np.atleast_1d((values.float() if self.dtype is sluice.bfloat16 else values).numpy())
    if descending:  # in the mirror, equal elements and NaN come out where they belong
        order = array.shape[dim] - 1 - np.flip(np.argsort(np.flip(array, dim), axis=dim, kind="stable"), dim)
    else:
        order = np.argsort(array, axis=dim, kind="stable")
    return order


def _by_order(name, self, dim, order):
    np = sluice._numpy()
    index = sluice.from_numpy(np.ascontiguousarray(order).reshape(order.shape if self.ndim else ()))
    return _ValuesIndices[name](self.gather(dim, index), index)


@method
def sort(self, dim=-1, descending=False, stable=False) -> Any:
    return _by_order("sort", self, dim, _host_order(self, dim, descending))


@method
def argsort(self, dim=-1, descending=False, stable=False):
    return self.detach().sort(dim, descending).indices


@method
def topk(self, k, dim=-1, largest=True, sorted=True) -> Any:
    np = sluice._numpy()
    order = _host_order(self, dim, largest)
    if not 0 <= k <= order.shape[dim]:
        raise RuntimeError(f"topk: selected index k out of range: k is {k}; must be between 0 and {order.shape[dim]}")
    return _by_order("topk", self, dim, np.take(order, range(k), dim) if self.ndim else order)
