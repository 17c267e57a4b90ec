"""16-bit copies of parameters that updates write: OneFlow's enable_fused_model_update_cast (CFG-08)."""

import re

import numpy as np
import pytest

import sluice as sl
from sluice import nn

OPTIMIZERS = {
    "SGD": lambda p: sl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: sl.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: sl.optim.AdamW(p, lr=0.01),
}


class Train(nn.Graph):
    def __init__(self, copies, optimizer="SGD", dtype=sl.bfloat16, batches=1, scaled=False):
        super().__init__()
        sl.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        self.add_optimizer(OPTIMIZERS[optimizer](self.net.parameters()))
        self.config.enable_amp(dtype=dtype)
        self.config.enable_fused_model_update_cast(copies)
        self.config.allow_fuse_model_update_ops(scaled)
        if batches > 1:
            self.config.set_gradient_accumulation_steps(batches)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def batch(step):
    random = np.random.default_rng(step)
    return sl.from_numpy(random.standard_normal((16, 8)).astype(np.float32)), sl.from_numpy(random.integers(0, 4, 16))


def casts_of_weights(graph):
    """Kernels of the plan that cast a parameter."""
    plan = graph.plan
    return [k["name"] for k in plan["kernels"] if k["op"] == "cast" and k["inputs"][0]["base"] == "variable"]


def run(graph, steps):
    losses = [graph(*batch(step)) for step in steps]
    return [loss.tolist() for loss in losses], [p.detach().numpy().tobytes() for p in graph.net.parameters()]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_step_casts_a_parameter(optimizer, scaled):  # CFG-08
    graph, plain = Train(True, optimizer, scaled=scaled), Train(False, optimizer, scaled=scaled)
    assert run(graph, range(5)) == run(plain, range(5))
    assert len(casts_of_weights(plain)) == 6 and casts_of_weights(graph) == []
    updates = [k for k in graph.plan["kernels"] if k.get("role") == "update" and k["op"] == "multi_update"]
    assert [k["attrs"]["copy"] for k in updates] == ["bfloat16"] * 6
    assert graph.config.report()["enable_fused_model_update_cast"] == 6
    assert not any(k["op"] == "copy" and "bfloat16" in k["name"] for k in graph.plan["kernels"])


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("dtype", [sl.bfloat16, sl.float16])
def test_results_are_the_same_in_either_dtype_and_by_micro_batches(dtype, batches):  # CFG-08
    graph, plain = Train(True, dtype=dtype, batches=batches), Train(False, dtype=dtype, batches=batches)
    assert run(graph, range(4)) == run(plain, range(4))
    assert casts_of_weights(graph) == [] != casts_of_weights(plain)


def test_what_others_write_is_cast_before_the_next_step():
    graph, plain = Train(True), Train(False)
    state = {name: value.clone() for name, value in graph.net.state_dict().items()}
    for each in (graph, plain):
        run(each, range(3))
        each.net.load_state_dict(state)
        run(each, [3])
        with sl.no_grad():
            each.net[0].weight *= 0.5
    assert run(graph, [4, 5]) == run(plain, [4, 5])


PROGRAM = """
from test_half_copies import *
graph = Train(True)
for step in range(4):
    graph(*batch(step))
graph.synchronize()
print("written")
with sl.no_grad():
    graph.net[0].weight.zero_()
graph(*batch(4)).item()
graph(*batch(5)).item()
"""


def test_copies_are_cast_again_only_where_somebody_else_has_written(run_script):
    done = run_script(PROGRAM, SLUICE_LOG="tensor=debug", timeout=120)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "copies of parameters were out of date" in line]
    assert [re.search(r"(\d+) copies", line)[1] for line in told] == ["6", "1"], told


def test_such_a_graph_cannot_be_saved(tmp_path):
    graph = Train(True)
    run(graph, [0])
    with pytest.raises(NotImplementedError, match=r"has copies of parameters that only this process keeps up to date \(enable_fused_model_update_cast\)"):
        sl.save(graph, tmp_path / "bundle")


def test_a_graph_that_casts_no_parameter_says_so():
    graph = Train(True)
    graph.config.enable_amp(False)
    run(graph, [0])
    with pytest.warns(UserWarning, match=r"enable_fused_model_update_cast\(\) has changed nothing"):
        graph.config.report()
