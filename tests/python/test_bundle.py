"""Saving graphs and running them elsewhere: another process, C++, another engine."""

import json
import os
import subprocess

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool


class Classify(nn.Graph):
    def __init__(self):
        super().__init__(name="classify")
        sl.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)).eval()

    def build(self, images, options=None):
        logits = self.model(images / 16)
        return {"logits": logits, "classes": logits.argmax(1)} if options is None else logits


@pytest.fixture
def saved(tmp_path):
    graph, images = Classify(), sl.rand(4, 1, 8, 8) * 16
    result = graph(images)
    sl.save(graph, tmp_path / "model")
    np.save(tmp_path / "images.npy", images.numpy())
    np.save(tmp_path / "logits.npy", result["logits"].numpy())
    return tmp_path / "model", images, result


def test_bundle_holds_ir_plan_and_weights(saved):  # SRV-01
    directory, _, _ = saved
    assert sorted(os.listdir(directory)) == ["graph.txt", "meta.json", "plan.json", "weights.safetensors"]
    assert "conv" in (directory / "graph.txt").read_text()
    assert json.loads((directory / "plan.json").read_text())["name"] == "classify"


def test_paths_may_be_bytes_and_say_where_they_are_no_utf8(saved, tmp_path, monkeypatch):
    directory, images, result = saved
    monkeypatch.chdir(tmp_path)
    graph = sl.load_graph(os.fsencode(directory))
    assert graph(images)["logits"].tolist() == result["logits"].tolist()
    sl.save(graph, os.fsencode(tmp_path / "grün"))
    assert sorted(os.listdir(tmp_path)) == sorted(["model", "images.npy", "logits.npy", "grün"])
    for path in (b"model\xff", os.fsdecode(b"model\xff")):
        with pytest.raises(ValueError, match=r"save: b'model\\xff': this path is no UTF-8"):
            sl.save(graph, path)
        with pytest.raises(ValueError, match=r"load_graph: b'model\\xff': this path is no UTF-8"):
            sl.load_graph(path)
    tensors = os.fsdecode(b"tensors\xff.pt")
    sl.save({"a": images}, tensors)
    assert sl.load(tensors)["a"].tolist() == images.tolist()


def test_loaded_in_a_new_process_results_are_bitwise_equal(saved, run_script):  # SRV-02
    directory, images, result = saved
    source = f"""
import numpy as np, sluice as sl
graph = sl.load_graph({str(directory)!r})
out = graph(images=sl.from_numpy(np.load({str(directory.parent / 'images.npy')!r})))
assert list(out) == ["logits", "classes"]
assert np.array_equal(out["logits"].numpy(), np.load({str(directory.parent / 'logits.npy')!r}))
print(graph)
"""
    process = run_script(source)
    assert process.returncode == 0, process.stderr
    assert "images: float32(4, 1, 8, 8)" in process.stdout and "classes: int64(4,)" in process.stdout


def test_input_and_output_infos(saved):  # SRV-04
    graph = sl.load_graph(saved[0])
    assert graph.inputs == [("images", sl.float32, (4, 1, 8, 8))]
    assert graph.outputs == [("logits", sl.float32, (4, 10)), ("classes", sl.int64, (4,))]
    with pytest.raises(ValueError, match=r"argument 'images' has shape \(4, 1, 8, 9\); expected \(4, 1, 8, 8\)"):
        graph(sl.ones(4, 1, 8, 9))
    with pytest.raises(TypeError, match="expected .*images"):
        graph(pictures=saved[1])


def test_cpp_program_gives_the_same_bits_without_python(saved):  # SRV-03
    directory, images, result = saved
    runner = find_tool("cpp_runner")
    assert "libpython" not in subprocess.run(["ldd", runner], capture_output=True, text=True).stdout
    images.numpy().tofile(directory.parent / "images.f32")
    out = subprocess.run([runner, directory, directory.parent / "images.f32", directory.parent / "out.f32"], capture_output=True,
                         text=True)
    assert out.returncode == 0, out.stderr
    assert "images: float32(4, 1, 8, 8)" in out.stdout and "logits: float32(4, 10)" in out.stdout
    got = np.fromfile(directory.parent / "out.f32", np.float32).reshape(4, 10)
    assert np.array_equal(got, result["logits"].numpy())


def test_bundle_with_types_as_text_is_loaded(tmp_path, without_digest):
    """As releases wrote it before attributes could be types."""
    def pair(array):
        return array + 1, array.sum().reshape(1)

    class Pair(nn.Graph):
        def build(self, x):
            return sl.host_function(pair, x, out=[((2,), sl.float32), ((1,), sl.float32)])

    graph = Pair()
    before = [y.tolist() for y in graph(sl.ones(2))]
    sl.save(graph, tmp_path / "b")
    without_digest(tmp_path / "b")
    types = {"plan.json": '{"types": [{"dtype": "float32", "shape": [2]}, {"dtype": "float32", "shape": [1]}]}',
             "graph.txt": "[float32(2,), float32(1,)]"}
    for name, now in types.items():
        text = (tmp_path / "b" / name).read_text()
        assert f'"outputs": {now}' in text or f"outputs = {now}" in text
        (tmp_path / "b" / name).write_text(text.replace(now, '"float32(2,), float32(1,)"'))
    result = sl.load_graph(tmp_path / "b", functions={"pair": pair})(sl.ones(2))
    assert [y.tolist() for y in result] == before


