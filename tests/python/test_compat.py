"""Bundles that releases have written load, run and give the same bits (JAX-06). The guarantee: docs/plan-format.md."""

import importlib.util
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import sluice as sl
from test_plan_interpreter import assert_bitwise, interpreter

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "compat"
BUNDLES = sorted(path.parent for path in FOLDER.glob("*/*/meta.json"))
FAMILIES = [bundle for bundle in BUNDLES if (bundle / "family.json").exists()]
PLANS = [bundle for bundle in BUNDLES if bundle not in FAMILIES]
FILES = {"weights.safetensors", "meta.json", "inputs.npz", "outputs.npz"}
OF_PLAN = {"plan.json", "graph.txt"}


def plans_of(bundle):
    """The folders of its plans: itself, or those of a family's members."""
    if not (bundle / "family.json").exists():
        return [bundle]
    return [bundle / f"members/{m}" for m in range(len(json.loads((bundle / "family.json").read_text())["members"]))]


def stored(bundle):
    """Inputs by step, and outputs by step and name. If steps differ in size, each array is of one: "x/0"."""

    def by_step(file):
        with np.load(file) as arrays:
            if not any("/" in n for n in arrays):
                return [dict(zip(arrays, values)) for values in zip(*(arrays[n] for n in arrays))]
            steps = [{} for _ in range(1 + max(int(n.rpartition("/")[2]) for n in arrays))]
            for name in arrays:
                steps[int(name.rpartition("/")[2])][name.rpartition("/")[0]] = arrays[name]
            return steps

    return by_step(bundle / "inputs.npz"), by_step(bundle / "outputs.npz")


def releases():
    """The versions that the changelog tells of."""
    return re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", (FOLDER.parents[1] / "CHANGELOG.md").read_text(), re.M)


def schema_of(bundle):
    version, = {json.loads((folder / "plan.json").read_text())["schema_version"] for folder in plans_of(bundle)}
    return version


def test_every_release_and_schema_has_bundles():
    assert {path.parent.name for path in BUNDLES} == {"before-0.1.0", *releases()}
    assert {schema_of(bundle) for bundle in BUNDLES} == set(range(1, interpreter.SCHEMA_VERSION + 1))
    assert sl.__version__ in releases()


def test_every_file_of_the_corpus_is_one_that_the_tests_read():
    files = {path for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files == {FOLDER / "README.md", FOLDER / "write_bundles.py",
                     *(bundle / name for bundle in BUNDLES for name in FILES),
                     *(bundle / "family.json" for bundle in FAMILIES),
                     *(folder / name for bundle in BUNDLES for folder in plans_of(bundle) for name in OF_PLAN)}
    assert sum(path.stat().st_size for path in files) < 500_000


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
    session = sl._C.Engine().load(str(bundle))  # which gives kernels more workspace where oneDNN 3 wants more than 2.6
    rows = [[t.numpy() for t in session.run([sl.from_numpy(v) for v in step.values()])] for step in steps]
    assert_bitwise(outputs, rows)


@pytest.mark.parametrize("bundle", PLANS, ids=lambda b: f"{b.parent.name}-{b.name}")
def test_the_interpreter_agrees(bundle):  # JAX-06, C-21
    steps, outputs = stored(bundle)
    machine = interpreter.open_bundle(bundle)
    assert_bitwise(machine.run(steps, seed=4), [list(o.values()) for o in outputs])


def test_a_bundle_that_differs_is_found(tmp_path):  # the tests above can fail
    shutil.copytree(FOLDER / "before-0.1.0" / "infer", tmp_path / "b")
    weights = tmp_path / "b" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 0x40
    weights.write_bytes(data)
    with pytest.raises(AssertionError):
        test_a_bundle_that_was_kept_gives_the_same_bits(tmp_path / "b")


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path):  # JAX-06
    shutil.copytree(PLANS[0], tmp_path / "b")
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
        kept = FOLDER / releases()[0] / bundle.name  # of the latest release
        if kept.exists():
            assert_bitwise(stored(bundle)[1], [list(o.values()) for o in stored(kept)[1]])
    assert schema_of(tmp_path / "infer") == interpreter.SCHEMA_VERSION
    with pytest.raises(FileExistsError, match="never changed"):
        writer.write(tmp_path)
