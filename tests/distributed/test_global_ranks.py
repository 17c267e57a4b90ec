"""Global tensors and their graphs on several ranks: what one process makes of its devices."""

import json
import os
import pathlib

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

NETS = """
from sluice import nn
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
rng = np.random.default_rng(0)
images = rng.normal(size=(96, 12)).astype(np.float32)
labels = np.asarray(images[:, :4].argmax(1))

def mine(rows):  # what this process loads of a batch
    return sl.tensor(np.array_split(rows, size)[rank])

def mlp(between=nn.Identity()):
    sl.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), between, nn.Linear(8, 4))

class Train(nn.Graph):
    def __init__(self, net, optimizer, stages={}):
        super().__init__(name="train")
        self.net, self.stages = net, stages
        self.add_optimizer(optimizer, lr_sch=sl.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20))
        self.config.set_cores(1)

    def forward(self, x):
        for i, layer in enumerate(self.net):
            if i in self.stages:
                x = x.to_global(self.stages[i], B)
            x = layer(x)
        return x

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.forward(x), y)
        loss.backward()
        return loss

class Infer(nn.Graph):
    def __init__(self, net, stages):
        super().__init__(name="infer")
        self.net, self.stages = net.eval(), stages
        self.config.set_cores(1)

    build = Train.forward

def train(name, net, optimizer, lay, stages={}):
    graph = Train(net, optimizer(net.parameters()), stages)
    losses = [graph(*map(lay, (images[i:i + 24], labels[i:i + 24]))) for _ in range(2) for i in range(0, 96, 24)]
    assert losses[-1].item() < losses[0].item()
    whole = [p.detach().to_global(W, B).to_local().numpy() for p in net.parameters()]
    scores = Infer(net, stages)(lay(images[:8])).numpy()  # reads what the other graph has written
    whole.append(scores)
    print(name, *[loss.item().hex() for loss in losses], *[float(np.abs(w).sum()).hex() for w in whole])
"""

TRAINING = NETS + """
for devices in DEVICES:
    W = sl.placement(devices, range(N))
    sgd = lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9)
    train("data", mlp(nn.Dropout(0.1)).to_global(W, B), sgd, lambda t: mine(t).to_global(W, S(0)))
    train("adam", mlp(nn.Dropout(0.1)).to_global(W, B), lambda p: sl.optim.Adam(p, lr=1e-2), lambda t: mine(t).to_global(W, S(0)))
    first, last = sl.placement(devices, [0]), sl.placement(devices, [N - 1])
    net = mlp()
    for i, layer in enumerate(net):
        layer.to_global(first if i < 2 else last, B)
    train("stages", net, sgd, sl.tensor, {0: first, 2: last})
    net = mlp().to_global(W, B)  # columns, then rows
    for layer, weight, bias in ((net[0], 0, 0), (net[2], 1, None)):
        layer.weight.data = layer.weight.data.to_global(W, S(weight))
        if bias is not None:
            layer.bias.data = layer.bias.data.to_global(W, S(bias))
    train("tensor", net, sgd, lambda t: sl.tensor(t).to_global(W, B))
"""


@pytest.mark.parametrize("n", [2, 4])
def test_training_is_bit_for_bit_that_of_one_process(ranks, n):  # JAX-14, GT-18, GT-19
    one = ranks(1, f"N, DEVICES = {n}, ['sim']\n" + TRAINING)[0]
    devices = ["sim", "cpu"] if n == 2 else ["sim"]
    several = ranks(n, f"N, DEVICES = {n}, {devices}\n" + TRAINING)
    assert [line.split()[0] for line in one] == ["data", "adam", "stages", "tensor"]
    assert several == [one * len(devices)] * n


SAMPLED = """
dist.init()
from sluice.nn import functional as F
S, W = sl.sbp.split, sl.placement("cpu", [0, 1])
rng = np.random.default_rng(0)
images, maps = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 2, 5, 7), (4, 2, 3)))

class Sampled(sl.nn.Graph):
    def build(self, x, theta):
        x.requires_grad_()
        y = F.grid_sample(x, F.affine_grid(theta, (4, 2, 6, 5), True), "bilinear", "border", True)
        y.square().sum().backward()
        return y, x.grad

parts = Sampled()(*(sl.tensor(np.split(a, 2)[rank]).to_global(W, S(0)) for a in (images, maps)))
x = sl.tensor(images, requires_grad=True)
y = F.grid_sample(x, F.affine_grid(sl.tensor(maps), (4, 2, 6, 5), True), "bilinear", "border", True)
y.square().sum().backward()
for part, whole in zip(parts, (y.detach(), x.grad)):
    np.testing.assert_allclose(part.numpy(), whole.numpy(), rtol=1e-5, atol=1e-5)
print("same")
"""


