"""Running graphs: capacity, timeouts, failures, endings, several graphs at once."""

import gc
import json
import os
import signal
import threading
import time

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from waiting import wait_until


class Host(nn.Graph):
    """x -> fn(x) on a host stream -> + 1."""

    def __init__(self, fn, size=4, setup=None):
        super().__init__(name="host_graph")
        self.fn, self.size = fn, size
        if setup:
            setup(self.config)

    def build(self, x):
        return sl.host_function(self.fn, x, out=((self.size,), sl.float32)) + 1


@pytest.mark.parametrize("seconds", [0, 1.0])
def test_results_do_not_depend_on_who_runs_the_kernels(seconds):
    graph, x = Host(lambda a: a * 2, setup=lambda c: c.set_inline_up_to(seconds)), sl.ones(4)
    assert [graph(x * i).tolist() for i in range(200)] == [[2 * i + 1] * 4 for i in range(200)]
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="set_inline_up_to: seconds: got .*; must be a finite number, and not negative"):
            graph.config.set_inline_up_to(wrong)


class Gate:
    """A host function that waits until it is opened."""

    def __init__(self):
        self.event = threading.Event()

    def __call__(self, array):
        assert self.event.wait(20)
        return array


def test_submit_blocks_tries_or_times_out_at_capacity():  # RAY-04
    gate, x = Gate(), sl.ones(4)
    graph = Host(gate, setup=lambda c: c.set_submit_timeout(0.1)).compile(x)
    results = [graph(x), graph(x)]
    assert graph.try_call(x) is None
    start = time.perf_counter()
    with pytest.raises(TimeoutError):
        graph(x)
    assert 0.05 < time.perf_counter() - start < 2
    gate.event.set()
    assert [r.sum().item() for r in results] == [8, 8]
    assert graph(x).sum().item() == 8

    gate = Gate()
    blocking = Host(gate).compile(x)
    results = [blocking(x), blocking(x)]
    threading.Timer(0.2, gate.event.set).start()
    start = time.perf_counter()
    results.append(blocking(x))
    assert time.perf_counter() - start > 0.1
    assert [r.sum().item() for r in results] == [8, 8, 8]


def test_stuck_actor_is_named_by_the_wait_timeout():  # RAY-05
    gate, x = Gate(), sl.ones(4)
    graph = Host(gate, setup=lambda c: c.set_wait_timeout(0.2))
    result = graph(x)
    start = time.perf_counter()
    with pytest.raises(TimeoutError, match="host0"):
        result.tolist()
    assert time.perf_counter() - start < 2
    gate.event.set()
    assert (sl.ones(2) + 1).tolist() == [2, 2]
    assert graph(x).tolist() == [2, 2, 2, 2]


def test_step_that_fails_shows_the_functions_traceback_and_later_steps_work():  # RAY-07
    calls = []

    def fails_at_three(array):
        calls.append(len(calls) + 1)
        if calls[-1] == 3:
            raise LookupError("no such image")
        return array * len(calls)

    graph, x = Host(fails_at_three), sl.ones(4)
    results = [graph(x) for _ in range(4)]
    assert results[0].tolist() == [2] * 4 and results[1].tolist() == [3] * 4
    with pytest.raises(RuntimeError, match=r"(?s)fails_at_three.*LookupError.*no such image.*test_graph_runs.py"):
        results[2].tolist()
    assert results[3].tolist() == [5] * 4
    assert graph(x).tolist() == [6] * 4


def test_host_function_results_are_checked():
    x = sl.ones(4)
    for fn, message in ((lambda a: a[:2], r"result 0 has shape \(2,\); declared was \(4,\)"), (lambda a: a.astype(np.float64), "dtype float64"),
                        (lambda a: (a, a), "returned 2 arrays; must be 1, as declared")):
        with pytest.raises(sl.Error, match=message):
            Host(fn)(x).tolist()
    with pytest.raises(TypeError, match="must be a Tensor"):
        sl.host_function(lambda a: a, 3, out=((1,), sl.float32))
    with pytest.raises(sl.Error, match="read-only"):
        Host(lambda a: a.fill(0) or a)(x).tolist()
    assert sl.host_function(lambda a: a * 2, x, out=((4,), sl.float32)).tolist() == [2] * 4  # eagerly, too


