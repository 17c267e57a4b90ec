"""Hooks of modules against torch's, eager and in graphs."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import assert_same

import sluice as sl
import sluice.nn as nn
from module_pairs import both, pair

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning",
                                        "ignore:Initializing zero-element tensors:UserWarning")


def hooked(m, log, lib):
    """Hooks of every kind on a Linear; what they see goes to `log`."""
    def note(name, *values):
        log.append((name, [[None if t is None else np.asarray(t.detach().numpy()) for t in v] for v in values]))

    m.register_forward_pre_hook(lambda mod, args: note("pre", args))
    m.register_forward_pre_hook(lambda mod, args, kwargs: ((args[0] * kwargs.pop("by", 1),), kwargs), with_kwargs=True, prepend=True)
    m.register_forward_hook(lambda mod, args, out: note("post", args, (out,)))
    m.register_forward_hook(lambda mod, args, kwargs, out: out * 3, with_kwargs=True, prepend=True)
    m.register_full_backward_pre_hook(lambda mod, go: (note("backward pre", go), (go[0] * 2,))[1])
    m.register_full_backward_hook(lambda mod, gi, go: note("backward", gi, go))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 5,), prepend=True)
    return m


def test_hooks_see_and_change_what_torchs_do():  # PD-09, PD-10
    logs = [], []
    theirs, ours = pair(lambda N: N.Linear(2, 3))
    hooked(theirs, logs[0], torch), hooked(ours, logs[1], sl)
    a, x = both((4, 2))
    b, y = theirs(a, by=7), ours(x, by=7)
    assert_same(y, b)
    b.sum().backward(), y.sum().backward()
    assert_same(x.grad, a.grad)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p.grad, q.grad)
    for (name, mine), (other, yours) in zip(logs[1], logs[0], strict=True):
        assert name == other
        for m, t in zip(mine, yours, strict=True):
            for p, q in zip(m, t, strict=True):
                assert (p is None) == (q is None)
                if p is not None:
                    np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6)


def test_handles_remove_their_hooks():  # PD-09, PD-10
    m, x = nn.Linear(13, 5), sl.randn(4, 13)
    plain, doubled = m(x), m(x * 2)
    with m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,)):
        assert sl.allclose(m(x), doubled)
    assert sl.equal(m(x), plain)
    handle = m.register_forward_hook(lambda mod, args, out: out + 1)
    second = m.register_forward_hook(lambda mod, args, out: out * 2)
    assert sl.allclose(m(x), (plain + 1) * 2)
    handle.remove(), handle.remove()
    assert sl.allclose(m(x), plain * 2)
    second.remove()
    assert sl.equal(m(x), plain) and not m._forward_hooks and not m._forward_pre_hooks
    table = weakref.ref(m)
    del m
    gc.collect()
    assert table() is None  # handles keep nothing alive


class Hooked(nn.Graph):
    def __init__(self, m):
        super().__init__()
        self.m = m
        self.config.disable_pass("fuse_elementwise")  # each op is a kernel, which the plan names

    def build(self, x):
        y = self.m(x)
        y.sum().backward()
        return y, self.m.weight.grad


def test_hooks_are_traced():  # PD-12
    theirs, ours = pair(lambda N: N.Linear(2, 3))
    for m in (theirs, ours):
        m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
        m.register_forward_hook(lambda mod, args, out: out + 1)
        m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
        m.register_full_backward_hook(lambda mod, gi, go: None)
    a, x = both((4, 2))
    graph, plain = Hooked(ours), Hooked(nn.Linear(2, 3))
    plain(x.detach())
    y, grad = graph(x.detach())
    b = theirs(a)
    b.sum().backward()
    assert_same(y, b)
    assert_same(grad, theirs.weight.grad)
    # Beside the layer's own kernels there are those of the hooks before and behind it. The gradient of a sum is a constant, and so
    # is that times 3.
    hooked, own = (sorted(k["op"] for k in g.plan["kernels"]) for g in (graph, plain))
    assert hooked == sorted(["mul", "add", *own]), (hooked, own)


def test_backward_hooks_of_several_inputs_and_outputs():
    def make(N):
        class Two(N.Module):
            def forward(self, a, b, c, n=1):
                return a * b * n, b + c

        return Two()

    theirs, ours = pair(make)
    seen = [], []
    for m, log in zip((theirs, ours), seen):
        m.register_full_backward_hook(lambda mod, gi, go, log=log: log.append(([g is not None and g.tolist() for g in gi],
                                                                               [g is not None and g.tolist() for g in go])))
    (a, x), (b, y) = both((2,)), both((2,))
    for m, p, q, lib in ((theirs, a, b, torch), (ours, x, y, sl)):
        m(p, q, lib.ones(2), n=2)[0].sum().backward()
        m(p, q.detach(), 3.0)[0].sum().backward()
        m(p.detach(), q.detach(), 3.0)
    assert np.allclose(np.array([len(s) for s in seen]), 2)
    for (gi, go), (hi, ho) in zip(*seen, strict=True):
        assert [bool(g) for g in gi] == [bool(g) for g in hi] and [bool(g) for g in go] == [bool(g) for g in ho]
        assert all(np.allclose(p, q) for p, q in zip(gi + go, hi + ho) if q)
    assert_same(x.grad, a.grad)
    line = nn.Linear(2, 2)
    line.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="Backward hook returned an invalid number of grad_input, got 2, but expected 1"):
        line(x).sum().backward()


def test_hooks_that_are_always_called():
    def make(N):
        class Fails(N.Module):
            def forward(self, x):
                raise OSError("no")

        return Fails()

    for m in pair(make):
        log = []
        m.register_forward_hook(lambda mod, args, out: log.append("never"))
        m.register_forward_hook(lambda mod, args, out: log.append(out), always_call=True)
        m.register_forward_hook(lambda mod, args, kwargs, out: log.append(kwargs), always_call=True, with_kwargs=True)
        with pytest.raises(OSError, match="no"):
            m(x=1)
        assert log == [None, {"x": 1}]
        m.register_forward_hook(lambda mod, args, out: 1 / 0, always_call=True)
        with pytest.warns(UserWarning, match="raised an exception that was silenced"), pytest.raises(OSError, match="no"):
            m(x=1)
    line = nn.Linear(2, 2)
    line.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple of"):
        line(sl.ones(2))
    with pytest.raises(NotImplementedError, match="use register_full_backward_hook"):
        line.register_backward_hook(lambda *_: None)


def test_hooks_of_all_modules():
    logs = []
    for N, lib in ((torch.nn, torch), (nn, sl)):
        R, log = N.modules.module, []
        handles = [
            R.register_module_forward_pre_hook(lambda m, args: log.append(("pre", type(m).__name__))),
            R.register_module_forward_hook(lambda m, args, kw, out: log.append(("post", sorted(kw))), with_kwargs=True),
            R.register_module_full_backward_pre_hook(lambda m, go: log.append(("bpre", type(m).__name__))),
            R.register_module_full_backward_hook(lambda m, gi, go: log.append(("back", type(m).__name__))),
            R.register_module_parameter_registration_hook(lambda m, n, p: log.append(("parameter", n))),
            R.register_module_buffer_registration_hook(lambda m, n, p: log.append(("buffer", n))),
            R.register_module_module_registration_hook(lambda m, n, p: log.append(("module", n)))]
        try:
            m = N.Sequential(N.Linear(2, 2), N.BatchNorm1d(2))
            m[0].register_forward_pre_hook(lambda m, args: log.append(("own",)))
            m(lib.ones((2, 2), requires_grad=True)).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        count = len(log)
        m(lib.ones(2, 2))
        assert log[count:] == [("own",)]
        logs.append(log)
    assert logs[0] == logs[1]
