"""One model over a mesh of devices: meshes with named axes, layouts of parameters by plan, layers that say how they are split,
and what the compiler made of it."""

from sluice.parallel._blocks import convert_experts
from sluice.parallel._experts import MoE
from sluice.parallel._layers import Linear
from sluice.parallel._mesh import mesh, part, stages
from sluice.parallel._plan import Strategy, parallelize
from sluice.parallel._report import conversions, layout_costs, visualize_sharding
from sluice.parallel._vocabulary import CrossEntropyLoss, Embedding, cross_entropy

__all__ = ["CrossEntropyLoss", "Embedding", "Linear", "MoE", "Strategy", "conversions", "convert_experts", "cross_entropy", "layout_costs",
           "mesh", "parallelize", "part", "stages", "visualize_sharding"]
