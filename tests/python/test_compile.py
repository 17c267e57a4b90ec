"""sluice.compile: values, gradients, modes, counters; torch is the oracle."""

import copy
import gc
import json
import pickle
import threading
import weakref

import pytest
import torch

import sluice as sl
import sluice.nn.functional as F
from sluice import nn
from sluice._compile.capture import Traced


@pytest.fixture(autouse=True)
def anew():
    sl.compile.reset()
    yield
    sl.compile.reset()


def test_a_module_shares_its_parameters_and_the_original_stays_eager():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled = sl.compile(net)
    assert compiled.state_dict().keys() == net.state_dict().keys()
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters()))
    assert isinstance(compiled, nn.Sequential) and compiled[0] is net[0] and len(compiled) == 3
    x = sl.randn(3, 4)
    assert sl.allclose(compiled(x), net(x), atol=1e-6)
    assert sl.compile.stats()["compiles"] == 1 and sl.compile.stats()["calls"] == 1
    net(x)
    assert sl.compile.stats()["calls"] == 1
    with sl.no_grad():
        net[0].weight.mul_(2)
    assert sl.allclose(compiled(x), net(x), atol=1e-6)
    compiled.eval()
    assert not net.training and not net[0].training


def test_a_function_compiles_once_per_shape():
    @sl.compile
    def softmax(x):
        e = (x - x.max(-1, keepdim=True).values).exp()
        return e / e.sum(-1, keepdim=True)

    assert softmax.__name__ == "softmax"
    for n, shape in enumerate([(2, 3), (4, 5), (3, 2, 2)], 1):
        x = sl.randn(*shape)
        for _ in range(2):
            assert sl.allclose(softmax(x), x.softmax(-1), atol=1e-6)
        assert sl.compile.stats(softmax)["compiles"] == n


def test_training_is_torchs():
    sl.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5))
    other = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(6 * 36, 5))
    other.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in net.state_dict().items()})
    compiled = sl.compile(net)
    ours, theirs = sl.optim.SGD(net.parameters(), 0.1, momentum=0.9), torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
    for step in range(4):
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        y = torch.arange(4)
        ours.zero_grad(), theirs.zero_grad()
        a, b = F.cross_entropy(compiled(sl.from_numpy(x.numpy())), sl.from_numpy(y.numpy())), torch.nn.functional.cross_entropy(other(x), y)
        a.backward(), b.backward()
        ours.step(), theirs.step()
        assert abs(a.item() - b.item()) < 1e-4
    for k, v in other.state_dict().items():
        assert abs(v.numpy() - net.state_dict()[k].numpy()).max() < 1e-4, k
    counts = sl.compile.stats()
    assert counts["compiles"] == 1 and counts["backward_plans"] == 1 and counts["eager_calls"] == 0


@pytest.mark.parametrize("mode", [None, "max-autotune"])
def test_what_the_backward_pass_reads_is_handed_on_as_it_lies(monkeypatch, mode):
    plans, planned = [], Traced.planned

    def noted(graph, *given):
        call = planned(graph, *given)
        plans.append(json.loads(call.session.plan_json()))
        return call

    monkeypatch.setattr(Traced, "planned", noted)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3),
                        nn.Flatten(1, 2), nn.Softmax(-1))
    other = copy.deepcopy(net)
    compiled, x = sl.compile(net, mode=mode), sl.randn(2, 3, 8, 8)
    y = compiled(x)
    (y * y).sum().backward()
    expected = other(x)
    (expected * expected).sum().backward()
    assert y.shape == expected.shape == (2, 12, 2) and sl.allclose(y, expected, atol=1e-6)
    assert all(sl.allclose(a.grad, b.grad, atol=1e-5) for a, b in zip(net.parameters(), other.parameters()))
    assert [o["axes"] for o in plans[0]["outputs"] if "axes" in o].count([0, 2, 3, 1]) >= 3
    copied = {k["name"] for k in plans[-1]["kernels"] if k["op"] == "copy" and k["name"].startswith("tensors.")}
    assert copied <= {"tensors.0/copy", "tensors.1/copy"}, copied  # the gradient and the argument


def test_modes_are_compiled_once_each():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled, eager = sl.compile(net), copy.deepcopy(net)
    for mode in (True, False, True):
        compiled.train(mode), eager.train(mode)
        for _ in range(5):
            x = sl.randn(6, 4)
            assert sl.allclose(compiled(x), eager(x), atol=1e-5)
    assert sl.compile.stats(compiled)["compiles"] == 2
    assert sl.allclose(net[1].running_mean, eager[1].running_mean, atol=1e-6) and net[1].num_batches_tracked == 10


def test_copies_and_pickles_are_compiled_anew():
    net = sl.compile(nn.Linear(3, 3), mode="default", options={"recompile_limit": 4})
    x = sl.randn(2, 3)
    expected = net(x)
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert made.weight is not net.weight and sl.allclose(made(x), expected)
        assert sl.compile.stats(made)["compiles"] == 1 and made._region.settings.options["recompile_limit"] == 4


def test_in_place_compile_of_a_module():
    net = nn.Linear(3, 3)
    assert net.compile() is None
    x = sl.randn(2, 3)
    assert sl.allclose(net(x), F.linear(x, net.weight, net.bias), atol=1e-6)
    assert sl.compile.stats(net)["compiles"] == 1
    assert copy.deepcopy(net)._compiled_call_impl is None
    pickle.dumps(net)


def test_threads_share_one_compiled_object():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    compiled, failures = sl.compile(net), []

    def work(seed):
        x = sl.randn(4, 8, generator=sl.Generator().manual_seed(seed)).requires_grad_()
        for _ in range(10):
            (g,) = sl.autograd.grad(compiled(x).sum(), [x])
            (e,) = sl.autograd.grad(net(x).sum(), [x])
            if not sl.allclose(g, e, atol=1e-6):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures and sl.compile.stats(compiled)["compiles"] == 1


@pytest.mark.parametrize("use", [lambda y, x: None, lambda y, x: y.sum().backward(), lambda y, x: sl.autograd.grad(y.sum(), [x])],
                         ids=["forward", "backward", "grad"])
def test_what_is_dropped_is_let_go_with_its_backward_pass(use):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled, gone = sl.compile(net, fullgraph=True), weakref.ref(net[0])
    for rows in (2, 3):
        x = sl.ones(rows, 4, requires_grad=True)
        use(compiled(x), x)
    del net, compiled
    gc.collect()
    assert gone() is None


def test_results_that_share_memory_do_so():
    """One is a view of another, or both are views of what is no result; with gradients, and after writes."""
    def program(m, x):
        w = x * 2
        v = x.exp().t()
        return w, w[0], w.view(-1)[1:], v[1:], v[:, :2], x + 1

    ours, results = sl.compile(lambda x: program(sl, x), fullgraph=True), []
    for m, call in ((torch, lambda x: program(torch, x)), (sl, ours)):
        x = m.arange(12.0).reshape(3, 4).div(9).requires_grad_()
        made = call(x)
        sum((r * r).sum() for r in made).backward()
        with m.no_grad():
            made[0].add_(1)
            made[3].mul_(2)
        results.append([*made, x.grad])
        assert made[1]._base is made[0] or m is torch
    for a, b in zip(*results):
        assert b.detach().numpy() == pytest.approx(a.detach().numpy(), rel=1e-5)
    assert sl.compile.stats(ours)["eager_calls"] == 0
