"""Module, Parameter and containers against torch's: every method's signature, errors, conversions, copies."""

import copy
import inspect
import pickle
from collections import OrderedDict

import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune

import sluice as sl
import sluice.nn as nn
from module_pairs import doubled, net, pair

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
