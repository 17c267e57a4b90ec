"""Steps of optimizers in graphs: micro-batches, steps in build(), misuse, odd gradients, closures."""

import numpy as np
import pytest
import torch
from optimizing import Training, assert_close, batches, net, ours_of, pair, quadratic, train, values

import sluice as sl
import sluice.nn as nn
from optimizer_cases import FIRST


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
