"""Plans on disk: what is found is what compiling would make, and nothing else is ever used."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from exact_graphs import ExactGraph, inputs_of

import sluice as sl
from sluice import cache, nn


@pytest.fixture
def plans(tmp_path):
    """A folder of its own for the plans of this process."""
    folder = tmp_path / "plans"
    cache.set_directory(folder)
    yield folder
    cache.set_directory(None)


def counts():
    stats = cache.stats()
    return stats["hits"], stats["misses"]


class Step(nn.Graph):
    """A training step, or a forward pass, of a net."""

    def __init__(self, net, *, train=True, configure=lambda config: None, name="step"):
        super().__init__(name=name)
        self.net = net
        if train:
            self.add_optimizer(sl.optim.AdamW(net.parameters(), lr=0.01))
        self.train = train
        configure(self.config)

    def build(self, x):
        y = self.net(x)
        if self.train:
            y = y.square().mean()
            y.backward()
        return y


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x):
        return nn.functional.relu(x + self.norm(self.conv(x)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 16, 2), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.lstm(x)[0][-1])


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(32, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(nn.functional.dropout(self.table(x), 0.2)).softmax(-1)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = sl.utils.checkpoint.checkpoint(layer, x)
        return x


class Placed(nn.Module):
    """On several streams and devices."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        with sl.stream("host"):
            x = x * 2 + 1
        with sl.device("sim:0"):
            x = self.first(x).tanh()
        return self.second(x)


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


NETS = {
    "mlp": (mlp, lambda: sl.randn(8, 16)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), Residual(8), nn.MaxPool2d(2), Residual(8), nn.Flatten(),
                                           nn.LazyLinear(4)), lambda: sl.randn(2, 3, 16, 16)),
    "lstm": (Recurrent, lambda: sl.randn(5, 2, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), lambda: sl.randn(2, 6, 16)),
    "embedding": (Embedded, lambda: sl.randint(0, 32, (4, 6))),
    "checkpoints": (Checkpointed, lambda: sl.randn(4, 16)),
    "streams": (Placed, lambda: sl.randn(4, 16)),
    "norms": (lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv1d(8, 4, 1), nn.Tanh()),
              lambda: sl.randn(2, 4, 12)),
}
OPTIONS = {
    "": lambda c: None,
    "by op": lambda c: c.set_granularity("op"),
    "amp": lambda c: c.enable_amp(),
    "searched": lambda c: c.enable_compress_memory(),
    "micro-batches": lambda c: c.set_gradient_accumulation_steps(2),
    "level 0": lambda c: c.set_optimization_level(0),
    "pattern": lambda c: c.add_pattern("twice", lambda x: x + x, lambda x: x * 2, sl.ones(2)),
}


def net_of(kind, x):
    sl.manual_seed(0)
    net = NETS[kind][0]()
    net(x)  # lazy layers
    return net


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", NETS)
def test_the_plan_found_is_the_plan_that_would_be_compiled(plans, kind, train):  # JAX-05
    options = OPTIONS if train and kind == "mlp" else {"": OPTIONS[""], "by op": OPTIONS["by op"]}
    for number, configure in enumerate(options.values()):
        made = []
        for keeps in (True, True, False):
            cache.set_directory(plans if keeps else None)
            sl.manual_seed(1)
            x = NETS[kind][1]()
            sl.manual_seed(1)
            graph = Step(net_of(kind, x), train=train, configure=configure)
            results = [graph(x).float().numpy() for _ in range(2)]
            made.append((graph.plan, graph._call.session.plan_json(), graph._call.session.graph_text(), graph.config.report(), results))
            if keeps:
                assert counts() == ((1, 0) if len(made) == 2 else (0, 1)), number
            graph.close()
        for found in made[1:]:
            assert found[:4] == made[0][:4]
            for a, b in zip(found[4], made[0][4], strict=True):
                np.testing.assert_array_equal(a, b)


def test_plans_of_random_graphs_are_found_too(plans, repetitions):
    seeds = range(repetitions(6, 60))
    for again in (False, True):
        cache.set_directory(plans, check=True)  # compiles nevertheless, and compares
        for seed in seeds:
            graph = ExactGraph(seed, placed=True)
            for step in inputs_of(seed, 1):
                graph(**{name: sl.from_numpy(array) for name, array in step.items()})
            graph.close()
        assert counts() == ((len(seeds), 0) if again else (0, len(seeds)))


def compiled(graph, x):
    """At one line, which plans name as that of their updates."""
    return graph.compile(x)


