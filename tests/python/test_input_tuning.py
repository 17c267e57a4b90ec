"""Pipelines that choose workers, cores and batches in work by themselves, within a budget of memory."""

import gc
import random
import re
import threading

import numpy as np
import pytest

import sluice as sl
from sluice import data
from sluice.data._tuning import Chooser, Costs, Setting, forecast

pytestmark = pytest.mark.filterwarnings("ignore:.*worker processes:UserWarning")
MIB = 1 << 20
TICK = 0.05e-3  # seconds


@pytest.fixture(autouse=True)
def workers_end():
    """Those of pipelines that a test has left, before other tests count what a process has open."""
    yield
    gc.collect()


class Ticks:
    """A pipeline in virtual time, by another way than the chooser's: time goes on in ticks, and whoever has work shares the cores."""

    def __init__(self, costs, setting, cores):
        self.costs, self.setting, self.cores = costs, setting, cores

    def rate(self, batches=60):
        """Seconds of a batch."""
        c, s, draw = self.costs, self.setting, random.Random(1)
        share = c.made_busy / max(np.mean(c.made), 1e-12)  # of a function's time, in which it computes
        users = c.user_busy / max(np.mean(c.user), 1e-12)
        workers = [[] for _ in range(max(s.workers, 1))]  # (batch, seconds left)
        sent = ready = read = done = out = 0
        host = kernels = user = 0.0
        now, marks = 0.0, []
        while out < batches:
            while s.workers and sent < read + 2 * s.workers:
                workers[sent % s.workers].append([sent, draw.choice(c.made)])
                sent += 1
            if not host and read < out + s.depth + 1 and read - done < 2 and (not s.workers or read < ready):
                host = c.read + (0 if s.workers else draw.choice(c.made)) or 1e-12
            if not kernels and done < read:
                kernels = c.kernels / s.cores or 1e-12
            if not user and out < done:
                user = draw.choice(c.user) or 1e-12
                out += 1
                marks.append(now)
            busy = [share for w in workers if w] if s.workers else []
            busy += [share if not s.workers and c.made_busy else 1.0] if host else []
            busy += [s.cores] if kernels else []
            busy += [users] if user else []
            step = TICK * min(1.0, self.cores / max(sum(busy), 1e-9))
            now += TICK
            for w in workers:
                if w:
                    w[0][1] -= step
                    if w[0][1] <= 0:
                        w.pop(0)
            waiting = [w[0][0] for w in workers if w]
            ready = min(waiting, default=sent) if s.workers else sent
            if host:
                host = max(host - step, 0.0)
                read += not host
            if kernels:
                kernels = max(kernels - step, 0.0)
                done += not kernels
            if user:
                user = max(user - step, 0.0)
        half = batches // 2
        return (marks[-1] - marks[half]) / (batches - 1 - half)


def drawn(seed):
    """A pipeline with a slow function, and a machine."""
    rng = random.Random(seed)
    made = rng.uniform(6e-3, 20e-3)
    costs = Costs(made=tuple(made * rng.uniform(0.8, 1.2) for _ in range(16)), made_busy=made * rng.choice([0.02, 0.5, 1.0]),
                  read=rng.uniform(0, 1e-3), kernels=rng.choice([0, 2e-3, 6e-3]), user=(rng.choice([0.2e-3, 3e-3]),),
                  user_busy=rng.choice([0, 0.2e-3]), source_bytes=MIB, result_bytes=MIB, worker_bytes=20 * MIB)
    return costs, rng.choice([2, 4, 8]), rng.choice([60, 120, 400]) * MIB


@pytest.mark.soak
def test_a_slow_function_is_as_fast_as_set_by_hand_within_the_budget(repetitions, count):  # TFD-02
    """Against all of some dozen settings that fit the budget, in a virtual time that the chooser does not know."""
    worst, rounds = 1.0, repetitions(3, 60)
    for seed in range(rounds):
        costs, cores, memory = drawn(seed)
        chooser = Chooser(lambda c: 4 * MIB * c, cores, memory, functions=True)
        choice = chooser.choose(costs)
        assert choice.bytes == chooser.bytes(costs, choice.setting) <= memory
        by_hand = [Setting(w, c, d) for w in (0, 1, 2, 4, 8) for c in {1, cores} for d in (2, 4)]
        best = min(Ticks(costs, s, cores).rate() for s in by_hand if chooser.bytes(costs, s) <= memory)
        chosen = Ticks(costs, choice.setting, cores).rate()
        assert chosen <= best / 0.9, (seed, str(choice), chosen, best)
        assert choice.seconds == pytest.approx(chosen, rel=0.25), (seed, str(choice), chosen)
        worst = max(worst, chosen / best)
    count(f"autotuned input, at worst {1 / worst:.2f} of the best by hand", rounds, "pipelines")


