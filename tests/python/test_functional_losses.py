"""Losses, distances, norms and tables against torch's."""

import itertools
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl
from functional_oracle import agree, drawn, kinds

import sluice as sl
import sluice.nn.functional as F

REDUCTIONS = ("mean", "sum", "none")
X, Y, Z = drawn((4, 5), (4, 5), (4, 5))
SIGNS = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
EVERY = Y.sign()
CLASSES = torch.tensor([1, 0, 4, 2])
LABELS = torch.tensor([[3, 0, -1, 2, 1], [-1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [4, 4, -1, -1, -1]])

LOSSES = [
    ("mse_loss", (X, Y), {}), ("l1_loss", (X, Y), {}), ("l1_loss", (X, X.clone()), {}), ("smooth_l1_loss", (X, Y), {"beta": 0.5}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.0}), ("huber_loss", (X, Y), {"delta": 0.7}), ("huber_loss", (X, X + 1), {}),
    ("poisson_nll_loss", (X, Y.abs() * 3), {}), ("poisson_nll_loss", (X, Y.abs() * 3), {"full": True}), ("poisson_nll_loss", (X.abs(), Y.abs()), {"log_input": False, "eps": 1e-3}),
    ("gaussian_nll_loss", (X, Y, Z.abs()), {}), ("gaussian_nll_loss", (X, Y, Z.abs()), {"full": True, "eps": 0.5}), ("gaussian_nll_loss", (X, Y, Z[:, 0].abs()), {}),
    ("gaussian_nll_loss", (X, Y, Z[:, :1].abs()), {}), ("soft_margin_loss", (X, EVERY), {}), ("margin_ranking_loss", (X, Y, EVERY), {}),
    ("margin_ranking_loss", (X, X.clone(), EVERY), {"margin": 0.0}), ("margin_ranking_loss", (X, Y, EVERY), {"margin": 0.5}),
    ("hinge_embedding_loss", (X, EVERY), {}), ("hinge_embedding_loss", (X, EVERY), {"margin": 0.3}), ("hinge_embedding_loss", (X, Y), {}),
    ("cosine_embedding_loss", (X, Y, SIGNS), {}), ("cosine_embedding_loss", (X, Y, SIGNS), {"margin": 0.2}), ("cosine_embedding_loss", (X * 0, Y, SIGNS), {}),
    ("cosine_embedding_loss", (X[0], Y[0], SIGNS[0]), {}), ("triplet_margin_loss", (X, Y, Z), {}), ("triplet_margin_loss", (X, Y, Z), {"swap": True, "margin": 2.0}),
    ("triplet_margin_loss", (X, Y, Z), {"p": 1.0}), ("triplet_margin_loss", (X[0], Y[0], Z[0]), {}), ("triplet_margin_with_distance_loss", (X, Y, Z), {"swap": True}),
    ("multilabel_soft_margin_loss", (X, (Y > 0).double()), {}), ("multilabel_soft_margin_loss", (X[0], (Y[0] > 0).double()), {}),
    ("multilabel_margin_loss", (X, LABELS), {}), ("multilabel_margin_loss", (X[0], LABELS[0]), {}), ("multilabel_margin_loss", (X * 0, LABELS), {}),
    ("multi_margin_loss", (X, CLASSES), {}), ("multi_margin_loss", (X, CLASSES), {"p": 2, "margin": 0.5}), ("multi_margin_loss", (X[0], CLASSES[0]), {}),
    ("multi_margin_loss", (X[:, :1], CLASSES * 0), {}), ("kl_div", (X.log_softmax(1), Y.softmax(1)), {}), ("kl_div", (X, Y), {"log_target": True}),
    ("kl_div", (X, Y.relu()), {}), ("binary_cross_entropy_with_logits", (X * 30, Y.sigmoid()), {}), ("binary_cross_entropy", (X.sigmoid(), Y.sigmoid()), {}),
    ("nll_loss", (X.log_softmax(1), CLASSES), {}), ("nll_loss", (X.log_softmax(1), CLASSES), {"ignore_index": 4}), ("nll_loss", (X[0], CLASSES[0]), {}),
    ("cross_entropy", (X, CLASSES), {}), ("cross_entropy", (X, CLASSES), {"label_smoothing": 0.3, "ignore_index": 0}), ("cross_entropy", (X, Y.softmax(1)), {"label_smoothing": 0.2}),
    ("cross_entropy", (X[0], CLASSES[0]), {}), ("cross_entropy", (X[0], Y[0].softmax(0)), {}),
]
FIRST_ONLY = {"multilabel_margin_loss", "multi_margin_loss"}  # torch has no second derivative


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name, inputs, options", LOSSES, ids=[f"{i}-{case[0]}" for i, case in enumerate(LOSSES)])
def test_losses(name, inputs, options, reduction):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixed = name == "soft_margin_loss"  # whose target torch does not differentiate

        def f(m, *xs):
            return getattr(m.nn.functional, name)(*([xs[0], xs[1].detach()] if fixed else xs), reduction=reduction, **options)

        agree(f, *inputs, double=name not in FIRST_ONLY, tolerance=1e-7,
              graph=reduction == "mean")