CHANGES = {
    "an option": lambda: Step(mlp(), configure=lambda c: c.enable_fast_quotas(False)),
    "a budget": lambda: Step(mlp(), configure=lambda c: c.set_memory_budget(2**30)),
    "cores": lambda: Step(mlp(), configure=lambda c: c.set_cores(1)),
    "an order": lambda: Step(mlp(), configure=lambda c: c.enable_straighten_algorithm("SpeedFirst")),
    "a pattern": lambda: Step(mlp(), configure=OPTIONS["pattern"]),
    "a pass": lambda: Step(mlp(), configure=lambda c: c.disable_pass("fuse_bias")),
    "the name": lambda: Step(mlp(), name="other"),
    "the net": lambda: Step(nn.Sequential(nn.Linear(16, 33), nn.ReLU(), nn.Linear(33, 4))),
    "what it does": lambda: Step(mlp(), train=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_plan_depends_on_is_part_of_its_key(plans, change):  # JAX-05
    x = sl.randn(8, 16)
    compiled(Step(mlp()), x)
    assert counts() == (0, 1)
    compiled(CHANGES[change](), x)
    assert counts() == (0, 2)
    compiled(Step(mlp()), x)
    assert counts() == (1, 2)
    compiled(CHANGES[change](), x)
    assert counts() == (2, 2)


def test_another_size_and_other_costs_are_misses(plans, tmp_path):  # JAX-05
    costs = tmp_path / "costs.json"

    def configure(config):
        config.set_cost_file(costs)

    for rows, cost in ((8, 1e4), (9, 1e4), (9, 2e4)):
        costs.write_text(json.dumps({"links": [], "kernels": [{"name": "*", "cost_ns": cost}]}))
        before = counts()
        for _ in range(2):
            Step(mlp(), configure=configure).compile(sl.randn(rows, 16))
        assert counts() == (before[0] + 1, before[1] + 1)


class Scaled(nn.Graph):
    def __init__(self, constant):
        super().__init__(name="scaled")
        self.constant = constant

    def build(self, x):
        return x * (self.constant * 2 + 1)  # folded


def test_contents_of_constants_are_part_of_the_key(plans):
    for number in (1.0, 2.0, 1.0):
        graph = Scaled(sl.tensor([number, number]))
        assert graph(sl.ones(2)).tolist() == [2 * number + 1] * 2
    assert counts() == (1, 2)


def entries(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def cut(data):
    return data[: len(data) // 2]


def one_bit(data):
    return data[:-100] + bytes([data[-100] ^ 4]) + data[-99:]


def wrong_plan(data):
    """A plan with its right hash that is not valid: a kernel with a buffer that the plan does not have."""
    header, content = data.split(b"\n", 1)
    size = int.from_bytes(content[:8], "little")
    plan = content[8:8 + size].replace(b'"quota": 2', b'"quota": 0', 1)
    assert plan != content[8:8 + size]
    return signed(header, len(plan).to_bytes(8, "little") + plan + content[8 + size:])


def other_ports(data):
    """A valid plan with its right hash, of other inputs."""
    header, content = data.split(b"\n", 1)
    size = int.from_bytes(content[:8], "little")
    plan = content[8:8 + size].replace(b'"name": "x"', b'"name": "y"')
    assert plan != content[8:8 + size]
    return signed(header, len(plan).to_bytes(8, "little") + plan + content[8 + size:])


def signed(header, content):
    import hashlib

    return b" ".join([*header.split(b" ")[:-1], hashlib.sha256(content).hexdigest().encode()]) + b"\n" + content


DAMAGE = {"empty": lambda data: b"", "cut": cut, "one bit": one_bit, "other bytes": lambda data: os.urandom(len(data)),
          "longer": lambda data: data + b"x", "a pickle": lambda data: b"cos\nsystem\n(S'touch hacked'\ntR.",
          "not valid": wrong_plan, "other ports": other_ports}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_as_it_was_written_is_ignored_with_a_warning(plans, damage, capfd):
    x = sl.randn(8, 16)
    compiled(Step(mlp()), x)
    path, = entries(plans)
    good = path.read_bytes()
    path.write_bytes(DAMAGE[damage](good))
    graph = compiled(Step(mlp()), x)
    assert np.isfinite(graph(x).item())
    assert cache.stats()["rejected"] == 1 and counts() == (0, 2)
    assert str(path) in capfd.readouterr().err
    assert path.read_bytes() == good  # made anew, byte for byte
    compiled(Step(mlp()), x)
    assert counts() == (1, 2)


def test_files_of_others_and_links_are_not_read(plans, tmp_path, capfd):
    x = sl.randn(8, 16)
    compiled(Step(mlp()), x)
    path, = entries(plans)
    path.chmod(0o666)
    compiled(Step(mlp()), x)
    assert cache.stats()["rejected"] == 1
    elsewhere = tmp_path / "elsewhere"
    entries(plans)[0].rename(elsewhere)
    path.symlink_to(elsewhere)
    compiled(Step(mlp()), x)
    assert cache.stats()["rejected"] == 2 and counts() == (0, 3)
    assert not entries(plans)[0].is_symlink() and elsewhere.exists()
    plans.chmod(0o777)
    compiled(Step(mlp()), x)
    compiled(Step(mlp()), x)
    assert counts() == (0, 5)
    assert capfd.readouterr().err.count("others may write to it") == 1
    plans.chmod(0o700)
    compiled(Step(mlp()), x)
    assert counts() == (1, 5)


def test_the_folder_is_the_users_alone(plans):
    compiled(Step(mlp()), sl.randn(8, 16))
    assert plans.stat().st_mode & 0o777 == 0o700 and entries(plans)[0].stat().st_mode & 0o777 == 0o600


def test_what_was_used_longest_ago_goes_first(plans):  # NG-16
    def compile(rows):
        Step(mlp()).compile(sl.randn(rows, 16))

    for rows in (1, 2, 3):
        compile(rows)
    assert cache.stats()["entries"] == 3
    cache.set_limit(cache.stats()["bytes"] + 1000)
    compile(1)  # used last
    compile(4)  # in place of 2
    assert cache.stats()["evicted"] == 1 and cache.stats()["bytes"] <= cache.stats()["limit"]
    hits, misses = counts()
    for rows in (3, 1, 4):
        compile(rows)
    assert counts() == (hits + 3, misses)
    compile(2)
    assert counts() == (hits + 3, misses + 1)
    cache.set_limit(0)
    assert cache.stats()["entries"] == 0
    compile(1)
    assert cache.stats()["entries"] == 0  # larger than the limit


def test_files_of_another_making_stay(plans):
    plans.mkdir(mode=0o700)
    note = plans / "note.txt"
    note.write_text("mine")
    compiled(Step(mlp()), sl.randn(8, 16))
    cache.clear()
    assert cache.stats()["entries"] == 0 and note.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told_once(plans, capfd):
    plans.parent.mkdir(exist_ok=True)
    plans.write_text("in the way")
    for _ in range(2):
        compiled(Step(mlp()), sl.randn(8, 16))
    assert capfd.readouterr().err.count("nothing is kept there") == 1
    assert cache.stats()["entries"] == 0


def test_what_is_dumped_is_compiled(plans, tmp_path):
    for _ in range(2):
        graph = Step(mlp(), configure=lambda c: c.set_dump_dir(tmp_path / "ir"))
        graph.compile(sl.randn(8, 16))
    assert counts() == (0, 0) and list((tmp_path / "ir").iterdir())


def test_limits_are_checked():
    with pytest.raises(TypeError, match="cache.set_limit: bytes: str; must be an int"):
        cache.set_limit("1GiB")
    with pytest.raises(ValueError, match=r"cache.set_limit: bytes: -1; must be 0 to 2\*\*63 - 1"):
        cache.set_limit(-1)


SCRIPT = """
import json, sys
import sluice as sl
from sluice import nn
class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        sl.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))
    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss
losses = []
for rows in (2, 3):
    graph = Net()
    losses += [float(graph(sl.ones(rows, 8))) for _ in range(2)]
print(json.dumps([losses, sl.cache.stats()]))
"""


def run(script, tmp_path, **env):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env={**os.environ, "PYTHONPATH": path, "SLUICE_CACHE_DIR": str(tmp_path / "cache"), **env})


def ended(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def test_a_second_process_compiles_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    losses, first = ended(run(script, tmp_path, SLUICE_CACHE="on"))
    assert (first["hits"], first["misses"], first["stored"]) == (0, 2, 2)
    assert first["directory"] == str(tmp_path / "cache" / "plans")
    again, second = ended(run(script, tmp_path, SLUICE_CACHE="on"))
    assert again == losses and (second["hits"], second["misses"]) == (2, 0)
    assert ended(run(script, tmp_path, SLUICE_CACHE=""))[1]["directory"] is None  # not unless it is asked for
    off, third = ended(run(script, tmp_path, SLUICE_CACHE="off"))
    assert off == losses and (third["hits"], third["misses"], third["directory"]) == (0, 0, None)
    checked, fourth = ended(run(script, tmp_path, SLUICE_CACHE="check"))
    assert checked == losses and fourth["hits"] == 2
    _, other = ended(run(script, tmp_path, SLUICE_CACHE="on", ONEDNN_MAX_CPU_ISA="SSE41", DNNL_MAX_CPU_ISA="SSE41"))
    assert (other["hits"], other["misses"]) == (0, 2)  # JAX-05: kernels of another instruction set
    process = run(script, tmp_path, SLUICE_CACHE="sometimes")
    assert "SLUICE_CACHE: 'sometimes'; must be on, off or check" in process.communicate(timeout=120)[1] and process.returncode != 0


def test_processes_share_a_folder_at_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    results = [ended(p) for p in [run(script, tmp_path, SLUICE_CACHE="on") for _ in range(4)]]
    assert len({json.dumps(losses) for losses, _ in results}) == 1
    assert all(stats["rejected"] == 0 and stats["hits"] + stats["misses"] == 2 for _, stats in results)
    assert len(entries(pathlib.Path(results[0][1]["directory"]))) == 2
