"""Tensors from data, from numbers, and at random."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, cast

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._base.parts import has_parts
from sluice._base.device import device as _device
from sluice._tensor.float8_dtypes import is_float8
from sluice._tensor.functions import broadcast_shapes
from sluice._base.numbers import array_of, is_whole, numpy
from sluice._base.size import sizes_of
from sluice._base.trace import running

default_generator = _C.Generator()
get_default_dtype = _C.get_default_dtype


def set_default_dtype(dtype: Any) -> None:
    """The dtype of floating tensors that name none. torch.set_default_dtype."""
    if not dtype.is_floating_point:
        raise TypeError(f"set_default_dtype: got {dtype}; only floating-point types are supported as the default")
    _C.set_default_dtype(dtype)


def _place(device: Any, out: Any = None) -> Any:
    """The place of a new tensor: `device`, that of `out`, or else the one of the innermost `with device(...)` or the
    default one."""
    if device is not None:
        return device
    return _C.placement_device() if out is None else out._device


def _finish(t: Any, device: Any, requires_grad: bool, out: Any = None) -> Any:
    return _made(t, _place(device, out), requires_grad, out)


def _made(t: Any, place: Any, requires_grad: bool, out: Any = None) -> Any:
    """As asked for, where _place() says."""
    if out is not None:
        if out._shape != t._shape:
            out.resize_(t._shape)
        return out.copy_(t)
    if place is not None:
        t = t._to_device(place)
    return t.requires_grad_(True) if requires_grad else t


def _drawn_by(generator: Any, device: Any) -> Any:
    """The generator that draws for a tensor there; the default one's numbers are the same on every device."""
    if generator is None:
        return default_generator
    if not _C.is_tracing():
        wanted, got = _device(device or "cpu").type, generator.device.type
        if wanted != got:
            raise _C.RuntimeError(f"generator: Expected a '{wanted}' device type for generator but found '{got}'")
    return generator


def _sizes(name: str, size: Any, options: dict) -> tuple:
    """Sizes given one by one, as a sequence or by name; checks the options of torch that change nothing here."""
    if "size" in options:
        if size:
            raise TypeError(f"{name}(): got multiple values for argument 'size'")
        size = (options.pop("size"),)
    _check_options(name, options)
    return sizes_of(size)


def _check_options(name: str, options: dict) -> None:
    """Options of layout and pinning are accepted, because there is only one layout, and memory needs no pinning."""
    if options.pop("layout", None) not in (None, "strided"):
        raise NotImplementedError(f"{name}: layout must be strided; sparse tensors are not supported")
    options.pop("pin_memory", None)
    if options:
        raise TypeError(f"{name}(): got an unexpected keyword argument '{next(iter(options))}'")


def _dtype_of(out: Any) -> Any:
    return get_default_dtype() if out is None else out.dtype


def _laid(t: Any, memory_format: Any) -> Any:
    plain = memory_format is None or memory_format in ("preserve_format", "contiguous_format")
    return t if plain else t.contiguous(memory_format=memory_format)


float8_made: Any = None  # what these functions make of 8-bit floats; sluice._tensor.float8 sets it


_Make = TypeVar("_Make", bound=Callable[..., Any])


def _also_float8(make: _Make) -> _Make:
    """A function that makes tensors, of floats of 8 bits, too."""
    @functools.wraps(make)
    def made(*args: Any, dtype: Any = None, **options: Any) -> Any:
        if dtype is not None and is_float8(dtype):
            return float8_made(make, dtype, args, options)
        return make(*args, dtype=dtype, **options)

    return cast(_Make, made)


