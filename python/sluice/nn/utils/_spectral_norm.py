"""Spectral norm as a hook: torch.nn.utils.spectral_norm. As a parametrization: parametrizations.spectral_norm."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice._base.grad_mode import no_grad
from sluice.nn import functional as F
from sluice.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from sluice.nn.parameter import Parameter, is_lazy
from sluice.nn.utils._weight_norm import take_hook


def matrix_of(weight: Tensor, dim: int) -> Tensor:
    """The weight as a matrix whose rows are along `dim`."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.reshape(weight.shape[0], -1)


def default_dim(module: Any) -> int:
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def drawn(weight: Tensor, n: int, eps: float) -> Tensor:
    """A vector of length 1 in a random direction."""
    return F.normalize(empty(n, dtype=weight.dtype, device=weight.device).normal_(0, 1), dim=0, eps=eps)


def sigma_of(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return u.dot(matrix.mv(v))


class SpectralNorm:
    """The forward pre-hook that divides `<name>_orig` by its largest singular value, which it estimates by power iteration."""

    _version = 1

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = matrix_of(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
        # Clones: the next forward pass may change both before this one's gradient is computed.
        return weight / sigma_of(matrix, u.clone(), v.clone())

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        if any(isinstance(hook, SpectralNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        fn, weight = SpectralNorm(name, n_power_iterations, dim, eps), module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError("The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy "
                             "forward before applying spectral normalization")
        rows, cols = matrix_of(weight.detach(), dim).shape
        u, v = drawn(weight, rows, eps), drawn(weight, cols, eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)  # until the first forward pass
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(_VersionHook(fn))
        return fn

    def remove(self, module: Any) -> None:
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for part in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + part)
        module.register_parameter(self.name, Parameter(weight.detach()))


class _VersionHook:
    """Notes in a state_dict which form of it this is, as torch does."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = self.fn._version


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Divides a parameter by its largest singular value before forward; training: after n_power_iterations more.

    dim: the rows of the matrix it is seen as; 0, or 1 of transposed convolutions, by default.
    """
    SpectralNorm.apply(module, name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undoes spectral_norm(): the parameter is what was computed last."""
    take_hook(module, SpectralNorm, name, "spectral_norm").remove(module)
    for id, hook in list(module._state_dict_hooks.items()):
        if isinstance(hook, _VersionHook) and hook.fn.name == name:
            del module._state_dict_hooks[id]
    return module
