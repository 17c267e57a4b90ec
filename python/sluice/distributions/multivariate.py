"""torch.distributions.MultivariateNormal."""

from __future__ import annotations

from typing import Any

from sluice import linalg
from sluice._tensor.creation import _place_of, eye
from sluice._C import Tensor
from sluice._tensor.functions import broadcast_shapes
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution
from sluice.distributions.utils import lazy_property


def batch_mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """The squared length of scale_tril^-1 difference, of the last dim."""
    shape = broadcast_shapes(scale_tril.shape[:-1], difference.shape)
    scale_tril = scale_tril.expand((*shape, shape[-1]))
    solved = linalg.solve_triangular(scale_tril, difference.expand(shape).unsqueeze(-1), upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


def diagonal(m: Tensor) -> Tensor:
    return (m * eye(m.shape[-1], dtype=m.dtype, device=_place_of(m))).sum(-1)


class OfCovariance:
    """A distribution that has `_tril`, the lower Cholesky factor of its covariance matrix, in torch's three ways."""

    _tril: Tensor

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._tril

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self._tril @ self._tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        identity = eye(self._tril.shape[-1], dtype=self._tril.dtype, device=_place_of(self._tril)).expand(self._tril.shape)
        inverse = linalg.solve_triangular(self._tril, identity, upper=False)
        return inverse.mT @ inverse


class MultivariateNormal(OfCovariance, Distribution):
    """MultivariateNormal(loc, covariance_matrix), or with precision_matrix or scale_tril, its lower Cholesky factor.

    Samples by loc + scale_tril z; scale_tril alone needs no factorisation.
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: m for name, m in given.items() if m is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand((*batch_shape, loc.shape[-1]))
        self.__dict__[name] = matrix.expand((*batch_shape, *matrix.shape[-2:]))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._factor()

    def _factor(self) -> None:
        if "covariance_matrix" in self.__dict__:
            self._tril = linalg.cholesky(self.covariance_matrix)
        elif "precision_matrix" in self.__dict__:
            # With J the exchange matrix and J P J = L L^T: P^-1 = T T^T for the lower T = (J L J)^-T.
            flipped = linalg.cholesky(self.precision_matrix.flip([-2, -1])).flip([-2, -1]).mT
            identity = eye(flipped.shape[-1], dtype=flipped.dtype, device=_place_of(flipped)).expand(flipped.shape)
            self._tril = linalg.solve_triangular(flipped, identity, upper=False)
        else:
            self._tril = self.scale_tril

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self._tril.pow(2).sum(-1))

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._tril = self._tril.expand((*batch_shape, *self._tril.shape[-2:]))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = _sampling.normal(self.loc, self._extended_shape(sample_shape))
        return self.loc + (self._tril @ z.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return diagonal(self._tril).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = batch_mahalanobis(self._tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * _sampling.LOG_2PI + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1 + _sampling.LOG_2PI) + self._half_log_det()
