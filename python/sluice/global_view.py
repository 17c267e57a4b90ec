"""Global tensors in nests of lists, tuples and dicts: oneflow.global_view."""

from __future__ import annotations

import warnings
from typing import Any, Callable

from sluice._C import Tensor


def _mapped(value: Any, f: Callable[[Tensor], Tensor], name: str, warn: bool) -> Any:
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, dict):
        return type(value)((k, _mapped(v, f, name, warn)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(v, f, name, warn) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, f, name, warn) for v in value)
    if warn:
        warnings.warn(f"{name}: found a {type(value).__name__}, which stays as it is; only tensors are converted", stacklevel=3)
    return value


def to_global(input: Any, placement: Any = None, sbp: Any = None, warn_on_non_tensor_leaf: bool = True) -> Any:
    """input.to_global(placement, sbp) of a tensor, or of all tensors in a nest such as a state_dict. sbp: one, or a function of the tensor."""
    def convert(t: Tensor) -> Tensor:
        return t.to_global(placement=placement, sbp=sbp(t) if callable(sbp) and not hasattr(sbp, "kind") else sbp)

    return _mapped(input, convert, "to_global", warn_on_non_tensor_leaf)


def to_local(input: Any, warn_on_non_tensor_leaf: bool = True) -> Any:
    """input.to_local() of a tensor, or of all tensors in a nest."""
    return _mapped(input, lambda t: t.to_local(), "to_local", warn_on_non_tensor_leaf)


def local_to_global(input: Tensor, placement: Any = None, sbp: Any = None, check_meta: bool = True,
                    copy: bool = False) -> Tensor:
    """The global tensor of the ranks' local ones; sizes are always compared. oneflow.local_to_global."""
    if input.is_global:
        raise ValueError("local_to_global: the input is global already; use global_to_global")
    return (input.clone() if copy else input).to_global(placement=placement, sbp=sbp)


def global_to_global(input: Tensor, placement: Any = None, sbp: Any = None, grad_sbp: Any = None, check_meta: bool = True,
                     copy: bool = False) -> Tensor:
    """A global tensor, lying another way; inside nn.Graph, its gradient as grad_sbp says."""
    if not input.is_global:
        raise ValueError("global_to_global: the input is local; use local_to_global")
    return (input.clone() if copy else input).to_global(placement=placement, sbp=sbp, grad_sbp=grad_sbp)


def __getattr__(name: str) -> object:
    from sluice._names.left_out import missing

    raise missing("sluice.global_view", name)
