"""Sets of values that parameters and samples must lie in: torch.distributions.constraints."""

from __future__ import annotations

from typing import Any, Callable

from sluice import _C, linalg
from sluice._tensor.creation import _place_of, eye, full
from sluice._C import Tensor
from sluice._tensor.dtypes import finfo


class Constraint:
    """A set: check(value) gives bools, without the last `event_dim` dims of the value."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: no check(); a constraint must define it")

    def __repr__(self) -> str:
        name = type(self).__name__.lstrip("_")
        return f"{name[0].upper()}{name[1:]}()"


class _Dependent(Constraint):
    """A set that depends on other parameters."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A support that is a property of the distribution."""

    def __init__(self, fn: Callable[..., Any] | None = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> Any:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    return isinstance(constraint, _Dependent)


class _Where(Constraint):
    """A set by a test, of which the bounds are part of the name."""

    def __init__(self, name: str, test: Callable[[Tensor], Tensor], *, discrete: bool = False, event_dim: int = 0, **bounds: Any) -> None:
        self._name, self._test, self._bounds = name, test, bounds
        self.is_discrete, self.event_dim = discrete, event_dim
        for key, value in bounds.items():
            setattr(self, key, value)

    def check(self, value: Tensor) -> Tensor:
        return self._test(value)

    def __repr__(self) -> str:
        if not self._bounds:
            return f"{self._name}()"
        return f"{self._name}({', '.join(f'{k}={v}' for k, v in self._bounds.items())})"


def _set(name: str, test: Callable[[Tensor], Tensor], **options: Any) -> Constraint:
    """The only object of a class of its own, from which other sets are derived without arguments."""
    def __init__(self: Any) -> None:
        _Where.__init__(self, name, test, **options)

    made: Constraint = type(f"_{name}", (_Where,), {"__init__": __init__})()
    return made


def _whole(v: Tensor) -> Tensor:
    return v % 1 == 0 if v.dtype.is_floating_point else v == v


class independent(Constraint):
    """`base_constraint` of all elements of the last dims together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result, dims = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        if result.ndim < dims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return result.reshape((*result.shape[:result.ndim - dims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"Independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class greater_than(_Where):
    def __init__(self, lower_bound: Any) -> None:
        super().__init__("GreaterThan", lambda v: v > lower_bound, lower_bound=lower_bound)


class greater_than_eq(_Where):
    def __init__(self, lower_bound: Any) -> None:
        super().__init__("GreaterThanEq", lambda v: v >= lower_bound, lower_bound=lower_bound)


class less_than(_Where):
    def __init__(self, upper_bound: Any) -> None:
        super().__init__("LessThan", lambda v: v < upper_bound, upper_bound=upper_bound)


class interval(_Where):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("Interval", lambda v: (v >= lower_bound) & (v <= upper_bound), lower_bound=lower_bound, upper_bound=upper_bound)


class half_open_interval(_Where):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("HalfOpenInterval", lambda v: (v >= lower_bound) & (v < upper_bound), lower_bound=lower_bound,
                         upper_bound=upper_bound)


class integer_interval(_Where):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__("IntegerInterval", lambda v: _whole(v) & (v >= lower_bound) & (v <= upper_bound), discrete=True,
                         lower_bound=lower_bound, upper_bound=upper_bound)


class multinomial(_Where):
    """Counts that sum up to upper_bound at most."""

    def __init__(self, upper_bound: Any) -> None:
        super().__init__("Multinomial", lambda v: (v >= 0).all(-1) & (v.sum(-1) <= upper_bound), discrete=True, event_dim=1,
                         upper_bound=upper_bound)


def _positive_definite(v: Tensor) -> Tensor:
    symmetric_ones = _C.fn.isclose(v, v.mT, atol=1e-6).all(-1).all(-1)
    return symmetric_ones & linalg.cholesky_ex(v).info.eq(0)


def _integers(lower: int) -> Constraint:
    return _Where("IntegerGreaterThan", lambda v: _whole(v) & (v >= lower), discrete=True, lower_bound=lower)


dependent = _Dependent()
boolean = _set("Boolean", lambda v: (v == 0) | (v == 1), discrete=True)
one_hot = _set("OneHot", lambda v: ((v == 0) | (v == 1)).all(-1) & (v.sum(-1) == 1), discrete=True, event_dim=1)
nonnegative_integer, positive_integer = _integers(0), _integers(1)
real = _set("Real", lambda v: v == v)
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _set("Simplex", lambda v: (v >= 0).all(-1) & ((v.sum(-1) - 1).abs() < 1e-6), event_dim=1)
square = _set("Square", lambda v: full(v.shape[:-2], v.shape[-2] == v.shape[-1], dtype=_C.bool), event_dim=2)
symmetric = _set("Symmetric", lambda v: _C.fn.isclose(v, v.mT, atol=1e-6).all(-1).all(-1), event_dim=2)
lower_triangular = _set("LowerTriangular", lambda v: (v.tril() == v).all(-1).all(-1), event_dim=2)
lower_cholesky = _set("LowerCholesky", lambda v: (v.tril() == v).all(-1).all(-1) & (_diagonal(v) > 0).all(-1), event_dim=2)
positive_definite = _set("PositiveDefinite", _positive_definite, event_dim=2)


def _unit_rows(v: Tensor) -> Tensor:
    tolerance = finfo(v.dtype).eps * v.shape[-1] * 10
    return ((v.pow(2).sum(-1).sqrt() - 1).abs() <= tolerance).all(-1)


corr_cholesky = _set("CorrCholesky", lambda v: _unit_rows(v) & lower_cholesky.check(v), event_dim=2)


class cat(Constraint):
    """`cseq` of consecutive parts of the given lengths along a dim."""

    def __init__(self, cseq: Any, dim: int = 0, lengths: Any = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        return _C.fn.cat([c.check(part) for c, part in zip(self.cseq, value.split(self.lengths, self.dim))], self.dim)


class stack(Constraint):
    """`cseq`, one of each slice along a dim."""

    def __init__(self, cseq: Any, dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        event_dim = max(c.event_dim for c in self.cseq)
        self.event_dim = event_dim + 1 if dim + event_dim < 0 else event_dim

    def check(self, value: Tensor) -> Tensor:
        return _C.fn.stack([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim))], self.dim)


def _diagonal(m: Tensor) -> Tensor:
    return (m * eye(m.shape[-1], dtype=m.dtype, device=_place_of(m))).sum(-1)
