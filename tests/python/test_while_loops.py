"""while_loop(): eager programs and Python's loops are the oracles of plans."""

import os
import sys

import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")
from looping import Calls, close, collatz, numbers


def test_values_decide_how_long_a_loop_runs():  # MS-01
    graph = Calls(lambda n: collatz(n, sl.tensor(0)))
    for n, steps in ((27, 111), (1, 0), (97, 118), (6, 8)):
        got = graph(sl.tensor(n))
        assert (got[0].item(), got[1].item()) == (1, steps)
        assert [t.item() for t in collatz(sl.tensor(n), sl.tensor(0))] == [1, steps]
    assert [k["op"] for k in graph.plan["kernels"]].count("loop") == 1


def test_the_body_of_a_while_loop_may_write_to_its_states():
    def body(n, x):
        n += 1
        x.mul_(2)[0] = 5
        return n, x

    graph = Calls(lambda n, x: sl.while_loop(lambda n, x: n < 4, body, (n, x)))
    assert [t.tolist() for t in graph(sl.tensor(1), sl.ones(2))] == [4, [5, 8]]


@pytest.mark.parametrize("granularity", ["program", "op"])
def test_loops_branches_and_scans_are_actors_kernels(granularity):  # MS-01
    def function(p, x, xs):
        def search(x):
            return sl.while_loop(lambda x, n: (x.abs().max() > 1) & (n < 50), lambda x, n: (x * 0.7, n + 1), (x, sl.tensor(0)))

        def walk(x):
            return sl.scan(lambda s, row: (s * 0.5 + row, None), x, xs)[0], xs.sum().long()

        y, n = sl.cond(p, search, walk, (x,))
        return y + 1, n

    graph = Calls(function)
    graph.config.set_granularity(granularity)
    for i, p in enumerate((True, False, True, True, False)):
        x, xs = numbers(4, seed=i) * 9, numbers(3, 4, seed=i + 9)
        got, expected = graph(sl.tensor(p), x, xs), function(p, x, xs)
        close(got[0], expected[0])
        assert got[1].item() == expected[1].item()


def test_the_interpreter_of_plans_agrees(tmp_path):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
    import plan_interpreter
    import plan_loops  # adds the op

    assert "loop" in plan_interpreter.OPS and plan_loops

    def function(n, xs):
        step = lambda s, x: ((s.t() * 0.5 + x).neg(), s - x[0])
        last, rows = sl.scan(step, xs[0], xs, reverse=True)
        return last, rows, collatz(n, sl.tensor(0))[1]

    graph = Calls(function)
    inputs = [(sl.tensor(n), numbers(4, 2, 2, seed=n)) for n in (6, 1, 7)]
    expected = [[t.numpy() for t in graph(*i)] for i in inputs]
    sl.save(graph, str(tmp_path))
    machine = plan_interpreter.open_bundle(str(tmp_path))
    names = [i["name"] for i in machine.plan["inputs"]]
    for ours, theirs in zip(machine.run([dict(zip(names, (t.numpy() for t in i))) for i in inputs]), expected, strict=True):
        for mine, engine in zip(ours.values(), theirs, strict=True):
            assert mine.tobytes() == engine.tobytes()


def test_branches_in_a_loop_run_one_at_a_time():
    """What is not taken would fail: an index that is out of range."""
    table = sl.arange(4).float()

    def step(state, i):
        inside = lambda: table.index_select(0, i.reshape(1)).reshape(())
        return state + sl.cond(i < 4, inside, lambda: sl.zeros(())), None

    graph = Calls(lambda xs: sl.scan(step, sl.zeros(()), xs)[0])
    assert graph(sl.tensor([3, 9, 1, 7, 2])).item() == 6


def test_a_while_loop_has_no_gradient():
    w = nn.Parameter(numbers(3))

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = w

        def build(self, x):
            (y,) = sl.while_loop(lambda x: x.sum() < 9, lambda x: (x + self.w.square() + 1,), (x,))
            y.sum().backward()
            return y

    with pytest.raises(NotImplementedError, match="decides how often it runs.*need scan"):
        Graph()(numbers(3))
