"""Functions against torch: values, gradients, double gradients."""

import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F


def r(*shape, low=-1.0, high=1.0):
    return (torch.rand(*shape, dtype=torch.float64) * (high - low) + low).requires_grad_()


def positive(*shape):
    return r(*shape, low=0.3, high=2.0)


# name -> (our function, torch's, inputs)
SMOOTH = {
    "add": (lambda a, b: a + b, lambda a, b: a + b, [(3, 4), (4,)]),
    "sub scalar": (lambda a: 2.0 - a, lambda a: 2.0 - a, [(3, 4)]),
    "add alpha": (lambda a, b: sl.add(a, b, alpha=2), lambda a, b: torch.add(a, b, alpha=2), [(3, 4), (3, 1)]),
    "mul": (sl.mul, torch.mul, [(3, 4), (3, 1)]),
    "div": (lambda a, b: a / (b + 3), lambda a, b: a / (b + 3), [(3, 4), (3, 4)]),
    "pow": (lambda a: (a + 2) ** 2.5, lambda a: (a + 2) ** 2.5, [(3, 4)]),
    "rpow": (lambda a: 2.0 ** a, lambda a: 2.0 ** a, [(3, 4)]),
    "exp": (sl.exp, torch.exp, [(5,)]),
    "expm1": (sl.expm1, torch.expm1, [(5,)]),
    "log": (lambda a: sl.log(a + 2), lambda a: torch.log(a + 2), [(5,)]),
    "log1p": (sl.log1p, torch.log1p, [(5,)]),
    "sqrt": (lambda a: sl.sqrt(a + 2), lambda a: torch.sqrt(a + 2), [(5,)]),
    "rsqrt": (lambda a: sl.rsqrt(a + 2), lambda a: torch.rsqrt(a + 2), [(5,)]),
    "reciprocal": (lambda a: sl.reciprocal(a + 2), lambda a: torch.reciprocal(a + 2), [(5,)]),
    "sin cos": (lambda a: a.sin() * a.cos(), lambda a: a.sin() * a.cos(), [(5,)]),
    "tanh": (sl.tanh, torch.tanh, [(5,)]),
    "erf": (sl.erf, torch.erf, [(5,)]),
    "sigmoid": (sl.sigmoid, torch.sigmoid, [(5,)]),
    "square": (sl.square, torch.square, [(5,)]),
    "atan2": (lambda a, b: sl.atan2(a, b + 3), lambda a, b: torch.atan2(a, b + 3), [(5,), (5,)]),
    "lerp": (lambda a, b: sl.lerp(a, b, 0.3), lambda a, b: torch.lerp(a, b, 0.3), [(5,), (5,)]),
    "addcmul": (sl.addcmul, torch.addcmul, [(2, 3), (2, 3), (3,)]),
    "sum": (lambda a: a.sum((0, 2)), lambda a: a.sum((0, 2)), [(2, 3, 4)]),
    "mean": (lambda a: a.mean(-1, keepdim=True), lambda a: a.mean(-1, keepdim=True), [(2, 3, 4)]),
    "prod": (lambda a: (a + 2).prod(1), lambda a: (a + 2).prod(1), [(3, 4)]),
    "var": (lambda a: a.var(1), lambda a: a.var(1), [(3, 4)]),
    "std": (lambda a: a.std(1, unbiased=False), lambda a: a.std(1, unbiased=False), [(3, 4)]),
    "norm": (lambda a: a.norm(2, 1), lambda a: a.norm(2, 1), [(3, 4)]),
    "logsumexp": (lambda a: a.logsumexp(1), lambda a: a.logsumexp(1), [(3, 4)]),
    "cumsum": (lambda a: a.cumsum(1), lambda a: a.cumsum(1), [(3, 4)]),
    "matmul": (sl.matmul, torch.matmul, [(2, 3, 4), (4, 5)]),
    "vector matmul": (sl.matmul, torch.matmul, [(4,), (3, 4, 5)]),
    "linear": (F.linear, TF.linear, [(2, 3, 4), (5, 4), (5,)]),
    "softmax": (lambda a: sl.softmax(a, 1), lambda a: torch.softmax(a, 1), [(3, 4, 2)]),
    "log_softmax": (lambda a: sl.log_softmax(a, -1), lambda a: torch.log_softmax(a, -1), [(3, 4)]),
    "gelu": (F.gelu, TF.gelu, [(9,)]),
    "gelu tanh": (lambda a: F.gelu(a, "tanh"), lambda a: TF.gelu(a, approximate="tanh"), [(9,)]),
    "silu": (F.silu, TF.silu, [(9,)]),
    "mish": (F.mish, TF.mish, [(9,)]),
    "softplus": (F.softplus, TF.softplus, [(9,)]),
    "logsigmoid": (F.logsigmoid, TF.logsigmoid, [(9,)]),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), lambda x, w, b: TF.conv1d(x, w, b, 2, 1), [(2, 4, 9), (6, 4, 3), (6,)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, 1, 1), lambda x, w, b: TF.conv2d(x, w, b, 1, 1), [(2, 4, 6, 5), (6, 4, 3, 3), (6,)]),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, None, 2, 2, 2, 2), lambda x, w: TF.conv2d(x, w, None, 2, 2, 2, 2),
                      [(2, 4, 7, 7), (6, 2, 3, 3)]),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), lambda x, w: TF.conv3d(x, w, padding=1), [(1, 2, 4, 4, 3), (3, 2, 3, 3, 3)]),
    "conv_transpose2d": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), lambda x, w, b: TF.conv_transpose2d(x, w, b, 2, 1, 1),
                         [(2, 4, 5, 5), (4, 3, 3, 3), (3,)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: TF.avg_pool2d(x, 3, 2, 1), [(2, 3, 7, 7)]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: TF.adaptive_avg_pool2d(x, (2, 3)), [(2, 3, 7, 7)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x, w, b: TF.batch_norm(x, None, None, w, b, True),
                   [(4, 3, 5, 5), (3,), (3,)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda x, w, b: TF.layer_norm(x, (4,), w, b), [(2, 3, 4), (4,), (4,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), lambda x, w, b: TF.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "mse_loss": (F.mse_loss, TF.mse_loss, [(3, 4), (3, 4)]),
    "bce with logits": (lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()),
                        lambda x: TF.binary_cross_entropy_with_logits(x, x.detach().sigmoid()), [(3, 4)]),
    "attention": (F.scaled_dot_product_attention, TF.scaled_dot_product_attention, [(2, 3, 4), (2, 5, 4), (2, 5, 6)]),
    "reshape": (lambda a: a.reshape(4, -1), lambda a: a.reshape(4, -1), [(3, 4)]),
    "permute": (lambda a: a.permute(2, 0, 1), lambda a: a.permute(2, 0, 1), [(2, 3, 4)]),
    "expand": (lambda a: a.expand(5, -1, 4), lambda a: a.expand(5, -1, 4), [(3, 1)]),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 1), value=3.0), lambda a: TF.pad(a, (1, 2, 0, 1), value=3.0), [(3, 4)]),
    "crop by pad": (lambda a: F.pad(a, (-1, 2)), lambda a: TF.pad(a, (-1, 2)), [(3, 4)]),
    "cat": (lambda a, b: sl.cat([a, b], 1), lambda a, b: torch.cat([a, b], 1), [(3, 4), (3, 2)]),
    "stack": (lambda a, b: sl.stack([a, b], -1), lambda a, b: torch.stack([a, b], -1), [(3, 4), (3, 4)]),
    "flip": (lambda a: a.flip(0, 1), lambda a: a.flip(0, 1), [(3, 4)]),
    "roll": (lambda a: a.roll(2, 1), lambda a: a.roll(2, 1), [(3, 4)]),
    "repeat": (lambda a: a.repeat(2, 3), lambda a: a.repeat(2, 3), [(3, 4)]),
    "tril": (lambda a: a.tril(1), lambda a: a.tril(1), [(4, 4)]),
    "split": (lambda a: a.split([1, 3], 1)[1], lambda a: a.split([1, 3], 1)[1], [(3, 4)]),
    "chunk": (lambda a: a.chunk(3, 1)[1], lambda a: a.chunk(3, 1)[1], [(3, 8)]),
    "unfold rows": (lambda a: a[1:, ::2], lambda a: a[1:, ::2], [(4, 6)]),
    "index rows": (lambda a: a[sl.tensor([2, 0, 2])], lambda a: a[torch.tensor([2, 0, 2])], [(4, 6)]),
    "index pairs": (lambda a: a[sl.tensor([2, 0]), :, sl.tensor([1, -1])], lambda a: a[torch.tensor([2, 0]), :, torch.tensor([1, -1])],
                    [(4, 2, 3)]),
    "gather": (lambda a: a.gather(1, sl.tensor([[0, 1], [2, 2], [1, 0]])), lambda a: a.gather(1, torch.tensor([[0, 1], [2, 2], [1, 0]])),
               [(3, 4)]),
    "scatter_add": (lambda a, b: a.scatter_add(1, sl.tensor([[0, 0], [2, 2], [1, 0]]), b),
                    lambda a, b: a.scatter_add(1, torch.tensor([[0, 0], [2, 2], [1, 0]]), b), [(3, 4), (3, 2)]),
    "where": (lambda a, b: sl.where(a.detach() > 0, a, b), lambda a, b: torch.where(a.detach() > 0, a, b), [(3, 4), (3, 4)]),
    "masked_fill": (lambda a: a.masked_fill(a.detach() > 0, 2.0), lambda a: a.masked_fill(a.detach() > 0, 2.0), [(3, 4)]),
}
# First derivative only: max and abs have none of their own at kinks.
KINKED = {
    "abs": (sl.abs, torch.abs, [(9,)]),
    "relu": (F.relu, TF.relu, [(9,)]),
    "leaky_relu": (lambda a: F.leaky_relu(a, 0.2), lambda a: TF.leaky_relu(a, 0.2), [(9,)]),
    "elu": (F.elu, TF.elu, [(9,)]),
    "relu6": (F.relu6, TF.relu6, [(9,)]),
    "hardswish": (F.hardswish, TF.hardswish, [(9,)]),
    "hardsigmoid": (F.hardsigmoid, TF.hardsigmoid, [(9,)]),
    "hardtanh": (F.hardtanh, TF.hardtanh, [(9,)]),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), lambda a: a.clamp(-0.5, 0.5), [(9,)]),
    "maximum": (sl.maximum, torch.maximum, [(9,), (9,)]),
    "amax": (lambda a: a.amax(1), lambda a: a.amax(1), [(3, 4)]),
    "max values": (lambda a: a.max(1).values, lambda a: a.max(1).values, [(3, 4)]),
    "min values": (lambda a: a.min(0).values, lambda a: a.min(0).values, [(3, 4)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: TF.max_pool2d(x, 3, 2, 1), [(2, 3, 7, 7)]),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), lambda x: TF.max_pool1d(x, 2), [(2, 3, 8)]),
    "sort": (lambda a: a.sort(1).values, lambda a: a.sort(1).values, [(3, 4)]),
    "topk": (lambda a: a.topk(2, 1).values, lambda a: a.topk(2, 1).values, [(3, 4)]),
    "l1_loss": (F.l1_loss, TF.l1_loss, [(3, 4), (3, 4)]),
    "smooth_l1_loss": (F.smooth_l1_loss, TF.smooth_l1_loss, [(3, 4), (3, 4)]),
}


