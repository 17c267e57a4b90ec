"""`sluice-run --audit` writes what a run was; `--verify` runs it again and tells all that is not as it was (docs/adr/0060)."""

import hashlib
import hmac
import json
import shutil
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

STEPS = 7


class Training(nn.Graph):
    """Each step's results follow from those before it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 3))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

    def build(self, x):
        y = self.net(x)
        loss = (y * y).sum()
        loss.backward()
        return loss, y


def run(*words, status=0, cwd=None):
    done = subprocess.run([find_tool("sluice-run"), *map(str, words)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status == 1 else done.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a bundle, its input, a record, and the order of messages."""
    folder = tmp_path_factory.mktemp("audit")
    sl.manual_seed(0)
    training = Training()
    training(sl.ones(4, 8))
    sl.save(training, folder / "net")
    np.save(folder / "x.npy", np.random.default_rng(0).random((4, 8), np.float32))
    run("net", "--input=@x.npy", f"--steps={STEPS}", "--audit=run.json", "--quiet", cwd=folder)
    return folder


@pytest.fixture
def folder(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "copy")


def sealed(record, key=None):
    """The text of a record, with the seal that it must have."""
    record = {name: value for name, value in record.items() if name != "seal"}
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    seal = hashlib.sha256(text).hexdigest() if key is None else hmac.new(key, text, hashlib.sha256).hexdigest()
    return json.dumps({**record, "seal": seal})


def rewritten(folder, change):
    record = json.loads((folder / "run.json").read_text())
    change(record)
    (folder / "run.json").write_text(sealed(record))


def lines(folder, *words):
    """What differs, by the beginnings of its lines, and the last line."""
    *told, last = run("--verify=run.json", *words, status=2, cwd=folder).splitlines()
    return told, last


def test_a_run_is_confirmed_bit_for_bit(folder):
    record = json.loads((folder / "run.json").read_text())
    assert len(record["digests"]) == STEPS == len(set(record["digests"]))
    assert record["order"] == "run.slm" and (folder / "run.slm").stat().st_size > STEPS
    assert {"plan.json", "weights.safetensors"} <= set(record["facts"]["files"])
    weights = hashlib.sha256((folder / "net/weights.safetensors").read_bytes()).hexdigest()
    assert record["facts"]["files"]["weights.safetensors"] == weights
    assert record["facts"]["build"]["version"] == sl.__version__ and record["facts"]["machine"]["processor"]
    told = run("--verify=run.json", cwd=folder)
    assert told == f"run.json: {STEPS} steps of 'net', in the same order of messages: the results are the same, bit for bit\n"
    (folder / "net").rename(folder / "elsewhere")
    assert "of 'elsewhere', in the same order" in run("elsewhere", "--verify=run.json", cwd=folder)


def test_a_changed_weight_is_found_by_name_and_step(folder):
    path = folder / "net/weights.safetensors"
    data = bytearray(path.read_bytes())
    head = 8 + int.from_bytes(data[:8], "little")
    (weight,) = [tensor for name, tensor in json.loads(data[8:head]).items() if tensor.get("shape") == [16, 8]]
    data[head + weight["data_offsets"][0] + 2] ^= 0x40  # of a float32
    path.write_bytes(data)
    told, last = lines(folder)
    assert any(line.startswith("files: weights.safetensors: '") and line.endswith("' was recorded") for line in told)
    assert "results: they are others from step 1 on" in told
    assert [line for line in told if line.startswith("results of the last step: ")]
    assert last == f"run.json: {STEPS} steps of 'net', not confirmed: the results are others"


def test_a_changed_input_is_found_by_name(folder):
    x = np.load(folder / "x.npy")
    x[0, 0] += 1
    np.save(folder / "x.npy", x)
    told, last = lines(folder)
    assert told[0].startswith("inputs: ") and "results: they are others from step 1 on" in told
    assert last.endswith("not confirmed: the results are others")


def test_another_build_and_another_machine_are_told_though_results_are_the_same(folder):
    def change(record):
        record["facts"]["build"]["compiler"] = "g++ 3.0"
        record["facts"]["machine"]["processor"] = "VAX"
        record["facts"]["machine"]["bells"] = "two"

    here = json.loads((folder / "run.json").read_text())["facts"]
    rewritten(folder, change)
    told, last = lines(folder)
    assert told == [f"build: compiler: '{here['build']['compiler']}'; 'g++ 3.0' was recorded",
                    "machine: bells: nothing; 'two' was recorded",
                    f"machine: processor: '{here['machine']['processor']}'; 'VAX' was recorded",
                    "order: it was not replayed; only the same build can do so, with the same bundle"]
    assert last.endswith("under other conditions: the results are the same, bit for bit")


def test_the_step_from_which_results_differ_is_named(folder):
    def change(record):
        record["digests"][4:] = ["0" * 64] * (STEPS - 4)

    rewritten(folder, change)
    assert lines(folder)[0] == ["results: they are others from step 5 on"]


