"""Embeddings and cross-entropy with the vocabulary in parts, and norms on parts of the sequence: values of one device, and no buffer
that has the whole. Then what parallelize() says of checkpoints and ZeRO."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn.functional as F
from sluice import nn, parallel
from vocabulary_models import PLAN, SEQUENCE, B, D, N, Net, S, T, V, losses

GRID = sl.placement("sim", [[0, 1], [2, 3]], names=("dp", "tp"))


def largest(graph):
    """The bytes of the largest buffer of a device."""
    return max(buffer["bytes"] for buffer in graph.plan["buffers"])


@pytest.fixture(scope="module")
def one():
    return losses()


@pytest.mark.parametrize("plan, tied", [(PLAN, False), (PLAN, True), (SEQUENCE, False)])
def test_training_has_the_losses_and_weights_of_one_device(one, plan, tied):
    (expected, _, whole), (found, graph, net) = losses(tied=True) if tied else one, losses(plan, GRID, tied=tied)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for (name, a), b in zip(net.state_dict().items(), whole.state_dict().values()):
        np.testing.assert_allclose(a.to_local().numpy(), b.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    assert net.table.weight.sbp == (B, S(0)) and isinstance(net.table, parallel.Embedding)
    if not tied:  # a quarter of the logits, or half of the table, and what aligns them
        assert largest(graph) <= 8 * max(N * T * V // 4, V * D // 2) + 4096


def test_without_the_vocabulary_in_parts_some_device_has_whole_rows_of_logits():
    assert largest(losses({**PLAN, "table": "colwise"}, GRID, steps=1)[1]) >= 2 * largest(losses(PLAN, GRID, steps=1)[1])


def test_on_a_split_sequence_sums_of_rows_are_scattered():
    conversions = losses(SEQUENCE, GRID, steps=1)[1]._call.session.conversions()
    for plan, kinds in ((SEQUENCE, {"reduce_scatter"}), (PLAN, {"all_reduce"})):
        conversions = losses(plan, GRID, steps=1)[1]._call.session.conversions()
        forward = [kind for kind, module, old, new, bytes in conversions if old.startswith("S(0),P") and bytes == N * T * D * 8 * (2 if plan is PLAN
                   else 1)]
        assert forward and set(forward) == kinds, conversions


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_has_the_values_of_the_whole(reduction):
    class Loss(nn.Graph):
        def build(self, x, y):
            x.requires_grad_()
            loss = parallel.cross_entropy(x, y, mesh=GRID, ignore_index=3, reduction=reduction)
            loss.sum().backward()
            return loss, x.grad

    sl.manual_seed(1)
    x, y = (sl.randn(4, 3, 8).double() * 50), sl.randint(0, 8, (4, 3))
    y[0, 0] = 3
    loss, grad = Loss()(x.to_global(GRID, (S(0), S(2))), y.to_global(GRID, (S(0), B)))
    x = x.requires_grad_()
    expected = F.cross_entropy(x.reshape(-1, 8), y.reshape(-1), ignore_index=3, reduction=reduction)
    expected.sum().backward()
    np.testing.assert_allclose(loss.numpy().ravel(), expected.detach().numpy().ravel(), rtol=1e-12)
    np.testing.assert_allclose(grad.numpy(), x.grad.numpy(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("options", [dict(checkpoint=["up", "down"]), dict(zero=1), dict(zero=2), dict(zero=3), dict(zero=3, zero_axis="tp")])
def test_checkpoints_and_zero_change_no_value(one, options):
    whole = not options.get("zero_axis")
    plan = PLAN if whole else {**PLAN, "table": "replicate", "head": "replicate"}
    found, graph, net = losses(plan, GRID, **options)
    np.testing.assert_allclose(found, one[0], rtol=1e-12)
    if "checkpoint" in options:
        assert net.up.config.activation_checkpointing and not net.norm.config.activation_checkpointing
        return
    axis = ("dp", "tp").index(options.get("zero_axis", "dp"))
    assert graph.config.zero.stage == options["zero"] and graph.config.zero.axis == ("dp", "tp")[axis]
    split = [p for p in net.parameters() if p.sbp[axis].kind == "split"]
    in_parts = [p for p in net.parameters() if getattr(p, "rests_split", None) is not None]
    assert bool(in_parts) == (options["zero"] == 3) and (options["zero"] < 3 or all(any(p is q for q in split) for p in in_parts))


@pytest.mark.parametrize("change, text", [
    (dict(plan={"table": "vocabulary"}, table=nn.Embedding(7, 4)), "parallelize: 'table': a vocabulary of 7 over the 2 devices of axis 'tp': must "
     "divide evenly; fill it up to 8"),
    (dict(plan={"table": "vocabulary"}, table=nn.Embedding(8, 4, padding_idx=0)), "parallelize: 'table' is to be 'vocabulary', and is Embedding("),
    (dict(plan={"up": "vocabulary"}), "parallelize: 'up' is to be 'vocabulary', and is Linear("),
    (dict(checkpoint="blocks.*"), "parallelize: checkpoint names 'blocks.*'; the model has no such module"),
    (dict(zero=4), "zero: stage is 4; must be 1, 2 or 3"),
    (dict(zero=1, zero_axis="pp"), "placement: sim:0-3 (dp=2, tp=2) has no axis 'pp'; its axes: 'dp', 'tp'"),
])
def test_bad_wishes_are_named_before_anything_moves(change, text):
    net = Net()
    net.table = change.pop("table", net.table)
    with pytest.raises(ValueError) as caught:
        parallel.parallelize(net, GRID, change.pop("plan", {}), **change)
    assert str(caught.value).startswith(text), caught.value
    assert not net.up.weight.is_global and type(net.table) is nn.Embedding and not net.up.config.activation_checkpointing


def test_bad_losses_are_named():
    for x, y, options, text in ((sl.ones(4, 7), sl.zeros(4).long(), {}, "cross_entropy: a vocabulary of 7 over the 2 devices of axis 'tp'"),
                                (sl.ones(4, 8), sl.zeros(3).long(), {}, "cross_entropy: target is (3,), logits are (4, 8); must be classes"),
                                (sl.ones(4, 8), sl.zeros(4).long(), {"reduction": "max"}, "cross_entropy: reduction is 'max'; must be one of mean")):
        with pytest.raises(ValueError) as caught:
            parallel.cross_entropy(x, y, mesh=GRID, **options)
        assert str(caught.value).startswith(text), caught.value
