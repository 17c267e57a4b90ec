"""scaled_dot_product_attention and its op `attention` against torch's."""

import math

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from functional_oracle import agree, drawn, kinds

import sluice as sl
import sluice.nn.functional as F

B, H, L, S, E = 2, 4, 5, 7, 6
SHAPES = [  # query, key, value, options
    ((L, E), (S, E), (S, 3), {}), ((B, L, E), (B, S, E), (B, S, 3), {}), ((B, H, L, E), (B, H, S, E), (B, H, S, E), {}),
    ((2, 1, H, L, E), (1, 3, H, S, E), (H, S, E), {}), ((B, H, L, E), (1, 1, S, E), (S, E), {}), ((L, E), (B, H, S, E), (B, H, S, E), {}),
    ((B, H, L, E), (B, 2, S, E), (B, 2, S, E), {"enable_gqa": True}), ((B, H, L, E), (B, 2, S, E), (B, 1, S, 3), {"enable_gqa": True}),
    ((H, L, E), (1, S, E), (1, S, E), {"enable_gqa": True}), ((2, 1, H, L, E), (2, 3, 2, S, E), (2, 3, 2, S, E), {"enable_gqa": True}),
    ((B, H, L, 0), (B, H, S, 0), (B, H, S, 3), {}), ((B, H, 0, E), (B, H, S, E), (B, H, S, 3), {}),
    ((0, H, L, E), (0, H, S, E), (0, H, S, 3), {}), ((B, H, L, E), (B, H, S, E), (B, H, S, 0), {}), ((B, 1, 1, 1), (B, 1, 1, 1), (B, 1, 1, 1), {}),
]


def attend(**options):
    return lambda m, q, k, v, *mask: m.nn.functional.scaled_dot_product_attention(q, k, v, *mask, **options)


