"""Distributions of matrices, and normal ones of low rank: torch.distributions.LKJCholesky, Wishart, LowRankMultivariateNormal."""

from __future__ import annotations

import math
from typing import Any

from sluice import linalg
from sluice._C import fn, Tensor
from sluice._tensor.creation import _place_of, arange, eye, tensor
from sluice._tensor.functions import broadcast_shapes
from sluice._base.grad_mode import no_grad
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.multivariate import OfCovariance, diagonal
from sluice.distributions.positive import Beta, Chi2
from sluice.distributions.utils import broadcast_all, check_all, knowable, lazy_property, limit


class LKJCholesky(Distribution):
    """LKJCholesky(dim, concentration): Cholesky factors of correlation matrices of density ~ det^(concentration - 1).

    Samples by the onion method (Lewandowski, Kurowicka and Joe, 2009).
    """

    arg_constraints = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)
        self._beta = self._radii()

    def _radii(self) -> Beta:
        """The distribution of the squared lengths of the rows left of the diagonal."""
        row = arange(self.dim, dtype=self.concentration.dtype) - 1
        row = fn.where(row < 0, 0.0, row)
        return Beta(row + 0.5, self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 2) - 0.5 * row, validate_args=False)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made.dim = self.dim
        made._beta = made._radii()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            lengths = self._beta.expand(shape[:-1]).sample().unsqueeze(-1)
            direction = _sampling.normal(self.concentration, shape).tril(-1)
            norm = direction.norm(dim=-1, keepdim=True)
            below = lengths.sqrt() * direction / fn.where(norm == 0, 1.0, norm)  # the first row has none
            rest = (1 - below.pow(2).sum(-1)).clamp(min=limit(below.dtype, "tiny")).sqrt()
            return below + rest.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, eta = self.dim - 1, self.concentration
        order = arange(2, self.dim + 1, dtype=value.dtype)
        powers = 2 * (eta - 1).unsqueeze(-1) + self.dim - order
        logs = diagonal(value)[..., 1:].log()
        alpha = eta + 0.5 * n
        norm = 0.5 * n * math.log(math.pi) + fn.mvlgamma(alpha - 0.5, n) - alpha.lgamma() * n
        return (powers * logs).sum(-1) - norm


class Wishart(OfCovariance, ExponentialFamily):
    """Wishart(df, covariance_matrix), or with precision_matrix or scale_tril: of X^T X for df rows X of a normal distribution.

    Samples are those of Bartlett's decomposition.
    """

    arg_constraints = {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                       "scale_tril": constraints.lower_cholesky, "df": constraints.positive}
    support: Any = constraints.positive_definite
    has_rsample = True

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: m for name, m in given.items() if m is not None}
        if len(given) != 1:
            raise ValueError("Expected exactly one of covariance_matrix or precision_matrix or scale_tril to be specified.")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        p = matrix.shape[-1]
        df = df if isinstance(df, Tensor) else tensor(float(df), dtype=matrix.dtype)
        batch_shape = broadcast_shapes(matrix.shape[:-2], df.shape)
        if knowable(df) and not check_all(df > p - 1):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {p - 1}.")
        self.df = df.expand(batch_shape)
        self.__dict__[name] = matrix.expand((*batch_shape, p, p))
        super().__init__(batch_shape, (p, p), validate_args=validate_args)
        if name == "scale_tril":
            self._tril = self.scale_tril
        elif name == "covariance_matrix":
            self._tril = linalg.cholesky(self.covariance_matrix)
        else:
            self._tril = linalg.cholesky(linalg.inv(self.precision_matrix))

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._tril = self._tril.expand((*batch_shape, *self._tril.shape[-2:]))

    def _nu(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    mean = property(lambda self: self._nu() * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        factor = self._nu() - self._event_shape[0] - 1
        return fn.where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        V = self.covariance_matrix
        d = diagonal(V)
        return self._nu() * (V.pow(2) + d.unsqueeze(-1) * d.unsqueeze(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape, p = self._extended_shape(sample_shape), self._event_shape[0]
        squares = Chi2(self.df.unsqueeze(-1) - arange(p, dtype=self.df.dtype), validate_args=False)
        lead = shape[:len(shape) - 2 - len(self._batch_shape)]
        root = squares.rsample(lead).clamp(min=limit(self.df.dtype, "tiny")).sqrt().diag_embed()
        factor = self._tril @ (root + _sampling.normal(self._tril, shape).tril(-1))
        return factor @ factor.mT

    def _half_log_det(self) -> Tensor:
        return diagonal(self._tril).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        nu, p = self.df, self._event_shape[0]
        shape = broadcast_shapes(self._tril.shape, value.shape)
        trace = diagonal(fn.cholesky_solve(value.expand(shape), self._tril.expand(shape))).sum(-1)
        return (-nu * (p * math.log(2) / 2 + self._half_log_det()) - fn.mvlgamma(nu / 2, p)
                + (nu - p - 1) / 2 * linalg.slogdet(value).logabsdet - trace / 2)

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[0]
        psi = (nu.unsqueeze(-1) / 2 - arange(p, dtype=nu.dtype) / 2).digamma().sum(-1)
        return ((p + 1) * (p * math.log(2) / 2 + self._half_log_det()) + fn.mvlgamma(nu / 2, p) - (nu - p - 1) / 2 * psi + nu * p / 2)


class LowRankMultivariateNormal(Distribution):
    """LowRankMultivariateNormal(loc, cov_factor, cov_diag): covariance W W^T + D of W (..., n, m) and a diagonal D.

    Densities by the matrix inversion lemma: factorisations are of (m, m).
    """

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.shape[-1:] != (n,):
            raise ValueError(f"cov_diag must be a batch of vectors with shape ({n},)")
        batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand((*batch, n)), cov_diag.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self.cov_factor.pow(2).sum(-1) + self.cov_diag)

    def _inner(self) -> Tensor:
        """The Cholesky factor of I + W^T D^-1 W."""
        W = self.cov_factor
        gram = W.mT @ (W / self.cov_diag.unsqueeze(-1))
        return linalg.cholesky(gram + eye(W.shape[-1], dtype=W.dtype, device=_place_of(W)))

    @lazy_property
    def scale_tril(self) -> Tensor:
        root = self.cov_diag.sqrt().unsqueeze(-1)
        V = self.cov_factor / root
        return root * linalg.cholesky(V @ V.mT + eye(V.shape[-2], dtype=V.dtype, device=_place_of(V)))

    _tril = property(lambda self: self.scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def precision_matrix(self) -> Tensor:
        A = linalg.solve_triangular(self._inner(), (self.cov_factor / self.cov_diag.unsqueeze(-1)).mT, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - A.mT @ A

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        inner = _sampling.normal(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        outer = _sampling.normal(self.loc, shape)
        return self.loc + (self.cov_factor @ inner.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * outer

    def _log_det(self, inner: Tensor) -> Tensor:
        return 2 * diagonal(inner).log().sum(-1) + self.cov_diag.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        difference, inner = value - self.loc, self._inner()
        scaled = difference / self.cov_diag
        projected = (self.cov_factor.mT @ scaled.unsqueeze(-1))
        shape = broadcast_shapes(inner.shape[:-1], projected.shape[:-1])
        solved = linalg.solve_triangular(inner.expand((*shape, shape[-1])), projected.expand((*shape, 1)), upper=False)
        distance = (difference * scaled).sum(-1) - solved.pow(2).sum(-1).sum(-1)
        return -0.5 * (self._event_shape[0] * _sampling.LOG_2PI + self._log_det(inner) + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1 + _sampling.LOG_2PI) + self._log_det(self._inner()))
