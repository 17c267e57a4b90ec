"""Activations against torch's: at kinks, beyond all bounds, of NaN, in place, with odd arguments."""

import inspect

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl
from functional_oracle import agree, drawn, kinds

import sluice as sl
import sluice.nn.functional as F

ACTIVATIONS = {
    "relu": [()], "relu6": [()], "selu": [()], "silu": [()], "mish": [()], "hardsigmoid": [()], "hardswish": [()],
    "leaky_relu": [(), (0.2,), (-0.5,), (0.0,)], "elu": [(), (0.5,), (-1.5,)], "celu": [(), (0.5,), (-2.0,)],
    "hardtanh": [(), (-0.5, 2.0), (0.0, 6.0)], "gelu": [(), {"approximate": "tanh"}], "softplus": [(), (2.0, 3.0), (0.5, 1.0)],
    "logsigmoid": [()], "softsign": [()], "tanhshrink": [()], "hardshrink": [(), (1.0,), (0.0,)],
    "softshrink": [(), (1.0,), (0.0,)], "threshold": [(0.5, -2.0), (-1.0, 3.0)], "sigmoid": [()], "tanh": [()],
}
CASES = [(name, args) for name, lists in ACTIVATIONS.items() for args in lists]
KINKS = torch.tensor([-3.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 7.0, -7.0, 25.0, -25.0, 1e-8])
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 100.0, -100.0])


def called(functions, name, args, x, **more):
    return getattr(functions, name)(x, **args, **more) if isinstance(args, dict) else getattr(functions, name)(x, *args, **more)


def call(name, args):
    return lambda m, x: called(m.nn.functional, name, args, x)


@pytest.mark.parametrize("name, args", CASES)
def test_values_and_gradients(name, args):
    f, double = call(name, args), name != "hardsigmoid"  # of which torch has no second derivative
    # Torch keeps a sixth in float32.
    for dtype, tolerance in ((torch.float64, 1e-7 if name.startswith("hards") else 1e-9), (torch.float32, 2e-6)):
        agree(f, *drawn((3, 4), scale=3, dtype=dtype), tolerance=tolerance, double=double, name="random")
        # torch has no curvature of softplus at the threshold itself.
        agree(f, KINKS.to(dtype), tolerance=tolerance, graph=dtype is torch.float32, double=double and name != "softplus", name="kinks")
    agree(f, torch.tensor(0.3), tolerance=1e-6, double=double, name="no dims")
    agree(f, torch.zeros(0, 3), graph=False, double=double, name="empty")
    agree(f, *[x.t() for x in drawn((3, 4), dtype=torch.float32)], tolerance=1e-6, graph=False, double=double, name="transposed")


@pytest.mark.parametrize("name, args", CASES)
def test_special_values(name, args):
    x = SPECIAL[SPECIAL != float("inf")] if name == "gelu" else SPECIAL  # torch's vectorised gelu gives NaN of infinity
    theirs = called(TF, name, args, x)
    ours = called(F, name, args, to_sl(x))
    assert_same(ours, theirs, 1e-5)
    with torch.no_grad():
        keep = torch.isfinite(theirs) | torch.isnan(x)
    a = x[keep].clone().requires_grad_()
    called(TF, name, args, a).sum().backward()
    b = to_sl(a)
    called(F, name, args, b).sum().backward()
    assert_same(b.grad, a.grad, 1e-5)