def test_of_long_runs_a_thousand_digests_are_kept(folder):
    run("net", "--fill=random", "--seed=3", "--shuffle=9", "--steps=2001", "--audit=long.json", "--quiet", cwd=folder)
    record = json.loads((folder / "long.json").read_text())
    assert record["every"] == 3 and len(record["digests"]) == 667
    assert record["shuffle"] == 9 and record["input"]["seed"] == 3
    assert "bit for bit" in run("--verify=long.json", cwd=folder)
    record["digests"][100:] = ["0" * 64] * 567
    (folder / "long.json").write_text(sealed(record))
    assert "results: they are others from a step on, of 301 to 303" in run("--verify=long.json", status=2, cwd=folder)


@pytest.mark.parametrize(
    "broken, error",
    [
        (lambda good: good[: len(good) // 2], "byte "),
        (lambda good: b"", "byte 0: "),
        (lambda good: good + b"{}", "it must be a record that sluice-run --audit wrote"),
        (lambda good: b"\x00" + good, "byte 0: "),
        (lambda good: b"[" * 100_000, "byte "),
        (lambda good: b"{}", "this is no record of a run; it must be one that sluice-run --audit wrote"),
        (lambda good: b"[1]", "this is no record of a run"),
        (lambda good: good.replace(b'"sluice_run_record": 1', b'"sluice_run_record": 2'), "version 2; this build reads version 1"),
        (lambda good: good.replace(b'"steps": 7', b'"steps": 8'), "its seal is another; it was changed since it was written"),
        (lambda good: good.replace(b"weights", b"heights"), "its seal is another"),
    ],
)
def test_a_record_that_is_cut_foreign_or_changed_is_refused(folder, broken, error):
    good = (folder / "run.json").read_bytes()
    assert broken(good) != good
    (folder / "run.json").write_bytes(broken(good))
    told = run("--verify=run.json", status=1, cwd=folder)
    assert told.startswith("sluice-run: run.json: ") and error in told and told.count("\n") == 1, told


@pytest.mark.parametrize(
    "field, value, error",
    [
        ("steps", -1, "'steps' is not a number that is not negative"),
        ("steps", "many", "'steps' is not a number"),
        ("steps", 10**15, "'digests' is not a digest for each of its steps"),
        ("digests", [], "'digests' is not a digest for each of its steps"),
        ("digests", [1], "'digests' is not a text"),
        ("order", "../../etc/passwd", "'order' is not the name of a file beside it"),
        ("input", 1, "'input' is not an object"),
        ("facts", {"files": []}, "'facts' is not an object of objects"),
        ("bundle", None, "'bundle' is not a text"),
    ],
)
def test_a_wrong_field_is_named_whoever_has_sealed_it(folder, field, value, error):
    rewritten(folder, lambda record: record.update({field: value}))
    assert error in run("--verify=run.json", status=1, cwd=folder)


def test_the_order_of_messages_must_be_that_of_the_run(folder):
    order = (folder / "run.slm").read_bytes()
    (folder / "run.slm").write_bytes(order[:-1])
    assert "run.slm: the order of messages is not the one of run.json" in run("--verify=run.json", status=1, cwd=folder)
    (folder / "run.slm").unlink()
    assert "run.slm: cannot be read" in run("--verify=run.json", status=1, cwd=folder)


@pytest.mark.parametrize("key", [b"our secret", b"k" * 100])
def test_a_key_says_who_wrote_a_record(folder, key):
    (folder / "key").write_bytes(key)
    (folder / "other").write_bytes(b"not ours")
    (folder / "empty").write_bytes(b"")
    run("net", "--fill=random", "--audit=run.json", "--key=key", "--quiet", cwd=folder)
    record = json.loads((folder / "run.json").read_text())
    assert record["seal"] == json.loads(sealed(record, key))["seal"]
    assert "a step of 'net'" in run("--verify=run.json", "--key=key", cwd=folder)
    for words, error in (((), "it is signed; give --key FILE"), (("--key=other",), "it was changed, or signed by another key"),
                         (("--key=empty",), "the file is empty"), (("--key=none",), "none: cannot be read")):
        assert error in run("--verify=run.json", *words, status=1, cwd=folder)
    (folder / "run.json").write_text(sealed({**record, "signed": False}))
    assert "it is not signed" in run("--verify=run.json", "--key=key", status=1, cwd=folder)


def test_what_cannot_be_written_is_an_error_and_what_contradicts_it_too(folder):
    assert "must be two files of one folder" in run("net", "--fill=random", "--audit=a.json", "--record=net/a.slm", status=1, cwd=folder)
    run("net", "--fill=random", "--audit=none/a.json", "--record=none/a.slm", "--quiet", status=1, cwd=folder)
    assert not (folder / "none").exists()
    done = subprocess.run([find_tool("sluice-run"), "--verify=run.json", "--steps=3"], capture_output=True, text=True, cwd=folder)
    assert done.returncode not in (0, 2) and "excludes" in done.stderr
    assert "BUNDLE is not given" in run("--fill=random", status=1, cwd=folder)
