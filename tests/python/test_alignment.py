"""Programs and single ops against torch, as its users check them when they come: one file with either library, training on real images."""

import json
import threading

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from sklearn.datasets import load_digits

import sluice as sl
import sluice.nn.functional as F
from sluice import nn

MODEL_FILE = """
import importlib, json, os, sys

torch = importlib.import_module(os.environ["LIBRARY"])
nn, F = torch.nn, torch.nn.functional

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(8), nn.MaxPool2d(2), Block(8))
        self.embed = nn.Embedding(11, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head = nn.Linear(8 + 16, 5)

    def forward(self, images, words):
        x = self.blocks(self.stem(images)).mean((2, 3))
        w = self.embed(words)
        w = self.attention(w, w, w, need_weights=False)[0].amax(1)
        return F.log_softmax(self.head(torch.cat([x, w], dim=-1)), dim=-1)

torch.manual_seed(0)
model = Model()
images, words = torch.rand(4, 3, 16, 16), torch.arange(24).reshape(4, 6) % 11
out = model(images, words)
loss = F.nll_loss(out, torch.tensor([0, 4, 2, 1]))
loss.backward()
print(json.dumps([out.tolist(), loss.item(), {n: p.grad.sum().item() for n, p in model.named_parameters()}, "torch" in sys.modules]))
"""


def test_one_file_runs_with_either_library(run_script):  # OE-02
    runs = []
    for library in ("sluice", "torch"):
        done = run_script(MODEL_FILE, LIBRARY=library)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    ours, theirs = runs
    assert ours[3] is False and theirs[3] is True
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    assert ours[2].keys() == theirs[2].keys()
    np.testing.assert_allclose(list(ours[2].values()), list(theirs[2].values()), rtol=1e-4, atol=1e-5)


def test_lenet_on_digits_trains_as_torchs():  # OE-11
    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
    batches = np.random.default_rng(0).integers(0, 1500, (200, 32))

    def run(lib):
        lib.manual_seed(0)
        n = lib.nn
        net = n.Sequential(n.Conv2d(1, 6, 3, padding=1), n.Tanh(), n.MaxPool2d(2), n.Conv2d(6, 16, 3), n.Tanh(), n.Flatten(),
                           n.Linear(16 * 2 * 2, 60), n.Tanh(), n.Linear(60, 42), n.Tanh(), n.Linear(42, 10))
        sgd, losses = lib.optim.SGD(net.parameters(), lr=0.05, momentum=0.8), []
        x, y = lib.tensor(images), lib.tensor(labels)
        for rows in batches:
            sgd.zero_grad()
            loss = lib.nn.functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            sgd.step()
            losses.append(loss.item())
        with lib.no_grad():
            return losses, (net(x[1500:]).argmax(1) == y[1500:]).double().mean().item()

    ours, theirs = run(sl), run(torch)
    worst = max(abs(a - b) / b for a, b in zip(ours[0], theirs[0]))
    assert worst <= 1e-3, worst
    assert abs(ours[1] - theirs[1]) <= 0.002 and ours[1] > 0.8


def test_a_hook_doubles_the_gradient_upstream():  # OE-15
    def run(lib):
        x = lib.tensor([1.0, -2.0, 3.0], requires_grad=True)
        y = x.exp()
        y.retain_grad()
        z = y * y
        plain = 2 * y.detach() ** 2
        seen = []
        handle = y.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
        z.sum().backward(retain_graph=True)
        assert lib.allclose(x.grad, 2 * plain)
        first = [x.grad.tolist(), y.grad.tolist(), seen[0].tolist()]
        handle.remove()
        z.sum().backward()
        return first, x.grad.tolist(), len(seen)

    ours, theirs = run(sl), run(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    assert ours[2] == theirs[2] == 1


def test_seeds_give_torchs_streams():  # OE-23
    def draw(lib):
        lib.manual_seed(1234)
        drawn = [lib.rand(5), lib.randn(3), lib.randn(40), lib.randint(0, 100, (7,)), lib.randperm(9), lib.empty(6).uniform_(-1, 1),
                 lib.empty(20).normal_(2, 3), lib.rand(2, dtype=lib.float64), lib.bernoulli(lib.full((12,), 0.3)), lib.nn.Linear(4, 3).weight,
                 lib.rand(3, generator=lib.Generator().manual_seed(7))]
        return [t.detach().numpy() for t in drawn]

    first, again, theirs = draw(sl), draw(sl), draw(torch)
    for a, b, c in zip(first, again, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-6, atol=1e-6)  # equal but for the last bit of logarithms
    masks = []
    for _ in range(2):
        sl.manual_seed(5)
        masks.append(F.dropout(sl.ones(50), 0.5).tolist())
    assert masks[0] == masks[1]
    assert sl.manual_seed(3).initial_seed() == 3 == sl.initial_seed()


@pytest.mark.parametrize("dtype,slope", [("float16", 0.01), ("bfloat16", 0.01), ("float16", 0.3)])
def test_leaky_relu_of_16_bits(dtype, slope):  # OPS-25
    x = torch.randn(10000).to(getattr(torch, dtype))
    weight = torch.rand(10000).to(getattr(torch, dtype))
    wide, narrow = to_sl(x.float()).requires_grad_(), to_sl(x.float()).to(getattr(sl, dtype)).requires_grad_()
    layer = nn.LeakyReLU(slope)
    for t in (wide, narrow):
        y = layer(t)
        y.backward(to_sl(weight.float()).to(y.dtype))
        assert y.dtype is t.dtype is t.grad.dtype
    assert (layer(narrow).float() - layer(wide)).abs().max().item() <= 2e-3
    assert (narrow.grad.float() - wide.grad).abs().max().item() <= 2e-3

    class Graph(nn.Graph):
        def build(self, t, g):
            t = t.detach().requires_grad_()
            y = layer(t)
            y.backward(g)
            return y, t.grad

    y, grad = Graph()(narrow.detach(), to_sl(weight.float()).to(narrow.dtype))
    assert sl.equal(y, layer(narrow)) and sl.equal(grad, narrow.grad)


@pytest.mark.parametrize("dim", range(-3, 3))
def test_gradients_of_stack_equal_differences(dim):  # OPS-42
    weight = torch.randn(torch.stack([torch.zeros(2, 3)] * 4, dim).shape, dtype=torch.float64)

    def of(lib, a, b, c):
        w = to_sl(weight) if lib is sl else weight
        return (lib.stack([a, b, a, c], dim) * w).sin()

    inputs = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ours = [to_sl(t) for t in inputs]
    assert sl.autograd.gradcheck(lambda *ts: of(sl, *ts), ours) and sl.autograd.gradgradcheck(lambda *ts: of(sl, *ts), ours)
    of(sl, *ours).sum().backward()
    of(torch, *inputs).sum().backward()
    for a, b in zip(ours, inputs):
        assert_same(a.grad, b.grad, 1e-12)


def test_layer_norm_saves_nothing_large_for_its_gradient():  # OPS-31
    class Norm(nn.Graph):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

        def build(self, x, grad):
            y = self.norm(self.first(x))
            y.backward(grad)
            return self.first.weight.grad

    graph = Norm()
    graph(sl.randn(32, 64), sl.randn(32, 64))
    kernels = {k["op"]: k for k in graph.plan["kernels"]}
    forward, backward = kernels.get("layer_norm"), kernels["layer_norm_backward"]
    # Its operands are the gradient, the input, which is there anyway, and what is small: no normalised input.
    large = [v for v in backward["inputs"] if np.prod(v["shape"]) > 64]
    assert len(large) == 2 and all(v["shape"] == [32, 64] for v in large)
    assert all(np.prod(v["shape"]) <= 64 for v in backward["inputs"] if v not in large)
    assert forward is None or len([v for v in forward["outputs"] if np.prod(v["shape"]) > 64]) <= 1


def test_empty_ranges():  # OPS-45
    for args in [(3, 3), (0,), (5, 5, -1), (2.0, 2.0)]:
        ours, theirs = sl.arange(*args), torch.arange(*args)
        assert ours.shape == theirs.shape == (0,) and ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        for f in (lambda t: t * 2 + 1, lambda t: t.sum(), lambda t: t.reshape(0, 4) * 2, lambda t: t.float().exp(), lambda t: t[None].expand(3, 0)):
            assert_same(f(ours), f(theirs))
    assert nn.Graph.trace(lambda t: (t + 1, t.float().sum()))(sl.arange(3, 3))[1].item() == 0


def test_batch_gather_and_segment_sums_are_numpys():  # OPS-43
    random = np.random.default_rng(0)
    for shape, m in [((3, 5, 4), 7), ((2, 3, 6), 1), ((4, 2), 3)]:
        x = random.standard_normal(shape)
        at, ids = random.integers(0, shape[1], (shape[0], m)), random.integers(0, 4, shape[:2])
        expected, sums = np.stack([row[i] for row, i in zip(x, at)]), np.zeros((shape[0], 4, *shape[2:]))
        for b in range(shape[0]):
            np.add.at(sums[b], ids[b], x[b])
        for run in (lambda f, *ts: f(*ts), lambda f, *ts: nn.Graph.trace(f)(*ts)):
            np.testing.assert_allclose(run(sl.batch_gather, sl.tensor(x), sl.tensor(at)).numpy(), expected)
            np.testing.assert_allclose(run(lambda t, i: sl.unsorted_batch_segment_sum(t, i, 4), sl.tensor(x), sl.tensor(ids)).numpy(), sums)
        t = sl.tensor(x, requires_grad=True)
        assert sl.autograd.gradcheck(lambda t: sl.batch_gather(t, sl.tensor(at)), [t])
        assert sl.autograd.gradcheck(lambda t: sl.unsorted_batch_segment_sum(t, sl.tensor(ids), 4), [t])


def test_calls_overlap_and_results_come_in_order():  # NG-23
    calls = 100
    begun = [threading.Event() for _ in range(calls + 1)]

    def first(x):
        begun[int(x)].set()
        return x + 1

    def second(x):
        # Each call but the last ends only when the next one has begun.
        assert int(x) == calls or begun[int(x)].wait(60)
        return x * 10

    class Pipeline(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_outputs_buffer_size(4)

        def build(self, x):
            y = sl.host_function(first, x, out=((), sl.int64), stream="host:0")
            return sl.host_function(second, y, out=((), sl.int64), stream="host:1"), x

    graph = Pipeline()
    results = [graph(sl.tensor(i)) for i in range(calls)]  # nothing is read
    assert [y.item() for y, _ in reversed(results)] == [10 * (i + 1) for i in reversed(range(calls))]
    assert [x.item() for _, x in results] == list(range(calls))
    assert graph.stats()["finished"] == calls


def test_the_first_nan_is_named_with_op_step_and_line(tmp_path, monkeypatch):  # JAX-15
    monkeypatch.chdir(tmp_path)  # where the op's output is dumped

    class Deep(nn.Graph):
        def __init__(self, check):
            super().__init__(name="deep")
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(10)])
            if check:
                self.config.enable_check_numerics()

        def build(self, x, at_7):
            for i, layer in enumerate(self.layers):
                x = layer(x).tanh()
                if i == 7:
                    x = (x * 0 + at_7).log()
            return x.sum()

    graph, x = Deep(True), sl.ones(1, 4)
    line = next(n for n, text in enumerate(open(__file__), 1) if "+ at_7).log()" in text)
    for _ in range(3):
        graph(x, sl.tensor(1.0)).item()
    with pytest.raises(RuntimeError, match=rf"log: output 0 is not finite: .* is nan.*test_alignment.py:{line}.*kernel 'log'.*step 3"):
        graph(x, sl.tensor(-1.0)).item()
    assert np.isfinite(graph(x, sl.tensor(1.0)).item())
    without = Deep(False)
    without.config.disable_pass("fuse_elementwise")  # which would leave no ops to name
    assert np.isnan(without(x, sl.tensor(-1.0)).item())
    kernels = [[(k["op"], k["inputs"], k["outputs"]) for k in g.plan["kernels"]] for g in (graph, without)]
    assert kernels[0] == kernels[1]  # the plan is the same: off, there is nothing to pay for


def test_two_optimizers_with_groups_train_as_torchs():  # NG-25
    def made(lib):
        lib.manual_seed(0)
        net = lib.nn.Sequential(lib.nn.Linear(4, 6), lib.nn.Tanh(), lib.nn.Linear(6, 2))
        first = lib.optim.SGD([{"params": [net[0].weight], "lr": 0.2}, {"params": [net[0].bias]}], lr=0.1, momentum=0.9)
        second = lib.optim.Adam([{"params": [net[2].weight], "weight_decay": 0.1}, {"params": [net[2].bias], "lr": 0.1}], lr=0.01)
        return net, first, second, lib.optim.lr_scheduler.ExponentialLR(second, 0.9)

    class Train(nn.Graph):
        def __init__(self, net, first, second, schedule):
            super().__init__()
            self.net = net
            self.add_optimizer(first)
            self.add_optimizer(second, lr_sch=schedule)

        def build(self, x):
            loss = self.net(x).square().sum(1).mean()
            loss.backward()
            return loss

    ours, theirs = made(sl), made(torch)
    graph = Train(*ours)
    for _ in range(15):
        x = torch.randn(8, 4)
        loss = theirs[0](x).square().sum(1).mean()
        for optimizer in theirs[1:3]:
            optimizer.zero_grad()
        loss.backward()
        for step in theirs[1:]:
            step.step()
        assert_same(graph(to_sl(x)), loss, 1e-4)
    for p, q in zip(ours[0].parameters(), theirs[0].parameters()):
        assert_same(p, q, 1e-4)
    for a, b in zip(ours[1:3], theirs[1:3]):
        assert [g["lr"] for g in a.param_groups] == pytest.approx([g["lr"] for g in b.param_groups])
    with pytest.raises(ValueError, match="has this SGD already"):
        other = Train(*made(sl))
        other.add_optimizer(other._optimizers[0][0])


def test_stop_gradient_is_not_requires_grad():  # PD-14
    x = sl.ones(2)
    assert x.stop_gradient is True
    x.stop_gradient = False
    assert x.requires_grad and not (x * 2).stop_gradient
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2] and x.detach().stop_gradient
    assert nn.Linear(2, 2).weight.stop_gradient is False
    with pytest.raises(RuntimeError):
        sl.ones(2, dtype=sl.int64).stop_gradient = False