def test_batchmean():
    agree(lambda m, x, y: m.nn.functional.kl_div(x, y, reduction="batchmean"), X.log_softmax(1), Y.softmax(1))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights(reduction):
    weight = Z.abs()
    for name in ("mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
        x, y = (X.sigmoid(), Y.sigmoid()) if "entropy" in name else (X, Y)
        agree(lambda m, x, y, w: getattr(m.nn.functional, name)(x, y, weight=w.detach(), reduction=reduction), x, y, weight, double=False, name=name, tolerance=1e-8)
    row = weight[0]
    for name, target in (("multi_margin_loss", CLASSES), ("nll_loss", CLASSES), ("cross_entropy", CLASSES), ("multilabel_soft_margin_loss", EVERY.relu())):
        agree(lambda m, x, y, w: getattr(m.nn.functional, name)(x, y, weight=w.detach(), reduction=reduction), X, target, row, double=False, name=name, tolerance=1e-8)
    images, classes = drawn((2, 3, 4, 5))[0], torch.randint(0, 3, (2, 4, 5))
    classes[0, 0] = -100
    for name in ("nll_loss", "cross_entropy"):
        agree(lambda m, x, w: getattr(m.nn.functional, name)(x, classes if m is torch else to_sl(classes), weight=w.detach(), reduction=reduction), images, row[:3],
              double=False, name=name, tolerance=1e-8)
    agree(lambda m, x, p, w: m.nn.functional.cross_entropy(x, p, w.detach(), label_smoothing=0.1, reduction=reduction), images, drawn((2, 3, 4, 5), seed=3)[0].softmax(1),
          row[:3], double=False, tolerance=1e-8)
    agree(lambda m, x, p, w: m.nn.functional.binary_cross_entropy_with_logits(x, p, pos_weight=w.detach(), reduction=reduction), X, Y.sigmoid(), row, tolerance=1e-8)


@pytest.mark.parametrize("size_average, reduce", itertools.product((None, True, False), repeat=2))
def test_older_arguments(size_average, reduce):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("mse_loss", "soft_margin_loss", "hinge_embedding_loss", "kl_div"):
            agree(lambda m, x, y: getattr(m.nn.functional, name)(x, y.detach(), size_average=size_average, reduce=reduce), X, EVERY.abs(), double=False, graph=False)
        for name in ("MSELoss", "MultiMarginLoss", "NLLLoss", "SmoothL1Loss", "CosineEmbeddingLoss"):
            assert getattr(sl.nn, name)(size_average=size_average, reduce=reduce).reduction == getattr(torch.nn, name)(size_average=size_average, reduce=reduce).reduction
    if size_average is not None:
        with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
            sl.nn.MSELoss(size_average=size_average)


def test_what_losses_refuse():
    x = torch.ones(2, 3)
    classes = torch.zeros(2, dtype=torch.long)
    cases = [lambda m, x, c: m.nn.functional.mse_loss(x, x, reduction="avg"), lambda m, x, c: m.nn.functional.l1_loss(x, x, weight=x[0]),
             lambda m, x, c: m.nn.functional.gaussian_nll_loss(x, x, -x), lambda m, x, c: m.nn.functional.gaussian_nll_loss(x, x, x[:, :2]),
             lambda m, x, c: m.nn.functional.gaussian_nll_loss(x, x, -1.0), lambda m, x, c: m.nn.functional.triplet_margin_loss(x, x, x[0]),
             lambda m, x, c: m.nn.functional.gaussian_nll_loss(x, x, x.long()), lambda m, x, c: m.nn.functional.gaussian_nll_loss(x, x, x > 0),
             lambda m, x, c: m.nn.functional.margin_ranking_loss(x, x[0], x), lambda m, x, c: m.nn.functional.cosine_embedding_loss(x, x, x),
             lambda m, x, c: m.nn.functional.multi_margin_loss(x, c, p=3), lambda m, x, c: m.nn.functional.multi_margin_loss(x, c[:1]),
             lambda m, x, c: m.nn.functional.multi_margin_loss(x, c, weight=x[0, :2]), lambda m, x, c: m.nn.functional.multilabel_margin_loss(x, c),
             lambda m, x, c: m.nn.functional.triplet_margin_loss(x, x, x, margin=-1.0), lambda m, x, c: m.nn.functional.huber_loss(x, x, delta=-1.0),
             lambda m, x, c: m.nn.functional.smooth_l1_loss(x, x, beta=-1.0), lambda m, x, c: m.nn.functional.binary_cross_entropy(x, x[:1]),
             lambda m, x, c: m.nn.functional.nll_loss(x, c[:1]), lambda m, x, c: m.nn.functional.cross_entropy(x, c + 7)]
    for i, f in enumerate(cases):
        kind, text = kinds(f, x, classes)
        assert kind[1] is not None and kind[0] is not None, (i, kind, text)
        assert kind[0] is kind[1] or kind[1] in (ValueError, RuntimeError), (i, kind, text)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_binary_cross_entropy_at_the_ends(dtype):  # OPS-40
    p, t = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.5]), torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    x = sl.tensor(p.numpy()).to(getattr(sl, dtype)).requires_grad_()
    y = F.binary_cross_entropy(x, sl.tensor(t.numpy()).to(getattr(sl, dtype)), reduction="none")
    np.testing.assert_allclose(y.detach().float().numpy(), [0, 100, 100, 0, np.log(2)], rtol=1e-2 if "16" in dtype else 1e-6)
    y.mean().backward()
    assert np.isfinite(x.grad.float().numpy()).all() and x.grad.dtype is getattr(sl, dtype)
    if "16" not in dtype:
        a = p.to(getattr(torch, dtype)).requires_grad_()
        TF.binary_cross_entropy(a, t.to(getattr(torch, dtype))).backward()
        assert_same(x.grad, a.grad)


