"""Orthogonal polynomials and Airy's function: composites, computed in float64. Without gradients, as torch's are."""

from __future__ import annotations

import functools
import math
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import _finish, ones_like, tensor, zeros_like
from sluice._tensor.creation import numpy as lazy_numpy
from sluice._tensor.dtypes import result_type


def _result_dtype(name: str, *operands: Any) -> Any:
    """torch's, of numbers and tensors: of integers the default dtype."""
    dtype = result_type(*operands) if len(operands) > 1 else operands[0].dtype
    if dtype in (_C.float16, _C.bfloat16):
        raise NotImplementedError(f"{name}: not implemented for {dtype}; cast it to float32")
    return dtype if dtype.is_floating_point else _C.get_default_dtype()


def _wide(x: Any) -> Tensor:
    """In float64 without history."""
    return x.detach().to(_C.float64) if isinstance(x, Tensor) else tensor(float(x), dtype=_C.float64)


def _polynomial(name: str, doc: str, evaluate: Any) -> Any:
    """torch.special.<name>(x, n): of numbers or tensors that broadcast, n cut down to whole numbers, 0 where n < 0."""

    def polynomial(x, n, *, out=None):
        if not isinstance(x, Tensor) and not isinstance(n, Tensor):
            raise TypeError(f"{name}(): received an invalid combination of arguments: x and n are numbers; one must be a "
                            "Tensor")
        dtype, values = _result_dtype(name, x, n), _wide(x)
        if isinstance(n, Tensor):
            if n._traced:
                raise RuntimeError(f"{name}: n is a tensor that the graph computes; it must be a number here, since it says "
                                   "how many "
                                   "steps there are")
            n = _wide(n).trunc()
            values, n = fn.broadcast_tensors(values, n)
            top = int(n.max().item()) if n.numel() else 0
            found = fn.where(n < 0, 0.0, evaluate(values, n, top))
        else:
            n = math.trunc(n)
            found = zeros_like(values) if n < 0 else evaluate(values, n, n)
            found = found.clone() if found is values else found
        return _finish(found.to(dtype), None, False, out)

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = f"{doc} of degree n at x; one of them may be a number. torch.special.{name}."
    return polynomial


def _by_steps(first: Any, second: Any, step: Any) -> Any:
    """p_0, p_1 and p_(k+1) = step(k, x, p_k, p_(k-1)); of a tensor n each element takes its own."""

    def evaluate(x, n, top):
        before, now = first(x), second(x)
        found = before if top < 1 else now if not isinstance(n, Tensor) else fn.where(n == 0, before, now)
        for k in range(1, top):
            before, now = now, step(k, x, now, before)
            found = fn.where(n > k, now, found) if isinstance(n, Tensor) else now
        return found

    return evaluate


_MOST_STEPS = 6  # of Chebyshev's; above, angles say it


def _even(n: Any) -> Any:
    return fn.remainder(n, 2) == 0 if isinstance(n, Tensor) else n % 2 == 0


def _by_angle(kind: str, a: Tensor, n: Any) -> Tensor:
    """At a >= 0, by a = cos(t), or cosh(t) above 1."""
    inside = a <= 1
    t = fn.where(inside, fn.acos(a.clamp(max=1)), fn.acosh(a.clamp(min=1)))

    def both(cos, cosh, angle):
        return fn.where(inside, cos(fn.where(inside, angle, 0.0)), cosh(fn.where(inside, 0.0, angle)))

    if kind == "t":
        return both(fn.cos, fn.cosh, t * n)
    if kind == "v":
        return both(fn.cos, fn.cosh, t * (n + 0.5)) / both(fn.cos, fn.cosh, t / 2)
    shift, part = (1, t) if kind == "u" else (0.5, t / 2)
    return fn.where(a == 1, (n + shift) * (1 / shift), both(fn.sin, fn.sinh, t * (n + shift)) / both(fn.sin, fn.sinh, part))


def _chebyshev(kind: str, shifted: bool) -> Any:
    second = {"t": lambda x: x, "u": lambda x: x + x, "v": lambda x: x + x - 1, "w": lambda x: x + x + 1}[kind]
    few = _by_steps(ones_like, second, lambda k, x, now, before: (x + x) * now - before)

    def evaluate(x, n, top):
        x = x + x - 1 if shifted else x
        low = few(x, n, min(top, _MOST_STEPS)) if top <= _MOST_STEPS or isinstance(n, Tensor) else None
        if top <= _MOST_STEPS:
            return low
        # Those of -x are those of x with sign (-1)^n; V and W change places.
        a, sign = x.abs(), fn.where(_even(n), 1.0, -1.0) if isinstance(n, Tensor) else 1.0 if _even(n) else -1.0
        high = fn.where(x < 0, _by_angle({"v": "w", "w": "v"}.get(kind, kind), a, n) * sign, _by_angle(kind, a, n))
        high = fn.where(fn.isfinite(x), high, float("nan"))
        return high if low is None else fn.where(n > _MOST_STEPS, high, low)

    return evaluate


