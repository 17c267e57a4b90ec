"""Waiting for what nobody announces, and for processes of others. Where somebody announces a change, a test waits for that."""

import os
import select
import time

PATIENCE = 120  # seconds; a busy machine is slow, not broken


def give_way(turns=1):
    """Lets other threads have the interpreter, and a core, this many times."""
    for _ in range(turns):
        select.select([], [], [], 0)  # releases the interpreter, which sched_yield does not before Python 3.12
        os.sched_yield()


def wait_until(condition, what, seconds=PATIENCE):
    """Looks again and again until `condition()` holds. `what` is wrong where it does not: a text, or a function that makes it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what() if callable(what) else what
        give_way()


def all_end(pids, seconds=PATIENCE):
    """Whether all these processes end in time. They need not be children of this one, and whoever started them need not know yet."""
    end = time.monotonic() + seconds
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ends = select.poll()
            ends.register(process, select.POLLIN)
            if not ends.poll(max(0, end - time.monotonic()) * 1000):
                return False
        finally:
            os.close(process)
    return True
