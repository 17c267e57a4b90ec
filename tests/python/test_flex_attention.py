"""Attention by functions of scores against torch's: values, gradients, masks, blocks, errors; eager, compiled, in graphs."""

import math

import numpy as np
import pytest
import torch

import sluice as sl
from sluice.nn import Graph, Module
from sluice.nn.attention import flex_attention as ours
from torch.nn.attention import flex_attention as theirs

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile", "ignore:return_lse is deprecated")
SCORES = {"none": lambda lib: None,
          "relative": lambda lib: lambda s, b, h, q, kv: s + (q - kv),
          "alibi": lambda lib: lambda s, b, h, q, kv: s + lib.exp2(-(h + 1) * 2.0) * (kv - q),
          "causal": lambda lib: lambda s, b, h, q, kv: lib.where(q >= kv, s, -float("inf")),
          "capped": lambda lib: lambda s, b, h, q, kv: 2.0 * lib.tanh(s / 2.0)}
MASKS = {"none": lambda lib: None,
         "causal": lambda lib: lambda b, h, q, kv: q >= kv,
         "window": lambda lib: lambda b, h, q, kv: (q >= kv) & (q - kv < 5),
         "some": lambda lib: lambda b, h, q, kv: (q + h) % 3 == b % 2,  # leaves whole rows out
         "either": lambda lib: (ours if lib is sl else theirs).or_masks(lambda b, h, q, kv: q >= kv, lambda b, h, q, kv: kv < 3)}


