"""The base of all distributions: torch.distributions.Distribution."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice._C import Tensor
from sluice._base.size import Size
from sluice._base.grad_mode import no_grad
from sluice.distributions import constraints
from sluice.distributions.utils import check_all, knowable


class Distribution:
    """A batch of distributions of events: samples have the shape sample_shape + batch_shape + event_shape.

    validate_args: parameters and the values asked about are checked; not those that a graph computes.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: dict[str, constraints.Constraint] = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: got {value!r}; must be True or False")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        for name, constraint in self.arg_constraints.items() if self._validate_args else ():
            if constraints.is_dependent(constraint) or name not in self.__dict__:
                continue  # known later, or computed from others
            value = getattr(self, name)
            if knowable(value) and not check_all(constraint.check(value)):
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                                 f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    # Shapes

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        sample_shape = (sample_shape,) if isinstance(sample_shape, Integral) else sample_shape
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with a larger batch; memory is shared."""
        made = self._get_checked_instance(_instance)
        batch_shape = Size(batch_shape)
        for name in self._parameters():
            value = getattr(self, name)
            dims = value.ndim - len(self._batch_shape) if value.ndim >= len(self._batch_shape) else 0
            made.__dict__[name] = value.expand((*batch_shape, *value.shape[value.ndim - dims:]))
        self._expand_parts(made, batch_shape)
        Distribution.__init__(made, batch_shape, self._event_shape, validate_args=False)
        made._validate_args = self._validate_args
        return made

    def _get_checked_instance(self, instance: Any) -> Any:
        return type(self).__new__(type(self)) if instance is None else instance

    def _parameters(self) -> list[str]:
        return [name for name in self.arg_constraints if isinstance(self.__dict__.get(name), Tensor)]

    def _expand_parts(self, made: Any, batch_shape: Any) -> None:
        """Fills in what `made` has beside its parameters."""

    # Samples

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """A sample through which gradients flow to the parameters."""
        raise NotImplementedError(f"{type(self).__name__}: rsample() is not defined: its samples have no gradients; use sample()")

    def sample_n(self, n: int) -> Tensor:
        return self.sample((n,))

    # Functions of values

    def log_prob(self, value: Tensor) -> Tensor:
        raise self._undefined("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        raise self._undefined("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        raise self._undefined("icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        raise self._undefined("enumerate_support")

    def entropy(self) -> Tensor:
        raise self._undefined("entropy")

    def perplexity(self) -> Tensor:
        return self.entropy().exp()

    @property
    def mean(self) -> Tensor:
        raise self._undefined("mean")

    @property
    def mode(self) -> Tensor:
        raise self._undefined("mode")

    @property
    def variance(self) -> Tensor:
        raise self._undefined("variance")

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def support(self) -> Any:
        raise self._undefined("support")

    def _undefined(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}: {name} is not defined for this distribution")

    def _validate_sample(self, value: Any) -> None:
        """Throws unless `value` may be asked about: a tensor of the shape and the support."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.ndim - len(self._event_shape)
        if tuple(value.shape[max(start, 0):]) != tuple(self._event_shape):
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{tuple(value.shape)} vs {tuple(self._event_shape)}.")
        whole = self._extended_shape()
        for i, j in zip(reversed(value.shape), reversed(whole)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {tuple(value.shape)} vs {tuple(whole)}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        if knowable(value) and not check_all(support.check(value)):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def __repr__(self) -> str:
        def text(value: Tensor) -> str:
            if value.numel() != 1:
                return str(value.shape)
            return f"{value.detach()}" if knowable(value) else "traced"

        return f"{type(self).__name__}({', '.join(f'{n}: {text(getattr(self, n))}' for n in self._parameters())})"


class ExponentialFamily(Distribution):
    """A distribution whose log density is linear in functions of the value."""
