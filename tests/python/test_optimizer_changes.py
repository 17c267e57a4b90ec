"""What of optimizers and schedules may change once a graph is compiled."""

import numpy as np
import pytest
import torch
from conftest import to_sl
from optimizing import Training, assert_close, batches, net, ours_of, pair, quadratic, train

import sluice as sl
import sluice.nn as nn

CHANGES = {
    "momentum": ("SGD", {"lr": 0.01, "momentum": 0.9}, {"momentum": 0.5}),
    "decay": ("SGD", {"lr": 0.01}, {"weight_decay": 0.1}), "momentum begins": ("SGD", {"lr": 0.01}, {"momentum": 0.9}),
    "dampening": ("SGD", {"lr": 0.01, "momentum": 0.9}, {"dampening": 0.5}),
    "nesterov": ("SGD", {"lr": 0.01, "momentum": 0.9}, {"nesterov": True}),
    "maximize": ("SGD", {"lr": 0.001}, {"maximize": True}), "betas": ("Adam", {"lr": 0.01}, {"betas": (0.5, 0.9)}),
    "second beta": ("Adam", {"lr": 0.01}, {"betas": (0.9, 0.9)}), "eps": ("AdamW", {"lr": 0.01}, {"eps": 0.1}),
    "adam decay": ("AdamW", {"lr": 0.01}, {"weight_decay": 0.5}),
    "amsgrad decay": ("Adam", {"lr": 0.01, "amsgrad": True}, {"weight_decay": 0.5}), "rho": ("Adadelta", {}, {"rho": 0.5}),
    "lr_decay": ("Adagrad", {}, {"lr_decay": 0.1}), "adamax": ("Adamax", {}, {"betas": (0.8, 0.9)}),
    "lambd": ("ASGD", {"t0": 3}, {"lambd": 0.1, "alpha": 0.5}),
    "nadam": ("NAdam", {}, {"momentum_decay": 0.1, "betas": (0.8, 0.9)}),
    "radam": ("RAdam", {}, {"betas": (0.8, 0.9), "eps": 1e-3}),
    "alpha": ("RMSprop", {"momentum": 0.5}, {"alpha": 0.5, "momentum": 0.7}),
    "etas": ("Rprop", {}, {"etas": (0.4, 1.3), "step_sizes": (1e-3, 0.1)}),
    "adafactor": ("Adafactor", {"eps": (1e-20, 1e-3)}, {"d": 2.0, "eps": (1e-10, 1e-2), "beta2_decay": -0.7}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_hyperparameters_changed_after_compiling_are_honoured(what):
    name, options, change = CHANGES[what]
    (ours, optimizer), (theirs, other) = pair(name, options)
    graph = Training(ours, optimizer)
    inputs = batches(16)
    plans = []
    for i, (x, theirs_x) in enumerate(zip(ours_of(inputs), inputs)):
        if i in (5, 10, 13):
            for o in (optimizer, other):
                old = {k: o.param_groups[0][k] for k in change}
                o.param_groups[0].update(change if i == 5 else last)
            last = old
        graph(x)
        plans.append(graph._call)
        train(theirs, other, [theirs_x])
    assert_close(ours, theirs, 3e-6)
    if not isinstance(next(iter(change.values())), bool):
        assert len(set(map(id, plans))) == 2  # numbers that have changed once are variables
    assert plans[0] is plans[4] and plans[4] is not plans[5]


def test_results_outlive_the_plan_that_made_them():
    (ours, optimizer), (theirs, other) = pair("SGD", {"lr": 0.01, "momentum": 0.5})
    graph, losses, inputs = Training(ours, optimizer), [], batches(8)
    expected = []
    for i, x in enumerate(inputs):
        for o in (optimizer, other):
            o.param_groups[0]["nesterov"] = i % 2 == 0
        losses.append(graph(to_sl(x)))
        expected += train(theirs, other, [x])
    assert [loss.item() for loss in losses] == pytest.approx(expected, rel=1e-9)


def test_switches_changed_after_compiling_are_honoured_each_time():
    (ours, optimizer), (theirs, other) = pair("SGD", {"lr": 0.001, "momentum": 0.9})
    graph = Training(ours, optimizer)
    for i, x in enumerate(batches(6)):
        for o in (optimizer, other):
            o.param_groups[0].update(maximize=i % 2 == 1, nesterov=i > 2, foreach=None)
        graph(to_sl(x))
        train(theirs, other, [x])
    assert_close(ours, theirs, 1e-9)


def test_state_cleared_after_compiling_begins_anew():
    (ours, optimizer), (theirs, other) = pair("Adam", {"lr": 0.01})
    graph = Training(ours, optimizer)
    inputs = batches(9)
    for i, x in enumerate(inputs):
        if i == 3:
            for o in (optimizer, other):
                o.state.clear()
        if i == 6:
            for o in (optimizer, other):
                o.load_state_dict({**o.state_dict(), "state": {}})
        graph(to_sl(x))
        train(theirs, other, [x])
    assert_close(ours, theirs, 1e-6)


def test_groups_added_after_compiling_are_updated():
    made = []
    for lib in (sl, torch):
        module = quadratic(lib)
        made.append((module, lib.optim.Adam([module.a], lr=0.01)))
    (ours, optimizer), (theirs, other) = made
    graph = Training(ours, optimizer)
    for i, x in enumerate(batches(8)):
        if i == 4:
            for module, o in made:
                o.add_param_group({"params": [module.b, module.c], "lr": 0.05})
        graph(to_sl(x))
        train(theirs, other, [x])
    assert_close(ours, theirs, 1e-6)


def test_attributes_of_schedules_changed_after_compiling_are_honoured():
    (ours, optimizer), (theirs, other) = pair("SGD", {"lr": 0.01})
    schedule, reference = (o_lib.optim.lr_scheduler.ExponentialLR(o, 0.9) for o_lib, o in ((sl, optimizer), (torch, other)))
    graph = Training(ours, optimizer, schedule)
    for i, x in enumerate(batches(8)):
        if i == 4:
            schedule.gamma = reference.gamma = 0.5
        graph(to_sl(x))
        train(theirs, other, [x], reference)
    assert_close(ours, theirs, 1e-9)
    assert schedule.get_last_lr() == pytest.approx(reference.get_last_lr(), rel=1e-9)


def test_tensors_as_hyperparameters():
    for name, make in (("Adam", lambda t: {"lr": t(0.01), "betas": (t(0.8), t(0.9))}), ("SGD", lambda t: {
            "lr": t(0.01), "weight_decay": t(0.1)})):
        made = []
        for lib in (sl, torch):
            module = quadratic(lib)
            made.append((module, getattr(lib.optim, name)(module.parameters(),
                                                          **make(lambda v, lib=lib: lib.tensor(v, dtype=lib.float64)))))
        (ours, optimizer), (theirs, other) = made
        graph_module, graph_optimizer = quadratic(sl), None
        graph_optimizer = getattr(sl.optim, name)(graph_module.parameters(), **make(lambda v: sl.tensor(v, dtype=sl.float64)))
        graph = Training(graph_module, graph_optimizer)
        for i, x in enumerate(batches(10)):
            if i == 5:
                for o in (optimizer, other, graph_optimizer):
                    (o.param_groups[0]["betas"][0] if name == "Adam" else o.param_groups[0]["weight_decay"]).mul_(0.5)
            train(theirs, other, [x])
            train(ours, optimizer, [to_sl(x)])
            graph(to_sl(x))
        assert_close(ours, theirs, 1e-6, name)
        assert_close(graph_module, theirs, 1e-6, name)
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        sl.optim.SGD([nn.Parameter(sl.ones(1))], lr=sl.ones(2))


def test_a_source_of_data_is_not_begun_anew_in_silence():
    def rows():
        for i in range(10):
            yield np.full((), float(i), dtype=np.float64)

    class Fed(nn.Graph):
        def __init__(self, module, optimizer):
            super().__init__()
            self.module = module
            self.add_optimizer(optimizer)

        def build(self):
            loss = self.module(sl.host_function(rows, out=((), sl.float64)) * 0.1)
            loss.backward()
            return loss

    module, optimizer = pair("SGD", {"lr": 0.01, "momentum": 0.9})[0]
    graph = Fed(module, optimizer)
    first = [graph().item() for _ in range(2)]
    optimizer.param_groups[0]["momentum"] = 0.5
    with pytest.raises(RuntimeError, match=r"momentum of parameter group 0: 0.9 was compiled, and it is 0.5\. .* generator of "
                                           r"data would begin anew"):
        graph()
    optimizer.param_groups[0]["momentum"] = 0.9
    assert graph().item() not in first


def test_several_plans_of_one_graph_follow_changes():
    @nn.Graph.with_dynamic_input_shape()
    class Shapes(Training):
        pass

    made = []
    for lib in (sl, torch):
        module = net(lib, "float64")
        made.append((module, lib.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)))
    (ours, optimizer), (theirs, other) = made
    graph = Shapes(ours, optimizer)
    for i, rows in enumerate([4, 2, 4, 2, 3, 4]):
        for o in (optimizer, other):
            o.param_groups[0]["momentum"] = 0.9 if i < 3 else 0.5
        x = torch.tensor(np.random.default_rng(i).normal(size=(rows, 6)))
        graph(to_sl(x))
        train(theirs, other, [x])
    assert_close(ours, theirs, 1e-9)
    assert len(graph.members) == 2 + 1


def test_rates_set_through_groups_held_since_before():
    module, optimizer = pair("SGD", {"lr": 0.01})[0]
    schedule = sl.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    group, graph = optimizer.param_groups[0], Training(module, optimizer, schedule)
    for x in ours_of(batches(3)):
        graph(x)
    group["lr"] = float("0.01")  # as it was when this group was last looked at
    graph(ours_of(batches(1))[0])
    assert schedule.get_last_lr() == [0.005]
