"""nn.Graph: a network, its backward pass and its optimizers as one plan."""

from sluice._graph.graph import Graph as Graph
