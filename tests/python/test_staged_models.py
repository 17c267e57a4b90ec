"""Models that parallelize() cuts into stages along an axis pp: where layers lie, what they compute, and what is refused."""

import numpy as np
import pytest

import sluice as sl
from sluice import nn, parallel
from sluice.nn.modules._config import ModuleConfig
from staged_models import S, TP, Gpt, losses


@pytest.fixture(scope="module")
def one():
    return losses({})[0]


@pytest.mark.parametrize("sizes, options", [
    (dict(pp=2), {}), (dict(pp=2, dp=2), {}), (dict(pp=2, dp=2, tp=2), {}), (dict(pp=4, tp=2), {}), (dict(pp=2, tp=2), dict(pp_stages=[0, 1, 1, 1])),
    (dict(pp=2, dp=2), dict(zero=2, checkpoint="layers.*")), (dict(pp=2), dict(pp_chunks=2)), (dict(pp=2, tp=2), dict(pp_chunks=2)),
    (dict(pp=2), dict(pp_chunks=2, pp_stages=[0, 1, 2, 3], micro=4))])
def test_losses_are_those_of_one_device(one, sizes, options):
    found, graph, strategy = losses(sizes, **options)
    assert one[-1] < one[0]
    np.testing.assert_allclose(found, one, rtol=1e-9)
    meshes, count = sizes["pp"], sizes["pp"] * options.get("pp_chunks", 1)
    numbers = options.get("pp_stages", [i * count // 4 for i in range(4)])
    assert [strategy.stages[f"layers.{i}.up.weight"] for i in range(4)] == numbers
    assert strategy.stages["tokens.weight"] == strategy.stages["positions.weight"] == 0
    assert strategy.stages["norm.weight"] == strategy.stages["head.weight"] == count - 1
    net = graph.net
    assert [ModuleConfig.of(layer).stage_id for layer in net.layers] == numbers
    first = {number: net.layers[numbers.index(number)].up.weight.placement for number in range(meshes)}
    assert len({str(mesh) for mesh in first.values()}) == meshes  # which have the stages in turns
    assert [layer.up.weight.placement for layer in net.layers] == [first[number % meshes] for number in numbers]
    assert [line.split()[-1] for line in str(strategy).splitlines()][:2] == ["stage", "0"]


def test_plans_may_be_given():
    """By names of layers that are no list, and of a model that carries no plan."""
    net = nn.Sequential()
    net.add_module("a", nn.Linear(4, 4))
    net.add_module("b", nn.Linear(4, 4))
    strategy = parallel.parallelize(net, parallel.mesh("sim", pp=2), pp_plan=["a", "b"])
    assert strategy.stages == {"a.weight": 0, "a.bias": 0, "b.weight": 1, "b.bias": 1}


def tied():
    net = Gpt()
    net.head.weight = net.tokens.weight
    return net


@pytest.mark.parametrize("net, sizes, options, text", [
    (lambda: nn.Sequential(nn.Linear(4, 4)), dict(pp=2), {}, "parallelize: sim:0-1 (pp=2) has the axis 'pp', and the model carries no pp_plan; "
     "give one"),
    (Gpt, dict(pp=2), dict(pp_plan=["blocks"]), "parallelize: the pp_plan names 'blocks'; the model has no such module"),
    (Gpt, dict(pp=5), {}, "parallelize: the pp_plan names 4 layers for 5 stages; each must get one"),
    (Gpt, dict(pp=2), dict(pp_stages=[0, 0, 0]), "parallelize: pp_stages is [0, 0, 0]; must be 4 numbers, one for each layer, that rise from 0 to 1"),
    (Gpt, dict(pp=2), dict(pp_stages=[0, 1, 0, 1]), "parallelize: pp_stages is [0, 1, 0, 1]; must be 4 numbers"),
    (Gpt, dict(pp=2), dict(pp_stages=[0, 0, 0, 0]), "parallelize: pp_stages is [0, 0, 0, 0]; must be 4 numbers"),
    (Gpt, dict(pp=2), dict(pp_chunks=0), "parallelize: pp_chunks is 0; must be at least 1"),
    (Gpt, dict(pp=2), dict(pp_chunks=3), "parallelize: the pp_plan names 4 layers for 6 stages; each must get one"),
    (Gpt, dict(pp=2), dict(pp_chunks=2, pp_stages=[0, 0, 1, 1]), "parallelize: pp_stages is [0, 0, 1, 1]; must be 4 numbers, one for each layer, "
     "that rise from 0 to 3"),
    (Gpt, dict(dp=2), dict(pp_stages=[0, 0, 1, 1]), "placement: sim:0-1 (dp=2) has no axis 'pp'; its axes: 'dp'"),
    (Gpt, dict(pp=2, xp=2), {}, "parallelize: axis 'xp' of sim:0-1 (xp=2) is neither dp='dp' nor tp='tp'; must be one of them, or pp"),
    (tied, dict(pp=2), {}, "parallelize: 'head.weight' is tied to a parameter that lies otherwise; name both alike in the plan, and have both "
     "on one"),
])
def test_bad_pipelines_are_named_before_anything_moves(net, sizes, options, text):
    model = net()
    with pytest.raises(ValueError) as caught:
        parallel.parallelize(model, parallel.mesh("sim", **sizes), **options)
    assert str(caught.value).startswith(text), caught.value
    assert not any(p.is_global for p in model.parameters())
    assert all(ModuleConfig.of(m).stage_id is None for m in model.modules())


def test_a_strategy_of_a_pipeline_is_kept(tmp_path):
    strategy = parallel.parallelize(Gpt(), parallel.mesh("sim", pp=2, dp=2, tp=2))
    strategy.save(tmp_path / "s.json")
    again = parallel.parallelize(Gpt(), parallel.mesh("sim", pp=2, dp=1, tp=4), {}, strategy=tmp_path / "s.json")
    assert again.lies == strategy.lies and S(0) in again["layers.0.up.weight"] and set(TP.values()) == {"colwise", "rowwise"}
    assert sl.sbp.text(again["layers.3.down.weight"], 2) == "B,S(1)"
