"""One op, several kernels: plan-viz says which one computes a kernel of a plan, and why; copies stand where devices meet (STP-01)."""

import json
import os
import subprocess

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


def plan_viz(*arguments, **env):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Net(nn.Graph):
    """A convolution on the host, another one on the pretend device."""

    def __init__(self):
        super().__init__(name="net")
        self.here, self.there = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def build(self, x):
        y = self.here(x)
        with sl.device("sim:0"):
            z = self.there(y)
        return z.sum()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("implementations") / "plan.json"
    net = Net()
    net(sl.ones(1, 16, 12, 12))
    net.save_plan(path)
    return path


def placed(plan):
    return {kernel["name"]: kernel for kernel in json.loads(plan_viz("devices", plan, "--json"))["kernels"]}


def facts(plan, name, **env):
    return dict(json.loads(plan_viz("why", plan, name, "--json", **env))[0]["facts"])


def convolution(plan, device):
    return next(name for name, kernel in placed(plan).items() if "conv" in kernel["op"] and kernel["device"] == device)


@pytest.mark.parametrize("level, has, lacks", [("avx2", ("AVX2", "avx2"), ("avx512", "AVX3")), ("avx512", ("AVX3", "avx512_core"), ())])
def test_the_kernel_of_each_instruction_set_is_told_with_the_reason(plan, level, has, lacks):
    """One plan, and what it would be computed by here, on a processor that has so much."""
    told = facts(plan, convolution(plan, "cpu:0"), SLUICE_MAX_ISA=level)
    instructions, implementation = told["instructions"], told["computed by"]
    if level == "avx512" and "AVX3" not in instructions:
        assert "AVX2" in instructions, "a processor without AVX-512 takes what it has"
        return
    assert f"SLUICE_MAX_ISA={level} allows" in instructions
    for name in has:
        assert name in instructions + implementation, (told, name)
    for name in lacks:
        assert name not in implementation and name not in instructions.split(", loops")[0]
    assert "kernels here" in told and "cpu, sim" in told["kernels here"]


def test_of_the_best_the_reason_is_the_processor(plan):
    env = {name: value for name, value in os.environ.items() if name != "SLUICE_MAX_ISA"}
    done = subprocess.run([find_tool("plan-viz"), "why", plan, convolution(plan, "cpu:0")], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and "the best that the processor has" in done.stdout, done.stdout + done.stderr


def test_on_another_device_it_is_that_devices_kernel_and_copies_are_inserted(plan):
    there = convolution(plan, "sim:0")
    told = facts(plan, there)
    assert told["device"] == "sim:0: named in the program" and "cpu, sim" in told["kernels here"]
    assert "instructions" not in told, "those of the host say nothing of it"
    copies = {name: kernel for name, kernel in placed(plan).items() if kernel["op"] == "copy" and kernel["device"] == "sim:0"}
    assert len(copies) == 2 and all(kernel["why"] == "moves a value to where it is read" for kernel in copies.values())
    streams = json.loads(plan_viz("json", plan))["streams"]
    assert {"copy_in", "copy_out"} <= {stream["kind"] for stream in streams if stream["device"] == "sim:0"}
    for name in copies:
        assert "moves a value to where it is read" in facts(plan, name)["device"]
