"""Subclasses of Tensor, and the protocol __torch_function__ as far as their methods and operators go (ADR 70)."""

from __future__ import annotations

import threading
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.methods import method

_OPERATORS = {f"__{name}__" for name in """abs add and contains eq floordiv ge getitem gt iadd iand ifloordiv ilshift imod imul invert ior ipow
    irshift isub itruediv ixor le lshift lt matmul mod mul ne neg or pos pow radd rand rfloordiv rlshift rmod rmul ror rpow rrshift rshift
    rsub rtruediv rxor setitem sub truediv xor""".split()}
# The methods that torch names to the class when these are used; others by their own names.
_SPELLED = {"add": "add", "radd": "add", "iadd": "add_", "mul": "mul", "rmul": "mul", "imul": "mul_", "sub": "sub", "isub": "sub_",
            "truediv": "div", "itruediv": "div_", "matmul": "matmul", "neg": "neg", "abs": "abs", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le",
            "gt": "gt", "ge": "ge"}
# They say what a tensor is, or make one of it, and are asked by Sluice itself.
_PLAIN = {"as_subclass", "dim", "size", "stride", "is_floating_point", "is_complex", "register_hook", "backward", "data_ptr", "tolist", "item",
          "numpy", "element_size", "storage_offset", "is_contiguous", "ndimension", "nelement", "numel"}


class _Disabled(threading.local):
    depth = 0


_disabled = _Disabled()


class DisableTorchFunctionSubclass:
    """Within it, subclasses are tensors like any other; torch._C.DisableTorchFunctionSubclass."""

    def __enter__(self) -> None:
        _disabled.depth += 1

    def __exit__(self, *exc: Any) -> None:
        _disabled.depth -= 1


def plain(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The call as it is: the __torch_function__ of classes that take no notice of functions."""
    return func(*args, **(kwargs or {}))


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The classes among the arguments that have a say, subclasses before their bases."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            kind = type(one)
            if kind is Tensor or kind in found or not issubclass(kind, Tensor) or getattr(kind, "_asks_torch_function", None) is None:
                continue
            place = next((i for i, other in enumerate(found) if issubclass(kind, other)), len(found))
            found.insert(place, kind)
    return found


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    types = [] if _disabled.depth else _asked(args, kwargs)
    if not types:
        return function(*args, **kwargs)
    for kind in types:
        result = kind.__torch_function__(function, tuple(types), args, kwargs)
        if result is not NotImplemented:
            return result
    name = getattr(function, "__name__", "a function")
    raise TypeError(f"no implementation found for 'torch.Tensor.{name}' on types that implement __torch_function__: {types}")


def _asking_operator(operator: Any, named: Any) -> Any:
    """An operator, which asks about the method that it stands for. If another operand is neither a tensor nor a number, it asks about itself."""
    def asked(self: Any, *others: Any) -> Any:
        return _call(named if all(isinstance(o, (Tensor, bool, int, float, complex)) for o in others) else operator, (self, *others), {})

    return asked


def _asking(function: Any) -> Any:
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _call(function, (self, *args), kwargs)

    asked.__name__ = asked.__qualname__ = getattr(function, "__name__", "method")
    asked.__doc__ = getattr(function, "__doc__", None)
    return asked


def _init_subclass(cls: Any, **options: Any) -> None:
    super(Tensor, cls).__init_subclass__(**options)
    own = vars(cls)
    if "__new__" in own and "__init__" not in own:
        cls.__init__ = lambda self, *args, **kwargs: None  # what __new__ returns is complete
    asks = getattr(own.get("__torch_function__"), "__func__", own.get("__torch_function__"))
    if asks is None or asks is plain:
        return
    cls._asks_torch_function = True
    above = {name for base in cls.__mro__[:-1] if base is not Tensor and issubclass(base, Tensor) for name in vars(base)}
    for name, function in vars(Tensor).items():
        public = name in _OPERATORS or not name.startswith("_") and name not in _PLAIN and callable(function)
        if public and name not in above and not isinstance(function, (type, property)):
            named = _SPELLED.get(name[2:-2]) if name in _OPERATORS else None
            setattr(cls, name, _asking_operator(function, getattr(Tensor, named)) if named else _asking(function))


Tensor.__init_subclass__ = classmethod(_init_subclass)


@method
def as_subclass(self: Any, cls: Any) -> Any:
    """The same values as a tensor of a subclass, or of Tensor, in the same memory and with the same gradient; torch.Tensor.as_subclass."""
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise _C.TypeError(f"as_subclass: cls: {cls!r:.80}; must be a subclass of Tensor")
    with DisableTorchFunctionSubclass():
        alias = Tensor.view(self, self._shape) if self.requires_grad and _C.is_grad_enabled() else Tensor.detach(self)
    if cls is Tensor:
        return alias
    made = Tensor.__new__(cls)
    Tensor.__init__(made, alias)
    return made


def _make_subclass(cls: Any, data: Any, require_grad: bool = False) -> Any:
    """The values of a tensor as one of a subclass, without their history; torch.Tensor._make_subclass."""
    return data.detach().as_subclass(cls).requires_grad_(require_grad)


Tensor._make_subclass = staticmethod(_make_subclass)
