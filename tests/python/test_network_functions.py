"""torch's own forms of functions of nn.functional: sluice.kl_div and its like."""

import numpy as np
import pytest
import torch

import sluice as sl
from conftest import assert_same, to_sl


def normal(*shape, seed=0, grad=True):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def both(name, args, options, tolerance=1e-5):
    """Values, gradients, second gradients, and the values within a graph."""
    ours = [to_sl(a) if isinstance(a, torch.Tensor) else a for a in args]
    named = {k: to_sl(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    y, z = getattr(sl, name)(*ours, **named), getattr(torch, name)(*args, **options)
    assert_same(y, z, tolerance)
    leaves = [(a, b) for a, b in zip(ours, args) if isinstance(b, torch.Tensor) and b.requires_grad]
    if leaves:
        mine, theirs = [a for a, _ in leaves], [b for _, b in leaves]
        g = sl.autograd.grad(y.square().sum(), mine, create_graph=True)
        h = torch.autograd.grad(z.square().sum(), theirs, create_graph=True)
        for a, b in zip(g, h):
            assert_same(a, b, 10 * tolerance)
    tensors = [a for a in ours if isinstance(a, sl.Tensor)]

    class Net(sl.nn.Graph):
        def build(self, *given):
            given = iter(given)
            return getattr(sl, name)(*(next(given) if isinstance(a, sl.Tensor) else a for a in ours), **named)

    assert_same(Net()(*(t.detach() for t in tensors)), z, tolerance)


SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])

LOSSES = [
    ("binary_cross_entropy_with_logits", lambda: (normal(4, 3), normal(4, 3, seed=1, grad=False).sigmoid()),
     [{}, {"weight": torch.rand(3), "pos_weight": torch.rand(3)}]),
    ("cosine_embedding_loss", lambda: (normal(4, 5), normal(4, 5, seed=1), SIGNS), [{}, {"margin": 0.3}]),
    ("hinge_embedding_loss", lambda: (normal(4), SIGNS), [{}, {"margin": 0.3}]),
    ("kl_div", lambda: (normal(4, 3), normal(4, 3, seed=1, grad=False).sigmoid()), [{}, {"log_target": True}]),
    ("margin_ranking_loss", lambda: (normal(4), normal(4, seed=1), SIGNS), [{}, {"margin": 0.3}]),
    ("triplet_margin_loss", lambda: (normal(4, 5), normal(4, 5, seed=1), normal(4, 5, seed=2)), [{}, {"p": 3.0, "swap": True}]),
]


