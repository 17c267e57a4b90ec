"""nn.Graph: a network, its backward pass and its optimizers as one plan. `sluice.nn` has the public names."""

from sluice._graph import lower as _lower
from sluice._names.left_out import absent as _absent
from sluice._graph.graph import Graph as Graph

for _name, _member in _absent("sluice.nn.Graph").items():
    if not hasattr(Graph, _name):
        setattr(Graph, _name, _member)
