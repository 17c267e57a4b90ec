"""DistributedDataParallel: eager training on parts of a batch is that on all of it."""

import numpy as np

from programs import environment, ranks, start  # noqa: F401: fixtures

TRAIN = """
from sluice import nn
dist.init()
rng = np.random.default_rng(0)
images, labels = rng.normal(size=(6, 16, 8)).astype(np.float32), rng.integers(0, 3, (6, 16))
sl.manual_seed(size if rank == 0 else 7)  # other weights on each rank
net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))
if size == 1:
    sl.manual_seed(2)
    net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))
ddp = nn.parallel.DistributedDataParallel(net)
optimizer = sl.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
for x, y in zip(images, labels):
    x, y = (sl.tensor(np.array_split(t, size)[rank]) for t in (x, y))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(ddp(x), y)
    loss.backward()
    optimizer.step()
dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
print(loss.item(), *[w for p in net.parameters() for w in p.detach().numpy().flat])
"""


def test_two_ranks_equal_one_big_batch(ranks):  # DDP-01
    one, (first, second) = ranks(1, TRAIN)[0], ranks(2, TRAIN)
    assert first == second
    np.testing.assert_allclose(np.array(first[0].split(), float), np.array(one[0].split(), float), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_parallel_is_said(ranks):  # GT-24, DDP-06
    out = ranks(2, """
    from sluice import nn
    dist.init()
    def error(f):
        try:
            f()
        except Exception as e:
            print(f"{type(e).__name__}: {str(e).splitlines()[0].split('  (')[0]}")
    W = sl.placement("cpu", [0, 1])
    error(lambda: nn.parallel.DistributedDataParallel(nn.Linear(2, 2).to_global(W, sl.sbp.split(0))))
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        def forward(self, x):
            return (self.a if rank == 0 else self.b)(x).sum()
    ddp = nn.parallel.DistributedDataParallel(Branches())
    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = ddp
        def build(self, x):
            return self.net(x)
    error(lambda: Graph()(sl.ones(2, 2)))
    error(lambda: ddp(sl.ones(2, 2)).backward())
    """)
    for rank, name in enumerate("ab"):
        assert out[rank] == [
            "TypeError: DistributedDataParallel: 'weight' is a global tensor: sluice.sbp.split(dim=0) on cpu:0,1/cpu:0; the compiler of "
            "nn.Graph reduces its gradient: leave the wrapper away, or give a local module",
            "TypeError: DistributedDataParallel: averages the gradients of eager code; in nn.Graph lay the module and the batch over the "
            "ranks: module.to_global(placement, sbp.broadcast), batch.to_global(placement, sbp.split(0))",
            f"ValueError: DistributedDataParallel: rank {rank} has the gradient of '{name}.weight' where another rank has that of another "
            "parameter; all ranks must use the same parameters in the same order"]
