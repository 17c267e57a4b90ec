"""Draws that take more than a formula: by rejection, and what gradients they have."""

from __future__ import annotations

import math
from typing import Any, Callable

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import empty, rand, randn, tensor
from sluice._base.numbers import numpy as lazy_numpy
from sluice.autograd.function import Function
from sluice._base.grad_mode import no_grad
from sluice.distributions.utils import limit

_ROUNDS_IN_A_GRAPH = 24  # an element that no round accepts, one of 10^20, keeps the last proposal


def uniform(like: Tensor, shape: Any, low: float = 0.0, high: float = 1.0) -> Tensor:
    drawn = rand(shape, dtype=like.dtype, device=None if like._traced else like._device)
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


def normal(like: Tensor, shape: Any) -> Tensor:
    return randn(shape, dtype=like.dtype, device=None if like._traced else like._device)


def drawn(like: Tensor, shape: Any, fill: str) -> Tensor:
    """A tensor that the method `fill` ("exponential_") has filled."""
    made = empty(shape, dtype=like.dtype, device=None if like._traced else like._device)
    return getattr(made, fill)()


def by_rejection(propose: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
    """Draws by `propose`, which gives (values, accepted), until each element has its first accepted value.

    In a graph there is a fixed number of rounds, all of which are computed.
    """
    value, accepted = propose()
    if _C.is_tracing():
        for _ in range(_ROUNDS_IN_A_GRAPH - 1):
            again, fine = propose()
            value = fn.where(accepted, value, again)
            accepted = accepted | fine
        return value
    while not bool(accepted.all()):
        again, fine = propose()
        value = fn.where(accepted | ~fine, value, again)
        accepted = accepted | fine
    return value


def poisson(rate: Tensor) -> Tensor:
    """Counts of events of these rates: by counting exponential times for small rates, by the transformed rejection of
    Hoermann (1993) for others."""
    rate = rate.detach()
    wide = rate.double()
    small, large = wide.clamp(max=10), wide.clamp(min=10)
    left, counts = fn.exp(-small), wide * 0
    product = uniform(wide, wide.shape)
    for _ in range(60):  # P(more) < 1e-25 at rate 10
        counts = counts + (product > left).to(wide.dtype)
        product = product * uniform(wide, wide.shape)
    b = 0.931 + 2.53 * large.sqrt()
    a = -0.059 + 0.02483 * b
    inverse_alpha, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def propose() -> tuple[Tensor, Tensor]:
        u, v = uniform(wide, wide.shape) - 0.5, uniform(wide, wide.shape)
        near = 0.5 - u.abs()
        k = ((2 * a / near + b) * u + large + 0.43).floor()
        possible = (k >= 0) & ~((near < 0.013) & (v > near))
        count = k.clamp(min=0)
        density = count * large.log() - large - fn.lgamma(count + 1)
        return count, ((near >= 0.07) & (v <= bound) & (k >= 0)) | (
            possible & (v.log() + inverse_alpha.log() - (a / (near * near) + b).log() <= density))

    return fn.where(wide < 10, counts, by_rejection(propose)).to(rate.dtype)


def _draw_gamma(concentration: Tensor) -> Tensor:
    """Samples of rate 1, by Marsaglia and Tsang (2000)."""
    wide = concentration.double()
    boosted = fn.where(wide < 1, wide + 1, wide)
    d = boosted - 1 / 3
    c = 1 / (9 * d).sqrt()

    def propose() -> tuple[Tensor, Tensor]:
        x, u = normal(wide, wide.shape), uniform(wide, wide.shape)
        root = 1 + c * x
        v = root * root * root
        log_v = v.clamp(min=1e-300).log()
        return d * v, (v > 0) & ((1 - u).log() < 0.5 * x * x + d - d * v + d * log_v)

    made = by_rejection(propose)
    lowered = made * fn.exp((1 - uniform(wide, wide.shape)).log() / wide)
    return fn.where(wide < 1, lowered, made).to(concentration.dtype).clamp(min=limit(concentration.dtype, "tiny"))


def gamma_gradient(concentration: Any, value: Any) -> Any:
    """d value / d concentration where the value keeps its quantile; of float64 arrays.

    From F(value; a) = const: -(dF/da) / density. F is the sum of the terms value^(a+n) e^-value / Gamma(a+n+1).
    """
    np = lazy_numpy()
    a, z = np.maximum(concentration, 1e-30), np.maximum(value, 1e-300)
    log_z = np.log(z)
    psi = fn.digamma(tensor(a)).numpy() + 1 / a  # of a + n + 1
    term, n = z / a, 0
    total = term * (psi - log_z)
    huge = a > 1e5
    scale = np.maximum(abs(total), 1e-300)
    while n < 20000:
        n += 1
        term = term * (z / (a + n))
        psi = psi + 1 / (a + n)
        added = term * (psi - log_z)
        total = total + added
        scale = np.maximum(scale, abs(total))
        if n % 8 == 0 and ((abs(added) <= 1e-17 * scale) & (n > z - a) | huge).all():
            break
    return np.where(huge, 1 + (z - a) / (2 * a), total)


class StandardGamma(Function):
    """Samples of Gamma(concentration, 1), with gradients of the quantile kept."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        made = _draw_gamma(concentration)
        ctx.save_for_backward(concentration, made)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        concentration, made = ctx.saved_tensors
        if concentration._traced or made._traced:
            raise NotImplementedError("Gamma.rsample: gradients of gamma samples are not to be had in a graph; sample() there, or "
                                      "rsample() outside")
        with no_grad():
            slope = gamma_gradient(concentration.double().cpu().numpy(), made.double().cpu().numpy())
        return grad * tensor(slope).to(grad)


def standard_gamma(concentration: Tensor) -> Tensor:
    return StandardGamma.apply(concentration)


def indices(probs: Tensor, count: int) -> Tensor:
    """(count, ...) indices drawn by the probabilities (..., n), which are normalised; torch.multinomial's numbers."""
    rows = probs.detach().reshape((-1, probs.shape[-1]))
    if count == 1:
        return (rows / drawn(rows, rows.shape, "exponential_")).argmax(-1).reshape((count, *probs.shape[:-1]))
    sums = rows.cumsum(-1)
    sums = sums / sums[:, -1:]
    at = uniform(rows.double(), (rows.shape[0], count))
    below = sums.double().unsqueeze(1) < at.unsqueeze(2)
    index = below.to(_C.int64).sum(-1).clamp(max=probs.shape[-1] - 1)
    return index.t().reshape((count, *probs.shape[:-1]))


LOG_2PI = math.log(2 * math.pi)
EULER = 0.57721566490153286060651209008240243
