"""Modules against torch's: values, gradients, names, state, hooks."""

import copy

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

LAYERS = [
    ("Linear", (5, 3), (4, 5)), ("Conv1d", (4, 6, 3, 2, 1), (2, 4, 9)), ("Conv2d", (4, 6, 3), (2, 4, 7, 7)),
    ("Conv2d", (4, 6, (3, 1), 1, "same"), (2, 4, 7, 7)), ("Conv3d", (2, 4, 2), (1, 2, 4, 4, 4)), ("Conv2d", (4, 6, 3), (4, 7, 7)),
    ("ConvTranspose1d", (4, 3, 3, 2), (2, 4, 5)), ("ConvTranspose2d", (4, 6, 3, 2, 1, 1, 2), (2, 4, 5, 5)),
    ("ConvTranspose3d", (2, 3, 2), (1, 2, 3, 3, 3)), ("BatchNorm1d", (5,), (8, 5)), ("BatchNorm2d", (3,), (4, 3, 5, 5)),
    ("BatchNorm3d", (3,), (4, 3, 2, 2, 2)), ("LayerNorm", ((3, 4),), (2, 3, 4)), ("GroupNorm", (2, 6), (3, 6, 4)),
    ("ReLU", (), (9,)), ("GELU", (), (9,)), ("SiLU", (), (9,)), ("Tanh", (), (9,)), ("Sigmoid", (), (9,)), ("Softmax", (1,), (3, 4)),
    ("LogSoftmax", (-1,), (3, 4)), ("Softplus", (), (9,)), ("ELU", (0.5,), (9,)), ("LeakyReLU", (0.2,), (9,)), ("Hardswish", (), (9,)),
    ("Mish", (), (9,)), ("MaxPool1d", (2,), (2, 3, 8)), ("MaxPool2d", (3, 2, 1), (2, 3, 7, 7)), ("MaxPool3d", (2,), (1, 2, 4, 4, 4)),
    ("AvgPool2d", (2,), (2, 3, 6, 6)), ("AvgPool3d", (2,), (1, 2, 4, 4, 4)), ("AdaptiveAvgPool2d", (1,), (2, 3, 5, 5)),
    ("AdaptiveAvgPool1d", (3,), (2, 3, 8)), ("Flatten", (), (2, 3, 4)), ("Identity", (), (3,)), ("Dropout", (0.0,), (5,)),
]

NEWER_REPR = ("GroupNorm", "LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d")  # torch came to print bias=True


@pytest.mark.parametrize("name, args, shape", LAYERS, ids=lambda v: str(v))
def test_layer_equals_torch(name, args, shape):
    sl.manual_seed(1), torch.manual_seed(1)
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    assert repr(ours) == repr(theirs) or name in NEWER_REPR
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        assert n == m
        assert_same(p, q, 1e-6)  # the same initialisation from the same seed
    a = torch.randn(shape, requires_grad=True)
    x = to_sl(a)
    y, b = ours(x), theirs(a)
    assert_same(y, b, 2e-5)
    (y * y).sum().backward()
    (b * b).sum().backward()
    assert_same(x.grad, a.grad, 1e-3)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p.grad, q.grad, 1e-3)
    for p, q in zip(ours.buffers(), theirs.buffers()):
        assert_same(p, q)
    assert_same(ours.eval()(x), theirs.eval()(a), 2e-5)


