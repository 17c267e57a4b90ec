"""Children of fork(): eager work goes on in them, and what needs the parent's threads says so instead of hanging."""

import pytest

# Runs `child()` in a forked process, and says how that ended: "ok", or what went wrong.
FORKED = """
import os, signal, sys, threading, time
import sluice as sl
import sluice.nn as nn

def forked(child):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # never for ever
        child()
        sys.exit(0)  # with all that Python does at its end
    _, status = os.waitpid(pid, 0)
    print("ok" if status == 0 else f"status {status}", flush=True)

def refused(f):
    try:
        f()
    except RuntimeError as error:
        assert "fork" in str(error), error
        return
    raise AssertionError("no error")

class Double(nn.Graph):
    def build(self, x):
        return x * 2

def identity(a):
    return a

class Hosted(nn.Graph):
    def build(self, x):
        return sl.host_function(gate, x * 2, out=((4,), sl.float32))

opened = threading.Event()
def gate(a):
    assert opened.wait(30)
    return a

x = sl.ones(4)
"""


@pytest.fixture
def forked(run_script):
    def run(source, **env):
        done = run_script(FORKED + source, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    return run


def test_what_needs_the_parents_threads_names_fork(forked):
    assert forked("""
graph, other = Double(), Double()
graph(x).numpy()
def child():
    refused(lambda: graph(x))
    refused(lambda: graph.try_call(x))
    refused(graph.synchronize)
    refused(graph.stats)
    refused(graph.counters)
    refused(lambda: graph.set_trace(True))
    refused(graph.close)
    refused(lambda: other(x))
    refused(lambda: sl.load_graph(bundle))
bundle = os.path.abspath("bundle")
sl.save(graph, bundle)
forked(child)
assert graph(x).sum().item() == 8  # the parent goes on
""") == ["ok"]


def test_what_explains_the_error_is_true(forked, run_script):
    assert forked("""
from sluice._base.troubles import find
def told(f):
    try:
        f()
    except RuntimeError as error:
        return find(str(error)).code
called, fresh = Double(), Double()
called(x).numpy()
def child():
    assert told(lambda: called(x)) == told(lambda: fresh(x)) == "E105"
    assert (x + 1).sum().item() == 8  # eager work goes on
forked(child)
""") == ["ok"]
    done = run_script("""
import os
pid = os.fork()
if pid == 0:
    import sluice as sl
    class Double(sl.nn.Graph):
        def build(self, x):
            return x * 2
    assert Double()(sl.ones(4)).sum().item() == 8
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")
    assert done.returncode == 0, done.stderr


def test_steps_in_flight_are_not_waited_for_in_the_child(forked):
    assert forked("""
graph = Hosted()
class Train(nn.Graph):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)
        self.add_optimizer(sl.optim.SGD(self.m.parameters(), lr=0.1))
    def build(self, x):
        loss = self.m(sl.host_function(gate, x * 2, out=((4,), sl.float32))).sum()
        loss.backward()
        return loss
train = Train()
y, z = graph(x), train(x)
def child():
    refused(y.numpy)
    refused(z.numpy)
    refused(lambda: train.m.weight.sum())
    assert (x + 1).sum().item() == 8
forked(child)
opened.set()
assert y.sum().item() == 8
z.numpy()
""") == ["ok"]


def test_eager_work_goes_on_in_children_whatever_the_parent_does(forked):
    assert forked("""
graph = Double()
big = sl.randn(300, 300)
expected = (big @ big).sum().item()  # on all cores
graph(x).numpy(), sl.host_function  # imports what it needs: Python's own locks of imports under way are lost in children
stop = False
def busy():
    while not stop:
        graph(x).numpy()
        (big @ big).sum().item()
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
def child():
    for _ in range(3):
        assert (big @ big).sum().item() == expected
        assert sl.host_function(identity, x + 1, out=((4,), sl.float32)).sum().item() == 8
    m = nn.Linear(300, 300)
    m(big).sum().backward()
    assert m.weight.grad is not None
for _ in range(10):
    forked(child)
stop = True
for thread in threads: thread.join()
""") == ["ok"] * 10


def test_objects_of_the_parent_may_be_dropped_in_the_child(forked):
    assert forked("""
import gc
graphs = [Double() for _ in range(3)]
results = [graph(x) for graph in graphs]
hosted = Hosted()
pending = hosted(x)
def child():
    global graphs, results, hosted, pending
    del graphs, results, hosted, pending
    gc.collect()
forked(child)
opened.set()
assert pending.sum().item() == 8
""") == ["ok"]


def test_an_engine_of_its_own_runs_in_the_child(forked):
    assert forked("""
graph = Double()
graph(x).numpy()
bundle = os.path.abspath("bundle")
sl.save(graph, bundle)
engine = sl._C.Engine()
session = engine.load(bundle)
def child():
    refused(lambda: session.run([x]))
    refused(lambda: engine.load(bundle))
    own = sl._C.Engine()
    assert own.load(bundle).run([x])[0].sum().item() == 8
forked(child)
""") == ["ok"]
