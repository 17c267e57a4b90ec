"""Tensor methods about what a tensor is: attributes, printing, conversions, in-place ops, hooks."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from typing import Any, Iterator, TYPE_CHECKING

from sluice import _C
from sluice._tensor import creation
from sluice._C import Tensor, fn
from sluice._tensor.creation import _place_of, as_tensor, chances, check_probability, default_generator, full, in_memory_order, rand
from sluice._base.device import device
from sluice._base.parts import has_parts
from sluice._base.size import Size
from sluice._base.trace import hooked, running
from sluice._tensor.float8_dtypes import is_float8

if TYPE_CHECKING:
    import numpy

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def method(f):
    """Adds `f` to Tensor under its own name."""
    setattr(Tensor, f.__name__, f)
    return f


# Facts about a tensor

def _shape_of(self):
    if self._traced and (level := _level_of_user(sys._getframe(1))):
        for dim, name in _C.dims_that_vary(self):
            warnings.warn(f"shape: dim {dim} is as long in each step as '{name}' makes it; while the graph is built this says "
                          f"{self._shape[dim]}, the most there may be: sluice.extent(x, {dim}) tells how long it is",
                          stacklevel=level)
    return Size(self._shape)


def _level_of_user(frame):
    """For a warning from one call further in: of the user's line. 0 where Sluice itself asks."""
    level = 2
    while frame.f_code.co_filename == __file__:  # size(), len()
        frame, level = frame.f_back, level + 1
    return 0 if frame.f_code.co_filename.startswith(_HERE) else level


Tensor.shape = property(_shape_of)
Tensor.device = property(lambda self: _short_device(self._device))
Tensor.is_cpu = property(lambda self: self._device == "cpu:0")
Tensor.is_meta = property(lambda self: self._device == "meta:0")
Tensor.is_cuda = property(lambda self: self._device.startswith("cuda"))
Tensor.itemsize = property(lambda self: self.dtype.itemsize)
Tensor.nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
Tensor.T = property(lambda self: self.permute(tuple(reversed(range(self.ndim)))))
Tensor.ndimension = Tensor.dim


def _short_device(name):
    kind, _, index = name.rpartition("/")[2].partition(":")
    return device(kind) if kind in ("cpu", "meta") else device(kind, int(index))


@method
def size(self, dim=None) -> Any:
    return self.shape if dim is None else self.shape[dim]


@method
def stride(self, dim=None) -> Any:
    return self._strides() if dim is None else self._strides()[dim]


@method
def element_size(self) -> int:
    return self.dtype.itemsize


@method
def __len__(self) -> int:
    if self.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return self.shape[0]


@method
def __iter__(self) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@method
def __bool__(self) -> bool:
    if self.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {self.numel()} values is ambiguous; use .any() or .all()")
    return bool(self.item())


def _real_item(self, to) -> Any:
    value = self.item()
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {to.__name__} without overflow: got {value}")
        value = value.real
    return to(value)


@method
def __int__(self) -> int:
    return _real_item(self, int)


@method
def __float__(self) -> float:
    return _real_item(self, float)


@method
def __complex__(self) -> complex:
    return complex(self.item())


@method
def __index__(self) -> int:
    if self.numel() != 1 or self.dtype.is_floating_point or self.dtype.is_complex:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self.item())


@method
def __contains__(self, element) -> bool:
    return bool((self == element).any())


@method
def __format__(self, spec) -> str:
    return format(self.item(), spec) if self.ndim == 0 and not self._traced else object.__format__(self, spec)


@method
def __array__(self, dtype=None, copy=None) -> numpy.ndarray:
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise _C.ValueError(f"__array__: {self.dtype} as {dtype} needs a copy; copy=False forbids it")
        return array.astype(dtype)
    return array.copy() if copy else array


Tensor.__array_priority__ = 1000  # above that of NumPy's scalars and arrays: what has one on the left is a tensor, too


def _text(self) -> str:
    from sluice._tensor.printing import tensor_text

    return tensor_text(self)


Tensor.__repr__ = _text
Tensor.__str__ = _text

# Conversions


def parse_to(args, kwargs):
    """(device, dtype) from the forms of Tensor.to."""
    place, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    for name in ("non_blocking", "copy", "memory_format"):
        kwargs.pop(name, None)
    if kwargs:
        raise TypeError(f"to: unexpected argument '{next(iter(kwargs))}'")
    for arg in args:
        if isinstance(arg, Tensor):
            place, dtype = arg._device, arg.dtype
        elif isinstance(arg, (str, device)):
            place = arg
        elif isinstance(arg, _C.dtype) or arg in (bool, int, float, complex):
            dtype = arg
        elif not isinstance(arg, bool) and arg is not None:
            raise _C.TypeError(f"to: got {arg!r} ({type(arg).__name__}); expected a device, a dtype or a tensor")
    return place, dtype


float8_of: Any = None  # what makes a tensor one of 8-bit floats; sluice._tensor.float8 sets it


