"""Tensors of floats of 8 bits: objects of a uint8 tensor, for storage. Ops take the numbers after to() (ADR 71)."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from sluice import _C
from sluice._base.parts import is_dense
from sluice._base.size import Size
from sluice._C import Tensor, fn
from sluice._tensor import creation, methods
from sluice._tensor.creation import tensor
from sluice._tensor.float8_dtypes import Float8Dtype, is_float8, numbers, thresholds
from sluice._tensor.methods import parse_to

# Methods that move elements and leave them as they are.
_MOVES = """__getitem__ chunk clone contiguous diagonal expand flatten flip gather index_select movedim narrow permute repeat
    repeat_interleave reshape roll select split squeeze swapaxes swapdims t take_along_dim transpose unbind unflatten unsqueeze""".split()
# Questions about the numbers, which float32 has all of.
_ASKS = "eq ne lt le gt ge isnan isinf isfinite tolist item".split()
_CASTS = {"double": _C.float64, "float": _C.float32, "half": _C.float16, "bfloat16": _C.bfloat16, "long": _C.int64, "int": _C.int32,
          "bool": _C.bool}
_tables: dict[str, tuple[Tensor, Tensor]] = {}  # by dtype: its numbers, and where each begins


def _table(dtype: Float8Dtype, device: str) -> tuple[Tensor, Tensor]:
    if dtype.name not in _tables:
        _tables[dtype.name] = tensor(numbers(dtype.form), device="cpu"), tensor(thresholds(dtype.form), device="cpu")
    table, begins = _tables[dtype.name]
    return (table, begins) if device in ("cpu:0", "") else (table.to(device), begins.to(device))


def encode(t: Any, dtype: Float8Dtype) -> Float8Tensor:
    """The tensor as floats of 8 bits, each rounded to the nearest, ties to even, as torch rounds them."""
    if isinstance(t, Float8Tensor):
        t = t._decoded(_C.float32)
    if t.requires_grad and _C.is_grad_enabled():
        raise _C.RuntimeError(f"to({dtype}): the tensor requires grad, which floats of 8 bits do not pass on; use detach(), and a "
                              "sluice.autograd.Function for a gradient of your own")
    if t.dtype.is_complex:
        raise _C.TypeError(f"to({dtype}): got {t.dtype}; must be real: use t.real")
    form, x = dtype.form, t.detach().to(_C.float32)
    _, begins = _table(dtype, "" if t._traced else t._device)
    code = fn.searchsorted(begins, x.abs(), right=True)
    negative = fn.signbit(x).to(_C.int64) * 128
    if form.signed_zero:
        code = fn.where(x.isnan(), form.nan, code) + negative
    else:
        outside = x.isnan() | (code >= form.finite)
        code = fn.where(outside, form.nan, fn.where(code == 0, 0, code + negative))
    return Float8Tensor(code.to(_C.uint8), dtype)


class Float8Tensor:
    """Bits and what they mean. isinstance(t, Tensor) holds as in torch; ops take it after to(float32)."""

    layout = "strided"
    is_sparse = is_sparse_csr = is_quantized = is_nested = is_mkldnn = is_conj = is_neg = _global = is_global = requires_grad = False
    is_leaf, grad, grad_fn, _base = True, None, None, None
    __hash__ = object.__hash__

    def __init__(self, bits: Tensor, dtype: Float8Dtype) -> None:
        self._bits, self.dtype = bits, dtype

    @property
    def __class__(self) -> Any:
        return Tensor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute '{name}'")
        raise _refusal(name, self.dtype)

    # Graphs and files follow the parts of tensors (sluice._base.parts).

    def _to_parts(self) -> Any:
        return {"_bits": self._bits}, self.dtype

    @staticmethod
    def _of_parts(dtype: Any, parts: Any) -> Float8Tensor:
        return Float8Tensor(*parts, dtype)

    shape = property(lambda self: Size(self._bits._shape))
    itemsize = property(lambda self: 1)
    nbytes = property(lambda self: self._bits.nbytes)
    T = property(lambda self: self._like(self._bits.T))
    data = property(lambda self: self._like(self._bits.detach()))
    is_contiguous = property(lambda self: self._bits.is_contiguous)

    def dim(self) -> int:
        return self._bits.ndim

    def is_floating_point(self) -> bool:
        return True

    def is_complex(self) -> bool:
        return False

    def _like(self, bits: Any) -> Any:
        if isinstance(bits, (list, tuple)):
            return type(bits)(self._like(one) for one in bits)
        return Float8Tensor(bits, self.dtype)

    def detach(self) -> Float8Tensor:
        return self._like(self._bits.detach())

    def requires_grad_(self, requires_grad: bool = True) -> Float8Tensor:
        if requires_grad:
            raise _C.RuntimeError(f"requires_grad_: a tensor of {self.dtype}; must be False: keep a parameter in float32 or bfloat16, and cast it "
                                  "where it is stored")
        return self

    # Casts and copies

    def _decoded(self, dtype: Any) -> Tensor:
        table, _ = _table(self.dtype, "" if self._bits._traced else self._bits._device)
        return table[self._bits.to(_C.int64)].to(dtype)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The numbers in another dtype, or on another device; torch.Tensor.to."""
        place, dtype = parse_to(args, dict(kwargs))
        moved = self if place is None else self._to_device(place)
        if dtype is None or dtype is self.dtype:
            return moved.clone() if kwargs.get("copy") and moved is self else moved
        return encode(moved, dtype) if is_float8(dtype) else moved._decoded(dtype)

    def _to_device(self, place: Any) -> Float8Tensor:
        bits = self._bits._to_device(place)
        return self if bits._impl == self._bits._impl else self._like(bits)

    def cpu(self) -> Any:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Any:
        return self.to(f"cuda:{device or 0}" if device is None or isinstance(device, int) else device)

    def type(self, dtype: Any = None) -> Any:
        return f"torch.{self.dtype.name}" if dtype is None else self.to(dtype)

    def view(self, *shape: Any) -> Any:
        """Another shape, or the same bits as another dtype of 8 bits."""
        if len(shape) == 1 and isinstance(shape[0], _C.dtype):
            return Float8Tensor(self._bits, shape[0]) if is_float8(shape[0]) else self._bits.view(shape[0])
        return self._like(self._bits.view(*shape))

    def copy_(self, src: Any, non_blocking: bool = False) -> Float8Tensor:
        self._bits.copy_(encode(src if isinstance(src, Tensor) else tensor(src), self.dtype)._bits)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        self._bits[index] = encode(value if isinstance(value, Tensor) else tensor(value, dtype=_C.float32), self.dtype)._bits

    def fill_(self, value: Any) -> Float8Tensor:
        self._bits.copy_(encode(tensor(value, dtype=_C.float32), self.dtype)._bits)
        return self

    def zero_(self) -> Float8Tensor:
        self._bits.zero_()
        return self

    def numpy(self) -> NoReturn:
        raise _C.TypeError(f"numpy: a tensor of {self.dtype}, which NumPy has no dtype for; use to(float32), or view(uint8) for the bits")

    def __copy__(self) -> Float8Tensor:
        return self._like(copy.copy(self._bits))

    def __deepcopy__(self, memo: Any) -> Float8Tensor:
        if id(self) not in memo:
            memo[id(self)] = self._like(copy.deepcopy(self._bits, memo))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Float8Tensor, (self._bits, self.dtype)

    def __repr__(self) -> str:
        text = repr(self._decoded(_C.float32)) if not self._bits._traced else f"tensor({tuple(self._bits._shape)})"
        return f"{text[:-1]}, dtype={self.dtype})"

    def __len__(self) -> int:
        return len(self._bits)

    def __bool__(self) -> bool:
        return bool(self._decoded(_C.float32))

    def __float__(self) -> float:
        return float(self._decoded(_C.float32))

    def __iter__(self) -> Any:
        return iter([self._like(bits) for bits in self._bits])


