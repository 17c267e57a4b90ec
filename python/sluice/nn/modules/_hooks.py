"""Hooks of modules: handles, those of all modules, and a call with hooks; semantics of torch.nn.Module."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict
from typing import Any


class RemovableHandle:
    """Removes its hook again; usable as a context manager. It does not keep the module alive."""

    _ids = itertools.count()

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        extra = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or ()
        self._tables = tuple(weakref.ref(table) for table in (hooks_dict, *extra))
        self.id = next(i for i in RemovableHandle._ids if i not in hooks_dict)  # a hook of an unpickled module may have one

    def remove(self) -> None:
        for table in self._tables:
            entries = table()
            if entries is not None:
                entries.pop(self.id, None)

    def __getstate__(self) -> Any:
        return [table() for table in self._tables], self.id

    def __setstate__(self, state: Any) -> None:
        tables, self.id = state
        self._tables = tuple(weakref.ref(OrderedDict() if table is None else table) for table in tables)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def add_hook(table: Any, hook: Any, *, prepend: bool = False, flags: Any = ()) -> RemovableHandle:
    """Puts `hook` into `table`; `flags`: further tables, in which it is marked."""
    handle = RemovableHandle(table, extra_dict=list(flags))
    table[handle.id] = hook
    for marked in flags:
        marked[handle.id] = True
    if prepend:
        for entries in (table, *flags):
            entries.move_to_end(handle.id, last=False)
    return handle


class _OfAll:
    """The hooks of all modules."""

    def __init__(self) -> None:
        self.forward_pre, self.forward, self.always_called = OrderedDict(), OrderedDict(), OrderedDict()
        self.with_kwargs = OrderedDict()
        self.backward_pre, self.backward = OrderedDict(), OrderedDict()
        self.parameter, self.buffer, self.module = OrderedDict(), OrderedDict(), OrderedDict()


of_all = _OfAll()


def registered(table: Any, module: Any, name: str, entry: Any) -> Any:
    """The entry after the registration hooks in `table` have seen `entry`."""
    for hook in table.values():
        changed = hook(module, name, entry)
        entry = entry if changed is None else changed
    return entry


def register_module_forward_pre_hook(hook: Any) -> RemovableHandle:
    """`hook(module, args)` runs before forward() of every module."""
    return add_hook(of_all.forward_pre, hook)


def register_module_forward_hook(hook: Any, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`hook(module, args, output)` runs after forward() of every module."""
    flags = [*([of_all.with_kwargs] if with_kwargs else ()), *([of_all.always_called] if always_call else ())]
    return add_hook(of_all.forward, hook, flags=flags)


def register_module_full_backward_pre_hook(hook: Any) -> RemovableHandle:
    """`hook(module, grad_output)` runs before the gradients of every module are computed."""
    return add_hook(of_all.backward_pre, hook)


def register_module_full_backward_hook(hook: Any) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` runs when the gradients of every module's inputs are known."""
    return add_hook(of_all.backward, hook)


def register_module_backward_hook(hook: Any) -> RemovableHandle:
    raise NotImplementedError("register_module_backward_hook: sees the gradients of a module's last op only; use "
                              "register_module_full_backward_hook")


def register_module_parameter_registration_hook(hook: Any) -> RemovableHandle:
    """`hook(module, name, param)` runs when a parameter is registered; what it returns is registered instead."""
    return add_hook(of_all.parameter, hook)


def register_module_buffer_registration_hook(hook: Any) -> RemovableHandle:
    """`hook(module, name, buffer)` runs when a buffer is registered; what it returns is registered instead."""
    return add_hook(of_all.buffer, hook)


def register_module_module_registration_hook(hook: Any) -> RemovableHandle:
    """`hook(module, name, submodule)` runs when a module is registered; what it returns is registered instead."""
    return add_hook(of_all.module, hook)


def _changed_arguments(module: Any, args: Any, kwargs: Any) -> Any:
    """The arguments after the forward pre-hooks."""
    hooks = [(hook, False) for hook in of_all.forward_pre.values()]
    hooks += [(hook, i in module._forward_pre_hooks_with_kwargs) for i, hook in module._forward_pre_hooks.items()]
    for hook, takes_kwargs in hooks:
        if takes_kwargs:
            result = hook(module, args, kwargs)
            if result is not None:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                                       f"{result}.")
                args, kwargs = result
        else:
            result = hook(module, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
    return args, kwargs


def call_with_hooks(module: Any, args: Any, kwargs: Any) -> Any:
    """module(*args, **kwargs) with all hooks that are registered."""
    from sluice.nn.modules._backward_hooks import BackwardHooks

    # A forward hook is a tuple here: the hook, whether it takes kwargs, whether it runs after an exception, too.
    hooks = [(h, i in of_all.with_kwargs, i in of_all.always_called) for i, h in of_all.forward.items()]
    hooks += [(h, i in module._forward_hooks_with_kwargs, i in module._forward_hooks_always_called)
              for i, h in module._forward_hooks.items()]
    done, output = 0, None
    try:
        args, kwargs = _changed_arguments(module, args, kwargs)
        before = (*of_all.backward_pre.values(), *module._backward_pre_hooks.values())
        after = (*of_all.backward.values(), *module._backward_hooks.values())
        backward = BackwardHooks(module, before, after) if before or after else None
        output = module.forward(*(backward.arguments(args) if backward else args), **kwargs)
        for hook, takes_kwargs, _ in hooks:
            done += 1
            result = hook(module, args, kwargs, output) if takes_kwargs else hook(module, args, output)
            if result is not None:
                output = result
        if backward:
            output = backward.result(output)
        return output
    except Exception:
        for hook, takes_kwargs, always in hooks[done:]:
            if not always:
                continue
            try:
                result = hook(module, args, kwargs, output) if takes_kwargs else hook(module, args, output)
                output = output if result is None else result
            except Exception as error:
                warnings.warn("module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                              f"error was raised in forward: {error}", stacklevel=2)
        raise
