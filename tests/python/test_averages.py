"""Averaged weights (optim.swa_utils) and clipped gradients (nn.utils) against torch."""

import copy

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from optimizing import Training, assert_close, batches, net, ours_of, quadratic, train

import sluice as sl
import sluice.nn as nn


def swa(lib):
    return lib.optim.swa_utils


AVERAGES = {
    "equal": lambda lib: {}, "ema": lambda lib: {"multi_avg_fn": swa(lib).get_ema_multi_avg_fn(0.8)},
    "ema one by one": lambda lib: {"avg_fn": swa(lib).get_ema_avg_fn(0.9), "use_buffers": True},
    "equal one by one": lambda lib: {"avg_fn": swa(lib).get_swa_avg_fn()},
    "equal lists": lambda lib: {"multi_avg_fn": swa(lib).get_swa_multi_avg_fn()},
    "own": lambda lib: {"avg_fn": lambda a, p, n: a * 0.25 + p * 0.75 / (n + 1)},
}


def with_norm(lib):
    module = lib.nn.Sequential(lib.nn.Linear(6, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 3)).to(lib.float64)
    with lib.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(lib.tensor(np.random.default_rng(i).normal(size=tuple(p.shape))))
    return module


@pytest.mark.parametrize("what", AVERAGES)
def test_averaged_models_equal_torchs(what):  # OE-17
    inputs = [torch.tensor(np.random.default_rng(i).normal(size=(8, 6))) for i in range(6)]
    found = []
    for lib in (sl, torch):
        module = with_norm(lib)
        average = swa(lib).AveragedModel(module, **AVERAGES[what](lib))
        optimizer = lib.optim.SGD(module.parameters(), lr=1e-3)
        schedule = swa(lib).SWALR(optimizer, 5e-4, anneal_epochs=3)
        graph = Training(module, optimizer, schedule) if lib is sl else None
        for x in inputs:
            graph(to_sl(x)) if graph else train(module, optimizer, [x], schedule)
            average.update_parameters(module)
        found.append((average, module))
    (ours, module), (theirs, other) = found
    assert_close(module, other, 1e-9)
    tolerance = 1e-6 if "lists" in what else 1e-9  # torch's shares of lists are of float32
    assert_close(ours.module, theirs.module, tolerance)
    assert int(ours.n_averaged) == 6
    for (name, a), b in zip(ours.named_buffers(), theirs.buffers()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, err_msg=name)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    swa(sl).update_bn([(to_sl(x), 0) for x in inputs], ours)
    swa(torch).update_bn([(x, 0) for x in inputs], theirs)
    ours.eval(), theirs.eval()
    assert_same(ours(to_sl(inputs[0])), theirs(inputs[0]), tolerance)
    again = swa(sl).AveragedModel(with_norm(sl))
    again.load_state_dict(ours.state_dict())
    assert_close(again, ours, 1e-15)
    assert copy.deepcopy(again).n_averaged.item() == 6


def test_misuse_of_averages():
    for lib in (sl, torch):
        with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
            swa(lib).AveragedModel(with_norm(lib), avg_fn=max, multi_avg_fn=max)
        with pytest.raises(ValueError, match="Invalid decay value 1.5"):
            swa(lib).get_ema_avg_fn(1.5)
        plain = lib.nn.Linear(2, 2)
        assert swa(lib).update_bn([lib.ones(1, 2)], plain) is None
    model, average = with_norm(sl), None
    average = swa(sl).AveragedModel(model)

    class Inside(nn.Graph):
        def build(self, x):
            average.update_parameters(model)
            return x

    with pytest.raises(RuntimeError, match=r"update_parameters: inside build\(\)"):
        Inside()(sl.ones(1))


def test_update_bn_restores_the_model_when_a_batch_fails():
    model = with_norm(sl).eval()
    model[1].momentum = 0.3
    with pytest.raises(RuntimeError, match="feature counts differ"):
        swa(sl).update_bn([sl.ones(3, 5, dtype=sl.float64)], model)
    assert model[1].momentum == 0.3 and not model.training


# Clipping


GRADS = [(5, 3), (4,), (), (0, 2)]


def parameters(lib, scale=1.0, dtypes=("float32",)):
    made = []
    for i, shape in enumerate(GRADS):
        p = lib.nn.Parameter(lib.zeros(shape, dtype=getattr(lib, dtypes[i % len(dtypes)])))
        p.grad = lib.tensor(np.random.default_rng(i).normal(size=shape) * scale, dtype=p.dtype)
        made.append(p)
    made.append(lib.nn.Parameter(lib.ones(2)))  # without a gradient
    return made


@pytest.mark.parametrize("norm_type", [2.0, 1, 3.5, "inf", float("inf"), 0, 0.5])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("dtypes", [("float32",), ("float64", "float32")], ids=["one dtype", "two"])
def test_clipping_of_norms_equals_torch(norm_type, scale, dtypes):  # OE-18
    ours, theirs = parameters(sl, scale, dtypes), parameters(torch, scale, dtypes)
    if norm_type in ("inf", float("inf")):  # a maximum of nothing is an error in torch
        ours, theirs = [[p for p in ps if p.numel()] for ps in (ours, theirs)]
    found = sl.nn.utils.clip_grad_norm_((p for p in ours), 1.5, norm_type, foreach=None)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 1.5, norm_type)
    assert_same(found, expected, 1e-6)
    for p, q in zip(ours[:-1], theirs[:-1]):
        assert_same(p.grad, q.grad, 1e-6)
    assert ours[-1].grad is None


