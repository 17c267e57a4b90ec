"""Numbers that build() asks for: those that follow from buffers are known, and the graph is compiled anew when a buffer changes."""

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice.nn import functional as F


class Padded(nn.Module):
    """A convolution that pads as its buffers say, as audio models do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 4, stride=2)
        self.stride, self.kernel = nn.Buffer(sl.tensor(2), persistent=False), nn.Buffer(sl.tensor(4), persistent=False)

    def forward(self, x):
        length = x.shape[-1]
        frames = (sl.ceil((length - self.kernel) / self.stride + 1)).to(sl.int64) - 1
        extra = frames * self.stride + self.kernel - length
        return self.conv(F.pad(x, (0, extra + max(extra, self.kernel // 2))))


def test_padding_that_follows_from_buffers():
    net, x = Padded(), sl.randn(1, 1, 9)
    graph = nn.Graph.trace(net)
    np.testing.assert_allclose(graph(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-6)


def test_a_buffer_that_is_written_compiles_anew():
    net, x = Padded(), sl.randn(1, 1, 9)
    graph = nn.Graph.trace(net)
    first = graph(x).shape
    net.kernel.fill_(8)
    assert graph(x).shape == net(x).shape != first
    np.testing.assert_allclose(graph(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-6)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.weight = nn.Buffer(sl.tensor([1.0, 2.0])), nn.Parameter(sl.tensor([3.0]))

    def forward(self, x, of):
        if of == "step":
            number = (self.count * 2).sum().item()
            self.count.add_(1)
        elif of == "written":
            self.count.add_(1)
            number = (self.count * 2).sum().item()
        elif of == "loop":
            return sl.scan(lambda s, row: (s + (self.count * 2).sum().item(), row), x[0], x)[0]
        else:
            number = {"weight": self.weight, "input": x, "buffer": self.count}[of].sum().item()
        return x * number


@pytest.mark.parametrize("of,why", [
    ("step", r"build\(\) has asked for a number that follows from 'function.count', which a step changes"),
    ("written", "item: the tensor is traced and has no value"), ("loop", "item: the tensor is traced and has no value"),
    ("weight", "item: the tensor is traced and has no value"), ("input", "item: the tensor is traced and has no value")])
def test_other_numbers_are_not_known(of, why):
    with pytest.raises(RuntimeError, match=why):
        nn.Graph.trace(Scaled())(sl.ones(2), of)


def test_a_buffer_itself_is_known():
    class Left(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.Buffer(sl.tensor(2))

        def forward(self, x):
            return F.pad(x, (self.left, int(self.left) + 1)) * self.left.item()

    net = Left()
    graph = nn.Graph.trace(net)
    np.testing.assert_array_equal(graph(sl.ones(1)).numpy(), [0, 0, 2, 0, 0, 0])
    net.left.fill_(1)
    np.testing.assert_array_equal(graph(sl.ones(1)).numpy(), [0, 1, 0, 0])


def test_a_sum_of_a_buffer_is_known():
    np.testing.assert_array_equal(nn.Graph.trace(Scaled())(sl.ones(2), "buffer").detach().numpy(), [3, 3])


def test_random_numbers_are_not_known():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Buffer(sl.tensor(2.0))

        def forward(self, x):
            return x if (sl.rand(()) * self.scale).item() > 1 else -x

    with pytest.raises(RuntimeError, match="item: the tensor is traced"):
        nn.Graph.trace(Noisy())(sl.ones(2))
