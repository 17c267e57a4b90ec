"""Mixtures of experts: a loop over the experts in torch says what is right; places, overflow, meshes, and what is refused."""

import math

import numpy as np
import pytest
import torch

import sluice as sl
from expert_models import HIDDEN, TOKENS, WIDE, S, at_once, drawn, in_graph, made, names
from sluice import nn, parallel

ACT = {"gelu": torch.nn.functional.gelu, "relu": torch.relu, "silu": torch.nn.functional.silu}


def kept(chosen, experts, places):
    """Which choices (tokens, k) of a group find a place: first choices before second ones, in the order of tokens."""
    taken, found = [0] * experts, np.zeros(chosen.shape, bool)
    for j in range(chosen.shape[1]):
        for t, e in enumerate(chosen[:, j]):
            found[t, j] = taken[e] < places
            taken[e] += found[t, j]
    return found


def looped(layer, groups):
    """Computes the same with torch, expert by expert over all tokens; gives the values, and which choices found a place."""
    x, factors = (torch.tensor(part) for part in drawn(groups))
    weights = {name: torch.tensor(p.detach().numpy()).requires_grad_() for name, p in layer.named_parameters()}
    x.requires_grad_()
    experts, k, cf = layer.num_experts, layer.top_k, layer.capacity_factor
    places = TOKENS if cf is None else min(TOKENS, math.ceil(k * TOKENS * cf / experts))
    shares = (x @ weights["gate.weight"].T).float().softmax(-1)
    chance, chosen = shares.topk(k, -1)
    if layer.normalize:
        chance = chance / chance.sum(-1, keepdim=True)
    found = torch.tensor(np.stack([kept(group, experts, places) for group in chosen.numpy()]))
    y = torch.zeros_like(x)
    for e in range(experts):
        h = ACT[layer.activation](x @ weights["w1"][e].T)
        h = h * (x @ weights["w3"][e].T) if layer.gated else h
        y = y + ((chosen == e) & found).mul(chance).sum(-1, keepdim=True) * (h @ weights["w2"][e].T)
    counts = torch.stack([(chosen == e).sum((1, 2)) for e in range(experts)], 1) / (k * TOKENS)
    balance = (experts * (counts * shares.mean(1)).sum(1)).mean()
    ((y * factors).sum() + 3 * balance).backward()
    values = (y.detach(), balance.detach(), x.grad, *[w.grad for w in weights.values()])
    return {name: value.numpy() for name, value in zip(names(layer), values)}, found.numpy()


KINDS = [dict(), dict(gated=True, activation="silu"), dict(top_k=1, activation="relu", capacity_factor=1.0),
         dict(top_k=3, experts=5, capacity_factor=0.6, gated=True), dict(capacity_factor=0.5), dict(top_k=2, normalize=False)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_a_loop_over_its_experts(kind):
    expected, found = looped(made(**kind), 3)
    assert found.all() == (kind.get("capacity_factor") is None)  # the others do overflow
    for name, value in at_once(3, **kind).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-6, atol=2e-6, err_msg=name)  # probabilities are float32
    in_a_graph, _ = in_graph(3, **kind)
    for name, value in in_a_graph.items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-6, atol=2e-6, err_msg=name)


def test_a_choice_without_a_place_counts_as_nothing():
    """Two places for 7 tokens that all want one expert: the first two get it, and the others keep their second choice or get 0."""
    layer = made(top_k=1, capacity_factor=1.0)
    assert layer.capacity(TOKENS) == 2 and layer.capacity(0) == 0 and made(capacity_factor=100.0).capacity(TOKENS) == TOKENS
    with sl.no_grad():
        layer.gate.weight.zero_()
        layer.gate.weight[2] = 1.0
    x = sl.tensor(np.abs(drawn(2)[0]))
    y, loss = layer(x)
    rows = np.abs(y.detach().numpy()).sum(-1) > 0
    np.testing.assert_array_equal(rows, [[True, True, *[False] * 5]] * 2)
    assert loss.item() == pytest.approx(4 * sl.softmax(layer.gate(x), -1)[..., 2].mean().item(), rel=1e-5)
    with sl.no_grad():
        layer.gate.weight.zero_()
    assert layer(x)[1].item() == pytest.approx(1.0)  # all are likely alike


