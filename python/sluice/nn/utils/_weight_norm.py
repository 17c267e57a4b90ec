"""Weight norm as a hook: torch.nn.utils.weight_norm. As a parametrization: parametrizations.weight_norm."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.nn.parameter import Parameter, is_lazy


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norms of the slices along `dim`, which broadcast against v; of all of v when dim is None or -1."""
    if dim is None or dim == -1:
        return v.norm()
    if not -v.dim() <= dim < v.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-v.dim()}, {v.dim() - 1}], but got {dim})")
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return v.norm(2, others, True) if others else v.abs()


def weight_of(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """The forward pre-hook that computes the weight of its magnitude `<name>_g` and direction `<name>_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        return weight_of(getattr(module, self.name + "_g"), getattr(module, self.name + "_v"), self.dim)

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        if any(isinstance(hook, WeightNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        fn, weight = WeightNorm(name, dim), getattr(module, name)
        if weight is None:
            raise TypeError(f"`WeightNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run the dummy "
                             "forward before applying weight normalization")
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), fn.dim)))
        module.register_parameter(name + "_v", Parameter(weight.data))
        fn(module, ())
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Any) -> None:
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.detach()))


def take_hook(module: Any, kind: type, name: str, what: str) -> Any:
    """Removes the forward pre-hook of a kind for a parameter, and returns it."""
    for id, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            del module._forward_pre_hooks[id]
            return hook
    raise ValueError(f"{what} of '{name}' not found in {module}")


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a parameter by its magnitude (`<name>_g`) and direction (`<name>_v`), of which a hook computes it before forward.

    dim: the norm is taken over all others; None: one norm of the whole.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undoes weight_norm(): the parameter is what was computed last."""
    take_hook(module, WeightNorm, name, "weight_norm").remove(module)
    return module
