"""Distributions on the line: torch.distributions.Normal and its relatives."""

from __future__ import annotations

import math
from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import full_like
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.utils import broadcast_all, limit


class _LocationScale(Distribution):
    """loc + scale * a sample of the standard one."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    def _standard(self, shape: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: no _standard(); a distribution by location and scale must define it")

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self._standard(shape) * self.scale

    def _standardized(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale


class Normal(_LocationScale, ExponentialFamily):
    """Normal(loc, scale): mean and standard deviation."""

    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale.pow(2))

    def _standard(self, shape: Any) -> Tensor:
        return _sampling.normal(self.loc, shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standardized(value).pow(2) / 2 - self.scale.log() - _sampling.LOG_2PI / 2

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + fn.erf(self._standardized(value) / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * fn.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * _sampling.LOG_2PI + self.scale.log()


class Laplace(_LocationScale):
    """Laplace(loc, scale): density exp(-|x - loc| / scale) / (2 scale)."""

    stddev = property(lambda self: math.sqrt(2) * self.scale)
    variance = property(lambda self: 2 * self.scale.pow(2))

    def _standard(self, shape: Any) -> Tensor:
        u = _sampling.uniform(self.loc, shape, limit(self.loc.dtype, "eps") - 1, 1)
        return -u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standardized(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._standardized(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """Cauchy(loc, scale): median and half width at half maximum; has no mean."""

    mean = property(lambda self: full_like(self.loc.detach(), math.nan))
    variance = property(lambda self: full_like(self.loc.detach(), math.inf))

    def _standard(self, shape: Any) -> Tensor:
        return _sampling.drawn(self.loc, shape, "cauchy_")

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - self._standardized(value).pow(2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self._standardized(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_LocationScale):
    """Gumbel(loc, scale): of the largest of many; loc is the mode."""

    mean = property(lambda self: self.loc + self.scale * _sampling.EULER)
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev.pow(2))

    def _standard(self, shape: Any) -> Tensor:
        u = _sampling.uniform(self.loc, shape, limit(self.loc.dtype, "tiny"), 1 - limit(self.loc.dtype, "eps"))
        return -(-u.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standardized(value)
        return -z - (-z).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._standardized(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _sampling.EULER)


class StudentT(Distribution):
    """StudentT(df, loc, scale): df degrees of freedom."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc)

    @property
    def mean(self) -> Tensor:
        return fn.where(self.df > 1, self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        finite = self.scale.pow(2) * self.df / fn.where(self.df > 2, self.df - 2, 1.0)
        return fn.where(self.df > 2, finite, fn.where(self.df > 1, math.inf, math.nan).to(finite.dtype))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = _sampling.normal(self.loc, shape)
        z = 2 * _sampling.standard_gamma(self.df.expand(shape) / 2)
        return self.loc + self.scale * x * (z / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        y, half = (value - self.loc) / self.scale, 0.5 * self.df
        z = self.scale.log() + 0.5 * (self.df.log() + math.log(math.pi)) + half.lgamma() - (half + 0.5).lgamma()
        return -(half + 0.5) * (y.pow(2) / self.df).log1p() - z

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return self.scale.log() + (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta


class Uniform(Distribution):
    """Uniform(low, high) on [low, high)."""

    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        from sluice.distributions.utils import check_all

        if self._validate_args and not check_all(self.low < self.high):
            raise ValueError("Uniform is not defined when low>= high")

    support = constraints.dependent_property(lambda self: constraints.interval(self.low, self.high))
    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + _sampling.uniform(self.low, self._extended_shape(sample_shape)) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = ((self.low <= value) & (value < self.high)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
