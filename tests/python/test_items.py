"""A step's way through the graph, and what runs come to: plan-viz says the same in the terminal, as JSON and on its page."""

import json
import re
import subprocess

import pytest
from browser import Browser

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

STEPS = 20


class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 8)
        self.config.set_granularity("op")

    def build(self, x):
        return self.second(self.first(x).relu()), x.sum()


def plan_viz(folder, *arguments, status=0):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A recorded run of STEPS steps, its plan, and the page of both."""
    folder = tmp_path_factory.mktemp("items")
    graph, x = Net(), sl.ones(16, 32)
    graph(x)
    graph.synchronize()  # so that no step before these is still on its way
    graph.save_plan(folder / "plan.json")
    with graph.record_trace(folder / "run.slt"):
        for _ in range(STEPS):
            graph(x)
        graph.synchronize()
    plan_viz(folder, "html", "run.slt", "-o", "run.html")
    return folder


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


def steps_of(folder):
    """The first and the last step that was recorded, as the program's counter has them."""
    with open(folder / "run.csv") as table:
        steps = [int(line.split(",")[5]) for line in table.read().splitlines()[1:] if line.startswith("firing")]
    return range(min(steps), max(steps) + 1)


def item(folder, step, file="run.slt"):
    return json.loads(plan_viz(folder, "item", file, step, "--json"))


@pytest.fixture(scope="module")
def ways(folder):
    plan_viz(folder, "trace", "run.slt", "-o", "run.csv")
    return {step: item(folder, step) for step in steps_of(folder)}


def test_waits_and_runs_of_the_hops_add_up_to_the_latency(folder, ways):
    assert len(ways) == STEPS
    for way in ways.values():
        assert way["latency_ns"] == way["end_ns"] - way["begin_ns"] == sum(hop["wait_ns"] + hop["run_ns"] for hop in way["hops"])
        at = way["begin_ns"]
        for hop in way["hops"]:
            assert hop["arrived_ns"] == at and hop["arrived_ns"] <= hop["begin_ns"] <= hop["left_ns"]
            assert sum(hop["waited"].values()) == hop["wait_ns"] and sum(hop["ran"].values()) == hop["run_ns"]
            at = hop["left_ns"]
        assert at == way["end_ns"] and len(way["hops"]) >= 3
    first = next(iter(ways.values()))
    latency = {(path["from"], path["to"]): path for path in json.loads(plan_viz(folder, "latency", "run.slt", "--json"))["paths"]}
    path = latency[first["from"], first["to"]]
    took = [way["latency_ns"] for way in ways.values()]
    assert {way["from"] for way in ways.values()} == {first["from"]} and path["steps"] == STEPS
    assert (path["min_ns"], path["max_ns"]) == (min(took), max(took)) and path["mean_ns"] == pytest.approx(sum(took) / STEPS)


def test_a_plan_is_run_in_virtual_time(folder):
    way = item(folder, 17, "plan.json")
    assert way["latency_ns"] == sum(hop["wait_ns"] + hop["run_ns"] for hop in way["hops"])
    assert {"from", "to", "flows"} <= way.keys() and way["hops"][0]["actor"] == way["from"]


def test_a_step_that_was_not_recorded_is_an_error(folder):
    assert "item: step 4711: not recorded; sinks have fired for steps" in plan_viz(folder, "item", "run.slt", 4711, status=2)
    assert "item: 'net': no sink of plan 'net' is called so; its sinks are 'outputs'" in plan_viz(folder, "item", "run.slt", 17, "--to", "net", status=2)


def test_the_page_shows_the_way_of_a_step(folder, ways, browser):
    step = sorted(ways)[17]
    way = ways[step]
    browser.open(folder / "run.html")
    browser.run(f"(() => {{ const f = document.querySelector('#bar input'); f.value = '{step}'; f.dispatchEvent(new Event('change')); }})()")
    browser.settle()
    assert browser.text("#details h2") == f"step {step}"
    hops = browser.run("[...document.querySelectorAll('.hops tr')].slice(1).map(r => [r.cells[1].textContent, r.cells[2].textContent, +r.cells[3].dataset.wait, +r.cells[4].dataset.run])")
    assert hops == [[hop["actor"], hop["register"], hop["wait_ns"], hop["run_ns"]] for hop in way["hops"]]
    shown = browser.run("['latency', 'waited', 'ran'].map(n => +document.querySelector(`#details [data-${n}]`).dataset[n])")
    assert shown == [way["latency_ns"], way["wait_ns"], way["run_ns"]] and shown[0] == sum(wait + run for *_, wait, run in hops)
    assert browser.run("planViz.lanes().arrows") == len(way["flows"]) > 0
    assert f"#item={step}" in browser.run("new Promise(d => setTimeout(() => d(location.hash), 300))")
    browser.run("[...document.querySelectorAll('#details button')].find(b => b.textContent.startsWith('step ')).click()")
    assert browser.text("#details h2") == f"step {step - 1}"
    asked, said = browser.requests()
    assert asked == [] and said == []


