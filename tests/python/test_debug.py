"""sluice.debug: prints, callbacks and checks of steps of graphs."""

import numpy as np
import pytest

import sluice as sl
from sluice import debug, nn


def test_each_step_prints_a_line_in_order(capsys):  # JAX-12
    def build(x):
        y = x * 2
        debug.print("{} of {n:>3}, the least {:.1f}", y.shape, y.min(), n=x.numel())
        return y + 1

    graph = nn.Graph.trace(build)
    results = [graph(sl.tensor([float(i), i + 1.0])) for i in range(40)]
    assert results[-1].tolist() == [79, 81]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"(2,) of   2, the least {2 * i:.1f}" for i in range(40)]
    build(sl.ones(2))
    assert capsys.readouterr().out == "(2,) of   2, the least 2.0\n"


@pytest.mark.filterwarnings("error")  # of a graph that is compiled again, since what a callback has collected is another
def test_callbacks_get_what_a_step_has_computed():
    seen = []

    def build(x, scale):
        y = (x * scale).sum()
        debug.callback(lambda step, more: seen.append((step["y"].item(), step["name"], more)), {"y": y, "name": "sum"}, 3)
        return y

    graph = nn.Graph.trace(build)
    results = [graph(sl.ones(3), sl.tensor(float(i))) for i in range(6)]
    assert [r.item() for r in results] == [3.0 * i for i in range(6)]
    assert seen == [(3.0 * i, "sum", 3) for i in range(6)]


def test_gradients_go_on_beside_them(capsys):
    class Training(nn.Graph):
        def __init__(self):
            super().__init__()
            sl.manual_seed(0)
            self.net = nn.Linear(2, 1)
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

        def build(self, x):
            y = self.net(x)
            debug.print("{}", y.mean())
            loss = (y ** 2).mean()
            loss.backward()
            return loss

    graph = Training()
    losses = [graph(sl.ones(4, 2)).item() for _ in range(5)]
    printed = [float(line) for line in capsys.readouterr().out.split()]
    np.testing.assert_allclose(np.square(printed), losses, rtol=1e-4)
    assert losses[-1] < losses[0]


def test_a_check_that_does_not_hold_fails_its_step():
    def build(x):
        debug.check((x >= 0).all(), "a negative value, the least {}", x.min())
        return x.sqrt()

    graph = nn.Graph.trace(build)
    assert graph(sl.tensor([4.0])).item() == 2
    with pytest.raises(Exception, match="AssertionError: a negative value, the least -2.0"):
        graph(sl.tensor([4.0, -2.0][1:])).item()
    with pytest.raises(AssertionError, match="a negative value, the least -9.0"):
        build(sl.tensor([-9.0]))
    debug.check(True, "never")


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match="debug.print: text: got Tensor; must be a str"):
        debug.print(sl.ones(1))
