"""Invertible functions with derivatives: torch.distributions.transforms."""

from __future__ import annotations

import math
from typing import Any, Sequence

from sluice._tensor import creation
from sluice._tensor.creation import _place_of, tensor, zeros_like
from sluice._C import functional, Tensor
from sluice._tensor.functions import broadcast_shapes
from sluice._base.size import Size
from sluice.distributions import constraints
from sluice.distributions.utils import knowable, limit, sum_rightmost


class Transform:
    """t(x) is in `codomain` for x in `domain`; t.inv is its inverse. sign: 1 or -1 where it is monotone."""

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._last: Any = (None, None)

    event_dim = property(lambda self: self.domain.event_dim)
    inv = property(lambda self: _Inverse(self))

    @property
    def sign(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: is not monotone")

    def with_cache(self, cache_size: int = 1) -> Any:
        import copy

        made = copy.copy(self)
        Transform.__init__(made, cache_size)
        return made

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and x is self._last[0]:
            return self._last[1]
        y = self._call(x)
        if self._cache_size:
            self._last = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size and y is self._last[1]:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = (x, y)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: no _call(); a transform that is asked for it must define it")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: no _inverse(); a transform that is asked for it must define it")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy / dx|, without the dims of an event."""
        raise NotImplementedError(f"{type(self).__name__}: no log_abs_det_jacobian(); a transform that is asked for it must define it")

    def forward_shape(self, shape: Any) -> Size:
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return Size(shape)

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and all(_equal(v, other.__dict__[k]) for k, v in self.__dict__.items()
                                                 if k not in ("_cache_size", "_last"))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _equal(a: Any, b: Any) -> bool:
    """Numbers or tensors of the same values, or other things that are equal."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return bool(a == b)
    same = a == b
    return a is b or (knowable(same) and bool(same.all()))


class _Inverse(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._of = transform

    domain = property(lambda self: self._of.codomain)
    codomain = property(lambda self: self._of.domain)
    bijective = property(lambda self: self._of.bijective)
    sign = property(lambda self: self._of.sign)
    inv = property(lambda self: self._of)

    def __call__(self, y: Tensor) -> Tensor:
        return self._of._inv_call(y)

    def _inv_call(self, x: Tensor) -> Tensor:
        return self._of(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Size:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._of.forward_shape(shape)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Inverse) and self._of == other._of

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"_InverseTransform({self._of!r})"


class ComposeTransform(Transform):
    """Several, one after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) if cache_size else p for p in parts]

    @property
    def domain(self) -> Any:
        return self._outermost(list(reversed(self.parts)), "domain", "codomain")

    @property
    def codomain(self) -> Any:
        return self._outermost(self.parts, "codomain", "domain")

    def _outermost(self, parts: Any, near: str, far: str) -> Any:
        if not parts:
            return constraints.real
        event_dim = getattr(parts[0], far).event_dim
        for part in parts:
            event_dim += getattr(part, near).event_dim - getattr(part, far).event_dim
            event_dim = max(event_dim, getattr(part, near).event_dim)
        last = getattr(parts[-1], near)
        return constraints.independent(last, event_dim - last.event_dim) if event_dim > last.event_dim else last

    bijective = property(lambda self: all(p.bijective for p in self.parts))

    @property
    def sign(self) -> Any:
        sign = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        found, event_dim = 0.0, self.domain.event_dim
        for part, a, b in zip(self.parts, values[:-1], values[1:]):
            found = found + sum_rightmost(part.log_abs_det_jacobian(a, b), event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return found

    def forward_shape(self, shape: Any) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return Size(shape)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """One whose last `reinterpreted_batch_ndims` batch dims are of the event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims))
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _call(self, x: Tensor) -> Tensor:
        if x.ndim < self.domain.event_dim:
            raise ValueError(f"IndependentTransform: Too few dimensions on input: {x.ndim}; must have {self.domain.event_dim}")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The dims of an event in another shape."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"in_shape, out_shape have different numbers of elements: {tuple(self.in_shape)} and {tuple(self.out_shape)}")

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape[:x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape((*y.shape[:y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Size:
        return self._other(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._other(shape, self.out_shape, self.in_shape)

    def _other(self, shape: Any, now: Any, then: Any) -> Size:
        cut = len(shape) - len(now)
        if cut < 0 or tuple(shape[cut:]) != tuple(now):
            raise ValueError(f"Shape mismatch: expected {tuple(now)} but got {tuple(shape[max(cut, 0):])}")
        return Size((*shape[:cut], *then))


class _Monotone(Transform):
    bijective = True
    sign: Any = 1


class ExpTransform(_Monotone):
    """exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(_Monotone):
    """x ** exponent, of positive x."""

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else tensor(float(exponent))

    sign = property(lambda self: self.exponent.sign())

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Size:
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Monotone):
    """1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return x.sigmoid().clamp(min=limit(x.dtype, "tiny"), max=1.0 - limit(x.dtype, "eps"))

    def _inverse(self, y: Tensor) -> Tensor:
        y = y.clamp(min=limit(y.dtype, "tiny"), max=1.0 - limit(y.dtype, "eps"))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x) - functional.softplus(x)


class SoftplusTransform(_Monotone):
    """log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return functional.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x)


class TanhTransform(_Monotone):
    """tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - functional.softplus(-2.0 * x))


class AbsTransform(Transform):
    """|x|; not to be inverted uniquely: inv gives y."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """loc + scale * x; the last `event_dim` dims are one event."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)
    domain = property(lambda self: constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real)
    codomain = domain

    @property
    def sign(self) -> Any:
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        each = self.scale.abs().log() if isinstance(self.scale, Tensor) else x.new_full((), math.log(abs(self.scale)))
        return sum_rightmost(each.expand(broadcast_shapes(each.shape, x.shape)), self._event_dim)

    def forward_shape(self, shape: Any) -> Size:
        return broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """exp(x) normalised along the last dim; inv is log, up to a constant."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class LowerCholeskyTransform(Transform):
    """A matrix's lower triangle, with exp() of its diagonal."""

    bijective = True
    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        eye = creation.eye(x.shape[-1], dtype=x.dtype, device=_place_of(x))
        return x.tril(-1) + (x * eye).sum(-1).exp().unsqueeze(-1) * eye

    def _inverse(self, y: Tensor) -> Tensor:
        eye = creation.eye(y.shape[-1], dtype=y.dtype, device=_place_of(y))
        return y.tril(-1) + (y * eye).sum(-1).log().unsqueeze(-1) * eye
