"""Counters of everything that is compiled."""

from __future__ import annotations

import threading
from typing import Any

_NAMES = ("compiles", "recompiles", "plans", "backward_plans", "breaks", "calls", "eager_calls", "limits")
_lock = threading.Lock()
_counts = dict.fromkeys(_NAMES, 0)


def totals() -> dict[str, int]:
    with _lock:
        return dict(_counts)


def clear() -> None:
    with _lock:
        for name in _counts:
            _counts[name] = 0


class Counter(dict[str, int]):
    """Counts of one compiled callable, which are counted for all as well."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_NAMES, 0))
        self.warned: set[str] = set()  # places, or reasons, of breaks

    def count(self, name: str) -> None:
        with _lock:
            self[name] += 1
            _counts[name] += 1


class Explanation:
    """The explanation of compiling a call: `graphs` (text, ops and guards of each), `breaks` with reason and place."""

    def __init__(self, name: str, graphs: list[Any], breaks: list[Any]) -> None:
        self.name, self.graphs = name, graphs
        seen = {(b.place, b.kind, b.reason if not b.place else ""): b for b in breaks}
        self.breaks = list(seen.values())
        self.graph_count, self.break_count = len(graphs), len(self.breaks)
        self.graph_break_count = self.break_count
        self.break_reasons = [f"{b.place}: {b.reason}" if b.place else b.reason for b in self.breaks]
        self.ops_per_graph = [g["ops"] for g in graphs]
        self.op_count = sum(map(len, self.ops_per_graph))
        self.out_guards = [guard for g in graphs for guard in g["guards"]]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.graph_count} graph(s), {self.break_count} break(s), {self.op_count} op(s)"]
        lines += [f"  break {i}: {reason}" for i, reason in enumerate(self.break_reasons)]
        for i, g in enumerate(self.graphs):
            lines.append(f"  graph {i} '{g['name']}': {len(g['ops'])} ops: {' '.join(g['ops'])}")
            if g["backward_ops"]:
                lines.append(f"    backward: {len(g['backward_ops'])} ops: {' '.join(g['backward_ops'])}")
            lines += [f"    guard: {guard}" for guard in g["guards"]]
            lines += [f"    {line}" for line in g["notes"]]
        return "\n".join(lines)

    __repr__ = __str__
