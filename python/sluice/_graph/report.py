"""Reports of a graph about itself: print(graph), debug output, memory."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from typing import Any

from sluice import _C
from sluice.nn.debug import Debug


def _indent(text: Any, by: str = "  ") -> Any:
    return text.replace("\n", "\n" + by)


def graph_repr(graph: Any) -> Any:
    """Config, inputs, parameters, modules, and once compiled ops and outputs."""
    lines = [f"(CONFIG): {graph.config!r}"]
    compiled = graph.is_compiled
    if compiled:
        donated = graph._call.donated
        lines += [f"(INPUT:{n}): {d.name}{tuple(s)}{', donated' if n in donated else ''}" for n, d, s in graph.inputs]
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
    role = "" if node["role"] == "forward" else f", {node['role']}"
    return f"(OP:{node['op']}{where}{role}): ({', '.join(map(str, node['inputs']))}) -> ({', '.join(map(str, node['outputs']))})"


class Report:
    """Prints what a graph and its modules were told to by debug()."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.whole = graph, graph._debug
        self.modules = {name: module._debug for name, module in graph._named_modules() if module._debug is not None}

    @property
    def stack_depth(self) -> int:
        return max(d.stack_depth for d in [self.whole, *self.modules.values()])

    def of(self, module: str) -> Debug:
        """The settings for the ops of a module: those of the innermost debug() around them."""
        while module and module not in self.modules:
            module = module.rpartition(".")[0]
        return self.modules.get(module, self.whole)

    def stage(self, text: Any) -> None:
        if self.whole.level_here() >= 0:
            self._print(text)

    def _print(self, text: Any) -> None:
        print(f"[graph {self.graph.name}] {text}", file=sys.stderr)

    def compiled(self, session: Any) -> None:
        nodes = self.graph._captured.nodes()
        ledger = session.ledger()
        spaces = ", ".join(f"{name} {size}" for name, size in ledger["spaces"].items())
        self.stage(f"traced {len(nodes)} ops; compiled in {session.compile_seconds:.3f} s")
        self.stage(f"memory: {ledger['total']} bytes ({spaces})")
        for module, count in Counter(node["module"] for node in nodes).items():
            if self.of(module).level_here() >= 1:
                self._print(f"module {module or '(graph)'}: {count} ops")
        if any(self.of(node["module"]).level_here() >= 2 for node in nodes):
            self._ops(nodes, session.layouts())
        if self.whole.level_here() >= 3:
            for name, rewrites, time in session.passes():
                self._print(f"pass {name}: {rewrites} rewrites, {time * 1e3:.2f} ms")

    def _ops(self, nodes: Any, layouts: Any) -> None:
        stacks = stacks_by_node(self.graph._captured.stacks, len(nodes))
        for i, (node, (sbp, mesh)) in enumerate(zip(nodes, layouts)):
            debug = self.of(node["module"])
            level = debug.level_here()
            if level >= 2:
                self._print(f"op {i} {node['op']} ({', '.join(map(str, node['inputs']))}) -> ({', '.join(node['outputs'])}) "
                            f"sbp={sbp} on {mesh or node['device'] or 'default device'} at {node['source'] or '?'}"
                            f"{'' if node['role'] == 'forward' else ', ' + node['role']}")
            if level >= 3:
                for line in [f"attributes: {', '.join(node['attrs']) or 'none'}", *stacks[i][:debug.stack_depth]]:
                    self._print(f"   {line}")


def print_trials(name: str, trials: list[tuple[str, list[tuple[str, float]], str]]) -> None:
    """Prints the times that the implementations of a graph's kernels took, of which the fastest were taken."""
    for kernel, candidates, chosen in trials:
        print(f"[graph {name}] {kernel}", file=sys.stderr)
        for i, (implementation, ns) in enumerate(candidates):
            mark = "  <- chosen" if implementation == chosen or (not chosen and i == 0) else ""
            print(f"[graph {name}] {ns / 1e3:>12.1f} us  {implementation}{mark}", file=sys.stderr)


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
    plan, ledger = json.loads(session.running_plan_json()), session.ledger()
    registers = plan["registers"]
    fed = {slot for i in plan["inputs"] for slot in registers[i["reg"]]["slots"]}
    read = {slot for o in plan["outputs"] if o["view"]["base"] == "register" for slot in registers[o["view"]["index"]]["slots"]}
    # Slots that exchange memory with callers are in arenas of no bytes; those of a result may be those of an input.
    sizes = [buffer["bytes"] if plan["arenas"][buffer["arena"]]["bytes"] else 0 for buffer in plan["buffers"]]
    argument, output = sum(sizes[slot] for slot in fed), sum(sizes[slot] for slot in read - fed)
    written = {(v["base"], v["index"]) for k in plan["kernels"] for v in k["outputs"]}
    alias = sum(_variable_bytes(v) for i, v in enumerate(plan["variables"]) if ("variable", i) in written)
    results = {o["view"]["index"] for o in plan["outputs"] if o["view"]["base"] == "register"}
    alias += sum(registers[r]["bytes"] for r in results if fed & set(registers[r]["slots"]))  # in the memory of donated inputs
    return {"argument": argument, "output": output, "temp": ledger["arenas"] - argument - output, "alias": alias,
            "variables": ledger["variables"], "constants": ledger["constants"], "packed": ledger["packed"], "queue": ledger["register_slots"],
            "code": 0, "total": ledger["total"], "spaces": dict(ledger["spaces"])}


def family_report(sessions: Any, shared: bool, held: Any) -> Any:
    """Bytes of several plans over the same variables, and of each by itself; held: of the arenas' memory by space."""
    return {**_C.family_ledger(sessions, shared, held), "plans": [session.ledger()["total"] for session in sessions]}


def _variable_bytes(variable: Any) -> Any:
    return math.prod(variable["shape"]) * getattr(_C, variable["dtype"]).itemsize
