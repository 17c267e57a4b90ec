"""Experts on the ranks of a job, in graphs and in eager code, against one process."""

import pathlib

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

MODELS = pathlib.Path(__file__).parents[1] / "python"
HEAD = f"""
sys.path.insert(0, {str(MODELS)!r})
import expert_models
from sluice import nn, parallel
dist.init()
"""

GRAPH = """
for axes, ep, groups, experts in CASES:
    found, _ = expert_models.in_graph(groups, axes, ep=ep, experts=experts, gated=True, capacity_factor=0.8)
    print(axes, [found[name].tobytes().hex() for name in found])
"""


@pytest.mark.parametrize("n, cases", [(2, [(dict(ep=2), "ep", 2, 4)]),
                                      (4, [(dict(ep=4), "ep", 4, 4), (dict(dp=2, ep=2), "ep", 4, 4), (dict(ep=4), "ep", 5, 6)])])
def test_graphs_on_ranks_have_the_bits_of_one_process(ranks, n, cases):
    program = f"CASES = {cases!r}\n" + HEAD + GRAPH
    (one,) = ranks(1, program)
    assert len(one) == len(cases) and ranks(n, program) == [one] * n


# The groups of all ranks together are those of one process; gradients of experts, averages over ranks, are compared as sums.
EAGER = """
for groups, experts, options in CASES:
    whole = expert_models.at_once(sum(groups), experts=experts, **options)
    layer = expert_models.made(experts=experts, ep_size=size, **options)
    first = sum(groups[:rank])
    x, factors = (sl.tensor(np.ascontiguousarray(part[first:first + groups[rank]])) for part in expert_models.drawn(sum(groups)))
    x.requires_grad_()
    y, balance = layer(x)
    ((y * factors).sum() + 3 * balance * groups[rank] / sum(groups)).backward()
    own = slice(first, first + groups[rank])
    shares = [len(part) for part in np.array_split(range(experts), size)]
    mine = slice(sum(shares[:rank]), sum(shares[:rank + 1]))
    same = lambda a, b: a.tobytes() == np.ascontiguousarray(b).tobytes()
    bits = [same(y.detach().numpy(), whole["y"][own]), same(x.grad.numpy(), whole["x.grad"][own])]
    for name, p in (("w1", layer.w1), ("w2", layer.w2), ("w3", layer.w3)):
        if p is not None:
            expected = whole[name + ".grad"][mine]
            np.testing.assert_allclose(p.grad.numpy() * size, expected, rtol=1e-9, atol=1e-12)
            bits.append(same(p.grad.numpy() * size, expected))
    router = layer.gate.weight.grad
    dist.all_reduce(router)
    np.testing.assert_allclose(router.numpy(), whole["gate.weight.grad"], rtol=1e-5, atol=1e-9)
    if size > 1:  # its parts are a global tensor, which checkpoints take
        W, S, B = sl.placement("cpu", range(size)), sl.sbp.split, sl.sbp.broadcast
        w1 = layer.w1.detach().to_global(W, S(0)).to_global(sbp=B).to_local()
        bits.append(same(w1.numpy(), expert_models.made(experts=experts, **options).w1.detach().numpy()))
    print(bits)
"""


@pytest.mark.parametrize("n", [1, 2, 4])
def test_eager_ranks_compute_what_one_process_does(ranks, n):
    """Results and gradients of tokens have its bits, and so have those of experts where all ranks have as many groups."""
    cases = [([2] * n, 4, dict(gated=True)), ([2] * n, 4, dict(top_k=1, capacity_factor=1.0))]
    uneven = [([3, 1, 2, 1][:n], 5, dict(gated=True, capacity_factor=0.8))]
    lines = ranks(n, f"CASES = {cases + uneven!r}\n" + HEAD + EAGER)
    assert lines == [[str([True] * (count + (n > 1))) for count in (5, 4, 5)]] * n, lines


WRAPPED = """
def train(net, rows, count):
    optimizer, found = sl.optim.SGD(net.parameters(), lr=0.1), []
    for x, y in rows:
        optimizer.zero_grad()
        made, balance = net(x)
        loss = (made - y).square().mean() + 0.01 * balance
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

rows = [[sl.tensor(part) for part in expert_models.drawn(4, seed)] for seed in range(4)]
one = expert_models.made(gated=True)
expected = train(one, rows, 4)
sl.manual_seed(rank)  # rank 0 has the router of all
layer = expert_models.made(gated=True, ep_size=size, seed=3)
net = nn.parallel.DistributedDataParallel(layer)
found = train(net, [[t[4 // size * rank:4 // size * (rank + 1)] for t in pair] for pair in rows], 4)
mean = sl.tensor(found, dtype=sl.float64)
dist.all_reduce(mean, "average")
np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6)
n = 4 // size
np.testing.assert_allclose(layer.w2.detach().numpy(), one.w2.detach().numpy()[n * rank:n * (rank + 1)], rtol=1e-6, atol=1e-8)
np.testing.assert_allclose(layer.gate.weight.detach().numpy(), one.gate.weight.detach().numpy(), rtol=1e-5, atol=1e-8)
print("trained")
"""


def test_data_parallel_training_leaves_experts_where_they_are(ranks):
    assert ranks(2, HEAD + WRAPPED) == [["trained"]] * 2


REFUSED = """
def refused(call):
    try:
        call()
    except (ValueError, NotImplementedError) as error:
        print(type(error).__name__, str(error).split("  (")[0])

refused(lambda: parallel.MoE(4, 4, 4, ep_size=3))
refused(lambda: parallel.MoE(4, 4, 1, 1, ep_size=2))
layer = parallel.MoE(4, 8, 4, ep_size=2)
refused(lambda: layer(sl.ones(2, 3 + rank, 4)))
refused(lambda: layer(sl.ones(2, 3, 4, dtype=[sl.float32, sl.float64][rank])))
refused(lambda: layer(sl.ones(2, 3, 5)))
other = parallel.MoE(4, 8, 4, ep_size=2, capacity_factor=1.0 + rank)
refused(lambda: other(sl.ones(2, 3, 4)))
class Traced(nn.Graph):
    def build(self, x):
        return layer(x)
refused(lambda: Traced()(sl.ones(2, 3, 4)))
print(layer(sl.ones(2, 3, 4))[0].shape)
"""


def test_bad_calls_are_the_same_error_on_every_rank(ranks):
    layer = "hidden_size=4, intermediate_size=8, num_experts=4, top_k=2, capacity_factor={}, gated=False, activation='gelu'"
    assert ranks(2, HEAD + REFUSED) == [[
        "ValueError MoE: ep_size is 3; must be 1, or the number of ranks: the job has 2 ranks",
        "ValueError MoE: 1 experts for 2 ranks; each must get one",
        "ValueError MoE: rank 0 has float32 groups of (3, 4), rank 1 has float32 groups of (4, 4); must be the same on all ranks",
        "ValueError MoE: rank 0 has float32 groups of (3, 4), rank 1 has float64 groups of (3, 4); must be the same on all ranks",
        "ValueError MoE: x is (2, 3, 5); must be (groups, tokens, 4), or (tokens, 4)",
        f"ValueError MoE: rank 0 has {layer.format(1.0)}, rank 1 has {layer.format(2.0)}; must be the same on all ranks",
        "NotImplementedError MoE: ep_size is for eager code; inside nn.Graph give a mesh, or use parallelize() with 'experts'",
        "sluice.Size([2, 3, 4])"]] * 2
