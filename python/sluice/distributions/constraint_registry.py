"""From unconstrained numbers into a constraint: torch.distributions.biject_to and transform_to."""

from __future__ import annotations

from typing import Any, Callable

from sluice.distributions import constraints, event_transforms, transforms
from sluice.distributions.constraints import Constraint


class ConstraintRegistry:
    """Calls to it give the transform whose codomain is a constraint; register() adds one for a kind of constraint."""

    def __init__(self) -> None:
        self._kinds: list[tuple[Any, Callable[[Any], Any]]] = []

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        if factory is None:
            return lambda f: self.register(constraint, f)
        if not isinstance(constraint, Constraint) and not (isinstance(constraint, type) and issubclass(constraint, Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._kinds.insert(0, (constraint, factory))
        return factory

    def __call__(self, constraint: Constraint) -> Any:
        if isinstance(constraint, constraints.independent):
            return transforms.IndependentTransform(self(constraint.base_constraint), constraint.reinterpreted_batch_ndims)
        for kind, factory in self._kinds:
            if constraint is kind or (isinstance(kind, type) and isinstance(constraint, kind)):
                return factory(constraint)
        raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints: {constraint!r} has no transform registered")


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _both(kind: Any) -> Any:
    def add(factory: Any) -> Any:
        biject_to.register(kind, factory)
        return transform_to.register(kind, factory)

    return add


def _onto(low: Any, width: Any, base: transforms.Transform) -> Any:
    return transforms.ComposeTransform([base, transforms.AffineTransform(low, width)])


@_both(constraints.greater_than)
@_both(constraints.greater_than_eq)
def _above(constraint: Any) -> Any:
    if isinstance(constraint.lower_bound, (int, float)) and constraint.lower_bound == 0:
        return transforms.ExpTransform()
    return _onto(constraint.lower_bound, 1, transforms.ExpTransform())


@_both(constraints.less_than)
def _below(constraint: Any) -> Any:
    return _onto(constraint.upper_bound, -1, transforms.ExpTransform())


@_both(constraints.interval)
@_both(constraints.half_open_interval)
def _between(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _onto(low, high - low, transforms.SigmoidTransform())


_both(constraints.real)(lambda constraint: transforms.identity_transform)
_both(constraints.lower_cholesky)(lambda constraint: transforms.LowerCholeskyTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
biject_to.register(constraints.simplex, lambda constraint: event_transforms.StickBreakingTransform())
_both(constraints.corr_cholesky)(lambda constraint: event_transforms.CorrCholeskyTransform())
_both(constraints.positive_definite)(lambda constraint: event_transforms.PositiveDefiniteTransform())


def _of_parts(registry: ConstraintRegistry) -> None:
    registry.register(constraints.cat, lambda c: event_transforms.CatTransform([registry(part) for part in c.cseq], c.dim,
                                                                               c.lengths))
    registry.register(constraints.stack, lambda c: event_transforms.StackTransform([registry(part) for part in c.cseq], c.dim))


_of_parts(biject_to)
_of_parts(transform_to)