def test_the_next_step_gains_what_is_said():
    slow = Costs(made=(10e-3,), made_busy=10e-3, kernels=1e-3, worker_bytes=20 * MIB)
    choice = Chooser(lambda c: MIB, 8, 70 * MIB, functions=True).choose(slow)
    assert choice.setting.workers == 3 and choice.next_setting == choice.setting._replace(workers=4)
    assert choice.next_bytes > 70 * MIB and choice.next_seconds == pytest.approx(0.75 * choice.seconds, rel=0.02)
    assert re.fullmatch(r"3 workers, 1 core, 1 batch: 3.33 ms a batch, 61.0 MiB of 70.0 MiB; 4 workers, 1 core, 1 batch would take 25% less, "
                        r"with 81.0 MiB, which is over the budget", str(choice)), str(choice)
    bound = Costs(made=(10e-3,), made_busy=10e-3, user=(10e-3,))
    choice = Chooser(lambda c: MIB, 8, 400 * MIB, functions=True).choose(bound)
    assert choice.next_setting is None and str(choice).endswith("no step more would gain 1%")
    with pytest.raises(ValueError, match="autotune: memory: 1000 bytes; the least setting takes 1048576 bytes"):
        Chooser(lambda c: MIB, 8, 1000, functions=True).choose(bound)


def test_depth_is_there_for_what_varies():
    """A function that now and then takes long, and a user who does not: with batches in work nobody waits."""
    costs = Costs(made=(1e-3,) * 9 + (8e-3,), made_busy=1e-3, user=(2e-3,), source_bytes=0, result_bytes=MIB)
    choice = Chooser(lambda c: MIB, 4, 1000 * MIB, functions=True).choose(costs)
    assert choice.seconds < 0.9 * forecast(costs, Setting(0, 1, 1), 4)
    poor = Chooser(lambda c: MIB, 4, 3 * MIB, functions=True).choose(costs)
    assert poor.setting == Setting(0, 1, 1)


def test_workers_that_take_long_to_start_must_be_worth_it():
    """A pass of 20 batches starts them anew; without end, the start is for nothing once and for all."""
    short = Costs(made=(10e-3,), made_busy=0.1e-3, start=0.1, batches=20)
    choose = Chooser(lambda c: MIB, 4, 1000 * MIB, functions=True).choose
    assert choose(short).setting.workers == 0 and choose(short).seconds == pytest.approx(10e-3)
    assert choose(Costs(**{**vars(short), "batches": float("inf")})).setting.workers >= 8


class Waits:
    """A function that takes five milliseconds, whatever else the machine does."""

    def __call__(self, sample):
        threading.Event().wait(0.005)
        return np.full(4, sample, np.float32)


def test_a_pipeline_tunes_itself_at_the_border_of_an_epoch(capfd):  # TFD-02
    def pipeline():
        return data.dataset(range(40)).shuffle(seed=3).map(Waits(), out=((4,), np.float32)).repeat(4).batch(4)

    plain = [batch.numpy().tobytes() for batch in pipeline()]
    tuned = pipeline().autotune(memory="200MiB", cores=2)
    assert tuned.tuned is None
    got = [batch.numpy().tobytes() for batch in tuned]
    assert got == plain and len(got) == 40  # nothing is lost, and nothing comes twice
    choice = tuned.tuned
    assert choice.setting.workers >= 2 and choice.bytes <= 200 * MIB and tuned.memory()["total"] <= choice.bytes
    said = capfd.readouterr().err.splitlines()
    assert said[-1] == f"data: autotune: {choice}" and 1 <= len(said) <= 3, said  # a line for each border with another choice
    assert [batch.numpy().tobytes() for batch in tuned] != got  # the next passes, by workers from the first batch on
    with pytest.raises(ValueError, match="autotune: cores: 0; must be at least 1"):
        pipeline().autotune(cores=0)
    with pytest.raises(ValueError, match="autotune: memory: got 'much'"):
        pipeline().autotune(memory="much")
    with pytest.raises(ValueError, match="autotune: memory: 100 bytes; the least setting takes [0-9]+ bytes"):
        iter(pipeline().autotune(memory=100))


def test_kernels_alone_are_tuned_too():
    x = np.random.default_rng(0).integers(0, 255, (64, 3, 16, 16), np.uint8)
    tuned = data.arrays(x).repeat(3).batch(8).map(lambda x: x.float().sin()).autotune(memory="64MiB", cores=2)
    got = [batch for batch in tuned]
    assert len(got) == 24 and tuned.tuned.setting.workers == 0 and 1 <= tuned.tuned.setting.cores <= 2
    for a, b in zip(got, data.arrays(x).repeat(3).batch(8).map(lambda x: x.float().sin())):
        assert sl.equal(a, b)


def test_a_place_is_kept_across_a_border():
    def pipeline():
        return data.dataset(range(40)).shuffle().map(lambda s: np.int64(s), out=((), np.int64)).repeat().batch(4)

    tuned = pipeline().autotune(memory="200MiB", cores=2)
    batches = iter(tuned)
    got = [next(batches).tolist() for _ in range(25)]
    again = pipeline()
    again.load_state_dict(tuned.state_dict())
    assert next(iter(again)).tolist() == next(batches).tolist()
    assert got == [batch.tolist() for _, batch in zip(range(25), pipeline())]
