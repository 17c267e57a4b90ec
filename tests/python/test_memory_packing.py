"""How buffers are packed: quickly, by every greedy order, by a search."""

import json
import re

import numpy as np
import pytest

import sluice as sl
from sluice import info, nn


class Branches(nn.Module):
    """Values of many sizes and lives, which greedy orders pack with gaps."""

    def __init__(self, seed=0):
        super().__init__()
        self.steps = []
        random = np.random.default_rng(seed)
        alive = 1
        for _ in range(60):
            drop = alive > 4 and random.random() < 0.6
            self.steps.append((int(random.integers(alive)), int(random.integers(8, 400)), int(random.integers(alive)) if drop else None))
            alive += not drop
        self.weight = nn.Parameter(sl.ones(400))

    def forward(self, x):
        alive = [x]
        for source, width, drop in self.steps:
            alive.append((alive[source].sum(1, keepdim=True) * self.weight[:width]).cumsum(1))
            if drop is not None:
                del alive[drop]
        return sum(value.mean() for value in alive)


class Net(nn.Graph):
    def __init__(self, model, configure):
        super().__init__()
        self.model = model
        configure(self.config)

    def build(self, x):
        return self.model(x)


WAYS = {
    "quick": lambda c: None,
    "every": lambda c: c.enable_choose_best_memory_allocation(),
    "search": lambda c: c.enable_compress_memory(),
    "quick again": lambda c: (c.enable_compress_memory(), c.enable_compress_memory(False)),
}


def arena_of(graph, tmp_path):
    """Bytes of the largest arena that is packed, and the most that are alive at once."""
    graph.save_plan(tmp_path / "plan.json")
    arenas = json.loads((tmp_path / "plan.json").read_text())["arenas"]
    return max((a["bytes"], a["lower_bound"]) for a in arenas)


@pytest.mark.parametrize("seed", [1, 7])
def test_what_is_searched_is_smaller_and_computes_the_same(seed, tmp_path):  # CFG-20
    sl.manual_seed(0)
    model = Branches(seed)
    x = sl.randn(64, 16)
    expected = model(x).detach().numpy()
    arenas = {}
    for name, configure in WAYS.items():
        graph = Net(model, configure)
        np.testing.assert_allclose(graph(x).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
        arenas[name] = arena_of(graph, tmp_path)
    print("\npacking: " + ", ".join(f"{name} {size / least:.3f}" for name, (size, least) in arenas.items()), "of the lower bound")
    assert arenas["search"][0] < arenas["every"][0] <= arenas["quick"][0] == arenas["quick again"][0]
    assert arenas["search"][0] <= 1.01 * arenas["search"][1]


def test_the_log_lists_what_every_order_came_to(capfd):  # CFG-21
    before = info.log_spec()
    sl.set_log("warn,compiler=debug")
    try:
        graph = Net(Branches(), WAYS["every"])
        graph(sl.randn(64, 16))
    finally:
        info.set_log(before)
    text = capfd.readouterr().err
    lines = [line for line in text.splitlines() if "first fit by area" in line]
    assert lines, text
    tried = {way: int(size) for way, size in re.findall(r"; ([a-z ]+): (\d+) bytes", lines[0])}
    assert len(tried) == 7
    taken = int(re.search(r"arena .*?: (\d+) bytes", lines[0])[1])
    assert taken == min(tried.values())


def test_a_way_that_is_none_is_refused():
    graph = Net(nn.Linear(4, 4), lambda c: c._set("packing", "tight"))
    with pytest.raises(ValueError, match='packing: "tight"; must be quick, every or search'):
        graph(sl.randn(2, 4))
