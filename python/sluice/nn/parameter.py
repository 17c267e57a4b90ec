"""Tensors that modules register as their own."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.parts import has_parts
from sluice._tensor import pickling
from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice._tensor.methods import parse_to


def _data_of(data: Any, requires_grad: bool) -> Tensor:
    if data is None:
        return empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"Parameter: data is {type(data).__name__}; must be a Tensor: sluice.tensor(data)")
    if has_parts(data):
        raise TypeError(f"Parameter: data is of {data.dtype}, layout {data.layout}; must be a dense tensor that ops take: keep such a one "
                        "with register_buffer()")
    if requires_grad and not data.is_floating_point() and not data.is_complex():
        raise RuntimeError(f"Only Tensors of floating point and complex dtype can require gradients: got {data.dtype}; say "
                           "requires_grad=False")
    return data.detach()


class Parameter(Tensor):
    """A leaf tensor that a Module registers as a parameter; shares its data with `data`. None: an empty one."""

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        super().__init__(_data_of(data, requires_grad))
        if requires_grad:
            self.requires_grad_(True)

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(pickling.cloned(self), self.requires_grad)
        return memo[id(self)]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __copy__(self) -> Any:
        same = type(self)(self.detach(), self.requires_grad)
        same.__dict__.update(self.__dict__)
        return same

    def __reduce_ex__(self, protocol: Any) -> Any:
        return pickling.reduce_parameter(self, protocol)


class Buffer(Tensor):
    """A tensor that a Module registers as a buffer when it is assigned; persistent: state_dict() has it."""

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        super().__init__(_data_of(data, False))
        if data is not None and data.requires_grad:
            self.requires_grad_(True)
        self.persistent = persistent

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(pickling.copied(self, memo), persistent=self.persistent)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.detach(),), vars(self)


# A tensor whose shape is not known yet has these names only; what needs a shape raises.
_KNOWN = frozenset(("__class__", "__dict__", "__doc__", "__module__", "__deepcopy__", "__reduce_ex__", "__hash__", "__init__",
                    "__repr__", "materialize", "cls_to_become", "requires_grad", "requires_grad_", "dtype", "device", "_device", "grad",
                    "is_leaf", "grad_fn", "is_floating_point", "_again", "_traced", "_global"))
_CASTS = {"half": "float16", "float": "float32", "double": "float64", "bfloat16": "bfloat16"}
_OPERATORS = ("add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv matmul rmatmul pow neg getitem setitem len iter "
              "bool float int index array lt le gt ge").split()


def _getattribute(self: Any, name: str) -> Any:
    if name in _KNOWN or name in object.__getattribute__(self, "__dict__"):
        return object.__getattribute__(self, name)
    cls = object.__getattribute__(self, "__class__")
    if name == "data":
        return self
    if name in ("to", "cpu", *_CASTS):
        return lambda *args, **kwargs: _cast(self, (_CASTS[name],) if name in _CASTS else ("cpu",) if name == "cpu" else args, kwargs)
    if name == "shape":
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when "
            "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters "
            "before accessing their attributes.")
    if hasattr(cls, name):
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `sluice.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` with "
            "a dummy batch to initialize the parameters before calling functions on them")
    raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'")


def _cast(lazy: Any, args: Any, kwargs: Any) -> Any:
    device, dtype = parse_to([getattr(_C, a) if a in _CASTS.values() else a for a in args], kwargs)
    return lazy._again(device or lazy._device, dtype or lazy.dtype)


def _materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
    """Makes it a parameter or buffer of this shape, whose contents are undefined."""
    made = empty(shape, device=device or self._device, dtype=dtype or self.dtype)
    requires_grad = self.requires_grad
    self.requires_grad_(False)
    self.__class__ = self.cls_to_become
    self.data = made
    self.requires_grad_(requires_grad)


def _uninitialized(cls: Any) -> Any:
    """A class decorator (bindings have no second base)."""
    cls.__getattribute__, cls.materialize = _getattribute, _materialize
    cls.__repr__ = cls.__str__ = lambda self: f"<{type(self).__name__}>"
    cls.__deepcopy__ = lambda self, memo: memo.setdefault(id(self), self._again(self.device, self.dtype))
    for name in _OPERATORS:
        setattr(cls, f"__{name}__", lambda self, *args, name=f"__{name}__": _getattribute(self, name))  # raises
    return cls


@_uninitialized
class UninitializedParameter(Parameter):
    """A parameter of a lazy module: it gets its shape with the first input."""

    cls_to_become = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        Parameter.__init__(self, empty(0, device=device, dtype=dtype), requires_grad)

    def _again(self, device: Any, dtype: Any) -> Any:
        return type(self)(self.requires_grad, device, dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, str(self.device), self.dtype)


@_uninitialized
class UninitializedBuffer(Buffer):
    """A buffer of a lazy module: it gets its shape with the first input."""

    cls_to_become = Buffer

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> None:
        Buffer.__init__(self, empty(0, device=device, dtype=dtype), persistent=persistent)
        self.requires_grad_(requires_grad)

    def _again(self, device: Any, dtype: Any) -> Any:
        return type(self)(self.requires_grad, device, dtype, self.persistent)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, str(self.device), self.dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """True of a parameter or buffer without a shape; torch.nn.parameter.is_lazy."""
    return isinstance(param, (UninitializedParameter, UninitializedBuffer))