CTC = [dict(), dict(blank=2), dict(reduction="sum"), dict(reduction="none"), dict(zero_infinity=True), dict(reduction="sum", zero_infinity=True)]


@pytest.mark.parametrize("options", CTC, ids=str)
def test_ctc_loss(options):
    logits, = drawn((9, 3, 5))
    blank = options.get("blank", 0)
    targets = torch.tensor([[1, 1, 3], [4, 3, 4], [1, 4, 4]])
    targets = targets if blank == 0 else torch.where(targets == 2, 0, targets)
    inputs, counts = torch.tensor([9, 7, 8]), torch.tensor([3, 2, 0])

    def f(m, x, t, i, c):
        return m.nn.functional.ctc_loss(m.log_softmax(x, 2), t, i, c, **options)

    agree(f, logits, targets, inputs, counts, double=False, tolerance=1e-8)
    flat = torch.cat([t[:n] for t, n in zip(targets, counts)])
    agree(f, logits, flat, inputs, counts, double=False, tolerance=1e-8, name="one after the other")
    for t in (targets, flat):
        agree(lambda m, x, t: m.nn.functional.ctc_loss(m.log_softmax(x, 2), t, (9, 7, 8), (3, 2, 0), **options), logits, t, double=False, tolerance=1e-8, name="ints")
    agree(lambda m, x: m.nn.functional.ctc_loss(x, targets if m is torch else to_sl(targets), (9, 7, 8), (3, 2, 1), **options), logits.log_softmax(2), double=False,
          tolerance=1e-8, graph=False, name="gradient of log_probs")
    if options.get("zero_infinity"):
        agree(lambda m, x, t: m.nn.functional.ctc_loss(m.log_softmax(x, 2), t, (9, 2, 3), (3, 3, 3), **options), logits, targets, double=False, tolerance=1e-8, name="impossible")
    agree(lambda m, x, t: m.nn.functional.ctc_loss(m.log_softmax(x, 1), t, m.tensor(9), m.tensor(3), **options), logits[:, 0], targets[0], double=False, tolerance=1e-8, name="unbatched")