def test_one_group_may_have_two_dims():
    layer, x = made(), sl.tensor(drawn(1)[0])
    (block, loss), (lines, other) = layer(x), layer(x[0])
    assert lines.shape == (TOKENS, HIDDEN) and np.array_equal(lines.detach().numpy(), block[0].detach().numpy()) and loss.item() == other.item()


MESHES = [(dict(ep=2), "ep", 4, 4), (dict(ep=4), "ep", 4, 4), (dict(dp=2, ep=2), "ep", 4, 4), (dict(dp=4), "dp", 4, 8),
          (dict(dp=2, tp=2), "tp", 4, 4), (dict(ep=4), "ep", 5, 6)]  # the last has uneven groups and experts


@pytest.mark.parametrize("axes, ep, groups, experts", MESHES)
@pytest.mark.parametrize("kind", [dict(gated=True), dict(top_k=1, capacity_factor=1.0)])
def test_experts_on_a_mesh_compute_the_bits_of_one_device(axes, ep, groups, experts, kind):
    """Results, the loss and gradients of tokens; those of experts too where no other axis adds up. The router is whole everywhere and its
    gradient is a sum over devices, which has another order."""
    one, _ = in_graph(groups, experts=experts, **kind)
    several, graph = in_graph(groups, axes, ep=ep, experts=experts, **kind)
    whole = {"y", "loss", "x.grad"} | ({"w1.grad", "w2.grad", "w3.grad"} if len(axes) == 1 else set())
    for name in one:
        np.testing.assert_allclose(several[name], one[name], rtol=1e-9, atol=1e-12, err_msg=name)
        assert name not in whole or several[name].tobytes() == one[name].tobytes(), name