def test_images_in_parts_are_sampled_as_the_whole(ranks):  # OPS-44
    assert ranks(2, SAMPLED) == [["same"]] * 2


EAGER = """
assert (sl.ones(2) + 1).tolist() == [2, 2]  # the engine is there before the job
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
W, here = sl.placement("cpu", [0, 1]), sl.placement("cpu", [rank])
whole = np.arange(15, dtype=np.float32).reshape(5, 3)

# A local tensor is this rank's component.
x = sl.tensor([[1.0 + rank, 2.0]])
g = x.to_global(W, S(0))
assert g.is_global and g.shape == (2, 2) and g.placement == W and g.placement.ranks == (0, 1) and g.sbp == (S(0),)
assert g.to_local().tolist() == x.tolist() and sl.zeros_like(g).shape == (2, 2)
print(" ".join(str(g).split()))

# What is local in a graph of several ranks is what rank 0 has.
class Local(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        sl.manual_seed(rank)
        self.fc = sl.nn.Linear(2, 3)
    def build(self, x):
        return self.fc(x).to_global(W, S(1))
local = Local()
print(local(sl.ones(1, 2)).tolist(), local.fc.weight.tolist())
assert x.to_global(W, B).tolist() == [[1, 2]]  # what rank 0 has
total = x.to_global(W, P)
assert total.shape == (1, 2) and total.to_local().tolist() == x.tolist() and total.to_global(sbp=B).tolist() == [[3, 4]]

# Parts need not be of one size. From any way to lie to any other.
parts = [whole[:3], whole[3:]]
columns = [whole[:, :2], whole[:, 2:]]
split = sl.tensor(parts[rank]).to_global(W, S(0))
assert split.shape == (5, 3)
for old in (S(0), S(1), B, P):
    lies = split.to_global(sbp=old)
    for new in (S(0), S(1), B, P):
        y = lies.to_global(sbp=new)
        own = y.to_local().numpy()
        if new == P:
            own = dist.all_reduce(t := sl.tensor(own)) or t.numpy()
        assert y.shape == (5, 3) and y.sbp == (new,)
        assert np.array_equal(own, parts[rank] if new == S(0) else columns[rank] if new == S(1) else whole), (old, new)
        for r in (0, 1):  # on one rank, and back
            alone = y.to_global(sl.placement("cpu", [r]), B)
            assert alone.shape == (5, 3) and alone.to_local().numel() == (15 if r == rank else 0)
            assert np.array_equal(alone.to_global(W, B).numpy(), whole)

def error(f):
    try:
        f()
    except Exception as e:
        print(f"{type(e).__name__}: {str(e).splitlines()[0].split('  (')[0]}")
error(g.numpy)
error(g.item)
error(lambda: g.copy_(x))
error(lambda: x[:, :rank + 1].to_global(W, S(0)))
error(lambda: sl.zeros(3 - 2 * rank, 2).to_global(W, S(0)))
error(lambda: sl.placement("cpu", [0, 2]))
assert str(gpus := sl.placement("cuda", [1, 0])) == "1/cuda:1,cuda:0" and x.to_global(gpus, B).placement == gpus

# A graph takes components and gives wholes; one without global tensors is each rank's own.
class Twice(sl.nn.Graph):
    def build(self, x):
        return x * 2
graph = Twice(name="twice")
assert np.array_equal(graph(split).numpy(), 2 * whole)
assert Twice()(sl.ones(2 + rank)).tolist() == [2.0] * (2 + rank)
error(lambda: graph(sl.tensor(whole)))
error(lambda: graph(split.to_global(sbp=B)))
error(lambda: graph(sl.tensor(parts[rank][:1]).to_global(W, S(0))))
error(lambda: graph(sl.tensor(parts[rank]).long().to_global(W, S(0))))
error(lambda: sl.save(graph, "/proc/bundle"))
try:
    Twice()(sl.ones(2).to_global(gpus, B))  # GPUs that this machine has not, or not both
    print("two GPUs")
except sl.Error as e:
    print(": ".join(str(e).split(": ")[:2]))
dist.destroy()
assert repr(g.placement) == "sluice.placement(type='cpu', ranks=[0, 1])"
"""


