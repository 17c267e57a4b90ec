"""The language of rows.py: what is known of an op's arguments beyond its signature, in a line.

    mm           input=[n k] mat2=[k m]
    nll_loss     input=[N C *d]:any target=[N *d]:index<C weight?=[C]:positive @floats

`name=[n k]` is a tensor of these sizes: letters are drawn once a case (a capital is at least 1), `*d` is none to two sizes,
`...` are sizes of batches that broadcast, anything else is an expression. After it `:domain` of the values (draw.DOMAINS,
`index<C`, `signs`, `mask`) or `:float32`, `:wide` ..., a dtype of its own. `name=1|(2,2)` is one of these, `name=0..n` a whole number, `dim` and
`dims` are dims of the first tensor, `-` leaves the default, `name?=` is left out by chance. `@floats` are the dtypes that are
drawn, `@positive` the domain of all tensors, `!grad`, `!double`, `!graph`, `!forms` what is not compared, `!edges` that no
NaN, infinities and ties are drawn, `!layouts` that all tensors are contiguous, `!wrong` that no argument
is made wrong, `!strict` that rounding counts for more. `;` parts alternatives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sluice.testing.autotest.arrays import DType
from sluice.testing.autotest.draw import DOMAINS, DTYPES, Draw


@dataclass
class Row:
    values: dict[str, str] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    dtypes: str = "any"
    domain: str = "any"
    without: set[str] = field(default_factory=set)


@lru_cache(maxsize=None)
def parse(text: str) -> list[Row]:
    rows = []
    for part in text.split(";"):
        row = Row()
        for token in re.findall(r"[\w?]+=\[[^\]]*\](?::\S+)?|\S+", part):
            if token[0] == "!":
                row.without.add(token[1:])
            elif token[0] == "@":
                kind = token[1:]
                if kind in DOMAINS and kind != "any":
                    row.domain = kind
                else:
                    row.dtypes = kind
            else:
                name, _, value = token.partition("=")
                if name.endswith("?"):
                    name = name[:-1]
                    row.optional.add(name)
                row.values[name] = value
        rows.append(row)
    return rows


class Sizes(dict[str, Any]):
    """Letters and what they stand for, drawn when first asked for."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.batch: tuple[int, ...] | None = None
        super().__init__(torch=DTypes())

    def __missing__(self, letter: str) -> int:
        if len(letter) != 1:
            raise KeyError(letter)
        self[letter] = max(self.draw.size(), 1 if letter.isupper() else 0)
        return int(self[letter])

    def evaluate(self, text: str) -> Any:
        return eval(text, {"__builtins__": {"max": max, "min": min, "float": float, "range": range, "list": list}}, self)

    def shape(self, text: str) -> tuple[int, ...]:
        made: list[int] = []
        for token in text.split():
            if token == "...":
                if self.batch is None:
                    self.batch = self.draw.shape((0, 0, 0, 1, 1, 2))
                made += self.draw.broadcast(self.batch)
            elif token[0] == "*":
                if token not in self:
                    self[token] = self.draw.shape((0, 1, 2))
                made += self[token]
            else:
                made.append(int(self.evaluate(token)))
        return tuple(made)


class DTypes:
    def __getattr__(self, name: str) -> DType:
        return DType(name)


def value_of(text: str, sizes: Sizes, dtype: str, domain: str, rank: int, special: float = 0.0) -> Any:
    """The value that a row describes for one argument."""
    draw = sizes.draw
    if text[0] == "[" and "]" in text:
        inner, _, kind = text[1:].partition("]")
        kind = kind.lstrip(":") or domain
        if kind.startswith("index<"):
            kind = f"index<{sizes.evaluate(kind[6:])}"
        elif kind in DTYPES and kind not in DOMAINS or kind in ("float32", "float64", "int64"):
            dtype, kind = draw.dtype(kind), "any"
        return draw.array(sizes.shape(inner), dtype, kind, special)
    if text[0] != "[":
        text = draw.pick(_choices(text))
    if text == "dim":
        return draw.whole(-rank, rank - 1) if rank else draw.pick((0, -1))
    if text == "dims":
        return some_dims(draw, rank)
    if ".." in text:
        low, high = text.split("..")
        return draw.whole(sizes.evaluate(low), sizes.evaluate(high))
    return sizes.evaluate(text)


def _choices(text: str) -> list[str]:
    """The parts between "|" that stand in no string."""
    return re.findall(r"(?:'[^']*'|[^|])+", text)


def some_dims(draw: Draw, rank: int, least: int = 0) -> tuple[int, ...]:
    dims = draw.random.sample(range(rank), draw.whole(min(least, rank), rank))
    return tuple(i - rank if draw.chance(0.3) else i for i in dims)
