"""Distributions on intervals and circles: torch.distributions.ContinuousBernoulli, Kumaraswamy and VonMises."""

from __future__ import annotations

import math
from typing import Any

from sluice import special
from sluice._C import fn, functional, Tensor
from sluice._tensor.creation import ones_like, zeros_like
from sluice._base.grad_mode import no_grad
from sluice.distributions import _sampling, constraints
from sluice.distributions.compound import TransformedDistribution
from sluice.distributions.continuous import Uniform
from sluice.distributions.discrete import _OfProbability
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.transforms import AffineTransform, PowerTransform
from sluice.distributions.utils import broadcast_all, clamp_probs


class ContinuousBernoulli(_OfProbability, ExponentialFamily):
    """ContinuousBernoulli(probs) or (logits=...): density ~ p^x (1 - p)^(1 - x) on [0, 1]. Loaiza-Ganem and Cunningham, 2019.

    Between `lims` the formulas, which divide by 1 - 2p, are their Taylor series around p = 1/2.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._lims = self._lims

    def _apart(self) -> tuple[Tensor, Tensor]:
        """Tells where p is not near 1/2, and gives p there; elsewhere the lower limit."""
        outside = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return outside, fn.where(outside, self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        outside, p = self._apart()
        low, high = fn.where(p <= 0.5, p, 0.0), fn.where(p >= 0.5, p, 1.0)
        exact = ((-p).log1p() - p.log()).abs().log() - fn.where(p <= 0.5, (-2 * low).log1p(), (2 * high - 1).log())
        x = (self.probs - 0.5).pow(2)
        return fn.where(outside, exact, math.log(2.0) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        outside, p = self._apart()
        x = self.probs - 0.5
        return fn.where(outside, p / (2 * p - 1) + 1 / ((-p).log1p() - p.log()), 0.5 + (1 / 3 + 16 / 45 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        outside, p = self._apart()
        x = (self.probs - 0.5).pow(2)
        return fn.where(outside, p * (p - 1) / (1 - 2 * p).pow(2) + 1 / ((-p).log1p() - p.log()).pow(2),
                        1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(_sampling.uniform(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return self._log_norm() - functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        outside, p = self._apart()
        inside = fn.where(outside, (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1), value)
        return fn.where(value <= 0, 0.0, fn.where(value >= 1, 1.0, inside)).to(inside.dtype)

    def icdf(self, value: Tensor) -> Tensor:
        outside, p = self._apart()
        zero = (-p).log1p()
        return fn.where(outside, ((-p + value * (2 * p - 1)).log1p() - zero) / (p.log() - zero), value)

    def entropy(self) -> Tensor:
        zero, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (zero - one) - self._log_norm() - zero


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy(concentration1, concentration0): (1 - u^(1/b))^(1/a) of a uniform u; much like Beta(a, b)."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(zeros_like(self.concentration0.detach()), ones_like(self.concentration0.detach()),
                       validate_args=validate_args)
        super().__init__(base, [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0),
                                PowerTransform(self.concentration1.reciprocal())], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Kumaraswamy(self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape),
                           self._validate_args)

    def _moment(self, n: int) -> Tensor:
        """b B(1 + n / a, b)."""
        b, first = self.concentration0, 1 + n / self.concentration1
        return b * (first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1).pow(2))

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return fn.where((a < 1) | (b < 1), math.nan, ((a - 1) / (a * b - 1)).pow(1 / a))

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + _sampling.EULER) - a.log() - b.log()


class VonMises(Distribution):
    """VonMises(loc, concentration): of angles in [-pi, pi), near normal around loc."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The variance of directions: 1 less the length of their mean."""
        k = self.concentration
        return 1 - special.i1e(k) / special.i0e(k)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        return k * (value - self.loc).cos() - _sampling.LOG_2PI - special.i0e(k).log() - k

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By rejection from a wrapped Cauchy distribution (Best and Fisher, 1979)."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = fn.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))

            def propose() -> tuple[Tensor, Tensor]:
                z = (math.pi * _sampling.uniform(k, shape)).cos()
                u, side = _sampling.uniform(k, shape), _sampling.uniform(k, shape)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                angle = fn.where(side < 0.5, -1.0, 1.0) * f.clamp(-1, 1).acos()
                return angle, (c * (2 - c) - u > 0) | ((c / u).log() + 1 - c >= 0)

            angle = _sampling.by_rejection(propose) + math.pi + self.loc
            return (angle % (2 * math.pi) - math.pi).to(self.loc.dtype)