def test_ctc_loss_that_cannot_be():
    logits, targets = drawn((4, 1, 3))[0].log_softmax(2), torch.tensor([[1, 1, 1]])
    assert F.ctc_loss(to_sl(logits), to_sl(targets), (4,), (3,)).item() == float("inf") == TF.ctc_loss(logits, targets, (4,), (3,)).item()
    for f in (lambda m, x, t: m.nn.functional.ctc_loss(x, t, (5,), (3,)), lambda m, x, t: m.nn.functional.ctc_loss(x, t, (4, 4), (3, 3)),
              lambda m, x, t: m.nn.functional.ctc_loss(x, t, (4,), (3,), blank=3), lambda m, x, t: m.nn.functional.ctc_loss(x, t, (4,), (9,))):
        kind, text = kinds(f, logits, targets)
        assert kind == [RuntimeError] * 2, (kind, text)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.5, float("inf"), 0.0])
def test_distances(p):
    a, b = drawn((3, 4), (5, 4), seed=2)
    agree(lambda m, a, b: m.nn.functional.pairwise_distance(a, b, p), a, b[:3], double=p >= 1, tolerance=1e-7)
    agree(lambda m, a, b: m.nn.functional.pairwise_distance(a, b, p, keepdim=True), a, b[0], double=False, tolerance=1e-7)
    agree(lambda m, a, b: m.cdist(a, b, p), a, b, double=False, tolerance=1e-7)
    agree(lambda m, a, b: m.cdist(a, b, p), a.expand(2, 3, 4), b, double=False, graph=False, tolerance=1e-7)
    agree(lambda m, a: m.pdist(a, p), b, double=False, tolerance=1e-7)
    if p in (1.0, 2.0, float("inf")):
        for dim in (0, 1):
            agree(lambda m, x: m.nn.functional.normalize(x, p, dim), torch.cat([a, torch.zeros(1, 4).double()]), double=False, name="zero row")  # OPS-18
            agree(lambda m, x: m.nn.functional.normalize(x, p, dim, eps=5.0), a, double=False)


def test_cosines():
    a, b = drawn((3, 4), (3, 4))
    for dim in (0, 1, -1):
        agree(lambda m, a, b: m.nn.functional.cosine_similarity(a, b, dim), a, b, tolerance=1e-7)
    agree(lambda m, a, b: m.nn.functional.cosine_similarity(a, b), a * 0, b, double=False)
    agree(lambda m, a, b: m.nn.functional.cosine_similarity(a, b, dim=2), a[:, None], b[None], tolerance=1e-7)


def test_bilinear_and_linear():
    for lead in ((), (3,), (2, 3)):
        a, b, w, bias = drawn((*lead, 4), (*lead, 5), (6, 4, 5), (6,))
        agree(lambda m, a, b, w, bias: m.nn.functional.bilinear(a, b, w, bias), a, b, w, bias, tolerance=1e-8)
        agree(lambda m, a, w, bias: m.nn.functional.linear(a, w, bias), a, w[:, :, 0], bias, tolerance=1e-8)
        agree(lambda m, a, w: m.nn.functional.linear(a, w), a, w[0, :, 0], tolerance=1e-8)
    agree(lambda m, a, b, w: m.nn.functional.bilinear(a, b, w), torch.zeros(0, 4), torch.zeros(0, 5), torch.ones(6, 4, 5), graph=False)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 3)])
