"""profile: records for a while, or for some of the steps of a program. torch.profiler.profile."""

from __future__ import annotations

import enum
import gzip
import json
import os
import socket
import time
import warnings
from typing import Any, Callable, Iterable

from sluice import _C, cuda
from sluice.profiler import _record
from sluice.profiler._events import EventList, nested


class ProfilerAction(enum.Enum):
    """The action at a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


class ProfilerActivity(enum.Enum):
    """The activities to record: calls of ops and kernels of plans on the host (CPU); kernels of GPUs are in Graph.save_trace()."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """False: events are recorded by Sluice itself, not by the library Kineto."""
    return False


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """After skip_first steps, cycles of steps that wait, warm up and record; `repeat` of them, or 0 for no end.

    skip_first_wait: not 0 to begin the first cycle without waiting.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
                             f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0).")
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == length - 1 else ProfilerAction.RECORD

    return action


_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Records the calls of ops and the kernels of graphs inside of its `with` block, or of the steps that `schedule` chooses.

    on_trace_ready(profile) is called when a recording ends. record_shapes, with_stack: also shapes of inputs, and lines of the
    program; profile_memory: bytes of the host that calls took or gave back. Calls made by the backward pass are one event,
    "backward", since they are none of Python. with_modules is torch's for TorchScript and means nothing here. Plans give up
    what they recorded before (Graph.set_trace) to the profile.
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None, schedule: Callable[[int],
                                                                                                   ProfilerAction] | None = None,
                 on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None,
                 execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: bool | None = None,
                 custom_trace_id_callback: Callable[[], str] | None = None,
                 post_processing_timeout_s: float | None = None) -> None:
        if with_flops:
            raise _C.NotImplementedError("profile: with_flops: operations are not counted; record_shapes=True gives the sizes "
                                         "they follow from")
        if execution_trace_observer is not None or experimental_config is not None:
            raise _C.NotImplementedError("profile: experimental_config and execution_trace_observer are of torch's own tools; "
                                         "export_chrome_trace() writes what was recorded")
        self.activities = set(activities) if activities is not None else supported_activities()
        if unknown := [a for a in self.activities if not isinstance(a, ProfilerActivity)]:
            raise TypeError(f"profile: activities has {unknown[0]!r}; must be of ProfilerActivity")
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        if use_cuda or ProfilerActivity.CUDA in self.activities:
            why = "kernels of GPUs are timed by Graph.set_trace() alone" if cuda.is_available() else "CUDA is not available, disabling CUDA profiling"
            warnings.warn(f"profile: {why}", stacklevel=2)
        self._schedule, self.on_trace_ready, self.acc_events = schedule, on_trace_ready, acc_events
        self.record_shapes, self.with_stack, self.profile_memory = record_shapes, with_stack, profile_memory
        self.step_num = 0
        self.current_action = self._action()
        self._recorder: Any = None
        self._recorded: list[Any] = []
        self._step_range: Any = None
        self._metadata: dict[str, Any] = {}
        self._id_of = custom_trace_id_callback
        self._begin_ns = 0
        self._traces: list[dict] = []
        self._has_events = False

    def _action(self) -> ProfilerAction:
        if self._schedule is None:
            return ProfilerAction.RECORD_AND_SAVE
        action = self._schedule(self.step_num)
        if not isinstance(action, ProfilerAction):
            raise TypeError(f"profile: schedule({self.step_num}) is {action!r}; must be a ProfilerAction")
        return action

    # Recording

    def start(self) -> None:
        if self.current_action in _RECORDS:
            self._begin()
        self._open_step()

    def stop(self) -> None:
        self._close_step()
        if self._recorder is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the program begins."""
        self._close_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self._action() if self._schedule is not None else before
        if self._schedule is not None:
            saves = before is ProfilerAction.RECORD_AND_SAVE
            if self._recorder is not None and (saves or self.current_action not in _RECORDS):
                self._end()
                if saves and self.on_trace_ready is not None:
                    self.on_trace_ready(self)
            if self._recorder is None and self.current_action in _RECORDS:
                self._begin()
        self._open_step()

    def _begin(self) -> None:
        recorder = _record.Recorder(self.record_shapes, self.with_stack, self.profile_memory)
        recorder.start()
        self._recorder = recorder

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        recorder.stop()
        if not (self.acc_events and self._has_events):
            self._recorded, self._traces, self._begin_ns = [], [], recorder.begin_ns
        self._recorded += recorder.events
        self._traces += recorder.traces
        self._has_events = True

    def _open_step(self) -> None:
        if self._schedule is not None:
            self._step_range = _record.record_function(f"ProfilerStep#{self.step_num}").__enter__()

    def _close_step(self) -> None:
        if self._step_range is not None:
            self._step_range.__exit__()
            self._step_range = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Goes on recording, or pauses."""
        if self._recorder is not None and ProfilerActivity.CPU in set(activities):
            self._recorder.enabled = enable

    # Records

    def events(self) -> EventList:
        """Each call, kernel and range, in the order of their beginnings."""
        if not self._has_events:
            raise AssertionError("Profiler must be initialized before accessing events: nothing was recorded; stop() it first")
        for event in self._recorded:
            event.self_cpu_memory_usage = event.cpu_memory_usage
        return nested(self._recorded, self._begin_ns)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """Sums by name, and by shapes (record_shapes) or lines (with_stack)."""
        if not self._has_events:
            raise AssertionError("Profiler must be initialized before getting key averages: nothing was recorded; stop() it "
                                 "first")
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def add_metadata(self, key: str, value: str) -> None:
        """A text for the file that export_chrome_trace writes."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same of a value that is JSON."""
        self._metadata[key] = json.loads(value)

    def get_trace_id(self) -> str | None:
        return self._id_of() if self._id_of is not None else None

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Writes the events as JSON for chrome://tracing or Perfetto; gzipped where the path ends in .gz."""
        events, pid = self.events(), os.getpid()
        threads = {t: i for i, t in enumerate(dict.fromkeys(e.thread for e in events))}
        lines: list[dict] = [{"ph": "M", "pid": pid, "tid": i, "name": "thread_name", "args": {"name": str(t)}} for t,
                             i in threads.items()]
        for e in events:
            kind = "kernel" if e.is_kernel else "user_annotation" if e.is_user_annotation else "cpu_op"
            lines.append({"ph": "X", "cat": kind, "name": e.name, "pid": pid, "tid": threads[e.thread],
                          "ts": e.time_range.start,
                          "dur": e.cpu_time_total, "args": {"Input Dims": e.input_shapes} if e.input_shapes else {}})
        document = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceName": str(path), **self._metadata, "traceEvents": lines}
        open_ = gzip.open if str(path).endswith(".gz") else open
        with open_(path, "wt") as file:
            json.dump(document, file)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes "line;line;name microseconds" for tools that draw flame graphs; with_stack must be True."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        if metric not in ("self_cpu_time_total", "cpu_time_total"):
            raise ValueError("export_stacks: metric should be one of: ['self_cpu_time_total', 'cpu_time_total']; got "
                             f"{metric!r}")
        sums: dict[str, float] = {}
        for event in self.events():
            if event.stack:
                text = ";".join([*(line.replace(";", ",").replace(" ", "_") for line in reversed(event.stack)),
                                 event.name.replace(" ", "_")])
                sums[text] = sums.get(text, 0.0) + getattr(event, metric)
        with open(path, "w") as file:
            file.writelines(f"{text} {int(us)}\n" for text, us in sums.items() if int(us) > 0)


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
                              use_python_export: bool = False) -> Callable[[profile], None]:
    """For on_trace_ready: writes each recording to a file of its own in `dir_name`, named as TensorBoard's plugin expects."""

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name,
                                              f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")))

    return handler


_started: list[profile] = []


def profiler_start() -> None:
    """Begins a profile that profiler_stop() ends; oneflow.profiler.profiler_start."""
    if _started:
        raise RuntimeError("profiler_start: a profile runs already; profiler_stop() ends it")
    prof = profile()
    prof.start()
    _started.append(prof)


def profiler_stop() -> profile:
    """Ends what profiler_start() began, and gives it; oneflow.profiler.profiler_stop."""
    if not _started:
        raise RuntimeError("profiler_stop: no profile runs; profiler_start() begins one")
    prof = _started.pop()
    prof.stop()
    return prof
