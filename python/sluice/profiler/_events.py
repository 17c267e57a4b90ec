"""Events of a profile, their sums by name, and the table of them."""

from __future__ import annotations

from typing import Any, Iterable

_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def time_text(us: float, unit: str | None = None) -> str:
    """Microseconds for people."""
    unit = unit or ("s" if us >= 1e6 else "ms" if us >= 1e3 else "us")
    return f"{us / _UNITS[unit]:.3f}{unit}"


def memory_text(size: float) -> str:
    for unit, least in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if abs(size) >= least:
            return f"{size / least:.2f} {unit}"
    return f"{size:.0f} B"


class _Times:
    """The common part of events and their sums; times are microseconds."""

    cpu_time_total: float
    self_cpu_time_total: float
    count: int
    cpu_memory_usage: int
    # Devices other than the host: their kernels are not timed yet.
    device_time_total = self_device_time_total = device_time = cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0
    flops = 0

    cpu_time = property(lambda self: self.cpu_time_total / max(self.count, 1))
    cpu_time_str = property(lambda self: time_text(self.cpu_time))
    cpu_time_total_str = property(lambda self: time_text(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: time_text(self.self_cpu_time_total))


class TimeRange:
    """From `start` to `end`, in microseconds since the profile began."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self) -> str:
        return f"TimeRange({self.start:.3f}, {self.end:.3f})"


class FunctionEvent(_Times):
    """One call of an op, kernel of a plan, or range. `thread`: of the caller, or the graph and stream of a kernel."""

    count = 1

    def __init__(self, name: str, begin_ns: int, end_ns: int, thread: Any, shapes: Any, stack: list[str], memory: int,
                 annotation: bool, kernel: bool = False) -> None:
        self.name, self.key = name, "ProfilerStep*" if name.startswith("ProfilerStep#") else name
        self.begin_ns, self.end_ns, self.thread, self.input_shapes, self.stack = begin_ns, end_ns, thread, shapes or [], stack
        self.cpu_memory_usage = self.self_cpu_memory_usage = memory
        self.is_user_annotation, self.is_kernel = annotation, kernel
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.time_range = TimeRange(0, 0)
        self.id = 0

    cpu_time_total = property(lambda self: (self.end_ns - self.begin_ns) / 1e3)  # type: ignore[assignment]
    self_cpu_time_total = property(  # type: ignore[assignment]
        lambda self: self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children))

    def __repr__(self) -> str:
        return f"<FunctionEvent {self.name} cpu_time={self.cpu_time_str} thread={self.thread} input_shapes={self.input_shapes}>"


class FunctionEventAvg(_Times):
    """Sums over the events of one name (and shapes, or stack)."""

    def __init__(self, first: FunctionEvent) -> None:
        self.key, self.input_shapes, self.stack = first.key, first.input_shapes, first.stack
        self.is_user_annotation = first.is_user_annotation
        self.count, self.cpu_time_total, self.self_cpu_time_total = 0, 0.0, 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    def add(self, event: FunctionEvent) -> FunctionEventAvg:
        self.count += 1
        # The time of a function that calls itself counts once.
        parent = event.cpu_parent
        while parent is not None and parent.key != event.key:
            parent = parent.cpu_parent
        if parent is None:
            self.cpu_time_total += event.cpu_time_total
            self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_time_total += event.self_cpu_time_total
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        return self

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
                f"input_shapes={self.input_shapes}>")


class EventList(list):
    """Events in the order of their beginnings, or sums of them."""

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums by name; and by shapes of inputs, or by the innermost lines of the program."""
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key = (event.key, event.is_kernel, str(event.input_shapes) if group_by_input_shape else "",
                   tuple(event.stack[:group_by_stack_n]))
            groups.setdefault(key, FunctionEventAvg(event)).add(event)
        for average in groups.values():
            average.input_shapes = average.input_shapes if group_by_input_shape else []
            average.stack = average.stack[:group_by_stack_n]
        return EventList(groups.values())

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg(FunctionEvent("Total", 0, 0, 0, None, [], 0, False))
        for e in self:
            total.count += e.count
            total.self_cpu_time_total += e.self_cpu_time_total
            total.cpu_time_total += e.self_cpu_time_total
        return total

    self_cpu_time_total = property(lambda self: sum(e.self_cpu_time_total for e in self))

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
              max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
              time_unit: str | None = None) -> str:
        """The events for people, sorted by an attribute such as "cpu_time_total" from the greatest down."""
        if time_unit not in (None, *_UNITS):
            raise ValueError(f"table: time_unit is {time_unit!r}; must be one of {tuple(_UNITS)}")
        events = [e for e in self if not (top_level_events_only and getattr(e, "cpu_parent", None) is not None)]
        if sort_by is not None:
            events.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        whole = sum(e.self_cpu_time_total for e in self) or 1.0
        columns: list[tuple[str, Any]] = [
            ("Name", lambda e: _cut(e.key, max_name_column_width)),
            ("Self CPU %", lambda e: f"{100 * e.self_cpu_time_total / whole:.2f}%"),
            ("Self CPU", lambda e: time_text(e.self_cpu_time_total, time_unit)),
            ("CPU total %", lambda e: f"{100 * e.cpu_time_total / whole:.2f}%"),
            ("CPU total", lambda e: time_text(e.cpu_time_total, time_unit)),
            ("CPU time avg", lambda e: time_text(e.cpu_time, time_unit)),
        ]
        if any(e.cpu_memory_usage for e in events):
            columns += [("CPU Mem", lambda e: memory_text(e.cpu_memory_usage)), ("Self CPU Mem",
                                                                                 lambda e: memory_text(e.self_cpu_memory_usage))]
        columns.append(("# of Calls", lambda e: str(e.count)))
        if any(e.input_shapes for e in events):
            columns.append(("Input Shapes", lambda e: _cut(str(e.input_shapes), max_shapes_column_width)))
        if any(e.stack for e in events):
            columns.append(("Source Location", lambda e: _cut(e.stack[0] if e.stack else "", max_src_column_width)))
        rows = [[text(e) for _, text in columns] for e in (events if row_limit < 0 else events[:row_limit])]
        return _grid([title for title, _ in columns], rows,
                     header) + f"Self CPU time total: {time_text(whole if events else 0.0, time_unit)}\n"

    def __str__(self) -> str:
        return self.table()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _grid(titles: list[str], rows: list[list[str]], header: str | None) -> str:
    widths = [max(12, *(len(r[i]) for r in [titles, *rows])) for i in range(len(titles))]
    line = "  ".join("-" * w for w in widths)
    text = [line, *([header, line] if header else []), "  ".join(t.rjust(w) for t, w in zip(titles, widths)), line]
    return "\n".join([*text, *("  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in rows), line, ""])


def nested(events: Iterable[FunctionEvent], begin_ns: int) -> EventList:
    """The events with those that they lie within as parents, on each thread."""
    ordered = sorted(events, key=lambda e: (e.begin_ns, -e.end_ns))
    open_: dict[Any, list[FunctionEvent]] = {}
    for i, event in enumerate(ordered):
        stack = open_.setdefault(event.thread, [])
        while stack and stack[-1].end_ns <= event.begin_ns and not (stack[-1].end_ns == event.begin_ns == event.end_ns):
            stack.pop()
        event.id, event.cpu_parent, event.cpu_children = i, stack[-1] if stack else None, []
        event.time_range = TimeRange((event.begin_ns - begin_ns) / 1e3, (event.end_ns - begin_ns) / 1e3)
        if event.cpu_parent is not None:
            event.cpu_parent.cpu_children.append(event)
            event.cpu_parent.self_cpu_memory_usage -= event.cpu_memory_usage
        stack.append(event)
    return EventList(ordered)
