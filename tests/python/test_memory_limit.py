"""A plan's ledger is what its run takes: a C++ program runs in that much memory, and in less it is refused beforehand.
And it is all that a run takes, however many steps it has."""

import re
import resource
import subprocess

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F
from sluice._base.tools import find_tool

MIB = 1 << 20
STACK = MIB // 2  # of a thread of the program: a thread more or less at the peak must not hide what the ledger says


class Wide(nn.Graph):
    """Two layers of `n` x `n` weights."""

    def __init__(self, n, budget=None):
        super().__init__(name="wide")
        self.model = nn.Sequential(nn.Linear(64, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 10)).eval()
        if budget is not None:
            self.config.set_memory_budget(budget)

    def build(self, x):
        return self.model(x)


def saved(directory, n):
    """The directory of a bundle, its input and output files, and its ledger's total."""
    graph, x = Wide(n), sl.rand(8, 64)
    y = graph(x)
    sl.save(graph, directory / f"wide{n}")
    x.numpy().tofile(directory / f"x{n}.f32")
    return directory / f"wide{n}", directory / f"x{n}.f32", y.numpy(), graph.memory()["total"]


def runs_within(limit, bundle, images, out):
    """Whether the C++ program classifies `images` with `limit` bytes of address space."""

    def confine():
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    # One heap, one caller, small stacks: what threads reserve would blur the measure.
    process = subprocess.run([find_tool("cpp_runner"), bundle, images, out, "1"], capture_output=True, preexec_fn=confine,
                             env={"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}, timeout=60)
    return process.returncode == 0


def smallest_limit(*program):
    low, high = 0, 8192  # MiB
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if runs_within(middle * MIB, *program) else (middle, high)
    return high * MIB


def test_runs_in_its_ledger_and_a_constant(tmp_path):  # C-01
    small, large = saved(tmp_path, 1024), saved(tmp_path, 4096)  # both large enough to use all threads
    constant = smallest_limit(*small[:2], tmp_path / "out") - small[3]
    print(f"runtime constant: {constant / MIB:.0f} MiB of address space; ledger: {large[3] / MIB:.1f} MiB")
    assert large[3] > 64 * MIB
    out = tmp_path / "out"
    assert runs_within(large[3] + constant + 2 * MIB, *large[:2], out)
    got = np.fromfile(out, np.float32).reshape(large[2].shape)
    np.testing.assert_array_equal(got, large[2])
    # The limit is real: a twentieth less is not enough.
    assert not runs_within(large[3] * 95 // 100 + constant, *large[:2], out)


def test_a_twentieth_less_is_refused_with_what_works():  # C-01
    x = sl.rand(8, 64)
    total = Wide(256).compile(x).memory()["total"]
    with pytest.raises(MemoryError, match=rf"(?s)over its memory budget.*smallest budget that works is .*{total} bytes"):
        Wide(256, budget=total * 95 // 100)(x)
    Wide(256, budget=total)(x)


def test_one_slot_of_one_register_less_is_refused_before_the_first_step():  # C-01
    calls = []

    class Watched(Wide):
        def build(self, x):
            def note(array):
                calls.append(array)
                return array

            return self.model(sl.host_function(note, x, out=((8, 64), sl.float32)))

    x = sl.rand(8, 64)
    plan, total = (enough := Watched(64).compile(x)).plan, enough.memory()["total"]
    slots = [(r["name"], r["bytes"], r["quota"]) for r in plan["registers"] if r["bytes"]]
    assert len(slots) >= 2
    largest = max(slots, key=lambda slot: slot[1] * slot[2])
    for _, one_slot, _ in slots:
        with pytest.raises(MemoryError) as refused:
            Watched(64, budget=total - one_slot)(x)
        assert f"smallest budget that works is {total} bytes" in str(refused.value)
        assert re.search(rf"largest registers: '{re.escape(largest[0])}' \({largest[2]} slots of .*{largest[1]} bytes", str(refused.value))
    assert not calls
    Watched(64, budget=total)(x).numpy()
    assert len(calls) == 1


class Trained(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9))

    def build(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def resident():
    """Exact, where the counters of /proc/self/statm lag behind."""
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def growth(step, n):
    """By how much `n` calls of step() make the process larger, after as many as it takes to be warm."""
    for _ in range(500):
        step()
    before = resident()
    for _ in range(n):
        step()
    return resident() - before


def training_step():
    graph, x, y = Trained(), sl.randn(8, 16), sl.randint(0, 4, (8,))

    def step():
        assert graph(x, y).item() < 10

    return step


# In a process of its own: what other tests have freed would hide that something grows.
GROWTH = """
from test_memory_limit import MIB, growth, training_step
train, kept, n, kept_per_step = training_step(), [], {n}, {kept_per_step}
def step():
    train()
    if kept_per_step:
        kept.append(bytearray(kept_per_step))
print(growth(step, n))
"""


def growth_of_training(run_script, n, kept_per_step=0):
    process = run_script(GROWTH.format(n=n, kept_per_step=kept_per_step), timeout=300)
    assert process.returncode == 0, process.stderr
    return int(process.stdout)


@pytest.mark.soak
def test_training_does_not_grow(run_script, repetitions, count):
    n = repetitions(1000, 20000)
    grown = growth_of_training(run_script, n)
    assert grown < MIB
    count("memory of long runs, training from Python", n, "steps")
    count("memory of long runs, training from Python", max(grown, 0) // 1024, "KiB grown")


def test_a_step_that_keeps_memory_is_found(run_script):
    assert growth_of_training(run_script, 1000, kept_per_step=2 * MIB // 1000) >= MIB
