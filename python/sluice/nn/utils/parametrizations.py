"""Ready parametrizations: torch.nn.utils.parametrizations."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice.nn import functional as F
from sluice.nn.modules.module import Module
from sluice.nn.utils import parametrize
from sluice.nn.utils._orthogonal import orthogonal as orthogonal
from sluice.nn.utils._spectral_norm import default_dim, drawn, matrix_of, sigma_of
from sluice.nn.utils._weight_norm import norm_except_dim, weight_of


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_of(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


class _OldWeightNormKeys:
    """Loads what modules with the hook nn.utils.weight_norm() have saved."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: Any, prefix: str, *_: Any) -> None:
        old = [f"{prefix}{self.name}_{part}" for part in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{self.name}.original{i}"] = state_dict.pop(key)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a parameter the product of a magnitude (original0) and a direction (original1).

    dim: the norm is taken over all others; None: one norm of the whole.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_OldWeightNormKeys(name))
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        rank = weight.ndim
        if not -rank <= dim < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim, self.eps = dim % rank, eps
        if rank > 1:
            self.n_power_iterations = n_power_iterations
            matrix = matrix_of(weight.detach(), self.dim)
            self.register_buffer("_u", drawn(matrix, matrix.shape[0], eps))
            self.register_buffer("_v", drawn(matrix, matrix.shape[1], eps))
            self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = matrix_of(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Clones: the next forward pass may change both before this one's gradient is computed.
        return weight / sigma_of(matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """Divides a parameter by its largest singular value, estimated by power iteration whenever it is read in training.

    dim: the rows of the matrix it is seen as; 0, or 1 of transposed convolutions, by default.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
