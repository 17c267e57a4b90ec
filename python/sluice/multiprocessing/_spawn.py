"""Starting processes that fail together: torch.multiprocessing.spawn."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
import traceback
from typing import Any, Callable


_END_SECONDS = 30.0  # that others have after SIGTERM


class ProcessException(Exception):
    """One of the processes has failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It has raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """It has ended by a signal or with an exit code."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable, i: int, args: tuple, failures: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent has it, too
    except Exception:
        failures.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes: list[Any], failures: list[Any]) -> None:
        self.processes, self._failures = processes, failures
        self._running = dict(enumerate(processes))

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one has ended; whether all have. When one has failed, the others are ended, and its failure is raised.

        grace_period: seconds that the others have after SIGTERM, before they are killed.
        """
        if not self._running:
            return True
        multiprocessing.connection.wait([p.sentinel for p in self._running.values()], timeout)
        failed = None
        for i, process in list(self._running.items()):
            if process.is_alive():
                continue
            process.join()
            del self._running[i]
            if process.exitcode != 0 and failed is None:
                failed = i
        if failed is None:
            return not self._running
        self._end_others(_END_SECONDS if grace_period is None else grace_period)
        process = self.processes[failed]
        try:
            text = self._failures[failed].recv()
        except EOFError:
            pass  # it has ended without a word
        else:
            raise ProcessRaisedException(f"\n\n-- Process {failed} terminated with the following error:\n{text}", failed,
                                         process.pid)
        if process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            raise ProcessExitedException(f"process {failed} terminated with signal {name}", failed, process.pid,
                                         process.exitcode, name)
        raise ProcessExitedException(f"process {failed} terminated with exit code {process.exitcode}", failed, process.pid,
                                     process.exitcode)

    def _end_others(self, seconds: float) -> None:
        for process in self._running.values():
            process.terminate()
        limit = time.monotonic() + seconds
        for process in self._running.values():
            process.join(max(0.0, limit - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._running.clear()


def start_processes(fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Runs fn(i, *args) in `nprocs` processes. With `join`, waits for all and raises what one has failed of."""
    context: Any = multiprocessing.get_context(start_method)
    processes, failures = [], []
    for i in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        failures.append(ours)
    started = ProcessContext(processes, failures)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> ProcessContext | None:
    """start_processes by the start method "spawn"; torch.multiprocessing.spawn."""
    if start_method != "spawn":
        raise ValueError(f"spawn: start_method is {start_method!r}; use start_processes for others than 'spawn'")
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