def test_norms(shape):
    x, w, b = drawn(shape, (3,), (3,))
    agree(lambda m, x, w, b: m.nn.functional.instance_norm(x, weight=w, bias=b), x, w, b, tolerance=1e-7)
    agree(lambda m, x: m.nn.functional.instance_norm(x, eps=0.1), x, tolerance=1e-7)
    agree(lambda m, x, w: m.nn.functional.group_norm(x, 3, w), x, w, tolerance=1e-7)
    agree(lambda m, x: m.nn.functional.group_norm(x, 1), x, tolerance=1e-7)
    last = drawn(shape[-2:])[0]
    agree(lambda m, x, w: m.nn.functional.layer_norm(x, shape[-2:], w), x, last, tolerance=1e-7)
    agree(lambda m, x, w: m.nn.functional.rms_norm(x, shape[-2:], w), x, last, tolerance=1e-7)
    kept = [[m.tensor([0.5, -1.0, 0.0]), m.tensor([1.0, 0.5, 2.0])] for m in (torch, sl)]
    x = x.float()
    for training in (True, True, False):
        theirs = TF.instance_norm(x, *kept[0], use_input_stats=training, momentum=0.3)
        assert_same(F.instance_norm(to_sl(x), *kept[1], use_input_stats=training, momentum=0.3), theirs, 1e-5)
        for ours, expected in zip(kept[1], kept[0]):
            assert_same(ours, expected, 1e-5)


def test_norms_refuse_what_torch_refuses():
    for f in (lambda m, x: m.nn.functional.instance_norm(x), lambda m, x: m.nn.functional.group_norm(x, 2), lambda m, x: m.nn.functional.layer_norm(x, (2,))):
        kind, text = kinds(f, torch.ones(2, 3, 1))
        assert kind[0] is not None and kind[1] in (ValueError, RuntimeError), (kind, text)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}, {"padding_idx": 1, "scale_grad_by_freq": True}], ids=str)
def test_embedding(options):
    index, table = torch.tensor([[1, 2, 2], [4, 0, 2]]), drawn((5, 3))[0]
    agree(lambda m, i, w: m.nn.functional.embedding(i, w, **options), index, table, double=False)
    agree(lambda m, i, w: m.nn.functional.embedding(i, w, **options), torch.tensor(3), table, double=False)
    agree(lambda m, i, w: m.nn.functional.embedding(i, w, **options), index.int(), table, double=False)


def test_embedding_writes_long_rows():
    for norm in (1.0, 2.0):
        theirs = drawn((6, 4), dtype=torch.float32)[0]
        ours, index = to_sl(theirs), torch.tensor([[0, 1], [1, 5]])
        expected = TF.embedding(index, theirs, max_norm=0.8, norm_type=norm)
        assert_same(F.embedding(to_sl(index), ours, max_norm=0.8, norm_type=norm), expected, 1e-5)
        assert_same(ours, theirs, 1e-5)
    layer = sl.nn.Embedding(6, 4, max_norm=0.5)
    layer(sl.tensor([1, 2])).sum().backward()
    assert (layer.weight.detach()[1:3].norm(dim=1) <= 0.5 + 1e-6).all() and layer.weight.grad[1].tolist() == [1.0] * 4


BAGS = [{}, {"mode": "sum"}, {"mode": "max"}, {"padding_idx": 2}, {"mode": "max", "padding_idx": 2}, {"mode": "sum", "scale_grad_by_freq": True},
        {"mode": "mean", "padding_idx": 0}]