@_also_float8
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A tensor with a copy of `data`."""
    if isinstance(dtype, str):
        raise TypeError(f"tensor: dtype is {dtype!r}; must be one of {_C.dtypes}")
    if isinstance(data, Tensor):
        t = data.detach().clone()
    elif isinstance(data, (bool, int, float, complex)) and not hasattr(data, "dtype"):  # numpy's float64 is a float
        if isinstance(data, int) and dtype is not None and dtype.is_floating_point:
            data = float(data)  # of any length
        return _finish(fn.number(data, dtype or _dtype_of_number(data), _place(device)), device, requires_grad)
    else:
        array, inferred = array_of(data, dtype)
        dtype = dtype or inferred
        t = _C.from_array(numpy().array(array, copy=True, order="C", ndmin=0)).clone()
    if dtype is not None and t.dtype is not dtype:
        t = t.to(dtype)
    return _finish(t, device, requires_grad)


def _dtype_of_number(number: Any) -> Any:
    """The dtype that torch infers for a number of Python."""
    if isinstance(number, complex):
        return get_default_dtype().to_complex()
    return _C.bool if isinstance(number, bool) else _C.int64 if is_whole(number) else get_default_dtype()


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where possible."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if hasattr(data, "__array_interface__") and not isinstance(data, numpy().generic):  # an array, or what NumPy sees as one
        return _C.from_array(numpy().asarray(data)).to(device=_place(device), dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: Any) -> Tensor:
    """Shares the array's memory. An array that is read-only makes a tensor that refuses in-place writes."""
    if not isinstance(array, numpy().ndarray):
        raise TypeError(f"from_numpy: expected np.ndarray (got {type(array).__name__})")
    return _C.from_array(array)