for _kind in "tuvw":
    for _shifted in (False, True):
        _name = f"{'shifted_' if _shifted else ''}chebyshev_polynomial_{_kind}"
        _number = {"t": "first", "u": "second", "v": "third", "w": "fourth"}[_kind]
        globals()[_name] = _polynomial(_name,
                                       f"Chebyshev polynomial of the {_number} kind{', at 2 x - 1,' if _shifted else ''}",
                                       _chebyshev(_kind, _shifted))

hermite_polynomial_h = _polynomial("hermite_polynomial_h", "Hermite polynomial (the physicists')", _by_steps(
    ones_like, lambda x: 2 * x, lambda k, x, now, before: 2 * (x * now - k * before)))
hermite_polynomial_he = _polynomial("hermite_polynomial_he", "Hermite polynomial (the probabilists')", _by_steps(
    ones_like, lambda x: x, lambda k, x, now, before: x * now - k * before))
laguerre_polynomial_l = _polynomial("laguerre_polynomial_l", "Laguerre polynomial", _by_steps(
    ones_like, lambda x: 1 - x, lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1)))
legendre_polynomial_p = _polynomial("legendre_polynomial_p", "Legendre polynomial", _by_steps(
    ones_like, lambda x: x, lambda k, x, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1)))


# Airy's function. Near 0 its power series; elsewhere
#   Ai(z) = c s^(-1/6) e^-s * integral of (2 + t/s)^(-1/6) t^(-1/6) e^-t over t > 0, s = 2/3 z^(3/2),
# by Gauss's rule for t^(-1/6) e^-t; for negative x of z = -x e^(+-i pi/3), whose s is imaginary (Gil, Segura and Temme, 2002).

_NEAR = 2.5
_NODES = 40
_TERMS = 30


@functools.cache
def _rule() -> tuple:
    """Nodes and weights of the generalized Gauss-Laguerre rule, by the eigenvalues of its recurrence (Golub and Welsch)."""
    np = lazy_numpy()
    k = np.arange(_NODES, dtype=np.float64)
    a = -1 / 6
    off = np.sqrt(k[1:] * (k[1:] + a))
    nodes, vectors = np.linalg.eigh(np.diag(2 * k + 1 + a) + np.diag(off, 1) + np.diag(off, -1))
    return tensor(nodes), tensor(math.gamma(1 + a) * vectors[0] ** 2)


_AT_0 = 1 / (3 ** (2 / 3) * math.gamma(2 / 3))
_SLOPE_AT_0 = -1 / (3 ** (1 / 3) * math.gamma(1 / 3))


def _series(x: Tensor) -> Tensor:
    """Ai(x) = Ai(0) f(x) + Ai'(0) g(x), both series in x^3."""
    cube = x * x * x
    f, g = ones_like(x), x
    even, odd = f, g
    for k in range(1, _TERMS):
        even = even * cube / ((3 * k - 1) * (3 * k))
        odd = odd * cube / ((3 * k) * (3 * k + 1))
        f, g = f + even, g + odd
    return _AT_0 * f + _SLOPE_AT_0 * g


def airy_ai(x: Tensor, *, out: Any = None) -> Tensor:
    """Airy's function Ai(x). torch.special.airy_ai."""
    if not isinstance(x, Tensor):
        raise TypeError(f"airy_ai(): argument 'x' (position 1) must be Tensor, not {type(x).__name__}")
    dtype, values = _result_dtype("airy_ai", x), _wide(x)
    nodes, weights = _rule()
    z = values.abs().clamp(min=_NEAR)
    s = 2 / 3 * z * z.sqrt()
    ratio = nodes / s.unsqueeze(-1)
    scale = 1 / (math.sqrt(math.pi) * 48 ** (1 / 6) * math.gamma(5 / 6)) * s ** (-1 / 6)
    above = scale * fn.exp(-s) * ((2 + ratio) ** (-1 / 6) * weights).sum(-1)
    # (2 - i r)^(-1/6) has modulus (4 + r^2)^(-1/12) and angle atan(r / 2) / 6; i^(-1/6) e^(i pi/3) turns by pi/4, e^(-i s) by -s.
    angle = fn.atan(ratio / 2) / 6
    modulus = (4 + ratio * ratio) ** (-1 / 12) * weights
    turn = math.pi / 4 - s
    below = 2 * scale * (fn.cos(turn) * (modulus * fn.cos(angle)).sum(-1) - fn.sin(turn) * (modulus * fn.sin(angle)).sum(-1))
    found = fn.where(values.abs() <= _NEAR, _series(values.clamp(-_NEAR, _NEAR)), fn.where(values > 0, above, below))
    return _finish(fn.where(fn.isfinite(values), found, float("nan")).to(dtype), None, False, out)
