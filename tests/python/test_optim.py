"""Optimizers and schedules against torch over 100 steps, eager and in a graph."""

import copy

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}, 1e-5), ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}, 1e-5),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.1}, 1e-5), ("SGD", {"lr": 0.01, "maximize": True, "momentum": 0.5}, 1e-4),
    ("Adam", {"lr": 1e-2}, 1e-4), ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True}, 1e-4),
    ("AdamW", {"lr": 1e-2, "betas": (0.8, 0.99)}, 1e-4),
]


def models():
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    ours = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    return ours, theirs


class TrainGraph(nn.Graph):
    def __init__(self, model, optim, lr_sch=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optim, lr_sch)

    def build(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        return loss


def run(ours, theirs, ours_step, optim, scheduler=None, steps=100):
    for _ in range(steps):
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        loss = ours_step(to_sl(x), to_sl(y))
        optim.zero_grad()
        expected = torch.nn.functional.mse_loss(theirs(x), y)
        expected.backward()
        optim.step()
        if scheduler:
            scheduler.step()
    assert abs(loss.item() - expected.item()) < 1e-2 * max(1.0, abs(expected.item()))


def eager_step(model, optim, scheduler=None):
    def step(x, y):
        optim.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optim.step()
        if scheduler:
            scheduler.step()
        return loss

    return step


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name, options, tolerance", OPTIMIZERS, ids=str)
def test_optimizer_equals_torch_after_100_steps(name, options, tolerance, in_graph):  # NG-04
    ours, theirs = models()
    optim = getattr(sl.optim, name)(ours.parameters(), **options)
    other = getattr(torch.optim, name)(theirs.parameters(), **options)
    run(ours, theirs, TrainGraph(ours, optim) if in_graph else eager_step(ours, optim), other)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p, q, tolerance)


SCHEDULES = [
    ("StepLR", (3, 0.5)), ("MultiStepLR", ([3, 7, 8], 0.5)), ("ExponentialLR", (0.9,)), ("CosineAnnealingLR", (20, 0.001)),
    ("LinearLR", (0.2, 1.0, 5)), ("ConstantLR", (0.5, 4)), ("PolynomialLR", (15, 2.0)), ("LambdaLR", (lambda step: 0.95**step,)),
]


@pytest.mark.parametrize("name, args", SCHEDULES, ids=lambda v: v if isinstance(v, str) else "")
def test_schedule_equals_torch_eager_and_in_the_plan(name, args):
    ours, theirs = models()
    planned = copy.deepcopy(ours)
    rates = []
    for module, library in ((ours, sl.optim), (theirs, torch.optim)):
        optim = library.SGD(module.parameters(), lr=0.1)
        schedule = getattr(library.lr_scheduler, name)(optim, *args)
        rates.append([])
        for _ in range(20):
            rates[-1].append(optim.param_groups[0]["lr"])
            optim.step()
            schedule.step()
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)

    optim = sl.optim.SGD(planned.parameters(), lr=0.1)
    schedule = getattr(sl.optim.lr_scheduler, name)(optim, *args)
    graph = TrainGraph(planned, optim, schedule)
    other = torch.optim.SGD(theirs.parameters(), lr=0.1)
    ours.load_state_dict(planned.state_dict())
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in planned.state_dict().items()})
    run(planned, theirs, graph, other, getattr(torch.optim.lr_scheduler, name)(other, *args), steps=20)
    for p, q in zip(planned.parameters(), theirs.parameters()):
        assert_same(p, q, 1e-5)
    assert schedule.get_last_lr()[0] == pytest.approx(other.param_groups[0]["lr"], rel=1e-9)
    assert schedule.last_epoch == 20


