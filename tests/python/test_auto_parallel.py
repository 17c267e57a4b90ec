"""Layouts chosen by a search for the cheapest, beside those chosen node by node."""

import json
import subprocess

import numpy as np
import pytest
import sluice as sl
from sluice import nn, parallel
from sluice._base.tools import find_tool

S, B = sl.sbp.split, sl.sbp.broadcast
FOUR = sl.placement("sim", [0, 1, 2, 3])


class Train(nn.Graph):
    def __init__(self, net, search=False, free=False, **weights):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.01))
        if search:
            self.config.enable_auto_parallel()
            self.config.enable_auto_parallel_ignore_user_sbp_config(free)
        for name, value in weights.items():
            getattr(self.config, f"set_auto_parallel_{name}")(value)

    def build(self, x, y):
        loss = (self.net(x) - y).square().mean()
        loss.backward()
        return loss


def net_of(*widths):
    sl.manual_seed(0)
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batch(rows, first, last, way=None, mesh=FOUR):
    rng = np.random.default_rng(1)
    made = [sl.tensor(rng.normal(size=(rows, n)).astype("float32")) for n in (first, last)]
    return [t.to_global(mesh, S(0) if way is None else way) for t in made]


def shapes(graph, name):
    """Of a variable, the shapes on the devices."""
    return [tuple(v["shape"]) for v in json.loads(graph._call.session.plan_json())["variables"] if v["name"].startswith(f"{name}@")]


def moved(graph):
    """Bytes between the devices of meshes."""
    return sum(bytes for kind, *_, bytes in graph._call.session.conversions() if kind not in ("scatter", "broadcast"))


def view(path, *options):
    done = subprocess.run([find_tool("plan-viz"), "sbp", str(path), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in options else done.stdout


@pytest.mark.parametrize("way", [S(0), B], ids=str)
def test_a_huge_layer_is_split_and_a_small_one_copied(way):  # CFG-22
    huge = Train(net_of(512, 4096).to_global(FOUR, B), search=True, free=True)
    loss = huge(*batch(8, 512, 4096, way))
    assert shapes(huge, "net.0.weight")[0] in ((1024, 512), (4096, 128))
    small = Train(net_of(32, 32).to_global(FOUR, B), search=True, free=True)
    small(*batch(8192, 32, 32, way))
    assert shapes(small, "net.0.weight") == [(32, 32)] * 4
    linear = [k for k in json.loads(small._call.session.plan_json())["kernels"] if k["op"] == "linear"]
    assert [k["inputs"][0]["shape"] for k in linear] == [[2048, 32]] * 4  # each device has a part of the batch
    table = parallel.layout_costs(huge)
    print(table)
    assert table.splitlines()[0].split() == ["value", "type", "sbp", "bytes", "conversions", "flops", "cost"]
    assert "node by node" in table and "the best of" in table and "net.0.weight" in table
    (row,) = [line for line in table.splitlines() if "net.0.weight" in line]
    others = table.splitlines()[table.splitlines().index(row):]
    assert any("*" in line and "S(" in line for line in others)
    alone = Train(net_of(512, 4096))
    assert loss.item() == pytest.approx(alone(*[t.to_local() for t in batch(8, 512, 4096, way)]).item(), rel=1e-5)


def test_what_the_user_says_stays_unless_it_is_free():
    def weight(free):
        net = net_of(256, 1024).to_global(FOUR, B)
        graph = Train(net, search=True, free=free)
        graph(*batch(8, 256, 1024))
        return shapes(graph, "net.0.weight")[0], net[0].weight

    assert weight(False)[0] == (1024, 256) != weight(True)[0]
    split, parameter = weight(True)
    assert parameter.shape == (1024, 256) and np.isfinite(parameter.detach().numpy()).all()  # the program sees it whole


CASES = {"wide": ((64, 1024, 64), 16), "long": ((32, 32, 32, 32), 4096), "mixed": ((64, 512, 64, 2048, 16), 64), "one": ((128, 128), 32)}


class Laid(Train):
    """Says how the batch lies, and nothing of the parameters: they lie where it is cheapest."""

    def build(self, x, y):
        return super().build(x.to_global(FOUR, S(0)), y.to_global(FOUR, S(0)))


@pytest.mark.parametrize("case", CASES)
def test_both_policies_compute_the_same_and_the_search_moves_no_more(case, tmp_path):  # GT-15
    widths, rows = CASES[case]
    losses, bytes, told = {}, {}, {}
    for policy in ("greedy", "cost"):
        graph = Laid(net_of(*widths), search=policy == "cost", computation_cost_ratio=0, wait_time=0)
        x, y = (t.to_local() for t in batch(rows, widths[0], widths[-1]))
        losses[policy] = [graph(x, y).item() for _ in range(3)]
        bytes[policy] = moved(graph)
        sl.save(graph, tmp_path / policy)
        told[policy] = view(tmp_path / policy, "--json")
    assert losses["cost"] == pytest.approx(losses["greedy"], rel=1e-5)
    assert bytes["cost"] <= bytes["greedy"] and (bytes["cost"] < bytes["greedy"] or case in ("long", "one"))
    assert told["greedy"] == {**told["cost"], "name": told["greedy"]["name"]}  # of the graph, whatever policy its plan has
    assert (told["cost"]["greedy"]["bytes"], told["cost"]["cost"]["bytes"]) == (bytes["greedy"], bytes["cost"])
    candidates = told["cost"]["candidates"]
    weights = {c["value"] for c in candidates if c["value"].endswith("weight")}
    assert weights == {f"net.{2 * i}.weight" for i in range(len(widths) - 1)}
    for value in weights:  # each way that a weight may lie, with its bytes; the chosen one is the least
        ways = {c["sbp"]: c["cost"]["bytes"] for c in candidates if c["value"] == value}
        assert ways.keys() == {"B", "S(0)", "S(1)"}
        (chosen,) = [c for c in candidates if c["value"] == value and c["chosen"]]
        assert chosen["cost"]["bytes"] == min(ways.values()) == bytes["cost"]
    text = view(tmp_path / "greedy", "--width", "120")
    assert text.startswith("graph 'Laid") and "greedy: " in text and "cost  : " in text and "net.0.weight" in text


def test_layers_that_repeat_are_laid_alike_and_few_plans_are_tried(tmp_path):
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)) for _ in range(12)])

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    def compiled():
        graph = Train(Blocks().to_global(FOUR, B), search=True, free=True)
        graph.compile(*batch(16, 64, 64))
        return graph

    graph = compiled()
    for name in ("0.weight", "2.weight"):
        assert len({tuple(shapes(graph, f"net.layers.{i}.{name}")) for i in range(12)}) == 1
    up, down = (shapes(graph, f"net.layers.3.{name}")[0] for name in ("0.weight", "2.weight"))
    assert (up, down) == ((256, 64), (64, 256))  # as Megatron has it: columns, then rows
    greedy, found, tried, candidates = graph._call.session.layout_search()
    assert found[0] < greedy[0] / 3 and tried < 400
    assert compiled()._call.session.layout_search() == (greedy, found, tried, candidates)


