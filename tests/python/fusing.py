"""Helpers that tests of fusion share: a function as a graph, with passes left out, the kernels of its plan, and functions
of rows."""

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


def softmax(lib, x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def layer_norm(lib, x, w, b):
    d = x - x.mean(-1, keepdim=True)
    return d * ((d * d).mean(-1, keepdim=True) + 1e-5).rsqrt() * w + b


def rms_norm(lib, x, w):
    return x * lib.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
