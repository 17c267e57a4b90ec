"""sluice.memory: what is in use, and limits that raise instead of a process that is killed."""

import gc
import threading

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

KIB = 1 << 10
DEVICES = ["cpu", "sim:0"]


@pytest.fixture(autouse=True)
def no_limits():
    yield
    for device in DEVICES:
        sl.memory.set_limit(None, device)
        sl.memory.set_cache_limit(None, device)


def settled(device="cpu"):
    """Bytes in use once nothing is under way."""
    gc.collect(0)
    sl.get_device_module(device).synchronize()
    return sl.memory.active(device)


@pytest.mark.parametrize("device", DEVICES)
def test_active_and_peak_are_what_tensors_take(device):
    sl.ones(1, device=device)
    before = settled(device)
    x = sl.ones(100, 100, device=device)
    assert settled(device) == before + 40000
    sl.memory.reset_peak(device)
    y = x + 1  # noqa: F841
    z = x * 2
    assert settled(device) == before + 120000
    del y, z
    assert settled(device) == before + 40000
    assert before + 120000 <= sl.memory.peak(device) <= before + 120000 + KIB
    module = sl.get_device_module(device)
    assert module.memory_allocated() == sl.memory.active(device) and module.max_memory_allocated() == sl.memory.peak(device)
    assert module.memory_reserved() == sl.memory.active(device) + sl.memory.cached(device)
    sl.memory.reset_peak(device)
    assert sl.memory.peak(device) == before + 40000


@pytest.mark.parametrize("device", DEVICES)
def test_what_would_exceed_the_limit_raises_with_op_and_line(device):
    x = sl.ones(100, 100, device=device)
    before = settled(device)
    assert sl.memory.limit(device) is None and sl.memory.set_limit(before + 90000, device) is None
    kept = [x + 1]
    with pytest.raises(sl.OutOfMemoryError, match=r"(?s)matmul: .*out of memory in \S+: .*40000 bytes.* requested; .*the limit that was "
                                                  rf"set is .*{before + 90000} bytes.*test_memory_api\.py:\d+") as refused:
        for _ in range(5):
            kept.append(x @ x)
    assert isinstance(refused.value, MemoryError) and isinstance(refused.value, RuntimeError)
    assert sl.cuda.OutOfMemoryError is sl.OutOfMemoryError
    assert len(kept) == 2 and settled(device) == before + 80000  # nothing has changed
    assert sl.memory.set_limit(None, device) == before + 90000
    assert [k[0, 0].item() for k in kept] == [2, 100] and (x @ x)[0, 0].item() == 100


@pytest.mark.parametrize("make", [
    lambda: sl.empty(1000, 1000), lambda: sl.zeros(1000, 1000), lambda: sl.randn(1000, 1000), lambda: sl.tensor(np.ones((1000, 1000))),
    lambda: sl.tensor([1.0] * 100000), lambda: sl.from_numpy(np.ones((1000, 1000))).clone(), lambda: nn.Linear(1000, 1000),
    lambda: sl.ones(10, 10).expand(100, 10, 10).repeat(1, 10, 10), lambda: sl.arange(1000000), lambda: sl.ones(50, 50).to("sim:0"),
    lambda: sl.ones(300, 300).sort(), lambda: sl.cat([sl.ones(40, 100)] * 20)])
def test_every_way_to_make_a_tensor_names_itself(make):
    make()  # whatever is made once
    before = [settled(device) for device in DEVICES]
    for device, used in zip(DEVICES, before):
        sl.memory.set_limit(used + (30000 if device == "cpu" else 5000), device)
    with pytest.raises(MemoryError, match=r"^\w+: .*memory: out of memory in (cpu|sim:0): .*test_memory_api\.py:\d+"):
        make()
    assert [settled(device) for device in DEVICES] == before
    for device in DEVICES:
        sl.memory.set_limit(None, device)
    make()


def test_a_gradient_that_does_not_fit_leaves_everything_as_it_was():
    w = sl.ones(100, 100, requires_grad=True)

    def loss():
        return ((w @ w).relu() * w).sum()

    loss().backward()
    expected, w.grad = w.grad.clone(), None
    value = loss()
    used = settled()
    sl.memory.set_limit(used + 50000)
    with pytest.raises(MemoryError, match=r"out of memory in cpu"):
        value.backward()
    del value
    sl.memory.set_limit(None)
    w.grad = None
    loss().backward()
    np.testing.assert_array_equal(w.grad.numpy(), expected.numpy())


class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def build(self, x):
        return self.model(x)