def _both(case, dtype):
    ours, theirs, shapes = case
    inputs = [r(*s).to(dtype).detach().requires_grad_() for s in shapes]
    return ours, theirs, [to_sl(t) for t in inputs], inputs


@pytest.mark.parametrize("name", [*SMOOTH, *KINKED])
def test_value_and_gradient_equal_torch(name):
    ours, theirs, a, b = _both({**SMOOTH, **KINKED}[name], torch.float32)
    x, y = ours(*a), theirs(*b)
    assert_same(x, y, 1e-5)
    weight = torch.rand(y.shape)
    x.backward(to_sl(weight))
    y.backward(weight)
    for p, q in zip(a, b):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            assert_same(p.grad, q.grad, 1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_double_gradient_equals_torch(name):
    ours, theirs, a, b = _both(SMOOTH[name], torch.float64)
    x, y = ours(*a), theirs(*b)
    weight = torch.rand(y.shape, dtype=torch.float64)
    first = sl.autograd.grad([(x * to_sl(weight)).sum()], a, create_graph=True, allow_unused=True)
    other = torch.autograd.grad([(y * weight).sum()], b, create_graph=True, allow_unused=True)
    used = [(g, h) for g, h in zip(first, other) if h is not None]
    for g, h in used:
        assert_same(g, h, 1e-8)
    total = sum(h.square().sum() for _, h in used)
    if not total.requires_grad:
        return
    ours_total = sum(g.square().sum() for g, _ in used)
    # The gradient of a linear op does not depend on the inputs; torch records zeros there.
    second = sl.autograd.grad([ours_total], a, allow_unused=True) if ours_total.requires_grad else [None] * len(a)
    for g, h in zip(second, torch.autograd.grad([total], b, allow_unused=True)):
        if h is None or h.abs().max() < 1e-15:
            assert g is None or g.abs().max().item() < 1e-15
        else:
            assert_same(g, h, 1e-7)


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "remainder", "fmod",
                                "floor_divide", "minimum"])
