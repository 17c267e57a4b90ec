"""Sources of plans whose Python functions say that there is no more."""

import json

import numpy as np
import pytest

import sluice as sl


def source_plan(starts=1):
    """A source, whose function makes 2 numbers each time, and a sink. The source fires `starts` times for a step."""
    view = {"base": "register", "index": 0, "token": 0, "offset": 0, "dtype": "float32", "shape": [2], "strides": [1]}
    return {
        "schema_version": 1, "name": "sources", "options": {}, "target": "test", "spaces": [{"kind": "host", "device": "cpu:0"}],
        "streams": [{"name": f"cpu:0/host{i}", "device": "cpu:0", "kind": "host", "index": i, "cores": 1} for i in range(2)],
        "arenas": [{"name": "all", "space": 0, "stream": -1, "bytes": 128, "lower_bound": 128}],
        "buffers": [{"name": f"b{i}", "arena": 0, "offset": 64 * i, "bytes": 8} for i in range(2)], "variables": [],
        "kernels": [{"name": "read", "op": "host_function", "attrs": {"name": "read"}, "inputs": [], "outputs": [view], "workspace": -1,
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
