"""Gradients where torch and a plain formula differ: kinks and extremes."""

import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same

import sluice as sl
import sluice.nn.functional as SF
from expressions import nan, of

# Functions of x (and y) and where they are not smooth, or large: gradients are torch's.
GRADIENTS = [
    ("x.norm()", [0.0, 0.0]),
    ("x.norm(1)", [0.0, -2.0]),
    ("x.norm(3)", [0.0, 0.0]),
    ("x.norm(3)", [-2.0, 1.0, 0.0]),
    ("x.norm(0.5)", [0.0, 1.0]),
    ("x.norm(0.5)", [0.0, 0.0]),
    ("x.norm(1.5)", [0.0, 1.0]),
    ("x.norm(-1)", [0.0, 1.0]),
    ("x.norm(-1)", [2.0, 1.0]),
    ("x.norm(inf)", [2.0, 2.0, -2.0, 1.0]),
    ("x.norm(-inf)", [0.0, 0.0, 1.0]),
    ("x.norm(2, 1)", [[0.0, 0.0], [3.0, 4.0]]),
    ("x.norm(4, 1, keepdim=True)", [[0.0, 0.0], [3.0, 4.0]]),
    ("F.normalize(x, dim=0)", [0.0, 0.0]),
    ("F.normalize(x, 3, 0)", [0.0, 0.0]),
    ("F.normalize(x, dim=1)", [[0.0, 0.0], [3.0, 4.0]]),
    ("x.std()", [2.0, 2.0, 2.0]),
    ("x.std(1, correction=0)", [[2.0, 2.0], [1.0, 2.0]]),
    ("x.var()", [2.0, 2.0]),
    ("x.half().std().float()", [300.0, 0.0]),
    ("F.cosine_similarity(x, T([[1., 2.]]))", [[0.0, 0.0]]),
    ("F.cosine_similarity(x, T([[1., 2.]]))", [[1e-10, 1e-10]]),
    ("F.cosine_similarity(x, T([[1., 2.]]))", [[1.0, 1.0]]),
    ("F.hardtanh(x)", [-1.0, 0.0, 1.0, 2.0]),
    ("F.relu6(x)", [0.0, 3.0, 6.0, 7.0]),
    ("F.hardsigmoid(x)", [-3.0, 0.0, 3.0]),
    ("F.hardswish(x)", [-4.0, -3.0, 0.0, 3.0, 4.0]),
    ("F.leaky_relu(x)", [-1.0, 0.0, 1.0]),
    ("F.elu(x, 2.)", [-1.0, 0.0, 1.0]),
    ("F.relu(x)", [-1.0, 0.0, 1.0]),
    ("F.softplus(x, 1., 1.)", [0.9, 1.0, 1.1]),
    ("F.softsign(x)", [-1.0, 0.0]),
    ("F.logsigmoid(x)", [-100.0, 0.0, 100.0]),
    ("x.abs()", [-1.0, 0.0]),
    ("x.clamp(-1, 1)", [-1.0, 0.0, 1.0, 2.0]),
    ("x.clamp(min=nan)", [-1.0, 0.0]),
    ("torch.maximum(x, T([0., 1., nan, nan]))", [0.0, nan, 1.0, nan]),
    ("torch.minimum(x, T([0., 1., 0.]))", [0.0, 0.0, 1.0]),
    ("x.amax(0)", [1.0, 1.0, 0.0]),
    ("x.max(0).values", [1.0, 1.0, 0.0]),
    ("x.prod()", [0.0, 2.0, 3.0]),
    ("x.prod()", [0.0, 0.0, 3.0]),
    ("x.pow(0)", [0.0, 1.0]),
    ("x.pow(1)", [0.0, 1.0]),
    ("x.round()", [0.4, 0.5, 1.5]),
    ("x.floor() + x.ceil() + x.trunc() + x.sign()", [-1.5, 0.0, 2.0]),
    ("torch.div(x, 2., rounding_mode='floor')", [1.5, 2.0]),
    ("torch.div(T([3., 3.]), x, rounding_mode='trunc')", [1.5, 2.0]),
    ("torch.remainder(x, 2.)", [5.5, -5.5]),
    ("torch.fmod(T([5.5, -5.5]), x)", [2.0, -2.0]),
    ("torch.lerp(x, T([5., 5.]), T([0.25, 0.75]))", [1.0, 2.0]),
    ("F.binary_cross_entropy(x, T([0., 1., 1., 0., 1.]))", [0.0, 1.0, 0.0, 1.0, 0.5]),
    ("F.binary_cross_entropy(T([.2, .7]), x)", [0.3, 0.4]),
    ("F.scaled_dot_product_attention(x, x, x, attn_mask=T([[False, False], [True, True]]))", [[1.0, 0.0], [0.0, 1.0]]),
    ("F.scaled_dot_product_attention(x, x, x, attn_mask=T([[-inf, -inf], [0., 1.]]))", [[1.0, 0.0], [0.0, 1.0]]),
    ("T([1., 2.]).masked_fill(T([True, False]), x)", 3.0),
    ("torch.zeros(2, 0).logsumexp(1) + x", [1.0, 2.0]),
    ("x.gather(0, T(0))", 3.0),
    ("x.erfinv()", [-0.5, 0.0, 0.9]),
    ("x.sort(descending=True).values[0]", [1.0, nan, 3.0]),
    ("torch.cat([T([]), x])", [[1.0, 2.0]]),
    ("x.repeat(2, 2)", [1.0, 2.0]),
    ("x.roll(2)", [1.0, 2.0]),
    ("x[T([0, -1]), T([1, 1])]", [[1.0, 2.0], [3.0, 4.0]]),
]


@pytest.mark.parametrize("function, at", GRADIENTS)
def test_gradient_is_torchs(function, at):
    grads = []
    for m, f in ((sl, SF), (torch, TF)):
        x = m.tensor(at, requires_grad=True)
        y = of(m, f, f"lambda x: {function}")(x)
        y.backward(m.ones_like(y))
        grads.append(x.grad)
    assert_same(*grads, 1e-4)


@pytest.mark.parametrize("function, at", [case for case in GRADIENTS if "sort" not in case[0] and "T([]" not in case[0]])
def test_gradient_in_a_graph_is_torchs(function, at):
    class Gradient(sl.nn.Graph):
        def build(self, x):
            x = x.detach().requires_grad_()
            y = of(sl, SF, f"lambda x: {function}")(x)
            return sl.autograd.grad(y, x, sl.ones_like(y))[0]

    x = torch.tensor(at, requires_grad=True)
    y = of(torch, TF, f"lambda x: {function}")(x)
    y.backward(torch.ones_like(y))
    assert_same(Gradient()(sl.tensor(at)), x.grad, 1e-4)
