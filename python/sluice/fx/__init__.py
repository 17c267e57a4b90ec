"""Programs as data: torch.fx. symbolic_trace() runs a module with stand-ins and keeps its calls as a Graph, which code can walk, change
and turn into a module again (docs/fx.md).

    traced = sluice.fx.symbolic_trace(net)
    for node in traced.graph.nodes: ...
    traced.recompile()
"""

from sluice.fx import immutable_collections as immutable_collections, node as node, proxy as proxy
from sluice.fx._symbolic_trace import Tracer as Tracer, symbolic_trace as symbolic_trace, wrap as wrap
from sluice.fx.graph import CodeGen as CodeGen, Graph as Graph
from sluice.fx.graph_module import GraphModule as GraphModule
from sluice.fx.interpreter import Interpreter as Interpreter, Transformer as Transformer
from sluice.fx.node import Node as Node, has_side_effect as has_side_effect, map_arg as map_arg
from sluice.fx.proxy import Proxy as Proxy
from sluice.fx.subgraph_rewriter import Match as Match, replace_pattern as replace_pattern

__all__ = ["CodeGen", "Graph", "GraphModule", "Interpreter", "Match", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "map_arg",
           "replace_pattern", "symbolic_trace", "wrap"]
