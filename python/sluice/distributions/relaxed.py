"""Continuous relaxations of choices, and the logistic normal: torch.distributions.RelaxedBernoulli and its relatives."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import full_like, tensor
from sluice.distributions import _sampling, constraints
from sluice.distributions.categorical import Categorical
from sluice.distributions.compound import TransformedDistribution
from sluice.distributions.continuous import Normal
from sluice.distributions.discrete import _OfProbability
from sluice.distributions.distribution import Distribution
from sluice.distributions.event_transforms import StickBreakingTransform
from sluice.distributions.transforms import ExpTransform, SigmoidTransform
from sluice.distributions.utils import broadcast_all, clamp_probs


def _tensor(temperature: Any, like: Tensor) -> Tensor:
    return temperature if isinstance(temperature, Tensor) else tensor(float(temperature), dtype=like.dtype)


class LogitRelaxedBernoulli(_OfProbability):
    """LogitRelaxedBernoulli(temperature, probs or logits): of logits whose sigmoid is RelaxedBernoulli."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.real
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        self.temperature = _tensor(temperature, self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made.temperature = self.temperature

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs, u = clamp_probs(self.probs.expand(shape)), clamp_probs(_sampling.uniform(self.probs, shape))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class _Relaxed(TransformedDistribution):
    """The distribution of a transform of a relaxed choice's logits."""

    _base: Any = None
    _transform: Any = None

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._base(temperature, probs, logits, validate_args), self._transform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class RelaxedBernoulli(_Relaxed):
    """RelaxedBernoulli(temperature, probs or logits): near 0 or 1 at low temperatures, with gradients. Maddison et al., 2016."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    _base, _transform = LogitRelaxedBernoulli, SigmoidTransform


class ExpRelaxedCategorical(Distribution):
    """ExpRelaxedCategorical(temperature, probs or logits): of logarithms whose exp is RelaxedOneHotCategorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        self.temperature = _tensor(temperature, self._categorical._param)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    param_shape = property(lambda self: self._categorical.param_shape)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._categorical, made.temperature = self._categorical.expand(batch_shape), self.temperature

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(_sampling.uniform(self.logits, self._extended_shape(sample_shape)))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        classes = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        score = logits - value * self.temperature
        scale = full_like(self.temperature.detach(), float(classes)).lgamma() + self.temperature.log() * (classes - 1)
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """RelaxedOneHotCategorical(temperature, probs or logits): near one-hot at low temperatures, with gradients."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    _base, _transform = ExpRelaxedCategorical, ExpTransform


class LogisticNormal(TransformedDistribution):
    """LogisticNormal(loc, scale): probabilities of one more class, by breaking a stick at sigmoids of normal numbers."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)
