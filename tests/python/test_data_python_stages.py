"""sluice.data: functions of Python in processes that are slow, fail, die or do not end."""

import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from sluice import data, nn

pytestmark = pytest.mark.filterwarnings("ignore:.*worker processes:UserWarning")
N = 24
LIMIT = 60  # seconds in which a worker gives something, also on a busy machine


def samples(**options):
    return data.dataset(range(N), **options)


def plain(pipeline):
    return [batch.tolist() for batch in pipeline]


def busy(sample, rng):
    """Takes longer the earlier it is in its batch."""
    for _ in range(4000 * (3 - sample % 4)):
        pass
    return np.full(2, sample + int(rng.integers(100)), np.int64)


def test_batches_come_in_order_whatever_their_functions_take():
    want = plain(samples().shuffle().map(busy).repeat(2).batch(5))
    for workers in (1, 3):
        assert plain(samples().shuffle().map(busy, workers=workers, timeout=LIMIT).repeat(2).batch(5)) == want


def test_batches_are_stacked_where_they_are_handed_over():
    """A worker's batch lies in shared memory from the beginning: nothing copies it there."""
    from sluice.utils.data import _worker, collate

    memory, sample = _worker.Memory(), np.arange(1 << 17, dtype=np.uint16)
    with collate.outputs(memory.output):
        for _ in range(3):
            batch = [collate.stacked([sample + k for k in range(8)]), collate.stacked([sample[:2]] * 8)]
            packed, places = memory.pack(batch)
            assert places == [(0, 0, 8 * sample.nbytes)]  # the other array is small, and part of the message
            got = pickle.loads(packed, buffers=[memoryview(memory._segments[0].buffer()).cast("B")[:8 * sample.nbytes]])
            assert (got[0] == np.stack([sample + k for k in range(8)])).all() and (got[1] == sample[:2]).all()
            del batch, got
            memory.give_back([0])
    assert len(memory.new) == 1


