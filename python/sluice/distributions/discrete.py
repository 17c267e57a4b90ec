"""Distributions of counts: torch.distributions.Bernoulli, Binomial, Geometric, NegativeBinomial and Poisson."""

from __future__ import annotations

import math
from typing import Any

from sluice._tensor.creation import _place_of, arange, bernoulli, zeros_like
from sluice._C import fn, functional, Tensor
from sluice._base.grad_mode import no_grad
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.utils import broadcast_all, check_all, lazy_property, limit, logits_to_probs, one_of, probs_to_logits


class _OfProbability(Distribution):
    """Has probs or logits; the other is computed."""

    def _set(self, probs: Any, logits: Any, *others: Any) -> list[Tensor]:
        one_of(type(self).__name__, probs, logits)
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        value, *others = broadcast_all(given, *others)
        self.__dict__[name] = value
        return list(others)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    param_shape = property(lambda self: self._param.shape)


class Bernoulli(_OfProbability, ExponentialFamily):
    """Bernoulli(probs) or Bernoulli(logits=...): 1 with that probability, else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return fn.where(self.probs == 0.5, math.nan, mode)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            probs = self.probs.expand(self._extended_shape(sample_shape))
            return bernoulli(probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -functional.binary_cross_entropy_with_logits(logits, value.to(logits.dtype), reduction="none")

    def entropy(self) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(2, dtype=self._param.dtype, device=_place_of(self._param)).reshape((2, *(1 for _ in self._batch_shape)))
        return values.expand((2, *self._batch_shape)) if expand else values


class Geometric(_OfProbability):
    """Geometric(probs) or Geometric(logits=...): failures before the first success."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not check_all(self.probs > 0):
            raise ValueError(f"Expected parameter probs of distribution {self!r} to be positive but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: zeros_like(self.probs.detach()))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            u = _sampling.uniform(self.probs, self._extended_shape(sample_shape)).clamp(min=limit(self.probs.dtype, "tiny"))
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        return value * (-fn.where(certain, 0.0, probs)).log1p() + probs.log()

    def entropy(self) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_OfProbability):
    """Binomial(total_count, probs) or with logits: successes among total_count."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
                       "logits": constraints.real}
    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        (count,) = self._set(probs, logits, total_count)
        self.total_count = count.to(self._param.dtype)
        super().__init__(self._param.shape, validate_args=validate_args)

    support = constraints.dependent_property(lambda self: constraints.integer_interval(0, self.total_count), is_discrete=True)
    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape, most = self._extended_shape(sample_shape), int(self.total_count.max())
            drawn = _sampling.uniform(self.probs, (most, *shape)) < self.probs
            place = arange(most, dtype=self.probs.dtype, device=_place_of(self.probs)).reshape((most, *(1 for _ in shape)))
            return (drawn & (place < self.total_count)).to(self.probs.dtype).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits - n * _softplus(self.logits)

    def entropy(self) -> Tensor:
        if not check_all(self.total_count == self.total_count.max()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max())
        if not check_all(self.total_count == most):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = arange(1 + most, dtype=self._param.dtype, device=_place_of(self._param)).reshape((1 + most, *(1 for _ in self._batch_shape)))
        return values.expand((1 + most, *self._batch_shape)) if expand else values


def _softplus(x: Tensor) -> Tensor:
    return fn.logaddexp(x, zeros_like(x))


class NegativeBinomial(_OfProbability):
    """NegativeBinomial(total_count, probs) or with logits: successes before total_count failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        (count,) = self._set(probs, logits, total_count)
        self.total_count = count.to(self._param.dtype)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            rate = _sampling.standard_gamma(self.total_count.expand(self._extended_shape(sample_shape))) * self.logits.exp()
            return _sampling.poisson(rate)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        likely = -n * _softplus(self.logits) - value * _softplus(-self.logits)
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        return likely + fn.where(n + value == 0, 0.0, ways)


class Poisson(ExponentialFamily):
    """Poisson(rate): events where `rate` are expected."""

    arg_constraints = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    variance = property(lambda self: self.rate)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return _sampling.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return fn.xlogy(value, rate) - rate - (value + 1).lgamma()