def test_norms_and_values():
    ours, theirs = parameters(sl), parameters(torch)
    for norm_type in (2, 1.0, float("-inf")):
        grads = [[p.grad for p in ps[:3]] for ps in (ours, theirs)]
        assert_same(sl.nn.utils.get_total_norm(grads[0], norm_type), torch.nn.utils.get_total_norm(grads[1], norm_type), 1e-6)
    assert_same(sl.nn.utils.get_total_norm([]), torch.nn.utils.get_total_norm([]))
    assert_same(sl.nn.utils.get_total_norm(ours[0].grad), torch.nn.utils.get_total_norm(theirs[0].grad), 1e-6)
    for lib, ps in ((sl, ours), (torch, theirs)):
        lib.nn.utils.clip_grads_with_norm_(ps, 0.5, lib.tensor(2.0))
        lib.nn.utils.clip_grads_with_norm_(ps[0], 5.0, lib.tensor(2.0))
        lib.nn.utils.clip_grad_value_(ps, 0.1, foreach=None)
        lib.nn.utils.clip_grad_value_(ps[1], 0.01)
        assert lib.nn.utils.clip_grad_norm_([], 1.0).item() == 0
        with pytest.warns(UserWarning, match="empty generator"):
            lib.nn.utils.clip_grad_norm_((p for p in []), 1.0)
        with pytest.warns(FutureWarning, match="deprecated"):
            lib.nn.utils.clip_grad_norm(ps, 1.0)
    for p, q in zip(ours[:-1], theirs[:-1]):
        assert_same(p.grad, q.grad, 1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_norms_that_are_not_finite(bad):
    for lib in (sl, torch):
        ps = parameters(lib)
        ps[1].grad[2] = bad
        with pytest.raises(RuntimeError, match="The total norm of order 2.0 for gradients from `parameters` is non-finite"):
            lib.nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
        with pytest.raises(RuntimeError, match="non-finite"):
            lib.nn.utils.get_total_norm([p.grad for p in ps if p.grad is not None], error_if_nonfinite=True)
        before = ps[0].grad.clone()
        assert not np.isfinite(lib.nn.utils.clip_grad_norm_(ps, 1.0).item())
        assert (np.isnan(ps[0].grad.numpy()).all() if np.isnan(bad) else (ps[0].grad == 0).all()) and before.isfinite().all()


class Clipped(nn.Graph):
    def __init__(self, module, optimizer, **options):
        super().__init__()
        self.module, self.options = module, options
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.module(x).sum()
        loss.backward()
        return nn.utils.clip_grad_norm_(self.module.parameters(), 1.0, **self.options)


@pytest.mark.parametrize("options", [{}, {"norm_type": 1.0}, {"norm_type": "inf"}, {"error_if_nonfinite": True}], ids=str)
def test_clipping_in_graphs_equals_torch(options):  # OE-18: nothing is read back
    ours, theirs = quadratic(sl), quadratic(torch)
    graph = Clipped(ours, sl.optim.SGD(ours.parameters(), lr=0.1, momentum=0.5), **options)
    other = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.5)
    for x in batches(12):
        norm = graph(to_sl(x))
        other.zero_grad()
        theirs(x).backward()
        expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0, **options)
        other.step()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-9)
    assert_close(ours, theirs, 1e-9)
    if "error_if_nonfinite" in options:
        before = [p.detach().clone().numpy() for p in ours.parameters()]
        with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
            graph(sl.tensor(float("nan"), dtype=sl.float64)).item()
        for p, q in zip(ours.parameters(), before):
            np.testing.assert_array_equal(p.detach().numpy(), q)


def test_clipping_by_groups_follows_changes():
    found = []
    for limit in (0.5, 0.1):
        module = net(sl, "float64")
        optimizer = sl.optim.SGD([{"params": module.parameters(), "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}],
                                 lr=1.0)
        graph = Training(module, optimizer)
        before = [p.detach().clone().numpy() for p in module.parameters()]
        graph(ours_of(batches(1))[0] * sl.ones(4, 6, dtype=sl.float64) * 100)
        optimizer.param_groups[0]["clip_grad_max_norm"] = limit
        middle = [p.detach().clone().numpy() for p in module.parameters()]
        graph(ours_of(batches(1))[0] * sl.ones(4, 6, dtype=sl.float64) * 100)
        after = [p.detach().numpy() for p in module.parameters()]
        distance = lambda a, b: np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(a, b)))  # noqa: E731
        found.append((distance(before, middle), distance(middle, after)))
    assert found == [pytest.approx((0.5, 0.5), rel=1e-4), pytest.approx((0.5, 0.1), rel=1e-4)]


def test_clipping_reads_nothing_back(monkeypatch):  # OE-18
    ours, theirs = parameters(sl), parameters(torch)

    def read(self, *_):
        raise AssertionError("a tensor was read")

    with monkeypatch.context() as patched:
        for name in ("item", "numpy", "tolist", "__bool__", "__float__"):
            patched.setattr(sl.Tensor, name, read)
        norm = nn.utils.clip_grad_norm_(ours, 1.0)
        nn.utils.clip_grad_value_(ours, 0.2)
    assert_same(norm, torch.nn.utils.clip_grad_norm_(theirs, 1.0), 1e-6)
    torch.nn.utils.clip_grad_value_(theirs, 0.2)
    for p, q in zip(ours[:-1], theirs[:-1]):
        assert_same(p.grad, q.grad, 1e-6)
