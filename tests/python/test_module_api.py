"""Module, Parameter, containers and lazy modules against torch's: every method's signature, hooks, state, errors, copies."""

import copy
import gc
import inspect
import io
import pickle
import weakref
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning",
                                        "ignore:Initializing zero-element tensors:UserWarning")

CLASSES = ["Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "RNNBase", "RNN", "LSTM", "GRU",
           "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerDecoder",
           "TransformerEncoderLayer", "TransformerDecoderLayer", "LazyLinear", "LazyConv1d", "LazyConv2d", "LazyConv3d",
           "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
           "Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"]
PLACES = ["init", "utils.rnn", "utils.stateless", "utils.prune", "utils.parametrize", "utils.parametrizations"]
EXCEPT = {
    "__new__": "tensors are made by __init__ here",
    "__reduce_ex__": "an argument that is given by position has another name",
    "RNNBase.__setattr__": "an argument that is given by position has another name",
    "RNNBase.__setstate__": "an argument that is given by position has another name",
    "utils.rnn.bind": "is no part of torch's documentation",
}


def signature(f):
    def default(value):
        return value.__name__ if callable(value) else repr(value).replace("torch.", "sluice.")

    return [(p.name, p.kind, default(p.default)) for p in inspect.signature(f).parameters.values()]


def public(owner, module=None):
    """(name, function) of a class or a module's own."""
    for name, value in vars(owner).items():
        dunder = name.startswith("__") and name.endswith("__")
        if (inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod))) and (dunder or not name.startswith("_")):
            if module is None or getattr(value, "__module__", None) == module:
                yield name, getattr(owner, name)


def test_signatures_are_torchs():
    used = set()
    for name in CLASSES:
        for method, theirs in public(getattr(torch.nn, name, None) or getattr(torch.nn.parameter, name)):
            ours = getattr(getattr(nn, name), method, None)
            if ours is None or signature(ours) != signature(theirs):
                reasons = {method, f"{name}.{method}"} & set(EXCEPT)
                assert reasons, f"{name}.{method}: {ours and signature(ours)}; torch has {signature(theirs)}"
                used |= reasons
        if name.startswith("Lazy"):
            assert signature(getattr(nn, name)) == signature(getattr(torch.nn, name))
    for place in PLACES:
        ours, theirs = nn, torch.nn
        for part in place.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        for name, function in public(theirs, theirs.__name__):
            own = getattr(ours, name, None)
            if own is None or (name.endswith("_") or place != "init") and signature(own) != signature(function):
                assert f"{place}.{name}" in EXCEPT, f"{place}.{name}"
                used.add(f"{place}.{name}")
    assert used == set(EXCEPT)
    attention = "multi_head_attention_forward"
    assert signature(getattr(nn.functional, attention)) == signature(getattr(torch.nn.functional, attention))


def net(N):
    return N.Sequential(N.Linear(2, 3), N.Sequential(N.BatchNorm1d(3), N.ReLU()), N.Linear(3, 1))


def pair(make):
    torch.manual_seed(4), sl.manual_seed(4)
    return make(torch.nn), make(nn)


def both(shape):
    a = torch.randn(shape, requires_grad=True)
    return a, to_sl(a)


# Hooks


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
    graph = Hooked(ours)
    y, grad = graph(x.detach())
    b = theirs(a)
    b.sum().backward()
    assert_same(y, b)
    assert_same(grad, theirs.weight.grad)
    assert "mul" in repr(graph.plan)


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


# State


def test_messages_of_load_state_dict_are_torchs():  # TV-05
    theirs, ours = pair(net)
    state = theirs.state_dict()
    changes = [{}, {"0.weight": None}, {"extra": torch.ones(1)}, {"0.weight": torch.ones(5, 2), "1.0.running_mean": torch.ones(4)},
               {"1.0.num_batches_tracked": None, "1.0.more": torch.ones(1), "2.bias": torch.ones(2)}, {"0.weight": "x"},
               {"1.0.running_mean": None, "0.nope.deeper": torch.ones(1), "2": torch.ones(1)}, {"1.0.num_batches_tracked": torch.tensor([3])}]
    for change in changes:
        given = OrderedDict(state)
        for name, value in change.items():
            given.pop(name, None)
            if value is not None:
                given[name] = value
        mine = OrderedDict((n, v.numpy() if isinstance(v, torch.Tensor) else v) for n, v in given.items())
        for strict in (True, False):
            outcomes = []
            for m, s in ((theirs, given), (ours, mine)):
                try:
                    outcomes.append(repr(m.load_state_dict(s, strict=strict)))
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert outcomes[0].replace("torch.", "sluice.") == outcomes[1]
    assert_same(ours[1][0].num_batches_tracked, theirs[1][0].num_batches_tracked)
    for m in (theirs, ours):
        with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'int'>."):
            m.load_state_dict(3)


