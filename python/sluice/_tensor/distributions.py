"""Random numbers of more distributions: torch's for the same seed, but for poisson and binomial."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._tensor import creation
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._tensor.creation import _like, _place_of, check_probability, in_memory_order, numpy, rand, randint
from sluice._tensor.creation import default_generator, empty, from_numpy, randn
from sluice._tensor.dtypes import finfo, iinfo
from sluice._tensor.methods import method
from sluice._base.grad_mode import no_grad


def _uniform(like: Tensor, generator: Any) -> Tensor:
    """In [0, 1), float64 where that is not drawn in a graph."""
    dtype = _C.float32 if _C.is_tracing() else _C.float64
    return rand(like._shape, generator=generator, dtype=dtype, device=_place_of(like))


def _check(name: str, holds: bool, text: str) -> None:
    if not holds:
        raise _C.RuntimeError(f"{name}: {text}")


def _filled(self: Tensor, drawn: Any) -> Tensor:
    """self with drawn(t), for a t that has its elements in the order of its memory; 16 bits are rounded twice, as torch does."""
    t = in_memory_order(self)
    values = drawn(t)
    t.copy_(values.to(_C.float32) if t.dtype in (_C.float16, _C.bfloat16) else values)
    return self


def exponential(like: Tensor, lambd: float = 1.0, generator: Any = None) -> Tensor:
    """Draws a tensor of like's shape, dtype and device, with density lambd * exp(-lambd * x)."""
    drawn = fn.log1p(-_uniform(like, generator)) * (-1 / lambd)
    return (drawn.to(_C.float32) if like.dtype in (_C.float16, _C.bfloat16) else drawn).to(like.dtype)


@method
def exponential_(self, lambd=1.0, *, generator=None):
    """Density lambd * exp(-lambd * x)."""
    _check("exponential_", lambd > 0, f"expects lambda > 0.0, but found lambda={lambd}")
    return _filled(self, lambda t: exponential(t, lambd, generator))


@method
def geometric_(self, p, *, generator=None):
    """The number of trials up to the first success."""
    _check("geometric_", 0 < p < 1, f"expects p to be in (0, 1), but got p={p}")

    def drawn(t):
        u = _uniform(t, generator)
        if _C.is_tracing():  # in float32 zero is drawn
            u = 1 - u
        return fn.ceil(fn.log(u) / math.log1p(-p)).clamp_min(1)

    return _filled(self, drawn)


@method
def cauchy_(self, median=0.0, sigma=1.0, *, generator=None):
    _check("cauchy_", sigma > 0, f"expects sigma > 0.0, but found sigma={sigma}")
    return _filled(self, lambda t: fn.tan((_uniform(t, generator) - 0.5) * math.pi) * sigma + median)


@method
def log_normal_(self, mean=1.0, std=2.0, *, generator=None):
    _check("log_normal_", std > 0, f"expects std > 0.0, but found std={std}")

    def drawn(t):
        if _C.is_tracing():
            return fn.exp(randn(t._shape, generator=generator) * std + mean)
        normal = empty(t._shape, dtype=_C.float64, device="cpu")
        (generator or default_generator).normal_(normal, mean, std, True)
        return fn.exp(normal).to(t._device)

    return _filled(self, drawn)


@method
@typed(from_="int|None", to="int|None")
def random_(self, from_=None, to=None, *, generator=None):
    """Integers from `from_` (0) to below `to` (all that the dtype holds exactly)."""
    _check("random_", not self.dtype.is_complex, "handles only integral, floating-point and boolean types")
    everything = from_ is None and to is None
    if to is None and from_ is not None:
        from_, to = 0, from_
    if to is None:
        floats = {"float16": 2**11 + 1, "bfloat16": 2**8 + 1, "float32": 2**24 + 1, "float64": 2**53 + 1, "bool": 2}
        to = floats.get(self.dtype.name) or min(iinfo(self.dtype).max, 2**63 - 2) + 1
    from_ = from_ or 0
    _check("random_", from_ < to, f"expects 'from' to be less than 'to', but got from={from_} >= to={to}")
    t = in_memory_order(self)
    count = {"int32": 31, "int64": 63}.get(self.dtype.name) if everything and not _C.is_tracing() else None
    if count is not None:
        t.copy_((generator or default_generator).bits(t._shape, count).to(self._device))
    else:
        t.copy_(randint(from_, to, t._shape, generator=generator, device=_place_of(self)))
    return self


