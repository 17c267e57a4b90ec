"""A picture of a step: what computes the answer, what the gradients, and what changes weights."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

from sluice import _C

COLOURS = {"forward": "#bfdbfe", "backward": "#fed7aa", "update": "#bbf7d0"}
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 150, 30, 190, 44, 24


@dataclass
class Node:
    """A kernel of the plan. part: "forward" if a result of the step depends on it, "update" if it writes a variable, else "backward".
    depth: the length of the longest way to it."""

    name: str
    op: str
    part: str
    result: str
    depth: int
    inputs: tuple[int, ...]  # nodes


def nodes_of(plan: dict[str, Any]) -> list[Node]:
    """In the order in which they run."""
    order = [index for actor in plan["certificate"] for what, index in plan["actors"][actor]["program"] if what == "run"]
    written: dict[tuple[str, int], int] = {}
    nodes: list[Node] = []

    def place(view: dict[str, Any]) -> tuple[str, int]:
        return (view["base"], view["index"]) if view["base"] != "register" else ("buffer", plan["registers"][view["index"]]["slots"][0])

    for at, index in enumerate(order):
        kernel = plan["kernels"][index]
        inputs = sorted({written[p] for p in map(place, kernel["inputs"]) if p in written})
        changes = any(view["base"] == "variable" for view in kernel["outputs"])
        first = kernel["outputs"][0] if kernel["outputs"] else {"dtype": "", "shape": ""}
        nodes.append(Node(kernel["name"], kernel["op"], "update" if changes else "backward", f"{first['dtype']}{first['shape']}",
                          1 + max((nodes[i].depth for i in inputs), default=-1), tuple(inputs)))
        for view in kernel["outputs"]:
            written[place(view)] = at
    seen, left = set(), [written[p] for p in (place(output["view"]) for output in plan["outputs"]) if p in written]
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            nodes[at].part = "forward" if nodes[at].part != "update" else "update"
            left += nodes[at].inputs
    return nodes


def draw(step: Any, path: Any) -> None:
    """Writes an SVG of a compiled step: a box for each kernel, of three colours, which stands right of all that it reads from. A pointer
    over a box sees its name and its result.

    step: an nn.Graph after its first call, or compile().
    """
    nodes = nodes_of(step.plan)
    if not nodes:
        raise _C.ValueError("tiny.draw: the plan has no kernels; give a step that computes something")
    rows, taken = [], Counter[int]()
    for node in nodes:
        rows.append(taken[node.depth])
        taken[node.depth] += 1

    def corner(at: int) -> tuple[int, int]:
        return _MARGIN + nodes[at].depth * _ACROSS, 2 * _MARGIN + rows[at] * _DOWN

    width = 2 * _MARGIN + (max(taken) + 1) * _ACROSS
    height = 3 * _MARGIN + max(taken.values()) * _DOWN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">']
    for i, (part, colour) in enumerate(COLOURS.items()):
        count = sum(node.part == part for node in nodes)
        lines.append(f'<rect x="{_MARGIN + i * _ACROSS}" y="8" width="14" height="14" fill="{colour}"/>'
                     f'<text x="{_MARGIN + i * _ACROSS + 20}" y="19">{part}: {count}</text>')
    for at, node in enumerate(nodes):
        x, y = corner(at)
        for source in node.inputs:
            left, top = corner(source)
            a, b, middle = left + _WIDTH, top + _HEIGHT // 2, (left + _WIDTH + x) // 2
            lines.append(f'<path d="M{a},{b} C{middle},{b} {middle},{y + _HEIGHT // 2} {x},{y + _HEIGHT // 2}" fill="none" stroke="#94a3b8"/>')
    for at, node in enumerate(nodes):
        x, y = corner(at)
        label = node.name if len(node.name) <= 24 else "…" + node.name[-23:]
        lines.append(f'<g class="{node.part}"><title>{escape(node.name)} ({escape(node.op)}): {escape(node.result)}</title>'
                     f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{COLOURS[node.part]}" stroke="#475569"/>'
                     f'<text x="{x + 6}" y="{y + 19}">{escape(label)}</text></g>')
    with open(os.fsdecode(path), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>\n"]))
