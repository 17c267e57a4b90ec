"""What a graph tells about itself: print(graph), debug output, memory."""

from __future__ import annotations

import json
import math
import sys
from collections import OrderedDict
from typing import Any


def _indent(text: Any, by: str = "  ") -> Any:
    return text.replace("\n", "\n" + by)


def graph_repr(graph: Any) -> Any:
    """Config, inputs, parameters, modules, and once compiled ops and outputs."""
    lines = [f"(CONFIG): {graph.config!r}"]
    compiled = graph.is_compiled
    if compiled:
        lines += [f"(INPUT:{n}): {d.name}{tuple(s)}" for n, d, s in graph.inputs]
    for name, module in graph._blocks.items():
        lines.append(f"(MODULE:{name}): {module!r}")
        lines += [f"(PARAMETER:{name}.{n}): {p.dtype.name}{tuple(p.shape)}" for n, p in module.named_parameters()]
        lines += [f"(BUFFER:{name}.{n}): {b.dtype.name}{tuple(b.shape)}" for n, b in module.named_buffers()]
    lines += [f"(OPTIMIZER:{i}): {type(o).__name__}" for i, (o, _) in enumerate(graph._optimizers)]
    if compiled:
        lines += [_node_line(n) for n in graph._captured.nodes()]
        lines += [f"(OUTPUT:{n}): {d.name}{tuple(s)}" for n, d, s in graph.outputs]
    return f"{type(graph).__name__}(\n  " + "\n  ".join(map(_indent, lines)) + "\n)"


def _node_line(node: Any) -> Any:
    where = f" in {node['module']}" if node["module"] else ""
    return f"(OP:{node['op']}{where}): ({', '.join(map(str, node['inputs']))}) -> ({', '.join(map(str, node['outputs']))})"


class Debug:
    """Prints stages at level 0, modules at 1, ops at 2, their attributes and Python stacks at 3."""

    def __init__(self) -> None:
        self.level, self.stack_depth = -1, 2

    def stage(self, graph: Any, text: Any) -> None:
        if self.level >= 0:
            print(f"[graph {graph.name}] {text}", file=sys.stderr)

    def compiled(self, graph: Any, session: Any) -> None:
        if self.level < 0:
            return
        nodes = graph._captured.nodes()
        seconds = session.compile_seconds
        self.stage(graph, f"traced {len(nodes)} ops; compiled in {seconds:.3f} s")
        ledger = session.ledger()
        spaces = ", ".join(f"{name} {size}" for name, size in ledger["spaces"].items())
        self.stage(graph, f"memory: {ledger['total']} bytes ({spaces})")
        if self.level >= 1:
            self._modules(graph, nodes)
        if self.level >= 2:
            self._ops(graph, nodes)
        if self.level >= 3:
            for name, rewrites, time in session.passes():
                self.stage(graph, f"pass {name}: {rewrites} rewrites, {time * 1e3:.2f} ms")

    def _modules(self, graph: Any, nodes: Any) -> None:
        counts = OrderedDict()
        for node in nodes:
            counts[node["module"]] = counts.get(node["module"], 0) + 1
        for module, count in counts.items():
            self.stage(graph, f"module {module or '(graph)'}: {count} ops")

    def _ops(self, graph: Any, nodes: Any) -> None:
        stacks = stacks_by_node(graph._captured.stacks, len(nodes))
        for i, node in enumerate(nodes):
            device = node["device"] or "default device"
            self.stage(graph, f"op {i} {node['op']} ({', '.join(map(str, node['inputs']))}) -> ({', '.join(node['outputs'])}) "
                              f"sbp=B on {device} at {node['source'] or '?'}")
            if self.level >= 3:
                self.stage(graph, f"   attributes: {', '.join(node['attrs']) or 'none'}")
                for frame in stacks[i]:
                    self.stage(graph, f"   {frame}")


def stacks_by_node(stacks: Any, count: Any) -> Any:
    """The user's frames of each node, from those of the first node of each call."""
    result = [[] for _ in range(count)]
    bounds = [first for first, _ in stacks[1:]] + [count]
    for (first, frames), end in zip(stacks, bounds):
        for node in range(first, min(end, count)):
            result[node] = frames
    return result


def memory_report(session: Any) -> Any:
    """Bytes before running: the names of jax's memory_analysis(), and what queues hold. `total` is the plan's ledger."""
    plan, ledger = json.loads(session.plan_json()), session.ledger()
    slots = {}
    for register in plan["registers"]:
        slots[register["name"]] = register["bytes"] * len(register["slots"])
    fed = {plan["registers"][i["reg"]]["name"] for i in plan["inputs"]}
    read = {plan["registers"][o["view"]["index"]]["name"] for o in plan["outputs"] if o["view"]["base"] == "register"}
    argument, output = sum(slots[n] for n in fed), sum(slots[n] for n in read)
    written = {(v["base"], v["index"]) for k in plan["kernels"] for v in k["outputs"]}
    alias = sum(_variable_bytes(v) for i, v in enumerate(plan["variables"]) if ("variable", i) in written)
    return {"argument": argument, "output": output, "temp": ledger["arenas"] - argument - output, "alias": alias,
            "variables": ledger["variables"], "constants": ledger["constants"], "queue": ledger["register_slots"],
            "code": 0, "total": ledger["total"], "spaces": dict(ledger["spaces"])}


def _variable_bytes(variable: Any) -> Any:
    from sluice import _C

    return math.prod(variable["shape"]) * getattr(_C, variable["dtype"]).itemsize
