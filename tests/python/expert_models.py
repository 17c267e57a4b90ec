"""Layers of experts, by tests of one process and of several: what they make of some groups of tokens, and their gradients."""

import numpy as np

import sluice as sl
from sluice import nn, parallel
from sluice._tensor.global_tensors import place

S = sl.sbp.split
HIDDEN, WIDE, TOKENS = 6, 10, 7


def made(experts=4, top_k=2, seed=3, **options):
    """A layer that no rank draws otherwise, in float64."""
    sl.manual_seed(seed)
    return parallel.MoE(HIDDEN, WIDE, experts, top_k, dtype=sl.float64, **options)


def drawn(groups, seed=0):
    """Tokens, and what the results are multiplied with before they are added up."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(groups, TOKENS, HIDDEN)) for _ in range(2)]


class Learn(nn.Graph):
    """The results of a layer, its loss, and all gradients."""

    def __init__(self, layer):
        super().__init__(name="learn")
        self.layer = layer
        self.config.set_cores(1)

    def build(self, x, factors):
        x.requires_grad_()
        y, balance = self.layer(x)
        ((y * factors).sum() + 3 * balance).backward()
        grads = {name: p.grad for name, p in self.layer.named_parameters()}
        if (mesh := self.layer.mesh) is not None:  # the path on which sums of two axes become whole is that of a parameter
            grads["gate.weight"] = grads["gate.weight"].to_global(mesh, (sl.sbp.broadcast,) * len(mesh.shape))
        return y, balance, x.grad, *grads.values()




def names(layer):
    """Those of what is compared: results, the loss, and gradients of tokens and parameters."""
    return ["y", "loss", "x.grad", *(f"{name}.grad" for name, _ in layer.named_parameters())]


def in_graph(groups, axes=None, kind="sim", ep="ep", split=True, **options):
    """By name, what a graph computes, on one device or over a mesh; and the graph."""
    layer, way = made(**options), {}
    rows = [sl.tensor(part) for part in drawn(groups)]
    if axes is not None:
        mesh = parallel.mesh(kind, **axes)
        parallel.parallelize(layer, mesh, {"": "experts"}, tp="tp", ep=ep)
        way = {name: S(0) for name in ("dp", ep) if name in axes and split}
        rows = [place(part, mesh, way) for part in rows]
    graph = Learn(layer)
    found = graph(*rows)
    return {name: value.numpy() for name, value in zip(names(layer), found)}, graph


def at_once(groups, **options):
    """By name, what eager code computes in one process."""
    layer = made(**options)
    x, factors = (sl.tensor(part) for part in drawn(groups))
    x.requires_grad_()
    y, balance = layer(x)
    ((y * factors).sum() + 3 * balance).backward()
    return {name: t.detach().numpy() for name, t in zip(names(layer), (y, balance, x.grad, *[p.grad for p in layer.parameters()]))}