def _refusal(name: str, dtype: Any) -> Exception:
    short = "F" + dtype.name[1:]
    return _C.NotImplementedError(f"\"{name}\" not implemented for '{short}': floats of 8 bits are for storage here; use to(float32) or "
                                  "to(bfloat16), and to() for the result")


def _scaled_mm(input: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None,  # noqa: A002
               out_dtype: Any = None, use_fast_accum: bool = False) -> Any:
    """(input * scale_a) @ (mat2 * scale_b) + bias, computed in float32; torch._scaled_mm. out_dtype: by default input's."""
    if not (type(input) is type(mat2) is Float8Tensor) or input.ndim != 2 or mat2.ndim != 2:
        raise _C.TypeError(f"_scaled_mm: got {input.dtype} and {mat2.dtype} of {input.ndim} and {mat2.ndim} dims; must be two matrices of "
                           "8-bit floats")
    product = fn.matmul(input.to(_C.float32) * scale_a, mat2.to(_C.float32) * scale_b)
    product = product if bias is None else product + bias.to(_C.float32)
    product = product if scale_result is None else product * scale_result
    return product.to(input.dtype if out_dtype is None else out_dtype)


def _add_methods() -> None:
    def move(name: str) -> Any:
        return lambda self, *args, **options: self._like(getattr(self._bits, name)(*args, **options))

    def ask(name: str) -> Any:
        return lambda self, *others: getattr(self._decoded(_C.float32), name)(*(o._decoded(_C.float32) if type(o) is Float8Tensor else o
                                                                                for o in others))

    def fact(name: str) -> Any:
        return property(lambda self: getattr(self._bits, name))

    for name in _MOVES:
        setattr(Float8Tensor, name, move(name))
    for name in _ASKS:
        setattr(Float8Tensor, name, ask(name))
        if f"__{name}__" in vars(Tensor) or name in ("eq", "ne", "lt", "le", "gt", "ge"):
            setattr(Float8Tensor, f"__{name}__", ask(f"__{name}__"))
    for name in """ndim device _device _shape _traced _impl is_cpu is_cuda is_meta size numel nelement stride storage_offset data_ptr element_size
            ndimension _strides""".split():
        setattr(Float8Tensor, name, fact(name))
    for name, dtype in _CASTS.items():
        setattr(Float8Tensor, name, lambda self, dtype=dtype: self.to(dtype))
    for name in "add sub mul truediv matmul pow mod floordiv radd rsub rmul rtruediv rmatmul iadd isub imul neg abs".split():
        def refuse(self: Any, *others: Any, name: str = name) -> NoReturn:
            raise _refusal(name, self.dtype)

        setattr(Float8Tensor, f"__{name}__", refuse)


