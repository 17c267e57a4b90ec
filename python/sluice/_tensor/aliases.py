"""Names at the top that other functions have elsewhere: of sluice.nn.functional, copies of views, parts of tensors."""

from __future__ import annotations

import builtins
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._tensor.creation import _finish, _place, arange, as_tensor, empty_strided, from_numpy, zeros
from sluice._base.numbers import numpy as lazy_numpy

# Torch has these at the top as well, with the same arguments; OneFlow the last ones.
FUNCTIONAL = frozenset("""adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d bilinear celu celu_ channel_shuffle
cosine_similarity embedding_bag feature_alpha_dropout hardshrink layer_norm max_pool1d max_pool2d max_pool3d pairwise_distance pdist
pixel_shuffle pixel_unshuffle prelu rms_norm rrelu rrelu_ selu selu_ threshold threshold_
adaptive_avg_pool2d adaptive_avg_pool3d gelu mish pad silu softplus softshrink softsign""".split())


def _copy_of(name: str, view: Any) -> Any:
    def copied(input, *args, out=None, **options):
        result = view(input, *args, **options)
        if out is not None:
            for one, into in zip(result, out) if isinstance(result, tuple) else [(result, out)]:
                _finish(one, None, False, into)
            return None if isinstance(result, tuple) else out  # as torch, which gives nothing then
        return tuple(r.clone() for r in result) if isinstance(result, tuple) else result.clone()

    copied.__name__ = copied.__qualname__ = name
    copied.__doc__ = f"{name.removesuffix('_copy')} in memory of its own; torch.{name}."
    return copied


COPIES = {f"{name}_copy": _copy_of(f"{name}_copy", getattr(Tensor, name)) for name in (
    "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "select", "split", "squeeze", "t", "transpose", "unbind", "unfold",
    "unsqueeze")}
COPIES.update({f"{name}_copy": _copy_of(f"{name}_copy", getattr(fn, name)) for name in ("view_as_complex", "view_as_real")})
COPIES["view_copy"] = _copy_of("view_copy", lambda x, size=None, *, dtype=None: (
    x.view(dtype or size) if dtype or not isinstance(size, (tuple, list)) else x.reshape(size)))  # which copies where it must
COPIES["alias_copy"] = _copy_of("alias_copy", fn.clone)
COPIES["split_with_sizes_copy"] = _copy_of("split_with_sizes_copy", fn.split_with_sizes)
Tensor.narrow_copy = COPIES["narrow_copy"]


def _safe(name: str) -> Any:
    """torch.unsafe_chunk and its like, whose parts must not be written there; here they may."""

    def parts(input, *args, **options):
        return getattr(Tensor, name)(input, *args, **options)

    parts.__name__ = parts.__qualname__ = f"unsafe_{name}"
    parts.__doc__ = f"input.{name}(...); torch.unsafe_{name}."
    setattr(Tensor, parts.__name__, parts)
    return parts


unsafe_chunk, unsafe_split_with_sizes = map(_safe, ("chunk", "split_with_sizes"))


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of an array, a tensor or numbers, sharing memory where it can unless copy=True; torch.asarray."""
    t = as_tensor(obj, dtype=dtype, device=device)
    shares = isinstance(obj, Tensor) and t.data_ptr() == obj.data_ptr() or hasattr(obj, "__array_interface__")
    if copy is False and not shares:
        raise _C.ValueError("asarray: can't alias the given object; copy=False wants the same memory")
    t = t.clone() if copy else t
    return t.detach().requires_grad_(True) if requires_grad else t


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A number as a tensor without dims, of the default dtype; torch.scalar_tensor."""
    return _finish(fn.number(s, dtype or _C.get_default_dtype(), _place(device)), device, requires_grad)


def empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Tensor:
    """A tensor of any contents with its dims in memory in that order, outermost first; torch.empty_permuted."""
    order = tuple(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted: physical_layout is {order}; must name each of {len(size)} dims once")
    stride, step = [0] * len(order), 1
    for d in reversed(order):
        stride[d], step = step, step * max(size[d], 1)
    return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad)


@typed(input="Tensor", src="Tensor", size="ints", stride="ints", storage_offset="int|None")
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """input with the elements that as_strided shows replaced by src; torch.as_strided_scatter."""
    if tuple(src.shape) != tuple(size):
        raise RuntimeError("as_strided_scatter: expected src to have a size equal to the slice of self: got "
                           f"{src.shape}; must be {size}")
    if any(n > 1 and s == 0 for n, s in zip(input.shape, input.stride())):  # as torch, which copies elements that share memory apart
        input = input.contiguous()
    # The memory up to input's last element: input's elements, then src's, some of which may be no element of input.
    offset = input.storage_offset()
    end = offset + (1 + sum((n - 1) * s for n, s in zip(input.shape, input.stride())) if input.numel() else 0)
    places = arange(end)
    own = places.as_strided(input.shape, input.stride(), offset)
    seen = places.as_strided(size, stride, offset if storage_offset is None else storage_offset)
    memory = zeros(end, dtype=input.dtype, device=input._device)
    for values, where in ((input, own), (src.to(input.dtype), seen)):
        memory = memory.scatter(0, where.reshape(-1), values.reshape(-1))
    return memory[own]


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing: results never depend on what threads do when. torch.use_deterministic_algorithms."""


def are_deterministic_algorithms_enabled() -> bool:
    """True, always."""
    return True


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False, always: nothing needs a warning."""
    return False


def slice_copy(input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1, *, out: Any = None) -> Tensor:
    """input[start:end:step] along a dim, in memory of its own; torch.slice_copy."""
    if step <= 0:
        raise RuntimeError(f"slice step must be positive: got {step}")
    if not input.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if not -input.ndim <= dim < input.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-input.ndim}, {input.ndim - 1}], but got "
                         f"{dim})")
    part = input[(builtins.slice(None),) * (dim % input.ndim) + (builtins.slice(start, end, step),)]
    return _finish(part.clone(), None, False, out)


def from_file(filename: str, shared: Any = None, size: Any = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
              pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """The first `size` elements of a file, as memory; torch.from_file.

    shared=True: writes go to the file, which is made, or made larger, where it must. Otherwise they stay with the tensor.
    """
    numpy = lazy_numpy()
    dtype = dtype or _C.get_default_dtype()
    if dtype is _C.bfloat16:
        raise NotImplementedError("from_file: NumPy has no bfloat16; read int16 and view() it")
    if not size:
        return _finish(zeros(0, dtype=dtype), device, requires_grad)
    bytes_ = size * dtype.itemsize
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < bytes_:
                file.truncate(bytes_)
    array = numpy.memmap(filename, numpy.dtype(dtype.name), "r+" if shared else "c", shape=(size,))
    return _finish(from_numpy(array), device, requires_grad)
