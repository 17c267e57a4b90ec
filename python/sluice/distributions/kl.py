"""Kullback-Leibler divergences between distributions: torch.distributions.kl_divergence."""

from __future__ import annotations

import math
from typing import Any, Callable

from sluice import linalg
from sluice._C import fn, Tensor
from sluice._tensor.creation import ones_like
from sluice._tensor.functions import broadcast_shapes
from sluice.distributions._sampling import EULER, LOG_2PI
from sluice.distributions.categorical import Categorical, OneHotCategorical
from sluice.distributions.compound import HalfNormal, Independent, LogNormal, Pareto, TransformedDistribution
from sluice.distributions.continuous import Cauchy, Gumbel, Laplace, Normal, Uniform
from sluice.distributions.discrete import Bernoulli, Binomial, Geometric, Poisson, _softplus
from sluice.distributions.distribution import Distribution
from sluice.distributions.bounded import ContinuousBernoulli
from sluice.distributions.matrices import LowRankMultivariateNormal
from sluice.distributions.multivariate import MultivariateNormal, batch_mahalanobis, diagonal
from sluice.distributions.positive import Beta, Dirichlet, Exponential, Gamma
from sluice.distributions.utils import sum_rightmost

_KNOWN: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Any:
    """A decorator: the function gives KL(p || q) for distributions of these types, and of subclasses without their own.

    As in torch, the types need not derive from Distribution: packages with bases of their own register those.
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):
            raise TypeError(f"Expected a class of distributions but got {kind}")

    def add(function: Callable[[Any, Any], Tensor]) -> Any:
        _KNOWN[type_p, type_q] = function
        return function

    return add


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), of the batch shape. NotImplementedError where no rule is known."""
    for above_p in type(p).__mro__:
        for above_q in type(q).__mro__:
            if (above_p, above_q) in _KNOWN:
                return _KNOWN[above_p, above_q](p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -ratio.log() + distance + (ratio - 1) * EULER + (-distance + (ratio + 1).lgamma()).exp() - 1


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    return fn.where((q.low > p.low) | (q.high < p.high), math.inf, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    return -width.log() + (LOG_2PI / 2 + q.scale.log()) + (width.pow(2) / 12 + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))


def _to_normal(p: Any, q: Any) -> Tensor:
    """The divergence of any p with a mean and a variance: minus its entropy, minus the mean of the normal log density."""
    spread = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return -p.entropy() + LOG_2PI / 2 + q.scale.log() + spread


for _kind in (Laplace, Gumbel, Exponential, Gamma):
    register_kl(_kind, Normal)(_to_normal)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    distance = p.loc - q.loc
    absolute = p.scale * math.sqrt(2 / math.pi) * (-0.5 * (distance / p.scale).pow(2)).exp() + distance * fn.erf(
        distance / (p.scale * math.sqrt(2)))  # the mean of |x - q.loc|
    return -p.entropy() + (2 * q.scale).log() + absolute / q.scale


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Tensor:
    return _gamma(Gamma(ones_like(p.rate), p.rate, validate_args=False), q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Tensor:
    return _gamma(p, Gamma(ones_like(q.rate), q.rate, validate_args=False))


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    ways = total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    return ways + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return fn.where(p.scale < q.scale, math.inf, found)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    on = p.probs * (_softplus(-q.logits) - _softplus(-p.logits))
    off = (1 - p.probs) * (_softplus(q.logits) - _softplus(p.logits))
    on = fn.where(p.probs == 0, 0.0, fn.where(q.probs == 0, math.inf, on))
    return on + fn.where(p.probs == 1, 0.0, fn.where(q.probs == 1, math.inf, off))


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return fn.where(p.total_count > q.total_count, math.inf, found)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    return fn.where(p.probs == 0, 0.0, fn.where(q.probs == 0, math.inf, terms)).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes cannot be computed")
    shape = broadcast_shapes(p._tril.shape, q._tril.shape)
    solved = linalg.solve_triangular(q._tril.expand(shape), p._tril.expand(shape), upper=False)
    trace = solved.pow(2).sum(-1).sum(-1)
    volume = diagonal(q._tril).log().sum(-1) - diagonal(p._tril).log().sum(-1)
    return volume + 0.5 * (trace + batch_mahalanobis(q._tril, q.loc - p.loc) - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independents of different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between distributions with different transforms or event shapes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))


_KNOWN[LogNormal, LogNormal] = lambda p, q: _normal(p.base_dist, q.base_dist)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return (p.mean * (p.logits - q.logits) + p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p())
