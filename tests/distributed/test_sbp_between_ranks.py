"""Tests on processes what lies on each rank, what travels between ranks, and what follows from the sources alone."""

import difflib
import json

import numpy as np
import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

WAYS = """
import json
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
W = sl.placement("cpu", range(size))
"""


def test_each_rank_holds_its_piece(ranks):  # GT-02
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    out = ranks(2, WAYS + """
x = sl.arange(12.0).reshape(4, 3).to_global(W, B)
print(json.dumps([x.to_global(W, way).to_local().tolist() for way in (S(0), S(1), B, P)]))
""")
    rows, columns, copies, addends = zip(*(json.loads(lines[0]) for lines in out))
    assert [np.shape(part) for part in rows] == [(2, 3)] * 2 and np.array_equal(np.concatenate(rows), whole)
    assert [np.shape(part) for part in columns] == [(4, 2), (4, 1)] and np.array_equal(np.concatenate(columns, 1), whole)
    assert [np.array_equal(part, whole) for part in copies] == [True, True]
    assert [np.shape(part) for part in addends] == [(4, 3)] * 2 and np.array_equal(np.sum(addends, 0), whole)


def test_to_local_needs_no_other_rank(ranks):  # GT-04
    assert ranks(2, WAYS + """
x = sl.arange(6.0).reshape(3, 2).to_global(W, B).to_global(W, S(0))
if rank == 1:
    print(x.to_local().tolist())
dist.barrier()  # where the other rank is; a call of several would meet another there
if rank == 0:
    print(x.to_local().tolist())
""") == [["[[0.0, 1.0], [2.0, 3.0]]"], ["[[4.0, 5.0]]"]]


# The collective of each pair; from a copy that lies everywhere nothing travels.
PRIMITIVES = {("S0", "S1"): {"all_to_all"}, ("S1", "S0"): {"all_to_all"}, ("S0", "B"): {"all_gather"}, ("S1", "B"): {"all_gather"},
              ("P", "B"): {"all_reduce"}, ("P", "S0"): {"reduce_scatter"}, ("P", "S1"): {"reduce_scatter"},
              ("B", "S0"): set(), ("B", "S1"): set(), ("B", "P"): set()}
KERNELS = """
def kernels(graph):  # (conversion that it belongs to, op, shapes of its results)
    return [(k["name"].rpartition("/")[0].split("/")[-1], k["op"], [r["shape"] for r in k["outputs"]]) for k in graph.plan["kernels"]]
"""


@pytest.mark.parametrize("n", [2, 4])
def test_each_pair_takes_its_primitive(ranks, n):  # GT-05
    out = ranks(n, WAYS + KERNELS + f"pairs = {list(PRIMITIVES)}" + """
ways = {"S0": S(0), "S1": S(1), "B": B, "P": P}
class Convert(sl.nn.Graph):
    def __init__(self, old, new):
        super().__init__()
        self.old, self.new = ways[old], ways[new]
    def build(self, x):
        return x.to_global(W, self.old).to_global(W, self.new)
for old, new in pairs:
    graph = Convert(old, new)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    assert np.array_equal(graph(sl.tensor(x)).numpy(), x), (old, new)
    print(json.dumps([old, new, kernels(graph)]))
""")
    for lines in out:
        assert len(lines) == len(PRIMITIVES)
        for line in lines:
            old, new, kernels = json.loads(line)
            assert {kind for kind, *_ in kernels} & set().union(*PRIMITIVES.values()) == PRIMITIVES[old, new], (old, new, kernels)


def test_operands_that_lie_differently_are_converted(ranks):  # GT-08
    x, y = (np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32) for seed in (0, 1))
    out = ranks(2, WAYS + KERNELS + """
class Add(sl.nn.Graph):
    def build(self, x, y):
        return x + y
x, y = (np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32) for seed in (0, 1))
x, y = sl.tensor(x).to_global(W, B).to_global(W, S(0)), sl.tensor(y).to_global(W, B).to_global(W, S(1))
assert x.sbp == (S(0),) and y.sbp == (S(1),)
add = Add()
print(json.dumps([add(x, y).numpy().tolist(), kernels(add)]))
""")
    for (line,) in out:
        whole, kernels = json.loads(line)
        assert np.array_equal(np.float32(whole), x + y)
        sums = [shapes for _, op, shapes in kernels if op == "add"]
        assert len(sums) == 2 and sums[0] == sums[1] and sums[0] in ([[2, 6]], [[4, 3]]), kernels  # one lies as the other did
        assert sum(op == "all_to_all" for _, op, _ in kernels) == 2  # a rank's call each


