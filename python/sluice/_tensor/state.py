"""Tensor methods that ask what a tensor is, and that change its size or where it points to."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._base import memory_format as _memory_format
from sluice._tensor import creation
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._tensor.creation import arange, as_tensor, empty, empty_strided, zeros
from sluice._tensor.dtypes import new_tensor
from sluice._names.left_out import absent
from sluice._base.memory_format import channels_last_3d, strided
from sluice._base.size import sizes_of
from sluice._tensor.methods import method
from sluice._tensor.storage import UntypedStorage

# A tensor here is dense, of a rank's memory, and not of a library that torch has and Sluice has not.

for _name in ("is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_xpu", "is_xla", "is_ipu", "is_mtia",
              "is_vulkan", "is_maia", "is_nested", "is_offloaded"):
    setattr(Tensor, _name, False)
for _name in ("is_conj", "is_neg", "is_coalesced", "is_distributed"):
    setattr(Tensor, _name, lambda self: False)

Tensor.layout = strided
Tensor.H = property(lambda self: _matrix_transposed(self, "H", self.ndim in (0, 2)).conj())
Tensor.mH = property(lambda self: _matrix_transposed(self, "mH", self.ndim != 1).conj())
Tensor.mT = property(lambda self: _matrix_transposed(self, "mT", self.ndim != 1))
Tensor.real = property(fn.real, lambda self, value: fn.real(self).copy_(as_tensor(value)))
Tensor.imag = property(fn.imag, lambda self, value: fn.imag(self).copy_(as_tensor(value)))
Tensor.names = property(lambda self: (None,) * self.ndim)
Tensor.name = None
Tensor.output_nr = 0
Tensor.is_lazy = property(lambda self: self._traced)
Tensor.is_eager = property(lambda self: not self._traced)
Tensor.is_local = property(lambda self: not self.is_global)
Tensor.is_consistent = property(lambda self: self.is_global)
Tensor.stop_gradient = property(lambda self: not self.requires_grad, lambda self, stop: self.requires_grad_(not stop))  # Paddle's
Tensor.to_numpy = Tensor.numpy
Tensor.cast = Tensor._cast


def _matrix_transposed(tensor, name, fits):
    if not fits:
        kind = "matrices (2-D tensors)" if name == "H" else "matrices or batches of matrices"
        raise _C.RuntimeError(f"{name}: tensor.{name} is only supported on {kind}. Got {tensor.ndim}-D tensor.")
    return tensor.transpose(-2, -1) if tensor.ndim else tensor


@method
def is_nonzero(self) -> bool:
    if self.numel() != 1:
        raise _C.RuntimeError("is_nonzero: Boolean value of Tensor with no values is ambiguous" if not self.numel() else
                              "is_nonzero: Boolean value of Tensor with more than one value is ambiguous")
    return bool(self)


@method
def is_signed(self) -> bool:
    return self.dtype.is_signed


@method
def is_inference(self) -> bool:
    return False


@method
def is_same_size(self, other) -> bool:
    return self._shape == other._shape


@method
def is_set_to(self, tensor) -> bool:
    return (self.data_ptr() == tensor.data_ptr() and self._shape == tensor._shape and self.stride() == tensor.stride())


@method
def is_view(self) -> bool:
    return self._is_view()


@method
def is_pinned(self, device=None) -> bool:
    return False


@method
def pin_memory(self, device=None):
    """Itself: copies between host and devices need no pinned memory here."""
    return self


@method
def get_device(self) -> int:
    return -1 if self.is_cpu else self.device.index


@method
def cuda(self, device=None, non_blocking=False, memory_format=None):
    return self.to(f"cuda:{device or 0}" if device is None or isinstance(device, Integral) else device, memory_format=memory_format)


@method
def dim_order(self, *, ambiguity_check: Any = False) -> tuple:
    """The dims from the outermost to the innermost one in memory.

    ambiguity_check: an error where several orders describe the memory; a list of memory formats: unless one of them does.
    """
    sizes, strides = self._shape, self.stride()
    if ambiguity_check is not False:
        if ambiguity_check is True:
            unique = self.ndim < 2 or (min(sizes) > 1 and len(set(strides)) == len(strides))
        else:
            unique = sum(self.is_contiguous(memory_format=f) for f in ambiguity_check) == 1
        if not unique:
            raise _C.RuntimeError("dim_order: The tensor does not have unique dim order, or cannot map to exact one of the "
                                  "given memory formats.")
    channels_last = {4: _memory_format.channels_last, 5: channels_last_3d}.get(self.ndim)
    if self.is_contiguous() and not (channels_last and self.is_contiguous(memory_format=channels_last)):
        return tuple(range(self.ndim))
    order: list[int] = []  # from the innermost one; dims that are repeated (stride 0) stay where they are
    for d in reversed(range(self.ndim)):
        at = len(order)
        for i in reversed(range(len(order))):
            if 0 in (strides[d], strides[order[i]]):
                continue
            if (strides[order[i]], sizes[order[i]]) <= (strides[d], sizes[d]):
                break
            at = i
        order.insert(at, d)
    return tuple(reversed(order))


@method
def new(self, *args, device=None):
    """A tensor of this one's dtype: of sizes, of data, or of a storage."""
    if args and isinstance(args[0], UntypedStorage):
        return empty(0, dtype=self.dtype, device=args[0].device).set_(args[0])
    return new_tensor(*args, dtype=self.dtype, device=device or self._device)


