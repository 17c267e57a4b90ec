"""Work that follows a convolution is computed by its kernel in plans: with the bits of eager calls, and of the variables as
they are."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import sluice as sl
from sluice import nn


class Block(nn.Module):
    """A residual block with a branch of its own, as ResNets have at each change of size."""

    def __init__(self, channels=8, out=16):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out, affine=False)
        self.down, self.bn3 = nn.Conv2d(channels, out, 1, 2, bias=False), nn.BatchNorm2d(out, eps=1e-3)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.bn3(self.down(x)))


def trained(seed=0):
    sl.manual_seed(seed)
    net = Block()
    for _ in range(3):
        net(sl.randn(4, 8, 9, 9))  # statistics that are not 0 and 1
    return net.eval()


def graph_of(net, *off, dtype=None):
    class Infer(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.config.enable_fold_norms(False)  # which would leave the convolution with nothing behind it
            for name in off:
                self.config.disable_pass(name)

        def build(self, x):
            with sl.autocast("cpu", dtype=dtype or sl.bfloat16, enabled=dtype is not None):
                return self.net(x)

    return Infer()


def ops_of(graph):
    return sorted(k["op"] for k in graph.plan["kernels"])


@pytest.mark.parametrize("last", [False, True])
def test_a_block_is_three_convolutions_with_the_bits_of_eager_calls(last, same_products):
    net = trained()
    x = sl.randn(2, 8, 9, 9)
    if last:
        x = x.contiguous(memory_format=sl.channels_last)
    graph, plain = graph_of(net), graph_of(net, "fuse_convolution")
    with sl.no_grad():
        expected = net(x).numpy()
        same_products(graph(x).numpy(), expected)
        same_products(plain(x).numpy(), expected)
    assert [op for op in ops_of(graph) if op not in ("copy", "reorder")] == ["fused_conv"] * 3
    assert "batch_norm_infer" in ops_of(plain) and "fused_conv" not in ops_of(plain)


def test_variables_are_read_as_they_are(same_products):
    net, other = trained(0), trained(1)
    graph, x = graph_of(net), sl.randn(2, 8, 9, 9)
    with sl.no_grad():
        graph(x)
        net.load_state_dict(other.state_dict())
        same_products(graph(x).numpy(), other(x).numpy())
        net.bn1.running_mean += 1
        net.conv2.bias.zero_()
        same_products(graph(x).numpy(), net(x).numpy())


def test_training_keeps_what_gradients_read():
    """relu moves in where its gradient reads its result; batch norm with the batch's statistics stays by itself."""
    sl.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 4 * 4, 5))
    twin = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8),
                               torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 4 * 4, 5))
    twin.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in net.state_dict().items()})

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

        def build(self, x, y):
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    train, optimizer = Train(), torch.optim.SGD(twin.parameters(), lr=0.1)
    for step in range(5):
        x = np.random.default_rng(step).standard_normal((4, 3, 8, 8)).astype(np.float32)
        y = np.arange(4) % 5
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(twin(torch.from_numpy(x)), torch.from_numpy(y))
        expected.backward()
        optimizer.step()
        assert train(sl.from_numpy(x), sl.from_numpy(y)).item() == pytest.approx(expected.item(), rel=1e-4)
    assert "fused_conv" in ops_of(train)


def test_bfloat16_is_nearer_to_float32_than_one_by_one():
    net, x = trained(), sl.randn(2, 8, 9, 9)
    with sl.no_grad():
        exact = net(x).numpy()
        fused = graph_of(net, dtype=sl.bfloat16)(x).float().numpy()
        plain = graph_of(net, "fuse_convolution", dtype=sl.bfloat16)(x).float().numpy()
    assert np.abs(fused - exact).mean() <= np.abs(plain - exact).mean() * 1.05
    np.testing.assert_allclose(fused, exact, rtol=0.05, atol=0.05)


def test_kernels_for_avx2_are_no_plain_loops():
    """oneDNN has none that adds after a batch norm: it gave its reference, slower by two orders."""
    program = """
from test_fuse_convolution import *
net, x = trained(), sl.randn(2, 8, 9, 9)
with sl.no_grad():
    np.testing.assert_array_equal(graph_of(net)(x).numpy(), net(x).numpy())
"""
    environment = {**os.environ, "SLUICE_MAX_ISA": "avx2", "SLUICE_LOG": "kernels=debug"}
    child = subprocess.run([sys.executable, "-c", program], cwd=pathlib.Path(__file__).parent, env=environment,
                           capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    made = [line.partition("oneDNN: ")[2] for line in child.stderr.splitlines() if "oneDNN: " in line]
    assert any("avx2" in name for name in made), child.stderr
    assert not any(name.startswith("ref") for name in made), made
