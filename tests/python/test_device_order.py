"""Devices in order of priority: an op runs on the first that has a kernel for it, and plan-viz says which that is, and why (ORT-02)."""

import json
import os
import pathlib
import subprocess

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

TESTS = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release")).resolve() / "tests"

# The example device has the kernels that the cpu had when it was loaded, so it has none of the extension's.
PROGRAM = f"""
import sys
import sluice as sl
from sluice import nn
sl.backends.load({str(TESTS / "libsluice_example.so")!r})
sl.ones(1).to("example:0")
sl.ops.load_library({str(TESTS / "example_ops.so")!r})

class Net(nn.Graph):
    def __init__(self, *devices):
        super().__init__(name="net")
        sl.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        if devices:
            self.config.set_devices(*devices)

    def build(self, x):
        y = sl.ops.scaled_softsign(self.layer(x).exp(), 2.0)
        with sl.device("sim:0"):
            z = y.tanh()
        return z.t() @ y

graph, plain, x = Net("example:0", "cpu:0"), Net(), sl.arange(12.0).reshape(3, 4) / 10
assert graph(x).tolist() == plain(x).tolist()
graph.save_plan("plan.json")
"""

WHY = {
    "linear": ("example:0", "first of the order example:0, cpu:0"),
    "exp": ("example:0", "first of the order example:0, cpu:0"),
    "scaled_softsign": ("cpu:0", "next of the order example:0, cpu:0: no kernel on example:0"),
    "tanh": ("sim:0", "named in the program"),
    "matmul": ("example:0", "first of the order example:0, cpu:0"),
}


def plan_viz(*arguments):
    return subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def test_ops_run_on_the_first_device_that_has_a_kernel(run_script, tmp_path):  # ORT-02
    done = run_script(PROGRAM, timeout=120, SLUICE_LOG="compiler=debug")
    assert done.returncode == 0, done.stdout + done.stderr
    plan = tmp_path / "plan.json"
    told = {k["op"]: (k["device"], k["why"]) for k in json.loads(plan_viz("devices", plan, "--json"))["kernels"]}
    assert {op: told[op] for op in WHY} == WHY
    assert told["copy"][1] == "moves a value to where it is read"
    rows = [line.split() for line in plan_viz("devices", plan, "--width", 200).splitlines()]
    assert " ".join(rows[0]).startswith("plan 'net' cpu:0: ") and "example:0: " in " ".join(rows[0])
    assert rows[1] == ["kernel", "op", "device", "why"]
    assert {row[1]: row[2] for row in rows[2:] if row[1] in WHY} == {op: device for op, (device, _) in WHY.items()}
    for device, why in WHY.values():
        assert f"runs on {device}: {why}" in done.stderr
    page = tmp_path / "plan.html"
    plan_viz("html", plan, "-o", page)
    assert WHY["scaled_softsign"][1] in page.read_text() and "example:0" in page.read_text()
    assert json.loads(plan_viz("info", plan, "--json"))["config"]["devices"] == ["example:0", "cpu:0"]


def test_without_an_order_everything_runs_on_the_graphs_device(tmp_path):
    class Twice(nn.Graph):
        def build(self, x):
            return (x * 2).sin()

    graph = Twice()
    graph.config.set_device("sim:0")
    graph(sl.ones(3))
    graph.save_plan(tmp_path / "plan.json")
    computing = [k for k in json.loads(plan_viz("devices", tmp_path / "plan.json", "--json"))["kernels"] if k["op"] != "copy"]
    assert computing and {(k["device"], k["why"]) for k in computing} == {("sim:0", "the graph's device")}


def test_an_order_names_each_device_once():
    config = nn.Graph().config
    with pytest.raises(ValueError, match="^set_devices: got no devices; name them in the order in which they are to be tried"):
        config.set_devices()
    with pytest.raises(ValueError, match="^set_devices: got cpu:0 twice; name each device once"):
        config.set_devices("cpu", "sim:0", "cpu:0")


def test_a_device_that_is_not_there_is_named():
    class Twice(nn.Graph):
        def build(self, x):
            return x * 2

    graph = Twice()
    graph.config.set_devices("npu:0", "cpu:0")
    with pytest.raises(NotImplementedError, match="npu:0"):
        graph(sl.ones(3))
