"""A small language model whose vocabulary, sequence and layers lie in parts; by tests of one process and of several."""

import numpy as np

import sluice as sl
import sluice.nn.functional as F
from sluice import nn, parallel

B, S = sl.sbp.broadcast, sl.sbp.split
V, D, T, N = 512, 8, 6, 8


class Net(nn.Module):
    def __init__(self, tied=False, dropout=0.0):
        super().__init__()
        self.table, self.drop = nn.Embedding(V, D), nn.Dropout(dropout)
        self.norm, self.up, self.down, self.last = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D), nn.LayerNorm(D)
        self.after = nn.Dropout(dropout)
        self.head = nn.Linear(D, V, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.drop(self.table(ids))
        x = x + self.after(self.down(self.up(self.norm(x)).relu()))
        return self.head(self.last(x))


PLAN = {"table": "vocabulary", "head": "colwise", "up": "colwise", "down": "rowwise"}
SEQUENCE = {**PLAN, **dict.fromkeys(["drop", "norm", "after", "last"], "sequence_parallel")}


class Train(nn.Graph):
    def __init__(self, net, loss):
        super().__init__(name="train")
        self.net, self.loss = net, loss
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

    def build(self, ids, classes):
        loss = self.loss(self.net(ids), classes)
        loss.backward()
        return loss


def losses(plan=None, mesh=None, steps=3, tied=False, share=lambda rows, mesh, way: sl.tensor(rows).to_global(mesh, way), **options):
    """The losses of some steps, the graph and the model."""
    sl.manual_seed(0)
    net = Net(tied).double()
    rng, found = np.random.default_rng(0), []
    if plan is not None:
        parallel.parallelize(net, mesh, plan, **options)
    graph = Train(net, parallel.CrossEntropyLoss(mesh=mesh) if plan and plan["table"] == "vocabulary" else
                  lambda x, y: F.cross_entropy(x.reshape(-1, V), y.reshape(-1)))
    for _ in range(steps):
        ids, classes = (rng.integers(0, V, (N, T)) for _ in range(2))
        classes[0, 0] = -100
        batch = [sl.tensor(rows) if plan is None else share(rows, mesh, {"dp": S(0)}) for rows in (ids, classes)]
        found.append(graph(*batch).item())
    return found, graph, net