_add_methods()


def _of_function(form: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A function of tensors that is called with one: its method of that name; cat and stack; an error for all else."""
    name = form.__name__
    if name in ("cat", "concat", "concatenate", "stack") and isinstance(args[0], (list, tuple)):
        dtypes = {t.dtype for t in args[0]}
        if len(dtypes) == 1:
            return Float8Tensor(form([t._bits for t in args[0]], *args[1:], **keywords), args[0][0].dtype)
    if name == "equal" and len(args) == 2:
        return bool(form(*(t._decoded(_C.float32) if type(t) is Float8Tensor else t for t in args)))
    if name in ("empty_like", "zeros_like", "ones_like"):
        return NotImplemented
    own = getattr(Float8Tensor, name, None) if args and type(args[0]) is Float8Tensor else None
    if own is not None:
        return own(*args, **keywords)
    found = next(t for t in _all([*args, *keywords.values()]) if type(t) is Float8Tensor)
    raise _refusal(name, found.dtype)


def _all(values: Any) -> Any:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _all(value)
        else:
            yield value


def _of_dtype(form: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A function that makes a tensor of a dtype of 8 bits: of float32 first, and the bits of it."""
    dtype = next(d for d in [*args, *keywords.values()] if is_float8(d))
    name = form.__name__
    if name == "view" and is_dense(args[0]) and args[0].dtype.itemsize == 1:
        return Float8Tensor(args[0].view(_C.uint8), dtype)
    raise _refusal(name, dtype)


def _made(make: Any, dtype: Float8Dtype, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The tensor that tensor(), zeros() and the like make of a dtype of 8 bits: float32 first, and the bits of it."""
    name, out = make.__name__, options.pop("out", None)
    if name == "empty":
        return Float8Tensor(make(*args, dtype=_C.uint8, **options), dtype)
    plain = make(*args, dtype=_C.float32, **options)
    coded = encode(plain, dtype)
    if name == "full" and bool((plain.isfinite() & (plain.abs() > dtype.form.number(dtype.form.finite - 1))).any()):
        raise _C.RuntimeError(f"full: value cannot be converted to type {dtype} without overflow")
    return coded if out is None else out.copy_(coded)


methods.float8_of, creation.float8_made = encode, _made
_C.register_stand_in(Float8Tensor, _of_function)
_C.register_stand_in(Float8Dtype, _of_dtype)
