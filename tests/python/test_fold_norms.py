"""Batch norm beside a convolution or a linear layer is a part of its weights in inference graphs, and follows them."""

import json
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Infer(nn.Graph):
    def __init__(self, net, fold=True, dtype=None):
        super().__init__()
        self.net, self.dtype = net, dtype
        self.config.enable_fold_norms(fold)

    def build(self, *x):
        with sl.autocast("cpu", dtype=self.dtype or sl.bfloat16, enabled=self.dtype is not None):
            return self.net(*x)


class Train(nn.Graph):
    def __init__(self, net, lr=0.1):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=lr))

    def build(self, x):
        loss = (self.net(x) ** 2).mean()
        loss.backward()
        return loss


def normed(*layers):
    """A net in evaluation whose norms have statistics of their own, also where they have no weights."""
    net = nn.Sequential(*layers)
    for norm in net.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            fill(norm)
    return net.eval()


def fill(norm):
    with sl.no_grad():
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.2, 2)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-1, 1)


NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def behind(layer, channels, rank, **options):
    norm = NORMS[rank](channels, **options)
    fill(norm)
    return nn.Sequential(layer, norm).eval()


def in_front(layer, channels, rank, **options):
    norm = NORMS[rank](channels, **options)
    fill(norm)
    return nn.Sequential(norm, layer).eval()


class Scaled(nn.Module):
    def __init__(self, layer, before=1.0, after=1.0, by=1.0):
        super().__init__()
        self.layer, self.before, self.after, self.by = layer, before, after, by

    def forward(self, x):
        y = self.layer(x * self.before if self.before != 1 else x)
        y = y * self.after if self.after != 1 else y
        return y / self.by if self.by != 1 else y


CASES = {
    "conv1d": lambda: (behind(nn.Conv1d(6, 8, 3, padding=1), 8, 3), (2, 6, 9)),
    "conv2d": lambda: (behind(nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False), 8, 4), (2, 6, 9, 8)),
    "conv2d with a bias, without affine": lambda: (behind(nn.Conv2d(6, 16, (3, 1), dilation=2), 16, 4, affine=False, eps=1e-3), (2, 6, 9, 8)),
    "conv3d": lambda: (behind(nn.Conv3d(3, 4, 2), 4, 5), (2, 3, 4, 5, 4)),
    "groups": lambda: (behind(nn.Conv2d(6, 9, 3, groups=3, padding=1), 9, 4), (2, 6, 7, 7)),
    "depthwise": lambda: (behind(nn.Conv2d(8, 16, 3, groups=8, bias=False), 16, 4), (2, 8, 7, 7)),
    "transposed 1d": lambda: (behind(nn.ConvTranspose1d(6, 8, 3, stride=2, bias=False), 8, 3), (2, 6, 9)),
    "transposed 2d": lambda: (behind(nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1), 8, 4), (2, 6, 5, 5)),
    "transposed groups": lambda: (behind(nn.ConvTranspose2d(6, 8, 2, groups=2), 8, 4), (2, 6, 5, 5)),
    "transposed 3d": lambda: (behind(nn.ConvTranspose3d(4, 3, 2, stride=2), 3, 5), (1, 4, 3, 3, 2)),
    "linear": lambda: (behind(nn.Linear(12, 7, bias=False), 7, 2), (5, 12)),
    "linear with a bias": lambda: (behind(nn.Linear(12, 7), 7, 2, eps=1e-2), (5, 12)),
    "in front of conv1d": lambda: (in_front(nn.Conv1d(6, 8, 3), 6, 3), (2, 6, 9)),
    "in front of conv2d": lambda: (in_front(nn.Conv2d(6, 8, 3, bias=False), 6, 4), (2, 6, 9, 9)),
    "in front of groups": lambda: (in_front(nn.Conv2d(6, 4, 3, groups=2, stride=2), 6, 4), (2, 6, 9, 9)),
    "in front of conv3d": lambda: (in_front(nn.Conv3d(4, 3, 2), 4, 5), (2, 4, 4, 4, 3)),
    "in front of linear": lambda: (in_front(nn.Linear(12, 7), 12, 2), (5, 12)),
    "a factor behind": lambda: (Scaled(nn.Conv2d(3, 4, 3), after=0.3), (2, 3, 6, 6)),
    "a factor before": lambda: (Scaled(nn.Conv2d(3, 4, 3, padding=1), before=0.3), (2, 3, 6, 6)),
    "a quotient": lambda: (Scaled(nn.Linear(4, 3), by=7.0), (16, 4)),
}
FACTORS = ("a factor behind", "a factor before", "a quotient")


def pair(net, x, dtype=None):
    """Results of the net folded and as it is, and the graphs."""
    with sl.no_grad():
        graphs = Infer(net, dtype=dtype), Infer(net, fold=False, dtype=dtype)
        return [g(x).float().numpy() for g in graphs], graphs


def ops_of(graph):
    return [k["op"] for k in graph.plan["kernels"]]


