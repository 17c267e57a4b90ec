"""What a user asks of a run or a plan: who holds it up, what each op took, which memory is from which line, and where things come from."""

import json
import re
import subprocess

import numpy as np
import pytest
from test_perfetto import trace_processor

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool
from sluice.profiler.query import query

STEPS = 12


def plan_viz(*arguments):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def images():
    while True:
        yield np.zeros((8, 16), "float32")


def decode(x):
    """A stage that takes far longer than the net: it multiplies until a quarter of a billion operations are done."""
    a = np.eye(500, dtype="float32")
    for _ in range(4):
        a = a @ a
    return x * a[0, 0]


class Fed(nn.Graph):
    """A net that is trained on what two stages of input give it."""

    def __init__(self):
        super().__init__(name="fed")
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.add_optimizer(sl.optim.Adam(self.layers.parameters()))

    def build(self):
        x = sl.host_function(images, out=((8, 16), sl.float32))
        x = sl.host_function(decode, x, out=((8, 16), sl.float32), stream="host:1")
        loss = self.layers(x).sum()
        loss.backward()
        return loss


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with run.slt and run.json, of the same net."""
    folder = tmp_path_factory.mktemp("questions")
    graph = Fed()
    graph.config.set_granularity("op")
    graph().item()  # so that no step before the recorded ones is still on its way
    for name in ("run.slt", "run.json"):
        with sl.profiler.trace(folder / name):
            for result in [graph() for _ in range(STEPS)]:
                result.item()
    sl.save(graph, folder / "bundle")
    return folder


def test_a_program_that_is_bound_by_its_input_is_told_the_share_and_the_stage(run):  # TFD-06
    first, second = plan_viz("blame", run / "run.slt").splitlines()[:2]
    assert first == "plan 'fed'"
    found = re.search(r"waited ([\d.]+) % for input and slots: '(\S+)' ran ([\d.]+) %", second) \
        or re.search(r"'(?P<who>\S+)' ran ([\d.]+) % of it", second)
    assert found, second
    told = json.loads(plan_viz("blame", run / "run.slt", "--json"))
    rows = {row["name"]: row for row in told["rows"]}
    busiest = max(rows.values(), key=lambda row: row["run_ns"])
    stage = next(a["name"] for a in json.loads(plan_viz("json", run / "run.slt"))["actors"]
                 if "host_function#2" in {k["name"] for k in kernels_of(run, a)})
    assert busiest["name"] == stage and f"'{stage}' ran" in second
    net = [row for name, row in rows.items() if "linear" in name]
    assert net, list(rows)
    for row in net:  # each of its kernels waits for its input or for its turn, and not for slots
        assert row["input_ns"] + row["stream_ns"] > row["run_ns"] + row["credit_ns"]
    advice = json.loads(plan_viz("bottleneck", run / "run.slt", "--json"))["kernels"]
    best = min(advice, key=lambda one: one["period_ns"])
    assert best["names"] == ["host_function#2"]


def kernels_of(run, actor):
    kernels = json.loads(plan_viz("json", run / "run.slt"))["kernels"]
    return [kernels[index] for kind, index in actor["program"] if kind == "run"]


def test_chromes_format_has_the_sums_of_our_table(run):  # ORT-06, JAX-13
    theirs, = trace_processor(run / "run.json", "select name, count(*), sum(dur) from slice where category = 'kernel' group by 1")
    told = json.loads((run / "run.json").read_text())["traceEvents"]
    ours = {}
    for event in told:
        if event["ph"] == "X" and event["cat"] == "kernel":
            count, ns = ours.get(event["name"], (0, 0))
            ours[event["name"]] = (count + 1, ns + event["dur"] * 1e3)
    assert {name for name, *_ in theirs} == set(ours) and len(ours) > 8
    for name, count, ns in theirs:
        assert count == ours[name][0] == STEPS and ns == pytest.approx(ours[name][1], rel=0.01)


def test_the_largest_pieces_of_memory_have_lines_of_the_program(run):  # JAX-13
    for file in (run / "run.slt", run / "bundle"):
        top = query(file).execute("select name, kind, bytes, line, module from memory order by bytes desc limit 10").fetchall()
        assert len(top) == 10 and [row[2] for row in top] == sorted((row[2] for row in top), reverse=True)
        for name, _, size, line, _ in top:
            assert size > 0 and re.search(r"test_questions_of_runs\.py:\d+$", line or ""), (name, line)
        weight = query(file).execute("select bytes, kind, module from memory where name = 'layers.0.weight'").fetchone()
        assert weight == (16 * 32 * 4, "variable", "layers.0")
    ledger = json.loads(plan_viz("mem", run / "bundle", "--json"))
    sizes = dict(query(run / "bundle").execute("select name, bytes from memory where kind in ('variable', 'constant')"))
    for line in ledger["lines"]:
        if line["kind"] in ("variable", "constant"):
            assert line["bytes"] - 64 < sizes[line["name"]] <= line["bytes"]  # the ledger has them rounded up to 64 bytes


def test_events_are_grouped_by_a_query_as_by_the_table(run):  # IRE-04
    table = {row["name"]: row["run_ns"] for row in json.loads(plan_viz("blame", run / "run.slt", "--json"))["rows"]}
    command = ["select a.name, sum(e.end_ns - e.begin_ns) as ns from events e join kernels k on k.name = e.name "
               "join actors a on a.id = k.actor where e.kind = 'kernel' group by a.name"]
    assert {name: ns for name, ns in query(run / "run.slt").execute(*command)} == {name: ns for name, ns in table.items() if ns}


def test_a_schedule_for_each_actor_and_a_colour_for_each(run):  # RAY-12
    told = json.loads(plan_viz("simulate", run / "bundle", "--steps", "4", "--json"))
    schedule = {}
    for firing in told["firings"]:
        schedule.setdefault(firing["actor"], []).append((firing["firing"], firing["begin_ns"], firing["end_ns"]))
    actors = json.loads(plan_viz("json", run / "bundle"))["actors"]
    assert set(schedule) == {a["name"] for a in actors}
    for times in schedule.values():
        assert [number for number, *_ in times] == list(range(len(times))) and len(times) >= 4
        assert all(end <= begin for (_, _, end), (_, begin, _) in zip(times, times[1:]))
    rows = plan_viz("simulate", run / "bundle", "--steps", "4")
    for stream in ("cpu:0/compute0", "cpu:0/host0", "cpu:0/host1"):
        assert re.search(rf"^  {stream} +\d+%  \S+$", rows, re.M)
    colours = {}
    for colour, actor in re.findall(r'fill="(#\w+)"><title>\S+ of (\S+?),', plan_viz("svg", run / "bundle")):
        colours.setdefault(actor, set()).add(colour)
    assert len(colours) > 3 and all(len(one) == 1 for one in colours.values())
    assert len({colour for one in colours.values() for colour in one}) >= 3


class Split(nn.Graph):
    """A net whose second layer is on another device."""

    def __init__(self):
        super().__init__(name="split")
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.config.set_granularity("op")

    def build(self, x):
        here, there = sl.placement("sim", [0]), sl.placement("sim", [1])
        first = self.first(x).relu().to_global(here, sl.sbp.broadcast)
        return first.to_global(there, sl.sbp.broadcast).tanh()


class Pairs(nn.Graph):
    def __init__(self):
        super().__init__(name="pairs")
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(2)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def test_everything_in_a_plan_says_where_it_comes_from(tmp_path):  # C-19
    plans = {"fed": (Fed(), ()), "split": (Split(), (sl.zeros(4, 8),)), "pairs": (Pairs(), (sl.zeros(4, 1, 8, 8), sl.zeros(4, dtype=sl.int64)))}
    for name, (graph, inputs) in plans.items():
        graph.compile(*inputs)
        graph.save_plan(tmp_path / f"{name}.json")
        plan = json.loads((tmp_path / f"{name}.json").read_text())
        lines = 0
        for kind, what in (("actors", "actor"), ("registers", "register"), ("kernels", "kernel")):
            for one in plan[kind]:
                told = json.loads(plan_viz("why", tmp_path / f"{name}.json", one["name"], "--json"))
                facts = [dict(t["facts"]) for t in told if t["what"] == what and t["name"] == one["name"]]
                assert facts and all(len(f) >= 3 for f in facts), (name, one["name"])
                lines += any("test_questions_of_runs.py:" in str(value) for f in facts for value in f.values())
        assert lines >= len(plan["kernels"]) / 2, name