def failing(sample):
    if sample % 7 == 3:
        raise KeyError(f"no {sample}")
    return sample


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_whose_function_fails_follow_the_policy(workers):
    def pipeline(policy, most=None):
        return samples().map(failing, workers=workers).batch(6).on_error(policy, most)

    batches, told, got = iter(pipeline("raise")), 0, []
    for _ in range(4):
        try:
            got.append(next(batches).tolist())
        except RuntimeError as error:
            told += 1
            assert re.search(r"KeyError: .*no \d+", str(error)) and (workers == 0 or re.search(r"worker process [01], at sample index", str(error)))
    assert told == 3 and got == [[18, 19, 20, 21, 22, 23]]
    skipped, replaced = pipeline("skip"), pipeline("replace")
    good = [i for i in range(N) if i % 7 != 3]
    assert plain(skipped) == [[i for i in range(b, b + 6) if i in good] for b in range(0, N, 6)]
    assert plain(replaced) == [[0, 1, 2, 4, 4, 5], [6, 7, 8, 9, 11, 11], [12, 13, 14, 15, 16, 12], [18, 19, 20, 21, 22, 23]]
    for p in (skipped, replaced):
        assert p.errors.counts == {"KeyError": 3} and p.errors.names == [f"sample {i}: KeyError" for i in (3, 10, 17)]
    with pytest.raises(ValueError, match=r"2 bad samples, the last sample 10: KeyError; on_error\(\) allows 1"):
        plain(pipeline("skip", most=1))
    with pytest.raises(RuntimeError, match="all 6 samples of a batch are bad, the first by ZeroDivisionError; there is none to replace them"):
        plain(samples().map(lambda s: s // 0, workers=workers, out=((), np.int64)).batch(6).on_error("replace"))
    assert plain(samples().map(lambda s: s // 0, workers=workers, out=((), np.int64)).batch(6).on_error("skip")) == []


def test_errors_count_with_the_batch_that_is_handed_out():
    first = samples().map(failing, workers=2).batch(6).on_error("skip").prefetch(3)
    batches = iter(first)
    next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    assert state["errors"] == {"KeyError": 1} and len(json.dumps(state)) < 1024
    again = samples().map(failing).batch(6).on_error("skip")
    again.load_state_dict(state)
    assert plain(again) == [[6, 7, 8, 9, 11], [12, 13, 14, 15, 16], [18, 19, 20, 21, 22, 23]]
    assert again.errors.counts == {"KeyError": 3}


def test_samples_that_fail_are_replaced_inside_of_a_plan():
    class Sums(nn.Graph):
        def build(self):
            return pipeline().sum()

    pipeline = samples().map(failing, workers=1).repeat().batch(6).on_error("replace")
    graph = Sums()
    assert [graph().item() for _ in range(4)] == [16, 52, 82, 123]
    graph.close()
    assert pipeline.errors.counts["KeyError"] >= 3


class Dying:
    """Ends its process at some samples: each time, or the first time alone."""

    def __init__(self, where, how, folder=None):
        self.where, self.how, self.folder = where, how, folder

    def __call__(self, sample):
        if sample == self.where:
            mark = self.folder and os.path.join(self.folder, str(sample))
            if not (mark and os.path.exists(mark)):
                if mark:
                    open(mark, "w").close()
                self.end()
        return sample

    def end(self):
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exits":
            os._exit(3)
        threading.Event().wait(10 if self.how == "slow" else None)


HOW = {"killed": "killed by signal SIGKILL", "exits": "exit code 3", "endless": "gave nothing for 3 seconds", "slow": "gave nothing for 3 seconds"}


def dying(how, policy, folder=None):
    timeout = 3 if how in ("endless", "slow") else LIMIT
    return samples().map(Dying(14, how, folder), workers=2, out=((), np.int64), timeout=timeout).batch(6).on_error(policy)


BATCHES = [list(range(b, b + 6)) for b in range(0, N, 6)]


@pytest.mark.parametrize("how", ["killed", "exits", "endless"])
def test_a_worker_that_is_lost_is_started_again_and_then_its_sample_is_bad(how):
    with pytest.warns(UserWarning, match=r"data.map: DataLoader .*worker \d.* in batch .*; workers are started again, and go on there"):
        pipeline = dying(how, "skip")
        assert plain(pipeline) == [[i for i in batch if i != 14] for batch in BATCHES]
    assert pipeline.errors.total == 1 and HOW[how] in pipeline.errors.names[0] and pipeline.errors.names[0].startswith("sample 14: cost two")


def test_a_worker_may_be_lost_once(tmp_path):
    with pytest.warns(UserWarning, match="started again"):
        assert plain(dying("killed", "raise", tmp_path)) == BATCHES


@pytest.mark.parametrize("how", list(HOW))
def test_the_error_of_the_second_time_names_the_sample(how):
    with pytest.warns(UserWarning, match="started again"):
        steps = iter(dying(how, "raise"))
        got = [next(steps).tolist() for _ in range(2)]
        with pytest.raises(RuntimeError, match=rf"(?s)worker process \d, at sample index 14 .*cost two workers, which .*{HOW[how]}"):
            next(steps)
        got.append(next(steps).tolist())
    assert got == BATCHES[:2] + BATCHES[3:]


def test_samples_say_what_they_are_like():
    assert plain(samples().map(lambda s: np.float32(s), out=((), np.float32)).batch(24)) == [list(range(N))]
    with pytest.raises(RuntimeError, match=r"data.map: sample 0 is int64\(\); must be float32\(2,\) as the others are"):
        plain(samples().map(lambda s: s, out=((2,), np.float32)).batch(4))
    calls = []
    pipeline = samples().map(lambda s: calls.append(s) or s, out=((), np.int64)).batch(4)
    pipeline.memory()
    assert calls == []
    first_fails = samples().map(lambda s: s // min(s, 1), workers=1).batch(6).on_error("skip")
    assert plain(first_fails)[0] == [1, 2, 3, 4, 5]


def test_a_pipeline_that_nobody_has_any_more_ends_its_workers():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    pipeline, before = samples().map(busy, workers=2, timeout=LIMIT).batch(4), descriptors()
    batches = iter(pipeline)
    next(batches)
    assert descriptors() > before
    gone = weakref.ref(pipeline)
    del pipeline, batches
    gc.collect()
    assert gone() is None and descriptors() <= before + 2  # of the engine's own


LEFT = """
import threading
import numpy as np
from sluice import data

asked = threading.Event()

def made(sample):
    if sample >= 8:
        asked.set()
        threading.Event().wait(0.2)  # all of a batch takes longer than a session has at the end of the program
    return np.float32(sample)

for x in data.dataset(range(10**6)).map(made, out=((), np.float32)).batch(8):
    asked.wait()
    break
"""


def test_a_program_that_leaves_a_pipeline_of_slow_samples_ends_without_a_word():
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
