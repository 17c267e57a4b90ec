"""Jobs of several processes, for tests."""

import signal
import subprocess
import time

LIMIT = 120  # seconds; nothing here takes so long, unless it hangs
# A line of a rank's program: its pid into `pid_<rank>`, which is whole once it is there, whenever the process is killed.
PID = "open(f'pid_{rank}.part', 'w').write(str(os.getpid())); os.replace(f'pid_{rank}.part', f'pid_{rank}')\n"


class Job:
    """A launcher and its processes."""

    def __init__(self, command, environment, directory):
        self.process = subprocess.Popen(command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.directory = directory

    def pids(self, n):
        """The ids of its processes, once each has run `PID`."""
        files = [self.directory / f"pid_{rank}" for rank in range(n)]
        deadline = time.monotonic() + LIMIT
        while not all(f.exists() for f in files):
            assert time.monotonic() < deadline and self.process.poll() is None, self.output()
            time.sleep(0.01)
        return [int(f.read_text()) for f in files]

    def output(self):
        """(exit status, stdout, stderr) once it has ended."""
        try:
            out, err = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            out, err = self.process.communicate(timeout=LIMIT)
            raise AssertionError(f"hangs:\n{out}\n{err}") from None
        return self.process.returncode, out, err


def alive(pid):
    """Whether the process runs; one that has ended and that nobody waits for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, seconds=20):
    """Waits until none of them runs."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(alive(pid) for pid in pids)
