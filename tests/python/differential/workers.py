"""Programs in processes of their own, so that a crash or a hang is one program's and has its number."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import warnings
from collections import deque

from differential.check import Verdict, check
from differential.generator import Generator

CHUNK = 25  # programs of one process, one after another: what one leaves behind meets the next
_context = multiprocessing.get_context("fork")


def prepare():
    """Imports what every process needs, before they are forked. No engine and no threads are started."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports more
    import sluice

    return sluice


class Child:
    """A process that runs `work(send)`; it may end at any time."""

    def __init__(self, work):
        self.results, theirs = _context.Pipe(duplex=False)
        self.process = _context.Process(target=self._main, args=(work, theirs), daemon=True)
        self.process.start()
        theirs.close()

    @staticmethod
    def _main(work, results):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        work(results.send)
        results.close()
        os._exit(0)  # nobody waits for the engine

    def end(self):
        """How it ended, after killing it if it has not."""
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.results.close()
        return self.process.exitcode


def isolated(function, timeout):
    """The result of `function`, in a process of its own; a Verdict where that crashes or does not end."""
    child = Child(lambda send: send(function()))
    try:
        if not child.results.poll(timeout):
            child.process.kill()
            return Verdict("hang", f"no result after {timeout} s")
        return child.results.recv()
    except EOFError:
        return Verdict("crash", f"exit status {child.end()}")
    finally:
        child.end()


def survey(seeds, switches, jobs, timeout, modes=("eager", "graph")):
    """Checks the program of each seed; yields (seed, Verdict) as they come."""
    sluice = prepare()
    chunks, running = deque(), {}
    seeds = list(seeds)
    chunks.extend(seeds[i:i + CHUNK] for i in range(0, len(seeds), CHUNK))

    def start(chunk):
        def work(send):
            generator = Generator(switches)
            for seed in chunk:
                program = generator(seed)
                send((seed, check(program, sluice, modes, generator.reference)))

        child = Child(work)
        running[child.results] = (child, deque(chunk))

    while chunks or running:
        while chunks and len(running) < jobs:
            start(chunks.popleft())
        ready = multiprocessing.connection.wait(list(running), timeout)
        verdicts = []
        for results in ready or list(running):
            child, left = running[results]
            try:
                if not ready:
                    raise TimeoutError
                seed, verdict = results.recv()
                left.popleft()
                yield seed, verdict
                continue
            except TimeoutError:
                child.process.kill()
                verdicts.append((left, Verdict("hang", f"no result after {timeout} s")))
            except EOFError:
                if left:
                    verdicts.append((left, Verdict("crash", f"exit status {child.end()}")))
            del running[results]
            child.end()
        for left, verdict in verdicts:
            yield left.popleft(), verdict
            if left:
                chunks.appendleft(list(left))
