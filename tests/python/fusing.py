"""What tests of fusion share: a function as a graph, with passes left out, and the kernels of its plan."""

from sluice import nn

IDLE = ("copy", "reorder")  # what only moves bytes


class Compute(nn.Graph):
    """A graph of one function. off: passes that are not run."""

    def __init__(self, function, *off):
        super().__init__()
        self.function = function
        for name in off:
            self.config.disable_pass(name)

    def build(self, *xs):
        return self.function(*xs)


def ops(graph):
    return [kernel["op"] for kernel in graph.plan["kernels"] if kernel["op"] not in IDLE]
