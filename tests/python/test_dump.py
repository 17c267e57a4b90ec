"""Kernels' results, written to files and compared: config.set_dump, plan-viz compare, config.enable_sync_check."""

import csv
import json
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Net(nn.Graph):
    def __init__(self, name="net", bend=0.0):
        super().__init__(name=name)
        sl.manual_seed(0)
        self.first, self.second = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 3, 3)
        with sl.no_grad():
            self.second.bias[1] += bend

    def build(self, x):
        return self.second(self.first(x).sigmoid()).amax()


def images(step):
    return sl.from_numpy(np.random.default_rng(step).standard_normal((2, 1, 8, 8), np.float32))


class Doubling(nn.Graph):
    def build(self, x):
        return x * 2.0


def run(graph, steps=5):
    results = [graph(images(step)).item() for step in range(steps)]
    graph.close()
    return results


def rows(directory):
    with open(directory / "stats.csv") as file:
        return list(csv.DictReader(file))


def compare(*arguments):
    return subprocess.run([find_tool("plan-viz"), "compare", *map(str, arguments)], capture_output=True, text=True)


def test_the_ops_and_steps_that_were_asked_for_are_written(tmp_path):  # MS-03
    graph = Net()
    graph.config.set_dump(ops="conv*", steps=(2, 3), tensors=True, directory=tmp_path / "d")
    expected = run(Net())
    assert run(graph) == expected
    written = rows(tmp_path / "d")
    assert [(row["step"], row["op"]) for row in written] == [("2", "conv")] * 2 + [("3", "conv")] * 2
    for row in written:
        layer = graph.first if row["name"].startswith("first") else graph.second
        assert row["name"].startswith(("first", "second")) and "test_dump.py" in row["source"]
        x = images(int(row["step"]))
        value = graph.first(x) if layer is graph.first else graph.second(graph.first(x).sigmoid())
        array = np.load(tmp_path / "d" / row["file"])
        assert row["dtype"] == "float32" and array.dtype == np.float32
        np.testing.assert_allclose(array, value.detach().numpy(), rtol=1e-5, atol=1e-6)
        for key, number in {"min": array.min(), "max": array.max(), "mean": array.mean(), "std": array.std()}.items():
            assert float(row[key]) == pytest.approx(float(number), rel=1e-5, abs=1e-6)
        assert (row["nan"], row["inf"], row["denormal"]) == ("0", "0", "0")


def test_denormals_are_counted(tmp_path):
    graph = Doubling()
    graph.config.set_dump(directory=tmp_path)
    graph(sl.tensor([1.0, 0.0, 1e-39, -1e-40]))
    graph.close()
    assert [row["denormal"] for row in rows(tmp_path) if row["op"] == "mul"] == ["2"]


def test_what_to_write_comes_from_a_file(tmp_path):
    (tmp_path / "dump.json").write_text(json.dumps({"ops": ["amax", "second/*"], "steps": 1, "directory": str(tmp_path / "d")}))
    graph = Net()
    graph.config.set_dump(tmp_path / "dump.json")
    run(graph)
    written = rows(tmp_path / "d")
    assert {row["step"] for row in written} == {"1"} and {"amax", "conv"} <= {row["op"] for row in written}
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["stats.csv"]


def test_nan_is_counted(tmp_path):
    class Logs(nn.Graph):
        def build(self, x):
            return x.log()

    graph = Logs()
    graph.config.set_dump(directory=tmp_path)
    graph(sl.tensor([1.0, -1.0, 0.0, 2.0])).numpy()
    (row,) = rows(tmp_path)
    assert (row["nan"], row["inf"]) == ("1", "1") and float(row["max"]) == pytest.approx(np.log(2), rel=1e-6)


@pytest.mark.parametrize("tensors", [False, True])
def test_the_first_op_that_differs_is_named(tmp_path, tensors):  # MS-04
    for name, bend in (("a", 0.0), ("same", 0.0), ("b", 0.5)):
        graph = Net(bend=bend)
        graph.config.set_dump(tensors=tensors, directory=tmp_path / name)
        run(graph, 2)
    equal = compare(tmp_path / "a", tmp_path / "same", "--tolerance", 0)
    assert equal.returncode == 0 and equal.stdout.startswith("equal: ")
    differs = compare(tmp_path / "a", tmp_path / "b")
    assert differs.returncode == 1 and "first difference: op conv of kernel 'second/conv' in step 0, output 0" in differs.stdout
    assert "test_dump.py:" in differs.stdout
    told = json.loads(compare(tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert told["differing"][0]["kernel"] == "second/conv" and told["only_one"] == 0
    assert all(row["kernel"] != "first/conv" for row in told["differing"])


def test_what_is_no_dump_is_an_error(tmp_path):
    missing = compare(tmp_path, tmp_path)
    assert missing.returncode == 2 and "stats.csv: cannot be read" in missing.stderr
    (tmp_path / "stats.csv").write_text("x\n1\n")
    assert "must be the stats.csv of a dump" in compare(tmp_path, tmp_path).stderr
    header = "step,kernel,name,op,output,dtype,shape,min,max,mean,std,nan,inf,denormal,file,source\n"
    (tmp_path / "stats.csv").write_text(header + "0,0,a,b\n")
    assert "line 2 is no line of a dump" in compare(tmp_path, tmp_path).stderr
    (tmp_path / "stats.csv").write_text(header)
    assert "no kernel and step in both" in compare(tmp_path, tmp_path).stderr


@pytest.mark.parametrize("arguments,text", [
    ({"ops": "a,b"}, "must be without commas"),
    ({"what": "/nowhere/dump.json"}, "cannot be read"),
])
def test_wrong_options_are_refused(arguments, text):
    with pytest.raises((ValueError, OSError), match=text):
        Net().config.set_dump(**arguments)


def test_wrong_steps_are_refused_when_the_graph_is_loaded(tmp_path):
    graph = Net()
    graph.config.set_dump(steps=(3, 2), directory=tmp_path)
    with pytest.raises(ValueError, match="steps 3 to 2; the first must not be after the last"):
        graph(images(0))


def test_a_sync_check_changes_no_result():
    """Its purpose is tested in C++, on a device whose failures come late (Failure.WithASyncCheck...)."""
    class Chain(nn.Graph):
        def build(self, x):
            return (x.exp() + 1).sqrt()

    plain, checked = Chain(), Chain()
    checked.config.enable_sync_check()
    for graph in (plain, checked):
        graph.config.set_device("sim:0")
    x = sl.tensor([0.0, 1.0])
    assert sl.equal(plain(x), checked(x))