@method
def to(self, *args, **kwargs):
    copy, format = kwargs.get("copy", False), kwargs.get("memory_format")
    place, dtype = parse_to(args, kwargs)
    result = self
    if dtype is not None and dtype is not self.dtype:
        if self.dtype.is_complex and isinstance(dtype, _C.dtype) and not dtype.is_complex and dtype is not _C.bool:
            warnings.warn("Casting complex values to real discards the imaginary part", stacklevel=3)
        result = result._cast(dtype) if type(dtype) is _C.dtype or not is_float8(dtype) else float8_of(result, dtype)
    if place is not None:
        result = result._to_device(place)
    if format is not None and format != "preserve_format":
        result = result.contiguous(memory_format=format)
    if result._impl == self._impl:  # nothing changed: the same object, as torch
        return self.clone() if copy else self
    return result


@method
def cpu(self, memory_format=None):
    return self.to("cpu", memory_format=memory_format)


def _type(self, dtype=None, non_blocking=False, *, memory_format=None) -> Any:
    from sluice._tensor.dtypes import dtype_of_type, type_name

    return type_name(self) if dtype is None else self.to(dtype_of_type(dtype), memory_format=memory_format)


Tensor.type = _type  # as a global of this module it would hide the builtin


@method
def type_as(self, other):
    return self.to(other.dtype) if self._traced or other._traced else self.to(other)


@method
def new_tensor(self, data, dtype=None, device=None, requires_grad=False):
    return creation.tensor(data, dtype=dtype or self.dtype, device=device or self._device, requires_grad=requires_grad)


def _new(name):
    def new(self, *sizes, size=None, dtype=None, device=None, requires_grad=False):
        shape = sizes if size is None else (*sizes, size)
        return getattr(creation, name)(*shape, dtype=dtype or self.dtype, device=device or self._device, requires_grad=requires_grad)

    return new


for _name in ("empty", "zeros", "ones"):
    setattr(Tensor, "new_" + _name, _new(_name))


@method
def new_full(self, size, fill_value, dtype=None, device=None, requires_grad=False):
    return full(size, fill_value, dtype=dtype or self.dtype, device=device or self._device, requires_grad=requires_grad)


# In place


@method
def copy_(self, src, non_blocking=False):
    if not isinstance(src, Tensor):
        src = as_tensor(src)
    if src is self:
        return self
    if has_parts(src) and is_float8(src.dtype):
        src = src.to(self.dtype)
    self._write(src if src._device == self._device or src._traced else src._to_device(self._device))
    return self


@method
def fill_(self, value):
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(f"fill_: only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions")
    place = None if self._traced else self._device
    self._write(value if isinstance(value, Tensor) else fn.number(value, self.dtype, place))
    return self


@method
def zero_(self):
    return self.fill_(0)


@method
def detach_(self):
    self.data = self.detach()
    return self.requires_grad_(False)


def _drawn(self, law, a, b, generator):
    """Draws the content anew: now, or in a graph at each of its steps. A tensor without contents stays as it is."""
    if self.is_meta:
        return self
    if self.dtype.is_complex:  # both parts; the variance is theirs together
        _drawn(fn.view_as_real(self), law, a, b * (1 / 2**0.5) if law == "normal" else b, generator)
        return self
    g = generator or default_generator
    if _C.is_tracing():
        self._update(lambda old: getattr(g, "draw_" + law)(old._shape, float(a), float(b), old.dtype))
    elif law == "normal":
        g.normal_(in_memory_order(self), a, b, not self.is_contiguous())
    else:
        g.uniform_(in_memory_order(self), a, b)
    return self


@method
def uniform_(self, a=0.0, b=1.0, *, generator=None):
    return _drawn(self, "uniform", a, b, generator)


@method
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    return _drawn(self, "normal", mean, std, generator)


@method
def bernoulli_(self, p=0.5, *, generator=None):
    check_probability("bernoulli_", p)
    if not isinstance(p, Tensor):
        t = in_memory_order(self)
        t.copy_(chances(t, t._shape, p, generator))
        return self
    return self.copy_(rand(self._shape, generator=generator, device=_place_of(self)) < p)


# Autograd


@method
def register_hook(self, hook) -> Any:
    """`hook(grad)` runs when this tensor's gradient is known; a returned tensor replaces it."""
    if self.is_leaf and not self._traced:
        hooked.add(self._impl)
        plain, hook = hook, lambda grad: None if running.now.differentiates else plain(grad)
    return _HookHandle(self, self._add_hook(hook))


@method
def register_post_accumulate_grad_hook(self, hook) -> Any:
    """`hook(tensor)` runs in every backward() when the gradient of this leaf has been added to its `.grad`."""
    same = weakref.ref(self)  # the gradient's node holds the hook, and this holds the node
    hooked.add(self._impl)
    return _HookHandle(self, self._add_post_accumulate_grad_hook(lambda leaf: hook(leaf if same() is None else same())))


class _HookHandle:
    def __init__(self, tensor, id):
        self._tensor, self.id = tensor, id

    def remove(self):
        if self._tensor is not None:
            self._tensor._remove_hook(self.id)
            self._tensor = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()
