"""sluice.data: the same bytes for any cores, workers, steps in work and orders of messages; places that survive a kill."""

import hashlib
import json
import subprocess
import sys
import time

import numpy as np
import pytest

import sluice as sl
from sluice import data
from sluice._base.tools import find_tool
from sluice.data import augment

pytestmark = pytest.mark.filterwarnings("ignore:.*worker processes:UserWarning")
RNG = np.random.default_rng(17)
EPOCHS, N, SIZE = 3, 37, 8


def shifted(sample, rng):
    image, label = sample
    return image + rng.integers(0, 9, image.shape, np.uint8), label


def pipeline(workers=0):
    """Samples that a function of Python changes, and what kernels do to batches: all of it at random."""
    images = np.random.default_rng(0).integers(0, 240, (N, 3, 12, 12), np.uint8)
    return (data.arrays(images, np.arange(N)).shuffle(seed=5).map(shifted, workers=workers, out=[((3, 12, 12), np.uint8), ((), np.int64)])
            .repeat(EPOCHS).batch(SIZE, drop_last=True).map(augment.random_crop(8, padding=1)).map(augment.flip()).normalize([0.5] * 3, [0.25] * 3))


def digest(batches):
    whole = hashlib.sha256()
    for batch in batches:
        for value in batch:
            whole.update(value.numpy().tobytes())
    return whole.hexdigest()


def test_epochs_have_the_same_bytes_for_any_cores_workers_and_steps_in_work(count):
    threads, found, runs = sl.get_num_threads(), set(), 0
    try:
        for workers in (0, 1, 4):
            made = pipeline(workers)
            for cores in (1, 2):
                sl.set_num_threads(cores)
                for depth in (1, 2, 3, 4):
                    found.add(digest(made.prefetch(depth)))
                    runs += 1
    finally:
        sl.set_num_threads(threads)
    assert len(found) == 1
    count(f"{EPOCHS} epochs of input by cores, workers and steps in work", runs, "runs, one digest")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Input whose order and stages are a plan, on one core and on two."""
    folder = tmp_path_factory.mktemp("bundles")
    images = np.random.default_rng(0).integers(0, 240, (N, 3, 12, 12), np.uint8)
    threads = sl.get_num_threads()
    try:
        for cores in (1, 2):
            sl.set_num_threads(cores)
            sl.save(data.arrays(images, np.arange(N)).shuffle(seed=5).repeat().batch(SIZE).map(augment.random_crop(8, padding=1))
                    .map(augment.flip()).normalize([0.5] * 3, [0.25] * 3), folder / str(cores))
    finally:
        sl.set_num_threads(threads)
    return folder


@pytest.mark.soak
def test_epochs_have_the_same_bytes_for_any_order_of_messages(bundles, repetitions, count):
    steps, found, seeds = -(-EPOCHS * N // SIZE), set(), repetitions(6, 100)
    for cores in ("1", "2"):
        for seed in [None, *range(seeds)]:
            order = [] if seed is None else [f"--shuffle={seed}"]
            done = subprocess.run([find_tool("sluice-run"), bundles / cores, f"--steps={steps}", "--hash", *order], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            found.add(done.stdout)
    assert len(found) == 1, found
    count(f"{EPOCHS} epochs of input in orders of messages that a seed draws", 2 * seeds, "runs, one digest")


# Places.

KILLED = """
import json, os, signal, sys
import numpy as np
from sluice import data

done, state = sys.argv[1:3]


def read(told):
    pipeline = data.arrays(np.arange(211, dtype=np.float32)).shuffle().repeat(2).batch(3)
    if os.path.exists(state):
        with open(state) as file:
            saved = json.load(file)
        pipeline.load_state_dict(saved["data"])
        os.truncate(done, saved["bytes"])
    with open(done, "a") as out:
        for batch in pipeline:
            out.write("".join(f"{int(v)}\\n" for v in batch.tolist()))
            out.flush()
            with open(state + ".new", "w") as file:
                json.dump({"data": pipeline.state_dict(), "bytes": out.tell()}, file)
            os.replace(state + ".new", state)
            os.write(told, b".")


steps = 0
for stop in [*map(int, sys.argv[3:]), None]:  # nothing of the engine is begun here, so each child begins with nothing
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        read(told)
        os._exit(0)
    os.close(told)
    while (stop is None or steps < stop) and os.read(heard, 1):
        steps += 1
    if stop is not None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(heard)
    assert os.waitstatus_to_exitcode(status) == (0 if stop is None else -signal.SIGKILL), status
"""


@pytest.mark.soak
def test_nothing_is_lost_or_seen_twice_when_the_process_is_killed(tmp_path, repetitions, count):
    done, state = tmp_path / "done", tmp_path / "state"
    places = sorted(RNG.integers(1, 120, repetitions(20, 100)).tolist())
    child = subprocess.run([sys.executable, "-c", KILLED, str(done), str(state), *map(str, places)], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    got = [int(line) for line in done.read_text().split()]
    assert len(got) == 422 and sorted(got[:211]) == sorted(got[211:]) == list(range(211))
    count("killing a process that reads", len(places), "times")


def test_a_place_behind_a_million_samples_is_reached_at_once():
    """Within 50 ms of a core, the first batch from there included; once the plan is there."""
    n, at = 2_000_000, 1_000_000
    values = np.arange(n)
    want = next(iter(data.arrays(values).shuffle().skip(at).batch(16))).tolist()
    state = data.arrays(values).shuffle().batch(16).state_dict(steps=at // 16)
    assert state["position"] == at and len(json.dumps(state)) < 1024
    took = []
    for _ in range(3):
        again = data.arrays(values).shuffle().batch(16)
        again.memory()  # which makes the plan
        begin = time.process_time()
        again.load_state_dict(state)
        got = next(iter(again)).tolist()
        took.append(time.process_time() - begin)
        assert got == want
    assert min(took) <= 0.05, took