def arrays(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blocks(lib, mask, shape, size=4):
    module = ours if lib is sl else theirs
    return None if mask is None else module.create_block_mask(mask, *shape, device="cpu", BLOCK_SIZE=size)


def given(lib, sizes):
    batch, heads, kept, length, keys, width, out = sizes
    shapes = (batch, heads, length, width), (batch, kept, keys, width), (batch, kept, keys, out)
    return [lib.tensor(arrays(shape, n)) for n, shape in enumerate(shapes)]


def by_definition(q, k, v, score_mod, mask_mod):
    """With torch, whose flex_attention has no gradients on CPUs."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    at = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
    scores = scores if score_mod is None else score_mod(scores, *at)
    scores = scores if mask_mod is None else scores.masked_fill(~mask_mod(*at), -math.inf)
    return scores.softmax(-1).nan_to_num(0) @ v


@pytest.mark.parametrize("score,mask,sizes", [
    *((score, mask, (2, 4, 4, 7, 7, 8, 8)) for score in SCORES for mask in ("none", "some")),
    *(("relative", mask, sizes) for mask in MASKS for sizes in ((1, 4, 2, 1, 9, 4, 5), (2, 2, 1, 6, 3, 8, 1)))])
def test_results_and_gradients_are_torchs(score, mask, sizes):
    mine, right = given(sl, sizes), given(torch, sizes)
    gqa, shape = sizes[1] != sizes[2], (*sizes[:2], *sizes[3:5])
    result = ours.flex_attention(*(t.requires_grad_() for t in mine), SCORES[score](sl), blocks(sl, MASKS[mask](sl), shape), enable_gqa=gqa)
    np.testing.assert_allclose(result.detach().numpy(), theirs.flex_attention(
        *right, SCORES[score](torch), blocks(torch, MASKS[mask](torch), shape), enable_gqa=gqa).numpy(), rtol=2e-5, atol=2e-6)
    weights = arrays(tuple(result.shape), 9)
    (result * sl.tensor(weights)).sum().backward()
    defined = by_definition(*(t.requires_grad_() for t in right), SCORES[score](torch), MASKS[mask](torch))
    (defined * torch.tensor(weights)).sum().backward()
    for one, other in zip(mine, right):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.nan_to_num(0).numpy(), rtol=5e-5, atol=5e-6)


def test_sums_and_largest_scores_are_given_too():
    sizes, found = (2, 4, 2, 7, 7, 8, 8), []
    for lib, module in ((sl, ours), (torch, theirs)):
        found.append(module.flex_attention(*given(lib, sizes), SCORES["alibi"](lib), blocks(lib, MASKS["some"](lib), (2, 4, 7, 7)),
                                           enable_gqa=True, return_lse=True))
    for mine, right in zip(*found):
        np.testing.assert_allclose(mine.numpy(), right.numpy(), rtol=2e-5, atol=2e-6)
    q = arrays((1, 2, 3, 4), 0)
    _, aux = ours.flex_attention(*(sl.tensor(q),) * 3, return_aux=ours.AuxRequest(max_scores=True))
    assert aux.lse is None
    np.testing.assert_allclose(aux.max_scores.numpy(), (q @ q.swapaxes(-1, -2) / 2).max(-1), rtol=1e-6)


def test_tables_are_indexed_and_have_gradients():
    grads, results, q = [], [], arrays((2, 2, 7, 4), 1)
    for lib in (sl, torch):
        table, lengths = lib.tensor(arrays((2, 13), 5)).requires_grad_(), lib.tensor([4, 7])

        def score(s, b, h, q, kv):
            return s + table[h, q - kv + 6]

        def mask(b, h, q, kv):
            return kv < lengths[b]

        module, t = ours if lib is sl else theirs, lib.tensor(q)
        with lib.no_grad():
            block_mask = module.create_block_mask(mask, 2, None, 7, 7, device="cpu", BLOCK_SIZE=4)
            results.append(module.flex_attention(t, t, t, score, block_mask).numpy())
        result = ours.flex_attention(t, t, t, score, block_mask) if lib is sl else by_definition(t, t, t, score, mask)
        result.pow(2).sum().backward()
        grads.append(table.grad.numpy())
    np.testing.assert_allclose(*results, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(*grads, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "none"])
@pytest.mark.parametrize("shape", [(2, 3, 9, 13), (None, None, 8, 4), (1, None, 1, 130)])
def test_blocks_are_torchs(mask, shape):
    mine, right = blocks(sl, MASKS[mask](sl), shape), blocks(torch, MASKS[mask](torch), shape)
    assert mine.shape == tuple(right.shape) and mine.numel() == right.numel()
    assert math.isclose(mine.sparsity(), right.sparsity(), abs_tol=1e-4)
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        np.testing.assert_array_equal(getattr(mine, name).numpy(), getattr(right, name).numpy(), name)
    np.testing.assert_array_equal(mine.to_dense().numpy(), right.to_dense().numpy())
    counts, columns = mine.kv_num_blocks.numpy(), mine.kv_indices.numpy()  # beyond the count the order is free
    right_columns = right.kv_indices.numpy()
    for at in np.ndindex(*counts.shape):
        assert sorted(columns[at][: counts[at]]) == sorted(right_columns[at][: counts[at]])


def test_listed_blocks_leave_nothing_elsewhere():
    listed = ours.BlockMask.from_kv_blocks(sl.tensor([[[1, 2]]], dtype=sl.int32), sl.tensor([[[[1, 0], [0, 1]]]], dtype=sl.int32), BLOCK_SIZE=2)
    q = sl.tensor(arrays((1, 1, 4, 3), 0))
    mask = sl.tensor([[[[0, 0, 1, 1]] * 2 + [[1, 1, 1, 1]] * 2]]).bool()
    np.testing.assert_array_equal(ours.flex_attention(q, q, q, block_mask=listed).numpy(),
                                  sl.nn.functional.scaled_dot_product_attention(q, q, q, mask).numpy())
    np.testing.assert_allclose(ours.flex_attention(q, q, q, lambda s, *_: s, listed).numpy(),
                               sl.nn.functional.scaled_dot_product_attention(q, q, q, mask).numpy(), rtol=1e-5, atol=1e-6)
    assert listed.to_string() == "(0, 0)\n  ██\n████" and listed[:, :, 0].to_dense().tolist() == [[[[0, 1]]]]


class Net(Module):
    def __init__(self, score, mask):
        super().__init__()
        self.score, self.mask, self.project = score, mask, sl.nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.project(x).reshape(2, 6, 2, 12).transpose(1, 2).chunk(3, -1)
        return ours.flex_attention(q, k, v, self.score, self.mask)


@pytest.mark.parametrize("score,mask", [("alibi", "window"), ("none", "causal"), ("capped", "none")])
def test_compiled_and_in_graphs_the_same(score, mask):
    sl.manual_seed(0)
    net, x = Net(SCORES[score](sl), blocks(sl, MASKS[mask](sl), (2, 2, 6, 6))), sl.tensor(arrays((2, 6, 8), 3))

    class Step(Graph):
        def build(self, x):
            return net(x)

    graph = Step()
    right = net(x).detach().numpy()
    np.testing.assert_allclose(sl.compile(net)(x).detach().numpy(), right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(graph(x).detach().numpy(), right, rtol=1e-5, atol=1e-6)


def test_half_precision_has_scores_in_float32():
    q = sl.tensor(arrays((1, 2, 5, 8), 0)).bfloat16()
    score = lambda s, b, h, q, kv: s + 0.25 * (q - kv)  # noqa: E731
    seen = []
    mine = ours.flex_attention(q, q, q, lambda s, *at: (seen.append(s.dtype), score(s, *at))[1])
    t = torch.tensor(arrays((1, 2, 5, 8), 0)).bfloat16()
    assert seen == [sl.float32] and mine.dtype == sl.bfloat16
    np.testing.assert_allclose(mine.float().numpy(), theirs.flex_attention(t, t, t, score).float().numpy(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("call,error", [
    (lambda q, k: ours.flex_attention(q[0], k, k), "must have 4 dims"),
    (lambda q, k: ours.flex_attention(q, k[..., :2], k), "same channels"),
    (lambda q, k: ours.flex_attention(q, k[:, :1], k[:, :1]), "enable_gqa=True"),
    (lambda q, k: ours.flex_attention(q[:, :3], k[:, :2], k[:, :2], enable_gqa=True), "multiple of key's"),
    (lambda q, k: ours.flex_attention(q, k, k, block_mask=ours.create_block_mask(ours.noop_mask, None, None, 4, 5)), "of 4 queries and 5 keys"),
    (lambda q, k: ours.flex_attention(q, k, k, return_lse=True, return_aux=ours.AuxRequest()), "one of them must be left out"),
    (lambda q, k: ours.create_mask(lambda b, h, q, kv: q - kv, None, None, 4, 5), "must give bool")])
def test_bad_input_is_an_error(call, error):
    with pytest.raises(ValueError, match=error):
        call(sl.ones(2, 4, 3, 4), sl.ones(2, 4, 5, 4))