def test_states_of_torch_and_numpy_load():  # OE-09
    theirs, ours = pair(net)
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_()
    other = dict(theirs.named_parameters()) | dict(theirs.named_buffers())  # that require gradients
    halves = {n: v.double() for n, v in theirs.state_dict().items()}
    for state in ({n: v.numpy() for n, v in theirs.state_dict().items()}, theirs.state_dict(), other, halves):
        ours.load_state_dict(net(nn).state_dict())
        weight = ours[0].weight
        assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
        assert ours[0].weight is weight
        a, x = both((3, 2))
        assert_same(ours.eval()(x), theirs.eval()(a))


NETS = Path(__file__).resolve().parents[2] / "benchmarks/gpu"


@pytest.mark.skipif(not NETS.exists(), reason="the benchmarks are not here")
def test_numpy_weights_of_a_resnet101(monkeypatch):  # OE-09
    monkeypatch.syspath_prepend(NETS)
    from nets import resnet50  # of any depth
    from sklearn.datasets import load_sample_image

    theirs, ours = (resnet50(lib, (3, 4, 23, 3), 64, 1000).eval() for lib in (torch, sl))
    ours.load_state_dict({n: v.numpy() for n, v in theirs.state_dict().items()})
    image = torch.from_numpy(load_sample_image("china.jpg")[:448:2, :448:2].transpose(2, 0, 1)[None] / np.float32(255)).float()
    with torch.no_grad(), sl.no_grad():
        b, y = theirs(image), ours(to_sl(image))
    assert_same(y / y.abs().max(), b / b.abs().max(), 1e-4)
    assert y.argmax().item() == b.argmax().item()


def test_states_of_bfloat16_load():
    theirs, ours = torch.nn.Linear(3, 4).bfloat16(), nn.Linear(3, 4).bfloat16()
    ours.load_state_dict(theirs.state_dict())
    assert_same(ours.float().weight, theirs.float().weight, 0)
    with pytest.raises(RuntimeError, match="an exception occurred|expected sluice.Tensor"):
        ours.load_state_dict({"weight": [[1.0] * 3] * 4, "bias": np.array(["a"] * 4)})


def test_assignment_of_states():
    for m, lib in zip(pair(net), (torch, sl)):
        N = lib.nn
        state = {n: v.double() if v.is_floating_point() else v for n, v in m.state_dict().items()}
        state["0.bias"] = own = N.Parameter(state["0.bias"])
        m[0].weight.requires_grad_(False), m[0].bias.requires_grad_(False)
        m.load_state_dict(state, assign=True)
        assert m[0].weight.dtype is lib.float64 and isinstance(m[0].weight, N.Parameter) and not m[0].weight.requires_grad
        assert m[0].bias is own and not own.requires_grad and m[1][0].running_mean is state["1.0.running_mean"]
        assert m[2].weight.requires_grad


def extra(N, log):
    class Extra(N.Module):
        def __init__(self):
            super().__init__()
            self.w = N.Parameter(N.Linear(1, 1).bias.detach())
            self.n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    made = N.Sequential(Extra(), N.Linear(1, 1))
    made.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("pre", prefix, keep)))
    made.register_state_dict_post_hook(lambda m, state, prefix, local: state.update(added=3))
    made[1].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: log.append(("load", type(m).__name__, prefix, sorted(state))))
    made[1].register_load_state_dict_post_hook(lambda m, keys: log.append(("after", tuple(keys.missing_keys))))
    made.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.remove("added"))
    return made