def derived(graph):
    return [copy["name"] for copy in graph.plan.get("packed", []) if "derived" in copy]


def far(a, b):
    """The largest difference, relative to the largest value."""
    return np.abs(a.astype(np.float64) - b).max() / np.abs(b.astype(np.float64)).max()


@pytest.mark.parametrize("case", CASES)
def test_a_norm_or_a_factor_is_a_part_of_the_weights(case, same_products):
    sl.manual_seed(1)
    net, shape = CASES[case]()
    x = sl.randn(*shape)
    (folded, plain), (graph, unfolded) = pair(net, x)
    assert far(folded, plain) <= 1e-5
    assert graph.config.report()["fold_norms"] == 1 and unfolded.config.report()["fold_norms"] == 0
    assert derived(graph) and not derived(unfolded)
    gone = {"batch_norm_infer", "mul", "div", "fused"} if "transposed" not in case else {"batch_norm_infer"}
    assert not gone & set(ops_of(graph)) and not any("fold" in op for op in ops_of(graph))
    for kernel in graph.plan["kernels"]:
        assert kernel["op"] != "fused_conv" or all(i["index"] < 0 for i in kernel["inputs"][3:7])
    with sl.no_grad():
        same_products(plain, net(x).numpy())  # as without the option


@pytest.mark.parametrize("case", [c for c in CASES if c not in FACTORS])  # a number is multiplied between casts there, and stays
def test_in_bfloat16_by_a_unit(case):
    sl.manual_seed(2)
    net, shape = CASES[case]()
    x = sl.randn(*shape)
    for made, dtype, at in ((net, sl.bfloat16, x), (CASES[case]()[0].bfloat16(), None, x.bfloat16())):
        (folded, _), (graph, _) = pair(made, at, dtype)
        with sl.no_grad():
            exact = made.float()(at.float()).numpy()
        assert far(folded, exact) <= 2**-7
        if dtype is None or "front" not in case:
            assert graph.config.report()["fold_norms"] == 1, case


def net_of_all():
    sl.manual_seed(3)
    return normed(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8),
                  nn.Flatten(), nn.Linear(8 * 4 * 4, 5, bias=False), nn.BatchNorm1d(5))


def changes():
    def in_place(net):
        with sl.no_grad():
            net[0].weight.mul_(-1)

    def state(net):
        net.load_state_dict({name: value + 0.25 for name, value in net.state_dict().items()})

    def statistics(net):
        net[1].running_var += 1
        net[4].running_mean.add_(3)

    def scale(net):
        net[7].weight.data.mul_(2)

    def array(net):
        net[4].running_var.numpy()[...] *= 3

    def eager_training(net):
        net.train()
        net(sl.randn(8, 3, 6, 6) + 1)
        net.eval()

    def graph_training(net):
        net.train()
        with sl.enable_grad():
            Train(net)(sl.randn(8, 3, 6, 6)).item()
        net.eval()

    return [in_place, state, statistics, scale, array, eager_training, graph_training]


@pytest.mark.parametrize("change", changes(), ids=lambda f: f.__name__)
def test_folded_weights_follow_their_variables(change):
    net, x = net_of_all(), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        graph = Infer(net)
        before = graph(x).numpy()
        assert graph.config.report()["fold_norms"] == 3
        for _ in range(3):
            change(net)
            after, expected = graph(x).numpy(), net(x).numpy()
            assert far(after, expected) <= 1e-5
            assert far(after, before) > 1e-3
            before = after


def test_memory_that_stays_lent_is_folded_anew():
    net, x = net_of_all(), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        graph = Infer(net)
        graph(x)
        array = net[1].running_mean.numpy()
        for i in range(3):
            array[...] = i
            assert far(graph(x).numpy(), net(x).numpy()) <= 1e-5


def test_a_graph_that_trains_and_one_that_infers_by_turns():
    net, x = net_of_all(), sl.randn(4, 3, 6, 6)
    train = Train(net)
    with sl.no_grad():
        graph = Infer(net)
    for _ in range(4):
        net.train()
        train(x)
        net.eval()
        with sl.no_grad():
            assert far(graph(x).numpy(), net(x).numpy()) <= 1e-5
    assert not derived(train)


class Branches(nn.Module):
    """A result that others read, a weight of two convolutions, and one that is computed."""

    def __init__(self):
        super().__init__()
        self.conv, self.other = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(4)])
        for norm in self.norms:
            fill(norm)

    def forward(self, x):
        a = self.conv(x)
        a = self.norms[0](a) + a  # not folded
        b = self.norms[1](nn.functional.conv2d(a.relu(), self.other.weight, None, 1, 1))  # two of one weight
        c = self.norms[2](nn.functional.conv2d(b.relu(), self.other.weight, None, 1, 1))
        return self.norms[3](nn.functional.conv2d(c.relu(), self.other.weight * self.conv.weight, None, 1, 1))