@pytest.mark.parametrize("name, args", SCHEDULES, ids=lambda v: v if isinstance(v, str) else "")
def test_rates_in_the_plan_have_the_precision_of_numbers(name, args):
    model = nn.Linear(2, 1, bias=False, dtype=sl.float64)
    eager = copy.deepcopy(model)
    steps = []
    for module in (model, eager):
        optim = sl.optim.SGD(module.parameters(), lr=0.1)
        schedule = getattr(sl.optim.lr_scheduler, name)(optim, *args)
        steps.append(TrainGraph(module, optim, schedule) if module is model else eager_step(module, optim, schedule))
    for _ in range(12):
        x, y = sl.rand(4, 2, dtype=sl.float64), sl.rand(4, 1, dtype=sl.float64)
        for step in steps:
            step(x, y)
        assert_same(model.weight, torch.from_numpy(eager.weight.detach().numpy()), 1e-14)


def test_schedule_that_cannot_be_traced_is_named():
    ours, _ = models()
    optim = sl.optim.SGD(ours.parameters(), lr=0.1)
    schedule = sl.optim.lr_scheduler.LambdaLR(optim, lambda step: 1.0 if step < 5 else 0.1)
    with pytest.raises(RuntimeError, match="LambdaLR: the schedule cannot be part of a graph"):
        TrainGraph(ours, optim, schedule)(sl.ones(4, 6), sl.ones(4, 3))


def test_learning_rate_set_between_calls_reaches_the_plan():
    ours, theirs = models()
    optim, other = sl.optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    graph = TrainGraph(ours, optim)
    for lr in (0.1, 0.01, 0.2):
        optim.param_groups[0]["lr"] = other.param_groups[0]["lr"] = lr
        run(ours, theirs, graph, other, steps=3)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p, q)


def test_param_groups_and_state_dict_follow_torch():
    ours, theirs = models()
    groups = lambda m: [{"params": m[0].parameters(), "lr": 0.01}, {"params": m[2].parameters(), "weight_decay": 0.1}]  # noqa: E731
    optim, other = sl.optim.Adam(groups(ours), lr=0.1), torch.optim.Adam(groups(theirs), lr=0.1)
    run(ours, theirs, eager_step(ours, optim), other, steps=5)
    state, expected = optim.state_dict(), other.state_dict()
    assert [g["params"] for g in state["param_groups"]] == [g["params"] for g in expected["param_groups"]]
    assert sorted(state["state"][0]) == sorted(expected["state"][0])
    assert_same(state["state"][3]["exp_avg"], expected["state"][3]["exp_avg"])
    again = copy.deepcopy(ours)
    resumed = sl.optim.Adam(groups(again), lr=0.5)
    resumed.load_state_dict(state)
    for step in (eager_step(ours, optim), eager_step(again, resumed)):
        sl.manual_seed(3)
        step(sl.rand(4, 6), sl.rand(4, 3))
    assert all((p == q).all() for p, q in zip(ours.parameters(), again.parameters()))


def test_bad_optimizer_arguments_are_torchs():
    p = nn.Parameter(sl.ones(1))
    with pytest.raises(ValueError, match="empty parameter list"):
        sl.optim.SGD([])
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        sl.optim.SGD([p], lr=-1)
    with pytest.raises(ValueError, match="Nesterov"):
        sl.optim.SGD([p], nesterov=True)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1: 1.0"):
        sl.optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(TypeError, match="iterable"):
        sl.optim.SGD(p)
    with pytest.raises(ValueError, match="more than one parameter group"):
        sl.optim.SGD([{"params": [p]}, {"params": [p]}])


def test_verbose_schedules_print_each_step(capsys):  # LR-14
    model, _ = models()
    optim = sl.optim.SGD(model.parameters(), lr=0.1)
    schedule = sl.optim.lr_scheduler.ExponentialLR(optim, 0.5, verbose=True)
    expected = []
    for step in range(1, 4):
        optim.step()
        schedule.step()
        expected.append(f"step {step}: the learning rate of group 0 is {schedule.get_lr(step)[0]:.6g}")
    assert capsys.readouterr().out.splitlines()[1:] == expected
    graph = TrainGraph(model, optim, schedule)
    for _ in range(2):
        graph(sl.ones(4, 6), sl.ones(4, 3))
    graph.synchronize()
    assert capsys.readouterr().out.splitlines() == [expected[-1], f"step 4: the learning rate of group 0 is {0.1 * 0.5 ** 4:.6g}"]
