"""Schedules that torch does not have, against their formulas."""

import math

import numpy as np
import pytest
from optimizing import Training

import sluice as sl
import sluice.nn as nn
from scheduling import L

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # torch, too, of schedules in schedules


def rates_of(make, n, lr=0.1):
    optimizer = sl.optim.SGD([nn.Parameter(sl.ones(1))], lr=lr)
    optimizer._opt_called = True
    schedule, found = make(optimizer), []
    for _ in range(n):
        found.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    np.testing.assert_allclose([schedule.get_lr(t)[0] for t in range(n)], found, rtol=1e-12)
    return found


def planned_rates(make, n, lr=0.1):
    module = nn.Linear(1, 1, bias=False, dtype=sl.float64)
    optimizer = sl.optim.SGD(module.parameters(), lr=lr)
    schedule, found = make(optimizer), []
    graph = Training(module, optimizer, schedule)
    for _ in range(n):
        found.append(optimizer.param_groups[0]["lr"])
        graph(sl.ones(1, 1, dtype=sl.float64))
    return found


def cosine_decay(t, base=0.1, n=20, alpha=0.2):
    return base * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * min(t, n) / n)) + alpha)


def polynomial(t, base=0.1, n=10, end=0.02, power=2.0, cycle=False):
    if cycle:
        n = n * max(1, math.ceil(t / n))
    return (base - end) * (1 - min(t, n) / n) ** power + end


def warm(after, n=6, factor=0.1, prefix=False, method="linear", base=0.1):
    def rate(t):
        if t >= n:
            return after(t - n if prefix else t)
        return base * factor if method == "constant" else base * factor + (after(0 if prefix else n) - base * factor) * t / n

    return rate


def poly_cycles(t, base=0.1, n=10, power=0.5, least=0.01, mul=1.0, decay=1.0, limit=1, warmup=0, init=0.0, prefix=False, k=1.0):
    if t < warmup:
        return init + t * (base - init) / warmup
    t = t - warmup if prefix else t
    cycle, length = 0, n
    while t >= length:
        t, length, cycle = t - length, length * mul, cycle + 1
    top = base * decay ** cycle
    return least + (top - least) * (1 - t ** k / length ** k) ** power if cycle < limit else least


def tanh_cycles(t, base=0.1, n=10, lb=-7.0, ub=3.0, least=0.01, mul=1.0, decay=1.0, limit=1, warmup=0, init=0.0, prefix=False):
    if t < warmup:
        end = base if prefix else tanh_cycles(warmup, base, n, lb, ub, least, mul, decay, limit)
        return init + t * (end - init) / warmup
    t = t - warmup if prefix else t
    cycle, length = 0, n
    while t >= length:
        t, length, cycle = t - length, length * mul, cycle + 1
    top, done = base * decay ** cycle, t / length
    return least + 0.5 * (top - least) * (1 - math.tanh(lb * (1 - done) + ub * done)) if cycle < limit else least