def from_dlpack(ext_tensor: Any, *, copy: Any = None) -> Tensor:
    """Shares the memory of an object with `__dlpack__`, or of a DLPack capsule; torch.from_dlpack.

    copy: True copies; None and False share. Memory that its exporter marks as read-only refuses in-place writes.
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        t = _C.from_dlpack_capsule(ext_tensor)
    else:
        if hasattr(ext_tensor, "__dlpack_device__"):
            kind, index = ext_tensor.__dlpack_device__()
            if int(kind) != 1:
                raise BufferError(f"from_dlpack: the tensor is on DLPack device ({int(kind)}, {index}); must be on the CPU (1, 0)")
        try:
            capsule = ext_tensor.__dlpack__(max_version=(1, 0))
        except TypeError:  # an exporter from before DLPack 1.0
            capsule = ext_tensor.__dlpack__()
        t = _C.from_dlpack_capsule(capsule)
    return t.clone() if copy else t


def to_dlpack(tensor: Any) -> Any:
    """The tensor as a DLPack capsule of the unversioned form; `tensor.__dlpack__()`."""
    return tensor.__dlpack__()


def frombuffer(buffer: Any, *, dtype: Any, count: Any = -1, offset: Any = 0, requires_grad: bool = False) -> Tensor:
    """Shares the memory of an object with the buffer protocol, as a tensor of one dim; torch.frombuffer."""
    return _finish(_C.from_buffer(buffer, dtype, count, offset), None, requires_grad)


@_also_float8
def full(*size: Any, fill_value: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
         **options: Any) -> Tensor:
    """A tensor of this shape, filled with `fill_value`. torch.full."""
    if fill_value is None:
        if not size:
            raise TypeError("full(): missing a required argument: 'fill_value' (position 2)")
        *size, fill_value = size
    size = _sizes("full", size, options)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if dtype is None:
        dtype = _dtype_of_number(fill_value) if out is None else out.dtype
    place = _place(device, out)
    number = fn.number(fill_value, dtype, place)  # checks that it fits
    exact = not isinstance(fill_value, (int, complex)) or isinstance(fill_value, int) and abs(fill_value) <= 2**53
    t = fn.full(size, fill_value, dtype, place) if exact else number.expand(size).clone()
    return _made(t, place, requires_grad, out)


@_also_float8
def empty(*size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None,
          **options: Any) -> Tensor:
    """A tensor of this shape, whose content is undefined. torch.empty."""
    place = _place(device, out)
    t = _laid(fn.empty(_sizes("empty", size, options), dtype or get_default_dtype(), place), memory_format)
    return _made(t, place, requires_grad, out)


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of any contents, with these strides in memory of its own; torch.empty_strided."""
    size, stride = sizes_of((size,)), sizes_of((stride,))
    if len(size) != len(stride):
        raise _C.RuntimeError(f"empty_strided: dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    if any(n < 0 for n in (*size, *stride)):
        raise _C.RuntimeError(f"empty_strided: sizes and strides must not be negative: got {size} and {stride}")
    extent = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    t = fn.empty((extent,), dtype or get_default_dtype(), _place(device))
    return _finish(fn.as_strided(t, size, stride).detach(), device, requires_grad)


@_also_float8
def zeros(*size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
          **options: Any) -> Tensor:
    """A tensor of zeros. torch.zeros."""
    place = _place(device, out)
    return _made(fn.full(_sizes("zeros", size, options), 0.0, dtype or _dtype_of(out), place), place, requires_grad, out)


@_also_float8
def ones(*size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
         **options: Any) -> Tensor:
    """A tensor of ones. torch.ones."""
    place = _place(device, out)
    return _made(fn.full(_sizes("ones", size, options), 1.0, dtype or _dtype_of(out), place), place, requires_grad, out)


def _memory_order(t: Tensor) -> list | None:
    """The dims in the order in which they lie in memory, outermost first; None where that is their own, or not known."""
    if t._traced or t.is_contiguous():
        return None
    strides = [s if n > 1 else None for n, s in zip(t._shape, t.stride())]
    order = sorted(range(len(strides)), key=lambda d: -t.stride(d))
    return None if 0 in strides or order == list(range(len(order))) else order


def in_memory_order(t: Tensor) -> Tensor:
    """t, or its dims permuted as they lie in memory: what torch fills with random numbers element by element."""
    order = _memory_order(t)
    return t if order is None else t.permute(order)


_lie_like: Any = None  # lays a local tensor as a global one lies; the module of global tensors sets it


def lay_alike_by(function: Any) -> None:
    """Global tensors stand on this module, and say here how theirs are made."""
    global _lie_like
    _lie_like = function


def _like(make: Any) -> Any:
    def like(input, *args, dtype=None, device=None, requires_grad=False, memory_format=None, **options):
        if has_parts(input) and is_float8(input.dtype):
            return make(input._shape, *args, dtype=dtype or input.dtype, device=device or input._device, requires_grad=requires_grad, **options)
        if has_parts(input):
            raise _C.NotImplementedError(f"{make.__name__}_like: input: a sparse tensor; must be dense: use to_dense(), or values() for its "
                                         "elements")
        if input._global:  # lies so, too
            local = like(input.to_local(), *args, dtype=dtype, device=device, **options)
            return _lie_like(local, input).requires_grad_(requires_grad)
        options.update(dtype=dtype or input.dtype, device=device or input._device)
        if memory_format is None or memory_format == "preserve_format":
            order = _memory_order(input)
            if order is not None:  # made, and filled, in the order in which input lies in memory
                t = make([input._shape[d] for d in order], *args, **options)
                return t.permute([order.index(d) for d in range(len(order))]).detach().requires_grad_(requires_grad)
            return make(input._shape, *args, requires_grad=requires_grad, **options)
        return _laid(make(input._shape, *args, **options), memory_format).requires_grad_(requires_grad)

    return like


@typed(start="Number|None", end="Number|None", step="Number", dtype="dtype|None")
def arange(start: Any = None, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, device: Any = None,
           requires_grad: bool = False, **options: Any) -> Tensor:
    """The numbers from start to end, without end, in steps of `step`. torch.arange."""
    _check_options("arange", options)
    if start is None and end is None:
        raise TypeError("arange: neither start nor end is given; one of both must be")
    if start is None or end is None:
        start, end = 0, start if end is None else end
    if dtype is None:
        dtype = _C.int64 if all(map(is_whole, (start, end, step))) else get_default_dtype()
    if getattr(dtype, "is_complex", False):
        raise _C.NotImplementedError(f"arange: not implemented for '{dtype.name}'; use a real dtype and cast")
    if not dtype.is_floating_point:  # as torch: of whole numbers from the first on
        start, end, step = int(start), int(end), int(step)
    place = _place(device, out)
    # float64 does not have all large whole numbers.
    if not dtype.is_floating_point and (end - start) * step > 0 and max(abs(start), abs(end)) > 2**53:
        if not -2**63 <= min(start, end) <= max(start, end) < 2**63:
            raise _C.ValueError(f"arange: from {start} to {end}; both must fit into 64 bits")
        count = (end - start - (1 if step > 0 else -1)) // step + 1
        numbers = fn.arange(0.0, float(count), 1.0, _C.int64, place) * step + start
        return _made(numbers.to(dtype), place, requires_grad, out)
    return _made(fn.arange(float(start), float(end), float(step), dtype, place), place, requires_grad, out)


@typed(start="Number|Tensor", end="Number|Tensor", steps="int", dtype="dtype|None")
def linspace(start: Any, end: Any, steps: Any, *, out: Any = None, dtype: Any = None, device: Any = None,
             requires_grad: bool = False, **options: Any) -> Tensor:
    """`steps` numbers from start to end, both included. torch.linspace."""
    _check_options("linspace", options)
    place = _place(device, out)
    if isinstance(start, complex) or isinstance(end, complex) or getattr(dtype, "is_complex", False):
        dtype = dtype or get_default_dtype().to_complex()
        parts = [fn.linspace(a, b, steps, dtype.to_real(), place) for a, b in ((complex(start).real, complex(end).real),
                                                                               (complex(start).imag, complex(end).imag))]
        return _made(fn.complex(*parts), place, requires_grad, out)
    return _made(fn.linspace(float(start), float(end), steps, dtype or get_default_dtype(), place), place, requires_grad, out)


def eye(n: int, m: Any = None, *, out: Any = None, dtype: Any = None, device: Any = None,
        requires_grad: bool = False, **options: Any) -> Tensor:
    """Ones on the diagonal of an n x m matrix, zeros elsewhere. torch.eye."""
    _check_options("eye", options)
    place = _place(device, out)
    if m is not None and m < 0:
        raise _C.RuntimeError(f"eye: m must be greater or equal to 0, got {m}")
    return _made(fn.eye(n, -1 if m is None else m, dtype or get_default_dtype(), place), place, requires_grad, out)


# Random. Eager tensors follow torch's sequential generator; while a graph is traced the numbers are drawn in the plan.


def manual_seed(seed: int) -> Any:
    """Seeds the default generator."""
    return default_generator.manual_seed(int(seed) % 2**64)


def initial_seed() -> Any:
    """The seed of the default generator. torch.initial_seed."""
    return default_generator.initial_seed()


def seed() -> int:
    """Seeds the default generator with a number of the system's, which it returns; torch.seed."""
    import secrets

    number = secrets.randbits(63)
    manual_seed(number)
    return number


def get_rng_state() -> Tensor:
    """All that the default generator draws next, as a uint8 tensor; torch.get_rng_state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Draws on from a state that get_rng_state() gave; torch's own states are refused."""
    default_generator.set_state(new_state)


def rand(*size: Any, generator: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
         **options: Any) -> Tensor:
    """Numbers drawn uniformly from [0, 1). torch.rand."""
    place = _place(device, out)
    g, size, dtype = _drawn_by(generator, place), _sizes("rand", size, options), dtype or get_default_dtype()
    if getattr(dtype, "is_complex", False):  # both parts
        parts = rand(*size, 2, generator=generator, dtype=dtype.to_real(), device=place)
        return _made(fn.view_as_complex(parts).detach(), place, requires_grad, out)
    t = g.draw_uniform(size, 0.0, 1.0, dtype) if _C.is_tracing() else g.rand(size, dtype)
    return _made(t, place, requires_grad, out)


def randn(*size: Any, generator: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
         **options: Any) -> Tensor:
    """Numbers drawn from the standard normal distribution. torch.randn."""
    place = _place(device, out)
    g, size, dtype = _drawn_by(generator, place), _sizes("randn", size, options), dtype or get_default_dtype()
    if getattr(dtype, "is_complex", False):  # of variance 1: each part has half of it
        parts = empty(*size, 2, dtype=dtype.to_real(), device=place).normal_(0, 1 / 2**0.5, generator=generator)
        return _made(fn.view_as_complex(parts).detach(), place, requires_grad, out)
    t = g.draw_normal(size, 0.0, 1.0, dtype) if _C.is_tracing() else g.randn(size, dtype)
    return _made(t, place, requires_grad, out)


@typed(low="int", high="int|ints", size="int|ints")
def randint(low: Any = None, high: Any = None, size: Any = None, *, generator: Any = None, out: Any = None, dtype: Any = None,
            device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """Whole numbers drawn from low (0) up to high, without high. torch.randint."""
    if isinstance(high, (tuple, list)) and size is None:
        high, size = None, high
    low, high = (0, low) if high is None else (low or 0, high)
    if size is None or high is None:
        raise TypeError(f"randint(): missing a required argument: '{'size' if size is None else 'high'}'")
    _check_options("randint", options)
    g, dtype = _drawn_by(generator, _place(device, out)), dtype or _C.int64
    t = g.draw_randint(size, low, high, dtype) if _C.is_tracing() else g.randint(low, high, size, dtype)
    return _finish(t, device, requires_grad, out)


def randperm(n: int, *, generator: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
             **options: Any) -> Tensor:
    """The numbers from 0 to n - 1 in random order. torch.randperm."""
    _check_options("randperm", options)
    if _C.is_tracing():
        raise _C.NotImplementedError("randperm: inside a graph it would be the same permutation at every step; give the permutation "
                                     "as an argument of the call, or make it in a sluice.host_function")
    return _finish(_drawn_by(generator, _place(device, out)).randperm(n).to(dtype=dtype), device, requires_grad, out)


def _place_of(like: Tensor) -> Any:
    """The device on which numbers are drawn for `like`; a graph places them itself."""
    return None if _C.is_tracing() else like._device


def chances(like: Tensor, shape: Any, p: float, generator: Any = None, dtype: Any = None) -> Tensor:
    """A tensor of like's device and dtype: 1 with probability p, else 0, as torch draws them for a probability that is a number."""
    g, dtype = _drawn_by(generator, like._device), dtype or like.dtype
    if masks_are_counted():
        return g.draw_bernoulli(shape, p, dtype, like._device)
    return g.bernoulli(shape, p).to(dtype).to(like._device)


def masks_are_counted() -> bool:
    """Whether dropout draws by the counter-based generator: in graphs, and in build() that is run eagerly."""
    return _C.is_tracing() or running.now.builds


def normal(mean: Any, std: Any, size: Any = None, *, generator: Any = None) -> Tensor:
    """Samples of these means and standard deviations, which are broadcast, or of numbers, of that size. torch.normal."""
    if size is not None:
        if _C.is_tracing():
            return randn(size, generator=generator) * std + mean
        return empty(size).normal_(mean, std, generator=generator)
    like = mean if isinstance(mean, Tensor) else std
    shape = broadcast_shapes(mean._shape, std._shape) if isinstance(mean, Tensor) and isinstance(std, Tensor) else like._shape
    dtype = like.dtype if like.dtype.is_floating_point or like.dtype.is_complex else None
    return randn(shape, generator=generator, dtype=dtype, device=_place_of(like)) * std + mean


def bernoulli(input: Any, p: Any = None, *, generator: Any = None) -> Tensor:
    """1 with the probability that the element of `input` says, or with `p`, else 0. torch.bernoulli.

    Probabilities that a graph computes are not looked at; others must lie in [0, 1].
    """
    if isinstance(input, Tensor) and input.numel() == 0:
        return input.detach().clone()  # of any dtype, as in torch
    check_probability("bernoulli", input if p is None else p)
    if p is not None and not isinstance(p, Tensor):
        return chances(input, input._shape, p, generator)
    dtype = _C.float64 if p is None and input.dtype == _C.float64 else _C.float32
    drawn = rand(input._shape, generator=generator, dtype=dtype, device=_place_of(input))
    return (drawn < (input if p is None else p)).to(input.dtype)


def check_probability(name: str, p: Any) -> None:
    if isinstance(p, Tensor):
        fine = _C.touches_graph(p) or bool(((p >= 0) & (p <= 1)).all())
    else:
        fine = 0 <= p <= 1
    if not fine:
        raise _C.RuntimeError(f"{name}: expects p to be in [0, 1], but got {p}; it must be a probability")


zeros_like, ones_like, empty_like = _like(zeros), _like(ones), _like(empty)
full_like = _like(full)
rand_like, randn_like = _like(rand), _like(randn)
