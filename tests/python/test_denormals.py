"""sluice.set_flush_denormal and graph.config.enable_flush_denormals: denormal numbers are zero in every thread of every kernel,
where that is asked for and nowhere else."""

import numpy as np
import pytest
import sluice as sl
from sluice import nn

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
N = 1 << 18  # of kernels on all cores
pytestmark = pytest.mark.skipif(not sl.set_flush_denormal(False), reason="this processor always keeps denormals")

CALLS = {
    "mul": lambda x, w: x * 0.5,
    "add": lambda x, w: x + x,
    "fused": lambda x, w: sl.relu(x * 0.5 + x) - x * 0.25,
    "matmul": lambda x, w: x.reshape(-1, 64) @ w,
    "conv": lambda x, w: nn.functional.conv2d(x.reshape(4, 16, 64, 64), w.reshape(-1, 16, 1, 1)[:16]),
    "sum": lambda x, w: x.reshape(-1, 4).sum(1),
    "softmax_weighted": lambda x, w: sl.softmax(x.reshape(-1, 64), 1) * x.reshape(-1, 64),
}


@pytest.fixture
def flushed():
    sl.set_flush_denormal(True)
    yield
    sl.set_flush_denormal(False)


def operands():
    """A tensor whose elements and the products of which are denormals, and weights that leave them so."""
    return sl.full((N,), SMALLEST_NORMAL / 8), sl.eye(64) * 0.5


def denormals_in(result):
    values = np.abs(result.detach().numpy())
    return int(((values > 0) & (values < SMALLEST_NORMAL)).sum())


def graph_of(call, flush):
    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_flush_denormals(flush)

        def build(self, x, w):
            return call(x, w)

    return Net()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_eager_calls_keep_denormals_until_they_are_to_be_flushed(call):
    x, w = operands()
    kept = denormals_in(call(x, w))
    assert kept > 0
    try:
        assert sl.set_flush_denormal(True) is True
        assert denormals_in(call(x, w)) == 0
    finally:
        assert sl.set_flush_denormal(False) is True
    assert denormals_in(call(x, w)) == kept


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_graphs_that_flush_and_graphs_that_do_not_take_turns(call):
    x, w = operands()
    keeps, flushes = graph_of(call, False), graph_of(call, True)
    kept = denormals_in(call(x, w))
    for _ in range(3):
        assert denormals_in(flushes(x, w)) == 0
        assert denormals_in(keeps(x, w)) == kept


def test_a_graph_takes_the_setting_when_it_is_compiled(flushed):
    x, w = operands()
    net = graph_of(CALLS["mul"], True)
    compiled = sl.compile(CALLS["mul"])
    assert denormals_in(net(x, w)) == denormals_in(compiled(x, w)) == 0
    sl.set_flush_denormal(False)
    assert denormals_in(net(x, w)) == 0
    assert denormals_in(compiled(x, w)) > 0  # what it guards has changed: it is compiled anew


def test_a_plan_keeps_it_in_its_file(tmp_path):
    x, w = operands()
    net = graph_of(CALLS["matmul"], True)
    net(x, w)
    sl.save(net, tmp_path / "net")
    assert denormals_in(sl.load_graph(tmp_path / "net")(x, w)) == 0


def test_functions_of_the_program_compute_as_the_program_does(flushed):
    seen = []

    class Net(nn.Graph):
        def build(self, x):
            return sl.host_function(lambda a: (seen.append(float(a[0]) * 0.5), a)[1], x, out=((N,), sl.float32)) * 1.0

    assert denormals_in(Net()(sl.full((N,), SMALLEST_NORMAL))) == 0
    assert 0 < seen[-1] < SMALLEST_NORMAL
    assert np.float32(SMALLEST_NORMAL) * np.float32(0.5) > 0
