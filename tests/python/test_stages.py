"""sluice-compile: what the compiler has made when it stops at a stage."""

import json
import pathlib
import re
import subprocess

import pytest
from test_plan_cache import NETS, Step

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def build(self, x):
        return self.layers(x) * 1


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    graph = Net()
    graph.compile(sl.zeros(2, 4))
    path = tmp_path_factory.mktemp("stages") / "net"
    sl.save(graph, path)
    return path


def run(*arguments):
    return subprocess.run([find_tool("sluice-compile"), *map(str, arguments)], capture_output=True, text=True)


def text(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_stage_shows_what_is_there_then(bundle):
    traced = text(bundle, "--to", "graph")
    assert traced == (bundle / "graph.txt").read_text()
    assert "relu" in traced and "mul" in traced
    passed = text(bundle, "--to", "ir")
    assert "activation = \"relu\"" in passed and "mul" not in passed  # fused, and simplified away
    assert "stream" not in passed
    assert "stream \"compute\"" in text(bundle, "--to", "placement")
    assert text(bundle, "--to", "snapshots") == text(bundle, "--compile-to", "lowered")
    assert "net" in text(bundle, "--to", "mem").splitlines()[0]


def test_it_stops_before_what_comes_later(bundle):
    assert "relu(" in text(bundle, "--to", "partition")
    assert "relu(" not in text(bundle, "--to", "simplify")  # which runs twice: after the last time
    assert run(bundle, "--memory-budget", 10).returncode == 2
    assert text(bundle, "--to", "ir", "--memory-budget", 10) == text(bundle, "--to", "ir")
    assert "mul" in text(bundle, "--to", "ir", "--without", "simplify")


def test_the_plan_is_that_of_the_bundle(bundle, tmp_path):
    plan = json.loads((bundle / "plan.json").read_text())
    out = tmp_path / "plan.json"
    assert text(bundle, "-o", out) == ""
    made = json.loads(out.read_text())
    assert made["kernels"] == plan["kernels"] and made["actors"] == plan["actors"]
    assert text(bundle, "--to", "plan") == out.read_text()
    shown = subprocess.run([find_tool("plan-viz"), "mem", out], capture_output=True, text=True, check=True).stdout
    assert text(bundle, "--to", "mem") == shown
    assert "mul(" in text(bundle / "graph.txt", "--to", "ir")  # the weights are unknown, and so the factor


@pytest.mark.parametrize("arguments, message", [
    (["/nowhere"], "/nowhere"),
    (["{}", "--to", "machine_code"], "--to: machine_code not in {graph,ir,lowered,plan,mem,"),
    (["{}", "--memory-budget", "10"], "over its memory budget"),
    (["{}", "--device", "tpu:0"], "tpu"),
    (["{}", "-o", "/nowhere/plan.json"], "/nowhere/plan.json: cannot be written"),
])
def test_what_cannot_be_done_is_one_error(bundle, arguments, message):
    done = run(*(a.format(bundle) for a in arguments))
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""


def normed():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), nn.Tanh())


MADE = {**NETS, "normed": (normed, lambda: sl.randn(2, 16))}
KEPT = {f"{path.parts[-3]} {path.parts[-2]}": path.parent for path in sorted(pathlib.Path(__file__).parents[1].glob("compat/*/*/graph.txt"))}


@pytest.fixture(scope="module", params=[f"{kind}{how}" for kind in MADE for how in ("", " trained", " frozen")] + list(KEPT))
def any_bundle(request, tmp_path_factory):
    if request.param in KEPT:
        return KEPT[request.param]
    kind, _, how = request.param.partition(" ")
    sl.manual_seed(1)
    x = MADE[kind][1]()
    net = MADE[kind][0]().train(how != "frozen")
    net(x)  # lazy layers
    graph = Step(net, train=how == "trained")
    graph.compile(x)
    path = tmp_path_factory.mktemp("any") / request.param.replace(" ", "_")
    sl.save(graph, path, freeze=how == "frozen")
    return path


def test_every_graph_prints_and_parses_back(any_bundle, tmp_path):  # MF-01
    """As it was traced, and as passes leave it."""
    shown = subprocess.run([find_tool("plan-viz"), "ir", any_bundle], capture_output=True, text=True, check=True).stdout
    assert shown == (any_bundle / "graph.txt").read_text()
    for printed in (shown, text(any_bundle, "--to", "ir")):
        file = tmp_path / "graph.txt"
        file.write_text(printed)
        assert text(file, "--to", "graph") == printed


def of_constants_alone(graph):
    """The nodes of a graph's text that need no input and no variable."""
    known, found = set(), []
    for line in graph.splitlines():
        if match := re.match(r"  (%\d+(?:, %\d+)*) = (\w+)\(?(.*)", line):
            results, op, rest = match[1].split(", "), match[2], match[3]
            operands = re.findall(r"%\d+", rest.partition(")")[0]) if op not in ("input", "variable", "constant") else []
            if op == "constant":
                known |= set(results)
            elif op not in ("input", "variable") and set(operands) <= known:
                known |= set(results)
                found.append(line)
    return found


def test_nothing_that_a_plan_computes_depends_on_constants_alone(any_bundle):  # MF-11
    assert of_constants_alone(text(any_bundle, "--to", "ir")) == []
    if any_bundle.name == "normed_frozen":  # its weight is computed of two others
        assert of_constants_alone(text(any_bundle, "--to", "ir", "--without", "fold_constants")) != []


def test_help_teaches(bundle):
    assert "--to lowered" in text("--help") and "fold_constants" in text("--help")
