"""Optimizers' groups, state and hooks as torch has them, and what of them may change once a graph is compiled."""

import copy
import importlib
import io
import pickle

import numpy as np
import pytest
import torch
from conftest import to_sl
from optimizing import Training, assert_close, batches, net, ours_of, pair, quadratic, train, values
from test_optimizers import FIRST

import sluice as sl
import sluice.nn as nn

FIRST = [case for case in FIRST if case[0] != "Adagrad"] + [("Adagrad", {"lr": 0.1, "lr_decay": 0.05})]


def to_torch(value):
    if isinstance(value, sl.Tensor):
        return torch.from_numpy(value.detach().numpy().copy())
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    return type(value)(map(to_torch, value)) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name, options", FIRST, ids=str)
def test_state_goes_to_torch_and_back(name, options):  # LR-15
    (ours, optimizer), (theirs, other) = pair(name, options)
    inputs = batches(30)
    train(ours, optimizer, ours_of(inputs[:10]))
    train(theirs, other, inputs[:10])
    state, expected = optimizer.state_dict(), other.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    assert state["state"].keys() == expected["state"].keys()
    for number, entries in expected["state"].items():
        assert state["state"][number].keys() == entries.keys()
        for key, value in entries.items():
            found = state["state"][number][key]
            assert found.shape == value.shape and found.dtype.name == str(value.dtype).removeprefix("torch.")
            np.testing.assert_allclose(found.numpy(), value.numpy(), rtol=1e-5, atol=1e-12)
    # Ours into a new one of torch, torch's into a new one of ours, and into one that a graph runs.
    (again, restored), (there, taken) = pair(name, options)
    in_graph, planned = pair(name, options)[0]
    graph = Training(in_graph, planned)
    graph(ours_of(inputs[:1])[0])
    for module in (again, in_graph):
        for p, q in zip(module.parameters(), theirs.parameters()):
            with sl.no_grad():
                p.copy_(to_sl(q))
    with torch.no_grad():
        for p, q in zip(there.parameters(), ours.parameters()):
            p.copy_(to_torch(q))
    taken.load_state_dict(to_torch(state))
    restored.load_state_dict(expected)
    planned.load_state_dict(expected)
    call = graph._call
    train(theirs, other, inputs[10:])
    train(there, taken, inputs[10:])
    train(again, restored, ours_of(inputs[10:]))
    for x in ours_of(inputs[10:]):
        graph(x)
    assert graph._call is call
    assert_close(ours_like(there), theirs, 1e-6)
    assert_close(again, theirs, 3e-6)
    assert_close(in_graph, theirs, 3e-6)


def ours_like(module):
    """The parameters of a module of torch as those of one of ours."""
    made = nn.Module()
    for name, p in module.named_parameters():
        made.register_parameter(name, nn.Parameter(to_sl(p.detach())))
    return made


def test_named_parameters_and_groups():  # LR-16
    found = []
    for lib in (sl, torch):
        module = net(lib, "float64")
        optimizer = lib.optim.AdamW(module.named_parameters(), lr=0.01)
        found.append((optimizer.param_groups[0]["param_names"], repr(optimizer)))
        optimizer.add_param_group({"params": [("extra", lib.nn.Parameter(lib.ones(1)))], "lr": 0.5})
        assert optimizer.param_groups[1]["param_names"] == ["extra"]
        state = optimizer.state_dict()
        assert state["param_groups"][0]["param_names"] == found[-1][0]
        nameless = lib.optim.AdamW([{"params": list(module.parameters())}, {"params": [lib.nn.Parameter(lib.ones(1))]}])
        nameless.load_state_dict(state)
        found[-1] += (repr(nameless), nameless.param_groups[1]["lr"])
        for wrong, message in [([("a", lib.nn.Parameter(lib.ones(1))), lib.nn.Parameter(lib.ones(1))], "with/without names"),
                               ([{"params": [("a", lib.nn.Parameter(lib.ones(1)))]},
                                 {"params": [lib.nn.Parameter(lib.ones(1))]}],
                                "cannot add param group without names")]:
            with pytest.raises(ValueError, match=message):
                lib.optim.SGD(wrong, lr=0.1)
    assert found[0] == found[1]


