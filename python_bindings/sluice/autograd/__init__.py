"""Gradients: torch.autograd."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from sluice._C import Tensor, is_grad_enabled
from sluice.autograd.anomaly_mode import detect_anomaly, is_anomaly_check_nan_enabled, is_anomaly_enabled, set_detect_anomaly
from sluice.autograd.function import Function
from sluice.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from sluice.autograd.passes import backward, grad

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck", "hessian",
           "hvp", "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled", "jacobian", "jvp",
           "no_grad", "set_detect_anomaly", "set_grad_enabled", "vhp", "vjp"]

_MODULES = ("anomaly_mode", "function", "functional", "grad_mode", "graph")
_NAMES = {"gradcheck": "gradcheck", "gradgradcheck": "gradcheck", **{n: "functional" for n in
                                                                     ("hessian", "hvp", "jacobian", "jvp", "vhp", "vjp")}}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(_importlib.import_module(f"sluice.autograd.{_NAMES[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"sluice.autograd.{name}")
    if name == "forward_ad":
        raise AttributeError("module 'sluice.autograd' has no 'forward_ad': gradients run backward; use sluice.func.jvp")
    raise AttributeError(f"module 'sluice.autograd' has no attribute '{name}'")


class _VariableMeta(type):
    def __call__(cls, data: Any, requires_grad: bool = False) -> Tensor:
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """Tensor(data) without history; an older name of Tensor. torch.autograd.Variable."""
