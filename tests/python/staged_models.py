"""A small GPT that is cut into stages by a plan; by tests of one process and of several."""

import numpy as np

import sluice as sl
from mesh_models import PLAN, Block
from sluice import nn, parallel

S = sl.sbp.split
TP = {name.replace("blocks", "layers"): word for name, word in PLAN.items()}


class Gpt(nn.Module):
    _pp_plan = {"tokens": (["ids"], ["x"]), "layers": (["x", "mask"], ["x"]), "norm": (["x"], ["x"])}  # as transformers' models have it
    _tp_plan = TP

    def __init__(self, layers=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.layers = nn.ModuleList(Block(16, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(sl.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Train(nn.Graph):
    def __init__(self, net, micro):
        super().__init__(name="train")
        self.net = net
        self.config.set_cores(1)
        self.config.set_gradient_accumulation_steps(micro)
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=1e-2))

    def build(self, ids, targets):
        logits = self.net(ids)
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        return loss


def losses(sizes, steps=3, kind="sim", share=lambda rows, mesh, way: sl.tensor(rows).to_global(mesh, way), dtype=sl.float64, micro=2,
           **options):
    """The losses of some steps, the graph, and how the model lies."""
    sl.manual_seed(5)
    net = Gpt().to(dtype)
    first = last = strategy = None
    if sizes:
        mesh = parallel.mesh(kind, **sizes)
        strategy = parallel.parallelize(net, mesh, **options)
        first, last = (parallel.stages(mesh)[i] for i in (0, -1)) if "pp" in sizes else (mesh, mesh)
    graph, rng, found = Train(net, micro), np.random.default_rng(1), []
    way = {"dp": S(0)} if "dp" in sizes else sl.sbp.broadcast
    for _ in range(steps):
        sequence = (rng.integers(0, 20, (8, 1)) + 3 * np.arange(9)) % 20
        ids, targets = (np.ascontiguousarray(rows) for rows in (sequence[:, :-1], sequence[:, 1:]))
        batch = [sl.tensor(rows) if mesh is None else share(rows, mesh, way) for rows, mesh in ((ids, first), (targets, last))]
        found.append(graph(*batch).numpy().mean().item())
    return found, graph, strategy
