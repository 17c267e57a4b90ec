"""state_dict() and load_state_dict() of modules, with torch's messages."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict, namedtuple
from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import as_tensor, from_dlpack
from sluice._base.numbers import numpy as lazy_numpy
from sluice._base.grad_mode import no_grad
from sluice.nn.modules._hooks import RemovableHandle, add_hook
from sluice.nn.parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class _WithModule:
    """A hook whose first argument is the module."""

    def __init__(self, hook: Any, module: Any) -> None:
        self.hook, self.module = hook, module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)


class StateOfModule:
    """The part of Module that saves and loads."""

    def get_extra_state(self) -> Any:
        """The state that state_dict() holds beside parameters and buffers; set_extra_state() gets it back."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has(self, what: str) -> bool:
        return getattr(type(self), what) is not getattr(StateOfModule, what)

    def _persistent(self) -> dict[str, Any]:
        buffers = ((n, b) for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set)
        return {n: v for n, v in itertools.chain(self._parameters.items(), buffers) if v is not None}

    # Saving

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers by name; detached, unless keep_vars."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to "
                          "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
                          FutureWarning, stacklevel=2)
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for id, hook in self._state_dict_hooks.items():
            result = hook(self, destination, prefix, metadata)
            if id in self._state_dict_hooks_public:
                if result is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif result is not None:
                destination = result
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self._persistent().items():
            destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()
        if self._has("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def register_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` runs before state_dict() looks at the module."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` may change the state_dict in place."""
        return add_hook(self._state_dict_hooks, hook, flags=[self._state_dict_hooks_public])

    def _register_state_dict_hook(self, hook: Any) -> RemovableHandle:
        return add_hook(self._state_dict_hooks, hook)

    # Loading

    def register_load_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Any, with_module: bool = False) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, incompatible_keys)` may change the lists of keys in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any,
                              unexpected_keys: Any, error_msgs: Any) -> None:
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own, assign = self._persistent(), local_metadata.get("assign_to_params_buffers", False)
        for name, target in own.items():
            if prefix + name in state_dict:
                error = self._load_entry(name, target, prefix + name, state_dict[prefix + name], assign)
                if error:
                    error_msgs.append(error)
            elif strict:
                missing_keys.append(prefix + name)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._has("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    head, dot, _ = key[len(prefix):].partition(".")
                    if head not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def _load_entry(self, name: str, target: Tensor, key: str, source: Any, assign: bool) -> str | None:
        """Copies `source`, a tensor or an array, into the entry, or puts it there; returns what is wrong with it."""
        from sluice._tensor.global_tensors import fill

        if not isinstance(source, Tensor):
            if not hasattr(source, "__array__"):
                return (f'While copying the parameter named "{key}", expected sluice.Tensor or Tensor-like object from checkpoint '
                        f"but received {type(source)}")
            try:
                source = _tensor_of(source)
            except Exception as error:
                return f'While copying the parameter named "{key}", of {type(source)}, an exception occurred : {error.args}.'
        if is_lazy(source):
            return None if is_lazy(target) else (
                    f'While copying the parameter named "{key}": the checkpoint has an uninitialized parameter; call the lazy '
                    "module once before its state_dict() is taken")
        lazy = is_lazy(target)
        if not lazy and target.ndim == 0 and source.ndim == 1 and len(source) == 1:
            source = source[0]  # as old checkpoints have scalars
        if not lazy and source.shape != target.shape:
            return (f"size mismatch for {key}: copying a param with shape {source.shape!r} from checkpoint, the shape in current "
                    f"model is {target.shape!r}.")
        try:
            with no_grad():
                if assign:
                    if isinstance(target, Parameter):
                        if isinstance(source, Parameter):
                            source.requires_grad_(target.requires_grad)
                        else:
                            source = Parameter(source, requires_grad=target.requires_grad)
                    setattr(self, name, source)
                elif lazy:
                    return f'While copying the parameter named "{key}": it is uninitialized; load with assign=True or call the module'
                else:
                    fill(target, source)
        except Exception as error:
            return (f'While copying the parameter named "{key}", whose dimensions in the model are {target.shape!r} and whose '
                    f"dimensions in the checkpoint are {source.shape!r}, an exception occurred : {error.args}.")
        return None

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Copies tensors or NumPy arrays by name into parameters and buffers; assign: puts tensors there instead.

        strict: raises RuntimeError for missing and unexpected keys. Returns (missing_keys, unexpected_keys).
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None) or {}
        state = OrderedDict(state_dict)
        state._metadata = metadata

        def load(module, state, prefix):
            local = dict(metadata.get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = True
            module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    start = f"{prefix}{name}."
                    load(child, {k: v for k, v in state.items() if k.startswith(start)}, start)
            incompatible = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                                         "values, if incompatible_keys need to be modified, it should be done inplace.")

        load(self, state, "")
        if strict:
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    errors.insert(0, f"{what} key(s) in state_dict: {', '.join(map(_quoted, keys))}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)


def _tensor_of(array: Any) -> Tensor:
    """An array of NumPy, or a tensor of torch, as a tensor that shares its memory where possible."""
    if hasattr(array, "detach"):
        array = array.detach()
    if hasattr(array, "__dlpack__") and not isinstance(array, (lazy_numpy().ndarray, lazy_numpy().generic)):
        return from_dlpack(array)
    return as_tensor(array)


def _quoted(key: str) -> str:
    return f'"{key}"'