def test_a_click_on_a_firing_leads_to_its_step(folder, ways, browser):
    browser.open(folder / "run.html")
    place = "(() => { const l = planViz.lanes(), r = planViz.state.plan.runs[1], [x, y] = l.place(r, 0), c = document.querySelector('#canvas').getBoundingClientRect(); return [c.left + x, c.top + y - 17]; })()"
    browser.click_at(*browser.run(place))
    step = browser.run("(() => { const r = planViz.state.plan.runs[1]; return r.item[r.firing[0]]; })()")
    assert browser.run("planViz.state.selected.kind") == "actor" and browser.run("planViz.state.selected.item") == step
    browser.run("[...document.querySelectorAll('#details button')].find(b => /^step /.test(b.textContent)).click()")
    assert browser.text("#details h2") == f"step {step}" and step in ways


def panels(browser, run):
    """The exact numbers of each panel, in their order, of one of the page's runs."""
    browser.run(f"(() => {{ const s = document.querySelector('#bar select'); s.value = '{run}'; s.dispatchEvent(new Event('change')); }})()")
    browser.run("document.querySelector('#tabs [data-name=Summary]').click()")
    browser.settle()
    return browser.run("Object.fromEntries([...document.querySelectorAll('#rows section')].map(s => [s.dataset.name, [...s.querySelectorAll('[data-exact]')].map(e => +e.dataset.exact)]))")


def flat(panels):
    """The same of `stats --json`."""
    numbers = {"parallelism": [busy for *_, busy in panels["parallelism"]], "tasks": [], "utilization": [], "durations": [runs for _, _, runs, _ in panels["durations"]]}
    for n, ns in enumerate(panels["levels"]):
        numbers["parallelism"] += [n, ns, ns]  # the share has the time that it is of
    for task in panels["tasks"]:
        numbers["tasks"] += [task["runs"], task["total_ns"], task["longest_ns"]]
    for use in panels["utilization"]:
        numbers["utilization"] += [use["firings"], use["kernels"], use["firings_ns"], use["kernels_ns"], use["share"]]
    for bucket in panels["durations"]:
        numbers["durations"] += bucket
    return numbers


def test_the_panels_have_the_numbers_of_stats(folder, browser):  # TKF-04
    stats = json.loads(plan_viz(folder, "stats", "run.slt", "--json"))["runs"]
    assert [run["run"] for run in stats] == ["predicted", "measured"]
    browser.open(folder / "run.html")
    assert browser.run("planViz.state.plan.data.runs.map(r => r.panels)") == [run["panels"] for run in stats]
    for i, run in enumerate(stats):
        assert panels(browser, i) == flat(run["panels"])


def test_the_sums_of_stats_agree_with_each_other_and_with_the_trace(folder):
    run = json.loads(plan_viz(folder, "stats", "run.slt", "--json"))["runs"][1]
    found, total = run["panels"], run["total_ns"]
    streams = {s["name"]: s for s in json.loads(plan_viz(folder, "trace", "run.slt", "--json"))["streams"]}
    for use in found["utilization"]:
        assert (use["firings"], use["kernels"]) == (streams[use["stream"]]["firings"], streams[use["stream"]]["kernels"])
        assert use["share"] == pytest.approx(use["kernels_ns"] / total)
    in_kernels = sum(use["kernels_ns"] for use in found["utilization"])
    assert in_kernels > 0 and sum(found["levels"]) == total and sum(n * ns for n, ns in enumerate(found["levels"])) == in_kernels
    assert sum(busy for *_, busy in found["parallelism"]) == in_kernels == sum(ns for *_, ns in found["durations"])
    assert sum(runs for _, _, runs, _ in found["durations"]) == sum(use["kernels"] for use in found["utilization"])
    assert [task["total_ns"] for task in found["tasks"] if task["critical"]] == sorted((t["total_ns"] for t in found["tasks"] if t["critical"]), reverse=True)
    assert all(low <= total and low < high for low, high, *_ in found["durations"])


