"""Sources, in plans and in graphs, whose Python functions say that there is no more."""

import contextlib
import json

import numpy as np
import pytest

import sluice as sl

from test_plan_interpreter import interpreter


def source_plan(starts=1):
    """A source, whose function makes 2 numbers each time, and a sink. The source fires `starts` times for a step."""
    view = {"base": "register", "index": 0, "token": 0, "offset": 0, "dtype": "float32", "shape": [2], "strides": [1]}
    return {
        "schema_version": 1, "name": "sources", "options": {}, "target": "test", "spaces": [{"kind": "host", "device": "cpu:0"}],
        "streams": [{"name": f"cpu:0/host{i}", "device": "cpu:0", "kind": "host", "index": i, "cores": 1} for i in range(2)],
        "arenas": [{"name": "all", "space": 0, "stream": -1, "bytes": 128, "lower_bound": 128}],
        "buffers": [{"name": f"b{i}", "arena": 0, "offset": 64 * i, "bytes": 8} for i in range(2)], "variables": [],
        "kernels": [{"name": "read", "op": "host_function", "attrs": {"name": "read", "outputs": "float32(2,)"}, "inputs": [], "outputs": [view], "workspace": -1,
                     "file": "", "line": 0, "module": "", "cost_ns": 0, "collective": -1}],
        "actors": [{"name": "data", "stream": 0, "role": "source", "program": [["run", 0], ["emit", 0]],
                    **({"starts": starts} if starts > 1 else {})},
                   {"name": "sink", "stream": 1, "role": "sink", "program": [["release", 0]]}],
        "registers": [{"name": "numbers", "producer": 0, "quota": 2, "bytes": 8, "slots": [0, 1], "emit_every": 1,
                       "initial_tokens": 0, "in_place_of": -1}],
        "edges": [{"reg": 0, "consumer": 1, "take": 1, "hold": 1}], "inputs": [], "outputs": [{"name": "y", "view": view}],
        "certificate": []}


