"""Collectives that become one, and how much of what travels hides behind what is computed."""

import json
import subprocess

import pytest
from sluice._base.tools import find_tool

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

TRAIN = """
import json
class Train(sl.nn.Graph):
    def __init__(self, *fusion):
        super().__init__()
        sl.manual_seed(3)
        P = sl.placement("cpu", list(range(size)))
        self.net = sl.nn.Sequential(*(sl.nn.Linear(64, 64) for _ in range(8))).to_global(P, sl.sbp.broadcast)
        self.add_optimizer(sl.optim.Adam(self.net.parameters(), lr=0.01))
        if fusion:
            self.config.set_collective_fusion(*fusion)
    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss

def calls(graph):  # of rank 0: what it gives in each
    plan = json.loads(graph._call.session.plan_json())
    streams = {s for s, stream in enumerate(plan["streams"]) if stream["kind"] == "collective" and stream["device"] == "cpu:0"}
    mine = [i for a in plan["actors"] if a["stream"] in streams for word, i in a["program"] if word == "run"]
    return [[plan["kernels"][k]["op"], 4 * int(np.prod(plan["kernels"][k]["inputs"][0]["shape"])), plan["kernels"][k]["module"]] for k in mine]

dist.init()
P = sl.placement("cpu", list(range(size)))
x = sl.tensor(np.random.default_rng(0).standard_normal((8 * size, 64)).astype(np.float32)).to_global(P, sl.sbp.broadcast)
x = x.to_global(P, sl.sbp.split(0))
"""


@pytest.mark.parametrize("n", [2, 4])
def test_buckets_are_as_large_as_was_said_and_change_no_bit(ranks, tmp_path, n):  # LB-23
    out = ranks(n, TRAIN + """
told = []
for fusion in ((), (40000, 24), ("16MiB", 3), ("16MiB", 24)):
    graph = Train(*fusion)
    losses = [graph(x).item().hex() for _ in range(4)]
    told.append([losses, calls(graph), graph.config.options.get("collective_bytes")])
sl.save(graph, os.environ["BUNDLE"])
if rank == 0:
    print(json.dumps(told))
""", BUNDLE=str(tmp_path / "bundle"))
    (text,) = out[0]
    (plain, alone, _), *others = json.loads(text)
    gathers = [c for c in alone if c[0] == "all_gather"]
    most = {}
    for (losses, calls, asked), (bytes, ops) in zip(others, ((40000, 24), (16 << 20, 3), (16 << 20, 24))):
        assert losses == plain and asked == bytes
        assert len(calls) < len(alone)
        single = {b for _, b, _ in alone}
        for op, given, module in calls:
            assert given <= bytes or given in single
            if "bucket of" in module:
                assert 2 <= int(module.split()[2]) <= ops and module.split()[3].startswith(op)
        assert sum(b for _, b, _ in calls) == sum(b for _, b, _ in alone)  # all of it still travels
        most[ops, bytes] = len(calls)
    assert most[24, 16 << 20] <= most[3, 16 << 20] and most[24, 16 << 20] <= most[24, 40000]
    assert gathers
    shown = subprocess.run([find_tool("plan-viz"), "show", str(tmp_path / "bundle"), "--all", "--width", "200"], capture_output=True, text=True,
                           check=True).stdout
    assert "bucket of" in shown
    assert "collective_bytes" in subprocess.run([find_tool("plan-viz"), "info", str(tmp_path / "bundle")], capture_output=True, text=True,
                                                check=True).stdout


OVERLAP = """
class Train(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        P = sl.placement("cpu", [0, 1])
        self.net = sl.nn.Sequential(*(sl.nn.Linear(64, 64) for _ in range(16))).to_global(P, sl.sbp.broadcast)
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.01))
    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss
dist.init()
P = sl.placement("cpu", [0, 1])
graph = Train()
graph(sl.ones(512, 64).to_global(P, sl.sbp.broadcast).to_global(P, sl.sbp.split(0)))
sl.save(graph, os.environ["BUNDLE"])
"""


def test_what_travels_hides_behind_what_is_computed(ranks, tmp_path):  # RAY-08
    """Gradients of two ranks, in virtual time, as the plan's own costs and a link have it: of what travels, most hides."""
    ranks(2, OVERLAP, BUNDLE=str(tmp_path / "bundle"))
    told = {}
    for rate in (1e15, 2e9, 1e9, 0.6e9):
        (tmp_path / "links.json").write_text(json.dumps({"links": [{"between": ["*", "*"], "latency_ns": 0, "bytes_per_s": rate}]}))
        command = [find_tool("plan-viz"), "simulate", str(tmp_path / "bundle"), "--links", str(tmp_path / "links.json"), "--steps", "20"]
        run = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
        step, device = run["period_ns"], max(run["devices"], key=lambda d: d["exposed"])
        compute, travels = device["compute"] * step, device["communication"] * step
        hidden = 1 - device["exposed"] / max(device["communication"], 1e-9)
        print(f"compute {compute:.0f} ns, communication {travels:.0f} ns, a step {step:.0f} ns, {hidden:.0%} hidden")
        assert step <= 1.15 * max(compute, travels)
        told[rate] = (travels / compute, hidden)
    assert told[1e15][0] < 0.01 and told[0.6e9][0] > 0.3  # from next to nothing to a third of what is computed
    assert all(hidden > 0.6 for rate, (_, hidden) in told.items() if rate < 1e15)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "of it exposed" in text
