"""A rank that fails, is killed, is stopped, never comes, or is a stranger: every other rank says which, and soon."""

import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from jobs import LIMIT, PID, gone
from rank_programs import environment, start  # noqa: F401: fixtures
from waiting import wait_until

# Rounds of all_reduce until an error; then its text and when it came, less the longest round.
ROUNDS = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell
dist.init(heartbeat=HEARTBEAT)
dist.barrier()
""" + PID + """
x = sl.ones(1000)
longest = 0.0  # round: what this machine's other work costs
try:
    while True:
        begin = time.time()
        dist.all_reduce(x, "max")
        longest = max(longest, time.time() - begin)
except sl.Error as e:
    print(time.time() - longest, type(e).__name__, str(e).split("  (")[0], flush=True)
"""


def told(out, ranks):
    """(time, text) of what each of these ranks printed."""
    found = {}
    for rank in ranks:
        lines = [line for line in out.splitlines() if line.startswith(f"[{rank}] ")]
        assert len(lines) == 1, out
        _, moment, text = lines[0].split(" ", 2)
        found[rank] = (float(moment), text)
    return found


@pytest.mark.parametrize("n, victim", [(2, 0), (2, 1), (4, 0), (4, 2)])
def test_a_killed_rank_is_named_within_two_seconds(start, n, victim):  # DDP-08
    job = start(n, ROUNDS.replace("HEARTBEAT", "10"))
    pids = job.pids(n)
    killed = time.time()
    os.kill(pids[victim], signal.SIGKILL)
    status, out, err = job.output()
    assert status == 128 + 9
    for moment, text in told(out, set(range(n)) - {victim}).values():
        assert text == (f"RuntimeError all_reduce: rank {victim} is gone: its connection closed without a goodbye; it crashed or was "
                        "killed")
        assert moment - killed < 2
    assert f"rank {victim} failed first: killed by SIGKILL (signal 9)" in err
    assert gone(pids)


@pytest.mark.parametrize("n, victim", [(2, 1), (2, 0), (4, 1)])
def test_a_stopped_rank_is_named_within_the_heartbeat_limit(start, n, victim):
    job = start(n, ROUNDS.replace("HEARTBEAT", "1.5") + "\nsys.exit(5)\n")
    pids = job.pids(n)
    stopped = time.time()
    os.kill(pids[victim], signal.SIGSTOP)
    status, out, err = job.output()
    for moment, text in told(out, set(range(n)) - {victim}).values():
        assert text == (f"TimeoutError all_reduce: rank {victim} does not answer: nothing was heard from it for 1500 ms; it is stopped, "
                        "hung or cut off")
        assert moment - stopped < 1.5 + 2
    assert status == 5 and "failed first: exit status 5" in err
    assert gone(pids)


def test_the_launcher_blames_the_stopped_rank_that_others_name(start):
    job = start(3, "dist.init(heartbeat=1.5)\ndist.barrier()\n" + PID + "while True:\n    dist.barrier()\n")
    pids = job.pids(3)
    os.kill(pids[1], signal.SIGSTOP)
    status, _, err = job.output()
    assert status == 1, err
    assert re.search(r"rank 1 failed first: does not answer: it is stopped or hangs \(rank [02] says: .*rank 1 does not answer", err), err
    assert gone(pids)


def test_a_rank_that_goes_on_after_a_stop_within_the_limit_is_not_missed(start):
    job = start(2, """
dist.init(heartbeat=5)
dist.barrier()
""" + PID + """
end = time.time() + 2.5
x = sl.ones(10)
while x[0].item() > 0:
    x.fill_(float(time.time() < end))
    dist.all_reduce(x, "min")
