"""Distributions of long tails: torch.distributions.FisherSnedecor and GeneralizedPareto."""

from __future__ import annotations

import math
from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros_like
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution
from sluice.distributions.positive import Gamma
from sluice.distributions.utils import broadcast_all, limit


class FisherSnedecor(Distribution):
    """FisherSnedecor(df1, df2): the ratio of two Chi2, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    mean = property(lambda self: fn.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))

    @property
    def mode(self) -> Tensor:
        return fn.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        return fn.where(b > 4, 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4)), math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        top, bottom = (Gamma(df / 2, df / 2, validate_args=False).expand(self._batch_shape).rsample(shape[:len(shape) - len(self._batch_shape)])
                       for df in (self.df1, self.df2))
        tiny = limit(bottom.dtype, "tiny")
        return (top / bottom.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        return ((a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log() + (a - 1) * value.log()
                - (a + b) * (ratio * value).log1p())


class GeneralizedPareto(Distribution):
    """GeneralizedPareto(loc, scale, concentration): of what exceeds a threshold; concentration 0 is exponential, below 0 bounded."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        k = self.concentration
        upper = fn.where(k < 0, self.loc - self.scale / fn.where(k < 0, k, -1.0), math.inf)
        return constraints.interval(self.loc, upper)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Tells where it is exponential, and gives a concentration to divide by."""
        exponential = fn.isclose(self.concentration, zeros_like(self.concentration))
        return exponential, fn.where(exponential, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(_sampling.uniform(self.loc, self._extended_shape(sample_shape)))

    def _log_survival(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        exponential, k = self._shape()
        return fn.where(exponential, -z, -(1 / k) * (k * z).log1p())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        exponential, k = self._shape()
        log_survival = self._log_survival(value)
        return fn.where(exponential, log_survival, (1 + k) * log_survival) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf(value))."""
        self._validate_sample(value)
        return self._log_survival(value)

    def log_cdf(self, value: Tensor) -> Tensor:
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -self._log_survival(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        exponential, k = self._shape()
        log_left = (-value).log1p()
        return self.loc + self.scale * fn.where(exponential, -log_left, (-k * log_left).expm1() / k)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return fn.where(k < 1, self.loc + self.scale / (1 - k), math.nan)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return fn.where(k < 0.5, self.scale.pow(2) / ((1 - k).pow(2) * (1 - 2 * k)), math.nan)

    mode = property(lambda self: self.loc)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
