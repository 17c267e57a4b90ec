"""Extents in every way to call, in failed steps and in bundles."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from extent_sources import ROWS, made_of, rows_of, source


@pytest.mark.parametrize("call", ["call", "try_call", "run_async"])
def test_every_way_to_call(call):
    import asyncio

    graph = made_of(lambda: rows_of([2, 5]))
    graph.compile()
    for n in (2, 5):
        if call == "run_async":
            y = asyncio.run(graph.run_async())
        else:
            y = graph() if call == "call" else graph.try_call()
        assert tuple(y.shape) == (n, 3)


def test_a_failed_step_is_told_by_the_call_and_the_next_one_runs():
    steps = iter([1, 0, 2])

    def fails():
        n = next(steps)
        if n == 0:
            raise RuntimeError("no rows today")
        return np.ones((n, 3), np.float32)

    graph = made_of(lambda: sl.host_function(fails, out=((ROWS, 3), sl.float32)))
    assert len(graph().numpy()) == 1
    with pytest.raises(sl.Error, match="no rows today"):
        graph()
    assert len(graph().numpy()) == 2


def test_bundles_give_results_as_long_as_they_are(tmp_path):
    sizes = [3, 8, 0]

    def rows():
        yield from (np.full((n, 3), n, np.float32) for n in sizes)

    class Net(nn.Graph):
        def build(self):
            x = sl.host_function(rows, out=((ROWS, 3), sl.float32))
            return {"double": x * 2, "extent": sl.extent(x, 0)}

    graph = Net(name="rows")
    graph.compile()
    sl.save(graph, tmp_path / "bundle")
    loaded = sl.load_graph(tmp_path / "bundle", functions={"rows": rows})
    assert [(name, shape) for name, _, shape in loaded.outputs] == [("double", (8, 3)), ("extent", ())]
    for _ in range(2):
        for n in sizes:
            out = loaded()
            assert out["extent"].item() == n and out["double"].numpy().tolist() == [[2.0 * n] * 3] * n
        with pytest.raises(sl.EndOfData):
            loaded()
        loaded.reset()


def test_bundles_that_are_planned_anew_keep_it(tmp_path, without_digest):
    graph = made_of(lambda: rows_of([1]))
    graph.compile()
    sl.save(graph, tmp_path / "bundle")
    without_digest(tmp_path / "bundle")
    plan = (tmp_path / "bundle" / "plan.json").read_text()
    target = graph.plan["target"]
    (tmp_path / "bundle" / "plan.json").write_text(plan.replace(target, "another machine"))
    with pytest.warns(UserWarning, match="compiled anew from graph.txt"):
        loaded = sl.load_graph(tmp_path / "bundle", functions={"rows": source([3, 1])})
    assert [len(loaded().numpy()) for _ in range(2)] == [3, 1]


def test_a_result_may_be_called_as_an_extent_is():
    def build():
        x = rows_of([1])
        return {"x": x, "x[0=rows]": sl.extent(x, 0)}

    results = made_of(build)()
    assert len(results["x"].numpy()) == 1 and results["x[0=rows]"].item() == 1


def test_a_plan_is_verified_and_counted_as_any_other():
    graph = made_of(lambda: rows_of([2]) * 2)
    graph.compile()
    registers = {r["name"]: r["bytes"] for r in graph.plan["registers"]}
    assert 8 in registers.values()  # the extent is a register like others
    assert [o.get("extent_of") for o in graph.plan["outputs"]] == [None, {"output": "output", "axis": 0, "dim": "rows"}]
    assert len(graph().numpy()) == 2


@pytest.mark.parametrize("attrs, message", [
    ({"dims": ["n"], "output_dims": [0, 1, 0]}, "dims: output 0 has no axis 1; one of dim 'n' must be there"),
    ({"dims": ["n"], "output_dims": [0, 0]}, "output_dims: 2 numbers; must be a tensor, an axis and a dim for each"),
    ({"dims": ["n"], "output_dims": [0, 0, 1]}, r"output_dims: \(0, 0, 1\); must be a tensor, an axis of it and one of 1 dims"),
    ({"dims": ["n", "m"], "output_dims": [0, 0, 0]}, "dims: no output has an axis of 'm'; one must"),
    ({"dims": ["n"], "input_dims": [0, 0, 0]}, r"dims: input 0 is float32\(4,\); an extent must be int64\(\)"),
    ({"dims": ["n"], "output_dims": [0, 0, 0, 1, 0, 0]}, "dims: axis 0 of output 1 has room for 2 of dim 'n', and another for 4; must be equal"),
])
def test_attributes_that_contradict_are_refused(attrs, message):
    with pytest.raises(sl.Error, match="host_function: " + message):
        sl.ops.host_function([sl.ones(4)], name="f", outputs=[(sl.float32, (4,)), (sl.float32, (2,))], **attrs)
