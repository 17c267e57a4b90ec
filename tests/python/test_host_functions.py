"""Host functions: what they may do while they run, and what they may keep."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn


class Around(nn.Graph):
    """Kernels before and after fn(x), all of them on `stream`."""

    def __init__(self, fn, stream="host", shape=(4,), dtype=sl.float32):
        super().__init__()
        self.fn, self.stream, self.out = fn, stream, (shape, dtype)

    def build(self, x):
        with sl.stream(self.stream):
            z = x * 3
        y = sl.host_function(self.fn, z, out=self.out, stream=self.stream)
        with sl.stream(self.stream):
            return y + 1


class Twice(nn.Graph):
    def build(self, x):
        return x * 2


def eager_op(array):
    return (sl.tensor(array) + 1).numpy()


def first_call_of_a_graph(array):
    return Twice()(sl.tensor(array)).numpy()


def a_graph_and_eager_ops(array, graph=Twice()):
    return (graph(sl.tensor(array)) + sl.tensor(array)).numpy()


def a_host_function(array):
    return sl.host_function(eager_op, sl.tensor(array), out=((4,), sl.float32)).numpy()


CALLS = {eager_op: 4, first_call_of_a_graph: 6, a_graph_and_eager_ops: 9, a_host_function: 4}


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("stream", ["host", "host:1"])
def test_a_host_function_may_use_the_engine_beside_kernels_of_its_stream(fn, stream):
    graph, x, expected = Around(fn, stream), sl.ones(4), CALLS[fn] + 1
    graph.config.set_wait_timeout(20)
    results = [graph(x) for _ in range(6)]  # beside them, this thread
    for _ in range(50):
        assert (x + 1).sum().item() == 8
    for result in results:
        assert result.sum().item() == 4 * expected


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_an_eager_host_function_may_use_the_engine(fn, run_script):
    x = sl.ones(4)
    done = threading.Thread(target=lambda: sl.host_function(fn, x * 3, out=((4,), sl.float32)), daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()
    assert sl.host_function(fn, x * 3, out=((4,), sl.float32)).sum().item() == 4 * CALLS[fn]


KEPT = {
    "array": (lambda a: a, lambda a: a),
    "view": (lambda a: a[1:].reshape(-1, 1), lambda v: v),
    "base": (lambda a: a.base, lambda a: a),
    "memoryview": (memoryview, np.asarray),
    "dlpack": (lambda a: np.from_dlpack(a) if hasattr(a, "__dlpack__") else a, lambda a: a),
    "torch": (lambda a: torch.from_numpy(a), lambda t: t.numpy()),
    "ctypes": (lambda a: a.ctypes, lambda c: np.ctypeslib.as_array(c.data_as(ctypes.POINTER(ctypes.c_float)), (4,))),
    "sluice": (lambda a: sl.from_numpy(a), lambda t: t.numpy()),
}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("eager", [False, True])
def test_what_a_host_function_keeps_stays_as_it_was(kind, eager):
    keep, read = KEPT[kind]
    kept, values = [], []

    def record(array):
        assert not array.flags.writeable
        values.append(read(keep(array)).copy())
        kept.append(keep(array))
        return array + 0

    graph = Around(record)
    for step in range(20):
        x = sl.full((4,), float(step))
        if eager:
            sl.host_function(record, x, out=((4,), sl.float32))
            x.fill_(-1)
        else:
            graph(x).numpy()
    if not eager:
        graph.close()
    del graph
    gc.collect()
    trash = [sl.full((4,), -7.0) for _ in range(100)]  # over whatever memory has become free
    assert len(kept) == 20 and len(trash) == 100
    for step, (thing, value) in enumerate(zip(kept, values)):
        np.testing.assert_array_equal(read(thing), value)
        assert value.reshape(-1)[-1] == (step if eager else 3 * step)


def test_arrays_that_are_not_kept_are_used_again():
    addresses = []

    def look(array):
        addresses.append(array.ctypes.data)
        return array + 0

    graph = Around(look)
    for _ in range(100):
        graph(sl.ones(4))
    graph.synchronize()
    assert len(addresses) == 100 and len(set(addresses)) == 1


def test_operands_of_any_layout_arrive_whole():
    seen = []

    def look(*arrays):
        seen.append([a.copy() for a in arrays])
        return arrays[0] * 2

    class Layouts(nn.Graph):
        def build(self, x):
            return sl.host_function(look, x.t(), x[:, ::2], x.sum(), x.to(sl.int64), out=((3, 2), sl.float32))

    x = sl.arange(6.0).reshape(2, 3)
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = Layouts()
    for _ in range(2):
        np.testing.assert_array_equal(graph(x).numpy(), expected.T * 2)
    for arrays in seen:
        for got, want in zip(arrays, [expected.T, expected[:, ::2], expected.sum(), expected.astype(np.int64)]):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype


def test_an_eager_host_function_is_let_go_with_what_it_closes_over():
    class Big:
        pass

    alive = []
    for _ in range(5):
        big = Big()
        alive.append(weakref.ref(big))
        sl.host_function(lambda a, big=big: a + 0, sl.ones(2), out=((2,), sl.float32))
        y = sl.host_function(lambda a, big=big: a * 2, sl.ones(2).requires_grad_(), out=((2,), sl.float32))
    del big, y
    gc.collect()
    assert [ref() for ref in alive] == [None] * 5


def test_host_functions_of_one_name_do_not_mix_between_threads():
    wrong = []

    def work(k):
        for _ in range(200):
            fn = lambda a: a + k  # noqa: E731
            if sl.host_function(fn, sl.ones(2), out=((2,), sl.float32)).sum().item() != 2 + 2 * k:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("build", [lambda x: x, lambda x: x if x.is_contiguous() else -x], ids=["plain", "of strides"])
def test_a_dropped_graph_ends_at_once(build):
    """Later, garbage may be collected in the thread of its own host function, which cannot wait for itself."""
    class Dropped(nn.Graph):
        def build(self, x):
            return sl.host_function(lambda array: array * 2, build(x), out=((4,), sl.float32))

    graph = Dropped()
    assert graph(sl.ones(4)).tolist() == [2] * 4
    alive = weakref.ref(graph)
    gc.collect()
    gc.disable()
    try:
        del graph
        assert alive() is None
    finally:
        gc.enable()


def test_a_dropped_graph_finishes_its_steps_however_long_they_take():
    gate = threading.Event()

    class Slow(nn.Graph):
        def build(self, x):
            return sl.host_function(lambda array: (gate.wait(60), array * 2)[1], x, out=((4,), sl.float32)) + 1

    results = [Slow()(sl.ones(4)) for _ in range(2)]
    assert sl._C.graphs_left() >= 2  # whoever dropped them waits no longer
    gate.set()
    assert [y.tolist() for y in results] == [[3] * 4] * 2


def test_a_graph_let_go_in_its_own_host_function_ends_in_order(run_script):
    """Its step goes on, and the process ends: somebody else ends the session."""
    done = run_script("""
        import gc, threading
        import sluice as sl

        held, let_go = {}, threading.Event()

        def look(x):
            let_go.wait(20)
            held.clear()
            gc.collect()
            return x + 1

        class Net(sl.nn.Graph):
            def build(self, x):
                return sl.host_function(look, x, out=((2,), sl.float32)) * 2

        for again in range(3):
            let_go.clear()
            held["net"] = Net()
            y = held["net"](sl.ones(2))
            let_go.set()
            print(y.tolist())
        print(Net()(sl.ones(2)).tolist())
        """.replace("\n        ", "\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[4.0, 4.0]\n" * 4, "")
