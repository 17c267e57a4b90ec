"""Gradients: torch.autograd."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor, is_grad_enabled
from sluice.autograd import anomaly_mode, function, functional, grad_mode, graph
from sluice.autograd.anomaly_mode import detect_anomaly, is_anomaly_check_nan_enabled, is_anomaly_enabled, set_detect_anomaly
from sluice.autograd.function import Function
from sluice.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from sluice.autograd.gradcheck import gradcheck, gradgradcheck
from sluice.autograd.grad_mode import (enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled,
                                       set_multithreading_enabled)
from sluice.autograd.passes import backward, grad

__all__ = ["Function", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "function", "functional", "grad",
           "grad_mode", "gradcheck", "gradgradcheck", "graph", "hessian", "hvp", "inference_mode", "is_anomaly_check_nan_enabled",
           "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled", "jacobian", "jvp",
           "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled", "variable", "vhp", "vjp"]


def __getattr__(name: str) -> Any:
    if name == "profiler":
        import importlib

        return importlib.import_module("sluice.autograd.profiler")
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


def variable(*args: Any, **kwargs: Any) -> Tensor:
    """Refused, as torch.autograd.variable is."""
    raise RuntimeError("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead")