FORMULAS = {
    "cosine_decay": (lambda o: L.CosineDecayLR(o, 20, alpha=0.2), cosine_decay),  # LR-04
    "polynomial": (lambda o: L.PolynomialLR(o, steps=10, end_learning_rate=0.02, power=2.0), polynomial),  # LR-07
    "polynomial_cycle": (lambda o: L.PolynomialLR(o, steps=10, end_learning_rate=0.02, power=2.0, cycle=True),
                         lambda t: polynomial(t, cycle=True)),
    "polynomial_default": (lambda o: L.PolynomialLR(o, steps=10), lambda t: polynomial(t, end=1e-4, power=1.0)),
    "warm_up": (lambda o: L.WarmupLR(o, 0.1, 6), warm(lambda t: 0.1)),  # LR-01
    "warm_up_constant": (lambda o: L.WarmUpLR(o, 0.1, 6, "constant"), warm(lambda t: 0.1, method="constant")),
    "warm_up_cosine": (lambda o: L.WarmupLR(L.CosineDecayLR(o, 20, 0.2), 0.1, 6), warm(cosine_decay)),
    "warm_up_before_cosine": (lambda o: L.WarmupLR(L.CosineDecayLR(o, 20, 0.2), 0.1, 6, warmup_prefix=True),
                              warm(cosine_decay, prefix=True)),
    "warm_up_of_sequence": (lambda o: L.WarmupLR(L.SequentialLR(o, [L.ConstantLR(o, 0.5, 100), L.ExponentialLR(o, 0.9)], [10]),
                                                 0.1, 6),
                            warm(lambda t: 0.05 if t < 10 else 0.1 * 0.9 ** (t - 10))),
    "no_warm_up": (lambda o: L.WarmupLR(L.CosineDecayLR(o, 20, 0.2), 0.1, 0), cosine_decay),
    "libai": (lambda o: L.WarmupCosineLR(o, 30, warmup_ratio=0.2),
              warm(lambda t: cosine_decay(t, n=30, alpha=0.01), n=6, factor=0.001)),
    "poly": (lambda o: L.PolyLRScheduler(o, 10, lr_min=0.01), poly_cycles),  # LR-10
    "poly_cycles": (lambda o: L.PolyLRScheduler(o, 10, 2.0, 0.01, cycle_mul=2.0, cycle_decay=0.5, cycle_limit=2, warmup_t=4,
                                                warmup_lr_init=0.001, warmup_prefix=True, k_decay=1.5),
                    lambda t: poly_cycles(t, power=2.0, mul=2.0, decay=0.5, limit=2, warmup=4, init=0.001, prefix=True, k=1.5)),
    "poly_even": (lambda o: L.PolyLRScheduler(o, 7, 1.0, cycle_decay=0.7, cycle_limit=5, warmup_t=3),
                  lambda t: poly_cycles(t, n=7, power=1.0, least=0, decay=0.7, limit=5, warmup=3)),
    "tanh": (lambda o: L.TanhLRScheduler(o, 10, lr_min=0.01), tanh_cycles),
    "tanh_cycles": (lambda o: L.TanhLRScheduler(o, 8, -5.0, 2.0, 0.001, cycle_mul=1.5, cycle_decay=0.6, cycle_limit=3,
                                                warmup_t=5, warmup_lr_init=0.002),
                    lambda t: tanh_cycles(t, n=8, lb=-5.0, ub=2.0, least=0.001, mul=1.5, decay=0.6, limit=3, warmup=5,
                                          init=0.002)),
    "tanh_after": (lambda o: L.TanhLRScheduler(o, 8, warmup_t=5, warmup_prefix=True, cycle_limit=4),
                   lambda t: tanh_cycles(t, n=8, least=0, limit=4, warmup=5, prefix=True)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_schedules_beyond_torchs_equal_their_formulas(name):  # LR-01, LR-04, LR-07, LR-10, LR-11
    make, formula = FORMULAS[name]
    np.testing.assert_allclose(rates_of(make, 50), [formula(t) for t in range(50)], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(planned_rates(make, 32), [formula(t) for t in range(32)], rtol=1e-9, atol=1e-12)


def test_the_documented_warm_up():  # LR-01
    found = rates_of(lambda o: L.WarmUpLR(o, warmup_factor=0.5, warmup_iters=5, warmup_method="linear"), 10, lr=0.001)
    assert found == pytest.approx([0.0005, 0.0006, 0.0007, 0.0008, 0.0009, *[0.001] * 5], rel=1e-12)


def test_schedules_of_flowvision_take_epochs_and_updates():
    optimizer = sl.optim.SGD([nn.Parameter(sl.ones(1))], lr=0.1)
    schedule = L.PolyLRScheduler(optimizer, 10, lr_min=0.01)
    schedule.step(4, metric=0.5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(poly_cycles(4))
    schedule.step_update(7)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(poly_cycles(4))
    schedule = L.TanhLRScheduler(optimizer, 10, t_in_epochs=False)
    schedule.step_update(7)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(tanh_cycles(7, least=0))
    for kind in ("normal", "uniform"):
        noisy = L.PolyLRScheduler(optimizer, 10, lr_min=0.01, noise_range_t=(3, 8), noise_pct=0.2, noise_type=kind)
        found = [noisy.get_lr(t)[0] / poly_cycles(t) for t in range(10)]
        assert found == [noisy.get_lr(t)[0] / poly_cycles(t) for t in range(10)]
        assert all((abs(f - 1) > 1e-12) == (3 <= t < 8) and abs(f - 1) <= 0.2 + 1e-9 for t, f in enumerate(found))
    with pytest.raises(RuntimeError, match="PolyLRScheduler: the schedule cannot be part of a graph: noise_range_t"):
        planned_rates(lambda o: L.PolyLRScheduler(o, 10, noise_range_t=3), 1)
