"""Weights that stay orthogonal: torch.nn.utils.parametrizations.orthogonal."""

from __future__ import annotations

from typing import Any

from sluice import linalg
from sluice._tensor.creation import _place_of, eye, randn, tensor, zeros
from sluice._C import fn, Tensor
from sluice._base.numbers import numpy as lazy_numpy
from sluice.nn.modules.module import Module
from sluice.nn.utils import parametrize

MAPS = ("matrix_exp", "cayley", "householder")


def _host(matrix: Tensor) -> Any:
    """As a NumPy array: first values are made on the host."""
    return matrix.detach().cpu().numpy()


def _orthonormal(array: Any) -> Any:
    """The Q of the QR decomposition whose R has a positive diagonal."""
    np = lazy_numpy()
    q, r = np.linalg.qr(array)
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


def _reflectors(array: Any) -> Any:
    """The reflectors of an orthonormal matrix: below the diagonal the vectors of its Householder reflections, on it the
    signs of its columns."""
    np = lazy_numpy()
    if array.ndim > 2:
        return np.stack([_reflectors(matrix) for matrix in array])
    factors, tau = np.linalg.qr(array, mode="raw")
    factors = factors.T.astype(array.dtype)
    diagonal = np.sign(np.diagonal(factors)) * np.where(tau == 0, -1, 1)  # where there is no reflection, the sign is its own
    np.fill_diagonal(factors, diagonal)
    return factors


class _Orthogonal(Module):
    """Makes of X (..., n, k), n >= k or transposed, a matrix with orthonormal columns; `base` times it with use_trivialization."""

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        self._has_base = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        transposed = X.shape[-2] < X.shape[-1]
        x = X.transpose(-2, -1) if transposed else X
        q = self._reflected(x) if self.orthogonal_map == "householder" else self._of_skew(x)
        if self._has_base:
            q = self.base @ q
        return q.transpose(-2, -1) if transposed else q

    def _of_skew(self, x: Tensor) -> Tensor:
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            x = fn.cat([x, zeros(*x.shape[:-1], n - k, dtype=x.dtype, device=_place_of(x))], -1)
        skew = x - x.transpose(-2, -1)
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(skew)
        else:
            identity = eye(n, dtype=x.dtype, device=_place_of(x))
            q = linalg.solve(identity - 0.5 * skew, identity + 0.5 * skew)
        return q if n == k else q[..., :k]

    def _reflected(self, x: Tensor) -> Tensor:
        vectors = x.tril(-1)
        tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
        signs = (x.detach() * eye(*x.shape[-2:], dtype=x.dtype, device=_place_of(x))).sum(-2, keepdim=True).trunc()
        return linalg.householder_product(vectors, tau) * signs

    def right_inverse(self, Q: Tensor) -> Tensor:
        np = lazy_numpy()
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        transposed = Q.shape[-2] < Q.shape[-1]
        array = _host(Q.transpose(-2, -1) if transposed else Q)
        n, k = array.shape[-2:]
        if not self._has_base:
            if self.orthogonal_map != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                                          "use_trivialization=False.")
            made = _reflectors(array)
            return tensor(np.ascontiguousarray(made.swapaxes(-2, -1) if transposed else made), device=_place_of(Q))
        if n != k:  # completed to a square matrix
            array = np.concatenate([array, _host(randn(*array.shape[:-1], n - k, dtype=Q.dtype))], -1)
        gram, limit = array.swapaxes(-2, -1) @ array, 10 * n * np.finfo(array.dtype).eps
        if n != k or not np.allclose(gram, np.eye(n, dtype=array.dtype), atol=limit):
            array = _orthonormal(array)
        self.base = tensor(np.ascontiguousarray(array), device=_place_of(Q))
        # -1 on the diagonal, so that reflections by vectors of zeros give the identity.
        return -eye(*Q.shape[-2:], dtype=Q.dtype, device=_place_of(Q)).expand(Q.shape).clone()


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """Makes a parameter (..., n, k) one whose columns, or rows where there are fewer, are orthonormal.

    orthogonal_map: matrix_exp (by default of square ones), cayley or householder. use_trivialization: the parameter is a change
    from what it was, or was assigned, which is kept in a buffer.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in MAPS:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
