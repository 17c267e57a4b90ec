"""What training takes under several schemes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from sluice import _C
from sluice._graph.bundle import save_graph
from sluice.tiny._quantize import quantize
from sluice.tiny._training import PRESETS, TrainStep


@dataclass(frozen=True)
class MemoryRow:
    """Bytes of a scheme: RAM has the values of a step and what it changes; flash the rest, and what RAM begins with.

    memory: of values, in the order that the compiler finds; late: in the order of a program whose weights change behind the whole
    backward pass, as those of an optimizer do, so that all gradients wait.
    """

    scheme: str
    memory: int
    late: int
    state: int
    constants: int

    @property
    def ram(self) -> int:
        return self.memory + self.state

    @property
    def late_ram(self) -> int:
        return self.late + self.state

    @property
    def flash(self) -> int:
        return self.constants + self.state


class MemoryTable(list):
    """Rows by scheme; as text a table. Its last columns say how many times less RAM each takes than the first one does in the
    order of the program: by the scheme alone, and with the compiler's order, too."""

    def __str__(self) -> str:
        lines = [f"{'scheme':<16}{'flash':>10}{'that changes':>14}{'RAM as written':>16}{'RAM reordered':>15}{'less':>8}{'reordered':>11}"]
        for row in self:
            lines.append(f"{row.scheme:<16}{row.flash:>10}{row.state:>14}{row.late_ram:>16}{row.ram:>15}"
                         f"{self[0].late_ram / row.late_ram:>7.1f}x{self[0].late_ram / row.ram:>10.1f}x")
        return "\n".join(lines)


def ledger(net: Any, example: Any, scheme: Any, late: bool = False) -> Any:
    """What a step takes as C: memory, state and constants. Nothing is computed; the network's own scheme is another one then."""
    step = TrainStep(net, lr=0.01, scheme=scheme, late=late)
    step.compile(*example)
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        path = os.path.join(folder, "bundle")
        save_graph(step, path)
        return _C.c_source(path, "step", order="program" if late else "memory")


def memory_table(model: Any, batches: Iterable[Any], example: Any, schemes: Any = PRESETS) -> MemoryTable:
    """The bytes that a training step takes as C, for each scheme, exactly as export() would have it; nothing is trained.

    model, batches: as quantize() takes them. example: the arguments of a step. schemes: as Scheme.of() takes them, or a dict of
    them by the names that the table shows.
    """
    named = schemes if isinstance(schemes, Mapping) else {str(scheme): scheme for scheme in schemes}
    net, table = quantize(model, batches), MemoryTable()
    for name, scheme in named.items():
        made, late = (ledger(net, example, scheme, late) for late in (False, True))
        table.append(MemoryRow(name, made.memory, late.memory, made.state, made.constants))
    return table
