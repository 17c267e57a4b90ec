"""The check that a graph is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice.fx.graph import Graph
    from sluice.fx.node import Node


def lint(graph: Graph) -> None:
    """RuntimeError for nodes of other graphs, arguments that come later or not at all, equal names, and missing targets."""
    seen: dict[Node, None] = {}
    names: set[str] = set()
    for node in graph.nodes:
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        for user in node.users:
            if node not in user._input_nodes:
                raise RuntimeError(f"Node '{node}' has a user '{user}' that does not use it; arguments must be assigned, not written in place")
        for used in node.all_input_nodes:
            if used.graph is not graph:
                raise RuntimeError(f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you "
                                   "are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values")
            if used not in seen:
                raise RuntimeError(f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that Nodes in the "
                                   f"graph are topologically ordered\n{graph}")
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node.name)
        seen[node] = None
        if graph.owning_module is not None and node.op in ("get_attr", "call_module"):
            _find(graph.owning_module, node)


def _find(module: Any, node: Node) -> None:
    at = module
    for atom in node.target.split("."):
        if not hasattr(at, atom):
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {atom} of {type(module).__name__}")
        at = getattr(at, atom)
    if node.op == "call_module" and not callable(at):
        raise RuntimeError(f"Node {node} target {node.target} is of {type(at).__name__}; must be a module")