def test_host_stages_overlap_compute_and_keep_order():
    seen = []

    class Two(nn.Graph):
        def build(self, x):
            with sl.register_quota(2):
                y = sl.host_function(lambda a: seen.append(("a", a[0])) or a, x, out=((1,), sl.float32), stream="host:0")
                z = sl.host_function(lambda a: seen.append(("b", a[0])) or a, y, out=((1,), sl.float32), stream="host:1")
            return z * 2

    graph = Two()
    results = [graph(sl.tensor([float(i)])) for i in range(20)]
    assert [r.item() for r in results] == [2.0 * i for i in range(20)]
    for stage in "ab":
        assert [v for s, v in seen if s == stage] == list(range(20))
    assert {s["name"] for s in graph.plan["streams"]} >= {"cpu:0/host0", "cpu:0/host1"}


def test_unread_results_do_not_block_their_caller():
    class Plus(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Plus()
    results = [graph(sl.full((3,), float(i))) for i in range(100)]
    assert [r[0].item() for r in results] == [i + 1 for i in range(100)]


def test_python_error_between_steps_in_flight_ends_cleanly(run_script):  # NG-32
    source = """
import atexit, threading, sluice as sl, sluice.nn as nn
gate = threading.Event()
atexit.register(gate.set)
def slow(a):
    gate.wait()
    return a
class G(nn.Graph):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)
        self.add_optimizer(sl.optim.SGD(self.m.parameters(), lr=0.1))
    def build(self, x):
        loss = self.m(sl.host_function(slow, x, out=((2, 4), sl.float32))).sum()
        loss.backward()
        return loss
g = G()
for i in range(10):
    loss = g(sl.ones(2, 4))
    if i == 1:
        raise RuntimeError("the user's own")
"""
    start = time.perf_counter()
    result = run_script(source)
    assert result.returncode == 1 and "the user's own" in result.stderr and "Segmentation" not in result.stderr
    assert time.perf_counter() - start < 8


def test_deleting_a_graph_with_steps_in_flight_is_quick():  # NG-32
    for _ in range(5):
        gate = Gate()
        graph = Host(gate)
        results = [graph(sl.ones(4)) for _ in range(2)]
        opener = threading.Thread(target=gate.event.set)
        opener.start()
        start = time.perf_counter()
        del graph
        assert time.perf_counter() - start < 2
        opener.join()
        del results


class Sum(nn.Graph):
    def __init__(self, state, device):
        super().__init__()
        self.state = state
        self.config.set_device(device)

    def build(self, x):
        return self.state.total.add_(x)


def test_a_dropped_graph_gives_up_what_it_used_elsewhere():
    state, x = nn.Module(), sl.ones(2)
    state.register_buffer("total", sl.zeros(2))
    first, second = Sum(state, "cpu"), Sum(state, "sim:0")
    assert first(x).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="lives on cpu:0, where another graph uses it; this one wants it on sim:0"):
        second(x)
    first.itself = first  # garbage that only the collector finds
    gc.disable()
    try:
        del first
        assert second(x).tolist() == [2, 2]
    finally:
        gc.enable()


def test_interrupt_while_waiting_leaves_the_process_usable():  # OE-21
    gate, x = Gate(), sl.ones(4)
    graph = Host(gate)
    result = graph(x)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        result.tolist()
    assert time.perf_counter() - start < 2
    gate.event.set()
    assert result.tolist() == [2] * 4 and graph(x).tolist() == [2] * 4


def test_interrupt_at_capacity(run_script):
    gate, x = Gate(), sl.ones(4)
    graph = Host(gate)
    results = [graph(x), graph(x)]
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        graph(x)
    gate.event.set()
    assert [r.tolist() for r in results] == [[2] * 4] * 2


def test_two_graphs_interleave_without_mixing():  # ACT-22
    class Times(nn.Graph):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def build(self, x):
            return sl.host_function(lambda a: a, x, out=((2,), sl.float32)) * self.n

    graphs = [Times(n) for n in (2, 3, 5)]
    results = [(g.n, i, g(sl.full((2,), float(i)))) for i in range(30) for g in graphs]
    assert all(r.tolist() == [n * i] * 2 for n, i, r in results)