@method
def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False):
    return empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self._device,
                         requires_grad=requires_grad)


@method
def sum_to_size(self, *size):
    """Sums down to a shape that broadcasts to this one's."""
    size = sizes_of(size)
    shift = self.ndim - len(size)
    fits = shift >= 0 and all(n in (1, m) for n, m in zip(size, self._shape[shift:]))
    if not fits:
        raise _C.RuntimeError(f"sum_to_size: size {list(size)} is not expandable to size {list(self._shape)}")
    dims = [d for d in range(self.ndim) if d < shift or (size[d - shift] == 1 and self._shape[d] != 1)]
    return (self.sum(dims, keepdim=True) if dims else self).reshape(size)


@method
def fill_diagonal_(self, fill_value, wrap=False):
    """Writes a number to the main diagonal; `wrap`: of a tall matrix, again after each square."""
    if self.ndim < 2:
        raise _C.RuntimeError("fill_diagonal_: dimensions must larger than 1")
    if self.ndim > 2 and len(set(self._shape)) > 1:
        raise _C.RuntimeError("fill_diagonal_: all dimensions of input must be of equal length")
    step = self._shape[-1] + 1 if self.ndim == 2 else sum(self._shape[0]**d for d in range(self.ndim))
    last = self.numel() if wrap or self.ndim > 2 else min(self.numel(), self._shape[1] ** 2)
    place = None if self._traced else self._device
    index = arange(0, last, step, device=place) if last else zeros(0, dtype=_C.int64, device=place)
    return self.copy_(self.reshape(-1).index_fill(0, index, fill_value).reshape(self._shape))


@method
def apply_(self, callable):
    """Each element becomes callable(element)."""
    return self.copy_(creation.tensor([callable(n) for n in self.reshape(-1).tolist()], dtype=self.dtype).reshape(self._shape))


@method
def map_(self, tensor, callable):
    """Each element becomes callable(element, tensor's element)."""
    pairs = zip(self.reshape(-1).tolist(), tensor.expand(self._shape).reshape(-1).tolist())
    return self.copy_(creation.tensor([callable(a, b) for a, b in pairs], dtype=self.dtype).reshape(self._shape))


# Sizes


@method
def resize_(self, *size, memory_format=None):
    """Another shape, in memory of its own where it is larger: the elements in row-major order, then anything."""
    size = sizes_of(size)
    if tuple(size) == tuple(self._shape):
        return self
    if self.requires_grad:
        raise _C.RuntimeError("resize_: cannot resize variables that require grad")
    new = empty(size, dtype=self.dtype, device=self._device)
    count = min(self.numel(), new.numel())
    if count and not (self.numel() == new.numel() and self.is_contiguous()):
        new.reshape(-1)[:count] = self.reshape(-1)[:count]
    self.data = self.detach().reshape(size) if self.numel() == new.numel() and self.is_contiguous() else new
    return self


@method
def resize_as_(self, the_template, memory_format=None):
    return self.resize_(the_template._shape)


@method
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Points to the memory of another tensor of its dtype, or to a storage. torch.Tensor.set_."""
    if isinstance(source, UntypedStorage):
        source = source.untyped()._values.view(self.dtype)
        size = source._shape if size is None else size
    source = empty(0, dtype=self.dtype, device=self._device) if source is None else source
    if source.dtype is not self.dtype:
        raise _C.RuntimeError(f"set_: Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
    self.data = source.detach() if size is None else source.detach().as_strided(
        size, stride if stride is not None else empty(size).stride(), storage_offset)
    return self


@method
def i0_(self):
    """i0(self), written into it. torch.Tensor.i0_."""
    if not self.dtype.is_floating_point:
        raise _C.RuntimeError(f"i0_: result type {_C.get_default_dtype()} can't be cast to the desired output type "
                              f"{self.dtype}")
    self._update(_C.fn.i0)
    return self


@method
@typed(dtype="dtype|None")
def to_dense(self, dtype=None, *, masked_grad=None):
    """Itself: all tensors are dense. torch.Tensor.to_dense."""
    return self if dtype is None else self.to(dtype)


@method
def resize_as(self, tensor):
    """A view of as many elements in another's shape, by its older name. torch.Tensor.resize_as."""
    import warnings

    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    if self.numel() != tensor.numel():
        raise _C.RuntimeError(f"resize_as: requested resize to {tensor._shape} ({tensor.numel()} elements in total), but the "
                              "given tensor "
                              f"has a size of {self._shape} ({self.numel()} elements); the number must be kept")
    return self.view(tensor._shape)


@method
def contiguous_(self):
    """Brings its elements into row-major order, in memory of its own where they are not. oneflow.Tensor.contiguous_."""
    if not self.is_contiguous():
        self.data = self.detach().contiguous()
    return self


for _name, _member in absent("sluice.Tensor").items():
    if not hasattr(Tensor, _name):
        setattr(Tensor, _name, _member)


def _asks(name: str) -> Any:
    def asks(input, *args):
        return getattr(input, name)(*args)

    asks.__name__ = asks.__qualname__ = name
    asks.__doc__ = f"input.{name}(); torch.{name}."
    return asks


QUESTIONS = {name: _asks(name) for name in ("is_conj", "is_neg", "is_inference", "is_nonzero", "is_same_size", "is_signed",
                                            "get_device", "is_distributed")}
