"""In which order kernels run, and how many at a time."""

import json
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

MODES = ("Disable", "SpeedFirst", "MemoryFirst", "OverlapCpuGpu", "DelayShortGpu")


class Train(nn.Graph):
    def __init__(self, net, mode=None, name="train"):
        super().__init__(name=name)
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=0.01))
        if mode:
            self.config.enable_straighten_algorithm(mode)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


class Branches(nn.Module):
    """Two branches of different length and width, from one input to one sum."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 8))
        self.thin = nn.Sequential(nn.Linear(16, 8), nn.Tanh())

    def forward(self, x):
        return self.thin(x) + self.wide(x)


class Apart(nn.Module):
    """On the host, on another device and here."""

    def __init__(self):
        super().__init__()
        self.far, self.near = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x):
        with sl.stream("host"):
            x = x * 2 - 1
        y = self.near(x).tanh()
        with sl.device("sim:0"):
            z = self.far(x).tanh()
        return y.sum(1) + z.sum(1)


class Again(nn.Module):
    """With checkpoints and random numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3)) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = x + sl.utils.checkpoint.checkpoint(layer, x)
        return x


NETS = {
    "branches": (Branches, (8, 16)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(),
                                           nn.Linear(8 * 64, 4)), (2, 3, 12, 12)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), (2, 6, 16)),
    "apart": (Apart, (4, 16)),
    "again": (Again, (4, 16)),
    "deep": (lambda: nn.Sequential(*[nn.Linear(16, 16) if i % 2 else nn.ELU() for i in range(12)]), (4, 16)),
}


