"""NumPy's arrays where tensors are taken: functions, methods, layers, losses and graphs."""

import operator

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F

RNG = np.random.default_rng(7)
A, B = RNG.standard_normal((4, 6)).astype(np.float32), RNG.standard_normal((4, 6)).astype(np.float32)
INDEX = np.array([2, 0, 1])


def same(got, want):
    assert isinstance(got, sl.Tensor) and got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


FUNCTIONS = {
    "relu": lambda L, a, b, i: L.relu(a), "sum": lambda L, a, b, i: L.sum(a, 1), "add": lambda L, a, b, i: L.add(a, b),
    "matmul": lambda L, a, b, i: L.matmul(a, b.T), "maximum": lambda L, a, b, i: L.maximum(a, b),
    "cat": lambda L, a, b, i: L.cat([a, b], 1), "stack": lambda L, a, b, i: L.stack((a, b)), "softmax": lambda L, a, b, i: L.softmax(a, -1),
    "where": lambda L, a, b, i: L.where(a > 0, a, b), "index_select": lambda L, a, b, i: L.index_select(a, 0, i),
    "mse_loss": lambda L, a, b, i: L.nn.functional.mse_loss(a, b), "linear": lambda L, a, b, i: L.nn.functional.linear(a, b),
    "cross_entropy": lambda L, a, b, i: L.nn.functional.cross_entropy(a[:3], i),
    "meshgrid": lambda L, a, b, i: L.meshgrid(i, i, indexing="ij")[0],
    "conv1d": lambda L, a, b, i: L.nn.functional.conv1d(a[None], b[None]),
    "std": lambda L, a, b, i: L.std(a), "clamp": lambda L, a, b, i: L.clamp(a, min=b),
    "keywords": lambda L, a, b, i: L.mul(input=a, other=b), "embedding": lambda L, a, b, i: L.nn.functional.embedding(i, a),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_arrays_as_tensors_of_their_values(name):
    function = FUNCTIONS[name]
    tensors = [sl.tensor(x) for x in (A, B, INDEX)]
    same(function(sl, A, B, INDEX), function(sl, *tensors))
    want = function(torch, *(torch.tensor(x) for x in (A, B, INDEX)))
    np.testing.assert_allclose(function(sl, A, B, INDEX).numpy(), want.numpy(), rtol=2e-5, atol=2e-6)


def test_methods_take_them_but_not_as_self():
    t = sl.tensor(A)
    same(t.gather(0, np.zeros((1, 6), np.int64)), t[:1])
    same(t.masked_fill(A > 0, 0.0), t.masked_fill(t > 0, 0.0))
    same(t.index_add(0, INDEX, B[:3]), t.index_add(0, sl.tensor(INDEX), sl.tensor(B[:3])))
    same(t @ B.T, t @ sl.tensor(B).T)
    assert (t.clone().copy_(B) == B).all() and sl.equal(t, A)
    with pytest.raises(TypeError, match="descriptor for 'Tensor' objects doesn't apply to a 'numpy.ndarray' object"):
        sl.Tensor.relu(A)


def test_dtypes_are_the_arrays_and_promote_as_those_of_tensors():
    t = sl.tensor(A)
    for dtype in (np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_, np.complex64):
        array = np.ones((4, 6), dtype)
        assert sl.cat([array, array]).dtype == sl.tensor(array).dtype
        assert sl.add(t, array).dtype == (t + sl.tensor(array)).dtype
    assert sl.maximum(t, B.astype(np.float64)).dtype == sl.float64
    with pytest.raises(RuntimeError, match="dtype"):
        F.linear(A.astype(np.float64), t)


def test_memory_is_that_of_the_array():
    array = A.copy()
    view = sl.t(array)
    array[0, 1] = 5
    assert view[1, 0].item() == 5
    for odd in (A[::-1], A.T, A[:, ::2], np.asfortranarray(A), np.array(3, np.float32), np.zeros((0, 6), np.float32), A[None, ::-1, :0:-2]):
        same(sl.neg(odd), sl.neg(sl.tensor(np.array(odd))))
        same(nn.Identity()(odd), sl.tensor(np.array(odd)).float())
    locked = A.copy()
    locked.setflags(write=False)
    same(sl.abs(locked), sl.tensor(A).abs())


def test_nothing_is_written_into_an_array():
    array = A.copy()
    with pytest.raises(TypeError, match="doesn't apply to a 'numpy.ndarray' object"):
        sl.relu_(array)
    with pytest.raises(TypeError, match="arrays are not written in place"):
        F.relu(array, inplace=True)
    with pytest.raises(TypeError, match="must be Tensor"):
        sl.add(sl.tensor(A), 1, out=array)
    np.testing.assert_array_equal(array, A)


class Pixels:
    """Not an array, though it could be made one."""

    __array_interface__ = A.__array_interface__


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, ">f4"), np.float32(1), [1.0, 2.0],
                                 Pixels(), memoryview(b"ab")])
