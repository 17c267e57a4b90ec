"""A case of an op, from the signatures of its form and what rows.py adds to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.arrays import COMPLEX, FLOATS, Array, Case, DType
from sluice.testing.autotest.complex_numbers import share
from sluice.testing.autotest.draw import DOMAINS, Draw
from sluice.testing.autotest.language import Row, Sizes, parse, some_dims, value_of
from sluice.testing.autotest.signatures import Parameter, parameters

SPECIAL = 0.12  # the share of cases with NaN, infinities and ties
CHOICES = {"reduction": ("mean", "sum", "none"), "interpolation": ("linear", "lower", "higher", "midpoint", "nearest"),
           "rounding_mode": (None, "floor", "trunc"), "UPLO": ("L", "U"), "indexing": ("ij", "xy"),
           "approximate": ("none", "tanh"),
           "memory_format": (None,), "reduce": ("add", "multiply")}
LEFT = {"size_average", "reduce", "_stacklevel", "inplace", "memory_format", "out", "sparse_grad", "check_errors", "compute_mode",
        "sparse"}


def case_of(op: str, signatures: list[str], row: str | Callable[[Draw], Any], draw: Draw) -> tuple[Case, Row]:
    """A case, which torch may refuse; and the row it was drawn by."""
    draw.complex = share(op)
    if callable(row):
        made = row(draw)
        args, keywords, flags = made if len(made) == 3 else (*made, "")
        return Case(op, list(args), dict(keywords)), parse(flags)[0]
    chosen = draw.pick(parse(row))
    draw.ties, draw.layouts = "edges" not in chosen.without, "layouts" not in chosen.without
    signature = draw.pick([s for s in map(parameters, signatures) if {*chosen.values} <= {p.name for p in s}] or
                          [parameters(s) for s in signatures])
    args, keywords = _arguments(signature, chosen, draw)
    case = Case(op, args, keywords)
    return (_mutated(case, draw) if draw.chance(0.12) and "wrong" not in chosen.without else case), chosen


def _arguments(signature: list[Parameter], row: Row, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    sizes, dtype = Sizes(draw), draw.dtype(row.dtypes)
    domain = row.domain if draw.chance(0.85) else "any"
    special = SPECIAL if domain == "any" and "edges" not in row.without else 0.0
    first: Array | None = None
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    positional = True
    for p in signature:
        if p.name in row.values and not (p.name in row.optional and draw.chance(0.5)) and row.values[p.name] != "-":
            value = value_of(row.values[p.name], sizes, dtype, domain, len(first.shape) if first else 0, special)
        elif not p.required and (p.name in LEFT or p.name in row.values or draw.chance(0.45)):
            positional = False
            continue
        else:
            value = _by_kind(p, first, dtype, domain, special, draw)
            if value is _LEAVE:
                positional = False
                continue
        if first is None:
            first = next((v for v in (value if isinstance(value, list) else [value]) if isinstance(v, Array)), None)
        if p.kind.endswith("..."):
            args += value
            positional = False
        elif positional and not p.keyword_only and (p.required or draw.chance(0.6)):
            args.append(value)
        else:
            positional = False
            keywords[p.name] = value
    return args, keywords


_LEAVE = object()


def _by_kind(p: Parameter, first: Array | None, dtype: str, domain: str, special: float, draw: Draw) -> Any:
    kind, nullable = p.kind.rstrip("?"), p.nullable
    rank = len(first.shape) if first is not None else 0
    if nullable and p.default is None and draw.chance(0.3):
        return None
    if kind == "Tensor" or kind == "Operand" and draw.chance(0.6):
        if nullable:
            return _LEAVE
        if first is None:
            return draw.array(draw.shape(), dtype, domain, special)
        other = draw.dtype("any") if draw.chance(0.12) else dtype
        return draw.array(draw.broadcast(first.shape), other, domain, special)
    if kind in ("Tensor[]", "Tensor..."):
        shape = draw.shape()
        return [draw.array(shape, dtype, domain, special) for _ in range(draw.whole(1, 3))]
    if kind in ("Operand", "Scalar"):
        return _number(draw, domain, dtype)
    if kind == "float":
        return round(draw.random.uniform(0.1, 2.0), 2)
    if kind == "bool":
        return draw.chance(0.5)
    if kind == "ScalarType":
        return DType(draw.pick(("float64", "float32", "int64")))
    if p.name in ("dim", "dim0", "dim1", "dim2", "axis0", "axis1", "start_dim", "end_dim", "dimension"):
        if kind.startswith("int[") and draw.chance(0.5):
            return some_dims(draw, rank)
        return draw.whole(-rank, rank - 1) if rank else draw.pick((0, -1))
    if p.name == "dims" and kind.startswith("int["):
        return some_dims(draw, rank)
    if kind == "int":
        return draw.whole(-2, 3)
    if kind == "str":
        return draw.pick(CHOICES[p.name])
    raise LookupError(f"parameter {p.kind} {p.name}: a line of rows.py must say what it may be")


def _number(draw: Draw, domain: str, dtype: str) -> Any:
    if dtype in COMPLEX and draw.chance(0.5):
        return complex(round(draw.random.uniform(-2.0, 2.0), 2), round(draw.random.uniform(-2.0, 2.0), 2))
    if dtype not in FLOATS + COMPLEX and draw.chance(0.8):
        return draw.whole(1 if domain == "positive" else -4, 5)
    low, high = DOMAINS[domain] if domain in ("positive", "prob", "unit", "above1") else (-3.0, 3.0)
    return round(draw.random.uniform(low, high), 2) if draw.chance(0.7) else draw.pick((0, 1, 2, -1, True))


def _mutated(case: Case, draw: Draw) -> Case:
    """With one argument that may be wrong."""
    place = draw.pick([("args", i) for i in range(len(case.args))] + [("keywords", k) for k in case.keywords])
    values = list(case.args) if place[0] == "args" else dict(case.keywords)
    values[place[1]] = _wrong(values[place[1]], draw)  # type: ignore[index]
    return replace(case, **{place[0]: values})


def _wrong(value: Any, draw: Draw) -> Any:
    if isinstance(value, Array):
        v = value.values
        kind = draw.pick(("dtype", "longer", "deeper", "flatter", "empty", "None", "number"))
        if kind == "dtype":
            dtype = draw.dtype("any")
            low = 0 if dtype == "uint8" else -100  # cut rather than wrapped, so that what is sorted stays so
            finite = np.clip(np.nan_to_num(np.real(v).astype(np.float64)), low, 100) if v.dtype.kind in "fc" else v
            return replace(value, values=finite.astype("float32" if dtype == "bfloat16" else dtype), dtype=dtype)
        if kind == "longer" and v.ndim and draw.ties:
            axis = draw.whole(0, v.ndim - 1)
            return replace(value, values=np.concatenate([v, v[(slice(None),) * axis + (slice(0, 1),)]], axis)).fitting()
        if kind == "flatter" and v.ndim and v.shape[0]:
            return replace(value, values=np.array(v[0]), layout="plain")
        if kind == "empty" and v.ndim:
            return replace(value, values=v[:0], layout="plain")
        if kind == "deeper":
            return replace(value, values=v[None], layout="plain")
        return None if kind == "None" else 2
    if isinstance(value, bool):
        return draw.pick((None, "text", 1))
    if isinstance(value, int):
        return draw.pick((value + 7, -value - 7, None, 1.5, "text", True, (value,)))
    if isinstance(value, (float, complex)):
        return draw.pick((None, "text", (value,), 3))
    if isinstance(value, (tuple, list)):
        return draw.pick(((*value, 9), value[:-1], (*value, *value), None, "text", 1.5))
    return draw.pick((1.5, "no such", 3))