@pytest.mark.parametrize("name, args, options", LOSSES, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(name, args, options, reduction):
    for more in options:
        both(name, args(), {**more, "reduction": reduction})


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_with_everything_given(reduction):
    rate = normal(4, 3, seed=1, grad=False).abs()
    for log_input in (True, False):
        for full in (True, False):
            input = normal(4, 3) if log_input else normal(4, 3).detach().abs().requires_grad_()
            both("poisson_nll_loss", (input, rate, log_input, full, 1e-6, reduction), {})
    log_probs = normal(7, 2, 5).detach().log_softmax(-1)
    for lengths in (([7, 6], [3, 2]), (torch.tensor([7, 6]), torch.tensor([3, 2]))):
        targets = torch.tensor([[1, 2, 2], [4, 1, 0]])
        ours = sl.ctc_loss(to_sl(log_probs), to_sl(targets), *([to_sl(n) if isinstance(n,
                                                                                       torch.Tensor) else n for n in lengths]),
                           0, reduction)
        assert_same(ours, torch.ctc_loss(log_probs, targets, *lengths, 0, reduction))


def test_defaults():
    x, y = normal(4, 3, grad=False), normal(4, 3, seed=1, grad=False).sigmoid()
    for name, args in (("binary_cross_entropy_with_logits", (x, y)), ("cosine_embedding_loss", (x, y, SIGNS)), ("kl_div", (x,
                                                                                                                           y)),
                       ("hinge_embedding_loss", (x[:, 0], SIGNS)), ("margin_ranking_loss", (x, y[0], torch.ones(1))),
                       ("triplet_margin_loss", (x, y, x))):
        assert_same(getattr(sl, name)(*map(to_sl, args)), getattr(torch, name)(*args))
    log_probs, targets = normal(7, 2, 5, grad=False).log_softmax(-1), torch.tensor([[1, 2], [3, 4]])
    assert_same(sl.ctc_loss(to_sl(log_probs), to_sl(targets), [7, 7], [2, 2]), torch.ctc_loss(log_probs, targets, [7, 7], [2,
                                                                                                                           2]))
    assert_same(sl.embedding(to_sl(x), sl.tensor([1]), 9), torch.embedding(x, torch.tensor([1]), 9))
    with pytest.raises(RuntimeError, match="Integral inputs not supported"):
        sl.kl_div(sl.ones(2, dtype=sl.int64), sl.ones(2, dtype=sl.int64))


@pytest.mark.parametrize("name", ["kl_div", "hinge_embedding_loss", "binary_cross_entropy_with_logits"])
def test_reductions_are_numbers(name):
    x = sl.ones(2)
    with pytest.raises(TypeError, match=f"{name}... argument 'reduction' must be int, not str"):
        getattr(sl, name)(x, x, reduction="mean")
    with pytest.raises(ValueError, match="reduction is 3; must be 0"):
        getattr(sl, name)(x, x, reduction=3)


def test_normalization():
    x, w, b = normal(4, 6, 5), normal(6, seed=1), normal(6, seed=2)
    for given in ((w, b), (None, None)):
        both("batch_norm", (x, *given, None, None, True, 0.1, 1e-5, False), {}, 1e-4)
        both("batch_norm", (x, *given, torch.zeros(6), torch.ones(6), False, 0.1, 1e-5, True), {}, 1e-4)
        both("instance_norm", (x, *given, None, None, True, 0.1, 1e-5, False), {}, 1e-4)
        both("group_norm", (x, 3, *given), {}, 1e-4)
    mean, var = torch.zeros(6), torch.ones(6)
    ours = to_sl(mean.clone()), to_sl(var.clone())
    sl.batch_norm(to_sl(x), None, None, *ours, True, 0.3, 1e-5, False)
    torch.batch_norm(x, None, None, mean, var, True, 0.3, 1e-5, False)
    assert_same(ours[0], mean)
    assert_same(ours[1], var)


@pytest.mark.parametrize("name", ["dropout", "dropout_", "alpha_dropout_", "feature_dropout", "feature_dropout_",
                                  "feature_alpha_dropout_"])
def test_dropout(name):
    x = normal(40, 50, 3, grad=False)
    f, g = getattr(sl, name), getattr(torch, name)
    for p, train in ((0.3, False), (0.0, True), (1.0, True)):
        mine, theirs = to_sl(x.clone()), x.clone()
        result = f(mine, p, train)
        assert_same(result, g(theirs, p, train))
        assert (result is mine) == (name[-1] == "_" or p == 0.0 or not train)
    ones = sl.ones(40, 50, 3)
    y = f(ones, 0.3, True).numpy()  # one value is kept, another dropped
    kept = y > y.mean()
    assert len(np.unique(y)) == 2 and 0.6 < kept.mean() < 0.8
    assert (kept.all(-1) | ~kept.any(-1)).all() == ("feature" in name)  # a channel goes as a whole
    with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1, but got 1.5"):
        f(mine, 1.5, True)


def test_embedding():
    table, at = normal(6, 4), torch.tensor([[1, 5], [0, 1]])
    both("embedding", (table, at), {})
    both("embedding", (table, at, 1), {})
    both("embedding", (table, at, -1, True), {})
    with pytest.raises(IndexError, match="out of range"):
        sl.embedding(to_sl(table), sl.tensor([6]))
    for norm_type in (1.0, 2.0, 3.5):
        mine, theirs = to_sl(table.detach().clone()), table.detach().clone()
        assert sl.embedding_renorm_(mine, to_sl(at), 0.9, norm_type) is mine
        assert_same(mine, torch.embedding_renorm_(theirs, at, 0.9, norm_type))


def test_convolution_of_time_batch_channels():
    x, w, b = normal(7, 2, 3), normal(3, 3, 4, seed=1), normal(4, seed=2)
    for pad in (0, 1, 2):
        both("conv_tbc", (x, w, b, pad), {}, 1e-4)
    for bad, message in (((x[0], w, b), "Input must have 3 dims"), ((x, w[0], b), "Weight tensor must have 3 dims"),
                         ((x, w, w), "Bias must be 1-D"), ((x, w.transpose(1, 2), b), "Input dim 2"), ((x, w, b[1:]),
                                                                                                       "Bias size")):
        with pytest.raises(RuntimeError, match=message):
            sl.conv_tbc(*map(to_sl, bad))
        with pytest.raises(RuntimeError):
            torch.conv_tbc(*bad)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce):
    for data, segments in (
        (normal(6), {"lengths": torch.tensor([3, 0, 1, 2])}), (normal(6), {"offsets": torch.tensor([0, 2, 2, 5])}),
        (normal(6, 3), {"lengths": torch.tensor([4, 2])}), (normal(2, 5), {"lengths": torch.tensor([[1, 4], [5, 0]]),
                                                                           "axis": 1}),
        (normal(2, 4, 3), {"offsets": torch.tensor([[0, 1, 4], [0, 4, 4]]), "axis": 1}), (normal(0, 3),
                                                                                          {"lengths": torch.tensor([0, 0])}),
        (torch.tensor([2.0, 2.0, 1.0, 2.0], requires_grad=True), {"lengths": torch.tensor([4, 0])}),
        (torch.tensor([1.0, float("nan"), 1.0]), {"lengths": torch.tensor([2, 1])}), (normal(5, grad=False),
                                                                                      {"lengths": torch.tensor([2, 1]),
                                                                                       "unsafe": True}),
    ):
        for initial in (None, 0.5, 2.0):
            mine, theirs = to_sl(data), data
            options = {**segments, "initial": initial}
            y = sl.segment_reduce(mine, reduce, **{k: to_sl(v) if isinstance(v, torch.Tensor) else v for k,
                                                   v in options.items()})
            z = torch.segment_reduce(theirs, reduce, **options)
            assert_same(y, z)
            if data.requires_grad:
                g = sl.autograd.grad(y.nan_to_num(0, 0, 0).sum(), mine)[0]
                assert_same(g, torch.autograd.grad(z.nan_to_num(0, 0, 0).sum(), theirs)[0])


