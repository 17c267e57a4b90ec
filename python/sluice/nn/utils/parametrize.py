"""Parameters and buffers that are computed of others: torch.nn.utils.parametrize."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice.nn.modules.container import ModuleDict, ModuleList
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter

_caching = 0
_cache: dict[tuple[int, str, bool], Tensor] = {}


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrized tensor is computed once, when it is first read."""
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _same_kind(what: str, names: tuple[str, str], before: Tensor, after: Any) -> None:
    """That a parametrization gives a tensor of the dtype and shape of what it replaces."""
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for kind in ("dtype", "shape"):
        if getattr(before, kind) != getattr(after, kind):
            raise ValueError(f"{what} may not change the {kind} of the tensor, unless the `unsafe` flag is enabled.\n"
                             f"{names[0]}.{kind}: {getattr(before, kind)}\n{names[1]}.{kind}: {getattr(after, kind)}")


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the tensors it is computed of: `original`, or `original0`, `original1`, ..."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before = original.detach()
        new = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):  # then it is taken for the identity
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                             f"Got {type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            for kind in ("dtype", "device"):
                if getattr(original, kind) != getattr(new, kind):
                    raise ValueError(f"When `right_inverse` outputs one tensor, it may not change the {kind}.\n"
                                     f"original.{kind}: {getattr(original, kind)}\n"
                                     f"right_inverse(original).{kind}: {getattr(new, kind)}")
            if new is not original:
                original.data = new.detach()  # the object stays, which optimizers may have
            _register(self, "original", original)
        else:
            for i, tensor in enumerate(new):
                if not isinstance(tensor, Tensor):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                                     f"Got element {i} of the sequence with type {type(tensor).__name__}.")
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, original.requires_grad)
                _register(self, f"original{i}", tensor)
        if not unsafe:
            _same_kind("Registering a parametrization", ("unparametrized", "parametrized"), before, self())

    def _originals(self) -> list[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that `value` is computed of them, by the right_inverse() of every parametrization."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
        if self.is_tensor:
            if not isinstance(value, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
            if value.dtype != self.original.dtype:
                raise ValueError(f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                                 f"{self.original.dtype}")
            self.original.data = value.detach()
            return
        if not isinstance(value, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
        if len(value) != self.ntensors:
            raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length "
                             f"{len(value)}.")
        for i, (tensor, original) in enumerate(zip(value, self._originals())):
            if not isinstance(tensor, Tensor):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got element {i} of type {type(tensor).__name__}")
            if tensor.dtype != original.dtype:
                raise ValueError(f"Tensor {i} returned by `right_inverse` has dtype {tensor.dtype} while `original{i}` has dtype "
                                 f"{original.dtype}")
            original.data = tensor.detach()

    def forward(self) -> Tensor:
        first, *others = self
        x = first(*self._originals())
        for module in others:
            x = module(x)
        return x

    def __repr__(self) -> str:
        return Module.__repr__(self)


def _deepcopy(self: Module, memo: Any) -> Module:
    if id(self) not in memo:
        # A class of its own: removing a parametrization of one leaves the other as it is.
        cls = type(self)
        made = memo[id(self)] = Module.__new__(type(cls.__name__, cls.__bases__, dict(vars(cls))))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return memo[id(self)]


def _getstate(self: Module) -> Any:
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(): load it into a module that is "
                       "parametrized in the same way.")


def _property_of(name: str) -> property:
    def get(self):
        computed = self.parametrizations[name]
        if not _caching:
            return computed()
        key = id(self), name, _C.is_tracing()
        if key not in _cache:
            _cache[key] = computed()
        return _cache[key]

    def put(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Makes a parameter or buffer of a module the result of `parametrization`, a module, or of one more.

    Its right_inverse(), if it has one, gives the first original (or originals) of a value. unsafe: it is not checked that dtype
    and shape stay.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            now = getattr(module, tensor_name)
            result = parametrization(now)
            names = (f"module.{tensor_name}", f"parametrization(module.{tensor_name})")
            _same_kind("Registering a parametrization", names, now, result)
            if hasattr(parametrization, "right_inverse"):
                with contextlib.suppress(NotImplementedError):
                    back = parametrization.right_inverse(result)
                    if not isinstance(back, Tensor):
                        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
                    _same_kind("parametrization.right_inverse", (f"module.{tensor_name}", "returned"), now, back)
        parametrizations = module.parametrizations[tensor_name]
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            cls = type(module)
            members = {"__getstate__": _getstate} | ({} if hasattr(cls, "__deepcopy__") else {"__deepcopy__": _deepcopy})
            module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)
            module.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _property_of(tensor_name))
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True when the tensor, or any of the module, is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Undoes register_parametrization(): the tensor is what is computed now, or the original again."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if not parametrizations.is_tensor:
        if not leave_parametrized:
            raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
                             "sequence of tensors.")
        computed = getattr(module, tensor_name)
        original = Parameter(computed.detach()) if computed.requires_grad else computed
    else:
        original = parametrizations.original
        if leave_parametrized:
            with no_grad():
                original.data = getattr(module, tensor_name).detach()
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of the module without its parametrizations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Gives `to_module` the parametrizations of `from_module`, of one tensor or of all, with their originals."""
    if is_parametrized(from_module):
        for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
            if not hasattr(to_module, name):
                setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
            given = from_module.parametrizations[name]
            for parametrization in given:
                register_parametrization(to_module, name, parametrization)
            for part in ["original"] if given.is_tensor else [f"original{i}" for i in range(given.ntensors)]:
                setattr(to_module.parametrizations[name], part, getattr(given, part))
    return to_module
