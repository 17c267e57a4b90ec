"""Ends of all kinds from Python: exceptions, Ctrl-C, timeouts, exits. Each comes soon and leaves the process usable."""

import random
import signal
import threading
import time

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from waiting import give_way, wait_until

SOON = 10  # seconds; well below what would be waited for, and above what a busy machine adds


class Doubling(nn.Graph):
    """y = 2 * fn(x), fn a Python function on a host stream."""

    def __init__(self, fn, **timeouts):
        super().__init__(name="doubling")
        self.fn = fn
        for name, seconds in timeouts.items():
            getattr(self.config, f"set_{name}_timeout")(seconds)

    def build(self, x):
        return sl.host_function(self.fn, x, out=((4,), sl.float32)) * 2


def x_of(value):
    return sl.full((4,), float(value))


def value_of(y):
    return float(y.numpy()[0])


def same(a):
    return a.copy()


class Interrupted:
    """Sends this process Ctrl-C after `seconds`, unless the block has ended before."""

    def __init__(self, seconds):
        self.timer = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])

    def __enter__(self):
        self.timer.start()
        self.start = time.perf_counter()
        return self

    def __exit__(self, *unused):
        self.timer.join()
        self.seconds = time.perf_counter() - self.start


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def blocking(gate):
    def wait_for_gate(a):
        gate.wait(30)
        return a.copy()

    return wait_for_gate


def test_an_exception_carries_its_own_traceback_and_the_next_step_works():  # RAY-07
    def fragile(a):
        if a[0] == 3:
            raise LookupError("three is not here")
        return a.copy()

    graph = Doubling(fragile)
    results = [graph(x_of(i)) for i in range(5)]
    for i, y in enumerate(results):
        if i != 3:
            assert value_of(y) == 2 * i
            continue
        with pytest.raises(RuntimeError) as info:
            y.numpy()
        text = str(info.value)
        assert "host function 'fragile' raised LookupError: three is not here" in text
        assert 'raise LookupError("three is not here")' in text and "test_aborts.py" in text and "in fragile" in text
    assert value_of(graph(x_of(4))) == 8


def test_every_timeout_names_the_stuck_actor_and_the_process_works_on(gate):  # RAY-05
    graph = Doubling(blocking(gate), submit=0.05, wait=0.05, stop=0.05)
    first = graph(x_of(1))
    with pytest.raises(TimeoutError, match=r"(?s)step 0 is not finished after 50 ms.*runs kernel .*host_function"):
        first.numpy()
    with pytest.raises(TimeoutError, match=r"(?s)no room for another step.*runs kernel .*host_function"):
        for i in range(20):
            graph(x_of(i))
    with pytest.raises(TimeoutError, match=r"(?s)runs kernel .*host_function"):
        graph.synchronize()
    with pytest.raises(TimeoutError, match=r"(?s)is being stopped and still not at its end after 50 ms.*host_function"):
        graph.close()
    assert value_of(x_of(3) + 1) == 4
    start = time.perf_counter()
    del graph
    assert time.perf_counter() - start < SOON
    assert value_of(Doubling(same)(x_of(5))) == 10  # its stream is a new one
    with pytest.raises(RuntimeError, match="abandoned|stopped"):
        first.numpy()


@pytest.mark.parametrize("wait", ["numpy", "item", "synchronize", "submit", "eager op", "eager read of a variable", "compile"])
def test_ctrl_c_ends_every_wait_and_leaves_the_process_usable(gate, wait):  # OE-21
    graph = Doubling(blocking(gate), stop=0.05)
    y = graph(x_of(1))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupted(0.2) as interrupted:
        if wait == "numpy":
            y.numpy()
        elif wait == "item":
            y[0].item()
        elif wait == "synchronize":
            graph.synchronize()
        elif wait == "submit":
            while True:
                graph(x_of(2))
        elif wait == "eager op":
            (y + 1).numpy()
        elif wait == "eager read of a variable":
            counter = Counter(blocking(gate))
            counter(x_of(1))
            float(counter.model.count[0])
        elif wait == "compile":
            while True:
                Doubling(same).compile(x_of(1))
    assert interrupted.seconds < SOON
    assert signal.getsignal(signal.SIGINT) is before
    gate.set()
    assert value_of(y) == 2
    assert value_of(Doubling(same)(x_of(5))) == 10


class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", sl.zeros(4))


class Counter(nn.Graph):
    """Adds fn(x) to a buffer; returns it."""

    def __init__(self, fn):
        super().__init__(name="counter")
        self.model, self.fn = Count(), fn
        self.config.set_stop_timeout(0.05)

    def build(self, x):
        self.model.count += sl.host_function(self.fn, x, out=((4,), sl.float32))
        return self.model.count * 1


def test_a_failed_step_updates_nothing_that_comes_after_the_failure():
    def fragile(a):
        if a[0] == 2:
            raise ValueError("no twos")
        return a.copy()

    graph = Counter(fragile)
    results = [graph(x_of(i)) for i in (1, 2, 3)]
    assert value_of(results[0]) == 1
    with pytest.raises(RuntimeError, match="no twos"):
        results[1].numpy()
    assert value_of(results[2]) == 4
    assert float(graph.model.count[0]) == 4