def test_biases_without_decay():  # LR-16
    found = []
    for lib in (sl, torch):
        module = net(lib, "float64")
        if lib is sl:
            groups = sl.optim.weight_decay_groups(module.named_parameters(), 0.1, exclude=["bias$"])
            assert [g["params"] for g in groups] == [[(n, p) for n, p in module.named_parameters() if ("bias" in n) == b]
                                                     for b in (0, 1)]
            same = sl.optim.weight_decay_groups(module.named_parameters(), 0.1, include=["weight"])
            assert [[n for n, _ in g["params"]] for g in same] == [[n for n, _ in g["params"]] for g in groups]
        else:
            groups = [{"params": [p for n, p in module.named_parameters() if ("bias" in n) == b],
                       "weight_decay": 0.0 if b else 0.1}
                      for b in (False, True)]
        groups[1]["momentum"] = 0.5
        found.append((module, lib.optim.SGD(groups, lr=0.05, momentum=0.9)))
    (ours, optimizer), (theirs, other) = found
    graph = Training(ours, optimizer)
    inputs = [torch.tensor(np.random.default_rng(i).normal(size=(4, 6))) for i in range(20)]
    for x in ours_of(inputs):
        graph(x)
    train(theirs, other, inputs)
    assert_close(ours, theirs, 1e-6)
    with pytest.raises(ValueError, match="either include or exclude"):
        sl.optim.weight_decay_groups(ours.named_parameters(), 0.1)


def test_hooks_of_steps_and_states():
    found = []
    for lib in (sl, torch):
        module, calls = quadratic(lib), []
        optimizer = lib.optim.SGD(module.parameters(), lr=0.01)
        handles = [
            optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(("pre", o is optimizer, len(args), kwargs))),
            optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(("post", len(args), kwargs))),
            optimizer.register_state_dict_pre_hook(lambda o: calls.append("saving")),
            optimizer.register_state_dict_post_hook(lambda o, state: calls.append("saved") or {**state, "note": 3}),
            optimizer.register_state_dict_post_hook(lambda o, state: calls.append("first"), prepend=True),
            optimizer.register_load_state_dict_pre_hook(
                lambda o, state: calls.append("loading") or {k: state[k] for k in state if k != "note"}),
            optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded")),
        ]
        base = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        of_all = base.register_optimizer_step_post_hook(lambda o, args, kwargs: calls.append("any"))
        x = batches(1)[0] if lib is torch else ours_of(batches(1))[0]
        train(module, optimizer, [x])
        train(module, optimizer, [x], closure=True)
        state = optimizer.state_dict()
        assert state["note"] == 3
        optimizer.load_state_dict(state)
        for handle in [*handles, of_all]:
            handle.remove()
        train(module, optimizer, [x])
        found.append(calls)
        wrong = optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
        with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\), but got 3"):
            optimizer.step()
        wrong.remove()
    assert found[0] == found[1] and len(found[0]) > 10


def test_hooks_run_once_where_a_step_calls_that_of_its_base():
    calls = []

    class Own(sl.optim.SGD):
        def step(self, closure=None):
            calls.append("own")
            return super().step(closure)

    module = quadratic(sl)
    own = Own(module.parameters(), lr=0.01)
    own.register_step_pre_hook(lambda o, args, kwargs: calls.append("hook"))
    train(module, own, ours_of(batches(1)))
    assert calls == ["hook", "own"]


def test_a_hook_may_scale_gradients_in_a_graph():
    def halve(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)

    (ours, optimizer), (theirs, other) = pair("SGD", {"lr": 0.02, "momentum": 0.9})
    for o in (optimizer, other):
        o.register_step_pre_hook(halve)
    graph = Training(ours, optimizer)
    inputs = batches(5)
    for x in ours_of(inputs):
        graph(x)
    train(theirs, other, inputs)
    assert_close(ours, theirs, 1e-9)