@pytest.mark.parametrize("name, args", CASES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits(name, args, dtype):
    x = drawn((64,), scale=2, dtype=torch.float32)[0].to(getattr(torch, dtype))
    ours = called(F, name, args, to_sl(x.float()).to(getattr(sl, dtype)))
    assert ours.dtype is getattr(sl, dtype)
    tolerance = 4e-3 if dtype == "float16" else 4e-2
    np.testing.assert_allclose(ours.float().numpy(), called(TF, name, args, x).float().numpy(), rtol=tolerance, atol=tolerance)


INPLACE = [n for n in ACTIVATIONS if "inplace" in str(inspect.signature(getattr(F, n)))]


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    args = ACTIVATIONS[name][0]
    x = drawn((5,), dtype=torch.float32)[0]
    expected = called(TF, name, args, x)
    mine = to_sl(x)
    assert called(F, name, args, mine, inplace=True) is mine
    assert_same(mine, expected, 1e-6)
    leaf = to_sl(x).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        called(F, name, args, leaf, inplace=True)
    base = to_sl(x).requires_grad_()
    (called(F, name, args, base * 1, inplace=True) * 2).sum().backward()
    twin = x.clone().requires_grad_()
    (called(TF, name, args, twin * 1, inplace=True) * 2).sum().backward()
    assert_same(base.grad, twin.grad, 1e-5)


def test_functions_that_write_are_torchs():
    names = [n for n in dir(TF) if n.endswith("_") and not n.startswith("_")]
    assert names and all(hasattr(F, n) for n in names)
    for name in names:
        args = ACTIVATIONS.get(name[:-1], [(0.1, 0.1)])[0]
        x = drawn((7,), dtype=torch.float32)[0]
        mine = to_sl(x)
        assert called(F, name, args, mine) is mine
        assert_same(mine, called(TF, name, args, x), 1e-6)


@pytest.mark.parametrize("shape, count", [((4,), 1), ((4,), None), ((2, 3), 3), ((2, 3), 1), ((2, 3, 4), 3), ((2, 3, 2, 2), 3), ((), 1),
                                          ((0, 3), 3), ((1, 1), 1)])
def test_prelu(shape, count):
    x, = drawn(shape)
    agree(lambda m, x, w: m.nn.functional.prelu(x, w), x, drawn((count,) if count else ())[0])
    ends = torch.tensor([[0.0, float("inf")], [-float("inf"), float("nan")]])
    agree(lambda m, x, w: m.nn.functional.prelu(x, w), ends, torch.tensor([0.5, 0.25]), double=False, graph=False)


class Backward(sl.nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x, g):
        x.requires_grad_()
        self.module(x).backward(g)
        return x.grad


def test_prelu_takes_no_more_memory_than_its_input_and_gradient():  # OPS-30
    graph, x = Backward(sl.nn.PReLU()), sl.randn(100, 1000)
    graph(x, x * 2)
    assert graph.memory()["temp"] < 2 * 4 * x.numel()


def test_prelu_refuses_what_torch_refuses():
    def f(m, x, w):
        return m.nn.functional.prelu(x, w)

    for x, w in [((2, 3), (2,)), ((2, 3), (3, 2)), ((), (2,)), ((3,), (3,))]:
        kind, text = kinds(f, torch.ones(x), torch.ones(w))
        assert kind[0] is kind[1] is RuntimeError, text
    kind, _ = kinds(f, torch.ones(2), torch.ones(1).double())
    assert kind == [RuntimeError] * 2


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_softmin_and_glu(dim):
    x, = drawn((4, 6))
    agree(lambda m, x: m.nn.functional.softmin(x, dim), x)
    agree(lambda m, x: m.nn.functional.softmax(x, dim), x)
    if dim is not None:
        agree(lambda m, x: m.nn.functional.glu(x, dim), x)
    assert F.softmin(sl.ones(2, 2), 0, dtype=sl.float64).dtype is sl.float64


def test_refusals_are_torchs():
    x = torch.ones(3)
    for f in (lambda m, x: m.nn.functional.celu(x, 0.0), lambda m, x: m.nn.functional.softshrink(x, -1.0),
              lambda m, x: m.nn.functional.rrelu(x, 0.5, 0.1), lambda m, x: m.nn.functional.selu(x.to(m.int64)),
              lambda m, x: m.nn.functional.glu(x), lambda m, x: m.nn.functional.hardshrink(x.to(m.int64)),
              lambda m, x: m.nn.functional.gelu(x, approximate="sigmoid"), lambda m, x: m.nn.functional.hardtanh(x, 2.0, 1.0)):
        kind, text = kinds(f, x)
        assert kind[1] is not None and (kind[0] is kind[1] or kind[0] in (RuntimeError, ValueError, NotImplementedError)), (kind, text)


def test_of_integers():
    x = torch.arange(-4, 5)
    for name, args in (("relu", ()), ("relu6", ()), ("hardtanh", (-2, 3)), ("threshold", (1, 20))):
        assert_same(called(F, name, args, to_sl(x)), called(TF, name, args, x))


def test_rrelu():
    x = drawn((20000,), dtype=torch.float32)[0]
    mine = to_sl(x).requires_grad_()
    y = F.rrelu(mine, 0.2, 0.4, training=True)
    y.sum().backward()
    slope, negative = mine.grad.numpy(), x.numpy() <= 0
    assert (slope[~negative] == 1).all() and (slope[negative] >= 0.2).all() and (slope[negative] < 0.4).all()
    assert abs(slope[negative].mean() - 0.3) < 0.005 and len(np.unique(slope[negative])) > 5000
    np.testing.assert_allclose(y.detach().numpy(), x.numpy() * slope, rtol=1e-6)
    agree(lambda m, x: m.nn.functional.rrelu(x, 0.2, 0.4), x[:10].double())
    assert F.rrelu(to_sl(x), 0.3, 0.3, training=True).tolist() == F.leaky_relu(to_sl(x), 0.3).tolist()


def test_gumbel_softmax():
    logits = torch.tensor([0.1, 0.2, 0.7]).log()
    mine = to_sl(logits.repeat(20000, 1)).requires_grad_()
    hard = F.gumbel_softmax(mine, tau=0.7, hard=True)
    values = hard.detach().numpy().round(6)
    assert set(np.unique(values)) == {0.0, 1.0} and (values.sum(1) == 1).all()
    assert np.abs(values.mean(0) - [0.1, 0.2, 0.7]).max() < 0.02
    (hard * sl.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert np.isfinite(mine.grad.numpy()).all() and np.abs(mine.grad.numpy()).sum() > 0
    soft = F.gumbel_softmax(to_sl(logits), dim=0).numpy()
    assert abs(soft.sum() - 1) < 1e-6


def test_oneflows():
    x, = drawn((3, 4))
    for name, f in (("quick_gelu", lambda x: x * torch.sigmoid(1.702 * x)), ("square_relu", lambda x: torch.relu(x) ** 2)):
        agree(lambda m, x: getattr(F, name)(x) if m is sl else f(x), x)
    labels, logits = torch.tensor([[0, 2], [1, 1]]), drawn((2, 2, 3), dtype=torch.float32)[0]
    assert_same(F.sparse_softmax_cross_entropy(to_sl(labels), to_sl(logits)), TF.cross_entropy(logits.movedim(2, 1), labels, reduction="none"), 1e-6)
    like = sl.ones(1, 1, 6, 4)
    assert F.interpolate_like(sl.ones(1, 2, 3, 2), like).shape == (1, 2, 6, 4)


def test_dropout_is_scaled_and_written():
    x = sl.ones(1000, 1000)
    pointer = x.data_ptr()
    assert F.dropout(x, 0.3, True, True) is x and x.data_ptr() == pointer
    assert abs(float(x.mean()) - 1) < 0.01
    assert set(np.unique(x.numpy()).tolist()) == {0.0, float(np.float32(1) / np.float32(0.7))} or len(np.unique(x.numpy())) == 2
    y = sl.ones(3)
    assert F.dropout(y, 0.5, False) is y and F.dropout(y, 0.0) is y and F.dropout(y, 1.0).tolist() == [0.0] * 3
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            F.dropout(y, p)


@pytest.mark.parametrize("name, shape", [("dropout1d", (50, 40, 6)), ("dropout1d", (400, 6)), ("dropout2d", (50, 40, 3, 2)), ("dropout2d", (50, 40, 3)),
                                         ("dropout3d", (50, 40, 3, 2, 2)), ("dropout3d", (400, 3, 2, 2)), ("feature_alpha_dropout", (50, 40, 3, 2))])
def test_dropout_of_channels(name, shape):
    x = sl.ones(*shape, requires_grad=True)
    y = getattr(F, name)(x, 0.4, True)
    batched = {"dropout1d": 3, "dropout3d": 5}.get(name, 0)
    lead = 1 if batched and len(shape) == batched - 1 else 2
    rows = y.detach().numpy().reshape(int(np.prod(shape[:lead])), -1)
    assert (rows == rows[:, :1]).all()
    dropped = (rows[:, 0] == rows[:, 0].min()).mean()
    assert abs(dropped - 0.4) < 0.08 and len(np.unique(rows.round(5))) == 2
    if "alpha" not in name:
        y.sum().backward()
        assert (x.grad.numpy() == y.detach().numpy()).all()
    assert getattr(F, name)(x, 0.4, False).tolist() == x.tolist()
    z = sl.ones(*shape)
    assert getattr(F, name)(z, 1.0, True).numpy().any() == False  # noqa: E712
    assert getattr(F, name)(z, 0.5, True, True) is z or batched
    with pytest.raises(ValueError):
        getattr(F, name)(x, 2.0, True)


def test_alpha_dropout_keeps_mean_and_variance():
    x = F.selu(sl.randn(300000))
    y = F.alpha_dropout(x, 0.2, True)
    assert abs(float(y.mean()) - float(x.mean())) < 0.02 and abs(float(y.std()) - float(x.std())) < 0.03
    twin = torch.nn.functional.alpha_dropout(torch.zeros(1000), 0.2, True).unique()
    assert_same(sl.tensor(np.unique(F.alpha_dropout(sl.zeros(1000), 0.2, True).numpy())), twin, 1e-5)


WITH_OUT = {"normalize", "sigmoid", "tanh"}  # out= is in one of both


def test_parameters_are_torchs():
    def parameters(function):
        try:
            found = inspect.signature(function).parameters.values()
        except ValueError:
            return []
        return [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    compared = 0
    for name in set(dir(F)) & set(dir(TF)) - WITH_OUT:
        theirs = [] if name.startswith("_") or isinstance(getattr(TF, name), type) or not callable(getattr(TF, name)) else parameters(getattr(TF, name))
        if theirs and parameters(getattr(F, name)):
            assert parameters(getattr(F, name)) == theirs, name
            compared += 1
    assert compared > 60


def test_every_function_of_torchs_is_there():
    private = {"assert_int_or_pair", "boolean_dispatch", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
               "has_torch_function_variadic", "Optional"}
    # Without a counterpart: quantised and grouped products of GPUs, a loss that saves memory, and what is hidden.
    left = {"grouped_mm", "scaled_grouped_mm", "scaled_mm", "linear_cross_entropy", "conv_tbc", "native_channel_shuffle",
            "multi_head_attention_forward"}
    public = [n for n in dir(TF) if not n.startswith("_") and callable(getattr(TF, n)) and not isinstance(getattr(TF, n), type)]
    missing = {n for n in public if not hasattr(F, n)} - private
    assert missing <= left
