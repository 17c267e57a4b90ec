"""Optimizers' groups, state and hooks as torch has them."""

import copy
import importlib
import io
import pickle

import numpy as np
import pytest
import torch
from conftest import to_sl
from optimizing import Training, assert_close, batches, net, ours_of, pair, quadratic, train

import sluice as sl
import sluice.nn as nn
from optimizer_cases import FIRST, quadratic_of


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
