"""Gradients of tensors that are cut up: what slices of one tensor get is put side by side; torch is the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

X = torch.linspace(-1.5, 2, 84, dtype=torch.float64).reshape(2, 7, 6)
CASES = {
    "chunk": lambda x: x.chunk(3, -1),
    "unbind": lambda x: x.unbind(1),
    "in_any_order": lambda x: [x[:, i] for i in (3, 0, 6, 1, 5, 2, 4)],
    "one": lambda x: [x[:, -1]],
    "gaps": lambda x: [x[:, 1], x[:, 4:6]],
    "gap_in_the_middle": lambda x: [x[..., :2], x[..., 5:]],
    "the_same_twice": lambda x: [x[:, 1], x[:, 1] * 2],
    "windows": lambda x: [x[:, i : i + 3] for i in range(5)],
    "one_in_another": lambda x: [x[:, 2:4], x[:, 1:6], x[:, 0]],
    "several_axes": lambda x: [x[:1], x[1:], x[:, 3:], x[:, :3], x[..., 0]],
    "corners": lambda x: [x[:1, :3], x[1:, 3:]],
    "steps": lambda x: [x[:, ::2], x[:, 1::2], x[:, 6::9]],
    "empty": lambda x: [x[:, 3:3], x[:, 3:], x[:0]],
    "parts_of_parts": lambda x: [piece for row in x.unbind(0) for piece in row.split([1, 3, 3])],
    "beside_the_whole": lambda x: [x * 2, x[:, :3], x[:, 3:], x.exp()],
    "some_are_not_read": lambda x: x.split([2, 3, 2], 1)[::2],
}


def run(lib, name, x):
    """A sum over the parts, its gradient, and the gradient of that."""
    y = sum((part**3 * (i + 1)).sum() for i, part in enumerate(CASES[name](x * 1)))
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    return [y, g, *lib.autograd.grad((g * g).sum(), x)]


class Derive(sl.nn.Graph):
    def __init__(self, name):
        super().__init__()
        self.case = name

    def build(self, x):
        return run(sl, self.case, (x * 1).detach().requires_grad_(True))


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parts_equal_torch(name):
    theirs = run(torch, name, X.clone().requires_grad_(True))
    for a, b in zip(run(sl, name, to_sl(X).requires_grad_(True)), theirs, strict=True):
        assert_same(a, b, 1e-12)
    for a, b in zip(Derive(name)(to_sl(X)), theirs, strict=True):
        assert_same(a, b, 1e-12)


def test_zeros_keep_their_sign_where_the_parts_are_all_there_is():
    def gradient(lib, weight):
        x = lib.ones(4, requires_grad=True)
        a, b = x.chunk(2)
        (a * weight + b * 2).sum().backward()
        return x.grad

    assert torch.equal(torch.signbit(gradient(torch, torch.tensor([-0.0, 1.0]))), torch.tensor([True, False, False, False]))
    assert sl.signbit(gradient(sl, sl.tensor([-0.0, 1.0]))).tolist() == [True, False, False, False]


class Attention(sl.nn.Graph):
    def build(self, x):
        x = (x * 1).detach().requires_grad_(True)
        q, k, v = x.reshape(2, 5, 3, 4).unbind(2)
        (q * k + v).square().sum().backward()
        return x.grad


def test_parts_are_joined_by_one_op():
    graph = Attention()
    graph(sl.randn(2, 5, 12))
    text = repr(graph)
    assert text.count("(OP:concat") == 1 and "(OP:pad" not in text


def test_hooks_see_the_whole_gradient():
    seen = []
    x = sl.ones(4, 3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad) or grad * 10)
    y.retain_grad()
    (y[0] + y[2] * 3).sum().backward()
    expected = [[1.0] * 3, [0.0] * 3, [3.0] * 3, [0.0] * 3]
    assert [grad.tolist() for grad in seen] == [expected]
    assert y.grad.tolist() == [[10 * v for v in row] for row in expected]
    assert x.grad.tolist() == [[20 * v for v in row] for row in expected]


def test_a_gradient_of_a_part_may_be_written_to():
    x = sl.ones(4, requires_grad=True)
    other = sl.ones(2, requires_grad=True)
    other.register_post_accumulate_grad_hook(lambda leaf: leaf.grad.zero_())
    (x[:2] + other).sum().backward()  # both get the same gradient
    assert x.grad.tolist() == [1, 1, 0, 0] and other.grad.tolist() == [0, 0]


@pytest.mark.parametrize("length", [1, 50])
def test_memory_is_that_of_few_wholes_for_any_number_of_parts(length):
    rows, size = 100, 1000
    x = sl.ones(rows, size, requires_grad=True)
    y = sum((x[i : i + length] * 2).sum() for i in range(rows - length + 1))
    before = sl.memory.active()
    sl.memory.reset_peak()
    y.backward()
    whole = rows * size * 4
    assert x.grad.sum().item() == 2 * size * length * (rows - length + 1)
    assert sl.memory.peak() - before < 5 * whole