def test_eight_threads_call_one_graph():  # ORT-11
    graph, wrong = Doubling(same), []
    graph.compile(x_of(0))
    expected = {t: np.full(4, 2 * t, np.float32) for t in range(8)}

    def caller(t):
        x = x_of(t)
        for _ in range(1000):
            if not np.array_equal(graph(x).numpy(), expected[t]):
                wrong.append(t)

    threads = [threading.Thread(target=caller, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.soak
def test_random_aborts_in_one_process(repetitions, count):
    """Raise, close, drop or interrupt at a random moment; then the process computes on, and memory is back."""
    chosen = random.Random(0)
    n = repetitions(40, 500)

    def stage(a):
        give_way(turns)
        if a[0] == bad:
            raise ValueError("bad")
        return a.copy()

    settled = None
    for i in range(n):
        how = chosen.choice(["raise", "close", "drop", "interrupt", "close elsewhere", "raise in the loop"])
        turns, bad = chosen.choice([0, 100, 500]), chosen.randrange(8) if how == "raise" else -1
        start = time.perf_counter()
        graph, results = Doubling(stage), []
        other = None
        try:
            if how == "close elsewhere":
                graph.compile(x_of(0))
                other = threading.Timer(chosen.random() * 0.005, graph.close)
                other.start()
            with Interrupted(chosen.random() * 0.01) if how == "interrupt" else threading.Lock():
                for k in range(8):
                    results.append(graph(x_of(k)))
                    if how == "raise in the loop" and k == chosen.randrange(8):
                        raise RuntimeError("in the loop")
                if how == "interrupt":
                    while True:
                        graph(x_of(1)).numpy()
        except KeyboardInterrupt:
            assert how == "interrupt"
        except RuntimeError as error:
            assert how in ("raise in the loop", "close elsewhere"), error
        if other is not None:
            other.join()
        if how == "close":
            graph.close()
        if how == "raise":
            for k, y in enumerate(results):
                if k == bad:
                    with pytest.raises(RuntimeError, match="bad"):
                        y.numpy()
                else:
                    assert value_of(y) == 2 * k
        del graph, results
        y = None
        assert time.perf_counter() - start < SOON
        assert value_of(x_of(1) + 1) == 2
        held = lambda: sl._C.memory_stats("host")["current_bytes"]  # noqa: E731
        settled = held() if settled is None else settled
        wait_until(lambda: held() == settled, how)  # its threads let go of a step's memory behind its end
    count("random aborts in Python", n, "graphs in flight")


IN_A_DAEMON = "threading.Thread(target=loop, daemon=True).start(); going.wait()"
EXITS = {
    "falls off the end": ("", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "exception at top level": ("raise KeyError('top')", 1, "KeyError: 'top'"),
    "exception in a loop": ("for i in range(9):\n    graph(x)\n    if i == 5: raise OSError('in the loop')", 1, "in the loop"),
    "SIGINT": ("signal.raise_signal(signal.SIGINT)", -2, "KeyboardInterrupt"),
    "sys.exit in a host function": ("other = Net(lambda a: sys.exit(4)); y = other(x)\ntry:\n    y.numpy()\nexcept RuntimeError as e:\n"
                                    "    assert 'SystemExit' in str(e)", 0, ""),
    "a daemon thread that waits": ("def loop():\n    while True: graph(x).numpy(); going.set()\n" + IN_A_DAEMON, 0, ""),
    "a daemon thread in eager ops": ("def loop():\n    while True: (sl.rand(300, 300) @ sl.rand(300, 300)).sum(); going.set()\n" + IN_A_DAEMON, 0, ""),
    "a function that spins": ("stuck = Net(spin); y = stuck(x); going.wait()", 0, ""),
    "a function that waits": ("stuck = Net(wait); y = stuck(x); going.wait()", 0, ""),
}

PROGRAM = """
import signal, sys, threading, time
import sluice as sl, sluice.nn as nn
from waiting import give_way

going = threading.Event()

def spin(a):
    going.set()
    while True:
        sum(range(1000))

def wait(a):
    going.set()
    threading.Event().wait()

class Net(nn.Graph):
    def __init__(self, fn):
        super().__init__(name="net")
        self.fn = fn
    def build(self, x):
        return sl.host_function(self.fn, x, out=((4,), sl.float32)) + 1

x = sl.ones(4)
graph = Net(lambda a: (give_way(TURNS), a.copy())[1])
kept = [graph(x) for _ in range(6)]
print("started", time.time(), flush=True)
END
"""


# Its stream's thread is in an import, below code of C++ that must not be unwound, when the interpreter ends such threads.
IN_AN_IMPORT = """
import atexit, sys, threading, time
ending = threading.Event()
atexit.register(ending.set)  # behind what sluice does at exit
import sluice as sl
from sluice import nn

assert "numpy" not in sys.modules
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "numpy.linalg":
            ending.wait()
            while True:  # until it is ended
                time.sleep(0)
sys.meta_path.insert(0, Slow())
class Last:
    def __del__(self, sleep=time.sleep):
        for _ in range(100000):
            sleep(0)
last = Last()

class Net(nn.Graph):
    def build(self, x):
        return sl.host_function(lambda a: a, x, out=((4,), sl.float32))
net = Net()
net.config.set_stop_timeout(0.05)
net(sl.ones(4))
"""


def test_a_thread_that_the_interpreter_ends_ends_nothing_else(run_script):
    done = run_script(IN_AN_IMPORT, timeout=60)
    assert done.returncode == 0 and "was abandoned" in done.stderr and "terminate called" not in done.stderr, done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_exits_as_it_should(run_script, repetitions, count, how):  # NG-32
    end, code, stderr = EXITS[how]
    n = repetitions(1, 20)
    for i in range(n):
        done = run_script(PROGRAM.replace("TURNS", str(300 * (i % 4))).replace("END", end), timeout=60)
        seconds = time.time() - float(done.stdout.split()[1])
        assert done.returncode == code, (done.returncode, done.stderr)
        assert stderr in done.stderr
        assert "terminate called" not in done.stderr and "FATAL" not in done.stderr
        assert seconds < SOON, f"{seconds:.2f} s from the steps' submission to the exit"
    count(f"process exits in Python ({how})", n, "processes")
