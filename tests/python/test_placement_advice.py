"""Advice on where preprocessing should run comes true when it is followed, in virtual time."""

import json
import threading

import numpy as np
import pytest
from test_input_stages import plan_viz
from test_input_tuning import Ticks

import sluice as sl
from sluice import data, nn
from sluice.data._tuning import Costs, Setting
from sluice.profiler import advise_placement

CORES = 4


def images():
    while True:
        yield np.zeros((8, 16), np.float32)


def augment(x):
    return x + 1


def prepare(x):
    return x * 2


@pytest.fixture
def costs(tmp_path):
    """costs(name=ns, ...): a file of them."""

    def file(**named):
        path = tmp_path / "costs.json"
        lines = [{"name": name, "cost_ns": ns} for name, ns in named.items()]
        path.write_text(json.dumps({"links": [], "kernels": [*lines, {"name": "*", "cost_ns": 1000}]}))
        return path

    return file


class Functions(nn.Graph):
    """Two functions of Python on a stream, in front of a net."""

    def __init__(self, costs, streams=("host", "host")):
        super().__init__(name="functions")
        self.net, self.streams = nn.Linear(16, 16), streams
        self.config.set_cost_file(costs)
        self.config.set_outputs_buffer_size(8)

    def build(self):
        x = sl.host_function(images, out=((8, 16), sl.float32))
        x = sl.host_function(augment, x, out=((8, 16), sl.float32), stream=self.streams[0])
        x = sl.host_function(prepare, x, out=((8, 16), sl.float32), stream=self.streams[1])
        return self.net(x).tanh()


class Kernels(nn.Graph):
    """A pipeline whose kernels are as much work as the net's, on a stream or device."""

    def __init__(self, costs, place=None):
        super().__init__(name="kernels")
        self.net, self.place = nn.Linear(16, 16), place
        x = np.ones((32, 16), np.float32)
        self.input = data.arrays(x).repeat().batch(8).map(lambda x: x.cumsum(1))
        self.config.set_cores(1)
        self.config.set_cost_file(costs)
        self.config.set_outputs_buffer_size(8)

    def build(self):
        if self.place is None:
            x = self.input()
        else:
            with self.place:
                x = self.input()
        return self.net(x.to("cpu")).tanh()


def period(tmp_path, graph):
    graph.compile()
    graph.save_plan(tmp_path / "plan.json")
    told = json.loads(plan_viz("simulate", tmp_path / "plan.json", "--json", "--steps", "48", "--cores", str(CORES)))
    return told["period_ns"] / 1e9


def comes_true(advice, move, now, then):
    """The gain that was forecast is that of the program with the move, within 15 %."""
    assert advice.seconds == pytest.approx(now)
    assert now - then == pytest.approx(now - move.seconds, rel=0.15) and move.gain == pytest.approx(1 - move.seconds / now)


def test_functions_on_streams_of_their_own(tmp_path, costs):  # C-28
    file = costs(**{"host_function": 1e4, "host_function#2": 6e5, "host_function#3": 5e5, "*linear*": 4e5})
    advice = advise_placement(lambda: Functions(file), cores=CORES)
    now = period(tmp_path, Functions(file))
    best = advice.best
    assert best.stage in ("augment", "prepare") and best.to == "host:1" and best.gain > 0.35
    assert best.how == f'host_function({best.stage}, ..., stream="host:1")'
    for stage, streams in (("augment", ("host:1", "host")), ("prepare", ("host", "host:1"))):
        (move,) = [m for m in advice.moves if m.stage == stage]
        comes_true(advice, move, now, period(tmp_path, Functions(file, streams)))
    (source,) = [m for m in advice.moves if m.stage == "images"]
    assert abs(source.gain) < 0.05 and str(advice).startswith("a step takes 1.1")


def test_kernels_of_a_pipeline_on_another_stream_or_device(tmp_path, costs):  # C-28
    file = costs(**{"*cumsum*": 5e5, "*linear*": 6e5})
    advice = advise_placement(lambda: Kernels(file), devices=["sim:0", "cuda:77"], cores=CORES)
    now = period(tmp_path, Kernels(file))
    moves = {move.to: move for move in advice.moves}
    assert set(moves) == {"compute:1", "sim:0"} and min(m.gain for m in moves.values()) > 0.3
    comes_true(advice, moves["compute:1"], now, period(tmp_path, Kernels(file, sl.stream("compute:1"))))
    comes_true(advice, moves["sim:0"], now, period(tmp_path, Kernels(file, sl.device("sim:0"))))
    ((stage, to, why),) = advice.refused
    assert (stage, to) == ("input", "cuda:77") and why


def test_functions_in_processes(tmp_path, costs):  # C-28
    """Followed in another virtual time, where workers are processes, and not a quicker thread."""
    function, net = 12e-3, 5e-3

    class Trained(nn.Graph):
        def __init__(self):
            super().__init__(name="trained")
            self.net = nn.Linear(16, 16)
            self.input = data.dataset(range(64)).map(lambda s: np.zeros(16, np.float32), out=((16,), np.float32)).repeat().batch(8)
            self.config.set_cost_file(costs(host_function=function * 1e9, **{"*linear*": net * 1e9}))
            self.config.set_outputs_buffer_size(8)

        def build(self):
            return self.net(self.input())

    advice = advise_placement(Trained, cores=CORES)
    assert advice.best.how in ("map(..., workers=4)", "map(..., workers=2)") or advice.best.seconds == pytest.approx(net, rel=0.01)
    measured = Costs(made=(function,), made_busy=function, kernels=net, user=(0.0,))
    now = Ticks(measured, Setting(0, 1, 4), CORES).rate()
    for move in advice.moves:
        if move.how.startswith("map"):
            then = Ticks(measured, Setting(int(move.to.split()[0]), 1, 4), CORES).rate()
            assert advice.seconds == pytest.approx(now, rel=0.02)
            assert now - then == pytest.approx(advice.seconds - move.seconds, rel=0.15, abs=0.02 * now), move


def test_where_nothing_helps_it_says_so(tmp_path, costs):
    file = costs(**{"*linear*": 9e5})
    advice = advise_placement(lambda: Functions(file), cores=CORES)
    assert advice.best is None and str(advice).endswith("no move gains 1%")


def test_a_function_counts_as_what_it_was_measured_to_take(tmp_path):
    """With costs from the machine, a function that waits is the one to be moved."""
    def sleepy(x):
        threading.Event().wait(0.003)
        return x

    def drowsy(x):
        return sleepy(x)

    class Measured(nn.Graph):
        def __init__(self):
            super().__init__(name="measured")
            self.config.enable_cost_cache(tmp_path)

        def build(self):
            x = sl.host_function(images, out=((8, 16), sl.float32))
            for function in (sleepy, drowsy):
                x = sl.host_function(function, x, out=((8, 16), sl.float32))
            return x + 1

    graph = Measured()
    for _ in range(16):
        graph().numpy()
    graph.close()
    advice = advise_placement(Measured)
    assert advice.seconds >= 0.006 and advice.best.stage in ("sleepy", "drowsy") and advice.best.gain > 0.05, str(advice)
