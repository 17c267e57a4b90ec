"""A rank that is killed in any phase of a training is named within two seconds: by the other ranks where they want something of it, and
by the launcher always."""

import os
import select
import signal
import time

import pytest

from jobs import LIMIT, gone
from rank_programs import environment, start  # noqa: F401: fixtures

# A training of three ranks in which the victim stops in one phase, tells so, and stays there until it is killed. The time in which
# the others compute, or wait for a core, does not count; each prints its errors with the rest of the time.
TRAINING = """
import glob
import sluice.distributed.checkpoint as dcp
from sluice import nn
from sluice._checkpoint import files
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell

def busy():  # seconds that this process has computed, or waited for a core
    waits = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            waits += int(open(path).read().split()[1])
        except OSError:  # the thread has ended
            pass
    return time.process_time() + waits / 1e9

def reach(phase):
    if rank == VICTIM and phase == PHASE:
        tell("phase", os.getpid())
        while True:
            signal.pause()

W, S, B = sl.placement("sim", range(size)), sl.sbp.split, sl.sbp.broadcast
at = 0

def rows(x):
    reach(["first step", "steady state"][at > 0] if at in (0, 7) else "")
    return x

class Train(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
    def build(self, x):
        reach("compile")
        x = sl.host_function(rows, x, out=((6, 4), sl.float32))
        loss = self.net(x.to_global(W, S(0))).square().mean()
        loss.backward()
        return loss

synced = files.synced
def slow(folder, name):
    reach("checkpoint")
    return synced(folder, name)
files.synced = slow

began = busy()
try:
    reach("rendezvous")
    dist.init()
    net = nn.Linear(4, 3).to_global(W, B)
    graph = Train(net)
    for at in range(9):
        graph(sl.ones(6, 4)).item()
        dist.barrier()
    dcp.save({"graph": graph}, "checkpoint")
    reach("ending")
    dist.barrier()
    dist.destroy()
    reach("exit")
    print("ended well", flush=True)
except sl.Error as e:
    print(time.time() - (busy() - began), str(e).split("  (")[0], flush=True)
    sys.exit(1)
"""


def report(job, deadline):
    """The lines of the launcher until it names who has failed."""
    text = b""
    while b"failed first" not in text:
        ready, _, _ = select.select([job.process.stderr], [], [], max(0, deadline - time.monotonic()))
        assert ready, text
        more = os.read(job.process.stderr.fileno(), 4096)
        assert more, text
        text += more
    return text.decode()


@pytest.mark.parametrize("phase, victim, told", [
    ("rendezvous", 1, False), ("rendezvous", 0, False), ("compile", 2, True), ("first step", 1, True), ("steady state", 0, True),
    ("checkpoint", 1, True), ("checkpoint", 0, True), ("ending", 2, True), ("exit", 1, False)])
def test_a_rank_killed_in_any_phase_is_named_within_two_seconds(start, phase, victim, told):
    job = start(3, f"PHASE, VICTIM = {phase!r}, {victim}\n" + TRAINING, "--grace", "2")
    (pid,) = (int(word) for word in job.hear("phase", 1).values())
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    named = report(job, time.monotonic() + LIMIT)
    assert f"rank {victim} failed first: killed by SIGKILL (signal 9)" in named
    status, out, err = job.output()
    assert status == 128 + 9
    lines = [line.split(" ", 2) for line in out.splitlines()]
    others = {0, 1, 2} - {victim}
    if phase == "exit":  # the others wanted nothing more of it
        assert sorted(line[0] for line in lines) == [f"[{r}]" for r in sorted(others)] and {line[2] for line in lines} == {"well"}, out
    elif told:
        assert sorted(line[0] for line in lines) == [f"[{r}]" for r in sorted(others)], out + err
        for _, moment, text in lines:
            assert f"rank {victim} is gone: its connection closed without a goodbye" in text, out
            assert float(moment) - killed < 2, out
    assert gone([pid])
