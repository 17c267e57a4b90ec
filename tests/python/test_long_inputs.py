"""An input that goes on for long: its memory stays what was said before, and a process that is killed loses and repeats nothing."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest

from sluice import data

Image = pytest.importorskip("PIL.Image")
SPARE = 24 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A record file of two photographs, with an image of 20 megapixels among each thousand, and a file that says it is a gigantic one."""
    root = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(1)

    def jpeg(height, width):
        file = io.BytesIO()
        Image.fromarray(np.kron(rng.integers(0, 255, (height // 8, width // 8, 3), np.uint8), np.ones((8, 8, 1), np.uint8))).save(file, "JPEG")
        return file.getvalue()

    small, large = [jpeg(120, 160), jpeg(96, 200)], jpeg(4000, 5000)
    bomb = bytearray(small[0])
    at = bomb.index(b"\xff\xc0") + 5
    bomb[at:at + 4] = b"\xff\xdc\xff\xdc"
    with data.RecordWriter(root / "train.rec") as records:
        for i in range(1000):
            records.write(large if i == 500 else bytes(bomb) if i == 700 else small[i % 2], label=i)
    return root


@pytest.mark.soak
def test_memory_stays_what_was_said(photographs, repetitions, count):
    samples = repetitions(4_000, 100_000)
    pipeline = data.records(photographs / "train.rec").shuffle(seed=1).repeat().batch(50).decode(32).on_error("replace")
    said, before, seen = pipeline.memory()["total"], resident(), []
    for _, batch in zip(range(samples // 50), pipeline):
        seen.append(resident())
        assert batch[0].shape == (50, 3, 32, 32)
    assert max(seen) - before <= said + SPARE
    half = seen[len(seen) // 2:]
    assert max(half) <= max(seen[:len(seen) // 2]) + (2 << 20)
    assert pipeline.errors.counts == {"broken or too large": samples // 1000}
    count(f"memory of an input, {(max(seen) - before) >> 20} of {said >> 20} MiB", samples, "images")


GOES_ON = """
import json, os, pathlib, signal, sys
from sluice import data
root, samples, killed_at = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pipeline = data.records(root / "train.rec").shuffle(seed=1).repeat(samples // 1000).batch(50).decode(32).on_error("replace")
state, done = root / "state", open(root / "done", "r+b")
if state.exists():
    place = json.loads(state.read_text())
    pipeline.load_state_dict(place["pipeline"])
    done.truncate(place["done"])
    done.seek(place["done"])
for step, (images, labels) in enumerate(pipeline):
    done.write(labels.numpy().tobytes())
    done.flush()
    if step == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    (root / "next").write_text(json.dumps({"pipeline": pipeline.state_dict(), "done": done.tell()}))
    os.replace(root / "next", state)
"""


@pytest.mark.soak
def test_a_process_that_is_killed_goes_on_and_sees_each_sample_once(photographs, repetitions):
    samples, root = repetitions(2_000, 50_000), photographs
    (root / "done").write_bytes(b"")
    for killed_at in (7, 0, samples // 200):
        killed = subprocess.run([sys.executable, "-c", GOES_ON, str(root), str(samples), str(killed_at)])
        assert killed.returncode == -9
    subprocess.run([sys.executable, "-c", GOES_ON, str(root), str(samples), "-1"], check=True)
    labels = np.frombuffer((root / "done").read_bytes(), np.int64)
    pipeline = data.records(root / "train.rec").shuffle(seed=1).repeat(samples // 1000).batch(50).decode(32).on_error("replace")
    assert labels.tolist() == np.concatenate([batch.numpy() for _, batch in pipeline]).tolist() and len(labels) == samples