def test_segments_that_do_not_fit():
    x = sl.arange(4.0)
    for options, message in (({}, "Either lengths or offsets"), ({"lengths": [3, 2]}, "to sum to data.size"),
                             ({"lengths": [5, -1]}, "negative value"), ({"lengths": [[4]]},
                                                                        "Expected axis to be the last dimension")):
        with pytest.raises(RuntimeError, match=message):
            sl.segment_reduce(x, "sum", **{k: sl.tensor(v) for k, v in options.items()})
    with pytest.raises(RuntimeError, match="reduce argument must be"):
        sl.segment_reduce(x, "median", lengths=sl.tensor([4]))
    with pytest.raises(NotImplementedError, match="not implemented for"):
        sl.segment_reduce(sl.arange(4), "sum", lengths=sl.tensor([4]))
    with pytest.raises(NotImplementedError, match="must be int64 or int32"):
        sl.segment_reduce(x, "sum", lengths=sl.tensor([4.0]))
    with pytest.raises(RuntimeError, match="data has 0 dims"):
        sl.segment_reduce(sl.tensor(1.0), "sum", lengths=sl.tensor([1]))


def test_segments_in_a_graph():
    x = normal(6, 3)

    class Net(sl.nn.Graph):
        def build(self, x):
            x = (x * 1).requires_grad_(True)
            y = sl.segment_reduce(x, "max", lengths=sl.tensor([4, 0, 2]))
            return y, sl.autograd.grad(y[::2].square().sum(), x)[0]

    y, g = Net()(to_sl(x.detach()))
    z = torch.segment_reduce(x, "max", lengths=torch.tensor([4, 0, 2]))
    assert_same(y, z)
    assert_same(g, torch.autograd.grad(z[::2].square().sum(), x)[0])