LOSSES = [("MSELoss", None), ("L1Loss", None), ("SmoothL1Loss", None), ("BCEWithLogitsLoss", None), ("CrossEntropyLoss", "class"),
          ("NLLLoss", "class"), ("KLDivLoss", None)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, target", LOSSES)
def test_loss_equals_torch(name, target, reduction):
    a, b = torch.randn(6, 5), torch.randint(0, 5, (6,)) if target else torch.rand(6, 5)
    assert_same(getattr(nn, name)(reduction=reduction)(to_sl(a), to_sl(b)), getattr(torch.nn, name)(reduction=reduction)(a, b))


def nests(N, tensor):
    """Six nested models, built with either library."""
    class Block(N.Module):
        def __init__(self, n):
            super().__init__()
            self.register_buffer("scale", tensor(n))
            self.layers = N.ModuleList([N.Linear(n, n) for _ in range(2)])
            self.extra = N.ParameterDict({"b": N.Parameter(tensor(n)), "a": N.Parameter(tensor(n))})

    class Shared(N.Module):
        def __init__(self):
            super().__init__()
            self.first = N.Linear(2, 2)
            self.again = self.first
            self.bias = N.Parameter(tensor(2))
            self.tied = self.first.weight
            self.register_buffer("hidden", tensor(1), persistent=False)

    sequential = N.Sequential(N.Linear(2, 3), N.Sequential(N.BatchNorm1d(3), N.ReLU()), Block(3))
    named = N.ModuleDict({"z": Block(2), "a": N.ModuleDict({"k": N.Linear(1, 1)})})
    lists = N.ParameterList([N.Parameter(tensor(2)), N.Parameter(tensor(3))])
    replaced = N.Sequential(N.Linear(2, 2), N.Linear(2, 2))
    replaced[0] = N.Linear(2, 2, bias=False)
    replaced.append(N.ModuleList([N.Conv2d(1, 1, 1), lists]))
    return [sequential, named, lists, Shared(), replaced, N.ModuleList([Shared(), Block(1)])]


def test_names_and_orders_equal_torchs():  # OE-16
    for ours, theirs in zip(nests(nn, sl.zeros), nests(torch.nn, torch.zeros)):
        for what in ("named_parameters", "named_buffers", "named_modules", "named_children"):
            assert [n for n, _ in getattr(ours, what)()] == [n for n, _ in getattr(theirs, what)()]
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert len(list(ours.parameters())) == len(list(theirs.parameters()))


def test_state_dict_round_trip_and_errors():
    a, b = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert str(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert all((p == q).all() for p, q in zip(a.state_dict().values(), b.state_dict().values()))
    state = a.state_dict()
    state["extra"] = state.pop("0.bias")
    state["0.weight"] = sl.zeros(5, 2)
    with pytest.raises(RuntimeError, match=r'(?s)Missing key\(s\).*"0.bias".*Unexpected.*"extra".*size mismatch for 0.weight'):
        b.load_state_dict(state)
    state.pop("0.weight")
    assert b.load_state_dict(state, strict=False).missing_keys == ["0.weight", "0.bias"]
    b.load_state_dict({k: v.numpy() for k, v in a.state_dict().items()})


def test_modes_apply_and_conversions():
    m = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9))
    assert not m.eval()[1].training and m.train()[1].training
    x = sl.ones(100, 2)
    assert (m[1](x) == 0).any() and (m.eval()[1](x) == x).all()
    assert m.double()[0].weight.dtype is sl.float64 and isinstance(m[0].weight, nn.Parameter)
    m.float().requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())
    m.apply(lambda c: nn.init.ones_(c.weight) if isinstance(c, nn.Linear) else None)
    assert m[0].weight.tolist() == [[1, 1], [1, 1]]
    other = copy.deepcopy(m)
    nn.init.zeros_(m[0].weight)
    assert other[0].weight.sum().item() == 4


def test_registration_errors_are_torchs():
    m = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="cannot assign 'int' as parameter 'weight'"):
        m.weight = 3
    with pytest.raises(KeyError, match="name can\\\\'t contain"):
        m.register_buffer("a.b", sl.ones(1))
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        m.register_parameter("forward", None)
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nope'"):
        m.nope
    with pytest.raises(AttributeError, match="before Module.__init__"):
        class Early(nn.Module):
            def __init__(self):
                self.w = nn.Parameter(sl.ones(1))
        Early()
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_forward_and_backward_hooks():
    m, log = nn.Linear(2, 2, bias=False), []
    nn.init.eye_(m.weight)
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    handle = m.register_forward_hook(lambda mod, args, out: out + 1)
    m.register_full_backward_hook(lambda mod, gi, go: log.append((gi[0].tolist(), go[0].tolist())))
    x = sl.ones(1, 2, requires_grad=True)
    y = m(x)
    assert y.tolist() == [[3, 3]]
    y.sum().backward()
    assert x.grad.tolist() == [[2, 2]] and log == [([[1, 1]], [[1, 1]])]
    handle.remove()
    assert m(x).tolist() == [[2, 2]]


INITS = [("uniform_", (-2, 3)), ("normal_", (1, 2)), ("constant_", (4,)), ("xavier_uniform_", (2.0,)), ("xavier_normal_", ()),
         ("kaiming_uniform_", (0.1,)), ("kaiming_normal_", ()), ("ones_", ()), ("eye_", ())]


@pytest.mark.parametrize("name, args", INITS)
def test_init_equals_torchs(name, args):
    a, x = torch.empty(20, 30), sl.empty(20, 30)
    getattr(torch.nn.init, name)(a, *args)
    assert getattr(nn.init, name)(x, *args) is x
    assert_same(x, a, 5e-6 if "normal" in name else 1e-6)  # torch's normal samples of float32 are approximate


def test_trunc_normal_stays_within_bounds():
    x = nn.init.trunc_normal_(sl.empty(10000), 0, 1, -0.5, 1.0).numpy()
    assert x.min() >= -0.5 and x.max() <= 1.0 and abs(np.median(x) - 0.2) < 0.05


def test_clip_grad_equals_torch():
    a = [torch.nn.Parameter(torch.randn(4)) for _ in range(3)]
    x = [nn.Parameter(to_sl(p)) for p in a]
    for ps in (a, x):
        for i, p in enumerate(ps):
            (p * p * (i + 1)).sum().backward()
    assert_same(nn.utils.clip_grad_norm_(x, 1.5), torch.nn.utils.clip_grad_norm_(a, 1.5))
    for p, q in zip(x, a):
        assert_same(p.grad, q.grad)
    nn.utils.clip_grad_value_(x, 0.1)
    assert all(p.grad.abs().max().item() <= 0.1 + 1e-7 for p in x)


def test_bad_layer_arguments_are_named():
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.Conv2d(3, 4, 1, groups=2)
    with pytest.raises(ValueError, match="expected 4D"):
        nn.BatchNorm2d(3)(sl.ones(2, 3))
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)
    with pytest.raises(RuntimeError, match=r"conv: channels differ"):
        nn.Conv2d(3, 4, 3)(sl.ones(1, 2, 5, 5))