def test_only_what_is_a_layers_alone_is_folded():
    sl.manual_seed(4)
    net, x = Branches().eval(), sl.randn(2, 4, 6, 6)
    (folded, plain), (graph, _) = pair(net, x)
    assert far(folded, plain) <= 1e-5 and graph.config.report()["fold_norms"] == 2
    names = derived(graph)
    assert len([n for n in names if "other.weight" in n]) == 2 and len(names) == 4


def test_weights_that_are_inputs_stay():
    norm = NORMS[4](4).eval()
    fill(norm)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x, w):
            return self.norm(nn.functional.conv2d(x, w))

    net, x, w = Net().eval(), sl.randn(1, 4, 5, 5), sl.randn(4, 4, 2, 2)
    with sl.no_grad():
        graph = Infer(net)
        np.testing.assert_array_equal(graph(x, w).numpy(), graph(x, w).numpy())
    assert graph.config.report()["fold_norms"] == 0


def test_norms_in_training_and_of_graphs_that_train_stay():
    sl.manual_seed(5)
    net, x = behind(nn.Conv2d(3, 4, 3), 4, 4), sl.randn(2, 3, 6, 6)
    train = Train(net)  # in evaluation: gradients of weight, scale and shift
    before = {name: value.detach().numpy().copy() for name, value in net.named_parameters()}
    train(x).item()
    assert train.config.report()["fold_norms"] == 0
    assert all(np.abs(value.detach().numpy() - before[name]).max() > 0 for name, value in net.named_parameters())
    with sl.no_grad():
        graph = Infer(net.train())
        graph(x)
        assert graph.config.report()["fold_norms"] == 0


@pytest.mark.parametrize("variance", [-1.0, 0.0, np.nan, np.inf])
def test_variances_that_give_no_number_give_none_when_folded(variance):
    net, x = behind(nn.Conv2d(3, 4, 3), 4, 4, eps=0.0), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        net[1].running_var[1] = variance
    (folded, plain), (graph, _) = pair(net, x)
    assert graph.config.report()["fold_norms"] == 1
    assert np.array_equal(np.isfinite(folded), np.isfinite(plain))
    assert far(folded[:, [0, 2, 3]], plain[:, [0, 2, 3]]) <= 1e-5
    assert np.isfinite(folded[:, 1]).all() == (variance == np.inf)


def test_graphs_of_one_net_share_folded_weights_and_hold_no_more_than_packed_ones():
    net, x = net_of_all(), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        first, plain = Infer(net), Infer(net, fold=False)
        first(x), plain(x)
        before = sl._C.memory_stats("host")["current_bytes"]
        second = Infer(net)
        second(x)
    grown = sl._C.memory_stats("host")["current_bytes"] - before
    memory, unfolded = second.memory(), plain.memory()
    assert grown == memory["argument"] + memory["output"] + memory["temp"]
    linear = net[6].weight.numel() * 4
    assert memory["packed"] <= unfolded["packed"] + linear + 3 * 64  # and three biases


@pytest.mark.parametrize("pack", [True, False])
def test_bundles_hold_what_is_folded(pack, tmp_path):
    net, x = net_of_all(), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        graph = Infer(net)
        graph.config.enable_pack_weights(pack)
        expected = graph(x).numpy()
    sl.save(graph, tmp_path / "bundle")
    loaded = sl.load_graph(tmp_path / "bundle")
    np.testing.assert_array_equal(loaded((x,)).numpy(), expected)
    plan = json.loads((tmp_path / "bundle" / "plan.json").read_text())
    assert sum("derived" in copy for copy in plan["packed"]) == 6
    assert not any("norm" in k["op"] or "fold" in k["op"] for k in plan["kernels"])
    sl.save_graph(graph, tmp_path / "frozen", freeze=True)
    plan = json.loads((tmp_path / "frozen" / "plan.json").read_text())
    assert not any("derived" in copy for copy in plan.get("packed", []))  # the weights themselves
    assert not any("norm" in k["op"] or "fold" in k["op"] for k in plan["kernels"])
    assert far(sl.load_graph(tmp_path / "frozen")((x,)).numpy(), expected) <= 1e-6


def test_plan_viz_says_what_is_folded(tmp_path):
    net, x = behind(nn.Conv2d(3, 8, 3, bias=False), 8, 4), sl.randn(2, 3, 6, 6)
    with sl.no_grad():
        graph = Infer(net)
        graph(x)
    graph.save_plan(tmp_path / "plan.json")
    out = subprocess.run([find_tool("plan-viz"), "mem", "--json", str(tmp_path / "plan.json")], capture_output=True, text=True,
                         check=True).stdout
    notes = {line["name"]: line["note"] for line in json.loads(out)["lines"]}
    (weight,) = [note for name, note in notes.items() if "weight/fold_weight" in name]
    assert "fold_weight(net.0.weight, net.1.running_var, net.1.weight)" in weight and "eps = 1e-05" in weight
    assert notes["net.1.running_mean"] == "kernels read it packed only"