def test_a_graph_that_would_exceed_the_limit_is_refused_with_its_ledger():
    graph, x = Net(), sl.ones(32, 64)
    expected = graph.model(x).detach().numpy()
    used = settled()
    sl.memory.set_limit(used + 10000)
    with pytest.raises(sl.OutOfMemoryError, match=r"(?s)plan 'net\w*': .*the limit that was set is .*it needs .* in all: arenas .*variables "
                                                  r".*largest registers: "):
        graph(x)
    assert settled() == used
    sl.memory.set_limit(None)
    np.testing.assert_allclose(graph(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert sl.memory.active() > used


def test_results_of_a_graph_are_counted_and_refused_without_harm():
    graph, x = Net(), sl.ones(32, 64)
    expected = graph(x).numpy()
    results = [graph(x) for _ in range(4)]
    graph.synchronize()
    sl.memory.set_limit(settled() + 100)
    with pytest.raises(MemoryError, match=r"plan 'net\w*': inputs and results of a step: .*out of memory in cpu"):
        for _ in range(100):
            results.append(graph(x))
    for result in results:
        np.testing.assert_array_equal(result.numpy(), expected)
    sl.memory.set_limit(None)
    np.testing.assert_array_equal(graph(x).numpy(), expected)


def test_a_host_function_of_a_graph_that_exceeds_it_fails_its_step_alone():
    sizes = iter([10, 1000000, 10])

    def grow(array):
        return array + sl.ones(next(sizes)).numpy()[0]

    class Grown(nn.Graph):
        def build(self, x):
            return sl.host_function(grow, x * 2, out=((4,), sl.float32)) + 1

    graph, x = Grown(), sl.ones(4)
    assert graph(x).tolist() == [4.0] * 4
    sl.memory.set_limit(settled() + 100 * KIB)
    with pytest.raises(RuntimeError, match=r"(?s)host function 'grow' raised .*MemoryError: full: .*out of memory in cpu"):
        graph(x).tolist()
    assert graph(x).tolist() == [4.0] * 4


def test_a_limit_below_what_is_in_use_takes_hold_at_once():
    x, small = sl.ones(100, 100), sl.ones(4)
    used = settled()
    sl.memory.set_limit(1000)
    with pytest.raises(MemoryError, match="out of memory in cpu"):
        x + 1
    x.mul_(x)  # takes nothing
    view = x[2:4]
    assert view.shape == (2, 100) and settled() == used
    with pytest.raises(MemoryError, match="out of memory in cpu"):
        small + 1
    sl.memory.set_limit(used)
    del x, view
    assert (small + 1).tolist() == [2.0] * 4


def test_threads_never_exceed_it_together():
    x = sl.ones(100, 100)
    used = settled()
    limit, refused, made = used + 10 * 40000, [], []
    sl.memory.set_limit(limit)
    sl.memory.reset_peak()
    start = threading.Barrier(4)

    def work():
        kept = []
        start.wait()
        for _ in range(200):
            try:
                kept.append(x + 1)
            except MemoryError:
                refused.append(1)
                kept.clear()
        made.append(len(kept))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and refused and sl.memory.peak() <= limit and settled() == used


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_kept_goes_back(device):
    def use():
        tensors = [sl.ones(100, 100 + i, device=device) for i in range(10)]
        del tensors
        return settled(device)

    gc.collect()
    sl.memory.empty_cache(device)
    least = sl.memory.cached(device) + 100 * KIB  # what is in use, also by tests before, takes whole blocks
    used = use()
    assert sl.memory.cached(device) >= 400000
    sl.memory.empty_cache(device)
    assert sl.memory.cached(device) < least
    use()
    sl.memory.set_limit(used + 500 * KIB, device)  # what is kept counts with what is in use
    assert used + sl.memory.cached(device) <= used + 500 * KIB
    use()
    assert used + sl.memory.cached(device) <= used + 500 * KIB + least
    sl.memory.set_limit(None, device)
    use()
    assert sl.memory.set_cache_limit(0, device) is None and sl.memory.cache_limit(device) == 0
    assert sl.memory.cached(device) < least
    use()
    assert sl.memory.cached(device) < least
    assert sl.memory.set_cache_limit(None, device) == 0


def test_a_graph_gets_memory_that_was_kept_for_tensors():
    sl.memory.set_limit(settled() + 4096 * KIB)
    for n in range(1, 30):
        sl.ones(n * 100, 100)
    graph, x = Net(), sl.ones(32, 64)
    assert graph(x).shape == (32, 64)
    assert sl.memory.active() + sl.memory.cached() <= sl.memory.limit() + 200 * KIB


@pytest.mark.parametrize(("bad", "error", "text"), [
    (-1, ValueError, "-1; must be 0 to"), (1 << 63, ValueError, "must be 0 to"), (1.5, TypeError, "float; must be an int"),
    (True, TypeError, "bool; must be an int"), ("1", TypeError, "str; must be an int")])
def test_what_is_no_number_of_bytes_is_refused(bad, error, text):
    for call in (sl.memory.set_limit, sl.memory.set_cache_limit):
        with pytest.raises(error, match=text):
            call(bad)
    assert sl.memory.limit() is None and sl.memory.set_limit(np.int64(1 << 40)) is None and sl.memory.limit() == 1 << 40


def test_devices_have_limits_of_their_own():
    with pytest.raises(RuntimeError, match="nonsense"):
        sl.memory.active("nonsense")
    settled("sim:0")
    sl.memory.set_limit(0, "sim:0")
    assert sl.memory.limit() is None and (sl.ones(1000) + 1)[0].item() == 2
    with pytest.raises(MemoryError, match=r"(?s)out of memory in sim:0.*the limit that was set is 0 bytes"):
        sl.ones(1000, device="sim:0")
    sl.memory.set_limit(None, "sim:0")
    with sl.device("sim:0"):
        sl.memory.set_limit(12345)
    assert sl.memory.limit("sim:0") == 12345 and sl.memory.limit("cpu") is None


def test_a_fraction_of_a_device():
    cpu = sl.get_device_module("cpu")
    for bad, error in ((1.5, ValueError), (-0.1, ValueError), (float("nan"), ValueError), ("1", TypeError)):
        with pytest.raises(error):
            cpu.set_per_process_memory_fraction(bad)
    assert cpu.get_per_process_memory_fraction() == 1.0 and sl.memory.limit() is None
    cpu.set_per_process_memory_fraction(0.5)
    limit = sl.memory.limit()
    assert limit > 1 << 20 and cpu.get_per_process_memory_fraction() == pytest.approx(0.5)
    cpu.set_per_process_memory_fraction(1)
    assert sl.memory.limit() in (2 * limit, 2 * limit + 1)
    with pytest.raises(NotImplementedError, match="how much memory there is, is not known; use sluice.memory.set_limit"):
        sl.get_device_module("sim").set_per_process_memory_fraction(0.5)
