"""Additions that become a part of what makes one of their operands: OneFlow's allow_fuse_add_to_output (CFG-03)."""

from collections import Counter

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn.functional as F
from sluice import nn

X, W, R = ((4, 6), (6, 6), (4, 6))
# Each makes an operand, from a tensor and the graph's modules, with the shapes of the tensor and of what is added.
PRODUCERS = {
    "matmul": (lambda g, x: x @ g.weight, X, R),
    "batch_matmul": (lambda g, x: x.bmm(x.transpose(1, 2)), (3, 4, 5), (3, 4, 4)),
    "linear": (lambda g, x: F.linear(x, g.weight, g.bias), (2, 4, 6), (2, 4, 6)),
    "linear_without_bias": (lambda g, x: F.linear(x, g.weight), (2, 4, 6), (2, 4, 6)),
    "dropout": (lambda g, x: F.dropout(x, 0.5), (8, 64), (8, 64)),
    "normalization": (lambda g, x: g.norm(x), (4, 6, 5, 5), (4, 6, 5, 5)),
    "convolution": (lambda g, x: g.conv(x), (2, 6, 5, 5), (2, 6, 5, 5)),
    "elementwise": (lambda g, x: x.sigmoid(), X, R),
}


class Adds(nn.Graph):
    def __init__(self, producer, consumers=1, mode=True, stream=None):
        super().__init__()
        self.producer, self.consumers, self.stream = producer, consumers, stream
        sl.manual_seed(0)
        self.weight, self.bias = nn.Parameter(sl.randn(6, 6)), nn.Parameter(sl.randn(6))
        self.norm, self.conv = nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1)
        self.config.allow_fuse_add_to_output(mode)

    def build(self, x, residual):
        y = self.producer(self, x)
        if self.stream:
            with sl.stream(self.stream):
                return residual + y
        return residual + y if self.consumers == 1 else (residual + y, y)


def adds(graph):
    """Counts additions of floats: a generator counts its steps."""
    return sum(kernel["op"] == "add" and kernel["outputs"][0]["dtype"] == "float32" for kernel in graph.plan["kernels"])


def tensors(*shapes):
    random = np.random.default_rng(0)
    return [sl.from_numpy(random.standard_normal(shape).astype(np.float32)) for shape in shapes]


def run(graph, given):
    sl.manual_seed(1)
    with sl.no_grad():
        return graph(*given)


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_addition_joins_what_makes_its_operand(name, same_products):  # CFG-03
    producer, *shapes = PRODUCERS[name]
    given = tensors(*shapes)
    fused, plain = Adds(producer), Adds(producer, mode=False)
    same_products(run(fused, given).numpy(), run(plain, given).numpy())
    assert (adds(plain), adds(fused)) == (1, 0), Counter(k["op"] for k in fused.plan["kernels"])
    assert fused.config.report()["allow_fuse_add_to_output"] == 1


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_second_consumer_keeps_it_apart(name):  # CFG-03
    producer, *shapes = PRODUCERS[name]
    graph = Adds(producer, consumers=2)
    run(graph, tensors(*shapes))
    assert adds(graph) == 1
    with pytest.warns(UserWarning, match=r"allow_fuse_add_to_output\(\) has changed nothing: the graph has no such place"):
        graph.config.report()


@pytest.mark.parametrize("name", PRODUCERS)
def test_an_addition_that_runs_elsewhere_stays_there(name):  # CFG-03
    producer, *shapes = PRODUCERS[name]
    graph = Adds(producer, stream="host")
    run(graph, tensors(*shapes))
    assert adds(graph) == 1


def block(lib):
    class Block(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = lib.nn.Linear(16, 32), lib.nn.Linear(32, 16, bias=False)

        def forward(self, x):
            x = x + self.second(lib.tanh(self.first(x)))
            return x @ x.transpose(1, 2) + x.mean() * lib.ones(5, 5)

    return Block()


def test_a_product_of_a_vector_stays_one():
    """linear takes a vector, which no product of matrices does."""
    x, residual = tensors((6,), (6,))
    graph = Adds(lambda g, x: F.linear(x, g.weight, g.bias))
    assert sl.allclose(run(graph, (x, residual)), F.linear(x, graph.weight, graph.bias) + residual, atol=1e-6)
    assert adds(graph) == 1


def test_training_is_torchs():
    """Forward and backward products take additions; what the gradient of a sum is, is nobody's to change."""
    ours, theirs = block(sl), block(torch)
    theirs.load_state_dict({name: torch.from_numpy(value.numpy().copy()) for name, value in ours.state_dict().items()})

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = ours
            self.add_optimizer(sl.optim.SGD(ours.parameters(), lr=0.01))

        def build(self, x):
            loss = self.net(x).square().mean()
            loss.backward()
            return loss

    train, optimizer = Train(), torch.optim.SGD(theirs.parameters(), lr=0.01)
    for step in range(4):
        x = np.random.default_rng(step).standard_normal((3, 5, 16)).astype(np.float32)
        optimizer.zero_grad()
        expected = theirs(torch.from_numpy(x)).square().mean()
        expected.backward()
        optimizer.step()
        assert train(sl.from_numpy(x)).item() == pytest.approx(expected.item(), rel=1e-4)
    assert any(kernel["op"] == "fused_matmul" for kernel in train.plan["kernels"])


def test_bfloat16_is_rounded_once():
    x, weight, residual = (t.to(sl.bfloat16) for t in tensors((64, 96), (96, 48), (64, 48)))

    class Product(nn.Graph):
        def __init__(self, mode):
            super().__init__()
            self.config.allow_fuse_add_to_output(mode)

        def build(self, x, weight, residual):
            return x @ weight + residual

    exact = x.double() @ weight.double() + residual.double()
    errors = [(Product(mode)(x, weight, residual).double() - exact).abs().mean().item() for mode in (True, False)]
    assert errors[0] <= errors[1] and errors[0] > 0
