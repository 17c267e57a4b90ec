"""Values that a backward pass reads, and the places where they are when the forward plan has run."""

from __future__ import annotations

from typing import Any

from sluice._compile.capture import Run
from sluice._compile.text import Lines


class Saved:
    """"plan" (a number of the forward plan's results), "input" (a number), "object" (itself), and the shape to see it in, if another."""

    __slots__ = ("kind", "value", "shape")

    def __init__(self, kind: str, value: Any, shape: Any = None) -> None:
        self.kind, self.value, self.shape = kind, value, shape

    def key(self) -> Any:
        """Equal for what is the same tensor."""
        return self.kind, id(self.value) if self.kind == "object" else self.value


class Places:
    """The places of the numbers `read` that a run has saved: each value is kept once, and a reshape of one is not.

    keep: the numbers that the forward plan has to return by themselves.
    """

    def __init__(self, run: Run, lines: Lines, read: list[int]) -> None:
        first: dict[str, Saved] = {value: Saved("input", i) for i, value in enumerate(lines.inputs) if i not in run.written}
        for number, value in enumerate(lines.outputs[:len(run.plan_results)]):
            first.setdefault(value, Saved("plan", number))
        values = {n: lines.outputs[at] for n, at in run.saved_at.items()}
        owners: dict[str, int] = {}
        for n in read:
            if n in values:
                owners.setdefault(values[n], n)
        self._found: dict[int, Saved] = {}
        keep = set()
        for n in read:
            t = run.saved[n]
            if not t._traced:
                self._found[n] = Saved("object", t)
                continue
            whole = lines.reshaped(values[n])
            shape = tuple(t.shape) if whole is not None and (whole in first or whole in owners) else None
            value = whole if shape is not None and whole is not None else values[n]
            if value not in first:
                first[value] = Saved("saved", owners[value])
                keep.add(owners[value])
            self._found[n] = Saved(first[value].kind, first[value].value, shape)
        self.keep = sorted(keep)

    def settled(self, run: Run) -> tuple[list[Saved], dict[int, tuple[int, Any]]]:
        """(each tensor once, and of each number which of them, and in what shape), for the run whose plan returns what is kept."""
        distinct: list[Saved] = []
        at: dict[int, tuple[int, Any]] = {}
        numbers: dict[Any, int] = {}
        for n, s in self._found.items():
            where = Saved("plan", run.saved_at[s.value]) if s.kind == "saved" else s
            if where.key() not in numbers:
                numbers[where.key()] = len(distinct)
                distinct.append(where)
            at[n] = numbers[where.key()], s.shape
        return distinct, at
