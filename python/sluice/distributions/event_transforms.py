"""Transforms of whole events, and of parts of them: torch.distributions.StickBreakingTransform and its relatives."""

from __future__ import annotations

import math
from typing import Any, Sequence

from sluice import _C, linalg
from sluice._C import fn, functional, Tensor
from sluice._tensor.creation import arange, eye, tensor
from sluice._base.size import Size
from sluice.distributions import constraints
from sluice.distributions.transforms import LowerCholeskyTransform, Transform
from sluice.distributions.utils import limit, sum_rightmost


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    """x with ones around it along the last dim."""
    return functional.pad(x, (before, after), value=1.0)


def _sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid().clamp(min=limit(x.dtype, "tiny"), max=1.0 - limit(x.dtype, "eps"))


class StickBreakingTransform(Transform):
    """n numbers as n + 1 probabilities: each takes a part of what those before have left."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.simplex

    @staticmethod
    def _left(n: int, dtype: Any) -> Tensor:
        return arange(n, 0, -1, dtype=dtype)

    def _call(self, x: Tensor) -> Tensor:
        z = _sigmoid(x - self._left(x.shape[-1], x.dtype).log())
        return _padded(z, 0, 1) * _padded((1 - z).cumprod(-1), 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        part = y[..., :-1]
        rest = (1 - part.cumsum(-1)).clamp(min=limit(y.dtype, "tiny"))
        return part.log() - rest.log() + self._left(part.shape[-1], y.dtype).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._left(x.shape[-1], x.dtype).log()
        return (functional.logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return Size((*shape[:-1], shape[-1] - 1))


def _from_vector(x: Tensor, n: int) -> Tensor:
    """(..., n (n - 1) / 2), row by row, as what is below the diagonal of (..., n, n)."""
    count = n * (n - 1) // 2
    places = [i * (i - 1) // 2 + j if j < i else count for i in range(n) for j in range(n)]
    with_zero = functional.pad(x, (0, 1))
    return with_zero.index_select(-1, tensor(places)).reshape((*x.shape[:-1], n, n))


def _to_vector(m: Tensor, diagonal: int = -1) -> Tensor:
    """The elements on and below a diagonal of (..., n, n), row by row."""
    n = m.shape[-1]
    places = [i * n + j for i in range(n) for j in range(n) if j - i <= diagonal]
    return m.reshape((*m.shape[:-2], n * n)).index_select(-1, tensor(places, dtype=_C.int64))


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers as the Cholesky factor of a correlation matrix: its rows have length 1."""

    bijective = True
    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    @staticmethod
    def _side(count: int) -> int:
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return n

    def _call(self, x: Tensor) -> Tensor:
        eps, n = limit(x.dtype, "eps"), self._side(x.shape[-1])
        r = _from_vector(x.tanh().clamp(min=-1 + eps, max=1 - eps), n)
        left = (1 - r * r).sqrt().cumprod(-1)  # of the length of a row, behind each entry
        return (r + eye(n, dtype=x.dtype)) * _padded(left[..., :-1], 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = _padded((1 - (y * y).cumsum(-1))[..., :-1], 1, 0)
        t = _to_vector(y) / _to_vector(left).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = _to_vector(1 - (y * y).cumsum(-1), -2)
        stick = 0.5 * left.log().sum(-1)
        return stick - 2 * (x + functional.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = self._side(shape[-1])
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Size:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class PositiveDefiniteTransform(Transform):
    """A matrix as a positive definite one: the square of its LowerCholeskyTransform."""

    bijective = True
    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CumulativeDistributionTransform(Transform):
    """A value as its quantile in a distribution."""

    bijective = True
    codomain = constraints.unit_interval
    sign: Any = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


class _Several(Transform):
    """Transforms of parts of a tensor, along `dim`."""

    transforms: list[Transform]
    dim: int

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        self.transforms, self.dim = list(tseq), dim

    def _parts(self, z: Tensor) -> list[Tensor]:
        raise NotImplementedError(f"{type(self).__name__}: no _parts(); a transform of parts must define it")

    def _joined(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: no _joined(); a transform of parts must define it")

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y))])


class CatTransform(_Several):
    """Transforms of consecutive parts of the given lengths along a dim, by default 1 each."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
                 cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths must have same length as tseq: got {len(self.lengths)} and {len(self.transforms)}")

    length = property(lambda self: sum(self.lengths))
    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def _parts(self, z: Tensor) -> list[Tensor]:
        if not -z.ndim <= self.dim < z.ndim or z.shape[self.dim] != self.length:
            raise AssertionError(f"CatTransform: got {tuple(z.shape)}; dim {self.dim} must have {self.length} entries")
        return list(z.split(self.lengths, self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return fn.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = []
        for t, a, b in zip(self.transforms, self._parts(x), self._parts(y)):
            each = t.log_abs_det_jacobian(a, b)
            found.append(sum_rightmost(each, self.event_dim - t.event_dim) if t.event_dim < self.event_dim else each)
        dim = self.dim if self.dim < 0 else self.dim - x.ndim
        dim += self.event_dim
        if dim < 0:
            return fn.cat(found, dim)
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total


class StackTransform(_Several):
    """A transform of each slice along a dim."""

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _parts(self, z: Tensor) -> list[Tensor]:
        if not -z.ndim <= self.dim < z.ndim or z.shape[self.dim] != len(self.transforms):
            raise AssertionError(f"StackTransform: got {tuple(z.shape)}; dim {self.dim} must have {len(self.transforms)} "
                                 "entries")
        return list(z.unbind(self.dim))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return fn.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._joined([t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._parts(x), self._parts(y))])