""")
    pids = job.pids(2)
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):  # nobody gives up meanwhile
        job.process.wait(1)
    os.kill(pids[1], signal.SIGCONT)
    status, out, err = job.output()
    assert status == 0, out + err


@pytest.mark.parametrize("n, victim", [(2, 0), (4, 3)])
def test_an_exception_in_one_rank_is_told_to_all_others(start, n, victim):
    status, out, err = start(n, f"""
    dist.init()
    try:
        for i in range(100):
            if rank == {victim} and i == 50:
                {{}}["the key"]
            dist.barrier()
    except sl.Error as e:
        print(type(e).__name__, e)
    """).output()
    assert status == 1
    texts = [line.split(" ", 1)[1] for line in out.splitlines()]
    assert len(texts) == n - 1
    for text in texts:
        assert re.fullmatch(rf"RuntimeError barrier: rank {victim} failed: KeyError: 'the key'  \(script.py:\d+\)", text), text
    assert f"rank {victim} failed first: exit status 1" in err
    assert "sluice.distributed.launch:     KeyError: 'the key'" in err


def test_the_launcher_names_the_rank_that_began_not_those_that_followed(start):
    for victim in (0, 1, 2):
        _, _, err = start(3, f"""
        dist.init()
        dist.barrier()
        if rank == {victim}:
            raise ZeroDivisionError("began here")
        while True:
            dist.barrier()
        """).output()
        assert f"rank {victim} failed first: exit status 1" in err, err


def test_a_rank_that_has_left_is_named_by_who_still_wants_something(start):
    status, out, _ = start(2, """
    dist.init()
    dist.barrier()
    if rank == 1:
        dist.destroy()
        sys.exit(0)
    try:
        dist.barrier()
    except sl.Error as e:
        print(str(e).split("  (")[0])
    """).output()
    assert status == 0
    assert out == ("[0] barrier: rank 1 has left while rank 0 still wants something of it; all ranks must make the same calls\n")


def test_a_rank_that_does_not_call_is_named_after_the_timeout(start):
    _, out, _ = start(2, """
    dist.init(timeout=1)
    dist.barrier()
    try:
        if rank == 0:
            dist.barrier()
        else:
            wait_to_go()  # until rank 0 has waited long enough
            dist.barrier()
    except sl.Error as e:
        print(type(e).__name__, str(e).split("  (")[0])
        if rank == 0:
            let_go()
    """).output()
    text = "barrier: rank 0 waited 1000 ms for rank 1, which is alive; all ranks must make the same calls in the same order"
    assert sorted(out.splitlines()) == [f"[{r}] TimeoutError {text}" for r in range(2)]


def test_ranks_that_never_come_are_named(start):
    status, out, _ = start(4, """
    if rank in (1, 3):
        signal.pause()
    if rank == 0:
        wait_to_go()
    else:
        let_go()
    try:
        dist.init(timeout=3)
    except sl.Error as e:
        print(type(e).__name__, str(e).split("  (")[0])
        sys.exit(1)
    """, "--grace", "3").output()
    assert status == 1
    lines = out.splitlines()
    assert lines and all(re.fullmatch(
        r"\[[02]\] TimeoutError distributed: ranks 1, 3 of 4 did not come to 127.0.0.1:\d+ within 3000 ms; start every rank, with the same "
        "MASTER_ADDR, MASTER_PORT and token", line) for line in lines), out


def test_world_sizes_that_differ_are_named_in_both(start):
    _, out, _ = start(2, """
    if rank == 1:
        os.environ["WORLD_SIZE"] = "3"
    try:
        dist.init(timeout=20)
    except ValueError as e:
        print(str(e).split("  (")[0])
    """).output()
    text = "distributed: world sizes differ: rank 1 says 3, rank 0 says 2; all ranks must have the same WORLD_SIZE"
    assert sorted(out.splitlines()) == [f"[{r}] {text}" for r in range(2)]


def test_ctrl_c_ends_a_collective(start):
    job = start(2, """
import threading
dist.init()
dist.barrier()
main = threading.main_thread().ident
def tell_that_it_waits():
    while sys._current_frames()[main].f_code.co_name == "<module>":
        os.sched_yield()
    tell("waits")
try:
""" + "    " + PID + """
    if rank == 0:
        threading.Thread(target=tell_that_it_waits).start()
        dist.barrier()
    else:
        while True:
            signal.pause()
except KeyboardInterrupt:
    print("interrupted")
    tell("interrupted")
""")
    pids = job.pids(2)
    job.hear("waits", 1)
    os.kill(pids[0], signal.SIGINT)
    job.hear("interrupted", 1)
    os.kill(pids[1], signal.SIGINT)
    status, out, err = job.output()
    assert status == 0 and sorted(out.splitlines()) == ["[0] interrupted", "[1] interrupted"], out + err


GARBAGE = [b"GET / HTTP/1.1\r\n\r\n", os.urandom(80), os.urandom(100_000), b"1CLS", b"1CLS" + bytes(76), b""]


def test_strangers_are_closed_and_logged_and_disturb_nobody(start):
    job = start(2, PID + """
if rank == 1:
    tell("port", os.environ["MASTER_PORT"])
    wait_to_go()
dist.init()
x = sl.ones(100)
dist.all_reduce(x)
print(x.sum().item())
""")
    job.pids(2)
    port = int(job.hear("port", 1)[1])
    open_ones, answers = [], []

    def connect():
        connections = []

        def connects():
            try:
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
            except ConnectionRefusedError:  # rank 0 is on its way
                return False
            return True

        wait_until(connects, "rank 0 does not come")
        return connections[0]

    def stranger(words):
        with connect() as s:
            try:
                s.sendall(words)
                s.shutdown(socket.SHUT_WR)
                answers.append(s.recv(100))
            except TimeoutError:
                raise
            except OSError:  # closed meanwhile
                answers.append(b"")

    threads = [threading.Thread(target=stranger, args=(words,)) for words in GARBAGE for _ in range(3)]
    open_ones = [connect() for _ in range(20)]  # say nothing, and stay
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
    job.go()
    status, out, err = job.output()
    for s in open_ones:
        s.close()
    assert answers == [b""] * len(threads)
    assert status == 0 and sorted(out.splitlines()) == ["[0] 200.0", "[1] 200.0"], out + err
    assert err.count("was closed: it did not say this job's token") >= len(threads)
