"""Distributions of distributions: torch.distributions.Independent, TransformedDistribution, MixtureSameFamily, and
those that transform another."""

from __future__ import annotations

import math
from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import full_like, ones_like, zeros_like
from sluice._base.size import Size
from sluice._base.grad_mode import no_grad
from sluice.distributions import constraints
from sluice.distributions.categorical import Categorical
from sluice.distributions.continuous import Cauchy, Normal
from sluice.distributions.distribution import Distribution
from sluice.distributions.positive import Exponential
from sluice.distributions.transforms import AbsTransform, AffineTransform, ComposeTransform, ExpTransform, PowerTransform, Transform
from sluice.distributions.utils import broadcast_all, sum_rightmost


class Independent(Distribution):
    """The last `reinterpreted_batch_ndims` batch dims of a distribution as dims of one event."""

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        dims = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > dims:
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{reinterpreted_batch_ndims} vs {dims}")
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        event_dims = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        super().__init__(shape[:len(shape) - event_dims], shape[len(shape) - event_dims:], validate_args=validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @constraints.dependent_property
    def support(self) -> Any:
        base = self.base_dist.support
        return constraints.independent(base, self.reinterpreted_batch_ndims) if self.reinterpreted_batch_ndims else base

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        base = self.base_dist.expand((*batch_shape, *self._event_shape[:self.reinterpreted_batch_ndims]))
        return Independent(base, self.reinterpreted_batch_ndims, validate_args=self._validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of transform(x), where x is of `base_distribution`; `transforms` is one or a list, applied in order."""

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(transforms, list) or not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        self.transforms = transforms
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        whole = ComposeTransform(transforms)
        if len(shape) < whole.domain.event_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but got {shape}.")
        forward = whole.forward_shape(shape)
        base = base_distribution.expand(whole.inverse_shape(forward)[:len(base_distribution.batch_shape)])
        if (more := whole.domain.event_dim - len(base.event_shape)) > 0:
            base = Independent(base, more)
        self.base_dist = base
        event_dims = max(whole.codomain.event_dim, len(base.event_shape) + whole.codomain.event_dim - whole.domain.event_dim)
        super().__init__(forward[:len(forward) - event_dims], forward[len(forward) - event_dims:], validate_args=validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self._event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        made = self._get_checked_instance(_instance)
        shape = (*Size(batch_shape), *self._event_shape)
        base_shape = ComposeTransform(self.transforms).inverse_shape(shape)
        made.base_dist = self.base_dist.expand(base_shape[:len(base_shape) - len(self.base_dist.event_shape)])
        made.transforms = self.transforms
        Distribution.__init__(made, batch_shape, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args
        return made

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        event_dim, found, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            found = found - sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim)
            y = x
        return found + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _monotone(self, value: Tensor) -> Tensor:
        """A quantile, or 1 - it where the transforms turn the order round."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._monotone(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._monotone(value)))


class LogNormal(TransformedDistribution):
    """LogNormal(loc, scale): of exp(x), x of Normal(loc, scale)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale.pow(2) / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Half(TransformedDistribution):
    """The distribution of |x|, x of a distribution that is symmetric around 0."""

    arg_constraints = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    _base: Any = None

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self._base(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)
        if self._validate_args:
            self._base(0, scale, validate_args=True)

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: zeros_like(self.scale.detach()))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return fn.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), float("-inf"))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """HalfNormal(scale): of |x|, x of Normal(0, scale)."""

    _base = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale.pow(2) * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """HalfCauchy(scale): of |x|, x of Cauchy(0, scale)."""

    _base = Cauchy
    mean = property(lambda self: full_like(self.scale.detach(), math.inf))
    variance = property(lambda self: self.base_dist.variance)


class Weibull(TransformedDistribution):
    """Weibull(scale, concentration)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ones_like(self.scale.detach()), validate_args=validate_args)
        super().__init__(base, [PowerTransform(self.concentration.reciprocal()), AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Weibull(self.scale.expand(batch_shape), self.concentration.expand(batch_shape), self._validate_args)

    mean = property(lambda self: self.scale * (1 + self.concentration.reciprocal()).lgamma().exp())

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        r = self.concentration.reciprocal()
        return self.scale.pow(2) * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self) -> Tensor:
        r = self.concentration.reciprocal()
        return 0.57721566490153286 * (1 - r) + (self.scale * r).log() + 1


class Pareto(TransformedDistribution):
    """Pareto(scale, alpha): of scale * exp(x), x of Exponential(alpha)."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args=validate_args), [ExpTransform(), AffineTransform(0, self.scale)],
                         validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Pareto(self.scale.expand(batch_shape), self.alpha.expand(batch_shape), self._validate_args)

    support = constraints.dependent_property(lambda self: constraints.greater_than_eq(self.scale))
    mode = property(lambda self: self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class MixtureSameFamily(Distribution):
    """A mixture of the distributions of the last batch dim of `component_distribution`, one of which is drawn by
    `mixture_distribution`."""

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        batch = component_distribution.batch_shape
        for ours, theirs in zip(reversed(mixture_distribution.batch_shape), reversed(batch[:-1])):
            if ours != 1 and theirs != 1 and ours != theirs:
                raise ValueError(f"`mixture_distribution.batch_shape` ({tuple(mixture_distribution.batch_shape)}) is not compatible with "
                                 f"`component_distribution.batch_shape`({tuple(batch)})")
        if mixture_distribution.param_shape[-1] != batch[-1]:
            raise ValueError(f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({batch[-1]})")
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        components = self.component_distribution.expand((*batch_shape, self.component_distribution.batch_shape[-1]))
        return MixtureSameFamily(self.mixture_distribution.expand(batch_shape), components, self._validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return self.component_distribution.support

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *(1 for _ in self._event_shape)))

    def _mixed(self, values: Tensor) -> Tensor:
        return (self._weights() * values).sum(-1 - len(self._event_shape))

    mean = property(lambda self: self._mixed(self.component_distribution.mean))

    @property
    def variance(self) -> Tensor:
        within = self._mixed(self.component_distribution.variance)
        centred = self.component_distribution.mean - self.mean.unsqueeze(-1 - len(self._event_shape))
        return within + self._mixed(centred.pow(2))

    def _padded(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - len(self._event_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        found = self.component_distribution.log_prob(self._padded(value))
        return (found + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(self._padded(value)) * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            index = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            dim, ones = index.ndim, [1] * len(self._event_shape)
            index = index.reshape((*index.shape, 1, *ones))
            index = index.expand((*index.shape[:dim], 1, *self._event_shape))
            return drawn.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
