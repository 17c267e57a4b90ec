"""Reads what the text of a graph says of its outputs."""

from __future__ import annotations

import re
_NODE = re.compile(r"^  (%\d+(?:, %\d+)*) = (\w+)(?: \"([^\"]*)\"|\(([^)]*)\))(.*)$")


class Lines:
    """outputs: in order, the value that each is. Values are texts like "%7"."""

    def __init__(self, text: str) -> None:
        self.outputs: list[str] = []
        self.inputs: list[str] = []
        self._variables: set[str] = set()
        self._nodes: dict[str, tuple[str, str, str]] = {}
        for line in text.splitlines():
            if line.startswith("  output "):
                self.outputs.append(line.rpartition(" = ")[2].split()[0])
                continue
            node = _NODE.match(line)
            if not node:
                continue
            values, op, name, operands, rest = node.groups()
            if op == "input":
                self.inputs.append(values)
            elif op in ("variable", "constant"):
                self._variables.add(values)
            else:
                for value in values.split(", "):
                    self._nodes[value] = op, operands or "", rest

    def is_given(self, value: str) -> bool:
        """An input or a variable itself."""
        return value in self._variables or value in self.inputs

    def reshaped(self, value: str) -> str | None:
        """The value that `value` is a reshape of; None: it is none."""
        found = None
        while value in self._nodes and self._nodes[value][0] == "reshape":
            found = value = self._nodes[value][1].split(", ")[0]
        return found

