"""Recordings of runs: SLUICE_TRACE, sluice.profiler.trace, and what plan-viz makes of them."""

import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool
from sluice.profiler.query import main as query_program, query
from sluice.utils.capture import capture

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "recordings.md"
STEPS = 30
PROGRAM = """
import sluice as sl
from sluice import nn

class Net(nn.Graph):
    def __init__(self, name):
        super().__init__(name=name)
        self.layer = nn.Linear(16, 16)

    def build(self, x):
        return self.layer(x).relu()

for net in (Net("first"), Net("second")):
    for _ in range(30):
        net(sl.ones(8, 16))
    net.synchronize()
"""


class Net(nn.Graph):
    def __init__(self, name="net"):
        super().__init__(name=name)
        self.layer = nn.Linear(16, 16)

    def build(self, x):
        return self.layer(x).relu()


def plan_viz(directory, *arguments, status=0):
    done = subprocess.run([find_tool("plan-viz"), *arguments], capture_output=True, text=True, cwd=directory)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def run_program(directory, trace):
    (directory / "train.py").write_text(PROGRAM)
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    environment = {**os.environ, "SLUICE_TRACE": trace, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, cwd=directory, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def blame(directory, file):
    """The rows of `plan-viz blame`; each one's columns add up to all of the time that was recorded."""
    told = json.loads(plan_viz(directory, "blame", file, "--json"))
    for row in told["rows"]:
        assert row["total_ns"] == told["recorded_ns"] == sum(row[key] for key in row if key.endswith("_ns") and key != "total_ns")
        assert sum(wait["ns"] for wait in row["waits"]) == row["input_ns"] + row["credit_ns"] + row["stream_ns"]
    return told


def test_the_environment_records_each_plan_of_a_program(tmp_path):
    assert run_program(tmp_path, "run.slt") == ""
    assert {p.name for p in tmp_path.glob("*.slt")} == {"run.slt", "run.2.slt"}
    for file, name in (("run.slt", "first"), ("run.2.slt", "second")):
        told = blame(tmp_path, file)
        assert told["name"] == name
        assert any(row["run_ns"] > 0 for row in told["rows"])
        latency = json.loads(plan_viz(tmp_path, "latency", file, "--json"))
        assert latency["paths"][0]["steps"] + latency["lost"] >= STEPS
        path = latency["paths"][0]
        assert 0 < path["min_ns"] <= path["p50_ns"] <= path["p99_ns"] <= path["max_ns"]


def test_without_a_file_a_summary_is_printed(tmp_path):
    told = run_program(tmp_path, "")
    assert re.search(r"^SLUICE_TRACE: graph 'first'\n[\d.e+]+ ms recorded; ", told, re.M), told
    assert "graph 'second'" in told and "run " in told
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_a_block_records_what_was_compiled_before_and_within(tmp_path):
    early, late = Net("early"), Net("late")
    early(sl.ones(8, 16)).numpy()  # so that no step before the recorded ones is still on its way
    with sl.profiler.trace(tmp_path / "run.slt") as recording:
        for graph in (early, late):
            for _ in range(STEPS):
                graph(sl.ones(8, 16))
        with pytest.raises(RuntimeError, match="trace: one runs already; end it first, or unset SLUICE_TRACE"):
            with sl.profiler.trace(tmp_path / "other.slt"):
                pass
    early(sl.ones(8, 16))  # behind the recording
    assert [os.path.basename(path) for path in recording.paths] == ["run.slt", "run.2.slt"]
    assert {blame(tmp_path, path)["name"] for path in recording.paths} == {"early", "late"}
    for path in recording.paths:
        steps = json.loads(plan_viz(tmp_path, "latency", path, "--json"))["paths"][0]["steps"]
        assert steps == STEPS
    with sl.profiler.trace(tmp_path / "again.json") as recording:  # Chrome's format
        early(sl.ones(8, 16))
    assert json.loads(pathlib.Path(recording.paths[0]).read_text())["traceEvents"]


def test_events_take_few_bytes_and_become_json(tmp_path):
    graph = Net()
    graph.config.set_granularity("op")
    graph(sl.ones(8, 16))
    with graph.record_trace(tmp_path / "run.slt"):
        for _ in range(1000):
            graph(sl.ones(8, 16))
    trace = json.loads(plan_viz(tmp_path, "trace", "run.slt", "--json"))
    text = (tmp_path / "run.slt").read_bytes()
    plan = len(plan_viz(tmp_path, "json", "run.slt"))
    assert trace["events"] > 3000
    assert len(text) - plan <= 8 * trace["events"] + 4096, (len(text), plan, trace["events"])
    assert plan_viz(tmp_path, "trace", "run.slt", "-o", "run.json") == "run.json\n"
    events = [e for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) == trace["events"]
    assert any(e["args"].get("cause", "").startswith("data '") for e in events)


KILLED = """
import os, sys
import sluice as sl
from sluice import nn

class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        self.layer = nn.Linear(16, 16)

    def build(self, x):
        return self.layer(x).relu()

net, steps = Net(), 0
net(sl.ones(8, 16))
net.synchronize()  # so that no step before the recorded ones is still on its way
with net.record_trace("run.slt"):
    begin = os.path.getsize("run.slt")
    while os.path.getsize("run.slt") == begin:
        net(sl.ones(8, 16))
        net.synchronize()
        steps += 1
    print(steps, flush=True)
    sys.stdin.read()
"""


def test_a_killed_program_leaves_what_it_has_recorded(tmp_path):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    child = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    steps = int(child.stdout.readline())

    def steps_in_file():
        done = subprocess.run([find_tool("plan-viz"), "latency", "run.slt", "--json"], capture_output=True, text=True, cwd=tmp_path)
        if done.returncode == 0:
            assert re.search("run.slt: the recording was not ended", done.stderr), done.stderr
        return json.loads(done.stdout)["paths"][0]["steps"] if done.returncode == 0 else 0

    while steps_in_file() < steps:  # while it runs, too; a file that is being written ends within a section for a moment
        assert child.poll() is None
    child.kill()
    child.communicate()
    assert steps_in_file() == steps
    blame(tmp_path, "run.slt")


def test_what_is_no_recording_is_refused(tmp_path):
    graph = Net()
    graph(sl.ones(8, 16))
    with graph.record_trace(tmp_path / "run.slt"):
        graph(sl.ones(8, 16))
    whole = (tmp_path / "run.slt").read_bytes()
    (tmp_path / "cut.slt").write_bytes(whole[:-1])
    (tmp_path / "text.slt").write_text("{}")
    for file, what in (("cut.slt", "byte .*: the file is cut"), ("text.slt", "this is no recording"), ("none.slt", "no recording")):
        done = subprocess.run([find_tool("plan-viz"), "blame", file], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2 and re.search(what, done.stderr), done.stderr
        assert done.stderr.count("\n") == 1


def test_what_a_view_reads_is_not_written(tmp_path):
    graph = Net()
    graph(sl.ones(8, 16))
    with graph.record_trace(tmp_path / "run.slt"):
        graph(sl.ones(8, 16))
    sl.save(graph, tmp_path / "bundle")
    (tmp_path / "run.json").symlink_to("run.slt")
    for view, file, output in (("trace", "run.slt", "run.json"), ("html", "run.slt", "run.slt"), ("svg", "bundle", "bundle/plan.json"),
                               ("simulate", "bundle/plan.json", "bundle/plan.json")):
        before = (tmp_path / output).read_bytes()
        done = subprocess.run([find_tool("plan-viz"), view, file, "-o", output], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2 and f"{output}: the view reads this file; -o must name another one" in done.stderr, done.stderr
        assert (tmp_path / output).read_bytes() == before
    done = subprocess.run([find_tool("plan-viz"), "trace", "run.slt", "-o", "run.text"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "run.text: unknown format; must end with .json" in done.stderr, done.stderr


def test_views_of_plans_take_recordings_at_their_measured_costs(tmp_path):
    graph = Net()
    graph(sl.ones(8, 16))
    with graph.record_trace(tmp_path / "run.slt"):
        for _ in range(STEPS):
            graph(sl.ones(8, 16))
    kernels = json.loads(plan_viz(tmp_path, "json", "run.slt"))["kernels"]
    sl.save(graph, tmp_path / "bundle")
    predicted = json.loads(plan_viz(tmp_path, "json", "bundle"))["kernels"]
    assert [k["name"] for k in kernels] == [k["name"] for k in predicted]
    assert any(a["cost_ns"] != b["cost_ns"] for a, b in zip(kernels, predicted))
    told = plan_viz(tmp_path, "diff", "bundle", "run.slt", status=1)
    assert set(re.findall(r"^~ kernel \S+  (\w+):", told, re.M)) == {"cost"}


def test_sql_reads_plans_and_runs(tmp_path):
    graph = Net()
    graph(sl.ones(8, 16))
    with graph.record_trace(tmp_path / "run.slt"):
        for _ in range(STEPS):
            graph(sl.ones(8, 16))
    base = query(tmp_path / "run.slt")
    plan = json.loads(plan_viz(tmp_path, "json", "run.slt"))
    for table in ("streams", "actors", "kernels", "registers", "edges", "variables"):
        assert base.execute(f"select count(*) from {table}").fetchone() == (len(plan[table]),)
    told = {row["name"]: row["run_ns"] for row in blame(tmp_path, "run.slt")["rows"]}
    assert dict(base.execute("select actor, run_ns from blame")) == told
    ran = base.execute("select a.name, sum(e.end_ns - e.begin_ns) from events e join kernels k on k.name = e.name "
                       "join actors a on a.id = k.actor where e.kind = 'kernel' group by a.name").fetchall()
    assert ran and all(told[name] == ns for name, ns in ran)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        base.execute("delete from events")
    sl.save(graph, tmp_path / "bundle")
    assert query(tmp_path / "bundle").execute("select count(*) from events").fetchone() == (0,)


def test_a_wrong_query_is_one_line(tmp_path, capsys):
    graph = Net()
    graph(sl.ones(8, 16))
    sl.save(graph, tmp_path / "bundle")
    for file, sql in (("bundle", "select nothing from nowhere"), ("none", "select 1"), ("bundle", "drop table actors")):
        assert query_program([str(tmp_path / file), sql]) == 2
        told = capsys.readouterr().err
        assert told.startswith("query: ") and told.count("\n") == 1, told
    assert query_program([str(tmp_path / "bundle")]) == 0
    assert "kernels(id, name, op, actor," in capsys.readouterr().out


@pytest.mark.parametrize("line", [line for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)
                                  for line in block.splitlines()])
def test_lines_of_the_page_run(line, tmp_path):
    run_program(tmp_path, "run.slt")
    if re.search(r" work\b", line):  # what the block of Python on the page has captured
        net = Net()
        with capture(tmp_path / "work"):
            net(sl.ones(8, 16))
    tools = os.path.dirname(find_tool("plan-viz"))
    path = os.pathsep.join([tools, os.path.dirname(sys.executable), os.environ["PATH"]])
    package = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PATH": path, "PYTHONPATH": package})
    assert done.returncode == 0, done.stdout + done.stderr
