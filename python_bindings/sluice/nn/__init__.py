"""Networks: torch.nn, and Graph."""

from sluice.nn import functional, init, utils
from sluice.nn.graph import Graph
from sluice.nn.modules import *  # noqa: F401,F403
from sluice.nn.parameter import Parameter
