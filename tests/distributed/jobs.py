"""Jobs of several processes, for tests."""

import os
import select
import signal
import subprocess
import time

from waiting import all_end

LIMIT = 120  # seconds; nothing here takes so long, unless it hangs
PID = "tell('pid', os.getpid())\n"  # a line of a rank's program


class Job:
    """A launcher and its processes."""

    def __init__(self, command, environment, directory):
        self.directory, self.told, self.rest, self.gate = directory, {}, "", None
        for name in ("told", "go"):
            (directory / name).unlink(missing_ok=True)
            os.mkfifo(directory / name)
        self.pipe = os.open(directory / "told", os.O_RDWR)  # so that no end of it is ever missing
        self.process = subprocess.Popen(command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def hear(self, kind, n):
        """What n ranks have told of this kind, by rank, once they have."""
        deadline = time.monotonic() + LIMIT
        ended = os.pidfd_open(self.process.pid)
        try:
            while len(self.told.get(kind, {})) < n:
                news = select.poll()
                for descriptor in (self.pipe, ended):
                    news.register(descriptor, select.POLLIN)
                ready = [descriptor for descriptor, _ in news.poll(max(0, deadline - time.monotonic()) * 1000)]
                assert self.pipe in ready, self.output()
                self._read()
        finally:
            os.close(ended)
        return self.told[kind]

    def heard(self, kind):
        """What has been told of this kind until now, by rank."""
        while select.select([self.pipe], [], [], 0)[0]:
            self._read()
        return self.told.get(kind, {})

    def _read(self):
        *lines, self.rest = (self.rest + os.read(self.pipe, 4096).decode()).split("\n")
        for line in lines:
            kind, rank, word = line.split(" ", 2)
            self.told.setdefault(kind, {})[int(rank)] = word

    def pids(self, n):
        """The ids of its processes, once each has run `PID`."""
        told = self.hear("pid", n)
        return [int(told[rank]) for rank in range(n)]

    def go(self):
        """Lets the rank that waits to go, or the next to do so."""
        self.gate = os.open(self.directory / "go", os.O_RDWR)
        os.write(self.gate, b"\n")

    def output(self, starts=1):
        """(exit status, stdout, stderr) once it has ended, of a job that is started so often."""
        try:
            out, err = self.process.communicate(timeout=LIMIT * starts)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            out, err = self.process.communicate(timeout=LIMIT)
            raise AssertionError(f"hangs:\n{out}\n{err}") from None
        return self.process.returncode, out, err

    def close(self):
        """Ends what is left of it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for descriptor in (self.pipe, self.gate):
            if descriptor is not None:
                os.close(descriptor)


def alive(pid):
    """Whether the process runs; one that has ended and that nobody waits for does not."""
    return not all_end([pid], 0)


def gone(pids, seconds=20):
    """Waits until none of them runs."""
    return all_end(pids, seconds)