def test_components_of_eager_tensors(ranks):  # GT-03, GT-04, GT-17
    out = ranks(2, EAGER)
    shown = ("tensor([[{}., 2.]], size=(2, 2), placement=sluice.placement(type='cpu', ranks=[0, 1]), "
             "sbp=(sluice.sbp.split(dim=0),))")
    alone = (": this rank holds its component of the tensor alone: S(0) on cpu:0,1/cpu:0; use to_global(sbp=broadcast) on all "
             "ranks for the whole, to_local() for the component")
    assert [lines[0] for lines in out] == [shown.format(1), shown.format(2)]
    assert out[0][1] == out[1][1]
    assert out[0][2:] == out[1][2:] == [
        "RuntimeError: numpy" + alone,
        "ValueError: item: a Tensor with 4 elements cannot be converted to Scalar: float32(2, 2); it must have one element",
        "RuntimeError: assign" + alone,
        "ValueError: to_global: rank 1 has float32 (1, 2); it must be float32 (1, 1), for sluice.sbp.split(dim=0) of (2, 1) over "
        "ranks [0, 1]",
        "ValueError: to_global: rank 0 has float32 (3, 2); it must be float32 (2, 2), for sluice.sbp.split(dim=0) of (4, 2) over "
        "ranks [0, 1]",
        "ValueError: placement: rank 2; the job has ranks 0 to 1",
        "ValueError: graph 'twice': input 'x' lies as a local tensor; expected S(0) on cpu:0,1/cpu:0, as when the graph was compiled",
        "ValueError: graph 'twice': input 'x' lies as B on cpu:0,1/cpu:0; expected S(0) on cpu:0,1/cpu:0, as when the graph was "
        "compiled",
        "ValueError: graph 'twice': argument 'x' has shape (2, 3); expected (5, 3), as when the graph was compiled",
        "TypeError: graph 'twice': argument 'x' has dtype int64; expected float32, as when the graph was compiled",
        "OSError: graph 'twice': rank 0 could not save it: bundle '/proc/bundle': cannot be saved: /proc: No such file or directory",
        out[0][-1]]
    assert out[0][-1] in ("rank 0: device", "rank 1: device", "two GPUs")


@pytest.mark.parametrize("n", [1, 2])
def test_a_parameter_may_be_laid_anew_inside_build(ranks, n):
    out = ranks(n, """
    dist.init()
    W, S, B = sl.placement("sim", [0, 1]), sl.sbp.split, sl.sbp.broadcast

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            sl.manual_seed(0)
            self.fc = sl.nn.Linear(6, 4, bias=False).to_global(W, S(0))
            self.add_optimizer(sl.optim.SGD(self.fc.parameters(), lr=0.5))

        def build(self, x):
            weight = self.fc.weight.to_global(sbp=B)
            assert weight._traced and weight.sbp == (B,) and self.fc.weight.sbp == (S(0),)
            loss = sl.nn.functional.linear(x, weight).square().mean()
            loss.backward()
            return loss

    x = sl.tensor(np.split(np.ones((2, 6), np.float32), size)[rank]).to_global(W, S(0))
    graph = Train()
    print([graph(x).item().hex() for _ in range(2)])
    sl.manual_seed(0)
    fc = sl.nn.Linear(6, 4, bias=False)
    one = sl.optim.SGD(fc.parameters(), lr=0.5)
    for _ in range(2):
        loss = fc(sl.ones(2, 6)).square().mean()
        one.zero_grad()
        loss.backward()
        one.step()
    assert abs(graph(x).item() - fc(sl.ones(2, 6)).square().mean().item()) < 1e-6
    """)
    assert len(out[0]) == 1 and out == [out[0]] * n


def test_what_is_local_is_equal_on_all_ranks_or_refused(ranks):
    out = ranks(2, """
    dist.init()
    W, S = sl.placement("cpu", [0, 1]), sl.sbp.split

    class Scale(sl.nn.Graph):
        def build(self, x, factor):
            return x * (sl.tensor([1.0 + rank, 2.0]) * 10 + factor)

    graph, x = Scale(name="scale"), sl.ones(1, 2).to_global(W, S(0))
    try:
        graph(x, sl.full((2,), float(rank)))
    except ValueError as e:
        print(str(e).split("  (")[0])
    print(graph(x, sl.ones(2)).tolist())
    """)
    assert out == [["graph 'scale': local input 'factor' has other contents on rank 1 than on rank 0; a local input must be equal on all "
                    "ranks, rows of its own are given with to_global(placement, sbp.split(0))", "[[11.0, 21.0], [11.0, 21.0]]"]] * 2


