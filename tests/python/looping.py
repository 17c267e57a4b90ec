"""What the tests of loops share: graphs of calls, and comparisons."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")


class Calls(nn.Graph):
    """A graph of a function of tensors."""

    def __init__(self, function, *modules):
        super().__init__(name="calls")
        self.function = function
        self.inner = nn.ModuleList(modules)

    def build(self, *inputs):
        return self.function(*inputs)


def numbers(*shape, seed=0):
    return sl.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def close(a, b, tolerance=1e-5):
    a, b = (t.detach().numpy() for t in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0))))


def collatz(n, steps):
    def odd_or_even(n):
        return sl.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,))

    return sl.while_loop(lambda n, steps: n > 1, lambda n, steps: (odd_or_even(n), steps + 1), (n, steps))
