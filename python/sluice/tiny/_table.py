"""What training takes under several schemes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from sluice import _C
from sluice._graph.bundle import save_graph
from sluice.tiny._int8 import quantize
from sluice.tiny._training import PRESETS, TrainStep


@dataclass(frozen=True)
class MemoryRow:
    """Bytes of a scheme: RAM has the values of a step and what it changes; flash the rest, and what RAM begins with."""

    scheme: str
    memory: int
    state: int
    constants: int

    @property
    def ram(self) -> int:
        return self.memory + self.state


class MemoryTable(list):
    """Rows by scheme; as text a table, with how many times less RAM each takes than the first one."""

    def __str__(self) -> str:
        lines = [f"{'scheme':<16}{'RAM':>10}{'of a step':>12}{'that changes':>14}{'flash':>10}{'less':>8}"]
        for row in self:
            lines.append(f"{row.scheme:<16}{row.ram:>10}{row.memory:>12}{row.state:>14}{row.constants + row.state:>10}"
                         f"{self[0].ram / row.ram:>7.1f}x")
        return "\n".join(lines)


def memory_table(model: Any, batches: Iterable[Any], example: Any, schemes: Any = PRESETS) -> MemoryTable:
    """The bytes that a training step takes as C, for each scheme, exactly as export() would have it; nothing is trained.

    model, batches: as quantize() takes them. example: the arguments of a step. schemes: as Scheme.of() takes them, or a dict of
    them by the names that the table shows.
    """
    named = schemes if isinstance(schemes, Mapping) else {str(scheme): scheme for scheme in schemes}
    inputs, table = list(batches), MemoryTable()
    for name, scheme in named.items():
        step = TrainStep(quantize(model, inputs), lr=0.0, scheme=scheme)
        step(*example)
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            path = os.path.join(folder, "bundle")
            save_graph(step, path)
            made = _C.c_source(path, "step")
        table.append(MemoryRow(name, made.memory, made.state, made.constants))
    return table
