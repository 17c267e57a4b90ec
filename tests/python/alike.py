"""What the tests of torch.nn.utils share: modules of both libraries, compared."""

import torch
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

U, T = nn.utils, torch.nn.utils


def pair(kind, *args, **kwargs):
    torch.manual_seed(5), sl.manual_seed(5)
    return getattr(torch.nn, kind)(*args, **kwargs), getattr(nn, kind)(*args, **kwargs)


def alike(ours, theirs, tolerance=1e-5):
    """The same names, in the same order, and values."""
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q, tolerance)


def trained_alike(ours, theirs, shape, steps=2):
    """Outputs and gradients of some passes agree."""
    for _ in range(steps):
        a = torch.randn(shape, requires_grad=True)
        x = to_sl(a)
        y, b = ours(x), theirs(a)
        assert_same(y, b)
        (y * y).sum().backward(), (b * b).sum().backward()
        assert_same(x.grad, a.grad, 1e-4)
        for (n, p), (m, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert n == m
            assert_same(p.grad, q.grad, 1e-4)
    alike(ours, theirs)


class Runs(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        y = self.net(x)
        (y * y).sum().backward()
        return y, [p.grad for p in self.net.parameters()]


def graphed_alike(ours, theirs, shape):
    a = torch.randn(shape)
    ours.zero_grad(), theirs.zero_grad()
    y, grads = Runs(ours)(to_sl(a))
    b = theirs(a)
    (b * b).sum().backward()
    assert_same(y, b)
    for p, q in zip(grads, theirs.parameters(), strict=True):
        assert_same(p, q.grad, 1e-4)