def test_extra_state_and_hooks_of_states():
    logs = [], []
    theirs, ours = extra(torch.nn, logs[0]), extra(nn, logs[1])
    for m, log in zip((theirs, ours), logs):
        m[0].n = 7
        state = m.state_dict()
        log.append(list(state))
        assert state["0._extra_state"] == {"n": 7} and state._metadata[""] == {"version": 1}
        m[0].n = 0
        m.load_state_dict(state)
        assert m[0].n == 7
        del state["0._extra_state"], state["1.bias"]
        with pytest.raises(RuntimeError, match='Missing key.*"0._extra_state", "1.bias"'):
            m.load_state_dict(state)
        with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
            m.register_state_dict_post_hook(lambda m, state, *_: state)
            m.state_dict()
        m.register_load_state_dict_post_hook(lambda m, keys: 3)
        with pytest.raises(AssertionError, match="are not expected to return new values"):
            m.load_state_dict(state, strict=False)
    assert logs[0] == logs[1]
    plain = nn.Linear(1, 1)
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert list(plain.state_dict({}, "p.", True)) == ["p.weight", "p.bias"]
    assert plain.state_dict(keep_vars=True)["weight"] is plain.weight and not plain.state_dict()["weight"].requires_grad
    with pytest.raises(RuntimeError, match='Unexpected key.*"_extra_state"'):
        plain.load_state_dict({**plain.state_dict(), "_extra_state": 1})


