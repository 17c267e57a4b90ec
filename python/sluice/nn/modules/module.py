"""Module: parameters, buffers, submodules, hooks, state; semantics of torch.nn.Module."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager, nullcontext
from numbers import Integral
from typing import Any, Callable, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import empty_like
from sluice._tensor.float8_dtypes import is_float8
from sluice._tensor.global_tensors import place
from sluice._tensor.methods import parse_to
from sluice._base.trace import checkpoint_scope, module_scope, running
from sluice.autograd.passes import clear_grad
from sluice.nn.debug import Debug
from sluice.nn.modules._arrays import with_tensors
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.modules._hooks import (  # noqa: F401
    RemovableHandle, add_hook, call_with_hooks, of_all, register_module_backward_hook, register_module_buffer_registration_hook,
    register_module_forward_hook, register_module_forward_pre_hook, register_module_full_backward_hook,
    register_module_full_backward_pre_hook, register_module_module_registration_hook, register_module_parameter_registration_hook,
    registered)
from sluice.nn.modules._state import _EXTRA_STATE_KEY_SUFFIX, StateOfModule, _IncompatibleKeys  # noqa: F401
from sluice.nn.parameter import Buffer, Parameter

_TABLES = ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks",
           "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_backward_pre_hooks", "_backward_hooks",
           "_state_dict_pre_hooks", "_state_dict_hooks", "_state_dict_hooks_public", "_load_state_dict_pre_hooks",
           "_load_state_dict_post_hooks")


# Looked at in every call.
_pre, _post, _backward_pre, _backward = of_all.forward_pre, of_all.forward, of_all.backward_pre, of_all.backward


def _name_of(value: Any) -> str:
    return type(value).__name__


def _forward_unimplemented(self: Module, *input: Any) -> None:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


@contextmanager
def _translated(module: Module) -> Iterator[None]:
    """Inside, a graph is traced with forward() as jit.to_static makes it."""
    forward, own = running.now.translate(module.forward), module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own


class Module(StateOfModule):
    """Base of all networks. Assigning a Parameter, a Module or (via register_buffer) a Tensor registers it."""

    training: bool
    dump_patches = False
    call_super_init = False  # True: __init__ passes its arguments on to the next class
    _version = 1
    _debug = None  # what debug() asked for, in nn.Graph
    _takes_arrays = False  # NumPy's, as tensors: our layers do; what others make of them is their own matter
    config = ModuleConfig.of_module()  # for nn.Graph; an attribute of this name that a module sets hides it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update({name: OrderedDict() for name in _TABLES}, training=True, _non_persistent_buffers_set=set())
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented
    _compiled_call_impl: Any = None  # what compile() has made of the calls

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__ and "_takes_arrays" not in cls.__dict__:
            cls._takes_arrays = cls.__module__.startswith("sluice.nn.modules.")

    # Registration

    def register_parameter(self, name: str, param: Any) -> None:
        """Adds a parameter, or None, under `name`."""
        self._check_new_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_name_of(param)}' object to parameter '{name}' (sluice.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                             f"express '{name}' as a function of another Tensor, compute the value in the forward() method.")
        self._parameters[name] = registered(of_all.parameter, self, name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Adds a tensor, or None, that is no parameter; persistent: state_dict() has it."""
        self._check_new_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_name_of(tensor)}' object to buffer '{name}' (sluice.Tensor or None required)")
        self._buffers[name] = registered(of_all.buffer, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Adds a module, or None, under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_name_of(module)} is not a Module subclass")
        self._check_new_name("module", name, "_modules")
        self._modules[name] = registered(of_all.module, self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """add_module()"""
        self.add_module(name, module)

    def _check_new_name(self, kind: str, name: Any, table: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_name_of(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in tables:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif name in tables.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_name_of(value)}' as parameter '{name}' (sluice.nn.Parameter or None expected)")
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if "_modules" not in tables:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            self._modules[name] = registered(of_all.module, self, name, value)
        elif name in tables.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_name_of(value)}' as child module '{name}' (sluice.nn.Module or None expected)")
            self._modules[name] = registered(of_all.module, self, name, None)
        elif isinstance(value, Buffer) or name in tables.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{_name_of(value)}' as buffer '{name}' (sluice.nn.Buffer, sluice.Tensor or None "
                                "expected)")
            if "_buffers" not in tables:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            if name not in self._buffers:
                self._forget(name, "_parameters", "_modules")
                self.register_buffer(name, value, value.persistent)
            else:
                if isinstance(value, Buffer):
                    (self._non_persistent_buffers_set.discard if value.persistent else self._non_persistent_buffers_set.add)(name)
                self._buffers[name] = registered(of_all.buffer, self, name, value)
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, *tables: str) -> None:
        self.__dict__.pop(name, None)
        for table in tables:
            self.__dict__[table].pop(name, None)
        if "_buffers" in tables:
            self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table)
            if entries is not None and name in entries:
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: Any) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> Any:
        names = {*super().__dir__(), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled_call_impl"}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update({name: OrderedDict() for name in _TABLES}, _non_persistent_buffers_set=set())
        self.__dict__.update(state)

    # Calls and hooks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = running.now.names
        if names is not None and id(self) in names:
            config = ModuleConfig.of(self)
            with module_scope(names[id(self)]), checkpoint_scope() if config.activation_checkpointing else nullcontext():
                args, kwargs = config.bring((args, kwargs))
                with nullcontext() if running.now.translate is None else _translated(self):
                    return self._call_impl(*args, **kwargs)
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        regions = running.now.regions
        if regions is not None and (region := regions.get(self)) is not None:
            return region(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._takes_arrays:
            for given in (*args, *kwargs.values()) if kwargs else args:
                if given.__class__ is not Tensor:
                    args, kwargs = with_tensors((self,), args, kwargs)
                    break
        if (self._forward_pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks
                or _pre or _post or _backward_pre or _backward):
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def register_forward_pre_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """`hook(module, args)` may return new arguments; with_kwargs: `hook(module, args, kwargs)`, new (args, kwargs)."""
        return add_hook(self._forward_pre_hooks, hook, prepend=prepend,
                        flags=[self._forward_pre_hooks_with_kwargs] if with_kwargs else ())

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """`hook(module, args, output)` may return a new output; always_call: it runs after an exception, too."""
        flags = [*([self._forward_hooks_with_kwargs] if with_kwargs else ()),
                 *([self._forward_hooks_always_called] if always_call else ())]
        return add_hook(self._forward_hooks, hook, prepend=prepend, flags=flags)

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_output)` may return a replacement of grad_output."""
        return add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` may return a replacement of grad_input."""
        return add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Any) -> RemovableHandle:
        raise NotImplementedError("register_backward_hook: sees the gradients of the module's last op only; use "
                                  "register_full_backward_hook")

    # Iteration, in torch's order: own entries first, then submodules depth first; shared ones once.

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def _named_members(self, get_members_fn: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{module_prefix}.{name}" if module_prefix else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def named_children(self) -> Any:
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def parameters(self, recurse: bool = True) -> Any:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Any:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def modules(self, remove_duplicate: bool = True) -> Any:
        return (m for _, m in self.named_modules(remove_duplicate=remove_duplicate))

    def children(self) -> Any:
        return (m for _, m in self.named_children())

    def get_submodule(self, target: str) -> Any:
        """The module at the dotted path `target`; "" is this one."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Puts `module` at the dotted path `target`; strict: only in the place of another."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str, table: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in getattr(module, table):
            raise AttributeError(f"`{name}` is not {kind}")
        return getattr(module, name)

    def get_parameter(self, target: str) -> Any:
        """The parameter at the dotted path `target`."""
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer at the dotted path `target`."""
        return self._get_member(target, "_buffers", "a buffer")

    # Modes and conversions

    def train(self, mode: bool = True) -> Any:
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.parameters():
            clear_grad(p, set_to_none)

    def share_memory(self) -> Any:
        """Tensor.share_memory_ of all parameters and buffers."""
        for t in (*self.parameters(), *self.buffers()):
            t.share_memory_()
        return self

    def apply(self, fn: Any) -> Any:
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Replaces every parameter's and buffer's data by fn(data), keeping the Parameter objects."""
        for module in self.modules() if recurse else (self,):
            for p in module._parameters.values():
                if p is not None:
                    grad, p.grad = p.grad, None  # of the old type
                    p.data = fn(p.data)
                    if grad is not None:
                        p.grad = fn(grad)
            for name, b in module._buffers.items():
                if b is not None:
                    module._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves and casts; as torch, a dtype applies to floating-point entries only."""
        device, dtype = parse_to(args, kwargs)
        if dtype is not None and not (_dtype(dtype).is_floating_point or _dtype(dtype).is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
        if is_float8(dtype):
            raise TypeError(f"nn.Module.to: dtype: {dtype}; must be one that ops compute in: keep the module so, and store "
                            f"{{k: v.to({dtype}) for k, v in state_dict().items()}}")

        def convert(t):
            return t.to(device=device, dtype=dtype if dtype is not None and (t.is_floating_point() or t.is_complex()) else None)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves to `device` without the contents, which are undefined afterwards."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def to_global(self, placement: Any = None, sbp: Any = None) -> Any:
        """Lays every parameter and buffer over the devices of `placement` as `sbp` says, for nn.Graph.

        In a job of several ranks all have the whole module; the placement's first rank gives its contents to all.
        """
        return self._apply(lambda t: place(t, placement, sbp))

    def _cast(self, dtype: Any) -> Any:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Any:
        return self._cast(_C.float32)

    def double(self) -> Any:
        return self._cast(_C.float64)

    def half(self) -> Any:
        return self._cast(_C.float16)

    def bfloat16(self) -> Any:
        return self._cast(_C.bfloat16)

    def type(self, dst_type: Any) -> Any:
        """Casts all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Any:
        return self._apply(lambda t: t.cpu())

    def _to_kind(self, kind: str, device: Any) -> Any:
        return self.to(kind if device is None else f"{kind}:{device}" if isinstance(device, Integral) else device)

    def cuda(self, device: Any = None) -> Any:
        return self._to_kind("cuda", device)

    def xpu(self, device: Any = None) -> Any:
        return self._to_kind("xpu", device)

    def ipu(self, device: Any = None) -> Any:
        return self._to_kind("ipu", device)

    def mtia(self, device: Any = None) -> Any:
        return self._to_kind("mtia", device)

    compile: Callable[..., None]  # sluice.nn adds it, since compilation stands on modules

    # Text

    def debug(self, v_level: int = 0, *, ranks: Any = None, max_py_stack_depth: int = 2) -> None:
        """Lets graphs print for this module and its submodules, while they compile, what Graph.debug() prints of all."""
        self._debug = Debug(v_level, max_py_stack_depth, ranks)

    def _get_name(self) -> Any:
        return type(self).__name__

    def extra_repr(self) -> str:
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if not children and len(extra) <= 1:
            return f"{self._get_name()}({''.join(extra)})"
        return f"{self._get_name()}(\n  " + "\n  ".join(extra + children) + "\n)"


def _dtype(dtype: Any) -> Any:
    return {bool: _C.bool, int: _C.int64, float: _C.float32}.get(dtype, dtype)