def test_integer_and_comparison_ops_equal_torch(op):
    a, b = torch.randint(-5, 6, (4, 5)), torch.randint(1, 4, (5,))
    assert_same(getattr(sl, op)(to_sl(a), to_sl(b)), getattr(torch, op)(a, b))


@pytest.mark.parametrize("target", ["indices", "probabilities", "smoothing", "ignored", "images"])
def test_cross_entropy_equals_torch(target):
    logits = r(6, 5).float().detach()
    classes, options = torch.randint(0, 5, (6,)), {}
    if target == "probabilities":
        classes = torch.softmax(torch.rand(6, 5), 1)
    elif target == "smoothing":
        options = {"label_smoothing": 0.1}
    elif target == "ignored":
        classes[2], options = 1, {"ignore_index": 1}
    elif target == "images":
        logits, classes = torch.rand(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))
    logits.requires_grad_()
    ours, theirs = to_sl(logits), logits
    x, y = F.cross_entropy(ours, to_sl(classes), **options), TF.cross_entropy(theirs, classes, **options)
    assert_same(x, y)
    x.backward()
    y.backward()
    assert_same(ours.grad, theirs.grad)


def test_embedding_equals_torch_with_padding():
    weight, index = r(6, 3), torch.tensor([[0, 5, 2], [2, 2, 1]])
    ours = to_sl(weight)
    assert_same(F.embedding(to_sl(index), ours, 2), TF.embedding(index, weight, 2))
    F.embedding(to_sl(index), ours, 2).sum().backward()
    TF.embedding(index, weight, 2).sum().backward()
    assert_same(ours.grad, weight.grad)


