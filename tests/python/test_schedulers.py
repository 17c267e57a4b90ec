"""Schedules against torch: rates over 100 steps of two parameter groups, eager, of any step, and in plans."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from optimizing import Training, assert_close, batches, ours_of, quadratic, train

import sluice as sl
import sluice.nn as nn

STEPS = 100
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # torch, too, of schedules in schedules


def s(lib):
    return lib.optim.lr_scheduler


CASES = {
    "step": lambda lib, o: s(lib).StepLR(o, 7, 0.5),
    "multi_step": lambda lib, o: s(lib).MultiStepLR(o, [3, 30, 30, 71], 0.3),
    "exponential": lambda lib, o: s(lib).ExponentialLR(o, 0.97),
    "constant": lambda lib, o: s(lib).ConstantLR(o, 0.4, 9),
    "linear": lambda lib, o: s(lib).LinearLR(o, 0.1, 0.7, 33),
    "linear_default": lambda lib, o: s(lib).LinearLR(o),
    "polynomial": lambda lib, o: s(lib).PolynomialLR(o, 80, 2.5),
    "cosine": lambda lib, o: s(lib).CosineAnnealingLR(o, 20, 0.001),
    "cosine_down": lambda lib, o: s(lib).CosineAnnealingLR(o, 100),
    "restarts": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 10),
    "restarts_double": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 5, 2, 0.01),
    "restarts_triple": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 3, T_mult=3),
    "lambda": lambda lib, o: s(lib).LambdaLR(o, [lambda t: 0.95 ** t, lambda t: 1 / (t + 1)]),
    "multiplicative": lambda lib, o: s(lib).MultiplicativeLR(o, lambda t: 0.99 + 0.0001 * t),
    "cyclic": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, step_size_up=6, cycle_momentum=False),
    "cyclic_momentum": lambda lib, o: s(lib).CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 5, 8, mode="triangular2", base_momentum=0.5),
    "cyclic_range": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.98),
    "cyclic_own": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / (x + 1), scale_mode="iterations"),
    "one_cycle": lambda lib, o: s(lib).OneCycleLR(o, 0.5, STEPS),
    "one_cycle_three": lambda lib, o: s(lib).OneCycleLR(o, [0.5, 0.3], epochs=10, steps_per_epoch=10, three_phase=True,
                                                        anneal_strategy="linear", pct_start=0.25),
    "sequential": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.1, 20), s(lib).ExponentialLR(o, 0.9)], [20]),
    "sequential_three": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).LinearLR(o, 0.1, 1.0, 5), s(lib).CosineAnnealingLR(o, 30), s(lib).StepLR(o, 5, 0.5)], [5, 40]),
    "sequential_carries_on": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).ExponentialLR(o, 0.9), s(lib).MultiplicativeLR(o, lambda t: 1.01), s(lib).CosineAnnealingWarmRestarts(o, 4)],
        [10, 50]),
    "chained": lambda lib, o: s(lib).ChainedScheduler([s(lib).ConstantLR(o, 0.1, 2), s(lib).ExponentialLR(o, 0.9)]),
    "chained_over_absolute": lambda lib, o: s(lib).ChainedScheduler([s(lib).LambdaLR(o, lambda t: 0.9 ** t),
                                                                     s(lib).ExponentialLR(o, 0.9),
                                                                    s(lib).CosineAnnealingLR(o, 15, 0.001)]),
    "chained_of_sequential": lambda lib, o: s(lib).ChainedScheduler(
        [s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5, 4), s(lib).ExponentialLR(o, 0.95)], [6]),
         s(lib).StepLR(o, 10, 0.5)]),
    "sequential_of_sequential": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5, 4), s(lib).ExponentialLR(o, 0.95)], [6]),
            s(lib).ExponentialLR(o, 0.9)], [30]),
    "swa": lambda lib, o: lib.optim.swa_utils.SWALR(o, [0.05, 0.001], anneal_epochs=12),
    "swa_linear": lambda lib, o: lib.optim.swa_utils.SWALR(o, 0.05, 5, "linear"),
    "swa_at_once": lambda lib, o: lib.optim.swa_utils.SWALR(o, 0.05, 0),
}
PARTLY_ABSOLUTE = {"cyclic", "cyclic_momentum", "cyclic_range", "cyclic_own", "one_cycle", "one_cycle_three"}
CHAINED_ONCE_OVER = ["cosine", "linear", "step", "multiplicative", "chained", "sequential_three"]


def optimizers(lib, name="SGD", **options):
    module = quadratic(lib)
    options = options or {"lr": 0.1, "momentum": 0.9} if name == "SGD" else options or {"lr": 0.1}
    return module, getattr(lib.optim, name)([{"params": [module.a]}, {"params": [module.b, module.c], "lr": 0.02}], **options)


def settings(optimizer):
    return [[g["lr"], g.get("momentum"), g.get("betas")] for g in optimizer.param_groups]


def series(lib, make, steps=STEPS, name="SGD", meanwhile=None):
    """Rates, and momenta, of all steps."""
    _, optimizer = optimizers(lib, name)
    schedule = make(lib, optimizer)
    found = []
    for i in range(steps):
        found.append(settings(optimizer))
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        optimizer.step()
        if meanwhile:
            meanwhile(i, optimizer)
        schedule.step()
    return found, schedule, optimizer


def assert_settings(ours, theirs, tolerance=1e-9):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for x, y in zip(a, b, strict=True):
            flat = [[v for part in (z if isinstance(z, (list, tuple)) else [z]) if part is not None
                     for v in (part if isinstance(part, tuple) else [part])] for z in (x, y)]
            np.testing.assert_allclose(*flat, rtol=tolerance, atol=1e-15, err_msg=f"step {step}")


@pytest.mark.parametrize("name", CASES)
def test_rates_equal_torchs_over_100_steps(name):  # LR-02, LR-03, LR-05, LR-06, LR-08
    ours, theirs = (series(lib, CASES[name])[0] for lib in (sl, torch))
    assert_settings(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_rates_of_any_step_are_those_of_stepping(name):  # LR-12
    found, schedule, optimizer = series(sl, CASES[name])
    before = copy.deepcopy(schedule.state_dict())
    for step in (50, 3, 99, 0, 50):
        np.testing.assert_allclose(schedule.get_lr(step), [lr for lr, *_ in found[step]], rtol=1e-9, atol=1e-12)
    after = schedule.state_dict()
    assert after.keys() == before.keys() and after["_last_lr"] == before["_last_lr"]
    with pytest.raises(ValueError, match="step is -1"):
        schedule.get_lr(-1)


@pytest.mark.parametrize("name", ["step", "cosine_down", "exponential", "chained", "sequential_three"])
def test_rates_of_a_far_step(name):  # LR-12
    _, optimizer = optimizers(sl)
    schedule = CASES[name](sl, optimizer)
    expected = schedule.get_lr(10_000)
    optimizer._opt_called = True
    for _ in range(10_000):
        schedule.step()
    np.testing.assert_allclose(schedule.get_last_lr(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_rates_set_by_hand_stay_as_in_torch(name):
    def meanwhile(i, optimizer):
        if i % 13 == 5:
            optimizer.param_groups[0]["lr"] = 0.123
            optimizer.param_groups[1]["lr"] *= 3

    ours, theirs = (series(lib, CASES[name], 60, meanwhile=meanwhile)[0] for lib in (sl, torch))
    assert_settings(ours, theirs)


@pytest.mark.parametrize("first", CHAINED_ONCE_OVER)
@pytest.mark.parametrize("second", ["exponential", "cosine_down", "multi_step"])
def test_two_schedules_of_one_optimizer_compose_as_in_torch(first, second):
    found = []
    for lib in (sl, torch):
        _, optimizer = optimizers(lib)
        schedules = [CASES[name](lib, optimizer) for name in (first, second)]
        found.append([])
        for _ in range(60):
            found[-1].append(settings(optimizer))
            optimizer.step()
            for schedule in schedules:
                schedule.step()
    assert_settings(*found)


@pytest.mark.parametrize("name", CASES)
def test_schedules_resume_from_their_state_and_torchs(name):  # LR-15
    for donor in (sl, torch):
        whole, schedule, optimizer = series(donor, CASES[name], 37)
        _, again = optimizers(sl)
        resumed = CASES[name](sl, again)
        resumed.load_state_dict(copy.deepcopy(schedule.state_dict()))
        again.load_state_dict(optimizer.state_dict())
        found, expected = [], []
        again._opt_called = True
        for s_, o, kept in ((resumed, again, found), (schedule, optimizer, expected)):
            for _ in range(40):
                kept.append(settings(o))
                o.step()
                s_.step()
        assert_settings(found, expected)
        assert resumed.last_epoch == schedule.last_epoch if hasattr(schedule, "last_epoch") else True


@pytest.mark.parametrize("optimizer", ["Adam", "NAdam"])
@pytest.mark.parametrize("name", ["cyclic_momentum", "one_cycle"])
def test_first_betas_cycle_as_torchs(name, optimizer):
    ours, theirs = (series(lib, CASES[name], name=optimizer)[0] for lib in (sl, torch))
    assert_settings(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_plans_step_schedules_as_torch_does(name):  # LR-13
    (ours, optimizer), (theirs, other) = optimizers(sl, lr=0.01, momentum=0.3), optimizers(torch, lr=0.01, momentum=0.3)
    schedule, reference = CASES[name](sl, optimizer), CASES[name](torch, other)
    graph = Training(ours, optimizer, schedule)
    inputs = batches(35)
    for start, stop, rate in ((0, 20, None), (20, 35, 0.004)):
        if rate is not None:  # by hand, in the middle
            for o in (optimizer, other):
                o.param_groups[0]["lr"] = rate
        for x in ours_of(inputs[start:stop]):
            graph(x * 0.1)
        train(theirs, other, [x * 0.1 for x in inputs[start:stop]], reference)
        assert schedule.get_last_lr() == pytest.approx([float(lr) for lr in reference.get_last_lr()], rel=1e-9, abs=1e-12)
        assert_settings([settings(optimizer)], [settings(other)])
    assert_close(ours, theirs, 1e-9)
    if hasattr(reference, "last_epoch"):
        assert schedule.last_epoch == reference.last_epoch == 35
    # And eager steps follow on those of the plan.
    train(ours, optimizer, ours_of([x * 0.1 for x in inputs[:3]]), schedule)
    train(theirs, other, [x * 0.1 for x in inputs[:3]], reference)
    assert_settings([settings(optimizer)], [settings(other)])
    assert_close(ours, theirs, 1e-9)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "NAdam", "RMSprop"])
def test_plans_cycle_momenta_of_any_optimizer(optimizer):
    options = {"lr": 0.01, **({"momentum": 0.3} if optimizer == "RMSprop" else {"betas": (0.7, 0.9)})}
    (ours, own), (theirs, other) = optimizers(sl, optimizer, **options), optimizers(torch, optimizer, **options)
    graph = Training(ours, own, s(sl).OneCycleLR(own, 0.05, 30))
    reference = s(torch).OneCycleLR(other, 0.05, 30)
    inputs = batches(30)
    for x in ours_of(inputs):
        graph(x)
    train(theirs, other, inputs, reference)
    assert_close(ours, theirs, 1e-6)
    with pytest.raises(ValueError, match="Tried to step 31 times"):
        graph(ours_of(inputs)[0])


def test_a_schedule_of_a_plan_needs_no_python_and_is_an_actor():  # LR-13
    module, optimizer = optimizers(sl)
    schedule = s(sl).ExponentialLR(optimizer, 0.9)
    graph = Training(module, optimizer, schedule)
    graph(ours_of(batches(1))[0])
    schedule.next_lr = schedule.step = None  # nobody calls them
    for x in ours_of(batches(4)):
        graph(x)
    assert schedule.get_last_lr() == pytest.approx([0.1 * 0.9 ** 5, 0.02 * 0.9 ** 5])
    rates = {i for i, v in enumerate(graph.plan["variables"]) if v["name"] in ("optimizer0.lr0", "optimizer0.lr1")}
    makers = [i for i, k in enumerate(graph.plan["kernels"])
              if any(o["base"] == "variable" and o["index"] in rates for o in k["outputs"])]
    assert len(makers) == 2
    assert all(any(["run", i] in actor["program"] for actor in graph.plan["actors"] if actor["role"] == "normal")
               for i in makers)


def test_plans_resume_in_the_middle():  # LR-15
    inputs = ours_of(batches(37))
    whole, optimizer = optimizers(sl)
    schedule = CASES["sequential_three"](sl, optimizer)
    graph = Training(whole, optimizer, schedule)
    for x in inputs[:20]:
        graph(x * 0.1)
    again, other = optimizers(sl)
    resumed = CASES["sequential_three"](sl, other)
    resumed.load_state_dict(schedule.state_dict())
    other.load_state_dict(optimizer.state_dict())
    again.load_state_dict(whole.state_dict())
    second = Training(again, other, resumed)
    for x in inputs[20:]:
        graph(x * 0.1), second(x * 0.1)
    assert_close(again, whole, 1e-12)
    assert resumed.last_epoch == 37 and resumed.get_last_lr() == schedule.get_last_lr()
    # Into a schedule whose graph runs already.
    for which in (resumed, schedule):
        which.load_state_dict({**which.state_dict(), "last_epoch": 3})
    assert schedule.last_epoch == 3


def test_rates_follow_plans_of_every_shape():
    @nn.Graph.with_dynamic_input_shape()
    class Shapes(Training):
        pass

    module, optimizer = optimizers(sl)
    schedule = s(sl).ExponentialLR(optimizer, 0.5)
    graph = Shapes(module, optimizer, schedule)
    for i, n in enumerate([1, 2, 1, 3, 2]):
        graph(sl.ones(n, 1, 1, dtype=sl.float64) * 0.01)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 ** (i + 1)) and schedule.last_epoch == i + 1


def test_schedules_of_torch_users():
    class Own(s(sl).LRScheduler):
        def get_lr(self):
            if self._is_initial:
                return [g["lr"] for g in self.optimizer.param_groups]
            return [g["lr"] * 0.9 + base * 0.01 for g, base in zip(self.optimizer.param_groups, self.base_lrs)]

    class Theirs(s(torch).LRScheduler):
        get_lr = Own.get_lr

    def own(lib, o):
        return (Own if lib is sl else Theirs)(o)

    assert_settings(*(series(lib, own)[0] for lib in (sl, torch)))
    (ours, optimizer), (theirs, other) = optimizers(sl), optimizers(torch)
    graph, reference = Training(ours, optimizer, own(sl, optimizer)), own(torch, other)
    inputs = [x * 0.1 for x in batches(20)]
    for x in ours_of(inputs):
        graph(x)
    train(theirs, other, inputs, reference)
    assert_close(ours, theirs, 1e-9)

    class Counting(s(sl).LRScheduler):
        calls = 0

        def get_lr(self):
            self.calls += 1
            return [base / self.calls for base in self.base_lrs]

    _, optimizer = optimizers(sl)
    with pytest.raises(RuntimeError, match=r"Counting: the schedule cannot be part of a graph: get_lr\(\) changes its "
                                           r"attribute 'calls'"):
        Training(ours, optimizer, Counting(optimizer)).compile(ours_of(inputs)[0])


def test_plateaus_equal_torchs():  # LR-09
    metrics = [5, 4, 3, 3, 3, 3, 3, 3, 2.9999, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, float("nan"), 1, 1, 1, 1, 1, 1, 1]
    for options in ({"patience": 2}, {"mode": "max", "patience": 1, "cooldown": 2, "factor": 0.5},
                    {"threshold_mode": "abs", "threshold": 0.5}, {"mode": "max", "threshold_mode": "abs", "patience": 0},
                    {"patience": 0, "min_lr": [0.01, 0.001], "eps": 1e-3}):
        found = []
        for lib in (sl, torch):
            _, optimizer = optimizers(lib)
            schedule = s(lib).ReduceLROnPlateau(optimizer, **options)
            found.append([])
            for i, metric in enumerate(metrics):
                schedule.step(metric if i % 2 else lib.tensor(float(metric)))
                found[-1].append(settings(optimizer))
                if i == 12:
                    saved = copy.deepcopy(schedule.state_dict())
                    schedule = s(lib).ReduceLROnPlateau(optimizer, **options)
                    schedule.load_state_dict(saved)
        assert_settings(*found)
    (ours, optimizer), (theirs, other) = optimizers(sl), optimizers(torch)
    graph = Training(ours, optimizer, s(sl).ReduceLROnPlateau(optimizer, patience=1, factor=0.5))
    schedule, reference = graph.schedule, s(torch).ReduceLROnPlateau(other, patience=1, factor=0.5)
    for x in [x * 0.01 for x in batches(12)]:
        schedule.step(graph(ours_of([x])[0]).item() * 0 + 1)
        train(theirs, other, [x])
        reference.step(1.0)
    assert_settings([settings(optimizer)], [settings(other)])
    assert_close(ours, theirs, 1e-9)
    assert settings(optimizer)[0][0] < 0.02
    for arguments, message in (({"factor": 1.0}, "Factor should be < 1.0"), ({"mode": "low"}, "mode low is unknown"),
                               ({"threshold_mode": "x"}, "threshold mode x is unknown"),
                               ({"min_lr": [0.1]}, "expected 2 min_lrs, got 1")):
        with pytest.raises(ValueError, match=message):
            s(sl).ReduceLROnPlateau(optimizer, **arguments)


# OneFlow's, LiBai's and FlowVision's: formulas


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


L = sl.optim.lr_scheduler
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


# Misuse, as in torch


def test_misuse_is_torchs():
    for lib in (sl, torch):
        _, optimizer = optimizers(lib)
        _, other = optimizers(lib)
        S = s(lib)
        e = S.ExponentialLR(optimizer, 0.9)
        for wrong, kind, message in [
            (lambda: S.StepLR(None, 1), TypeError, "is not an Optimizer"),
            (lambda: S.ConstantLR(optimizer, 1.5), ValueError, "between 0 and 1"),
            (lambda: S.LinearLR(optimizer, 0.0), ValueError, "greater than 0"),
            (lambda: S.LinearLR(optimizer, 0.5, 2), ValueError, "Ending"),
            (lambda: S.LambdaLR(optimizer, [abs]), ValueError, "Expected 2 lr_lambdas, but got 1"),
            (lambda: S.MultiplicativeLR(optimizer, 3), TypeError, "lr_lambda should be a function, but got int"),
            (lambda: S.CosineAnnealingWarmRestarts(optimizer, 0), ValueError, "Expected positive integer T_0, but got 0"),
            (lambda: S.CosineAnnealingWarmRestarts(optimizer, 3, 0), ValueError, "Expected integer T_mult >= 1"),
            (lambda: S.OneCycleLR(optimizer, 0.1), ValueError, "You must define either total_steps OR"),
            (lambda: S.OneCycleLR(optimizer, 0.1, 5, pct_start=2.0), ValueError, "pct_start, but got 2.0"),
            (lambda: S.OneCycleLR(optimizer, 0.1, 5, anneal_strategy="x"), ValueError, "must be (one of )?'cos' or 'linear'"),
            (lambda: S.CyclicLR(optimizer, 0.1, [0.2]), ValueError, "same length"),
            (lambda: S.CyclicLR(optimizer, 0.1, 0.2, mode="x"), ValueError, "mode"),
            (lambda: S.CyclicLR(lib.optim.Adagrad(optimizer.param_groups[0]["params"]), 0.1, 0.2), ValueError,
             "must support momentum or beta1"),
            (lambda: S.SequentialLR(optimizer, [], []), ValueError, "at least one scheduler"),
            (lambda: S.SequentialLR(optimizer, [e, S.StepLR(other, 1)], [1]), ValueError, "belong to the same optimizer"),
            (lambda: S.SequentialLR(optimizer, [e], [1]), ValueError, "one more than the number of milestone points"),
            (lambda: S.ChainedScheduler([]), ValueError, "at least one scheduler"),
            (lambda: S.ChainedScheduler([e, S.ReduceLROnPlateau(optimizer)]), ValueError, "does not support `Reduce"),
            (lambda: S.StepLR(lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=1), 1, last_epoch=3), KeyError, "initial_lr"),
            (lambda: lib.optim.swa_utils.SWALR(optimizer, 0.1, -1), ValueError,
             "anneal_epochs must be equal or greater than 0"),
        ]:
            with pytest.raises(kind, match=message):
                wrong()
        with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
            e.step()
        with pytest.warns(UserWarning, match="please use `get_last_lr"):
            e.get_lr()
    with pytest.raises(TypeError, match="give OneFlow's by keyword"):
        L.PolynomialLR(sl.optim.SGD([nn.Parameter(sl.ones(1))], lr=1), 100, 0.0001, 2.0, True)


def test_fractional_epochs_and_epochs_given():
    found = []
    for lib in (sl, torch):
        _, optimizer = optimizers(lib)
        restarts = s(lib).CosineAnnealingWarmRestarts(optimizer, 4, 2)
        optimizer.step()
        found.append([])
        for epoch in (0.25, 0.5, 3.75, 4.5, 13.0, 2.0, None, None, None):
            restarts.step(epoch) if epoch is not None else restarts.step()
            found[-1].append(settings(optimizer))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in ("step", "cosine", "linear", "polynomial", "constant"):
                _, optimizer = optimizers(lib)
                schedule = CASES[name](lib, optimizer)
                schedule.step(17)
                found[-1].append(settings(optimizer))
    assert_settings(*found)


def test_rates_that_are_tensors_are_written_in_place():
    for name in ("exponential", "cosine", "lambda", "restarts_double", "sequential"):
        made = []
        for lib in (sl, torch):
            module = quadratic(lib)
            lr = lib.tensor(0.05, dtype=lib.float64)
            optimizer = lib.optim.SGD([{"params": [module.a], "lr": lr}, {"params": [module.b, module.c]}], lr=0.02,
                                      momentum=0.5)
            schedule = CASES[name](lib, optimizer)
            made.append((module, optimizer, schedule, lr))
        (ours, optimizer, schedule, lr), (theirs, other, reference, their_lr) = made
        inputs = [x * 0.1 for x in batches(16)]
        train(ours, optimizer, ours_of(inputs[:8]), schedule)
        graph = Training(ours, optimizer, schedule)
        for x in ours_of(inputs[8:]):
            graph(x)
        train(theirs, other, inputs, reference)
        assert lr is optimizer.param_groups[0]["lr"] and lr.item() == pytest.approx(their_lr.item(), rel=1e-9)
        assert_close(ours, theirs, 1e-9)


EDGES = {
    "milestones": lambda lib, o: s(lib).MultiStepLR(o, [7, 3], 0.1), "no milestones": lambda lib, o: s(lib).MultiStepLR(o, []),
    "milestone between": lambda lib, o: s(lib).MultiStepLR(o, [2.5, 3]), "no iterations": lambda lib,
    o: s(lib).ConstantLR(o, 0.5, 0), "no line": lambda lib, o: s(lib).LinearLR(o, 0.5, total_iters=0),
    "no polynomial": lambda lib, o: s(lib).PolynomialLR(o, 0), "shortest cosine": lambda lib, o: s(lib).CosineAnnealingLR(o, 1),
    "cosine upwards": lambda lib, o: s(lib).CosineAnnealingLR(o, 5, eta_min=1.0), "shortest restarts": lambda lib,
    o: s(lib).CosineAnnealingWarmRestarts(o, 1), "short restarts": lambda lib, o: s(
        lib).CosineAnnealingWarmRestarts(o, 1, 2), "one up": lambda lib, o: s(lib).CyclicLR(o, 0.1, 1, 1),
        "up and down": lambda lib, o: s(
            lib).CyclicLR(o, 0.1, 1, 3, 1), "no warm-up": lambda lib, o: s(lib).OneCycleLR(o, 1.0, 40, pct_start=0.0),
    "only warm-up": lambda lib, o: s(lib).OneCycleLR(o, 1.0, 40, pct_start=1.0),
    "at once": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9)], [0]),
    "never": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9),
                                                    s(lib).StepLR(o, 2)], [3, 3]),
    "tuple": lambda lib, o: s(lib).LambdaLR(o, (lambda e: 0.5 ** e, lambda e: 1.0)),
    "later": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9)], [3],
                                                last_epoch=1),
    **{f"resumed {name}": lambda lib, o, name=name: resumed(lib, o, name) for name in
       ["step", "exponential", "constant", "linear", "polynomial", "cosine", "lambda", "multiplicative", "multi_step", "cyclic",
        "one_cycle"]},
}


def resumed(lib, optimizer, name):
    """A schedule that is made with last_epoch, of an optimizer that has been scheduled before."""
    CASES[name](lib, optimizer)
    made = CASES[name].__code__.co_names
    kind = next(getattr(s(lib), n) for n in made if n.endswith("LR"))
    arguments = {"step": (4, 0.5), "exponential": (0.9,), "constant": (0.4, 4), "linear": (0.1, 0.7, 9), "polynomial": (9, 2.0),
                 "cosine": (
        7, 0.001), "lambda": (lambda e: 0.9 ** e,), "multiplicative": (lambda e: 0.9,), "multi_step": ([3, 4, 8],),
                 "cyclic": (0.01, 0.1, 5),
        "one_cycle": (0.5, 60)}[name]
    return kind(optimizer, *arguments, last_epoch=2)


@pytest.mark.parametrize("name", EDGES)
def test_odd_settings_equal_torchs(name):
    ours, theirs = (series(lib, EDGES[name], 30)[0] for lib in (sl, torch))
    assert_settings(ours, theirs)
    (module, optimizer), found = optimizers(sl), []
    schedule = EDGES[name](sl, optimizer)
    graph = Training(module, optimizer, schedule)
    for x in ours_of(batches(12)):
        found.append(settings(optimizer))
        graph(x * 0.01)
    assert_settings(found, theirs[:12])


@pytest.mark.parametrize("name", CASES)
def test_states_have_torchs_keys(name):
    states = [CASES[name](lib, optimizers(lib)[1]).state_dict() for lib in (sl, torch)]
    assert not states[1].keys() - states[0].keys()
    assert states[0].keys() - states[1].keys() <= {"end_lr", "cycle", "_begun", "_step_count", "_is_initial",
                                                   "_scale_fn_custom"}
