from sluice.nn.graph.graph import Graph as Graph