def view(graph, tmp_path, name, *arguments):
    graph.save_plan(tmp_path / "plan.json")
    done = subprocess.run([find_tool("plan-viz"), name, str(tmp_path / "plan.json"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("kind", NETS)
def test_every_order_gives_a_valid_plan_and_the_same_bits(kind, batches, tmp_path):  # CFG-19
    make, shape = NETS[kind]
    if kind == "again":
        batches = 1  # random numbers differ from one micro-batch to the next
    x = sl.randn(shape[0] * batches, *shape[1:])
    results, temp = {}, {}
    for mode in MODES:
        sl.manual_seed(2)
        graph = Train(make(), mode)
        graph.config.set_gradient_accumulation_steps(batches)
        results[mode] = [graph(x).numpy() for _ in range(3)] + [p.detach().numpy() for p in graph.net.parameters()]
        view(graph, tmp_path, "verify")
        temp[mode] = graph.memory()["temp"]
        assert ("order" in graph.plan["options"]) == (mode != "MemoryFirst")
        graph.close()
    for mode in MODES:
        for a, b in zip(results[mode], results["Disable"], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=mode)
    gap = 256 if (kind, batches) == ("apart", 2) else 0  # that packing leaves in the one and not in the other
    assert temp["MemoryFirst"] <= temp["Disable"] + gap, temp


def test_plan_viz_prints_the_order_and_what_it_takes(tmp_path):  # CFG-19
    totals = {}
    for mode in ("MemoryFirst", "Disable"):
        graph = Train(Branches(), mode)
        graph.compile(sl.randn(256, 16))
        totals[mode] = view(graph, tmp_path, "mem", "--json")["total"]
        assert totals[mode] == graph.memory()["total"]
        assert ("order" in view(graph, tmp_path, "info")) == (mode == "Disable")
    assert totals["MemoryFirst"] < totals["Disable"]


class Written(nn.Graph):
    """Kernels that nothing joins but their inputs, in the order in which they are written."""

    def __init__(self, mode, body):
        super().__init__(name="written")
        self.body = body
        self.config.enable_straighten_algorithm(mode)
        self.config.disable_pass("fuse_elementwise")

    def build(self, *inputs):
        return self.body(*inputs)


def ops(graph):
    return [k["op"] for k in graph.plan["kernels"]]


def test_speed_first_begins_with_the_longest_path():
    def body(x, y):
        a = y.tanh()
        return a, ((x @ x) @ x).sigmoid()

    x, y = sl.randn(64, 64), sl.randn(64, 64)
    for mode, first in (("Disable", "tanh"), ("SpeedFirst", "matmul")):
        graph = Written(mode, body)
        graph.compile(x, y)
        assert ops(graph)[0] == first, (mode, ops(graph))
    assert ops(graph)[:2] == ["matmul", "matmul"]


def test_overlap_begins_with_what_another_device_waits_for():
    def body(x, y):
        here = (y @ y).tanh()
        there = x.exp()
        with sl.device("sim:0"):
            return here, there.sin()

    x, y = sl.randn(8, 8), sl.randn(64, 64)
    for mode, first in (("Disable", "matmul"), ("OverlapCpuGpu", "exp")):
        graph = Written(mode, body)
        graph.compile(x, y)
        here = [k["op"] for k in graph.plan["kernels"] if k["op"] in ("matmul", "exp")]
        assert here[0] == first, (mode, ops(graph))


def test_short_kernels_are_delayed():
    def body(x, y):
        return x.tanh(), (y.t() @ y)

    x, y = sl.randn(4), sl.randn(64, 64)
    for mode, order in (("Disable", ["tanh", "matmul"]), ("DelayShortGpu", ["matmul", "tanh"])):
        graph = Written(mode, body)
        graph.compile(x, y)
        assert ops(graph) == order, mode


def test_memory_first_leaves_what_is_written_where_that_takes_less():
    """To move a product up, which frees as much as it makes, would make it while something large is still alive."""

    def body(x):
        large, other = x.exp(), x.cumsum(0)
        row = x.sum(1)
        return large @ row, other.cumsum(1).sum()

    found = []
    for mode in ("Disable", "MemoryFirst"):
        graph = Written(mode, body)
        graph.compile(sl.randn(64, 64))
        found.append((graph.memory()["temp"], ops(graph)))
    assert found[0] == found[1] and found[1][1].index("matmul") < len(found[1][1]) - 1


def test_unknown_orders_are_refused():
    config = nn.Graph().config
    with pytest.raises(ValueError, match=r"got 'Fast'; must be one of \['Disable', 'SpeedFirst', 'MemoryFirst', "):
        config.enable_straighten_algorithm("Fast")
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="set_concurrency_width: got .*; must be an int of at least 0"):
            config.set_concurrency_width(wrong)
    assert repr(config) == "config()"


class Streams(nn.Graph):
    def __init__(self, width):
        super().__init__(name="streams")
        self.config.set_concurrency_width(width)
        self.config.enable_trace()
        self.net = nn.Linear(64, 64)

    def build(self, x):
        with sl.stream("host"):
            a = x.sin().exp()
        with sl.stream("host:1"):
            b = (x * 2).cos()
        y = self.net(a).tanh()
        with sl.stream("host"):
            y = y + 1
        return (y @ b.t()).sum()


def most_at_once(spans):
    """How many of the (begin, end) overlap at most; ends come before what begins then."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("granularity", ["program", "op"])
def test_a_width_of_one_runs_one_kernel_after_the_other(granularity, tmp_path):  # CFG-29
    x, found = sl.randn(256, 64), {}
    for width in (0, 1, 2):
        sl.manual_seed(0)
        graph = Streams(width)
        graph.config.set_granularity(granularity)
        results = [graph(x).item() for _ in range(2)]
        outputs = [graph(x) for _ in range(20)]  # in flight together
        results += [y.item() for y in outputs]
        graph.save_trace(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        kernels = [(e["ts"], e["ts"] + e["dur"] - 0.002) for e in events if e.get("ph") == "X" and e.get("cat") == "kernel"]
        assert len(kernels) >= 22 * 6
        simulated = view(graph, tmp_path, "simulate", "--steps", "12", "--json")["firings"]
        firings = [(f["begin_ns"], f["end_ns"]) for f in simulated if f["end_ns"] > f["begin_ns"]]
        found[width] = most_at_once(firings)
        if width:
            assert most_at_once(kernels) <= width
        else:
            assert "concurrency" not in graph.plan["options"]
        results = [np.float32(r) for r in results]
        assert len(set(results)) == 1
        graph.close()
    assert found[0] > 1 and found[1] == 1 and found[2] == 2, found


def test_a_width_goes_with_micro_batches_and_training():  # CFG-29
    losses = []
    for width in (0, 1, 2):
        sl.manual_seed(3)
        graph = Train(Apart())
        graph.config.set_concurrency_width(width)
        graph.config.set_gradient_accumulation_steps(2)
        losses.append([graph(sl.ones(4, 16)).tolist() for _ in range(4)])
        graph.close()
    assert losses[0] == losses[1] == losses[2]