@pytest.mark.parametrize("options", BAGS, ids=str)
def test_embedding_bag(options):
    rows, flat, table = torch.tensor([[1, 2, 2], [4, 0, 2], [2, 2, 2]]), torch.tensor([1, 2, 2, 4, 0, 3, 3]), drawn((5, 3))[0]
    if options == {"mode": "sum", "scale_grad_by_freq": True}:  # torch divides by counts of other rows
        tables = [to_sl(table).requires_grad_() for _ in range(2)]
        F.embedding_bag(to_sl(rows), tables[0], **options).square().sum().backward()
        F.embedding(to_sl(rows), tables[1], scale_grad_by_freq=True).sum(1).square().sum().backward()
        np.testing.assert_allclose(tables[0].grad.numpy(), tables[1].grad.numpy(), rtol=1e-9)
        return
    agree(lambda m, i, w: m.nn.functional.embedding_bag(i, w, **options), rows, table, double=False)
    for offsets in ([0, 2, 2, 5], [0, 7], [0]):
        agree(lambda m, i, w, o: m.nn.functional.embedding_bag(i, w, o, **options), flat, table, torch.tensor(offsets), double=False, name=f"{offsets}")
    agree(lambda m, i, w, o: m.nn.functional.embedding_bag(i, w, o, include_last_offset=True, **options), flat, table, torch.tensor([0, 3, 3, 7]), double=False)
    if options == {"mode": "sum"}:
        agree(lambda m, i, w, s: m.nn.functional.embedding_bag(i, w, per_sample_weights=s, mode="sum"), rows, table, drawn((3, 3))[0], double=False)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_many_bags_take_memory_of_their_rows_alone(mode):
    index, table = torch.arange(4096 * 8).reshape(4096, 8) * 7919 % 20000, drawn((20000, 16))[0].float()
    got = F.embedding_bag(to_sl(index), to_sl(table), mode=mode)  # every bag beside every row would be 8 GiB
    np.testing.assert_allclose(got.numpy(), torch.nn.functional.embedding_bag(index, table, mode=mode).numpy(), rtol=1e-5, atol=1e-6)


def test_of_equal_rows_of_a_bag_the_first_has_the_gradient():
    table = sl.tensor([[1.0, 3.0], [1.0, 2.0], [0.0, 5.0]], requires_grad=True)
    most = F.embedding_bag(sl.tensor([[1, 0, 2]]), table, mode="max")
    most.sum().backward()
    assert most.tolist() == [[1, 5]] and table.grad.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_bags_refuse_what_torch_refuses():
    x = torch.ones(4, 3)
    for f in (lambda m, i, w: m.nn.functional.embedding_bag(i, w), lambda m, i, w: m.nn.functional.embedding_bag(i[None], w, i),
              lambda m, i, w: m.nn.functional.embedding_bag(i[None], w, mode="prod"), lambda m, i, w: m.nn.functional.embedding_bag(i[None], w, per_sample_weights=w[:1, :2]),
              lambda m, i, w: m.nn.functional.embedding_bag(i[None], w, per_sample_weights=i[None] * 1.0), lambda m, i, w: m.nn.functional.embedding_bag(i[None], w[0])):
        kind, text = kinds(f, torch.tensor([0, 1]), x)
        assert kind[0] is kind[1] is not None, (kind, text)
    for f in (lambda: F.embedding(sl.tensor([0]), sl.ones(2, 2), sparse=True), lambda: F.embedding_bag(sl.tensor([[0]]), sl.ones(2, 2), sparse=True),
              lambda: sl.nn.EmbeddingBag(2, 2, sparse=True)):
        with pytest.raises(NotImplementedError, match="sparse=True is not supported; use .*sparse=False"):
            f()


def test_attention():
    q, k, v = drawn((2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))
    mask = torch.rand(5, 7) > 0.5
    mask[2] = False
    def f(m, q, k, v, mask, **options):
        return m.nn.functional.scaled_dot_product_attention(q, k, v, mask, **options)

    agree(f, q, k, v, mask, tolerance=1e-7, double=False)
    assert not F.scaled_dot_product_attention(to_sl(q), to_sl(k), to_sl(v), to_sl(mask)).numpy()[:, :, 2].any()
    agree(lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3), q, k, v, tolerance=1e-7, double=False)
    agree(lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v, tolerance=1e-7, double=False)
    agree(lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k[:, :2], v[:, :2], tolerance=1e-7, double=False)
    same = F.scaled_dot_product_attention(to_sl(q), to_sl(k), to_sl(v), dropout_p=0.0)
    dropped = F.scaled_dot_product_attention(to_sl(q), to_sl(k), to_sl(v), dropout_p=0.5)
    assert not np.allclose(same.numpy(), dropped.numpy())
    with pytest.raises(RuntimeError, match="number of heads"):
        F.scaled_dot_product_attention(to_sl(q), to_sl(k)[:, :4], to_sl(v)[:, :4], enable_gqa=True)
