"""Networks: torch.nn, and Graph."""

from sluice.nn import functional as functional, init as init, utils as utils
from sluice.nn.graph import Graph as Graph
from sluice.nn.modules import *  # noqa: F401,F403
from sluice.nn import parallel as parallel  # needs the modules
from sluice.nn.parameter import Parameter as Parameter
