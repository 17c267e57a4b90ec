"""Plans that keep values on the disk between two uses, to fit a budget."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Train(nn.Graph):
    def __init__(self, net, budget=None, spill=True, micro=1, granularity="program"):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
        self.config.set_granularity(granularity)
        if micro > 1:
            self.config.set_gradient_accumulation_steps(micro)
        if budget:
            self.config.set_memory_budget(budget)
            self.config.enable_spill(spill)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def tower():
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))])


def convolutions():
    return nn.Sequential(*[layer for i in range(6) for layer in (nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())])


def noisy():
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.3))])


NETS = {"tower": (tower, (256, 32)), "convolutions": (convolutions, (4, 3, 32, 32)), "noisy": (noisy, (256, 32)),
        "transformer": (lambda: nn.Sequential(*[nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(4)]), (8, 32, 32))}


def trained(graph, x, steps=3):
    return [graph(x).numpy() for _ in range(steps)] + [p.detach().numpy() for p in graph.net.parameters()]


def least_of(graph, x):
    """The budget that the refusal of a smaller one names."""
    with pytest.raises(MemoryError) as refused:
        graph.compile(x)
    return int(re.search(r"smallest budget that works is (\d+) bytes", str(refused.value))[1])


def needs(make, x, **options):
    """What a plan needs that keeps all in memory."""
    return least_of(Train(make(), budget=1, spill=False, **options), x)


def same(a, b):
    for one, other in zip(a, b, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("kind", NETS)
def test_half_of_what_is_needed_is_enough_and_keeps_the_bits(kind, tmp_path):  # STP-07
    make, shape = NETS[kind]
    x = sl.randn(*shape)
    whole = needs(make, x)
    budget = whole // 2
    with pytest.raises(MemoryError, match="over its memory budget"):
        Train(make(), budget, spill=False).compile(x)
    results = []
    for limit in (None, budget):
        sl.manual_seed(4)
        graph = Train(make(), limit)
        results.append(trained(graph, x))
    same(*results)
    assert graph.memory()["total"] <= budget
    bytes, stats = graph.plan["options"]["spill.bytes"], graph.stats()
    assert stats["spilled"] == stats["fetched"] == 3 * bytes > 0 and stats["failed"] == 0
    assert graph.counters()["spilled"] == stats["spilled"] and f"disk: {3 * bytes} bytes spilled" in graph.counters_text()
    moved = [k["op"] for k in graph.plan["kernels"] if k["op"] in ("spill", "fetch")]
    assert moved.count("spill") == moved.count("fetch") > 0
    graph.save_plan(tmp_path / "plan.json")
    assert json.loads(subprocess.check_output([find_tool("plan-viz"), "mem", tmp_path / "plan.json", "--json"]))["spilled"] == bytes
    assert "on the disk between two uses: " in subprocess.check_output([find_tool("plan-viz"), "mem", tmp_path / "plan.json"], text=True)
    assert "spill" in subprocess.check_output([find_tool("plan-viz"), "show", tmp_path / "plan.json"], text=True)


@pytest.mark.parametrize("options", [{"micro": 2}, {"granularity": "op"}], ids=str)
def test_micro_batches_and_small_actors_keep_the_bits(options):
    x = sl.randn(256, 32)
    budget = needs(tower, x, **options) * 2 // 3
    results = []
    for limit in (None, budget):
        sl.manual_seed(4)
        graph = Train(tower(), limit, **options)
        results.append(trained(graph, x))
    same(*results)
    assert graph.memory()["total"] <= budget and graph.stats()["spilled"] == graph.stats()["fetched"] > 0


def test_the_budget_that_a_refusal_names_works():
    x = sl.randn(256, 32)
    least = least_of(Train(tower(), 1000), x)
    assert least < needs(tower, x) // 2
    assert Train(tower(), least).compile(x).memory()["total"] <= least


def test_nothing_goes_to_the_disk_where_memory_is_enough():
    x = sl.randn(256, 32)
    for budget in (None, 10 * needs(tower, x)):
        graph = Train(tower(), budget)
        graph(x)
        assert graph.stats()["spilled"] == 0 and "spill.bytes" not in graph.plan["options"]


class Skips(nn.Graph):
    """Keeps what each of its layers gives for the way back."""

    def __init__(self):
        super().__init__(name="skips")
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(12)])
        self.config.set_outputs_buffer_size(1)
        self.config.enable_spill()

    def middle(self, x):
        return x

    def build(self, x):
        kept = []
        for layer in self.layers:
            x = layer(x).tanh()
            kept.append(x)
        x = self.middle(x)
        for layer in self.layers:
            x = layer(x * kept.pop()).tanh()
        return x


def needed(make, x):
    graph = make()
    graph.config.enable_spill(False)
    graph.config.set_memory_budget(1)
    return least_of(graph, x)


def test_a_bundle_spills_as_well(tmp_path):
    x = sl.randn(512, 64)
    sl.manual_seed(3)
    expected = Skips()(x)
    sl.manual_seed(3)
    graph = Skips()
    graph.config.set_memory_budget(needed(Skips, x) * 7 // 10)
    graph.compile(x)
    assert graph.plan["options"]["spill.bytes"] > 0
    sl.save(graph, tmp_path / "model")
    loaded = sl.load_graph(tmp_path / "model")
    assert loaded(x).numpy().tobytes() == expected.numpy().tobytes()


IN_A_PROCESS = """
import resource, sys
sys.path[:0] = [sys.argv[1]]
from test_spill import *
def compiled(x):
    sl.manual_seed(4)
    return Train(tower(), budget=needs(tower, x) // 2)
x = sl.randn(256, 32)
"""


def run(code, folder, **how):
    env = {**os.environ, "SLUICE_SPILL_DIR": str(folder)}
    here = str(pathlib.Path(__file__).parent)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", IN_A_PROCESS + code, here], env=env, text=True, **pipes, **how)


def test_a_full_disk_is_an_error_before_anything_is_computed(tmp_path):  # STP-07
    """A limit of the process takes the place of the disk's end."""
    code = """
graph = compiled(x)
before = [p.detach().numpy().copy() for p in graph.net.parameters()]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    graph(x)
except OSError as error:
    print(error)
same(before, [p.detach().numpy() for p in graph.net.parameters()])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
got = trained(graph, x)
sl.manual_seed(4)
same(got, trained(Train(tower()), x))
print("went on")
"""
    out, err = run(code, tmp_path).communicate()
    assert f"spill file {tmp_path}/#" in out and "bytes cannot be reserved: File too large; SLUICE_SPILL_DIR must name" in out, out + err
    assert out.endswith("went on\n"), out + err


def test_a_folder_that_is_not_there_is_named(tmp_path):
    out, err = run("try:\n    compiled(x)(x)\nexcept OSError as error:\n    print(error)", tmp_path / "nowhere").communicate()
    assert f"spill file in {tmp_path}/nowhere: cannot be made: No such file or directory" in out, out + err


def files_in(folder, process="self"):
    """Open files of a process that lie there, with or without a name."""
    return [link for n in os.listdir(f"/proc/{process}/fd") if os.path.realpath(link := f"/proc/{process}/fd/{n}").startswith(str(folder))]


def test_a_file_that_cannot_be_read_fails_its_step_alone(tmp_path, monkeypatch):  # STP-07
    """A host function in the middle of the step cuts the file, when it is told to."""
    monkeypatch.setenv("SLUICE_SPILL_DIR", str(tmp_path))
    cuts = []

    def middle(x):
        while cuts:
            os.truncate(cuts.pop(), 0)
        return x

    class Cut(Skips):
        def middle(self, x):
            return sl.host_function(middle, x, out=((512, 64), sl.float32))

    x = sl.randn(512, 64)
    sl.manual_seed(3)
    expected = Cut()(x)
    sl.manual_seed(3)
    graph = Cut()
    graph.config.set_memory_budget(needed(Cut, x) * 7 // 10)
    assert graph(x).numpy().tobytes() == expected.numpy().tobytes() and graph.stats()["spilled"] > 0
    cuts.extend(files_in(tmp_path))
    assert len(cuts) == 1
    with pytest.raises(OSError, match=rf"spill file {tmp_path}/#\d+: \d+ bytes at \d+ cannot be read: the file ends before them"):
        graph(x).numpy()
    for _ in range(2):
        assert graph(x).numpy().tobytes() == expected.numpy().tobytes()
    assert graph.stats()["failed"] == 1


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_nothing_is_left_on_the_disk(how, tmp_path):  # STP-07
    process = run("graph = compiled(x)\ngraph(x).item()\nprint('ready', flush=True)\nsys.stdin.read()", tmp_path, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    assert len(files_in(tmp_path, process.pid)) == 1
    assert list(tmp_path.iterdir()) == []  # it has no name
    if how == "is killed":
        process.send_signal(signal.SIGKILL)
    process.communicate("")
    assert process.returncode == (-signal.SIGKILL if how == "is killed" else 0) and list(tmp_path.iterdir()) == []


def test_a_graph_that_is_closed_gives_its_file_back(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_SPILL_DIR", str(tmp_path))
    x = sl.randn(256, 32)
    graph = Train(tower(), needs(tower, x) // 2)
    graph(x)
    assert len(files_in(tmp_path)) == 1
    graph.close()
    assert files_in(tmp_path) == []
