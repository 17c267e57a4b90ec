"""A small GPT in two halves, laid over meshes of data, tensor and pipeline parallel; by tests of one process and of several."""

import numpy as np

import sluice as sl
from sluice import nn, parallel

B, S = sl.sbp.broadcast, sl.sbp.split
PLAN = {"blocks.*.q": "colwise", "blocks.*.k": "colwise", "blocks.*.v": "colwise", "blocks.*.out": "rowwise",
        "blocks.*.up": "colwise", "blocks.*.down": "rowwise"}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape

        def split(t):
            return t.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)

        h = self.norm1(x)
        a = nn.functional.scaled_dot_product_attention(split(self.q(h)), split(self.k(h)), split(self.v(h)), is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(n, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class First(nn.Module):
    def __init__(self, vocabulary, length, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, heads))

    def forward(self, ids):
        return self.blocks(self.tokens(ids) + self.positions(sl.arange(ids.shape[1])))


class Last(nn.Module):
    def __init__(self, vocabulary, width, heads):
        super().__init__()
        self.blocks = nn.Sequential(Block(width, heads))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(x)))


class Train(nn.Graph):
    def __init__(self, halves, meshes, zero=False):
        super().__init__(name="train")
        self.first, self.last = halves
        self.meshes = meshes
        self.config.set_cores(1)
        if zero:
            self.config.enable_zero(stage=2, shard_min_size=1)
        self.add_optimizer(sl.optim.Adam([*self.first.parameters(), *self.last.parameters()], lr=1e-2))

    def build(self, ids, targets):
        x = self.first(ids)
        way = {"dp": S(0)}  # also where both halves are on one mesh, so that a pipeline has the bits of its stages in one place
        logits = self.last(x.to_global(self.meshes[1], way, grad_sbp=way))
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        return loss


def losses(dp, tp, pp, steps=4, kind="sim", share=lambda rows, mesh, way: sl.tensor(rows).to_global(mesh, way), zero=False,
           dtype=sl.float64):
    """The losses of some steps, and the graph."""
    sl.manual_seed(5)
    halves = [First(20, 8, 16, 4).to(dtype), Last(20, 16, 4).to(dtype)]
    cube = parallel.mesh(kind, pp=pp, dp=dp, tp=tp)
    meshes = (parallel.stages(cube) * 2)[:2] if pp == 1 else parallel.stages(cube)
    for half, mesh in zip(halves, meshes):
        parallel.parallelize(half, mesh, {k: v for k, v in PLAN.items()})
    graph, rng, found = Train(halves, meshes, zero), np.random.default_rng(1), []
    for _ in range(steps):
        sequence = (rng.integers(0, 20, (4, 1)) + 3 * np.arange(9)) % 20
        ids, targets = (np.ascontiguousarray(rows) for rows in (sequence[:, :-1], sequence[:, 1:]))
        found.append(graph(share(ids, meshes[0], {"dp": S(0)}), share(targets, meshes[1], {"dp": S(0)})))
    return [loss.item() for loss in found], graph