class NormedLinear(nn.Module):
    """Weights that are made of parameters, in every step."""

    def __init__(self):
        super().__init__()
        self.v, self.g = nn.Parameter(sl.randn(8, 16)), nn.Parameter(sl.randn(8, 1))

    def forward(self, x):
        return x @ (self.v * (self.g / self.v.norm(dim=1, keepdim=True))).t()


class Normed(nn.Graph):
    def __init__(self):
        super().__init__(name="normed")
        sl.manual_seed(0)
        self.net = nn.Sequential(NormedLinear(), nn.BatchNorm1d(8)).eval()

    def build(self, x):
        return self.net(x)


def test_a_frozen_graph_has_fewer_kernels_and_equal_results(tmp_path):  # SRV-18
    graph, x = Normed(), sl.randn(4, 16)
    with sl.no_grad():
        wanted = graph(x).numpy()
    sl.save(graph, tmp_path / "plain")
    sl.save(graph, tmp_path / "frozen", freeze=True)
    ops = {name: [k["op"] for k in json.loads((tmp_path / name / "plan.json").read_text())["kernels"]] for name in ("plain", "frozen")}
    assert len(ops["frozen"]) < len(ops["plain"]), ops
    frozen = sl.load_graph(tmp_path / "frozen")
    np.testing.assert_allclose(frozen(x).numpy(), wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(graph(x).numpy(), wanted)  # the graph itself goes on as it was
    assert sorted(i for i in frozen.inputs) == sorted(i for i in sl.load_graph(tmp_path / "plain").inputs)


def test_what_cannot_be_frozen_is_said(tmp_path):
    with pytest.raises(ValueError, match="freeze: got Tensor; only compiled graphs can be frozen"):
        sl.save(sl.ones(2), tmp_path / "x", freeze=True)


def test_bundle_with_a_python_function_needs_it_by_name(tmp_path, run_script):
    def shift(array):
        return array + 1

    class Shifted(nn.Graph):
        def build(self, x):
            return sl.host_function(shift, x, out=((2,), sl.float32))

    graph = Shifted()
    graph(sl.ones(2))
    sl.save(graph, tmp_path / "b")
    source = f"""
import sluice as sl
try:
    sl.load_graph({str(tmp_path / 'b')!r})
except sl.Error as error:
    assert "shift" in str(error), error
else:
    raise SystemExit("loaded without its function")
print(sl.load_graph({str(tmp_path / 'b')!r}, functions={{"shift": lambda a: a + 10}})(sl.ones(2)).tolist())
"""
    process = run_script(source)
    assert process.returncode == 0 and "[11.0, 11.0]" in process.stdout, process.stdout + process.stderr


def test_fresh_engines_peak_is_the_ledger(saved):  # C-01
    engine = sl._C.Engine()
    session = engine.load(str(saved[0]))
    for _ in range(3):
        outputs = session.run([saved[1]])
    assert np.array_equal(outputs[0].numpy(), saved[2]["logits"].numpy())
    mapped = session.counters()["mapped"]  # pages of the bundle's file
    assert 0 < mapped < session.ledger_bytes()
    assert engine.memory_stats("host")["peak_bytes"] == session.ledger_bytes() - mapped
    told = sl.load_graph(saved[0]).memory()  # JAX-02: before it runs
    parts = ("argument", "output", "temp", "variables", "constants", "packed")
    assert told["total"] == session.ledger_bytes() == sum(told[part] for part in parts)


@pytest.mark.parametrize("damage", ["truncated plan", "no weights", "short weights", "wrong version"])
def test_damaged_bundles_are_refused_by_file(saved, damage):
    directory = saved[0]
    plan, weights = directory / "plan.json", directory / "weights.safetensors"
    if damage == "truncated plan":
        plan.write_text(plan.read_text()[:500])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "short weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        plan.write_text(plan.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    with pytest.raises(sl.Error, match="weights.safetensors" if "weights" in damage else "plan.json"):
        sl.load_graph(directory)


def test_options_that_there_are_not_are_refused(saved):
    path, *_ = saved
    with pytest.raises(TypeError, match="load_graph: option 'Cores': there is none of this name; must be one of .*cores"):
        sl.load_graph(path, Cores=2)
    sl.load_graph(path, cores=1)


def test_saving_needs_a_compiled_graph(tmp_path):
    with pytest.raises(RuntimeError, match="not compiled"):
        sl.save(Classify(), tmp_path)
    with pytest.raises(IsADirectoryError):  # others are files
        sl.save(sl.ones(1), tmp_path)