def test_how_ten_layers_lie_follows_from_their_input(ranks):  # GT-10
    net = """
class Net(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        sl.manual_seed(3)
        self.layers = sl.nn.Sequential(*(sl.nn.Linear(8, 8) for _ in range(10)))
        self.add_optimizer(sl.optim.SGD(self.layers.parameters(), lr=0.1))
    def build(self, x):
        loss = self.layers(x).square().mean()
        loss.backward()
        return loss
net, x = Net(), sl.tensor(np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32))
"""
    run = "print(json.dumps([[net(x).item() for _ in range(3)], kernels(net)]))\n"
    (alone,), = ranks(1, WAYS + KERNELS + net + run)
    for (line,) in ranks(2, WAYS + KERNELS + net + "x = x.to_global(W, B).to_global(W, S(0))\n" + run):
        (losses, kernels), (expected, _) = json.loads(line), json.loads(alone)
        assert losses == pytest.approx(expected, rel=1e-5)
        layers = [shapes for _, op, shapes in kernels if op == "linear"]
        assert layers == [[[3, 8]]] * 20  # each rank's rows through ten layers
        travels = {kind for kind, *_ in kernels} & {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
        assert travels == {"all_reduce"}  # of gradients


LOCAL = """
sl.manual_seed(5)
net = sl.nn.Sequential(sl.nn.Linear(8, 16), sl.nn.ReLU(), sl.nn.Linear(16, 3))
class Train(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    def build(self, x, y):
        loss = sl.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss
rng = np.random.default_rng(0)
graph = Train()
for _ in range(20):
    x = sl.tensor(rng.standard_normal((12, 8)).astype(np.float32))
    y = (x[:, :3]).argmax(1)
    loss = graph(x, y)
print(f"{loss.item():.4f}", [round(float(p.detach().numpy().sum()), 3) for p in net.parameters()])
"""
CHANGES = {
    "sl.manual_seed(5)\n": 'dist.init()\nW = sl.placement("cpu", range(size))\nsl.manual_seed(5)\n',
    "sl.nn.Linear(16, 3))\n": "sl.nn.Linear(16, 3)).to_global(W, sl.sbp.broadcast)\n",
    "loss = graph(x, y)\n": "loss = graph(*(t.to_global(W, sl.sbp.broadcast).to_global(W, sl.sbp.split(0)) for t in (x, y)))\n",
}


def test_a_script_becomes_one_of_several_ranks_by_five_lines(ranks):  # GT-22
    script = LOCAL
    for old, new in CHANGES.items():
        assert script.count(old) == 1
        script = script.replace(old, new)
    changed = [line for line in difflib.ndiff(LOCAL.splitlines(), script.splitlines()) if line.startswith("+ ")]
    assert 0 < len(changed) <= 5, changed
    alone = ranks(1, LOCAL)[0]
    assert len(alone) == 1 and ranks(2, script) == [alone] * 2


def test_an_all_reduce_lies_between_two_products(ranks):  # RAY-09
    out = ranks(2, WAYS + KERNELS + """
rng = np.random.default_rng(2)
x, up, down = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 10), (10, 4)))
class Net(sl.nn.Graph):
    def build(self, x, up, down):
        return (x @ up).relu() @ down
lay = lambda array, sbp: sl.tensor(array).to_global(W, B).to_global(W, sbp)
net = Net()
y = net(lay(x, S(1)), lay(up, S(0)), lay(down, B))
print(json.dumps([float(np.abs(y.numpy() - np.maximum(x @ up, 0) @ down).max()), kernels(net)]))
""")
    for (line,) in out:
        error, kernels = json.loads(line)
        products = [i for i, (_, op, _) in enumerate(kernels) if op == "matmul"]  # two on each rank
        meetings = [i for i, (kind, op, _) in enumerate(kernels) if (kind, op) == ("all_reduce", "all_gather")]
        assert error < 1e-5 and len(products) == 4 and len(meetings) == 2, kernels
        assert products[1] < meetings[0] and meetings[1] < products[2], kernels
