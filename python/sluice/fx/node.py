"""Nodes of an fx graph: one call, with what it is given and who uses it."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from sluice.fx._targets import is_name, name_of_function, SIDE_EFFECTS
from sluice.fx.immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from sluice.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any  # a Node, a number, text, a dtype and the like, or tuples, lists, dicts, slices and ranges of these
Target = Any  # a callable, or a name
BaseArgumentTypes = Any
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of the function are kept by eliminate_dead_code(), used or not. As a decorator, too."""
    SIDE_EFFECTS.append(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """The same nest, with fn of its leaves; its lists and dicts cannot be changed."""
    if isinstance(a, tuple):
        entries = [map_aggregate(one, fn) for one in a]
        return type(a)(*entries) if hasattr(a, "_fields") else tuple(entries)
    if isinstance(a, list):
        return immutable_list([map_aggregate(one, fn) for one in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(one, fn) for key, one in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The same nest, with fn of the nodes in it."""
    return map_aggregate(a, lambda one: fn(one) if isinstance(one, Node) else one)


class Node:
    """A call within a Graph.

    op: placeholder (an input; args has its default), get_attr, call_function, call_method (of args[0]), call_module, or output.
    target: the input's, attribute's, method's or module's name, or the function.
    users: the nodes whose arguments have this one, in order, as keys of a dict. meta: a dict for whatever passes note.

    *Invariants*: n is in m.users exactly if m is in n.all_input_nodes; both are of one graph.
    """

    def __init__(self, graph: Graph, name: str, op: str, target: Target, args: tuple[Argument, ...] = (),
                 kwargs: Optional[dict[str, Argument]] = None, return_type: Any = None) -> None:
        if op not in OPS:
            raise ValueError(f"Node: op: {op!r}; must be one of {', '.join(OPS[:-1])}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} but a Callable is expected")
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} but a str is expected")
        if op == "call_method" and not is_name(target) or op == "placeholder" and not is_name(target.lstrip("*")):
            raise ValueError(f"Node: target of a {op}: {target!r}; must be a name that code may have")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._set(tuple(args), kwargs or {})

    # Arguments

    def _set(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = {}

        def note(node: Node) -> Node:
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args, self._kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)

    @property
    def args(self) -> tuple[Argument, ...]:
        """Positional arguments. Assigned as a whole; lists in it cannot be changed."""
        return self._args

    @args.setter
    def args(self, args: Any) -> None:
        self._set(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: Any) -> None:
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, once each."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts one more positional argument before that of this index."""
        if not 0 <= idx <= len(self.args):
            raise ValueError(f"insert_arg: index: {idx}; must be from 0 to {len(self.args)}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts new_input in the place of old_input among the arguments."""
        self._set(*map_arg((self._args, self._kwargs), lambda n: new_input if n is old_input else n))

    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Puts replace_with in its place among the arguments of all users, or of those that delete_user_cb says; gives them.
        propagate_meta: replace_with, whose meta must be empty, gets this node's."""
        if propagate_meta:
            if replace_with.meta:
                raise ValueError("replace_all_uses_with: propagate_meta: the new node has a meta of its own; must be empty")
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # Places

    @property
    def next(self) -> Node:
        """The node behind it; behind the last one is the graph's root, which is no call."""
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves x, of the same graph, to before this node."""
        if x.graph is not self.graph:
            raise ValueError("prepend: a node of another graph; must be of the same one")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Moves x, of the same graph, to behind this node."""
        if x is not self:
            x._unlink()
            self._next.prepend(x)

    def _unlink(self) -> None:
        # Its own links stay, so that who walks the nodes and erases this one goes on behind it.
        self._prev._next, self._next._prev = self._next, self._prev

    # Facts

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it must stay, used or not: inputs, outputs, functions with effects, and modules that have some."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return any(self.target is one for one in SIDE_EFFECTS)
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise RuntimeError("is_impure: the graph has no owning_module; must be of a GraphModule to say it of a module's call")
            return bool(getattr(module.get_submodule(self.target), "_is_impure", False))
        return False

    @property
    def stack_trace(self) -> Optional[str]:
        """The lines that made it, where the tracer keeps them (record_stack_traces)."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: Optional[str]) -> None:
        self.meta["stack_trace"] = trace

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)

    def _pretty_print_target(self, target: Any) -> str:
        return target if isinstance(target, str) else name_of_function(target)

    def format_node(self, *, maybe_return_typename: Optional[list[str]] = None) -> str:
        """A line that describes it. maybe_return_typename: its first entry gets the output's type, as Graph.__str__ has it."""
        typed = f"{_type_text(self.type)} " if self.type is not None else ""
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {typed}[num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        target = self._pretty_print_target(self.target)
        if self.op == "get_attr":
            return f"%{self.name} : {typed}[num_users={len(self.users)}] = get_attr[target={target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {_type_text(self.type)}"
            return f"return {self.args[0]}" if maybe_return_typename is not None else f"return ({_plain(self.args[0])},)"
        shown = f"(args = {_plain(self.args)}, kwargs = {_plain(self.kwargs)})"
        return f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}[target={target}]{shown}"

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: Any) -> Any:
        # A node is copied with its graph, whose copy notes it; one that stands alone belongs to its graph for good.
        return memo.get(id(self), self)


def _type_text(kind: Any) -> str:
    if not isinstance(kind, builtins.type):
        return str(kind)
    return kind.__name__ if kind.__module__ == "builtins" else name_of_function(kind)


def _plain(a: Argument) -> str:
    """Text of arguments, with % before the names of nodes."""
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, tuple):
        entries = ", ".join(map(_plain, a))
        return f"({entries},)" if len(a) == 1 else f"({entries})"
    if isinstance(a, list):
        return f"[{', '.join(map(_plain, a))}]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{key}: {_plain(one)}" for key, one in a.items()) + "}"
    return name_of_function(a) if callable(a) else str(a)


def nodes_between(root: Node, reverse: bool = False) -> Iterator[Node]:
    """All nodes of the ring but its root. The one at hand may be erased, or moved, meanwhile."""
    node = root._prev if reverse else root._next
    while node is not root:
        if not node._erased:
            yield node
        node = node._prev if reverse else node._next