def test_batch_norm_states_keep_counts():  # TV-05
    theirs, ours = pair(lambda N: N.Sequential(N.Conv2d(1, 2, 1), N.BatchNorm2d(2)))
    a, x = both((2, 1, 3, 3))
    for _ in range(3):
        theirs(a), ours(x)
    for (n, p), (k, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == k
        assert_same(p, q)
    assert ours.state_dict()["1.num_batches_tracked"].item() == 3
    again = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    assert again.load_state_dict(ours.state_dict(), strict=False).missing_keys == []
    assert again[1].num_batches_tracked.item() == 3 and sl.equal(again.eval()(x), ours.eval()(x))


# Registration, names, conversions


def refused(call):
    errors = []
    for N, lib in ((torch.nn, torch), (nn, sl)):
        with pytest.raises(Exception) as error:
            call(N, lib)
        errors.append(error.value)
    assert isinstance(errors[1], type(errors[0]))
    return [str(e).replace("torch.", "sluice.").replace("sluice.FloatTensor", "Tensor").replace("'sluice.nn.modules.linear.", "'")
            .replace("sluice Tensor", "sluice.Tensor").replace("torch Tensor", "sluice.Tensor") for e in errors]


REFUSED = [
    lambda N, lib: setattr(N.Linear(1, 1), "weight", 3), lambda N, lib: setattr(N.Linear(1, 1), "weight", lib.ones(1)),
    lambda N, lib: setattr(N.BatchNorm1d(1), "running_mean", "x"), lambda N, lib: N.Linear(1, 1).register_buffer(3, None),
    lambda N, lib: N.Linear(1, 1).register_buffer("a.b", None), lambda N, lib: N.Linear(1, 1).register_buffer("", None),
    lambda N, lib: N.Linear(1, 1).register_buffer("forward", None), lambda N, lib: N.Linear(1, 1).register_buffer("x", 3),
    lambda N, lib: N.Linear(1, 1).register_parameter(3, None), lambda N, lib: N.Linear(1, 1).register_parameter("a.b", None),
    lambda N, lib: N.Linear(1, 1).register_parameter("", None), lambda N, lib: N.Linear(1, 1).register_parameter("forward", None),
    lambda N, lib: N.Linear(1, 1).register_parameter("x", 3), lambda N, lib: N.Linear(1, 1).add_module(3, None),
    lambda N, lib: N.Linear(1, 1).add_module("a.b", None), lambda N, lib: N.Linear(1, 1).add_module("", None),
    lambda N, lib: N.Linear(1, 1).add_module("forward", None), lambda N, lib: N.Linear(1, 1).add_module("x", 3),
    lambda N, lib: N.Linear(1, 1).get_submodule("nope"), lambda N, lib: N.Linear(1, 1).get_submodule("weight"),
    lambda N, lib: N.Linear(1, 1).get_parameter("nope"), lambda N, lib: N.Linear(1, 1).get_parameter("forward"),
    lambda N, lib: N.Linear(1, 1).get_buffer("weight"), lambda N, lib: N.Linear(1, 1).set_submodule("", N.ReLU()),
    lambda N, lib: N.Linear(1, 1).set_submodule("weight", N.ReLU()), lambda N, lib: N.Linear(1, 1).set_submodule("x", N.ReLU(), strict=True),
    lambda N, lib: N.Linear(1, 1).to(lib.int32), lambda N, lib: N.Linear(1, 1).train(3), lambda N, lib: N.Linear(1, 1).nope,
    lambda N, lib: N.Sequential(N.ReLU()) + 3, lambda N, lib: N.Sequential(N.ReLU()) * 0, lambda N, lib: N.Sequential(N.ReLU()) * "x",
    lambda N, lib: N.Sequential(N.ReLU()).insert(3, N.ReLU()), lambda N, lib: N.Sequential(N.ReLU())[1], lambda N, lib: N.ModuleList()[0],
    lambda N, lib: N.ModuleList().extend(3), lambda N, lib: N.ModuleDict().update(3), lambda N, lib: N.ModuleDict([3]),
    lambda N, lib: N.ModuleDict([(1, 2, 3)]), lambda N, lib: N.ModuleList()(1), lambda N, lib: N.ParameterList()(1),
    lambda N, lib: N.ParameterDict()(1), lambda N, lib: N.ParameterList().extend(3), lambda N, lib: N.ParameterDict().popitem(),
    lambda N, lib: N.Module(3), lambda N, lib: N.Module(a=3), lambda N, lib: N.ParameterDict()["x"], lambda N, lib: delattr(N.Linear(1, 1), "nope"), lambda N, lib: N.Module()(1),
]
SIMILAR = {0, 1, 2, 7, 12, 13, 17, 37}  # our names of types are shorter, or more is said


@pytest.mark.parametrize("i", range(len(REFUSED)))
def test_refusals_are_torchs(i):
    theirs, ours = refused(REFUSED[i])
    if i not in SIMILAR:
        assert ours.startswith(theirs.rstrip("\"'")) or ours == theirs


def test_registration():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        m = N.Module()
        m.register_module("a", N.Linear(1, 1))
        m.set_submodule("a", N.Sequential(N.ReLU()))
        m.set_submodule("a.x", N.Linear(1, 1, bias=False))
        assert isinstance(m.get_submodule("a.x"), N.Linear) and m.get_submodule("") is m
        assert m.get_parameter("a.x.weight") is m.a.x.weight
        m.b = N.Buffer(lib.ones(1), persistent=False)
        m.c = N.Buffer(lib.ones(1))
        assert list(m.state_dict()) == ["c", "a.x.weight"] and m.get_buffer("b") is m.b
        m.b = N.Buffer(lib.ones(1))
        assert [n for n, _ in m.named_buffers()] == ["b", "c"] and "b" in m.state_dict()
        m.c = None
        assert "c" in m._buffers and list(m.state_dict()) == ["b", "a.x.weight"]
        m.a = None
        assert list(m.children()) == []
        del m.a, m.b
        m.p = N.Parameter(lib.ones(2))
        m.p = None
        assert list(m.named_parameters()) == [] and "p" in dir(m) and m.p is None
        twice = N.Linear(1, 1)
        m.one, m.two = twice, twice
        for kind in ("modules", "parameters"):
            assert len(list(getattr(m, f"named_{kind}")(remove_duplicate=False))) > len(list(getattr(m, f"named_{kind}")()))
        assert [n for n, _ in m.named_modules(prefix="r", remove_duplicate=False)] == ["r", "r.one", "r.two"]
        assert len(list(m.modules(remove_duplicate=False))) == 3 and len(list(m.modules())) == 2
        assert [n for n, _ in m.named_parameters(prefix="r", recurse=False)] == []
        class Base:
            def __init__(self, a):
                self.a = a

        made = type("Made", (N.Module, Base), {"call_super_init": True})(a=5)
        assert made.a == 5 and made.training
        assert "weight" in dir(twice) and "0" not in dir(N.Sequential(twice))


def test_conversions_keep_the_objects():
    for m, lib in zip(pair(net), (torch, sl)):
        w, b = m[0].weight, m[1][0].running_mean
        (m(lib.ones(2, 2)) ** 2).sum().backward()
        for name, dtype in (("double", lib.float64), ("half", lib.float16), ("bfloat16", lib.bfloat16), ("float", lib.float32)):
            assert getattr(m, name)() is m and m[0].weight is w and w.dtype is dtype and w.grad.dtype is dtype
            assert m[1][0].num_batches_tracked.dtype is lib.int64 and m[1][0].running_mean.dtype is dtype
        assert m.to(lib.float64).cpu()[0].weight is w and m.to("cpu", lib.float32) is m and w.dtype is lib.float32
        assert w.is_leaf and w.requires_grad and m[1][0].running_mean is not b
        m.type(lib.float64)
        assert m[1][0].num_batches_tracked.dtype is lib.float64
        m.to_empty(device="cpu")
        assert m[0].weight is w and w.shape == (3, 2)
        assert m.requires_grad_(False) is m and not w.requires_grad
        seen = []
        assert m.apply(lambda c: seen.append(type(c).__name__)) is m and seen[0] == "Linear" and seen[-1] == "Sequential"


def test_what_is_refused_says_what_to_use():
    m = nn.Linear(1, 1)
    for call, text in ((lambda: nn.Parameter([1.0]), "must be a Tensor"), (lambda: nn.Parameter(sl.ones(2).long()), "floating point"),
                       (lambda: nn.modules.module.register_module_backward_hook(print), "register_module_full_backward_hook")):
        with pytest.raises((NotImplementedError, TypeError, RuntimeError), match=text):
            call()
    with pytest.raises(sl.Error, match="cuda|CUDA"):
        m.cuda(3)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):  # OPS-20
    m = net(nn)
    m(sl.randn(4, 2)).sum().backward()
    before = {n: p.grad.data_ptr() for n, p in m.named_parameters()}
    m.zero_grad(set_to_none=set_to_none)
    for n, p in m.named_parameters():
        if set_to_none:
            assert p.grad is None
        else:
            assert not p.grad.any() and p.grad.data_ptr() == before[n]


