"""Schedules against torch: rates over 100 steps of two parameter groups, eager, of any step, and in plans."""

import copy

import numpy as np
import pytest
import torch
from optimizing import Training, assert_close, batches, ours_of, train

import sluice as sl
import sluice.nn as nn
from scheduling import CASES, assert_settings, optimizers, s, series, settings

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # torch, too, of schedules in schedules

PARTLY_ABSOLUTE = {"cyclic", "cyclic_momentum", "cyclic_range", "cyclic_own", "one_cycle", "one_cycle_three"}
CHAINED_ONCE_OVER = ["cosine", "linear", "step", "multiplicative", "chained", "sequential_three"]


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
