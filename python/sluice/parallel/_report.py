"""Shows in text what lies where."""

from __future__ import annotations

from typing import Any

from sluice import _C, sbp as _sbp
from sluice._tensor.global_tensors import placement


def _located(t: Any) -> tuple[placement, str, list[list[tuple[int, int]]]]:
    if not t.is_global:
        raise RuntimeError("visualize_sharding: the tensor is local; only global tensors lie on several devices (see to_global)")
    where, text = t.placement, _sbp.text(t.sbp, len(t.shape))
    return where, text, _C.layout_spans(list(t.shape), where._mesh, text)


def visualize_sharding(t: Any, *, width: int = 9) -> str:
    """Which part of a global tensor is on which device, as text: of a tensor of one or two dims a grid of its parts with the
    numbers of the devices that have them; of others a line for each device. Copies and addends stand in one part."""
    where, text, spans = _located(t)
    ranks = where._flat
    title = f"{tuple(t.shape)} {text} on {where}"
    if _sbp.partial_sum in t.sbp:
        title += ", of which devices in one part have addends" if len(ranks) > 1 else ""
    if not 1 <= len(t.shape) <= 2:
        lines = [f"{where.type} {rank}: [{', '.join(f'{start}:{end}' for start, end in span)}]" for rank, span in zip(ranks, spans)]
        return "\n".join([title, *lines])
    two = [[(0, 1), *span] if len(span) == 1 else span for span in spans]
    rows, columns = (sorted({span[dim] for span in two}) for dim in (0, 1))
    cells = [[f"{where.type} " + ",".join(str(rank) for rank, span in zip(ranks, two) if tuple(span) == (row, column))
              for column in columns] for row in rows]
    width = max(width, *(len(cell) + 2 for line in cells for cell in line))
    rule = "+".join(["", *("-" * width for _ in columns), ""])
    lines = [title, rule]
    for line in cells:
        lines += ["|".join(["", *(cell.center(width) for cell in line), ""]), rule]
    return "\n".join(lines)


def conversions(graph: Any) -> str:
    """A table of the tensors that a compiled graph moves from one layout to another: the kind, the module that wants it, from
    where to where, and the bytes that travel between devices in a call; and their sum."""
    found = graph._call.session.conversions()
    rows = [("kind", "module", "from", "to", "bytes")]
    rows += [(kind, module or "(graph)", old, new, f"{bytes:,.0f}") for kind, module, old, new, bytes in found]
    rows.append(("all", "", "", "", f"{sum(bytes for *_, bytes in found):,.0f}"))
    return _table(rows, right=1)


def _table(rows: list[tuple[str, ...]], right: int) -> str:
    """Columns, of which the last ones, so many, end at their right."""
    left = len(rows[0]) - right
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)


def layout_costs(graph: Any) -> str:
    """A table of what `graph.config.enable_auto_parallel()` has looked at in a compiled graph: for each value that may lie in several
    ways what a step is predicted to cost then, where all other values lie as they were chosen (`*`). First what the layouts
    cost that are chosen node by node, and those found."""
    greedy, found, tried, candidates = graph._call.session.layout_search()
    if not tried:
        raise RuntimeError("layout_costs: the graph was compiled without a search; call graph.config.enable_auto_parallel() first")

    def costs(bytes: float, conversions: int, flops: float) -> tuple[str, ...]:
        return f"{bytes:,.0f}", str(conversions), f"{flops:,.0f}"

    rows = [("value", "type", "sbp", "", "bytes", "conversions", "flops", "cost")]
    rows += [("node by node", "", "", "", *costs(*greedy), ""), (f"the best of {tried}", "", "", "", *costs(*found), "")]
    last = None
    for value, alike, type, sbp, cost, total, chosen in candidates:
        name = "" if value == last else value if alike == 1 else f"{value} and {alike - 1} alike"
        rows.append((name, type, sbp, "*" if chosen else "", *costs(*cost), f"{total:,.0f}"))
        last = value
    return _table(rows, right=4)
