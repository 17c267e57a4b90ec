"""Module: parameters, buffers, submodules, hooks, state; semantics of torch.nn.Module."""

from __future__ import annotations

import itertools
from collections import OrderedDict, namedtuple
from typing import Any

from sluice._C import Tensor
from sluice._trace import module_scope, state as trace_state
from sluice.nn.debug import Debug
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.parameter import Parameter

_IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


class RemovableHandle:
    """Removes its hook again; usable as a context manager."""

    _ids = itertools.count()

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks
        self.id = next(RemovableHandle._ids)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


class Module:
    """Base of all networks. Assigning a Parameter, a Module or (via register_buffer) a Tensor registers it."""

    training: bool
    dump_patches = False
    _version = 1
    _debug = None  # what debug() asked for, in nn.Graph
    config = ModuleConfig.of_module()  # for nn.Graph; an attribute of this name that a module sets hides it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise TypeError(f"{type(self).__name__}.__init__(): unexpected arguments: {args or kwargs}; Module takes none")
        state = self.__dict__
        state["training"] = True
        for name in ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks",
                     "_backward_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks"):
            state[name] = OrderedDict()
        state["_non_persistent_buffers_set"] = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # Registration

    def register_parameter(self, name: Any, param: Any) -> None:
        self._check_new_name("parameter", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"register_parameter: '{name}' is {type(param).__name__}; must be a Parameter or None")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"register_parameter: '{name}' has a grad_fn; a parameter must be a leaf")
        self._parameters[name] = param

    def register_buffer(self, name: Any, tensor: Any, persistent: bool = True) -> None:
        self._check_new_name("buffer", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: '{name}' is {type(tensor).__name__}; must be a Tensor or None")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: Any, module: Any) -> None:
        self._check_new_name("module", name)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module: '{name}' is {type(module).__name__}; must be a Module or None")
        self._modules[name] = module

    register_module = add_module

    def _check_new_name(self, kind: Any, name: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name must be a string: got {type(name).__name__}")
        if "." in name or name == "":
            raise KeyError(f"{kind} name must be non-empty and contain no '.': got {name!r}")
        if hasattr(self, name) and name not in self._parameters and name not in self._buffers and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")

    def __setattr__(self, name: Any, value: Any) -> None:
        tables = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in tables:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, self._modules)
            self.register_parameter(name, value)
        elif name in tables.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{type(value).__name__}' as parameter '{name}' (Parameter or None expected)")
            self._parameters[name] = None
        elif isinstance(value, Module):
            if "_modules" not in tables:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, self._parameters)
            self._modules[name] = value
        elif name in tables.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{type(value).__name__}' as child module '{name}' (Module or None expected)")
            self._modules[name] = None
        elif name in tables.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{type(value).__name__}' as buffer '{name}' (Tensor or None expected)")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: Any, *tables: Any) -> None:
        for table in (self.__dict__, self._buffers, *tables):
            table.pop(name, None)

    def __getattr__(self, name: Any) -> Any:
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
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    # Calls and hooks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = trace_state.names
        if names is not None and id(self) in names:
            with module_scope(names[id(self)]):
                args, kwargs = ModuleConfig.of(self).bring((args, kwargs))
                return self._call(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_pre_hooks or self._forward_hooks or self._backward_hooks):
            return self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            result = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if with_kwargs and result is not None:
                args, kwargs = result
            elif result is not None:
                args = result if isinstance(result, tuple) else (result,)
        if self._backward_hooks:
            from sluice.nn.modules._backward_hooks import call_with_backward_hooks

            output = call_with_backward_hooks(self, args, kwargs)
        else:
            output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            result = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            if result is not None:
                output = result
        return output

    @staticmethod
    def _add_hook(table: Any, entry: Any, prepend: bool = False) -> Any:
        handle = RemovableHandle(table)
        table[handle.id] = entry
        if prepend:
            table.move_to_end(handle.id, last=False)
        return handle

    def register_forward_pre_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Any:
        return self._add_hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False) -> Any:
        return self._add_hook(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> Any:
        """`hook(module, grad_input, grad_output)` may return a replacement of grad_input."""
        return self._add_hook(self._backward_hooks, hook, prepend)

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

    def _named_members(self, entries_of: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Any:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            for name, value in entries_of(module):
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

    def modules(self) -> Any:
        return (m for _, m in self.named_modules())

    def children(self) -> Any:
        return (m for _, m in self.named_children())

    def get_submodule(self, target: Any) -> Any:
        module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name, None)
            if not isinstance(module, Module):
                raise AttributeError(f"get_submodule: '{target}' of {type(self).__name__}: '{name}' is not a Module")
        return module

    def _get_member(self, target: Any, table: Any, kind: Any) -> Any:
        path, _, name = target.rpartition(".")
        entries = getattr(self.get_submodule(path), table)
        if name not in entries:
            raise AttributeError(f"get_{kind}: {type(self).__name__} has no {kind} '{target}'")
        return entries[name]

    def get_parameter(self, target: Any) -> Any:
        return self._get_member(target, "_parameters", "parameter")

    def get_buffer(self, target: Any) -> Any:
        return self._get_member(target, "_buffers", "buffer")

    # Modes and conversions

    def train(self, mode: bool = True) -> Any:
        if not isinstance(mode, bool):
            raise ValueError(f"train: mode must be a bool: got {mode!r}")
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
        from sluice.optim.optimizer import clear_grad

        for p in self.parameters():
            clear_grad(p, set_to_none)

    def apply(self, fn: Any) -> Any:
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Any) -> Any:
        """Replaces every parameter's and buffer's data by fn(data), keeping the Parameter objects."""
        for module in self.modules():
            for p in module._parameters.values():
                if p is not None:
                    p.data = fn(p.data)
                    if p.grad is not None:
                        p.grad = fn(p.grad)
            for name, b in module._buffers.items():
                if b is not None:
                    module._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves and casts; as torch, a dtype applies to floating-point entries only."""
        from sluice._tensor_methods import parse_to

        device, dtype = parse_to(args, kwargs)

        def convert(t):
            return t.to(device=device, dtype=dtype if dtype is not None and t.is_floating_point() else None)

        return self._apply(convert)

    def to_global(self, placement: Any = None, sbp: Any = None) -> Any:
        """Lays every parameter and buffer over the devices of `placement` as `sbp` says, for nn.Graph.

        In a job of several ranks all have the whole module; the placement's first rank gives its contents to all.
        """
        from sluice._global import place

        return self._apply(lambda t: place(t, placement, sbp))

    def _cast(self, dtype: Any) -> Any:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Any:
        import sluice

        return self._cast(sluice.float32)

    def double(self) -> Any:
        import sluice

        return self._cast(sluice.float64)

    def half(self) -> Any:
        import sluice

        return self._cast(sluice.float16)

    def bfloat16(self) -> Any:
        import sluice

        return self._cast(sluice.bfloat16)

    def type(self, dst_type: Any) -> Any:
        return self._apply(lambda t: t.to(dst_type))

    def cpu(self) -> Any:
        return self._apply(lambda t: t.cpu())

    # State

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        destination._metadata[prefix[:-1]] = {"version": self._version}
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, {"version": self._version})
            if result is not None:
                destination = result
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: Any, keep_vars: Any) -> None:
        for name, value in itertools.chain(self._parameters.items(), self._buffers.items()):
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars else value.detach()

    def _register_state_dict_hook(self, hook: Any) -> Any:
        return self._add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Any) -> Any:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`."""
        return self._add_hook(self._load_state_dict_pre_hooks, hook)

    def _load_from_state_dict(self, state: Any, prefix: Any, metadata: Any, strict: Any, missing: Any, unexpected: Any,
                              errors: Any) -> None:
        import sluice
        from sluice._global import fill

        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(self, state, prefix, metadata, strict, missing, unexpected, errors)
        own = {**self._parameters, **{n: b for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set}}
        for name, target in own.items():
            key = prefix + name
            if target is None:
                continue
            if key not in state:
                missing.append(key)
                continue
            source = state[key]
            if not isinstance(source, Tensor):
                source = sluice.as_tensor(source)
            if tuple(source.shape) != tuple(target.shape):
                errors.append(f"size mismatch for {key}: copying a param with shape {tuple(source.shape)} from checkpoint, "
                              f"the shape in current model is {tuple(target.shape)}.")
                continue
            with sluice.no_grad():
                fill(target, source)
        for key in state:
            if key.startswith(prefix):
                head, _, rest = key[len(prefix):].partition(".")
                if head not in own and not (rest and self._modules.get(head) is not None):
                    unexpected.append(key)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"load_state_dict: expected a mapping: got {type(state_dict).__name__}")
        if assign:
            raise NotImplementedError("load_state_dict: assign=True is not supported; values are copied into the parameters")
        missing, unexpected, errors = [], [], []
        state = OrderedDict(state_dict)
        metadata = getattr(state_dict, "_metadata", {})

        def load(module, prefix):
            module._load_from_state_dict(state, prefix, metadata.get(prefix[:-1], {}), strict, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    load(child, f"{prefix}{name}.")

        load(self, "")
        if strict:
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    names = ", ".join(f'"{k}"' for k in keys)
                    errors.insert(0, f"{what} key(s) in state_dict: {names}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    # Text

    def debug(self, v_level: int = 0, *, ranks: Any = None, max_py_stack_depth: int = 2) -> None:
        """Of this module and what is in it, graphs print while they compile what Graph.debug() prints of all."""
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
