"""Ranks on several hosts, each a network namespace: they meet and compute, and a host that is cut off is named on both sides of the cut."""

import re
import subprocess
import sys
import time

import pytest

from hosts import Hosts
from jobs import LIMIT
from rank_programs import HEADER, environment  # noqa: F401: fixture

PORT = "29500"
MEET = """
dist.init(heartbeat=2, timeout=TIMEOUT)
W, S, B = sl.placement("sim", range(size)), sl.sbp.split, sl.sbp.broadcast

class Double(sl.nn.Graph):
    def build(self, x):
        return (x.to_global(W, S(0)) * 2).to_global(W, B)

graph, x = Double(), sl.ones(8)
step = (lambda: graph(x).sum().item()) if GRAPH else (lambda: dist.all_reduce(x, "max"))
step()
"""
# Steps until an error; then when it came, less the longest step, and its text.
ROUNDS = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell
print("met", flush=True)
longest = 0.0
try:
    while True:
        begin = time.time()
        step()
        longest = max(longest, time.time() - begin)
except sl.Error as e:
    print(time.time() - longest, str(e).split("  (")[0], flush=True)
"""


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(count):
        made.append(Hosts(count, tmp_path / "hosts"))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def launched(hosts, environment, tmp_path):  # noqa: F811
    """launched(source): two hosts, and on each a launcher with two ranks that run `source`."""
    running = []

    def launch(source):
        (tmp_path / "script.py").write_text(HEADER + source)
        two = hosts(2)
        for i in range(2):
            running.append(two.start(i, [sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", "2", "--nnodes", "2",
                                         "--node_rank", str(i), "--master_addr", two.addresses[0], "--master_port", PORT, "script.py"],
                                     cwd=tmp_path, env={**environment, "SLUICE_TOKEN": "the same on both"}))
        return two, running

    yield launch
    for process in running:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def ended(process):
    try:
        return process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()
        raise AssertionError(f"hangs: {process.communicate()}") from None


def test_ranks_on_two_hosts_meet_and_compute(launched):
    _, jobs = launched(f"TIMEOUT, GRAPH = {LIMIT}, True\n" + MEET + "print(step(), dist.get_local_rank())\n")
    for i, job in enumerate(jobs):
        out, err = ended(job)
        assert job.returncode == 0 and sorted(out.splitlines()) == [f"[{2 * i + r}] 16.0 {r}" for r in range(2)], out + err


@pytest.mark.parametrize("graph", [False, True])
def test_a_host_that_is_cut_off_is_named_on_both_sides(launched, graph):
    two, jobs = launched(f"TIMEOUT, GRAPH = {LIMIT}, {graph}\n" + MEET + ROUNDS)
    for job in jobs:
        for _ in range(2):
            assert job.stdout.readline().endswith("] met\n")
    cut = time.time()
    two.cut(1)
    text = r"[\w: ]*rank %s does not answer: nothing was heard from it for 2000 ms; it is stopped, hung or cut off"
    for job, there in zip(jobs, ("[23]", "[01]")):
        out, err = ended(job)
        lines = [line.split(" ", 2)[1:] for line in out.splitlines()]
        assert len(lines) == 2, out + err
        for moment, words in lines:
            assert re.fullmatch(text % there, words), out
            assert float(moment) - cut < 2 + 2


def test_a_host_that_is_cut_off_before_all_have_met_is_named(hosts, environment, tmp_path):  # noqa: F811
    """Rank 2 is on a host that nobody reaches; the others are told who is missing, and it is told whom it does not reach."""
    (tmp_path / "script.py").write_text(HEADER + "try:\n    dist.init(timeout=4)\nexcept sl.Error as e:\n    print(str(e).split('  (')[0])\n")
    three = hosts(3)
    three.cut(2)
    jobs = [three.start(i, [sys.executable, "script.py"], cwd=tmp_path, env={
        **environment, "RANK": str(i), "WORLD_SIZE": "3", "MASTER_ADDR": three.addresses[0], "MASTER_PORT": PORT, "SLUICE_TOKEN": "one"})
        for i in range(3)]
    outs = [ended(job)[0].strip() for job in jobs]
    at = f"{three.addresses[0]}:{PORT}"
    assert outs[0] == (f"distributed: rank 2 of 3 did not come to {at} within 4000 ms; start every rank, with the same MASTER_ADDR, "
                       "MASTER_PORT and token")
    assert outs[1] in (outs[0], f"distributed: rank 0 does not answer at {at} within 4000 ms; it must run there, with the same MASTER_PORT")
    assert outs[2] == f"distributed: rank 0 does not answer at {at} within 4000 ms; it must run there, with the same MASTER_PORT"
