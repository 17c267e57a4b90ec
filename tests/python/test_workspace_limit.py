"""Workspaces of kernels within a limit: by other kernels, or not at all."""

import json
import re
import subprocess

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool

MIB = 1 << 20


class Net(nn.Graph):
    """A graph that needs workspaces: a convolution whose operands lie otherwise than its kernel likes, with gradients; a
    product of a matrix that repeats."""

    def __init__(self, mbyte=None):
        super().__init__(name="net")
        sl.manual_seed(0)
        self.conv = nn.Conv2d(16, 64, 3, padding=1)
        if mbyte is not None:
            self.config.set_cudnn_buf_limit_mbyte(mbyte)

    def build(self, x, a, b):
        y = self.conv(x)
        y.sum().backward()
        return y.mean(), self.conv.weight.grad, a.expand(8, 160, 256) @ b


def inputs():
    rng = np.random.default_rng(0)
    return [sl.tensor(rng.standard_normal(s).astype(np.float32)) for s in [(8, 16, 64, 64), (1, 160, 256), (8, 256, 64)]]


def workspaces(graph):
    plan = graph.plan
    return {k["op"]: plan["buffers"][k["workspace"]]["bytes"] for k in plan["kernels"] if k["workspace"] >= 0}


def test_workspaces_keep_the_limit(tmp_path):  # CFG-12
    usual, limited = Net(), Net(mbyte=1)
    expected, results = usual(*inputs()), limited(*inputs())
    assert max(workspaces(usual).values()) > MIB
    assert max(workspaces(limited).values(), default=0) <= MIB
    for ours, theirs in zip(results, expected):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-3)
    for graph, fits in (usual, False), (limited, True):
        graph.save_plan(tmp_path / "plan.json")
        text = subprocess.check_output([find_tool("plan-viz"), "mem", tmp_path / "plan.json", "--json"])
        assert (json.loads(text)["largest_workspace"] <= MIB) == fits
        assert json.loads(text)["largest_workspace"] == max(workspaces(graph).values(), default=0)


def test_only_kernels_that_need_more_are_others():
    usual, limited = Net(), Net(mbyte=1)
    for graph in usual, limited:
        graph.compile(*inputs())
    large = {op for op, bytes in workspaces(usual).items() if bytes > MIB}
    changed = {k["op"] for k in limited.plan["kernels"] if k["attrs"].get("workspace_limit") is not None}
    assert changed == large and large
    assert limited.plan["options"]["workspace_limit"] == MIB


def test_a_large_limit_and_none_change_nothing():
    plans = []
    for mbyte in None, 0, 512:
        graph = Net(mbyte=mbyte)
        graph.compile(*inputs())
        plans.append({k: v for k, v in graph.plan.items() if k != "options"})
    assert plans[0] == plans[1] == plans[2]


def test_a_limited_plan_survives_its_bundle(tmp_path):
    graph = Net(mbyte=1)
    expected = graph(*inputs())
    sl.save(graph, tmp_path / "bundle")
    again = sl.load_graph(tmp_path / "bundle")(*inputs())
    for ours, theirs in zip(again, expected):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


class Wide(nn.Graph):
    """A kernel that has one way to compute: it widens its weights."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1 << 19, dtype=sl.bfloat16)
        self.config.set_cudnn_buf_limit_mbyte(1)

    def build(self, x):
        return self.norm(x)


def test_an_op_that_does_not_fit_is_refused_with_its_bytes():
    graph, x = Wide(), sl.ones(1, 1 << 19, dtype=sl.bfloat16)
    with pytest.raises(sl.errors.Error, match=r"layer_norm: workspace: \d+ bytes at least, for cpu:0; must be at most 1048576") as error:
        graph(x)
    assert "test_workspace_limit.py" in str(error.value)
    needed = int(re.search(r"workspace: (\d+)", str(error.value))[1])
    assert error.value.fix == {"option": "workspace_limit", "value": needed}
    graph.config.apply_fix(error.value.fix)
    assert graph(x).shape == x.shape
    assert max(workspaces(graph).values()) == needed


def test_a_negative_limit_is_an_error():
    with pytest.raises(ValueError, match="set_cudnn_buf_limit_mbyte: got -1; must be at least 0"):
        Net(mbyte=-1)
