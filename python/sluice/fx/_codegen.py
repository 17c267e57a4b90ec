"""The source of a graph: a function forward(), one line for each node."""

from __future__ import annotations

import builtins
import enum
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from sluice import _C
from sluice._base.device import device
from sluice.fx._targets import IN_PLACE, INFIX, Namespace, is_name, public_name, standard_globals
from sluice.fx.node import Argument, Node

if TYPE_CHECKING:
    from sluice.fx.graph import Graph


@dataclass
class PythonCode:
    """Source, the objects that its names stand for, and the number of the node of each of its lines."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, Optional[int]]


class _Globals:
    """Objects that the source names, under names that no node has."""

    def __init__(self, taken: Namespace) -> None:
        self._taken = taken
        self.found: dict[str, Any] = {}

    def name(self, like: str, value: Any) -> str:
        own = getattr(value, "__name__", None)
        if isinstance(own, str) and getattr(builtins, own, None) is value:
            return own
        if (public := public_name(value)) is not None:
            self.found["torch"] = standard_globals()["torch"]
            return public
        for name, standard in self.found.items():
            if standard is value:
                return name
        for name, standard in standard_globals().items():
            if standard is value:
                self.found[name] = value
                return name
        name = self._taken.create_name(like.replace(".", "_"), value)
        self.found[name] = value
        return name


def hint(value: Any) -> str:
    """A name that an object may have."""
    name = getattr(value, "__name__", type(value).__name__)
    return f"{getattr(value, '__module__', None) or 'builtins'}.{name}"


def attribute(root: str, path: str) -> str:
    """self.layer1, with getattr() for what is no identifier."""
    text = root
    for atom in path.split("."):
        text = f"{text}.{atom}" if is_name(atom) else f"getattr({text}, {json.dumps(atom)})"
    return text


class _Writer:
    """Lines of one graph."""

    def __init__(self, graph: Graph, root: str) -> None:
        self.root = root
        self.names = Namespace()
        for node in graph.nodes:
            self.names.associate(self.names.create_name(node.name, None), node)
        self.globals = _Globals(self.names)
        self.inputs: list[str] = []
        self.lines: list[tuple[str, Optional[int]]] = []
        self.returned = ""

    # Arguments

    def text(self, a: Argument) -> str:
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.globals.name(hint(type(a)), type(a))}({', '.join(map(self.text, a))})"
        if isinstance(a, tuple):
            entries = ", ".join(map(self.text, a))
            return f"({entries},)" if len(a) == 1 else f"({entries})"
        if isinstance(a, list):
            return f"[{', '.join(map(self.text, a))}]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{self.text(key)}: {self.text(one)}" for key, one in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if isinstance(a, enum.Enum):
            return f"{self.globals.name(hint(type(a)), type(a))}.{a.name}"
        return self._leaf(a)

    def _leaf(self, a: Any) -> str:
        if isinstance(a, float) and not math.isfinite(a):
            self.globals.found.update(inf=math.inf, nan=math.nan)
            return repr(a)
        if isinstance(a, (_C.dtype, device)) or getattr(a, "__module__", "").startswith("sluice") and not callable(a):
            self.globals.found["torch"], self.globals.found["device"] = standard_globals()["torch"], device
            return re.sub(r"^sluice\.", "torch.", repr(a))
        if callable(a) and hasattr(a, "__name__"):
            return self.globals.name(hint(a), a)
        return repr(a)

    def call(self, args: Any, kwargs: Any) -> str:
        named = [f"{name} = {self.text(one)}" if is_name(name) else f"**{{{name!r}: {self.text(one)}}}" for name, one in kwargs.items()]
        return ", ".join([*map(self.text, args), *named])

    # Nodes

    def line_of(self, node: Node) -> Optional[str]:
        """The statement; None: it has none."""
        name = node.name
        if node.op == "get_attr":
            return f"{name} = {attribute(self.root, node.target)}"
        if node.op == "call_module":
            return f"{name} = {attribute(self.root, node.target)}({self.call(node.args, node.kwargs)})"
        if node.op == "call_method":
            return f"{name} = {self.receiver(node.args[0])}.{node.target}({self.call(node.args[1:], node.kwargs)})"
        if node.op == "call_function":
            return self._function(node)
        if node.op == "output":
            self.returned = self.annotation(node.type, " -> ")
            return f"return {self.text(node.args[0])}"
        self._input(node)
        return None

    def receiver(self, a: Argument) -> str:
        text = self.text(a)
        return text if isinstance(a, Node) else f"({text})"

    def annotation(self, kind: Any, mark: str) -> str:
        if kind is None or kind == () or not isinstance(kind, type) and not hasattr(kind, "__origin__"):
            return ""
        return mark + self.globals.name(hint(kind), kind)

    def _input(self, node: Node) -> None:
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.inputs.append(f"{node.target}{self.annotation(node.type, ' : ')}{default}")
        raw = node.target.replace("*", "")
        if raw != node.name:
            self.lines.append((f"{node.name} = {raw}\n", None))

    def _function(self, node: Node) -> str:
        target, name, args = node.target, node.name, node.args
        if getattr(target, "__module__", None) == "_operator" and not node.kwargs:
            if target.__name__ in INFIX:
                return f"{name} = {INFIX[target.__name__].format(*map(self.text, args))}"
            if target.__name__ in IN_PLACE:
                return f"{IN_PLACE[target.__name__].format(*map(self.text, args))};  {name} = {self.text(args[0])}"
        if target is getattr and len(args) == 2 and isinstance(args[1], str) and is_name(args[1]):
            return f"{name} = {self.receiver(args[0])}.{args[1]}"
        called = self.globals.name(hint(target), target)
        return f"{name} = {called}({self.call(args, node.kwargs)})"


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """The nodes that nobody needs behind each node."""
    freed: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for user in reversed(graph.nodes):
        for used in user.all_input_nodes:
            if used not in seen:
                seen.add(used)
                freed.setdefault(user, []).append(used)
    return freed


class CodeGen:
    """How a graph becomes source, and what its arguments and results are for who calls it. Subclasses change it."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line of the def. free_vars: the inputs, with types and defaults."""
        inputs = list(free_vars)
        if not inputs or inputs[0] != "self":
            inputs.insert(0, "self")
        return f"def forward({', '.join(inputs)}){maybe_return_annotation}:"

    def generate_output(self, output: str) -> str:
        return output

    def process_inputs(self, *args: Any) -> Any:
        """The placeholders' values, of the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        return outputs

    def copied(self) -> CodeGen:
        return self

    def generate(self, graph: Graph, root_module: str, *, verbose: bool = False) -> PythonCode:
        writer, freed = _Writer(graph, root_module), last_uses(graph)
        for number, node in enumerate(graph.nodes):
            if verbose and node.op not in ("placeholder", "output"):
                writer.lines.append((f"# {node.op}: {node.format_node()}\n", None))
            line = writer.line_of(node)
            gone = " = ".join([*(n.name for n in freed.get(node, ())), "None"])
            if line is None:
                continue
            if node.op == "output":
                writer.lines.append((f"{line}\n", number))
            elif not node.users:
                writer.lines.append((f"{line};  {' = '.join([n.name for n in freed.get(node, ())] + [node.name, 'None'])}\n", number))
            else:
                writer.lines.append((f"{line};  {gone}\n" if node in freed else f"{line}\n", number))
        body = "".join(f"    {line}" for line, _ in writer.lines) or "    pass\n"
        src = f"\n\n\n{self.gen_fn_def(writer.inputs, writer.returned)}\n{body}    "
        first = src[:src.index(body)].count("\n") + 1
        return PythonCode(src, dict(writer.globals.found), {first + i: number for i, (_, number) in enumerate(writer.lines)})
