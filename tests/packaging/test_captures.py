"""Captures: what a graph, or sluice-run, has done as a folder that runs, compares and is measured without the program."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice.utils.capture import capture

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
STEPS = 5


def call(program, *arguments, status=0):
    done = subprocess.run([BUILD / "tools" / program, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status != 1 else done.stderr


class Training(nn.Graph):
    """Each step's results follow from those before it."""

    def __init__(self):
        super().__init__(name="training")
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 3))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

    def build(self, x, scale):
        y = self.net(x) * scale
        loss = (y * y).sum()
        loss.backward()
        return loss, y.argmax(-1)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A capture of a training that had begun before, and the losses of its steps."""
    folder = tmp_path_factory.mktemp("captures")
    sl.manual_seed(0)
    training = Training()
    batches = [sl.randn(4, 8) for _ in range(STEPS + 2)]
    for x in batches[:2]:
        training(x, sl.tensor(1.0))
    with capture(folder / "work"):
        losses = [training(x, sl.tensor(float(i)))[0].item() for i, x in enumerate(batches[2:])]
    training(batches[0], sl.tensor(1.0))  # no longer of it
    return folder, losses


def test_steps_run_again_without_the_program(work):
    folder, losses = work
    assert len(set(losses)) == STEPS, "steps that differ"
    told = call("sluice-run", folder / "work")
    assert f"{STEPS} steps of Sluice {sl.__version__}: the results are the same, bit for bit" in told
    assert call("sluice-run", folder / "work", "--quiet", "--shuffle=3", "--cores=1") == ""
    assert call("sluice-run", folder / "work", "--hash") == call("sluice-run", folder / "work", "--hash")
    # The folder has plain files alone: other programs read them, too.
    x = sl.utils.safetensors.load_file(folder / "work/steps/0.safetensors")
    assert set(x) == {"0", "1"} and tuple(x["0"].shape) == (4, 8)
    again = sl.load_graph(folder / "work/bundle")
    assert again(x["0"], x["1"])[0].item() == losses[0]


def test_other_results_are_told(work, tmp_path):
    folder, _ = work
    copy = tmp_path / "work"
    subprocess.run(["cp", "-r", folder / "work", copy], check=True)
    inputs = sl.utils.safetensors.load_file(copy / "steps/3.safetensors")
    inputs["0"] = inputs["0"] + 1
    sl.utils.safetensors.save_file(inputs, copy / "steps/3.safetensors")
    assert "the results of 2 are others, first of step 3" in call("sluice-run", copy, status=2)


def test_it_is_measured_with_its_inputs(work):
    folder, _ = work
    quick = ["--benchmark_min_time=0.001", "--benchmark_format=json"]
    rows = json.loads(call("sluice-bench", folder / "work", *quick))["benchmarks"]
    assert [row["name"] for row in rows] == ["work/load", "work/run", "work/in_flight:2"]
    assert all(row["real_time"] > 0 for row in rows)


def test_sluice_run_captures_what_it_runs(work, tmp_path):
    folder, _ = work
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((4, 8), np.float32))
    bundle = folder / "work/bundle"
    digest = call("sluice-run", bundle, f"--input=@{tmp_path / 'x.npy'}", "--input=2", "--steps=3", "--hash", f"--capture={tmp_path / 'three'}")
    assert "3 steps" in call("sluice-run", tmp_path / "three")
    assert call("sluice-run", tmp_path / "three", "--hash") == digest
    assert "it is there already" in call("sluice-run", bundle, "--fill=zeros", f"--capture={tmp_path / 'three'}", status=1)


@pytest.mark.parametrize("spoil, told", [
    (lambda path: (path / "capture.json").write_text("{"), "it is no JSON object; it must be as sluice-run --capture"),
    (lambda path: (path / "capture.json").write_text('{"sluice_capture": 2}'), "of form 2; this program reads form 1"),
    (lambda path: (path / "capture.json").write_text('{"sluice_capture": 1, "version": "0", "digests": []}'), "it has no step"),
    (lambda path: (path / "steps/1.safetensors").unlink(), "steps/1.safetensors"),
    (lambda path: (path / "steps/1.safetensors").write_bytes(b"short"), "steps/1.safetensors"),
    (lambda path: sl.utils.safetensors.save_file({"0": sl.ones(4, 8)}, path / "steps/1.safetensors"), "input 1, 'scale: float32()', is not there"),
], ids=["no JSON", "a newer form", "no step", "no file", "a cut file", "an input that is missing"])
def test_a_broken_capture_is_an_error(work, tmp_path, spoil, told):
    folder, _ = work
    subprocess.run(["cp", "-r", folder / "work", tmp_path / "copy"], check=True)
    spoil(tmp_path / "copy")
    assert told in call("sluice-run", tmp_path / "copy", status=1)


def test_a_capture_has_its_inputs(work):
    folder, _ = work
    assert "this is a capture, which has its inputs and steps" in call("sluice-run", folder / "work", "--fill=zeros", status=1)


def test_what_cannot_be_captured_is_refused(work, tmp_path):
    folder, _ = work
    with pytest.raises(ValueError, match="it is there already"):
        capture(folder / "work").__enter__()
    with pytest.raises(RuntimeError, match="no graph has run"):
        with capture(tmp_path / "nothing"):
            pass

    class WithPython(nn.Graph):
        def build(self, x):
            return sl.host_function(np.tanh, x, out=[((4,), sl.float32)])

    with pytest.raises(NotImplementedError, match="calls functions of Python"):
        with capture(tmp_path / "python"):
            WithPython()(sl.ones(4))

    class Twice(nn.Graph):
        def build(self, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="a capture is of one plan"):
        with capture(tmp_path / "two"):
            Twice()(sl.ones(4))
            Twice()(sl.ones(4))
    with capture(tmp_path / "one"), pytest.raises(RuntimeError, match="one runs already"):
        Twice()(sl.ones(4))
        capture(tmp_path / "other").__enter__()
    assert "the results are the same" in call("sluice-run", tmp_path / "one")