def test_many_loads_and_unloads_leak_nothing():  # RAY-15
    class Small(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            return sl.host_function(np.negative, self.model(x), out=((2, 16), sl.float32))

    model, x = nn.Linear(16, 16), sl.ones(2, 16)

    def cycle():
        graph = Small(model)
        graph(x).tolist()

    # A thread gets helpers when it first runs a kernel on several cores, and any of the engine's, and of the engines of tests before
    # this one, may be the first to do so in any cycle: a few more in all. A leak would show in each of them.
    cycles = 100
    may_grow = {"bytes": 2 * 2**20, "files": 0, "threads of Python": 0, "threads": cycles // 10}

    def usage():
        pages = int(open("/proc/self/statm").read().split()[1])
        return {"bytes": pages * os.sysconf("SC_PAGE_SIZE"), "files": len(os.listdir("/proc/self/fd")),
                "threads of Python": threading.active_count(), "threads": len(os.listdir("/proc/self/task"))}

    def grown():
        return {what: now - before[what] for what, now in usage().items() if now > before[what] + may_grow[what]}

    for _ in range(30):
        cycle()
    before = usage()
    for _ in range(cycles):
        cycle()
    wait_until(lambda: not grown(), lambda: (before, usage()))  # threads that have ended go when the system has time for them


def test_threads_may_call_one_graph():
    class Double(nn.Graph):
        def build(self, x):
            return x * 2

    graph, wrong = Double().compile(sl.ones(8)), []

    def work(n):
        for i in range(200):
            if graph(sl.full((8,), float(n * 1000 + i))).tolist() != [2.0 * (n * 1000 + i)] * 8:
                wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_op_without_kernel_on_a_device_is_named():
    class OnSim(nn.Graph):
        def build(self, x):
            with sl.device("cuda:0"):
                return x.exp()

    with pytest.raises(NotImplementedError, match="cuda"):
        OnSim()(sl.ones(2))


def test_exit_with_sim_tensors_and_graphs_alive(run_script):
    source = """
import sluice as sl, sluice.nn as nn
x = sl.ones(4).to("sim:0")
class G(nn.Graph):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)
    def build(self, x):
        with sl.device("sim:0"):
            return self.m(x)
g = G()
y = [g(sl.ones(2, 4)) for _ in range(4)]
z = x.cpu() + 1
"""
    result = run_script(source)
    assert result.returncode == 0, result.stderr


# In a process of its own: a graph of another test may keep the generator on the cpu.
SEEDED = """
import sluice as sl
from sluice import nn
class Drops(nn.Graph):
    def build(self, x):
        return nn.functional.dropout(x, 0.5)
graph = Drops()
graph.config.set_device("sim:0")
x, runs = sl.ones(64), []
for _ in range(2):
    sl.manual_seed(3)
    runs.append([graph(x).tolist(), graph(x).tolist(), nn.functional.dropout(x, 0.5).tolist()])
assert runs[0] == runs[1] and runs[0][0] != runs[0][1] and runs[0][1] != runs[0][2]
"""


def test_seeding_reaches_a_generator_that_a_graph_keeps_on_a_device(run_script):
    process = run_script(SEEDED)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("streams, overlap", [(("compute", "compute:1"), True), (("compute:1", "compute:1"), False)])
def test_compute_streams_overlap_and_each_runs_in_order(tmp_path, streams, overlap):  # MLX-04
    class Two(nn.Graph):
        def build(self, a, b):
            with sl.stream(streams[0]):
                left = a @ a
            with sl.stream(streams[1]):
                right = b @ b
            return left, right

    graph = Two()
    graph.config.enable_trace()
    a, b = sl.randn(768, 768), sl.randn(768, 768)
    for _ in range(3):
        left, right = graph(a, b)
        assert np.allclose(left.numpy(), a.numpy() @ a.numpy(), atol=1e-3) and np.allclose(right.numpy(), b.numpy() @ b.numpy(), atol=1e-3)
    graph.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    runs = [(e["ts"], e["ts"] + e["dur"], e["tid"]) for e in events if e.get("cat") == "kernel" and "matmul" in e["name"]]
    assert len(runs) == 6 and len({tid for _, _, tid in runs}) == (2 if overlap else 1)
    crossed = [x for x in runs for y in runs if x is not y and x[0] < y[1] and y[0] < x[1]]
    assert bool(crossed) == overlap