def test_every_conversion_keeps_the_value_between_ranks(ranks):  # GT-05, GT-06
    assert ranks(4, """
    dist.init()
    S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
    class Convert(sl.nn.Graph):
        def __init__(self, here, there):
            super().__init__()
            self.here, self.there = here, there
        def build(self, x):
            ways = (S(0), S(1), B, P)
            return [x.to_global(self.here, old).to_global(to, new).to_global(to, B)
                    for to in (self.here, self.there) for old in ways for new in ways]
    for shape, here, there in (((5, 7), sl.placement("sim", [0, 1]), sl.placement("sim", [3, 2])),  # by registers
                               ((8, 4), sl.placement("sim", range(4)), sl.placement("cpu", range(4)))):  # by collectives
        graph = Convert(here, there)
        for step in range(3):
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + step
            results = graph(sl.tensor(x))
            assert len(results) == 32 and all(np.array_equal(y.numpy(), x) for y in results)
    print("equal")
    """) == [["equal"]] * 4


def test_the_script_of_the_page(ranks):  # GT-22, JAX-14
    page = (pathlib.Path(__file__).parents[2] / "docs/ranks.md").read_text()
    script = page.partition("## One script, several processes")[2].partition("```python\n")[2].partition("```")[0]
    alone = ranks(1, script)[0]
    assert len(alone) == 1 and ranks(2, script) == [alone] * 2


def test_state_dicts_keep_components_and_take_wholes(ranks):
    assert ranks(2, NETS + """
W = sl.placement("sim", [0, 1])
net = mlp().to_global(W, S(0))
state = {name: t.to_global(sbp=B).to_local().clone() for name, t in net.state_dict().items()}
before = net.state_dict()["0.weight"].to_local().numpy().copy()
assert net[0].weight.shape == (16, 12) and before.shape == (8, 12)
N = 2
train("split", net, lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9), lambda t: sl.tensor(t).to_global(W, B))
assert not np.array_equal(net[0].weight.detach().to_local().numpy(), before)
net.load_state_dict(state)
assert np.array_equal(net[0].weight.detach().to_local().numpy(), before)
one = mlp().to_global(sl.placement("sim", [1]), B)
one.load_state_dict({name: t * 2 for name, t in state.items()})
one.load_state_dict(one.state_dict())
assert np.array_equal(one[0].weight.detach().to_global(W, S(0)).to_local().numpy(), 2 * before)
""") == [[line] for line in ranks(1, NETS + """
W = sl.placement("sim", [0, 1])
train("split", mlp().to_global(W, S(0)), lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9), lambda t: sl.tensor(t).to_global(W, B))
""")[0] * 2]


def test_a_rank_that_builds_another_graph_is_named_with_its_line(ranks):  # GT-23
    out = ranks(2, """
    dist.init()
    W = sl.placement("cpu", [0, 1])
    class Net(sl.nn.Graph):
        def build(self, x):
            x = x.relu()
            if rank == self.odd:
                x = x.exp()
            return x.sum()
    start = time.monotonic()
    for odd in (1, None):
        graph = Net(name="net")
        graph.odd = odd
        try:
            print(graph(sl.ones(2, 3).to_global(W, sl.sbp.split(0))).item())
        except ValueError as e:
            print(str(e).splitlines()[0])
    assert time.monotonic() - start < 10
    """)
    assert out[0] == out[1] == [
        "graph 'net': rank 1 has traced another graph than rank 0: first different are '%3 = sum(%2) {dim = none, keepdim = false} : "
        "float32()'  (script.py:15) on rank 0 and '%3 = exp(%2) : float32(4, 3)'  (script.py:14) on rank 1; all ranks must build "
        "the same graph  (script.py:21)", "12.0"]