def doubled(module, args):
    return (args[0] * 2,)


def test_copies_and_pickles_of_modules_with_hooks():
    m = net(nn)
    handle = m[0].register_forward_pre_hook(doubled)
    m.handle = handle
    x = sl.randn(3, 2)
    m.eval()
    m[0].weight.extra = 5
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m)), copy.copy(m)):
        assert sl.equal(other(x), m(x)) and other[0].weight.requires_grad
        assert isinstance(other[0].weight, nn.Parameter) and not other.training
    twin = copy.deepcopy(m)
    twin.handle.remove()
    assert not twin[0]._forward_pre_hooks and m[0]._forward_pre_hooks  # the copy's handle is of the copy
    again = pickle.loads(pickle.dumps(m))
    new = again[0].register_forward_pre_hook(doubled)
    assert len(again[0]._forward_pre_hooks) == 2
    new.remove(), again.handle.remove()
    assert len(again[0]._forward_pre_hooks) == 0
    nn.init.zeros_(twin[0].weight)
    assert m[0].weight.any()
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert (t := copy.deepcopy(tied))[1].weight is t[0].weight
    assert (t := pickle.loads(pickle.dumps(tied)))[1].weight is t[0].weight


def test_parameters():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        data = lib.ones(2)
        p = N.Parameter(data)
        data[0] = 5
        assert p.tolist() == [5, 1] and p.is_leaf and p.requires_grad and isinstance(p, lib.Tensor)
        assert repr(p).startswith("Parameter containing:\n") and N.Parameter().shape == (0,)
        q = N.Parameter(lib.ones(2).long(), requires_grad=False)
        assert q.dtype is lib.int64 and not isinstance(p + 1, N.Parameter) and not isinstance(p.data, N.Parameter)
        assert type(copy.deepcopy(p)) is N.Parameter and not copy.deepcopy(q).requires_grad
        b = N.Buffer(lib.ones(2), persistent=False)
        assert not b.persistent and not isinstance(b, N.Parameter) and not copy.deepcopy(b).persistent
        assert N.Buffer(p).requires_grad == p.requires_grad or lib is sl
    half = nn.Parameter(sl.ones(2, dtype=sl.bfloat16))
    again = pickle.loads(pickle.dumps(nn.Parameter(sl.ones(2), requires_grad=False)))
    assert half.dtype is sl.bfloat16 and not again.requires_grad and isinstance(again, nn.Parameter)


