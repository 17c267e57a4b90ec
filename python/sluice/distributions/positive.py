"""Distributions of positive numbers, and of probabilities: torch.distributions.Gamma, Beta, and their relatives."""

from __future__ import annotations

from typing import Any

from sluice import special
from sluice._C import fn, functional, Tensor
from sluice._tensor.creation import zeros_like
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import ExponentialFamily
from sluice.distributions.utils import broadcast_all, limit


class Exponential(ExponentialFamily):
    """Exponential(rate): times between events."""

    arg_constraints = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: zeros_like(self.rate.detach()))
    stddev = property(lambda self: self.rate.reciprocal())
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _sampling.drawn(self.rate, self._extended_shape(sample_shape), "exponential_") / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()


def _lower_gamma(d: Any, value: Tensor) -> Tensor:
    gammainc = getattr(special, "gammainc", None)
    if gammainc is None:
        raise d._undefined("cdf")
    return gammainc(d.concentration, value)


class Gamma(ExponentialFamily):
    """Gamma(concentration, rate)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.pow(2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _sampling.standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return fn.xlogy(a, self.rate) + fn.xlogy(a - 1, value) - self.rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return _lower_gamma(self, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """Chi2(df): the sum of the squares of df standard normals."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args=validate_args)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made.concentration, made.rate = self.concentration.expand(batch_shape), self.rate.expand(batch_shape)


class Dirichlet(ExponentialFamily):
    """Dirichlet(concentration): probabilities of the last dim's classes."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdim=True))

    @property
    def mode(self) -> Tensor:
        less = (self.concentration - 1).clamp(min=0)
        mode = less / less.sum(-1, keepdim=True)
        at_a_corner = (self.concentration < 1).all(-1, keepdim=True)
        corner = functional.one_hot(mode.argmax(-1), mode.shape[-1]).to(mode.dtype)
        return fn.where(at_a_corner, corner, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _sampling.standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return fn.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(ExponentialFamily):
    """Beta(concentration1, concentration0): a probability; concentration1 draws it to 1."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        one, zero = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(fn.stack([one, zero], -1), validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: self._dirichlet.mode[..., 0])

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._dirichlet = self._dirichlet.expand(batch_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._dirichlet.log_prob(fn.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()


class InverseGamma(ExponentialFamily):
    """InverseGamma(concentration, rate): of 1 / x, where x is of Gamma(concentration, rate)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: fn.where(self.concentration > 1, self.rate / (self.concentration - 1), float("inf")))
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return fn.where(a > 2, self.rate.pow(2) / ((a - 1).pow(2) * (a - 2)), float("inf"))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _sampling.standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return self.rate / drawn.clamp(min=limit(drawn.dtype, "tiny"))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return fn.xlogy(a, self.rate) - (a + 1) * value.log() - self.rate / value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - _lower_gamma(self, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
