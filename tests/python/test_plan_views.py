"""plan-viz: every view that it lists has JSON of a fixed form, on a plan of a real graph and on what else views read."""

import json
import pathlib
import re
import subprocess

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

TREE = pathlib.Path(__file__).resolve().parents[2]
NUMBER = (int, float)
COUNT, TEXT, LIST, MAYBE_TEXT = int, str, list, (str, type(None))
# Each view has a call on the files that `files` makes, and the keys that each object of its JSON must have.
FORMS = {
    "show": ("bundle", {"name": TEXT, "streams": LIST}),
    "devices": ("bundle", {"name": TEXT}),
    "info": ("bundle", {"name": TEXT}),
    "stats": ("bundle", {"name": TEXT}),
    "mem": ("bundle", {"name": TEXT, "total": COUNT}),
    "verify": ("bundle", {"name": TEXT}),
    "dot": ("bundle", {"dot": TEXT}),
    "json": ("bundle", {"name": TEXT, "schema_version": COUNT, "streams": LIST, "actors": LIST, "registers": LIST, "kernels": LIST}),
    "ir": ("bundle", {"name": TEXT, "nodes": COUNT, "inputs": COUNT, "outputs": COUNT, "variables": COUNT, "text": TEXT}),
    "simulate": ("bundle --steps 20", {"name": TEXT, "firings": LIST}),
    "bottleneck": ("bundle", {"name": TEXT}),
    "svg": ("bundle", {"svg": TEXT}),
    "diff": ("bundle bundle", {"equal": bool, "differences": LIST}),
    "why": ("bundle inputs", {}),
    "blame": ("run.slt", {"name": TEXT, "recorded_ns": COUNT, "rows": LIST}),
    "trace": ("run.slt", {"name": TEXT, "events": COUNT, "streams": LIST}),
    "latency": ("run.slt", {"name": TEXT, "paths": LIST}),
    "item": ("bundle 2", {"name": TEXT, "step": COUNT, "latency_ns": COUNT, "hops": LIST, "flows": LIST}),
    "bound": ("run.slt", {"name": TEXT, "runs": LIST}),
    "pareto": ("bundle", {"name": TEXT}),
    "partition": ("bundle --backend ./libsluice_echo.so", {"backend": TEXT, "line": TEXT, "clusters": COUNT, "nodes": LIST}),
    "cost": ("costs.json --plan bundle", {"name": MAYBE_TEXT, "measured": LIST}),
    "compare": ("dump_a dump_b", {}),
    "sbp": ("laid --ignore-user-sbp", {"name": TEXT, "greedy": dict, "cost": dict, "candidates": LIST}),
    "served": ("served.json", {}),
    "requests": ("bundle trace.json", {"requests": LIST, "steps": LIST}),
}


class Net(nn.Graph):
    def __init__(self, bend=0.0):
        super().__init__(name="net")
        sl.manual_seed(0)
        self.fc = nn.Linear(4, 3)
        with sl.no_grad():
            self.fc.bias[1] += bend

    def build(self, x):
        return self.fc(x).tanh()


class Laid(nn.Graph):
    """Over two devices."""

    def __init__(self):
        super().__init__(name="laid")
        self.fc = nn.Linear(4, 2).to_global(sl.placement("sim", [0, 1]), sl.sbp.broadcast)

    def build(self, x):
        return self.fc(x)


def plan_viz(directory, *arguments):
    return subprocess.run([find_tool("plan-viz"), *arguments], capture_output=True, text=True, cwd=directory)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with bundles, costs, two dumps that differ, what a server says of its models, and a trace of a request."""
    folder = tmp_path_factory.mktemp("views")
    for name, bend in (("dump_a", 0), ("dump_b", 0.5)):
        graph = Net(bend)
        graph.config.set_dump(ops="*", tensors=True, directory=folder / name)
        graph(sl.ones(2, 4))
        graph.close()
    graph = Net()
    graph(sl.ones(2, 4))
    sl.save(graph, folder / "bundle")
    laid = Laid()
    with sl.no_grad():
        laid(sl.ones(2, 4).to_global(sl.placement("sim", [0, 1]), sl.sbp.split(0)))
    sl.save(laid, folder / "laid")
    with graph.record_trace(folder / "run.slt"):
        graph(sl.ones(2, 4))
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{TREE}/include", "-o", folder / "libsluice_echo.so", TREE / "examples/backend/echo.c", "-lm"],
                   check=True)
    plan = json.loads(plan_viz(folder, "json", "bundle").stdout)
    (folder / "costs.json").write_text(json.dumps({"links": [], "kernels": []}))
    queue = {"priority": 0, "places": 8, "timeout_us": 0, "delays": True}
    batcher = {"merges": True, "most_rows": 4, "preferred": [2], "delay_us": 5, "ordered": False}
    model = {"name": "net", "version": "1", "bundle": str(folder / "bundle"), "inputs": ["x"], "outputs": ["y"], "steps": [],
             "sequences": "", "instances": 1, "queues": [queue], "batcher": batcher}
    (folder / "served.json").write_text(json.dumps({"models": [model]}))
    actor = plan["actors"][0]
    firing = {"kind": "firing", "plan": 0, "stream": plan["streams"][actor["stream"]]["name"], "actor": actor["name"],
              "begin_ns": 3, "end_ns": 5}
    (folder / "trace.json").write_text(json.dumps([
        {"id": 1, "model_name": "net", "model_version": "1", "request_id": "first"},
        {"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 1}, {"name": "REQUEST_END", "ns": 9}]},
        {"id": 1, "ids": [1], "instance": 0, "number": 0, "plans": 1, "events": [firing]}]))
    return folder


def views():
    """The views that the program itself lists, but for pages, which are HTML, what is for shells, `top` and `energy`, which look at a process
    that runs (tests/plan_viz/live_view_test.cpp, test_live.py), and `debug`, which answers commands (test_message_debugger.py)."""
    listed = plan_viz(None, "--help").stdout.partition("\nSubcommands:\n")[2]
    return [name for name in re.findall(r"^  (\w+)", listed, re.M) if name not in ("html", "live", "prove", "completion", "top", "energy", "debug")]


def test_every_view_that_is_listed_has_a_form():  # VIZ-08
    assert sorted(views()) == sorted(FORMS)


@pytest.mark.parametrize("view", FORMS)
def test_json_has_the_form_of_its_view(files, view):  # VIZ-08
    arguments, form = FORMS[view]
    done = plan_viz(files, view, *arguments.split(), "--json")
    assert done.returncode == (1 if view == "compare" else 0), done.stderr
    document = json.loads(done.stdout, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert document, "an empty document says nothing"
    for key, kind in form.items():
        assert isinstance(document[key], kind), (key, document)
        assert not isinstance(document[key], list) or document[key] or view in ("cost", "diff"), key


@pytest.mark.parametrize("command, status", [
    ("plan-viz nothing", 2), ("plan-viz item bundle -1", 2), ("plan-viz debug bundle --steps=0", 2), ("sluice-run bundle --steps=0", 1),
    ("sluice-run bundle --steps=abc", 1), ("sluice-bench bundle --items=-1", 1), ("sluice-info measure --of", 1)])
def test_wrong_arguments_end_with_the_status_of_errors(command, status):
    tool, *arguments = command.split()
    done = subprocess.run([find_tool(tool), *arguments], capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stderr)
    assert len(done.stderr) < 200 and "--help" in done.stderr, done.stderr