def test_what_is_no_array_of_numbers_is_refused_as_by_torch(bad):
    for call in (lambda: sl.relu(bad), lambda: sl.cat([sl.ones(2), bad]), lambda: F.mse_loss(sl.ones(2), bad)):
        with pytest.raises(TypeError, match="must be .*Tensor"):
            call()


def test_operators_take_arrays_on_either_side():
    t = sl.tensor(A)
    same(t * B, t * sl.tensor(B))
    same(B * t, sl.tensor(B) * t)
    with pytest.raises(TypeError):
        t & B


LAYERS = {
    "linear": (lambda L: L.nn.Linear(6, 3), (4, 6)), "conv": (lambda L: L.nn.Conv2d(2, 3, 3), (1, 2, 5, 5)),
    "batch norm": (lambda L: L.nn.BatchNorm1d(6), (4, 6)), "layer norm": (lambda L: L.nn.LayerNorm(6), (4, 6)),
    "sequential": (lambda L: L.nn.Sequential(L.nn.Linear(6, 3), L.nn.ReLU(), L.nn.Linear(3, 2)), (4, 6)),
    "pool": (lambda L: L.nn.MaxPool2d(2), (1, 2, 4, 4)),
    "activation": (lambda L: L.nn.GELU(), (4, 6)), "prelu": (lambda L: L.nn.PReLU(), (4, 6)),
    "transformer": (lambda L: L.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), (2, 4, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_layer_of_an_array_equals_that_of_the_tensor(name, dtype):
    make, shape = LAYERS[name]
    layer, array = make(sl), RNG.standard_normal(shape).astype(dtype)
    got, cast = layer(array), sl.tensor(array.astype(np.float32))
    if not list(layer.parameters()) and dtype == np.float16:  # only float64 becomes the default dtype
        cast = cast.half()
    same(got.detach(), layer(cast).detach())


def test_a_layer_casts_to_its_dtype_and_takes_the_array_to_its_device():
    x = np.ones((2, 13), np.float64)
    layer = nn.Linear(13, 4)
    assert layer(x).dtype == sl.float32 and layer.double()(x.astype(np.float32)).dtype == sl.float64
    assert layer.to(sl.bfloat16)(x).dtype == sl.bfloat16
    there = nn.Linear(13, 4, device="sim:0")
    assert there(x).device == sl.device("sim:0")
    same(there(x).cpu().detach(), there(sl.ones(2, 13, device="sim:0")).cpu().detach())
    assert nn.Identity()(x).dtype == sl.float32
    sl.set_default_dtype(sl.float64)
    try:
        assert nn.Identity()(x).dtype == sl.float64
    finally:
        sl.set_default_dtype(sl.float32)
    assert nn.Embedding(5, 3)(INDEX).shape == (3, 3) and nn.Identity()(INDEX).dtype == sl.int64
    with pytest.raises(RuntimeError, match="dtype"):
        nn.Linear(13, 4)(np.ones((2, 13), np.int64))
    with pytest.raises(TypeError, match="M8|datetime|dtype"):
        layer(np.zeros((2, 13), "M8[s]"))


def test_layers_copy_arrays_so_gradients_are_those_of_the_call():
    layer, array = nn.Linear(6, 3), A.copy()
    loss = layer(array).sum()
    array[:] = 0
    loss.backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.broadcast_to(A.sum(0), (3, 6)), rtol=1e-5, atol=1e-6)


def test_arrays_within_arguments_and_by_keyword():
    lstm, x, state = nn.LSTM(6, 5), A[:, None], np.zeros((1, 1, 5))
    want, (h, _) = lstm(sl.tensor(x))
    got, (again, _) = lstm(x, (state, state))
    same(got.detach(), want.detach())
    same(again.detach(), h.detach())
    same(nn.MSELoss()(sl.tensor(A), target=B.astype(np.float64)), nn.MSELoss()(sl.tensor(A), sl.tensor(B)))
    same(nn.CrossEntropyLoss()(sl.tensor(A[:3]), INDEX), nn.CrossEntropyLoss()(sl.tensor(A[:3]), sl.tensor(INDEX)))
    attention = nn.MultiheadAttention(6, 2)
    same(attention(A, A, value=B)[0].detach(), attention(*(sl.tensor(x) for x in (A, A, B)))[0].detach())


def test_hooks_see_tensors_and_modules_of_others_see_arrays():
    seen = []
    layer = nn.Linear(6, 3)
    layer.register_forward_pre_hook(lambda module, args: seen.append(type(args[0])))
    layer(A)
    assert seen == [sl.Tensor]

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x, **options):
            seen.append(type(x))
            return self.inner(x)

    class Loss(nn.MSELoss):
        def forward(self, x, y):
            seen.append(type(y))
            return super().forward(x, y)

    ours = Ours()
    same(ours(A).detach(), ours.inner(sl.tensor(A)).detach())
    nn.Sequential(ours)(A)
    Loss()(sl.tensor(A), B)
    assert seen[1:] == [np.ndarray] * 3  # as torch calls them


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_graphs_take_arrays(dtype):
    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(6, 3)

        def build(self, x, extra):
            return self.model(x) + extra["bias"]

    graph, x, bias = Net(), A.astype(dtype), B[:, :3].astype(dtype)
    want = graph(sl.tensor(A), {"bias": sl.tensor(B[:, :3].copy())})
    same(graph(x, {"bias": bias}), want)
    same(graph(x, extra={"bias": bias}), want)
    np.testing.assert_allclose(want.numpy(), (graph.model(x) + bias.astype(np.float32)).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_in_a_graph_an_array_is_a_constant():
    class Net(nn.Graph):
        def build(self, x):
            return sl.maximum(x, B) + nn.functional.mse_loss(x, B)

    t = sl.tensor(A)
    np.testing.assert_allclose(Net()(t).numpy(), (sl.maximum(t, B) + F.mse_loss(t, B)).numpy(), rtol=1e-6)


def test_gradients_go_to_the_tensors():
    w = sl.ones(3, 6, requires_grad=True)
    (F.linear(A, w) * sl.cat([w[:, :1].T, np.ones((3, 3), np.float32)])).sum().backward()
    v = torch.ones(3, 6, requires_grad=True)
    (torch.nn.functional.linear(torch.tensor(A), v) * torch.cat([v[:, :1].T, torch.ones(3, 3)])).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-5)


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lt, operator.ge,
             operator.eq, operator.ne]


@pytest.mark.parametrize("f", OPERATORS, ids=lambda f: f.__name__)
def test_numpys_numbers_on_the_left_leave_the_operation_to_the_tensor(f):
    for left in (np.float32(2.5), np.float64(2.5), np.int64(3), np.int8(3)):
        for values in ([1.0, 2.0, 3.0], [1, 2, 3]):
            got, want = f(left, sl.tensor(values)), f(left, torch.tensor(values))
            assert isinstance(got, sl.Tensor) and str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert isinstance(f(np.array([2.0, 3.0, 4.0]), sl.tensor([1.0, 2.0, 3.0])), sl.Tensor)


def test_numpys_numbers_on_the_left_keep_gradients_and_are_captured():
    x = sl.tensor([1.0, 2.0], requires_grad=True)
    (np.float32(0.5) * x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5]

    class Scaled(nn.Graph):
        def build(self, x):
            return np.float32(0.5) * x - np.float64(1) / x

    assert Scaled()(sl.tensor([1.0, 2.0])).tolist() == [-0.5, 0.5]
    assert sl.compile(lambda x: np.float32(0.5) * x)(sl.tensor([1.0, 2.0])).tolist() == [0.5, 1.0]