PROMOTIONS = [("float32", 2), ("float32", 2.5), ("int64", 2), ("int64", 2.5), ("bool", 2), ("bool", True), ("uint8", 300.5), ("float64", 1)]


@pytest.mark.parametrize("dtype, number", PROMOTIONS)
def test_numbers_promote_as_in_torch(dtype, number):
    a = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    assert_same(to_sl(a) * number, a * number)


@pytest.mark.parametrize("a", ["float32", "int64", "int32", "uint8", "bool", "float64", "int8"])
@pytest.mark.parametrize("b", ["float32", "int64", "int16", "uint8", "bool"])
def test_tensors_promote_as_in_torch(a, b):
    x, y = torch.tensor([1, 0, 3]).to(getattr(torch, a)), torch.tensor([1, 2, 1]).to(getattr(torch, b))
    assert_same(to_sl(x) + to_sl(y), x + y)
    assert sl.promote_types(getattr(sl, a), getattr(sl, b)).name == str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:]


def test_every_op_definition_is_bound_with_its_signature():
    assert len(sl.ops.__all__) > 80
    for name in sl.ops.__all__:
        op = getattr(sl.ops, name)
        assert op.__name__ == name
        assert op.__doc__.startswith(name + "(")
    x = sl.tensor([1.0, 2.0])
    assert sl.ops.add(x, x).tolist() == [2.0, 4.0]
    with pytest.raises(TypeError, match="add: missing argument 'b'|add: missing argument"):
        sl.ops.add(x)
    with pytest.raises(TypeError, match="unexpected argument 'axis'"):
        sl.ops.add(x, x, axis=1)


def test_shape_errors_name_op_shapes_and_line():
    with pytest.raises(ValueError, match=r"matmul: .*\(4, 3\).*\(2, 5\).*test_ops.py:\d+"):
        sl.ones(4, 3) @ sl.ones(2, 5)
    with pytest.raises(sl.Error):
        sl.ones(4, 3) + sl.ones(2, 5)
