"""Distributions over classes: torch.distributions.Categorical, OneHotCategorical and Multinomial."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._tensor.creation import _place_of, arange, eye, full
from sluice._C import fn, functional, Tensor
from sluice._base.grad_mode import no_grad
from sluice.distributions import _sampling, constraints
from sluice.distributions.distribution import Distribution
from sluice.distributions.utils import clamp_probs, lazy_property, limit, one_of, probs_to_logits


class Categorical(Distribution):
    """Categorical(probs) or Categorical(logits=...): the index of a class of the last dim; probs need not sum up to 1."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        one_of("Categorical", probs, logits)
        given = logits if probs is None else probs
        if given.ndim < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    param_shape = property(lambda self: self._param.shape)
    support = constraints.dependent_property(lambda self: constraints.integer_interval(0, self._num_events - 1), is_discrete=True)
    mean = property(lambda self: self._unknown())
    variance = property(lambda self: self._unknown())
    mode = property(lambda self: self.probs.argmax(-1))

    def _unknown(self) -> Tensor:
        return full(self._extended_shape(), fill_value=float("nan"), dtype=self.probs.dtype, device=_place_of(self.probs))

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._num_events = self._num_events

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            count = 1
            for size in shape[:len(shape) - len(self._batch_shape)]:
                count *= size
            return _sampling.indices(self.probs, count).reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, logits = fn.broadcast_tensors(value.to(_C.int64).unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=-limit(self.logits.dtype, "max"))
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events).reshape((-1, *(1 for _ in self._batch_shape)))
        return values.expand((self._num_events, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """As Categorical, with samples of zeros and a 1."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    _param = property(lambda self: self._categorical._param)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self._categorical.probs)
    variance = property(lambda self: self._categorical.probs * (1 - self._categorical.probs))
    mode = property(lambda self: self._encoded(self._categorical.mode))

    def _encoded(self, index: Tensor) -> Tensor:
        return functional.one_hot(index, self._event_shape[0]).to(self._param.dtype)

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made._categorical = self._categorical.expand(batch_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._encoded(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = eye(n, dtype=self._param.dtype, device=_place_of(self._param)).reshape((n, *(1 for _ in self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples pass gradients to the probabilities as if they were these."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn, probs = self.sample(sample_shape), self._categorical.probs
        return drawn + (probs - probs.detach())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return OneHotCategorical.sample(self, sample_shape)


class Multinomial(Distribution):
    """Multinomial(total_count, probs) or with logits: how often each class of the last dim is drawn."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: bool | None = None) -> None:
        if not isinstance(total_count, Integral):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    param_shape = property(lambda self: self._categorical.param_shape)
    support = constraints.dependent_property(lambda self: constraints.multinomial(self.total_count), is_discrete=True, event_dim=1)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        made.total_count, made._categorical = self.total_count, self._categorical.expand(batch_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = (sample_shape,) if isinstance(sample_shape, Integral) else tuple(sample_shape)
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return functional.one_hot(drawn, self._event_shape[0]).to(self.probs.dtype).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = fn.broadcast_tensors(self.logits, value)
        impossible = (value == 0) & (logits == float("-inf"))
        powers = (fn.where(impossible, 0.0, logits) * value).sum(-1)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + powers

    def entropy(self) -> Tensor:
        n = self.total_count
        p = clamp_probs(self.probs)
        k = arange(1, n + 1, dtype=p.dtype, device=_place_of(p)).reshape((n, *(1 for _ in p.shape)))
        of_one = ((n + 1.0) - k).log().cumsum(0) - k.log().cumsum(0) + k * p.log() + (n - k) * (-p).log1p()
        from math import lgamma

        expected = (of_one.exp() * (k + 1).lgamma()).sum(0).sum(-1)
        return n * self._categorical.entropy() - lgamma(n + 1) + expected
