"""The processes of one host: started, listened to, and ended together. One thread; it sleeps until something happens."""

import collections
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time

from sluice.distributed._failure import REPORT

TAIL = 20  # lines of a failed process's stderr that are shown again
SETTLE = 1.0  # seconds a process has to end that others say was at fault
DRAIN = 0.5  # seconds to wait for output that the processes' own children may still hold
PR_SET_PDEATHSIG = 1
NAME = "sluice.distributed.launch"


class Worker:
    """One process."""

    def __init__(self, rank, command, environment, logdir, again=False):
        self.rank, self.command, self.environment = rank, command, environment
        self.tail = collections.deque(maxlen=TAIL)
        self.process = self.ended = None
        self.files = {}
        if logdir is not None:
            directory = os.path.join(logdir, f"rank_{rank}")
            os.makedirs(directory, exist_ok=True)
            self.files = {name: open(os.path.join(directory, name), "ab" if again else "wb", buffering=0) for name in ("stdout", "stderr")}

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, preexec_fn=_tied_to(os.getpid()))

    def code(self):
        """None while it runs, else as Popen.returncode. A process that has ended is kept until forget(), and with it its
        group's number."""
        if self.process.returncode is None and self.ended is None:
            self.ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if self.ended is None:
            return self.process.returncode
        return self.ended.si_status if self.ended.si_code == os.CLD_EXITED else -self.ended.si_status

    def status(self):
        """None while it runs, else as a shell has it."""
        code = self.code()
        return code if code is None or code >= 0 else 128 - code

    def send(self, number):
        """To it and the processes it started."""
        if self.process is not None and self.process.returncode is None:
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):  # it has ended, and so have those it started
                pass

    def forget(self):
        """Once it has ended: ends what it left behind."""
        if self.process is not None:
            self.send(signal.SIGKILL)
            self.process.wait()

    def report(self):
        """The report of the exception that ended it: {"error", "because_of"}; empty when it said nothing."""
        try:
            with open(self.environment[REPORT]) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def end(self):
        """How it ended, in words."""
        code = self.code()
        if code is None:
            return "does not answer: it is stopped or hangs"
        if code >= 0:
            return f"exit status {code}"
        try:
            return f"killed by {signal.Signals(-code).name} (signal {-code})"
        except ValueError:
            return f"killed by signal {-code}"


def _tied_to(parent):
    """For a new process: a group of its own, and an end when its parent ends, however that happens."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare():
        os.setpgid(0, 0)
        if prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(1)

    return prepare


class _Lines:
    """One stream of a worker: whole lines, behind its rank."""

    def __init__(self, worker, name, out):
        self.worker, self.name, self.out, self.rest = worker, name, out, b""

    def take(self, data):
        if self.name in self.worker.files:
            self.worker.files[self.name].write(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if not data and self.rest:
            lines, self.rest = [*lines, self.rest], b""
        for line in lines:
            if self.name == "stderr":
                self.worker.tail.append(line.decode(errors="replace"))
            if not self.worker.files:
                self.out.write(b"[%d] %s\n" % (self.worker.rank, line))
        if lines:
            self.out.flush()


class _Host:
    """The workers that run, and the news of them."""

    def __init__(self):
        self.workers = []
        self.selector = selectors.DefaultSelector()
        self.signals = []
        self.failed = []  # in the order in which they were seen to have ended
        self.wake, wake_write = os.pipe()
        for end in (self.wake, wake_write):
            os.set_blocking(end, False)
        self.selector.register(self.wake, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.signals.append(number))

    def start(self, workers):
        self.workers, self.failed = workers, []
        for worker in workers:
            worker.start()
            for name, out in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
                pipe = getattr(worker.process, name)
                os.set_blocking(pipe.fileno(), False)
                self.selector.register(pipe, selectors.EVENT_READ, _Lines(worker, name, out))

    def running(self):
        return [w for w in self.workers if w.process is not None and w.status() is None]

    def mute(self):
        nowhere = open(os.devnull, "wb")
        for key in self.selector.get_map().values():
            if key.data is not None:
                key.data.out = nowhere

    def listen(self, seconds, until):
        """Passes output on until then, or until `until()`; returns that."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not until():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, _ in self.selector.select(left):
                self._hear(key)
            for worker in self.workers:
                if worker.process is not None and worker.status() not in (None, 0) and worker not in self.failed:
                    self.failed.append(worker)
        return True

    def _hear(self, key):
        try:
            data = os.read(key.fd, 65536)
        except BlockingIOError:
            return
        if key.data is None:
            return  # a signal
        key.data.take(data)
        if not data:
            self.selector.unregister(key.fileobj)

    def stop(self, number, grace):
        """Ends all that runs."""
        for worker in self.workers:
            worker.send(number)
            worker.send(signal.SIGCONT)  # the stopped hear nothing
        if not self.listen(grace, lambda: not self.running()):
            for worker in self.running():
                worker.send(signal.SIGKILL)
            self.listen(grace, lambda: not self.running())

    def drain(self):
        self.listen(DRAIN, lambda: len(self.selector.get_map()) == 1)

    def culprit(self):
        """The worker that failed first: not always the one that ended first, because a failure ends the others too."""
        first = self.failed[0]
        rank = first.report().get("because_of")
        blamed = next((w for w in self.workers if w.rank == rank), None)
        if blamed is None or blamed.status() == 0:
            return first
        self.listen(SETTLE, lambda: blamed.status() is not None)
        return blamed


def run(make, grace, restarts=0):
    """Runs the workers of make(0, None) together; returns the exit status of the job. If it fails it is started again, up to so many
    times, with the workers of make(n, those that ran before)."""
    host, workers = _Host(), None
    for attempt in range(restarts + 1):
        workers = make(attempt, workers)
        try:
            status = _run(host, workers, grace)
        finally:
            for worker in workers:
                worker.forget()
        if not host.failed or host.signals or attempt == restarts:
            break
        _say(f"starts again: restart {attempt + 1} of {restarts}")
    return status


def _run(host, workers, grace):
    try:
        host.start(workers)
        host.listen(None, lambda: host.failed or host.signals or not host.running())
    except OSError as error:  # a program that cannot be started, a reader that has gone
        _say(f"{error}; all processes are ended")
        host.mute()
        host.stop(signal.SIGTERM, grace)
        host.failed = []  # to start it again would be no better
        return 1
    if host.signals:
        number = host.signals[0]
        host.stop(number, grace)
        host.drain()
        _say(f"ended by {signal.Signals(number).name}; so are its {len(workers)} processes")
        return 128 + number
    if not host.failed:
        host.drain()
        return 0
    culprit = host.culprit()
    status, end = culprit.status(), culprit.end()
    others = host.running()
    host.stop(signal.SIGTERM, grace)
    host.drain()
    error = host.failed[0].report().get("error", "") if status is None else ""
    _say(f"rank {culprit.rank} failed first: {end}{f' (rank {host.failed[0].rank} says: {error})' if error else ''}")
    _say(f"  its pid was {culprit.process.pid}; the end of its stderr:")
    for line in culprit.tail or ["(nothing)"]:
        _say(f"    {line}")
    ended = [str(w.rank) for w in others if w is not culprit]
    if ended:
        _say(f"  ranks still running then were ended: {', '.join(ended)}")
    return status or 1


def _say(text):
    try:
        sys.stderr.write(f"{NAME}: {text}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads
