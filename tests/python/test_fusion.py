"""The compiler makes one kernel of these: chains of elementwise ops, batch norm in training, updates of parameters. Results
keep the bits that they have one by one."""

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from fusing import Compute, ops

import sluice as sl
from sluice import nn

F = nn.functional


def steps(graph):
    return [[call[0] for call in kernel["attrs"]["body"]["graph"]["calls"]] if isinstance(kernel["attrs"]["body"]["graph"]["calls"][0], list)
            else [call["op"] for call in kernel["attrs"]["body"]["graph"]["calls"]]
            for kernel in graph.plan["kernels"] if kernel["op"] == "fused"]


def bits(t):
    return t.detach().to(sl.float32).numpy().tobytes() if t.dtype is sl.bfloat16 else t.detach().numpy().tobytes()


def random(*shape, dtype=None, seed=0):
    t = sl.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
    return t if dtype is None else t.to(dtype)


def twelve(lib, x, row, column):
    y = lib.tanh(x * row + column).exp() - x
    y = lib.where(y > 0.5, y, lib.sigmoid(y * 0.3))
    return lib.nn.functional.gelu(y.abs() + column) * row


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(7, 3), (64, 1000), (3, 5, 129), (2, 700, 9)])
def test_a_chain_is_one_kernel_with_the_bits_of_its_ops(dtype, shape):  # MF-14
    dtype = getattr(sl, dtype)
    xs = random(*shape).to(dtype), random(shape[-1], seed=1).to(dtype), random(*shape[:-1], 1, seed=2).to(dtype)
    graph = Compute(lambda *xs: twelve(sl, *xs))
    plain = Compute(lambda *xs: twelve(sl, *xs), "fuse_elementwise")
    got, expected = graph(*xs), plain(*xs)
    assert ops(graph) == ["fused"] and len(ops(plain)) >= 12
    assert bits(got) == bits(expected) == bits(twelve(sl, *xs))


def test_chains_of_whole_numbers_and_conditions():  # MF-14
    def f(x, y):
        z = sl.maximum(x + y, y * 3) - x
        return sl.where((z > y) & (x < 5), z, x).to(sl.float32) * 0.5

    x, y = (sl.from_numpy(np.random.default_rng(k).integers(-9, 9, (50, 33)).astype(np.int32)) for k in range(2))
    graph = Compute(f)
    assert bits(graph(x, y)) == bits(f(x, y))
    assert ops(graph) == ["fused"]


def test_operands_lie_as_they_come():  # MF-14
    def f(x, y):
        return (x + y).relu() * x - 1.0

    x, y = random(30, 40).t(), random(40, 60, seed=1)[:, ::2]
    graph = Compute(f)
    assert bits(graph(x, y)) == bits(f(x, y))
    images = random(2, 8, 5, 6).contiguous(memory_format=sl.channels_last)
    assert bits(Compute(f)(images, random(8, 1, 1))) == bits(f(images, random(8, 1, 1)))


