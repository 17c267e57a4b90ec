"""graph.run_steps(): many steps in one call."""

import time

import numpy as np
import pytest

import sluice as sl
from sluice import data, nn


class Training(nn.Graph):
    def __init__(self, pipeline):
        super().__init__()
        sl.manual_seed(0)
        self.net, self.input = nn.Linear(4, 2), pipeline
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

    def build(self):
        x, y = self.input()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def pipeline():
    rng = np.random.default_rng(0)
    return data.arrays(rng.normal(size=(40, 4)).astype(np.float32), rng.integers(0, 2, 40)).shuffle()


def test_an_epoch_in_one_call_is_its_steps():  # MS-06
    one, many = Training(pipeline().repeat().batch(8)), Training(pipeline().repeat().batch(8))
    losses = [one().item() for _ in range(12)]
    assert many.run_steps(5).item() == losses[4] and many.run_steps(7).item() == losses[11]
    assert sl.equal(one.net.weight, many.net.weight)


def test_the_end_of_the_data_is_told():
    graph = Training(pipeline().batch(8))
    graph.run_steps(5)
    with pytest.raises(sl.EndOfData):
        graph.run_steps(1).item()
    graph.reset()
    graph.run_steps(5).item()
    with pytest.raises(ValueError, match="run_steps: 0 steps; must be an int of at least 1"):
        graph.run_steps(0)


def test_the_thread_that_calls_is_idle_meanwhile():
    graph = nn.Graph.trace(lambda x: (x @ x).sum())
    x = sl.rand(512, 512)
    graph(x).item()
    begin, wall = time.thread_time(), time.perf_counter()
    graph.run_steps(200, x).item()
    assert time.thread_time() - begin < 0.5 * (time.perf_counter() - wall)
