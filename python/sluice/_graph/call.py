"""Calls of a compiled graph: compare the nest of the arguments, submit a step, give the results theirs."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.structure import difference
from sluice._graph import recording
from sluice._graph.donation import check_donated
from sluice._graph.given import Given
from sluice._graph.report import memory_report
from sluice._tensor.host_function import begin_anew


def order_of(tensor: Any) -> tuple[int, ...] | None:
    """The strides of an argument as far as they can matter: None where it is contiguous, or global."""
    return None if tensor._global or tensor.is_contiguous() else tensor.stride()


class GraphCall:
    """A plan as build() has it, in nests of arguments and results, while its session knows lists of tensors.

    layouts: by number, the strides (order_of) of inputs on which the graph depends.
    """

    def __init__(self, name: Any, session: Any, arguments: Any, inputs: Any, results: Any, functions: Any,
                 layouts: Any = None) -> None:
        self.name, self.session, self._functions = name, session, functions
        self._arguments, self.results = arguments, results
        self.inputs, self.layouts = inputs, layouts or {}
        self.donated: frozenset[str] = frozenset()  # inputs whose memory calls take
        self.timeout_s = -1.0  # of a submission at capacity; negative: none
        self.first_steps = None  # being measured
        self.blocks: dict[str, int] = {}  # of memory that it shares with other plans: bytes by space

    def __call__(self, given: Given) -> Any:
        return self.results.build(iter(self.submit(self.check(given))))

    def submit(self, inputs: Any) -> Any:
        """The results of a step, as a list."""
        recording.runs(self)
        if recording.capturing():
            outputs = recording.captured(self, inputs, lambda: self.session.call(inputs, self.timeout_s))
        else:
            outputs = self.session.call(inputs, self.timeout_s)
        first, self.first_steps = self.first_steps, None
        if first is not None and first.called():
            self.first_steps = first
        return outputs

    def try_call(self, given: Given) -> Any:
        """None, and nothing submitted, where a call would block."""
        inputs = self.check(given)
        recording.runs(self)
        if recording.capturing():
            outputs = recording.captured(self, inputs, lambda: self.session.try_call(inputs))
        else:
            outputs = self.session.try_call(inputs)
        return None if outputs is None else self.results.build(iter(outputs))

    def check(self, given: Given) -> Any:
        """The tensors of `given`. Throws for what only Python knows of them; the session looks at shapes and dtypes."""
        structure, leaves, names = given
        if structure != self._arguments:
            raise _C.TypeError(f"graph '{self.name}': " + (difference(self._arguments, structure, "") or "arguments differ"))
        if self.donated:
            check_donated(self.name, self.donated, names, leaves)
        for i, order in self.layouts.items():
            if order_of(leaves[i]) != order:
                raise _C.ValueError(f"graph '{self.name}': argument '{names[i]}' has strides {leaves[i].stride()}; expected "
                                    f"{order or 'it to be contiguous'}, as when the graph was compiled, since build() does "
                                    "something else for other strides")
        return leaves

    def prepare(self, given: Given) -> None:
        """Compiles what a call with such arguments runs: it is there."""

    def sessions(self) -> list[Any]:
        """The sessions of all plans."""
        return [self.session]

    def functions(self) -> Any:
        """The functions of its host streams, by name."""
        return self._functions

    def synchronize(self) -> None:
        self.session.synchronize()

    def reset(self) -> None:
        """Steps begin anew, and with them host functions that can."""
        self.session.reset()
        begin_anew(self._functions)

    def memory(self) -> Any:
        return memory_report(self.session)

    def save(self, directory: str) -> None:
        self.session.save(directory)