def test_tokens_travel_to_their_experts_and_back_by_all_to_all():
    """Twice on the way forward and twice on the way back, and nothing else is as large."""
    groups, experts = 4, 4
    _, graph = in_graph(groups, dict(ep=4), experts=experts, capacity_factor=1.0)
    places = math.ceil(2 * TOKENS / experts)
    block = groups * experts * places * HIDDEN * 8
    found = graph._call.session.conversions()
    exchanges = [(old.split(" on")[0], new.split(" on")[0], moved) for kind, _, old, new, moved in found if kind == "all_to_all"]
    assert sorted(exchanges) == sorted([("S(0)", "S(1)", block * 3 // 4), ("S(1)", "S(0)", block * 3 // 4)] * 2), found


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sl.manual_seed(3)
        self.head, self.moe = nn.Linear(HIDDEN, HIDDEN), parallel.MoE(HIDDEN, WIDE, 4)

    def forward(self, x):
        y, loss = self.moe(self.head(x))
        return x + y, loss


class Train(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=0.03))

    def build(self, x, y):
        found, balance = self.net(x)
        loss = (found - y).square().mean() + 0.01 * balance
        loss.backward()
        return loss


def test_plans_lay_experts_and_training_goes_on():
    losses = []
    for axes, options in ((None, {}), (dict(dp=2, ep=2), dict(ep="ep", zero=2)), (dict(dp=4), dict(ep="dp")), (dict(dp=2, tp=2), {})):
        net = Model().double()
        x, y = (sl.tensor(part) for part in drawn(4))
        if axes is not None:
            mesh = parallel.mesh("sim", **axes)
            strategy = parallel.parallelize(net, mesh, {"moe": "experts"}, **options)
            assert S(0) in strategy["moe.w1"] and S(0) not in strategy["moe.gate.weight"] and S(0) not in strategy["head.weight"]
            x, y = (t.to_global(mesh, {"dp": S(0)}) for t in (x, y))
        graph = Train(net)
        losses.append([graph(x, y).item() for _ in range(5)])
    for found in losses:
        assert found[-1] < found[0]
        np.testing.assert_allclose(found, losses[0], rtol=1e-6)


@pytest.mark.parametrize("make, text", [
    (lambda: parallel.MoE(0, 4, 4), "MoE: hidden_size is 0; must be at least 1"),
    (lambda: parallel.MoE(4, 4, 0), "MoE: num_experts is 0; must be at least 1"),
    (lambda: parallel.MoE(4, 4, 4, 5), "MoE: top_k is 5; must be from 1 to num_experts, which is 4"),
    (lambda: parallel.MoE(4, 4, 4, capacity_factor=0.0), "MoE: capacity_factor is 0.0; must be above 0, or None for as many places as tokens"),
    (lambda: parallel.MoE(4, 4, 4, activation="tanh"), "MoE: activation is 'tanh'; must be one of gelu, relu, silu"),
    (lambda: parallel.MoE(4, 4, 4, ep_size=2), "MoE: ep_size is 2; must be 1, or the number of ranks: the job has 1 process"),
    (lambda: parallel.MoE(4, 4, 4, ep_size=2, mesh=parallel.mesh("sim", ep=2)), "MoE: mesh and ep_size=2 are given; must be one"),
    (lambda: parallel.MoE(4, 4, 4, mesh=parallel.mesh("sim", dp=2)), "placement: sim:0-1 (dp=2) has no axis 'ep'; its axes: 'dp'"),
    (lambda: parallel.MoE(4, 4, 2, mesh=parallel.mesh("sim", ep=4)), "MoE: 2 experts for the 4 devices of axis 'ep'; each must get one"),
    (lambda: made()(sl.ones(2, 3, 5)), "MoE: x is (2, 3, 5); must be (groups, tokens, 6), or (tokens, 6)"),
    (lambda: made()(sl.ones(2, 0, 6).double()), "MoE: x is (2, 0, 6); must have tokens"),
    (lambda: in_graph(2, dict(ep=4), split=False), "MoE: x is (2, 7, 6), of 2 groups for 4 devices of sim:0-3 (ep=4); each must get one"),
    (lambda: parallel.parallelize(made(experts=2), parallel.mesh("sim", ep=4), {"": "experts"}, ep="ep"),
     "parallelize: '': 2 experts for the 4 devices of axis 'ep'; each must get one"),
    (lambda: parallel.parallelize(nn.Sequential(nn.Linear(4, 4)), parallel.mesh("sim", dp=2, tp=2), {"0": "experts"}),
     "parallelize: '0' is to be 'experts', and is a Linear; must be a sluice.parallel.MoE with ep_size=1"),
    (lambda: parallel.parallelize(made(), parallel.mesh("sim", dp=2), {"": "experts"}, ep="ep"),
     "placement: sim:0-1 (dp=2) has no axis 'ep'; its axes: 'dp'"),
])
def test_bad_layers_are_named(make, text):
    with pytest.raises(Exception) as caught:
        make()
    assert isinstance(caught.value, ValueError) and text in str(caught.value), caught.value


class Other(nn.Module):
    """A block of experts of a kind that is not known."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 2, bias=False), nn.ModuleList([nn.Linear(4, 4)] * 2)


def test_blocks_of_other_kinds_are_refused():
    net = nn.Sequential(Other())
    with pytest.raises(ValueError) as caught:
        parallel.convert_experts(net)
    assert str(caught.value) == ("convert_experts: the model has Other; must have blocks of MixtralSparseMoeBlock, Qwen3MoeSparseMoeBlock, "
                                 "OlmoeSparseMoeBlock")
    assert type(net[0]) is Other
