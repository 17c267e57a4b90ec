"""One graph, several threads: first calls, tries beside blocking calls, shared parameters."""

import sys
import threading

import pytest

import sluice as sl
import sluice.nn as nn


def in_threads(n, work):
    """Runs work(k) in n threads that begin together and take turns often; raises what one of them raised."""
    barrier, errors, interval = threading.Barrier(n), [], sys.getswitchinterval()

    def run(k):
        barrier.wait()
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


class Net(nn.Graph):
    def __init__(self, model, traces=None):
        super().__init__()
        self.model, self.traces = model, traces if traces is not None else []
        self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.0, momentum=0.9))

    def build(self, x):
        self.traces.append(threading.get_ident())
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_the_first_call_from_several_threads_compiles_once():
    x = sl.ones(3, 4)
    for _ in range(5):
        graph = Net(model())
        expected = graph.model(x).square().mean().item()
        results = [None] * 8
        in_threads(8, lambda k: results.__setitem__(k, [graph, graph.try_call][k % 2](x)))
        assert len(graph.traces) == 1
        for result in results:
            assert result is None or abs(result.item() - expected) < 1e-6
        assert sum(r is not None for r in results) >= 4


def test_graphs_that_share_parameters_are_traced_one_at_a_time():
    x = sl.ones(3, 4)
    for _ in range(5):
        shared = model()
        expected = shared(x).square().mean().item()
        graphs, results = [Net(shared) for _ in range(6)], [None] * 6
        in_threads(6, lambda k: results.__setitem__(k, graphs[k](x).item()))
        assert results == pytest.approx([expected] * 6, abs=1e-6)


def test_a_first_call_that_fails_lets_the_others_try():
    class Picky(nn.Graph):
        failures = 0

        def build(self, x):
            if Picky.failures < 3:
                Picky.failures += 1
                raise ValueError("not yet")
            return x * 2

    graph, x, outcomes = Picky(), sl.ones(2), []

    def work(_):
        try:
            outcomes.append(graph(x).sum().item())
        except ValueError as error:
            outcomes.append(str(error))

    in_threads(6, work)
    assert sorted(map(str, outcomes)) == ["4.0"] * 3 + ["not yet"] * 3


def test_a_graph_inside_another_is_compiled_by_whoever_comes_first():
    class Inner(nn.Graph):
        def build(self, x):
            return x + 1

    inner, x = Inner(), sl.ones(2)

    class Outer(nn.Graph):
        def build(self, y):
            return y * inner(x).sum().item()

    outers = [Outer() for _ in range(4)]
    in_threads(8, lambda k: outers[k // 2](x).numpy() if k % 2 else inner(x).numpy())
    assert [o(x).sum().item() for o in outers] == [8] * 4


def test_a_graph_that_calls_itself_is_refused():
    class Self(nn.Graph):
        def build(self, x):
            return self(x)

    graph = Self(name="snake")
    with pytest.raises(RuntimeError, match="graph 'snake': its build.. calls the graph itself"):
        graph(sl.ones(2))


def test_trying_compiles_as_a_call_does():
    graph = Net(model())
    assert graph.try_call(sl.ones(3, 4)) is not None
    assert len(graph.traces) == 1


def test_tries_leave_the_timeouts_of_other_threads_alone():
    opened = threading.Event()

    class Gated(nn.Graph):
        def build(self, x):
            return sl.host_function(self.wait, x, out=((4,), sl.float32))

        def wait(self, array):
            assert opened.wait(30)
            return array

    graph, x = Gated(), sl.ones(4)  # calls block without limit
    graph.compile(x)
    results = [graph(x), graph(x)]
    finished, blocked = threading.Event(), []

    def block():
        blocked.extend(graph(x) for _ in range(20))

    def tries():
        while not finished.is_set():
            got = graph.try_call(x)
            if got is not None:
                results.append(got)

    blocker, trier = threading.Thread(target=block), threading.Thread(target=tries)
    trier.start()
    blocker.start()
    for _ in range(50):
        assert graph.try_call(x) is None
    opened.set()
    blocker.join()
    finished.set()
    trier.join()
    assert len(blocked) == 20
    assert all(r.sum().item() == 4 for r in results + blocked)


def test_what_synchronize_has_waited_for_is_counted():
    class Sides(nn.Graph):
        def build(self, x):
            sl.host_function(lambda a: a, x, out=((4,), sl.float32), stream="host:1")  # nothing waits for it
            return sl.host_function(lambda a: a, x * 2, out=((4,), sl.float32)) + 1

    graph, x = Sides(), sl.ones(4)
    for n in range(1, 200):
        graph(x)
        if n % 3 == 0:
            graph.synchronize()
            stats = graph.stats()
            assert stats["finished"] == n
            assert set(stats["firings"].values()) == {n}
