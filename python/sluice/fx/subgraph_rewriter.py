"""replace_pattern(): finds copies of one graph within another, and puts a third in their place."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Union

from sluice.fx._symbolic_trace import symbolic_trace
from sluice.fx.graph import Graph
from sluice.fx.graph_module import GraphModule, _copy_attr
from sluice.fx.node import Argument, Node
from sluice.nn.modules.module import Module

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A place of a pattern: the node of the pattern that was looked for first, and what stood for each of them."""

    anchor: Node
    nodes_map: dict[Node, Node]


class _Matcher:
    """Tries whether a pattern's nodes, from its result upwards, stand for nodes of a graph."""

    def __init__(self, pattern: Graph, graph: Graph) -> None:
        self.graph = graph
        self.inputs = [n for n in pattern.nodes if n.op == "placeholder"]
        self.inner = [n for n in pattern.nodes if n.op not in ("placeholder", "output")]
        self.results = pattern.output_node().all_input_nodes

    def at(self, anchor: Node) -> Optional[dict[Node, Node]]:
        """The nodes that stand for those of the pattern if its first result is this node; None: it is not here."""
        found: dict[Node, Node] = {}
        if not self._same(self.results[0], anchor, found) or not self._all_results(found):
            return None
        inner = {found[n] for n in self.inner}
        for n in self.inner:  # a value inside that others need cannot go
            if n not in self.results and any(user not in inner for user in found[n].users):
                return None
        return found

    def _all_results(self, found: dict[Node, Node]) -> bool:
        for result in self.results[1:]:
            if result not in found and not any(self._tried(result, n, found) for n in self.graph.nodes):
                return False
        return all(n in found for n in self.inner)

    def _tried(self, pattern: Node, node: Node, found: dict[Node, Node]) -> bool:
        trial = dict(found)
        if not self._same(pattern, node, trial):
            return False
        found.update(trial)
        return True

    def _same(self, pattern: Any, node: Any, found: dict[Node, Node]) -> bool:
        if not isinstance(pattern, Node):
            return self._same_argument(pattern, node, found)
        if pattern in found:
            return found[pattern] is node or not isinstance(found[pattern], Node) and found[pattern] == node
        if pattern.op == "placeholder":
            found[pattern] = node
            return True
        if not isinstance(node, Node) or node.op != pattern.op or node.target != pattern.target or node in found.values():
            return False
        if len(node.args) != len(pattern.args) or node.kwargs.keys() != pattern.kwargs.keys():
            return False
        found[pattern] = node
        pairs = [*zip(pattern.args, node.args), *((pattern.kwargs[k], node.kwargs[k]) for k in pattern.kwargs)]
        return all(self._same(mine, theirs, found) for mine, theirs in pairs)

    def _same_argument(self, pattern: Argument, other: Argument, found: dict[Node, Node]) -> bool:
        if isinstance(pattern, (tuple, list)):
            return (isinstance(other, (tuple, list)) and len(pattern) == len(other)
                    and all(self._same(a, b, found) for a, b in zip(pattern, other)))
        if isinstance(pattern, dict):
            return (isinstance(other, dict) and pattern.keys() == other.keys()
                    and all(self._same(pattern[k], other[k], found) for k in pattern))
        if isinstance(pattern, slice):
            return (isinstance(other, slice) and self._same_argument((pattern.start, pattern.stop, pattern.step),
                                                                     (other.start, other.stop, other.step), found))
        return not isinstance(other, Node) and type(pattern) is type(other) and bool(pattern == other)


def _graph_of(pattern: Union[Callable[..., Any], Module, Graph]) -> tuple[Graph, Optional[Module]]:
    if isinstance(pattern, GraphModule):
        return pattern.graph, pattern
    if isinstance(pattern, Graph):
        return pattern, pattern.owning_module
    traced = symbolic_trace(pattern)
    return traced.graph, traced


def replace_pattern(gm: GraphModule, pattern: Union[Callable[..., Any], Module],
                    replacement: Union[Callable[..., Any], Module]) -> list[Match]:
    """Replaces all copies of the pattern that do not overlap, in order, and recompiles; gives where they were.

    pattern, replacement: functions or modules of the same inputs and the same number of results, which are traced. An input of the
    pattern stands for any value; all else must be equal: functions, methods, paths of modules, numbers.
    """
    wanted, _ = _graph_of(pattern)
    new, new_module = _graph_of(replacement)
    matcher = _Matcher(wanted, gm.graph)
    inputs = [n for n in new.nodes if n.op == "placeholder"]
    if len(inputs) != len(matcher.inputs) or len(new.output_node().all_input_nodes) != len(matcher.results):
        raise ValueError(f"replace_pattern: replacement: {len(inputs)} inputs and {len(new.output_node().all_input_nodes)} results; must have "
                         f"{len(matcher.inputs)} and {len(matcher.results)}, as the pattern has")
    if not matcher.inner or not matcher.results:
        raise ValueError("replace_pattern: pattern: computes nothing; must have at least one call and a result")
    matches: list[Match] = []
    gone: set[Node] = set()
    for node in list(gm.graph.nodes):
        found = None if node in gone else matcher.at(node)
        if found is None or any(found[n] in gone for n in matcher.inner):
            continue
        if new_module is not None:
            _bring(new_module, gm, new)
        _put(gm.graph, matcher, found, new, inputs)
        gone.update(found[n] for n in matcher.inner)
        matches.append(Match(matcher.results[0], found))
    gm.recompile()
    return matches


def _bring(source: Module, gm: GraphModule, graph: Graph) -> None:
    """Modules and tensors that a replacement names, where the module has none of that name."""
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            try:
                _walk(gm, node.target)
            except AttributeError:
                _copy_attr(source, gm, node.target)


def _walk(module: Any, path: str) -> Any:
    for atom in path.split("."):
        module = getattr(module, atom)
    return module


def _put(graph: Graph, matcher: _Matcher, found: dict[Node, Node], new: Graph, inputs: list[Node]) -> None:
    order = {n: i for i, n in enumerate(graph.nodes)}
    inner = [found[n] for n in matcher.inner]
    stands: dict[Any, Any] = {mine: found[theirs] for mine, theirs in zip(inputs, matcher.inputs)}
    with graph.inserting_before(max(inner, key=order.__getitem__)):
        graph.graph_copy(new, stands)
    old_results = [found[n] for n in matcher.results]
    new_results = [stands[n] for n in new.output_node().all_input_nodes]
    for old, made in zip(old_results, new_results):
        old.replace_all_uses_with(made)
    for node in sorted(set(inner), key=order.__getitem__, reverse=True):
        graph.erase_node(node)
