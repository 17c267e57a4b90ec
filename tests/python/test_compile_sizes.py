"""sluice.compile(dynamic=...): one graph for all sizes where rows stand alone, and a graph for each where they do not."""

import pytest

import sluice as sl
from sluice import nn


def check(compiled, plain, xs):
    for x in xs:
        made, expected = compiled(x), plain(x)
        assert made.shape == expected.shape and sl.allclose(made, expected, atol=1e-5) and made.is_contiguous()
    return sl.compile.stats(compiled)


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


@pytest.mark.parametrize("dynamic, compiles", [(True, 1), (None, 2), (False, 8)])
def test_batches_of_1_to_32(dynamic, compiles):
    net = mlp()
    compiled = sl.compile(net, dynamic=dynamic, options={"recompile_limit": 100})
    sizes = range(1, 33) if dynamic is not False else (1, 2, 3, 5, 8, 13, 21, 32)
    stats = check(compiled, net, [sl.randn(n, 4) for n in sizes])
    assert stats["compiles"] == compiles and stats["eager_calls"] == 0
    assert stats["plans"] == (6 if dynamic is not False else 8)  # of 1, 2, 4, 8, 16, 32 rows


def test_gradients_of_what_was_filled_up():
    net = mlp()
    compiled = sl.compile(net, dynamic=True)
    for n in (3, 5, 6, 8):
        x = sl.randn(n, 4, requires_grad=True)
        weight = sl.randn(n, 3)
        ours = sl.autograd.grad((compiled(x) * weight).sum(), [x, *net.parameters()])
        theirs = sl.autograd.grad((net(x) * weight).sum(), [x, *net.parameters()])
        for a, b in zip(ours, theirs):
            assert a.shape == b.shape and sl.allclose(a, b, atol=1e-4)
    stats = sl.compile.stats(compiled)
    assert stats["compiles"] == 1 and stats["plans"] == 2 and stats["backward_plans"] == 2


def test_lengths_of_5_to_512_share_plans():
    net = nn.Sequential(nn.Embedding(50, 6), nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6))
    compiled = sl.compile(net)
    stats = check(compiled, net, [sl.randint(0, 50, (2, n)) for n in (5, 512, 7, 100, 33, 64, 301, 511)])
    assert stats["compiles"] == 2 and stats["plans"] == 5 and stats["eager_calls"] == 0  # 5; 512, 8, 128, 64


REFUSED = {"softmax": (lambda x: x.softmax(1), "mixes rows of dim"), "mean": (lambda x: x - x.mean(1, keepdim=True), "mixes rows of dim"),
           "divides": (lambda x: x / x.shape[1], "result 0 depends on the size itself"),
           "full": (lambda x: x + sl.full((x.shape[1], 1), float(x.numel())), "result 0 depends on the size itself"),
           "branch": (lambda x: x + 1 if x.shape[1] > 8 else x - 1, "the code decides by a size"),
           "length": (lambda x: x * len(x[0]), "the code decides by a size"), "flip": (lambda x: x.flip(1), "mixes rows of dim"),
           "dropout": (lambda x: nn.functional.dropout(x, 0.0) + sl.rand(1) * 0, "draws random numbers")}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_depends_on_the_size_has_a_graph_for_each(name):
    function, reason = REFUSED[name]
    compiled = sl.compile(function)
    sizes = (5, 6, 12, 9)
    stats = check(compiled, function, [sl.randn(2, n, 4) for n in sizes])
    assert stats["compiles"] == len(sizes) and stats["eager_calls"] == 0
    (note,) = compiled._region.sizes.notes()
    assert note.startswith("sizes of axis 1 of tensor 0: a graph for each: ") and reason in note


def test_batch_norm_that_trains_has_a_graph_for_each_batch():
    net = nn.BatchNorm1d(3)
    compiled = sl.compile(net)
    for n in (4, 5, 6):
        compiled(sl.randn(n, 3))
    assert net.num_batches_tracked == 3 and sl.compile.stats(compiled)["compiles"] == 3
    net.eval()
    stats = check(compiled, net, [sl.randn(n, 3) for n in (4, 5, 6, 7)])
    assert stats["compiles"] == 5


def test_several_arguments_have_one_dim():
    def scores(q, k, bias):
        return (q * k).sum(-1) + bias, q.relu()

    compiled, bias = sl.compile(scores, dynamic=True), sl.randn(1)
    for n in (3, 4, 7):
        q, k = sl.randn(n, 5), sl.randn(n, 5)
        for made, expected in zip(compiled(q, k, bias), scores(q, k, bias)):
            assert sl.allclose(made, expected, atol=1e-6)
    assert sl.compile.stats(compiled)["compiles"] == 1


def test_positions_are_constants_of_the_largest():
    def embed(x):
        return x + sl.arange(x.shape[1]).view(1, -1, 1)

    compiled = sl.compile(embed)
    stats = check(compiled, embed, [sl.randn(2, n, 3) for n in (5, 6, 7, 8)])
    assert stats["compiles"] == 2 and stats["plans"] == 2


def test_sizes_above_the_largest_are_compiled_as_they_are():
    net = nn.Linear(2, 2)
    compiled = sl.compile(net, dynamic=True, options={"max_size": 8})
    stats = check(compiled, net, [sl.randn(n, 2) for n in (3, 8, 9, 10)])
    assert stats["compiles"] == 3 and stats["plans"] == 4


def test_no_rows_are_compiled_as_they_are():
    net = nn.Linear(2, 2)
    compiled = sl.compile(net, dynamic=True)
    check(compiled, net, [sl.randn(n, 2) for n in (3, 0, 2)])