def test_bytes_per_second_of_each_actor(folder):  # ACT-19
    run = json.loads(plan_viz(folder, "stats", "run.slt", "--json"))["runs"][1]
    plan = json.loads((folder / "plan.json").read_text())
    size = {"float32": 4, "int64": 8, "float64": 8, "bool": 1, "int32": 4, "uint8": 1}

    def bytes_of(view):
        count = 1
        for n in view["shape"]:
            count *= n
        return 0 if view["index"] < 0 else count * size[view["dtype"]]

    moved = {}
    for actor in plan["actors"]:
        kernels = [plan["kernels"][index] for kind, index in actor["program"] if kind == "run"]
        moved[actor["name"]] = sum(bytes_of(view) for k in kernels for view in [*k["inputs"], *k["outputs"]])
    assert any(moved.values())
    for actor in run["actors"]:
        assert actor["bytes"] == actor["firings"] * moved[actor["actor"]], actor
        assert actor["gb_per_s"] == pytest.approx(actor["bytes"] / actor["kernels_ns"] if actor["kernels_ns"] else 0)
    text = plan_viz(folder, "stats", "run.slt")
    busiest = max(run["actors"], key=lambda actor: actor["bytes"])
    assert busiest["actor"] in text and " GB/s" in text


class Moves(nn.Graph):
    def __init__(self):
        super().__init__(name="moves")
        self.net = nn.Linear(32, 8)
        self.config.set_device("sim:0")

    def build(self, x):
        return self.net(x).relu()


def test_what_is_written_for_other_programs_agrees(tmp_path):  # STP-04
    graph, x = Moves(), sl.ones(16, 32)
    graph(x)
    graph.synchronize()
    with graph.record_trace(tmp_path / "run.slt"):
        for _ in range(5):
            graph(x)
        graph.synchronize()
    for name in ("run.json", "run.csv", "run.tasks.json"):
        plan_viz(tmp_path, "trace", "run.slt", "-o", name)
    tasks = json.loads((tmp_path / "run.tasks.json").read_text())["tasks"]
    timeline = [e for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"]
    table = [line.split(",") for line in (tmp_path / "run.csv").read_text().splitlines() if line.startswith("kernel,")]
    assert len(tasks) == len(timeline) == len(table) > 10
    assert sorted(t["kernel"] for t in tasks) == sorted(e["name"] for e in timeline) == sorted(row[3] for row in table)
    took = sum(t["end_ns"] - t["begin_ns"] for t in tasks)
    assert took == sum(int(row[7]) - int(row[6]) for row in table) and took == sum(round(1000 * e["dur"]) for e in timeline)
    run = json.loads(plan_viz(tmp_path, "stats", "run.slt", "--json"))["runs"][-1]
    assert took == sum(use["kernels_ns"] for use in run["panels"]["utilization"])
    assert sum(t["bytes"] for t in tasks) == sum(actor["bytes"] for actor in run["actors"])
    matrix = {}
    for move in (move for task in tasks for move in task["moves"]):
        matrix[move["from"], move["to"]] = matrix.get((move["from"], move["to"]), 0) + move["bytes"]
    assert matrix == {(link["from"], link["to"]): link["bytes"] for link in run["links"]}
    into, out = [sum(n for (_, to), n in matrix.items() if (to == "sim:0") == inward) for inward in (True, False)]
    assert into >= 5 * 16 * 32 * 4 and out >= 5 * 16 * 8 * 4, "inputs go there, results come back"
    dot = plan_viz(tmp_path, "dot", "run.slt")
    drawn = re.findall(r"a(\d+) -> a(\d+) \[label=\"([^ \"]+) ", dot)
    actors = dict(re.findall(r'^ +a(\d+) \[label="([^"\n]+)', dot, re.M))
    for task in tasks:
        assert {register for _, to, register in drawn if actors[to].strip() == task["actor"]} == set(task["takes"]), task["actor"]


def test_how_far_a_run_is_from_what_is_possible(folder):  # STP-05
    for file in ("run.slt", "plan.json"):
        if file == "plan.json" and not any(float(k["cost_ns"]) for k in json.loads((folder / file).read_text())["kernels"]):
            continue
        runs = json.loads(plan_viz(folder, "bound", file, "--json"))["runs"]
        stats = {run["run"]: run for run in json.loads(plan_viz(folder, "stats", file, "--json"))["runs"]}
        for run in runs:
            assert run["bound_ns"] == max(run["critical_path_ns"], run["area_ns"], run["cores_ns"]) <= run["total_ns"]
            assert run["achieved"] == pytest.approx(run["bound_ns"] / run["total_ns"]) and run["critical_path_ns"] > 0
            if run["run"] == "measured":
                assert run["steps"] == STEPS and run["total_ns"] == stats["measured"]["total_ns"]
                assert run["area_ns"] == max(use["kernels_ns"] for use in stats["measured"]["panels"]["utilization"])
    text = plan_viz(folder, "bound", "run.slt")
    for word in ("critical path", "area", "bound", "achieved"):
        assert word in text