@_like
def _integers_like(size: Any, low: int, high: int, *, generator: Any, dtype: Any, device: Any, requires_grad: bool = False) -> Tensor:
    t = randint(low, high, size, generator=generator, device=None if _C.is_tracing() else device).to(dtype).to(device)
    return t.requires_grad_(True) if requires_grad else t


@typed(input="Tensor", low="int", high="int")
def randint_like(input: Tensor, low: int, high: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
                 requires_grad: bool = False, memory_format: Any = None) -> Tensor:
    """Integers from low (0 if one bound is given) to below high, of input's shape and dtype; torch.randint_like."""
    low, high = (0, low) if high is None else (low, high)
    _check("randint_like", not (dtype or input.dtype).is_complex, "handles only integral, floating-point and boolean types")
    return _integers_like(input, low, high, generator=generator, dtype=dtype, device=device, requires_grad=requires_grad,
                          memory_format=memory_format)


@method
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Indices drawn with the weights of a vector, or of each row of a matrix. torch.multinomial."""
    _check("multinomial", input.ndim in (1, 2), f"prob_dist must be 1 or 2 dim: got {input.ndim}")
    _check("multinomial", input.dtype.is_floating_point, f"only supports floating-point dtypes for input, got: {input.dtype}")
    _check("multinomial", num_samples > 0, f"cannot sample n_sample <= 0 samples: got {num_samples}")
    n = input._shape[-1]
    _check("multinomial", replacement or num_samples <= n,
           f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: {num_samples} of {n}")
    if not _C.touches_graph(input):
        good = bool((fn.isfinite(input) & (input >= 0)).all())
        _check("multinomial", good, "probability tensor contains either `inf`, `nan` or element < 0")
        _check("multinomial", bool((input > 0).any(-1).all()), "invalid multinomial distribution (sum of probabilities <= 0)")
    with no_grad():
        if not replacement or num_samples == 1:  # the largest of weights over exponential variables
            rates = input / exponential(input, 1.0, generator).clamp_min(finfo(input.dtype).tiny)
            return fn.topk(rates, num_samples, -1).indices
        sums = input.double().cumsum(-1)
        total = sums.narrow(-1, n - 1, 1)
        at = _uniform(sums.narrow(-1, 0, 1).expand(*input._shape[:-1], num_samples), generator)
        return fn.searchsorted(sums / total, at.to(sums.dtype)).clamp_max(fn.searchsorted(sums, total)).to(_C.int64)


def _by_numpy(name: str, *tensors: Tensor) -> None:
    for t in tensors:
        if _C.touches_graph(t):
            raise _C.RuntimeError(f"{name}: the tensor is traced; it cannot be drawn while a graph is built: draw it outside")


def _numpy_generator(generator: Any) -> Any:
    return numpy().random.Generator(numpy().random.Philox(randint(0, 2**62, (1,), generator=generator).item()))


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Numbers of events of these rates; torch.poisson, of other draws."""
    _by_numpy("poisson", input)
    _check("poisson", bool((input >= 0).all()), "invalid Poisson rate, expected rate to be non-negative")
    drawn = _numpy_generator(generator).poisson(input.detach().double().cpu().numpy())
    return from_numpy(numpy().asarray(drawn, "float64")).to(input.dtype).to(input._device).reshape(input._shape)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Numbers of successes among count trials; torch.binomial, of other draws."""
    _by_numpy("binomial", count, prob)
    check_probability("binomial", prob)
    drawn = _numpy_generator(generator).binomial(count.detach().long().cpu().numpy(), prob.detach().double().cpu().numpy())
    return from_numpy(numpy().asarray(drawn, "float64")).to(count.dtype).to(count._device)


@method
def bernoulli(self, p=None, *, generator=None):
    return creation.bernoulli(self, p, generator=generator)
