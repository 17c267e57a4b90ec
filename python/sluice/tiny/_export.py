"""A graph as a folder of C."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from sluice import _C
from sluice._base.structure import flatten
from sluice._graph.bundle import save_graph

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "K": 1 << 10, "MB": 1 << 20, "M": 1 << 20}


@dataclass(frozen=True)
class Tensor:
    """What one tensor takes. kind: "memory" of a step, "state" that steps change, or "constant". Values of a step lie at `offset`
    of its memory, where others lie at other times."""

    name: str
    kind: str
    bytes: int
    offset: int
    section: str = ""  # of the linker, where export() was told one


@dataclass(frozen=True)
class Exported:
    """The files that were written, and the bytes that they need: RAM has `memory` and `state`; flash has `constants`, and what
    `state` begins with."""

    directory: str
    name: str
    files: tuple[str, ...]
    memory: int
    state: int
    constants: int
    tensors: tuple[Tensor, ...]


def bytes_of(where: str, size: Any) -> int:
    """256 * 1024 of "256KB"."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"(\d+)\s*(\w*)", size.strip()) if isinstance(size, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise _C.ValueError(f'{where}: {size!r}; must be a number of bytes, or a text as "256KB"')
    return int(match[1]) * _UNITS[match[2].upper()]


def _leaves(sample: Any) -> list[Any]:
    leaves: list[Any] = []
    flatten(sample, "", leaves, [])
    return leaves


def export(graph: Any, directory: Any, *, name: str | None = None, samples: Iterable[Any] | None = None, flash: Any = "1MB",
           ram: Any = "256KB", memory_budget: Any = 0, sections: Mapping[str, str] | None = None) -> Exported:
    """Writes a compiled nn.Graph, a loaded graph, or the folder of a bundle as C99 to `directory`.

    There are NAME.c and NAME.h, which are all that a program needs, and what builds and checks them: a Makefile, a linker script
    with exactly the machine's memories, check.c, machine.c, and vectors.h with known steps. README.md says what each tensor takes.

    name: what names in C begin with; by default the graph's.
    samples: the inputs of steps, in order, each a nest of tensors as the graph takes them. The engine computes these steps on its
        device c:0, from the weights that the graph has now, and check.c compares every bit. None: one step on zeros.
    flash, ram: of the machine. Errors name the bytes that are too many and the largest tensors: here, when data alone do not fit,
        and from the linker, when they do not fit with the code.
    memory_budget: as GraphConfig has it; 0: none.
    sections: sections of the linker by the names of variables, in which * stands for any text, as in {"head.*": ".data.fast"}; the
        first that matches. Weights that stay lie in RAM in a section .data*; others need a linker script that has them
        (make LDSCRIPT=...). Elsewhere the macro before each array does the same.
    """
    if isinstance(graph, (str, os.PathLike)):
        return _export(os.fsdecode(graph), directory, name, samples, flash, ram, memory_budget, sections)
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        bundle = os.path.join(folder, "bundle")
        save_graph(graph, bundle)
        return _export(bundle, directory, name, samples, flash, ram, memory_budget, sections)


def _export(bundle: str, directory: Any, name: str | None, samples: Any, flash: Any, ram: Any, memory_budget: Any,
            sections: Mapping[str, str] | None) -> Exported:
    steps = [_leaves(sample) for sample in samples] if samples is not None else []
    budget = 0 if memory_budget == 0 else bytes_of("export: memory_budget", memory_budget)
    made, files = _C.c_project(bundle, name or "", steps, bytes_of("export: flash", flash), bytes_of("export: ram", ram), budget,
                                list((sections or {}).items()))
    path = os.fsdecode(directory)
    os.makedirs(path, exist_ok=True)
    for file, text in files.items():
        with open(os.path.join(path, file), "w") as out:
            out.write(text)
    return Exported(path, made.name, tuple(sorted(files)), made.memory, made.state, made.constants,
                    tuple(Tensor(*tensor) for tensor in made.tensors))