# Containers


def test_containers_do_what_torchs_do():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        s = N.Sequential(OrderedDict(a=N.ReLU(), b=N.Linear(2, 2)))
        t = s + N.Sequential(N.Tanh())
        assert list(t._modules) == ["0", "1", "2"] and len(s * 2) == 4 and len(2 * s) == 4 and s[-1] is s.b and s[0] is s.a
        s = N.Sequential(*s)
        s *= 2
        assert len(s) == 4 and s[2] is s[0]
        s += t
        assert len(s) == 7 and isinstance(s.pop(0), N.ReLU) and len(s) == 6 and isinstance(s[1:3], N.Sequential)
        s.insert(-1, N.Sigmoid()).extend([N.GELU()])
        assert [type(m).__name__ for m in s][-3:] == ["Sigmoid", "Tanh", "GELU"]
        del s[1:5], s[0]
        assert list(s._modules) == ["0", "1", "2"]
        s[0] = N.ReLU()
        more = N.ModuleList([N.Linear(2, 2), N.Linear(2, 2), N.ReLU()]) + [N.Linear(2, 2)]
        more += [N.Tanh()]
        assert len(more) == 5 and isinstance(more.pop(-1), N.Tanh) and isinstance(more[:2], N.ModuleList)
        del more[2]
        more.insert(0, N.ReLU())
        assert len(more) == 4 and more[-1] is list(more)[3]
        d = N.ModuleDict([["b", N.ReLU()], ["a", N.Tanh()]])
        d.update(N.ModuleDict({"c": N.ReLU()}))
        assert list(d.keys()) == ["b", "a", "c"] and isinstance(d.pop("b"), N.ReLU) and "b" not in d and len(d) == 2
        assert [k for k, _ in d.items()] == list(d) and len(list(d.values())) == 2
        del d["a"]
        d.clear()
        assert len(d) == 0


def test_containers_of_parameters_do_what_torchs_do():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        row = N.ParameterList([N.Parameter(lib.ones(1)), lib.ones(2), 3])
        row += ["x"]
        assert isinstance(row[1], N.Parameter) and row[2] == 3 and row[-1] == "x" and len(row) == 4 and len(row[:2]) == 2
        row[0] = lib.zeros(3)
        row.append(lib.ones(1)).extend((1, 2))
        assert len(row) == 7 and len(list(row)) == 7 and [n for n, _ in row.named_parameters()] == ["0", "1", "4"]
        d = N.ParameterDict({"b": lib.ones(1), "a": N.Parameter(lib.ones(2))})
        assert list(d) == ["a", "b"] and list(reversed(d)) == ["b", "a"] and isinstance(d["b"], N.Parameter)
        d.update([["z", lib.ones(1)], ("y", 3)])
        assert list(d.keys()) == ["a", "b", "z", "y"] and d.get("nope", 4) == 4 and d.setdefault("w", 7) == 7 and d.setdefault("w", 8) == 7
        assert d.popitem() == ("w", 7) and d.pop("y") == 3 and "y" not in d and len(d.copy()) == 3
        other = d | N.ParameterDict({"q": lib.ones(1)})
        assert list(other) == ["a", "b", "z", "q"] and list(d) == ["a", "b", "z"]
        d |= N.ParameterDict({"q": lib.ones(1)})
        del d["a"]
        assert list(d) == ["b", "z", "q"] and list(d.fromkeys(["m"], 1).items()) == [("m", 1)] and len(list(d.values())) == 3
        assert list(d.state_dict()) == ["b", "z", "q"]
        d.clear()
        assert len(d) == 0 and list(d.state_dict()) == []


def test_texts_are_torchs():
    def make(N):
        inner = N.ModuleList([N.Linear(2, 2), N.Linear(2, 2), N.ReLU(), N.ModuleList()])
        return N.ModuleDict({"a": inner, "b": N.Sequential(), "c": N.Sequential(N.Dropout(0.1), N.Sequential(N.Tanh()))})

    theirs, ours = pair(make)
    assert repr(ours) == repr(theirs) and str(ours) == str(theirs)
    rows = [N.ParameterList([lib.ones(2, 3), 3]) for N, lib in ((torch.nn, torch), (nn, sl))]
    assert repr(rows[1]) == repr(rows[0]).replace("torch.", "sluice.")


