"""Graph: nodes in order, and what adds, moves, removes, prints and checks them."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterator, Optional

from sluice._C import Tensor
from sluice.fx._codegen import CodeGen, PythonCode
from sluice.fx._lint import lint
from sluice.fx._targets import Namespace, target_text
from sluice.fx.node import Argument, Node, Target, map_aggregate, map_arg, nodes_between

__all__ = ["CodeGen", "Graph", "PythonCode"]


class _NodeList:
    """The nodes in order: for loops, reversed(), len()."""

    def __init__(self, graph: Graph, reverse: bool = False) -> None:
        self.graph, self._reverse = graph, reverse

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        return nodes_between(self.graph._root, self._reverse)

    def __reversed__(self) -> Any:
        return iter(_NodeList(self.graph, not self._reverse))


class _InsertPoint:
    """A place where nodes go from now on; as a context manager, until it is left."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self._graph._insert = self._before


class Graph:
    """Calls in order: placeholders first, one output last.

    *Invariants*: the nodes are a ring through _root, which is no call; _len counts them; names are distinct.
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self._root = Node(self, "", "root", "")
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = Namespace()
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def nodes(self) -> _NodeList:
        return _NodeList(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of this kind, and of this target where it is given; in order."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        return next(n for n in reversed(self.nodes) if n.op == "output")

    # Nodes are made

    def create_node(self, op: str, target: Target, args: Optional[tuple[Argument, ...]] = None, kwargs: Optional[dict[str, Argument]] = None,
                    name: Optional[str] = None, type_expr: Any = None) -> Node:
        """A node at the insert point, which is the end unless inserting_before() or inserting_after() says another."""
        chosen = self._graph_namespace.create_name(target_text(target) if name is None else name, None)
        made = Node(self, chosen, op, target, () if args is None else args, kwargs, type_expr)
        self._graph_namespace.associate(chosen, made)
        self._insert(made)
        self._len += 1
        return made

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """An input; without a default_value it must be given."""
        return self.create_node("placeholder", name, () if default_value is inspect.Signature.empty else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module, by its path."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None, name: Optional[str] = None) -> Node:
        if self.owning_module is not None and not _has_module(self.owning_module, module_name):
            raise ValueError(f"call_module: '{module_name}'; must be a submodule of the graph's owning_module: add_submodule() it first")
        return self.create_node("call_module", module_name, args, kwargs, name, type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None, name: Optional[str] = None) -> Node:
        """args[0].method_name(*args[1:], **kwargs)"""
        return self.create_node("call_method", method_name, args, kwargs, name, type_expr)

    def call_function(self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None, type_expr: Any = None,
                      name: Optional[str] = None) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy of a node of another graph. arg_transform: what stands here for a node of that graph."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies the nodes of g but its output, and gives the output's value here. val_map: what stands for nodes of g; those that it
        has are not copied, and others are added."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # Places

    def inserting_before(self, n: Optional[Node] = None) -> _InsertPoint:
        """`with graph.inserting_before(n):` nodes go before n meanwhile; without n, to the beginning."""
        return self._point("inserting_before", self._root._next if n is None else n, lambda node: node.prepend)

    def inserting_after(self, n: Optional[Node] = None) -> _InsertPoint:
        """`with graph.inserting_after(n):` nodes go behind n meanwhile, the last made first; without n, to the end."""
        return self._point("inserting_after", self._root._prev if n is None else n, lambda node: node.append)

    def _point(self, where: str, node: Node, side: Any) -> _InsertPoint:
        if node.graph is not self:
            raise ValueError(f"{where}: a node of another graph; must be of this one")
        return _InsertPoint(self, side(node))

    # Nodes are removed

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node without users."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node: Optional[Callable[[Node], bool]] = None) -> bool:
        """Removes nodes without users that need not stay (Node.is_impure, or what is given in its place). Whether there were any."""
        lint(self)
        before = self._len
        for node in reversed(self.nodes):
            stays = is_impure_node(node) if is_impure_node is not None and node.op not in ("placeholder", "output") else self._stays(node)
            if not stays and not node.users:
                self.erase_node(node)
        return self._len != before

    def _stays(self, node: Node) -> bool:
        if node.op == "call_module" and self.owning_module is None:
            return False  # no one can say that it has effects
        return node.is_impure()

    # Text and code

    def python_code(self, root_module: str, *, verbose: bool = False) -> PythonCode:
        """The source of `forward`, and the objects that it names. root_module: what the module is called in it."""
        return self._codegen.generate(self, root_module, verbose=verbose)

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def lint(self) -> None:
        """RuntimeError for a graph that is not whole: order, names, arguments, targets that the module lacks."""
        lint(self)

    def __str__(self) -> str:
        returned = [""]
        lines = [n.format_node(maybe_return_typename=returned) for n in self.nodes]
        return "\n    ".join([f"graph(){returned[0]}:", *lines])

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        print("\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows))

    # Copies

    def __deepcopy__(self, memo: Any = None) -> Graph:
        """A graph of the same calls; functions, and all else that arguments and meta refer to, are shared."""
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = made
        made._codegen = self._codegen.copied()
        stands: dict[Node, Node] = {}
        for node in self.nodes:
            copied = made.node_copy(node, lambda n: stands[n])
            memo[id(node)] = stands[node] = copied
        return made

    def __reduce__(self) -> Any:
        nodes = list(self.nodes)
        places = {node: _At(i) for i, node in enumerate(nodes)}
        rows = [(n.op, n.name, n.target, *map_arg((n.args, n.kwargs), lambda a: places[a]), n.type) for n in nodes]
        tracer = self._tracer_cls if self._tracer_cls is None or "<locals>" not in self._tracer_cls.__qualname__ else None
        return _graph_of, (rows, tracer, self._tracer_extras, self._codegen)


class _At:
    """In a pickle: the node of this number."""

    def __init__(self, number: int) -> None:
        self.number = number


def _graph_of(rows: Any, tracer_cls: Any, tracer_extras: Any, codegen: CodeGen) -> Graph:
    made = Graph(tracer_cls=tracer_cls, tracer_extras=tracer_extras)
    made._codegen = codegen
    nodes: list[Node] = []
    for op, name, target, args, kwargs, kind in rows:
        args, kwargs = map_aggregate((args, kwargs), lambda a: nodes[a.number] if isinstance(a, _At) else a)
        nodes.append(made.create_node(op, target, args, kwargs, name, kind))
    return made


def _has_module(module: Any, path: str) -> bool:
    try:
        return bool(path) and not isinstance(module.get_submodule(path), Tensor)
    except AttributeError:
        return False
