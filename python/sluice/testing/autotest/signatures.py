"""Facts about parameters: the text of a form's signature, in parts."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameter:
    kind: str  # as in a form: "Tensor", "int[1]?", "Operand"
    name: str
    keyword_only: bool
    required: bool
    default: Any

    @property
    def nullable(self) -> bool:
        return self.kind.endswith("?")


def parameters(signature: str) -> list[Parameter]:
    """The parameters of "name(Tensor input, *, int dim=0) -> Tensor"."""
    inner = signature[signature.index("(") + 1:signature.rindex(") ->")]
    keyword_only, depth, parts = False, 0, [""]
    for c in inner:
        depth += (c == "[") - (c == "]")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    found = []
    for part in (p.strip() for p in parts):
        if part == "*":
            keyword_only = True
        elif part:
            declared, equals, default = part.partition("=")
            kind, name = declared.rsplit(" ", 1)
            found.append(Parameter(kind, name, keyword_only, not equals, ast.literal_eval(default) if equals else None))
    return found
