"""Interpreter runs a graph node by node; Transformer makes another graph of it in the same way."""

from __future__ import annotations

from typing import Any, Iterator, Optional

from sluice.fx._codegen import last_uses
from sluice.fx._symbolic_trace import Tracer
from sluice.fx.graph import Graph
from sluice.fx.graph_module import GraphModule
from sluice.fx.node import Argument, Node, Target, map_aggregate, map_arg
from sluice.fx.proxy import Proxy
from sluice.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a GraphModule's nodes one by one. Subclasses change what each kind of node does, or see all of them in run_node().

    env: the values of nodes, while it runs. garbage_collect_values: those that nobody needs any more are dropped from it.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Optional[Graph] = None) -> None:
        self.module = module
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.args_iter: Iterator[Any] = iter(())
        self.extra_traceback = True
        self.user_to_last_uses = last_uses(self.graph) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: Optional[dict[Node, Any]] = None, enable_io_processing: bool = True) -> Any:
        """The graph's result for these inputs. initial_env: values of nodes that are not run."""
        self.env = {} if initial_env is None else initial_env
        given = self.graph.process_inputs(*args) if enable_io_processing else args
        self.args_iter = iter(given)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _say_where(error, node)
                raise
            for gone in self.user_to_last_uses.get(node, ()):
                self.env.pop(gone, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """run() of the entries of a list, which is emptied, so that inputs live no longer than they are needed."""
        given, wanted = list(args_list), len(self.graph.find_nodes(op="placeholder"))
        if len(given) != wanted:
            raise RuntimeError(f"Interpreter.boxed_run expected {wanted} arguments for placeholders but received {len(given)} "
                               f"({'extra' if len(given) > wanted else 'missing'} arguments)")
        args_list.clear()
        return self.run(*given)

    def run_node(self, n: Node) -> Any:
        """The value of one node, whose arguments are in env."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    # Each kind of node has a method

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        if target.startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        receiver, *rest = args
        return getattr(receiver, target)(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    # Values

    def fetch_attr(self, target: str) -> Any:
        """The module's attribute at a path."""
        at: Any = self.module
        for i, atom in enumerate(path := target.split(".")):
            if not hasattr(at, atom):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(path[:i + 1])}")
            at = getattr(at, atom)
        return at

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments with values in the place of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues")
            return self.env[used]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Makes a new GraphModule by running the old one with proxies; subclasses give other calls for its nodes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph._codegen = module.graph._codegen
        self.tracer = _Appending(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        default = args[:1]
        return Proxy(self.new_graph.create_node("placeholder", target, default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        if isinstance(made, Proxy) and not made.node.meta:
            made.node.meta = dict(n.meta)
        return made

    def transform(self) -> GraphModule:
        """The new module."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            def plain(a: Any) -> Argument:
                return a.node if isinstance(a, Proxy) else a

            self.new_graph.output(map_aggregate(result, plain))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


class _Appending(Tracer):
    """Adds to a graph what is made of proxies."""

    def __init__(self, graph: Graph, root: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, root


def _say_where(error: Exception, node: Node) -> None:
    """Adds to an error's text which node it is of."""
    text = f"While executing {node.format_node()}"
    error.args = (f"{error.args[0]}\n\n{text}" if error.args else text, *error.args[1:])