def test_meshes_of_several_axes_are_searched_axis_by_axis():
    mesh = sl.placement("sim", [[0, 1], [2, 3]], names=("dp", "tp"))
    net = net_of(64, 2048, 64).to_global(mesh, (B, B))
    graph = Train(net, search=True, free=True)
    x, y = batch(16, 64, 64, (S(0), B), mesh)
    loss = graph(x, y)
    assert shapes(graph, "net.0.weight")[0] != (2048, 64)
    assert loss.item() == pytest.approx(Train(net_of(64, 2048, 64))(x.to_local(), y.to_local()).item(), rel=1e-5)
    greedy, found, _, _ = graph._call.session.layout_search()
    assert found[0] < greedy[0]


def test_weights_of_the_search_and_what_has_no_meaning():
    config = nn.Graph().config
    for name in ("set_auto_parallel_computation_cost_ratio", "set_auto_parallel_wait_time"):
        for wrong in (-1, float("nan"), "much", True):
            with pytest.raises(ValueError, match=f"{name}: got .*; must be a finite number, and not negative"):
                getattr(config, name)(wrong)
    with pytest.raises(NotImplementedError, match="enable_auto_parallel_trunk_algo: .*set_auto_parallel_wait_time"):
        config.enable_auto_parallel_trunk_algo()
    with pytest.raises(NotImplementedError, match="enable_auto_parallel_sbp_collector: .*leave the option out"):
        config.enable_auto_parallel_sbp_collector(False)
    config.enable_auto_parallel_trunk_algo(False)
    config.enable_auto_parallel_sbp_collector()
    config.enable_auto_parallel(False)
    graph = Train(net_of(8, 8).to_global(FOUR, B))
    graph(*batch(8, 8, 8))
    with pytest.raises(RuntimeError, match="compiled without a search; call graph.config.enable_auto_parallel"):
        parallel.layout_costs(graph)


def test_plan_viz_refuses_what_lies_on_one_device(tmp_path):
    graph = Train(net_of(8, 8))
    graph(sl.ones(2, 8), sl.ones(2, 8))
    sl.save(graph, tmp_path / "one")
    done = subprocess.run([find_tool("plan-viz"), "sbp", str(tmp_path / "one")], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "lies on one device" in done.stderr and done.stderr.count("\n") == 1