def math_only():
    """torch's own fused kernels have no second derivative."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


@pytest.mark.parametrize("q, k, v, options", SHAPES)
def test_shapes(q, k, v, options):
    tensors = drawn(q, k, v)
    for more in ({}, {"is_causal": True}, {"scale": -0.3}):
        with math_only():
            agree(attend(**options, **more), *tensors, graph=not more, name=str(more))


MASKS = [(L, S), (1, S), (L, 1), (1, 1), (B, 1, 1, S), (1, H, L, S), (B, H, L, S), (B, H, 1, 1)]


@pytest.mark.parametrize("shape", MASKS)
def test_masks(shape):
    q, k, v = drawn((B, H, L, E), (B, H, S, E), (B, H, S, 3))
    added = drawn(shape, seed=3)[0]
    past = torch.ones(L, S, dtype=torch.bool).tril()

    def causal(m, q, k, v, mask):
        if m is sl:  # torch's fused kernel takes both, its other one neither
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
        mask = mask & past if mask.dtype == torch.bool else mask.masked_fill(~past, -math.inf)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    with math_only():
        for mask in (added, added > 0):
            agree(attend(), q, k, v, mask)
            agree(causal, q, k, v, mask, graph=False)
    ours = F.scaled_dot_product_attention(*map(to_sl, (q, k, v)), to_sl(added.to(torch.float32)))
    assert_same(ours, torch.nn.functional.scaled_dot_product_attention(q, k, v, added.to(torch.float32)), 1e-6)


def test_a_mask_of_one_dim_and_a_mask_with_more_dims_than_the_operands():
    q, k, v = drawn((L, E), (S, E), (S, E))
    row = torch.tensor([True, False, True, True, False, False, True])
    assert_same(F.scaled_dot_product_attention(*map(to_sl, (q, k, v, row))), torch.nn.functional.scaled_dot_product_attention(q, k, v, row[None]), 1e-12)
    more = drawn((3, 2, L, S))[0]
    with math_only():
        theirs = torch.nn.functional.scaled_dot_product_attention(*(x.expand(3, 2, *x.shape) for x in (q, k, v)), more)
    assert_same(F.scaled_dot_product_attention(*map(to_sl, (q, k, v, more))), theirs, 1e-12)


def test_rows_without_anything_are_zeros_and_have_no_gradient():
    q, k, v = drawn((B, H, L, E), (B, H, S, E), (B, H, S, 3))
    some = torch.rand(L, S) > 0.3
    some[2], some[0, 1:] = False, False
    for mask in (some, torch.zeros(L, S, dtype=torch.float64).masked_fill(~some, -math.inf)):
        with math_only():
            agree(attend(), q, k, v, mask.detach() if mask.dtype == torch.bool else mask, double=mask.dtype == torch.bool)
        leaf = to_sl(q).requires_grad_()
        y = F.scaled_dot_product_attention(leaf, to_sl(k), to_sl(v), to_sl(mask))
        y.sum().backward()
        assert not y.detach().numpy()[:, :, 2].any() and not leaf.grad.numpy()[:, :, 2].any()
        assert leaf.grad.numpy()[:, :, 1].any()
    nothing = torch.zeros(L, S, dtype=torch.bool)
    agree(attend(), q, k, v, nothing, double=False)


LONG = [(1, 1, 200, 300, 64, 64), (2, 3, 130, 97, 33, 20), (1, 2, 64, 96, 80, 48), (1, 1, 1, 500, 64, 64), (3, 1, 65, 1, 7, 100), (1, 2, 256, 256, 16, 16)]


@pytest.mark.parametrize("b, h, rows, keys, e, ev", LONG)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_tiles(b, h, rows, keys, e, ev, dtype):
    q, k, v = drawn((b, h, rows, e), (b, h, keys, e), (b, h, keys, ev), dtype=dtype)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-11
    agree(attend(), q, k, v, double=False, graph=False, tolerance=tolerance)
    agree(attend(is_causal=True), q, k, v, double=False, graph=False, tolerance=tolerance)
    agree(attend(), q, k, v, torch.randn(rows, keys).to(dtype).detach() > 0, double=False, graph=False, tolerance=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes(dtype):
    """As near to what float64 gives as one rounding of the result, and of each gradient."""
    given = [x.to(dtype) for x in drawn((2, 2, 70, 32), (2, 2, 100, 32), (2, 2, 100, 16))]
    wide = [x.double().requires_grad_() for x in given]
    narrow = sl.bfloat16 if dtype == torch.bfloat16 else sl.float16
    ours = [to_sl(x.float()).to(narrow).requires_grad_() for x in given]
    for options in ({}, {"is_causal": True}):
        y, z = F.scaled_dot_product_attention(*ours, **options), torch.nn.functional.scaled_dot_product_attention(*wide, **options)
        g = drawn(tuple(z.shape), seed=5)[0].to(dtype)
        mine, theirs = sl.autograd.grad(y, ours, to_sl(g.float()).to(narrow)), torch.autograd.grad(z, wide, g.double())
        assert y.dtype is narrow
        unit = torch.finfo(dtype).eps
        for a, b in zip((y, *mine), (z, *theirs)):
            np.testing.assert_allclose(a.detach().float().numpy(), b.detach().numpy(), rtol=unit, atol=2 * unit)


def test_operands_lie_as_they_come():
    """Views of one projection, as networks take them: the same as their copies, and with gradients that land there."""
    qkv = drawn((B, L, 3 * H * E), dtype=torch.float32)[0]

    def heads(m, x):
        q, k, v = (part.reshape(B, L, H, E).transpose(1, 2) for part in x.chunk(3, -1))
        return m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, H * E)

    agree(heads, qkv, double=False, tolerance=1e-5)
    agree(lambda m, x: m.nn.functional.scaled_dot_product_attention(x.mT, x.flip(-1).mT, x[..., ::2, :].mT.expand(B, H * E, -1)[:, :, ::2]),
          drawn((B, 12, H * E))[0], double=False)

    class Heads(sl.nn.Graph):
        def build(self, x):
            return heads(sl, x)

    graph = Heads()
    assert np.array_equal(graph(to_sl(qkv)).numpy(), heads(sl, to_sl(qkv)).numpy())
    kernels = [kernel["op"] for kernel in graph.plan["kernels"]]
    assert kernels.count("attention") == 1 and "softmax" not in kernels and kernels.count("reorder") <= 1


class Trains(sl.nn.Graph):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def build(self, q, k, v):
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, **self.options)
        y.square().sum().backward()
        return y, q.grad, k.grad, v.grad


def eager(q, k, v, **options):
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, **options)
    y.square().sum().backward()
    return y, q.grad, k.grad, v.grad


def test_a_plan_never_holds_the_scores():
    b, h, n, e = 2, 2, 1024, 8
    graph = Trains()
    inputs = [sl.randn(b, h, n, e) for _ in range(3)]
    results = graph(*inputs)
    scores = b * h * n * n * 4
    assert max(arena["bytes"] for arena in graph.plan["arenas"]) < scores / 4
    assert graph.memory()["total"] < scores / 2
    for a, b in zip(results, eager(*inputs)):
        assert np.array_equal(a.numpy(), b.detach().numpy())


@pytest.mark.parametrize("options", [dict(scale=0.3), dict(is_causal=True), dict(dropout_p=0.2), dict(attn_mask="bool"), dict(attn_mask="float"),
                                     dict(attn_mask="bool", dropout_p=0.2, scale=0.3)], ids=str)
def test_scale_mask_softmax_and_dropout_are_one_kernel_forward_and_one_backward(options):  # MF-08
    n = 40
    masks = {"bool": sl.ones(n, n).tril() > 0, "float": sl.randn(n, n)}
    options = {**options, **({"attn_mask": masks[options["attn_mask"]]} if "attn_mask" in options else {})}
    inputs = [sl.randn(2, 3, n, 8) for _ in range(3)]
    graph = Trains(**options)
    sl.manual_seed(5)
    results = graph(*inputs)
    sl.manual_seed(5)
    for got, expected in zip(results, eager(*inputs, **options)):
        assert np.array_equal(got.numpy(), expected.detach().numpy())
    ops = [kernel["op"] for kernel in graph.plan["kernels"]]
    assert ops.count("attention") == ops.count("attention_backward") == 1, ops
    assert not {"softmax", "softmax_backward", "matmul", "dropout", "where", "masked_fill"} & set(ops), ops


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 300, 64), (2, 8, 130, 16), (1, 24, 40, 8)])
def test_bits_are_the_same_on_any_number_of_cores_and_in_a_graph(shape, options):
    inputs = [sl.randn(*shape) for _ in range(3)]
    expected = [x.detach().numpy() for x in eager(*inputs, **options)]
    for cores in (1, 2, 3):
        graph = Trains(**options)
        graph.config.set_cores(cores)
        for a, b in zip(graph(*inputs), expected):
            assert np.array_equal(a.numpy(), b)


def test_dropout_drops_what_dropout_drops():
    """The weights of values that are an identity are the rows of the result."""
    n = 200
    q, k, v = sl.randn(2, 3, n, 8), sl.randn(2, 3, n, 8), sl.eye(n).expand(2, 3, n, n)
    weights = F.scaled_dot_product_attention(q, k, v).numpy()
    sl.manual_seed(5)
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25).numpy()
    sl.manual_seed(5)
    expected = sl.default_generator.dropout(sl.tensor(weights), 0.25).numpy()  # as in graphs
    np.testing.assert_allclose(dropped, expected, rtol=1e-5, atol=1e-7)
    assert abs((dropped == 0).mean() - 0.25) < 0.01
    assert not F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).numpy().any()


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_gradients_know_what_was_dropped(p):
    inputs = [sl.randn(2, 2, 70, 8).double() for _ in range(3)]
    sl.manual_seed(3)
    mine = eager(*inputs, dropout_p=p)
    weights, q, k, v = None, *(x.detach().clone().requires_grad_() for x in inputs)
    sl.manual_seed(3)
    scores = F.softmax(q @ k.mT / math.sqrt(8), -1)
    weights = sl.default_generator.dropout(scores, p) if p < 1 else F.dropout(scores, p)  # as in graphs
    y = weights @ v
    y.square().sum().backward()
    for a, b in zip(mine, (y, q.grad, k.grad, v.grad)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-11, atol=1e-11)


def test_nan_and_infinity_go_where_torchs_go():
    q, k, v = drawn((1, 2, 70, 4), (1, 2, 100, 4), (1, 2, 100, 4), dtype=torch.float32)
    q[0, 0, 3, 1], k[0, 1, 5, 0], v[0, 0, 0, 2] = math.nan, math.nan, math.inf
    with math_only():
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    ours = F.scaled_dot_product_attention(to_sl(q), to_sl(k), to_sl(v))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


WRONG = [  # arguments made of q (2, 4, 5, 6), options
    (lambda m, q: (q, q.double(), q), {}), (lambda m, q: (q.int(), q.int(), q.int()), {}), (lambda m, q: (q[0, 0, 0], q, q), {}),
    (lambda m, q: (q, q[..., :3], q), {}), (lambda m, q: (q, q, q, m.zeros(2, 2)), {}), (lambda m, q: (q, q, q, m.zeros(5, 5, dtype=m.int32)), {}),
    (lambda m, q: (q, q, q, m.zeros(5, 5, dtype=m.float64)), {}), (lambda m, q: (q.repeat(1, 2, 1, 1), q, q), {}), (lambda m, q: (q, q[:, :3], q[:, :3]), {"enable_gqa": True}),
    (lambda m, q: (q, q, q), {"dropout_p": 1.5}), (lambda m, q: (q, q, q), {"dropout_p": -0.5}), (lambda m, q: (q, q, None), {}),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_misuse_is_refused_as_torch_refuses_it(case):
    arguments, options = WRONG[case]
    kind, text = kinds(lambda m, q: m.nn.functional.scaled_dot_product_attention(*arguments(m, q), **options), drawn((2, 4, 5, 6), dtype=torch.float32)[0])
    assert kind[0] is kind[1] is not None, (kind, text)
    assert text


def test_values_shorter_than_keys_are_refused():
    q = sl.randn(1, 2, 5, 4)
    with pytest.raises(RuntimeError, match="key and value equally long"):
        F.scaled_dot_product_attention(q, q, q[:, :, :3])


def test_kernels_are_chosen_by_torchs_names():
    from sluice.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention import SDPBackend as Theirs
    assert {name: int(one) for name, one in SDPBackend.__members__.items()} == {name: int(one) for name, one in Theirs.__members__.items()}
    q = sl.randn(1, 2, 5, 4)
    for chosen in (SDPBackend.MATH, [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        with sdpa_kernel(chosen):
            assert np.array_equal(F.scaled_dot_product_attention(q, q, q).numpy(), sdpa_kernel(chosen)(F.scaled_dot_product_attention)(q, q, q).numpy())
    for module, backend in ((torch, Theirs.MATH), (sl, SDPBackend.MATH)):
        for bad in ("MATH", (backend,), 1):
            with pytest.raises(AssertionError, match="must be an instance of SDPBackend or a list"), module.nn.attention.sdpa_kernel(bad):
                pass


@pytest.mark.parametrize("rows, keys", [(3, 5), (4, 4), (5, 3)])
def test_causal_masks_have_two_corners(rows, keys):
    import sluice.nn.attention.bias as bias
    import torch.nn.attention.bias as theirs
    for name in ("causal_upper_left", "causal_lower_right"):
        expected = getattr(theirs, name)(rows, keys)._materialize()
        assert np.array_equal(getattr(bias, name)(rows, keys).numpy(), expected.numpy()), name
        with pytest.raises(AssertionError, match="only supports 2D tensors"):
            getattr(bias, name)(2, 3, 4)
    q, k, v = drawn((2, rows, 4), (2, keys, 4), (2, keys, 4))
    mask = bias.causal_upper_left(rows, keys)
    a, b = (F.scaled_dot_product_attention(*map(to_sl, (q, k, v)), **options).numpy() for options in ({"attn_mask": mask}, {"is_causal": True}))
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