def test_inputs_of_graphs_of_several_ranks_are_not_donated(ranks):
    out = ranks(2, """
    dist.init()
    W, B = sl.placement("cpu", [0, 1]), sl.sbp.broadcast
    class Net(sl.nn.Graph):
        def build(self, x):
            return (x.to_global(W, B) if self.local else x) * 2
    for x in (sl.ones(64), sl.ones(64).to_global(W, B)):
        graph = Net(name="net")
        graph.local = not x.is_global
        graph.config.donate_inputs("x")
        try:
            graph(x)
        except NotImplementedError as e:
            print(str(e).partition("  (")[0])
        print((x if not x.is_global else x.to_local()).sum().item())
    """)
    assert out[0] == out[1] == [
        "graph 'net': argument 'x' cannot be donated: several ranks run the graph together; its memory would be copied", "64.0",
        "graph 'net': argument 'x' cannot be donated: it is global; donate local tensors", "64.0"]


def test_a_step_that_fails_and_a_rank_that_is_killed_are_named(start):
    _, out, _ = start(2, """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell
    dist.init()
    W = sl.placement("sim", [0, 1])
    def check(x):
        if rank == 1 and x[0] == 3:
            raise ValueError("three is refused")
        return x
    class Sum(sl.nn.Graph):
        def build(self, x):
            x = sl.host_function(check, x, out=((4,), sl.float32))
            return x.to_global(W, sl.sbp.split(0)).sum()
    graph = Sum()
    for step in range(6):
        if step == 5:
            dist.barrier()  # rank 0 has all that was sent
        if step == 5 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            print(graph(sl.full((4,), float(step))).item(), flush=True)
        except sl.Error as e:
            print(str(e).splitlines()[0].split("  (")[0], flush=True)
    assert time.monotonic() - begin < 5
    """).output()
    rank0, rank1 = ([line[4:] for line in out.splitlines() if line.startswith(f"[{r}] ")] for r in (0, 1))
    refused = "host function 'check' raised ValueError: three is refused"
    assert rank1 == ["0.0", "4.0", "8.0", refused, "16.0"]
    assert rank0 == ["0.0", "4.0", "8.0", "all_gather: rank 1 takes no part: " + refused, "16.0",
                     "all_gather: rank 1 is gone: its connection closed without a goodbye; it crashed or was killed"]


def test_values_that_vary_in_length_are_each_ranks_own_until_they_are_masked(ranks):
    out = ranks(2, """
    dist.init()
    W = sl.placement("sim", [0, 1])
    def batches():
        for n in (8, 3, 0):
            yield np.full((n, 2), n, np.float32)
    class Net(sl.nn.Graph):
        def build(self):
            x = sl.host_function(batches, out=((sl.Dim("rows", max=8), 2), sl.float32))
            mask = (sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1)
            return x * 2, sl.where(mask, x, 0).to_global(W, sl.sbp.split(0)).sum()
    class Refused(sl.nn.Graph):
        def build(self):
            return sl.host_function(batches, out=((sl.Dim("rows", max=8), 2), sl.float32)).to_global(W, sl.sbp.split(0))
    graph = Net()
    for n in (8, 3, 0):
        local, total = graph()
        print(local.numpy().tolist() == [[2.0 * n] * 2] * n, total.item())
    try:
        Refused()()
    except NotImplementedError as error:
        print(str(error).split(" of ")[0])
    """)
    assert out[0] == out[1] == ["True 128.0", "True 18.0", "True 0.0", "to_global: mixes rows"]


def test_ranks_with_other_kernels_are_named(ranks):
    library = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release"))
    lines = ranks(2, f"""
    dist.init()
    if rank == 1:
        sl.ops.load_library({str(library / "tests/example_ops.so")!r})
    W = sl.placement("cpu", [0, 1])
    class Double(sl.nn.Graph):
        def build(self, x):
            return x.to_global(W, sl.sbp.split(0)) * 2
    try:
        Double()(sl.ones(4))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
    """)
    said = "NotImplementedError rank 0 has no kernel scaled_softsign on cpu, which rank 1 has; ranks need the same libraries and extensions  (script.py:16)"
    assert lines == [[said]] * 2


def test_the_digits_example(ranks, tmp_path):
    example = pathlib.Path(__file__).parents[2] / "examples/distributed_digits.py"
    ranks(2, f"""
    import runpy
    sys.argv, sys.path[:0] = ["distributed_digits.py", "--steps", "4", "--out", {str(tmp_path / "out")!r}], [{str(example.parent)!r}]
    runpy.run_path({str(example)!r}, run_name="__main__")
    """)
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["equal"] and len(result["losses"]) == 4 and result["losses"][-1] < result["losses"][0]
    assert "1/cpu:0/compute0" in (tmp_path / "out/plan.json").read_text() and (tmp_path / "out/plan.html").stat().st_size > 10000
