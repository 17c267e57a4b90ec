"""Bundles kept from an earlier state of the source load, run and give the same bits (JAX-06). The guarantee: docs/plan-format.md."""

import importlib.util
import json
import pathlib
import shutil

import numpy as np
import pytest

import sluice as sl
from test_plan_interpreter import assert_bitwise, interpreter

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "compat"
BUNDLES = sorted(path.parent for path in FOLDER.glob("v*/*/plan.json"))
FILES = {"plan.json", "graph.txt", "weights.safetensors", "meta.json", "inputs.npz", "outputs.npz"}


def stored(bundle):
    """Inputs by step, and outputs by step and name."""
    with np.load(bundle / "inputs.npz") as inputs, np.load(bundle / "outputs.npz") as outputs:
        steps = [dict(zip(inputs, values)) for values in zip(*(inputs[n] for n in inputs))]
        return steps, [dict(zip(outputs, values)) for values in zip(*(outputs[n] for n in outputs))]


def test_every_schema_has_bundles():
    version = interpreter.SCHEMA_VERSION
    assert {path.parent.name for path in BUNDLES} == {f"v{v}" for v in range(1, version + 1)}
    assert all({file.name for file in bundle.iterdir()} == FILES for bundle in BUNDLES)
    assert sum(file.stat().st_size for bundle in BUNDLES for file in bundle.iterdir()) < 500_000


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: f"{b.parent.name}-{b.name}")
def test_a_bundle_that_was_kept_gives_the_same_bits(bundle):  # JAX-06
    steps, outputs = stored(bundle)
    graph = sl.load_graph(bundle)
    results = [graph(**{n: sl.from_numpy(v) for n, v in step.items()}) for step in steps]
    rows = [[t.numpy() for t in (r.values() if isinstance(r, dict) else r)] for r in results]
    assert_bitwise(outputs, rows)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: f"{b.parent.name}-{b.name}")
def test_its_plan_runs_as_it_was_written(bundle):  # JAX-06: not compiled anew, whatever this machine is
    steps, outputs = stored(bundle)
    session = sl._C.Engine().load(str(bundle))
    rows = [[t.numpy() for t in session.run([sl.from_numpy(v) for v in step.values()])] for step in steps]
    assert_bitwise(outputs, rows)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: f"{b.parent.name}-{b.name}")
def test_the_interpreter_agrees(bundle):  # JAX-06, C-21
    steps, outputs = stored(bundle)
    machine = interpreter.open_bundle(bundle)
    assert_bitwise(machine.run(steps, seed=4), [list(o.values()) for o in outputs])


def test_a_bundle_that_differs_is_found(tmp_path):  # the tests above can fail
    shutil.copytree(FOLDER / "v1" / "infer", tmp_path / "b")
    weights = tmp_path / "b" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 0x40
    weights.write_bytes(data)
    with pytest.raises(AssertionError):
        test_its_plan_runs_as_it_was_written(tmp_path / "b")


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path):  # JAX-06
    shutil.copytree(BUNDLES[0], tmp_path / "b")
    plan = tmp_path / "b" / "plan.json"
    plan.write_text(plan.read_text().replace('"schema_version": 1', '"schema_version": 99', 1))
    match = (r"plan.json: version 99: newer than this build, which reads version 1; upgrade Sluice, or compile graph.txt with "
             "this release")
    with pytest.raises(ValueError, match=match):
        sl.load_graph(tmp_path / "b")
    with pytest.raises(ValueError, match=match):
        sl._C.Engine().load(str(tmp_path / "b"))


def test_the_writer_still_writes(tmp_path):
    spec = importlib.util.spec_from_file_location("write_bundles", FOLDER / "write_bundles.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    writer.write(tmp_path)
    for bundle in sorted(tmp_path.iterdir()):
        test_its_plan_runs_as_it_was_written(bundle)
        version = json.loads((bundle / "plan.json").read_text())["schema_version"]
        assert_bitwise(stored(bundle)[1], [list(o.values()) for o in stored(FOLDER / f"v{version}" / bundle.name)[1]])
    with pytest.raises(FileExistsError, match="never changed"):
        writer.write(tmp_path)
