from sluice.nn.graph.graph import Graph
