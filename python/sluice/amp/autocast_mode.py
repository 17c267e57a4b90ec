"""Regions of mixed precision: torch.amp.autocast. `sluice.amp.lists` says what each function does."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, TypeVar

from sluice import _C, cuda
from sluice._base.device import device
from sluice.amp import lists as _lists  # noqa: F401  makes the policies

_F = TypeVar("_F", bound=Callable[..., Any])
_dtypes = {"cpu": _C.bfloat16, "cuda": _C.float16}
_LOWER = (_C.bfloat16, _C.float16)


def _no_cuda(kind: str) -> bool:
    """Warns where a region of CUDA is asked for without it."""
    if kind != "cuda" or cuda.is_available():
        return False
    warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", UserWarning, stacklevel=3)
    return True


class autocast:
    """Within, functions of `amp.lists` bring their floating-point arguments to another dtype first; a context manager and a
    decorator. The backward pass needs none: it follows the dtypes of the forward pass.

    device_type: "cpu", "cuda", ...; dtype: bfloat16 or float16, by default get_autocast_dtype(device_type); cache_enabled: casts
    of weights are made once in the outermost region. Inside `nn.Graph.build` the casts become part of the plan.
    """

    def __init__(self, device_type: str = "cpu", dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device(device_type).type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if enabled and self.fast_dtype not in _LOWER:
            warnings.warn(f"In {self.device} autocast, but the target dtype is not supported: {self.fast_dtype}; it is disabled. "
                          "Use bfloat16 or float16", UserWarning, stacklevel=2)
            enabled = False
        if enabled and _no_cuda(self.device):
            enabled = False
        self._enabled, self._cache = bool(enabled), is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)

    def __enter__(self) -> autocast:
        _C.autocast_enter(self.device, self._enabled, self.fast_dtype if self._enabled else _C.bfloat16, self._cache)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C.autocast_exit()

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


def is_autocast_available(device_type: str) -> bool:
    """Whether `device_type` names a device."""
    try:
        device(device_type)
    except (ValueError, RuntimeError):
        return False
    return True


def is_autocast_enabled(device_type: Any = None) -> bool:
    return bool(_C.autocast_state(None if device_type is None else device(device_type).type)[0])


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled("cpu"), by its older name."""
    return is_autocast_enabled("cpu")


def set_autocast_enabled(*arguments: Any, **named: Any) -> None:
    """set_autocast_enabled(device_type, enabled), or (enabled) for "cuda": changes the innermost region of the device on this
    thread until that ends; outside of regions, what holds there, with the device's dtype."""
    if "enabled" in named:
        arguments = (*arguments, named.pop("enabled"))
    kind, enabled = arguments if len(arguments) == 2 else (named.pop("device_type", "cuda"), *arguments)
    if named or not isinstance(enabled, bool) or not isinstance(kind, str):
        raise TypeError("set_autocast_enabled(): got an invalid combination of arguments; must be (str device_type, bool "
                        "enabled) or "
                        "(bool enabled)")
    kind = device(kind).type
    if enabled and _no_cuda(kind):
        return
    _C.autocast_set(kind, enabled, get_autocast_dtype(kind) if enabled else _C.bfloat16)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """set_autocast_enabled("cpu", enabled), by its older name."""
    set_autocast_enabled("cpu", enabled)


def is_autocast_cache_enabled() -> bool:
    return bool(_C.autocast_state()[2])


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether regions of this thread keep casts of weights where they are not told; within one, whether it does."""
    if not isinstance(enabled, bool):
        raise TypeError(f"set_autocast_cache_enabled(): enabled must be a bool (got {type(enabled).__name__})")
    _C.autocast_set_cache(enabled)


def autocast_decorator(autocast_instance: autocast, func: _F) -> _F:
    """`func`, run within a region; torch.amp.autocast_mode.autocast_decorator."""
    return autocast_instance(func)


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype that regions of this device use when they are not told: bfloat16 on cpu, float16 on cuda."""
    return _dtypes.get(device(device_type).type, _C.bfloat16)


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    if dtype not in _LOWER:
        raise ValueError(f"set_autocast_dtype: got {dtype}; must be bfloat16 or float16")
    _dtypes[device(device_type).type] = dtype


def get_autocast_cpu_dtype() -> Any:
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> Any:
    return get_autocast_dtype("cuda")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: Any) -> None:
    set_autocast_dtype("cuda", dtype)


def clear_autocast_cache() -> None:
    """Forgets the casts of weights, on this thread."""
    _C.autocast_clear()