def test_optimizers_can_be_copied_and_pickled():
    module, optimizer = pair("Adam", {"lr": 0.01})[0]
    inputs = ours_of(batches(6))
    train(module, optimizer, inputs[:3])
    both, again = copy.deepcopy((module, optimizer)), pickle.loads(pickle.dumps(optimizer))
    assert all(a is b for a, b in zip(both[1].param_groups[0]["params"], both[0].parameters()))
    train(module, optimizer, inputs[3:])
    train(*both, inputs[3:])
    assert_close(module, both[0], 1e-15)
    assert [k for k in again.state_dict()["state"]] == [0, 1, 2] and repr(again) == repr(optimizer)
    with io.BytesIO() as file:
        pickle.dump(sl.optim.lr_scheduler.StepLR(optimizer, 2), file)


class CustomOptimizer(sl.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        with sl.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("sum", sl.zeros_like(p)).add_(p.grad)
                    p.add_(state["sum"], alpha=-group["lr"])


def test_optimizers_of_torch_users_are_eager():
    module, expected = quadratic(sl), quadratic(sl)
    optimizer = CustomOptimizer(module.parameters(), 0.01)
    train(module, optimizer, ours_of(batches(5)))
    train(expected, sl.optim.SGD(expected.parameters(), lr=0.01, momentum=1.0), ours_of(batches(5)))
    assert_close(module, expected, 1e-12)
    with pytest.raises(NotImplementedError, match=r"CustomOptimizer has a step\(\) of its own, .* define _init_state\(\) and "
                                                  r"_update\(\)"):
        Training(module, optimizer)


@pytest.mark.parametrize("name, options", FIRST, ids=str)
def test_parameters_of_sixteen_bits(name, options):
    options = {**options, "eps": 1e-4} if name in ("RMSprop", "Adadelta") else options
    (ours, optimizer), _ = pair(name, options, "bfloat16", quadratic_of(sl))
    graph_module, graph_optimizer = pair(name, options, "bfloat16", quadratic_of(sl))[0]
    (exact, reference), _ = pair(name, options, "float32", quadratic_of(sl))
    graph = Training(graph_module, graph_optimizer)
    for x in batches(3, "float32"):
        x = to_sl(x)
        train(ours, optimizer, [x.to(sl.bfloat16)])
        graph(x.to(sl.bfloat16))
        train(exact, reference, [x])
    for a, b, c in zip(ours.parameters(), graph_module.parameters(), exact.parameters()):
        assert a.dtype is sl.bfloat16
        for found in (a, b):
            np.testing.assert_allclose(found.detach().float().numpy(), c.detach().numpy(),
                                       atol=0.05 * np.abs(c.detach().numpy()).max())


def quadratic_of(lib):
    def make(other, dtype):
        return quadratic(other, dtype if other is lib else "float32")

    return make


# Changes after a graph is compiled


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


@pytest.mark.parametrize("name, options", [("Adafactor", {"lr": 0.1}), ("LAMB", {"lr": 0.1}), ("LARS", {"lr": 1.0}),
                                           ("NAdam", {}), ("SGD", {
    "lr": 0.1, "momentum": 0.9})], ids=str)
def test_micro_batches_are_one_step(name, options):
    graphs = []
    for n in (1, 4):
        module = net(sl, "float64")
        optimizer = getattr(sl.optim, name)(module.parameters(), **options)
        graphs.append(Training(nn.Sequential(module, Mean()), optimizer, sl.optim.lr_scheduler.CyclicLR(optimizer, 0.05, 0.1, 3,
                                                                                                    cycle_momentum="momentum" in options), n))
    for i in range(6):
        x = sl.tensor(np.random.default_rng(i).normal(size=(8, 6)))
        for graph in graphs:
            graph(x)
    for a, b in zip(*(values(graph.module) for graph in graphs)):
        np.testing.assert_allclose(a, b, rtol=1e-9)


class Mean(nn.Module):
    def forward(self, x):
        return x.square().mean()


def test_step_inside_build():
    def graph_of(build, add=True):
        module, optimizer = pair("SGD", {"lr": 0.02, "momentum": 0.9})[0]
        schedule = sl.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        class Own(nn.Graph):
            def __init__(self):
                super().__init__()
                self.module = module
                if add:
                    self.add_optimizer(optimizer, schedule)

            def build(self, x):
                loss = module(x)
                loss.backward()
                build(optimizer, schedule)
                return loss

        return module, Own()

    usual, graph = graph_of(lambda optimizer, schedule: None)
    inputs = ours_of(batches(5))
    for x in inputs:
        graph(x)
    for own in (lambda o, s: (o.step(), s.step()), lambda o, s: o.step()):
        module, graph = graph_of(own)
        for x in inputs:
            graph(x)
        assert_close(module, usual, 1e-15)
    for own, add, message in [(lambda o, s: o.step(), False, r"SGD.step\(\): inside build.* does not have the optimizer"),
                              (lambda o, s: s.step(), False, r"StepLR.step\(\): inside build.* does not have the schedule"),
                              (lambda o, s: (o.step(), o.step()), True, r"SGD.step\(\): called twice inside build"),
                              (lambda o, s: (o.step(), s.step(), s.step()), True,
                               r"StepLR.step\(\): called twice inside build")]:
        with pytest.raises(RuntimeError, match=message):
            graph_of(own, add)[1](inputs[0])


def test_misuse():
    p = nn.Parameter(sl.ones(1))
    other = nn.Parameter(sl.ones(1))
    for lib, p in ((sl, p), (torch, torch.nn.Parameter(torch.ones(1)))):
        o = lib.optim
        for wrong, kind, message in [
            (lambda: o.Adam([p], lr=-1), ValueError, "Invalid learning rate: -1"),
            (lambda: o.Adam([p], eps=-1), ValueError, "Invalid epsilon value"),
            (lambda: o.NAdam([p], betas=(0.9, 1.0)), ValueError, "Invalid beta parameter at index 1: 1.0"),
            (lambda: o.RMSprop([p], momentum=-1), ValueError, "Invalid momentum value"),
            (lambda: o.Adagrad([p], lr_decay=-1), ValueError, "lr_decay"),
            (lambda: o.Adadelta([p], rho=2), ValueError, "Invalid rho value: 2"),
            (lambda: o.Rprop([p], etas=(1, 2)), ValueError, "Invalid eta values: 1, 2"),
            (lambda: o.Adafactor([p], d=0.5), ValueError, "Clipping threshold d should be >= 1"),
            (lambda: o.Adafactor([p], beta2_decay=1), ValueError, "beta2_decay should be <= 0"),
            (lambda: o.SGD([], lr=1), ValueError, "empty parameter list"),
            (lambda: o.SGD({p}, lr=1).add_param_group({"params": {p}}), TypeError, "ordered collections|ordering"),
            (lambda: o.SGD([p * 2], lr=1), ValueError, "can't optimize a non-leaf Tensor"),
            (lambda: o.SGD([3], lr=1), TypeError, "only optimize Tensors"),
            (lambda: o.Adam([p], fused=True, foreach=True), RuntimeError, "cannot be `True` together"),
            (lambda: o.SGD([p], lr=1).load_state_dict(o.SGD([{"params": [p]}, {"params": []}], lr=1).state_dict()), ValueError,
             "different number of parameter groups"),
            (lambda: o.SGD([p], lr=1).load_state_dict(o.SGD([{"params": [p, lib.nn.Parameter(lib.ones(1))]}],
                                                            lr=1).state_dict()), ValueError,
             "doesn't match the size of optimizer's group"),
            (lambda: o.SGD([p], lr=1).add_param_group(3), TypeError, "param_group must be a dict"),
            (lambda: o.Muon([p]), ValueError, "only supports 2D"),
        ]:
            with pytest.raises(kind, match=message):
                wrong()
        with pytest.warns(UserWarning, match="duplicate parameters"):
            o.SGD([p, p], lr=1)
    with pytest.raises(NotImplementedError, match="differentiable=True"):
        sl.optim.Adam([other], differentiable=True)
    with pytest.raises(AttributeError, match="LazyAdam leaves rows alone"):
        sl.optim.SparseAdam
    module, optimizer = pair("SGD", {"lr": 1})[0]
    graph = Training(module, optimizer)
    _, unrelated = pair("SGD", {"lr": 1})[0]
    for wrong, kind, message in [
        (lambda: graph.add_optimizer(optimizer), ValueError, "the graph has this SGD already"),
        (lambda: graph.add_optimizer(3), TypeError, "got int"),
        (lambda: graph.add_optimizer(unrelated, 3), TypeError, "lr_sch is int"),
        (lambda: graph.add_optimizer(unrelated, sl.optim.lr_scheduler.StepLR(optimizer, 1)), ValueError, "of another optimizer"),
        (lambda: graph.add_optimizer(pair("RMSprop", {})[0][1], is_sparse=True), NotImplementedError, "does not update row by row")]:
        with pytest.raises(kind, match=message):
            wrong()


def test_parameters_without_gradients_are_left_alone():
    for name in ("SGD", "Adam", "Rprop"):
        found = []
        for lib in (sl, torch):
            module = quadratic(lib)
            unused = lib.nn.Parameter(lib.ones(2, dtype=lib.float64))
            module.b.requires_grad_(False)
            optimizer = getattr(lib.optim, name)([*module.parameters(), unused], lr=0.01,
                                                 **({} if name == "Rprop" else {"weight_decay": 0.1}))
            train(module, optimizer, batches(3) if lib is torch else ours_of(batches(3)))
            optimizer.zero_grad(set_to_none=False)
            assert float(module.a.grad.abs().sum()) == 0 and unused.grad is None
            found.append((module, unused, sorted(optimizer.state_dict()["state"])))
        assert_close(found[0][0], found[1][0], 1e-6)
        assert found[0][1].tolist() == [1, 1] and found[0][2] == found[1][2]


@pytest.mark.parametrize("how", ["broadcast", "zero", "split"])
@pytest.mark.parametrize("name", ["Adagrad", "Rprop", "Adafactor", "LAMB", "FTRL", "RMSprop"])
def test_parameters_of_two_devices(name, how):
    def trained(how):
        module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), Mean()).to(sl.float64)
        with sl.no_grad():
            for i, p in enumerate(module.parameters()):
                p.copy_(sl.tensor(np.random.default_rng(i).normal(size=tuple(p.shape))))
        if how:
            module.to_global(places, sl.sbp.split(0) if how == "split" else sl.sbp.broadcast)
        optimizer = getattr(sl.optim, name)(module.parameters(), lr=0.05)
        graph = Training(module, optimizer, sl.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
        if how == "zero":
            graph.config.enable_zero(stage=3, shard_min_size=1)
        for i in range(4):
            x = sl.tensor(np.random.default_rng(i).normal(size=(4, 6)))
            graph(x.to_global(places, sl.sbp.split(0)) if how else x)
        return [(p.to_local() if how else p).detach().numpy() for p in module.parameters()]

    places = sl.placement("sim", [0, 1])
    for a, b in zip(trained(how), trained(None)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


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


@pytest.mark.parametrize("name, options", FIRST, ids=str)
def test_odd_gradients_give_what_they_give_torch(name, options):
    gradients = [np.array([np.nan, np.inf, 1.0, -0.0, -np.inf]), np.array([1.0, 2.0, -1.0, 0.0, 1e300])]
    for kind in ("bad", "transposed", "empty"):
        if kind == "empty" and name == "Adafactor":
            continue  # torch divides by zero
        found = []
        for lib in (sl, torch):
            start = {"bad": np.ones(5), "transposed": np.arange(6.0).reshape(2, 3), "empty": np.zeros((0, 3))}[kind]
            p = lib.nn.Parameter(lib.tensor(start).T if kind == "transposed" else lib.tensor(start))
            optimizer = getattr(lib.optim, name)([p], **options)
            for i in range(3):
                p.grad = lib.tensor(gradients[i % 2] if kind == "bad" else np.full(p.shape, i - 1.5))
                optimizer.step()
            found.append(p.detach().numpy())
        np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-12, err_msg=kind)


def test_closures_and_what_they_return():
    found = []
    for lib in (sl, torch):
        p = lib.nn.Parameter(lib.ones(2, dtype=lib.float64))
        optimizer = lib.optim.Adam([p], lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = (p ** 2).sum()
            loss.backward()
            return loss

        with lib.no_grad():
            losses = [optimizer.step(closure), optimizer.step(closure=closure)]
        found.append([*(float(loss.detach()) for loss in losses), optimizer.step(lambda: 3), optimizer.step(), *p.tolist()])
        with pytest.raises(TypeError):
            lib.optim.LBFGS([p]).step()
    np.testing.assert_allclose(*([v for v in f if v is not None] for f in found), rtol=1e-6)
    assert found[0][3] is None