def test_a_division_that_has_no_result_names_its_op():  # MF-14
    x, y = sl.tensor([1, 2, 3]), sl.tensor([1, 0, 1])
    with pytest.raises(RuntimeError, match="floor_divide|div"):
        Compute(lambda x, y: (x + 1) // y + 2)(x, y).numpy()


def test_a_sum_of_four_is_one_kernel():  # MF-10
    xs = [random(20, 30, seed=k) for k in range(4)]
    graph = Compute(lambda a, b, c, d: a + b + c + d)
    assert bits(graph(*xs)) == bits(xs[0] + xs[1] + xs[2] + xs[3])
    assert ops(graph) == ["fused"]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [(3, 4), (7, 100), (400, 1001)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_binary_cross_entropy_and_its_gradient_are_two_kernels(reduction, size, dtype):  # MF-10
    draw = np.random.default_rng(1)
    given = [draw.uniform(0.05, 0.95, size).astype(np.float32) for _ in range(2)]
    x, target = (sl.from_numpy(a).to(getattr(sl, dtype)) for a in given)

    def f(x, target):
        x = x.detach().requires_grad_()
        loss = F.binary_cross_entropy(x, target, reduction=reduction)
        return loss, *sl.autograd.grad(loss, x)

    graph, plain = Compute(f), Compute(f, "fuse_elementwise")
    got, expected = graph(x, target), plain(x, target)
    assert [bits(t) for t in got] == [bits(t) for t in expected] == [bits(t) for t in f(x, target)]
    assert sorted(ops(graph)) == ["fused", "fused_reduce"], ops(graph)
    if dtype != "bfloat16":
        x, target = (torch.from_numpy(a).to(getattr(torch, dtype)) for a in given)
        loss = torch.nn.functional.binary_cross_entropy(x.requires_grad_(), target, reduction=reduction)
        loss.backward()
        assert_same(got[0], loss.detach(), 1e-6)
        assert_same(got[1], x.grad, 1e-6)


def test_a_cast_and_a_scale_are_one_kernel():  # CFG-05
    def f(x, scale):
        return x.to(sl.float32) * scale

    x, scale = random(20, 30, dtype=sl.bfloat16), sl.tensor(0.25)
    graph, plain = Compute(f), Compute(f)
    graph.config.allow_fuse_cast_scale()
    plain.config.allow_fuse_cast_scale(False)
    assert bits(graph(x, scale)) == bits(plain(x, scale)) == bits(f(x, scale))
    assert ops(graph) == ["fused"] and sorted(ops(plain)) == ["cast", "mul"]
    assert graph.config.report()["allow_fuse_cast_scale"] == 1


class Block(nn.Module):
    """As GPT's are; attention is left to a linear layer."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = x + self.drop(self.mix(self.norm1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_and_the_residual_are_one_kernel(dtype):  # MF-09
    sl.manual_seed(0)
    net, x = Block(48).to(getattr(sl, dtype)), random(3, 10, 48).to(getattr(sl, dtype))
    graph, plain = Compute(net), Compute(net, "fuse_elementwise")
    sl.manual_seed(5)
    got = graph(x)
    sl.manual_seed(5)
    expected = plain(x)
    assert bits(got) == bits(expected)
    assert len(ops(plain)) - len(ops(graph)) == 2 and ops(plain).count("dropout") == 2 and "dropout" not in ops(graph)
    assert steps(graph) == [["dropout", "add"]] * 2


class Train(nn.Graph):
    def __init__(self, net, optimizer=None, *off):
        super().__init__()
        self.net = net
        if optimizer is not None:
            self.add_optimizer(optimizer)
        for name in off:
            self.config.disable_pass(name)

    def build(self, x):
        y = self.net(x)
        loss = (y * y).mean()
        loss.backward()
        return loss, y


def block_of(lib, channels):
    base = torch.nn.Module if lib is torch.nn else nn.Module

    class Made(base):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = lib.Conv2d(channels, channels, 3, padding=1, bias=False), lib.BatchNorm2d(channels)
            self.conv2, self.bn2 = lib.Conv2d(channels, channels, 3, padding=1, bias=False), lib.BatchNorm2d(channels, momentum=0.3)
            self.relu = lib.ReLU()

        def forward(self, x):
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + x)

    return Made()


def blocks(lib, channels=8):
    return lib.Sequential(block_of(lib, channels), block_of(lib, channels))


def state(net):
    return {name: value.numpy().copy() for name, value in net.state_dict().items()}


def test_batch_norm_addition_and_relu_are_one_kernel_forward_and_one_backward():  # MF-07
    torch.manual_seed(0)
    theirs = blocks(torch.nn)
    start = {k: v.clone() for k, v in theirs.state_dict().items()}
    graphs = []
    for off in ((), ("fuse_batch_norm",)):
        ours = blocks(nn)
        ours.load_state_dict({k: to_sl(v) for k, v in start.items()})
        graphs.append(Train(ours, sl.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9), *off))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = torch.randn(4, 8, 6, 6)
        y = theirs(x)
        loss = (y * y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        results = [graph(to_sl(x)) for graph in graphs]
        assert [bits(t) for t in results[0]] == [bits(t) for t in results[1]]
        assert_same(results[0][0], loss.detach(), 1e-5)
        assert_same(results[0][1], y.detach(), 1e-5 if step == 0 else 1e-4)
    fused, plain = (state(graph.net) for graph in graphs)
    for name, value in theirs.state_dict().items():
        assert fused[name].tobytes() == plain[name].tobytes(), name
        np.testing.assert_allclose(fused[name], value.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    names = ops(graphs[0])
    assert names.count("fused_batch_norm") == 4 and names.count("fused_batch_norm_backward") == 4
    assert not {"batch_norm_train", "batch_norm_backward", "relu", "relu_backward"} & set(names)
    made = [k for k in graphs[0].plan["kernels"] if k["op"] == "fused_batch_norm"]
    assert all(len(k["outputs"]) == 5 for k in made)  # the running statistics, too
    assert ops(graphs[1]).count("batch_norm_train") == 4
    assert graphs[0].config.report()["fuse_batch_norm"] == 8


@pytest.mark.parametrize("optimizer", ["SGD", "Momentum", "Adam", "AMSGrad"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_updates_of_many_parameters_are_one_kernel(optimizer, dtype):  # CFG-07
    make = {"SGD": lambda p: sl.optim.SGD(p, lr=0.1, weight_decay=0.01),
            "Momentum": lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
            "Adam": lambda p: sl.optim.AdamW(p, lr=0.01, weight_decay=0.1),
            "AMSGrad": lambda p: sl.optim.Adam(p, lr=0.01, amsgrad=True)}[optimizer]
    states, counts = [], []
    for mode in ("default", "all", "single"):
        sl.manual_seed(0)
        net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 1000), nn.Tanh(), nn.Linear(1000, 300), nn.Tanh(), nn.Linear(300, 3))
        net.to(getattr(sl, dtype))
        graph = Train(net, make(net.parameters()))
        if mode != "default":
            graph.config.enable_multi_tensor_update(mode == "all")
        for step in range(3):
            graph(random(5, 20, seed=step).to(getattr(sl, dtype)))
        graph.synchronize()
        states.append([bits(p) for p in net.parameters()])
        counts.append(sum(op.endswith("_update") for op in ops(graph)))
        assert graph.config.report()["fuse_updates"] == (1 if mode == "all" else 0)
    assert states[0] == states[1] == states[2]
    assert counts == [8, 1, 8]


def test_more_than_64_updates_are_several_kernels():  # CFG-07
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])
    graph = Train(net, sl.optim.SGD(net.parameters(), lr=0.1))
    graph.config.enable_multi_tensor_update()
    graph(random(2, 4))
    assert sorted(kernel["attrs"]["count"] for kernel in graph.plan["kernels"] if kernel["op"] == "multi_update") == [16, 64]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_clipping_and_the_update_are_one_kernel(dtype):  # CFG-06
    dtype = getattr(sl, dtype)
    results = []
    for mode in (True, False):
        sl.manual_seed(0)
        net = nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 7)).to(dtype)
        optimizer = sl.optim.SGD([{"params": net.parameters(), "clip_grad_max_norm": 0.1}], lr=0.5, momentum=0.9, weight_decay=0.01)
        graph = Train(net, optimizer)
        graph.config.allow_fuse_model_update_ops(mode)
        for step in range(3):
            graph(random(6, 200, seed=step).to(dtype))
        graph.synchronize()
        results.append(([bits(p) for p in net.parameters()], ops(graph)))
    assert results[0][0] == results[1][0]
    fused, plain = results[0][1], results[1][1]
    assert fused.count("multi_update") == 4 and plain.count("sgd_momentum_update") == 4
    assert len(plain) - len(fused) == 4, (plain, fused)


def test_a_gradient_in_16_bits_is_cast_by_the_update():  # CFG-06
    results = []
    for off in ((), ("fuse_updates",), ("fuse_elementwise", "fuse_updates")):
        sl.manual_seed(0)
        net = nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 7))
        graph = Train(net, sl.optim.AdamW([{"params": net.parameters(), "clip_grad_max_norm": 0.1}], lr=0.01), *off)
        graph.config.enable_amp()
        graph.config.allow_fuse_model_update_ops()
        graph.config.enable_multi_tensor_update()
        for step in range(3):
            graph(random(6, 200, seed=step))
        graph.synchronize()
        made = [[call["op"] for call in k["attrs"]["body"]["graph"]["calls"]] for k in graph.plan["kernels"] if k["op"] == "multi_update"]
        results.append(([bits(p) for p in net.parameters()], made))
    assert results[0][0] == results[1][0] == results[2][0]
    assert any(len(calls) > 1 and calls[-1] == "adam_update" for calls in results[0][1]), results[0][1]
    assert not results[1][1]