# Lazy modules

LAZY = [("LazyLinear", (3,), (2, 4)), ("LazyLinear", (3, False), (5, 2, 4)), ("LazyConv1d", (4, 3), (2, 3, 7)),
        ("LazyConv2d", (4, 3, 2, 1, 1, 2), (2, 4, 7, 7)), ("LazyConv3d", (2, 2), (3, 4, 4, 4)), ("LazyConvTranspose1d", (4, 3), (2, 3, 5)),
        ("LazyConvTranspose2d", (4, 3, 2), (2, 3, 4, 4)), ("LazyConvTranspose3d", (2, 2), (1, 2, 3, 3, 3)),
        ("LazyBatchNorm1d", (), (4, 3)), ("LazyBatchNorm1d", (1e-5, 0.1, True, False), (4, 3)), ("LazyBatchNorm2d", (1e-3, 0.2), (2, 3, 4, 4)), ("LazyBatchNorm3d", (1e-5, 0.1, False), (2, 3, 2, 2, 2))]


@pytest.mark.parametrize("kind, args, shape", LAZY, ids=str)
def test_lazy_modules_equal_torchs(kind, args, shape):
    theirs, ours = pair(lambda N: getattr(N, kind)(*args))
    a, x = both(shape)
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    parameters = list(ours.parameters())
    fresh, empty = copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))
    assert fresh.has_uninitialized_params() and empty.load_state_dict(fresh.state_dict()).missing_keys == []
    torch.manual_seed(1), sl.manual_seed(1)
    b, y = theirs(a), ours(x)
    assert_same(y, b, 1e-4)
    assert type(ours).__name__ == type(theirs).__name__ == kind.removeprefix("Lazy") and not ours._forward_pre_hooks
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q)
    assert all(p is q and isinstance(q, nn.Parameter) for p, q in zip(parameters, ours.parameters()))
    fresh.load_state_dict(ours.state_dict())
    assert not fresh.has_uninitialized_params()
    assert sl.equal(fresh.eval()(x), ours.eval()(x)) and type(fresh) is type(ours)
    assert type(fresh.double()) is type(ours)


def test_uninitialized_parameters():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        p = N.UninitializedParameter(dtype=lib.float64) if lib is sl else N.parameter.UninitializedParameter(dtype=lib.float64)
        with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
            p.shape
        for call in (lambda p: p + 1, lambda p: p.sum(), lambda p: p @ p, lambda p: p.tolist() and None):
            with pytest.raises((ValueError, RuntimeError)):
                call(p)
        assert repr(p) == "<UninitializedParameter>" and p.requires_grad and p.dtype is lib.float64
        p.materialize((2, 3))
        assert type(p) is N.Parameter and p.shape == (2, 3) and p.requires_grad and p.dtype is lib.float64
    lazy = nn.LazyLinear(3).half()
    assert lazy.weight.dtype is sl.float16 and nn.parameter.is_lazy(lazy.weight)
    lazy.float()
    with pytest.raises(RuntimeError, match="size mismatch|uninitialized"):
        nn.Linear(2, 3).load_state_dict(lazy.state_dict())

    class Calls(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = lazy

        def build(self, x):
            return self.m(x)

    with pytest.raises(RuntimeError, match="LazyLinear: its parameters have no shape yet; call the module once"):
        Calls()(sl.ones(2, 4))
    lazy(sl.ones(2, 4))
    assert Calls()(sl.ones(2, 4)).shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(3, 2)(sl.ones(2, 2))
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv2d(4, 1, groups=2)(sl.ones(1, 3, 2, 2))


def test_optimizers_of_lazy_modules():
    m = nn.LazyLinear(3)
    m(sl.ones(1, 2))
    optimizer = sl.optim.SGD(m.parameters(), 1.0)
    m(sl.ones(1, 2)).sum().backward()
    before = m.weight.detach().clone()
    optimizer.step()
    assert sl.allclose(m.weight, before - 1)


def test_states_go_through_files():
    m = net(nn)
    file = io.BytesIO(pickle.dumps(m.state_dict()))
    other = net(nn)
    other.load_state_dict(pickle.load(file))
    x = sl.randn(3, 2)
    assert sl.equal(m.eval()(x), other.eval()(x))