def load(directory, plan, function):
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "graph.txt").write_text("")
    (directory / "meta.json").write_text("{}")
    (directory / "weights.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return sl._C.Engine().load(str(directory), {"read": function})


def reader(n):
    """A function that gives (i, i) for i below n, and then begins anew."""
    numbers = iter(range(n))

    def read():
        nonlocal numbers
        try:
            return np.full(2, next(numbers), np.float32)
        except StopIteration:
            numbers = iter(range(n))
            raise

    return read


@pytest.mark.parametrize("n", [0, 1, 3, 10])
def test_stop_iteration_ends_the_data_and_reset_begins_anew(n, tmp_path):
    session = load(tmp_path, source_plan(), reader(n))
    for _ in range(3):
        for i in range(n):
            assert session.run([])[0].numpy().tolist() == [i, i]
        for _ in range(2):
            with pytest.raises(sl.EndOfData, match="the data of a source has ended; reset\\(\\) begins anew"):
                session.run([])
        session.reset()


def test_a_step_has_the_rows_of_all_firings_or_has_ended(tmp_path):
    session = load(tmp_path, source_plan(starts=2), reader(5))
    assert session.run([])[0].numpy().tolist() == [0, 0, 1, 1]
    assert session.run([])[0].numpy().tolist() == [2, 2, 3, 3]
    with pytest.raises(EOFError):
        session.run([])


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 6])
def test_the_engine_and_the_interpreter_answer_the_same_steps(starts, n, tmp_path):
    plan, steps = source_plan(starts), 3
    session, answered = load(tmp_path, plan, reader(n)), []
    with contextlib.suppress(sl.EndOfData):
        for _ in range(steps):
            answered.append(session.run([])[0].numpy().tolist())
    assert len(answered) == min(steps, n // starts)
    for seed in (None, 1, 2, 3):
        machine = interpreter.Interpreter(plan, {}, {"read": reader(n)})
        assert [step["y"].tolist() for step in machine.run([{}] * steps, seed)] == answered


class Numbers(sl.nn.Graph):
    """Gives the values of a source, twice."""

    def __init__(self, source, parts=1):
        super().__init__(name="numbers")
        self.source = source
        if parts > 1:
            self.config.set_gradient_accumulation_steps(parts)

    def build(self):
        return sl.host_function(self.source, out=((2,), sl.float32)) * 2


def pairs(n):
    for i in range(n):
        yield np.full(2, i, np.float32)


def three():
    yield from pairs(3)


@pytest.mark.parametrize("source", [reader(3), three], ids=["function", "generator"])
def test_a_host_function_without_inputs_is_a_source_of_its_graph(source):
    graph = Numbers(source)
    for _ in range(3):
        for i in range(3):
            assert graph().numpy().tolist() == [2 * i, 2 * i]
        for _ in range(2):
            with pytest.raises(sl.EndOfData, match="the data of a source has ended; reset\\(\\) begins anew"):
                graph().numpy()
        graph.synchronize()
        graph.reset()
        assert graph.stats()["submitted"] == 0
    assert [a["role"] for a in graph.plan["actors"]].count("source") == 1


def test_calls_made_ahead_of_the_end_are_answered_or_have_ended():
    graph = Numbers(three)
    graph.config.set_outputs_buffer_size(5)
    results = [graph() for _ in range(3)]
    for _ in range(2):
        try:
            results.append(graph())
        except sl.EndOfData:  # the source was faster than this thread: the end was known at the call
            break
    assert [r.numpy().tolist() for r in results[:3]] == [[0, 0], [2, 2], [4, 4]]
    for r in results[3:]:
        with pytest.raises(EOFError):
            r.numpy()
    with pytest.raises(sl.EndOfData):
        graph()


def test_reset_before_the_end_begins_anew_with_its_generator():
    graph = Numbers(three)
    for n in (1, 2, 3, 1):
        assert [graph().numpy()[0] for _ in range(n)] == [2 * i for i in range(n)]
        graph.reset()


def test_reset_calls_reset_of_a_function_that_has_it():
    class Reader:
        def __init__(self):
            self.reset()

        def reset(self):
            self.left = iter(range(4))

        def __call__(self):
            return np.full(2, next(self.left), np.float32)

    graph = Numbers(Reader())
    assert [graph().numpy()[0] for _ in range(2)] == [0, 2]
    graph.reset()
    assert [graph().numpy()[0] for _ in range(4)] == [0, 2, 4, 6]


def test_a_source_beside_inputs_ends_them_both():
    class Both(sl.nn.Graph):
        def build(self, x):
            return x + sl.host_function(three, out=((2,), sl.float32))

    graph = Both()
    assert [graph(sl.full((2,), 10.0 * i)).numpy()[0] for i in range(3)] == [0, 11, 22]
    with pytest.raises(sl.EndOfData):
        graph(sl.ones(2)).numpy()
    graph.reset()
    assert graph(sl.ones(2)).numpy()[0] == 1


def test_the_shorter_of_two_sources_ends_the_graph():
    def long():
        yield from pairs(7)

    class Two(sl.nn.Graph):
        def build(self):
            return sl.host_function(long, out=((2,), sl.float32)) + sl.host_function(three, out=((2,), sl.float32), stream="host:1")

    graph = Two()
    for _ in range(2):
        assert [graph().numpy()[0] for _ in range(3)] == [0, 2, 4]
        with pytest.raises(sl.EndOfData):
            graph().numpy()
        graph.reset()


def test_a_source_fires_for_each_micro_batch():
    def five():
        yield from pairs(5)

    graph = Numbers(five, parts=2)
    assert graph().numpy().tolist() == [0, 0, 2, 2]
    assert graph().numpy().tolist() == [4, 4, 6, 6]
    with pytest.raises(sl.EndOfData):
        graph().numpy()


def test_parameters_are_updated_for_the_steps_there_was_data_for():
    def batches():
        yield from pairs(3)

    class Train(sl.nn.Graph):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.add_optimizer(sl.optim.SGD(module.parameters(), lr=1.0))

        def build(self):
            loss = (self.module(sl.host_function(batches, out=((2,), sl.float32)).reshape(1, 2))).sum()
            loss.backward()
            return loss

    module = sl.nn.Linear(2, 1, bias=False)
    sl.nn.init.ones_(module.weight)
    graph = Train(module)
    for epoch in (1, 2):
        losses = [graph() for _ in range(2)] + [graph(), graph()]
        with pytest.raises(sl.EndOfData):
            losses[-1].numpy()
        assert (module.weight.detach().numpy() == 1 - epoch * (0 + 1 + 2)).all()
        graph.reset()


def test_a_source_that_raises_fails_its_step_alone():
    calls = iter(range(10))

    def flaky():
        i = next(calls)
        if i == 1:
            raise ValueError("torn page")
        return np.full(2, i, np.float32)

    graph = Numbers(flaky)
    assert graph().numpy()[0] == 0
    with pytest.raises(sl.errors.RuntimeError, match="torn page"):
        graph().numpy()
    assert graph().numpy()[0] == 4


def test_generators_are_sources_of_graphs():
    with pytest.raises(TypeError, match="is a generator function, which makes data by itself, and got 1 tensors; use an ordinary function"):
        sl.host_function(three, sl.ones(2), out=((2,), sl.float32))
    with pytest.raises(TypeError, match="is a generator function, which is a source of graphs; outside of a graph, call it yourself"):
        sl.host_function(three, out=((2,), sl.float32))
    assert sl.host_function(reader(3), out=((2,), sl.float32)).numpy().tolist() == [0, 0]


def test_a_saved_graph_with_a_source_runs_by_itself(tmp_path):
    graph = Numbers(three)
    graph()
    sl.save(graph, str(tmp_path / "bundle"))
    loaded = sl.load_graph(str(tmp_path / "bundle"), {"three": three})
    for _ in range(2):
        assert [loaded().numpy()[0] for _ in range(3)] == [0, 2, 4]
        with pytest.raises(sl.EndOfData):
            loaded().numpy()
        loaded.reset()
    session = sl._C.Engine().load(str(tmp_path / "bundle"), {"three": reader(3)})
    for _ in range(2):
        assert [session.run([])[0].numpy()[0] for _ in range(3)] == [0, 2, 4]
        with pytest.raises(sl.EndOfData):
            session.run([])
        session.reset()


def test_what_is_no_source_fails_its_step(tmp_path):
    class Stops(sl.nn.Graph):
        def build(self, x):
            def stop(a):
                raise StopIteration

            return sl.host_function(stop, x, out=((2,), sl.float32))

    graph = Stops()
    for _ in range(2):
        with pytest.raises(sl.EndOfData, match="host function .* its data has ended"):
            graph(sl.ones(2)).numpy()
