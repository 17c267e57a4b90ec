"""Results and indices where torch and a plain formula differ: extremes, no axes, no elements, NaN."""

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same

import sluice as sl
import sluice.nn.functional as SF
from expressions import of


def both(expression):
    return of(sl, SF, expression), of(torch, TF, expression)


def check(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        if theirs.dtype is torch.bfloat16:
            ours, theirs = ours.float(), theirs.float()
        assert_same(ours, theirs, 1e-6)
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for x, y in zip(ours, theirs):
            check(x, y)
    else:
        assert ours == theirs


VALUES = """
torch.allclose(T([1.]), T([inf]))
torch.allclose(T([inf, 1.]), T([inf, 1.]))
torch.isclose(T([inf, nan, -inf]), T([inf, nan, inf]), equal_nan=True)
torch.isclose(T([inf, nan, -inf]), T([inf, nan, inf]))
torch.isclose(T([100], dtype=int8), T([-100], dtype=int8), atol=200)
torch.isclose(T([3], dtype=uint8), T([4], dtype=uint8), atol=1, rtol=0)
torch.isclose(T([True, True]), T([True, False]))
torch.isclose(T([1, 2]), T([1, 3]), rtol=0, atol=0)
T([1, 255, 0, 128], dtype=uint8).sort(descending=True)
T([1, -128, 127, 0], dtype=int8).sort(descending=True)
T([-2**63, 2**63 - 1, 0]).sort(descending=True)
T([nan, 1., inf, -inf]).sort()
T([nan, 1., inf, -inf]).sort(descending=True)
T([nan, 1., nan, -inf]).sort(descending=True, stable=True)
T([1, 1, 2, 2, 0]).sort(descending=True, stable=True)
T([True, False, True]).sort(stable=True)
T([True, False, True]).sort(descending=True, stable=True)
T([[3., 1.], [1., 2.]], dtype=bfloat16).sort(0)
T([3., 1., nan], dtype=float16).sort()
T([[3., 1.], [1., 2.]]).argsort(1, descending=True)
torch.sort(T([2, 1]), 0, True)
torch.zeros(2, 0).sort()
torch.zeros(0, 2).sort(0)
T([1, 255, 0, 128], dtype=uint8).topk(2)
T([1, -128, 127], dtype=int8).topk(2, largest=False)
T([nan, 1., inf, -inf]).topk(2)
T([nan, 1., inf, -inf]).topk(2, largest=False)
T([3., 1.], dtype=bfloat16).topk(1)
torch.zeros(2, 0).topk(0)
T([[1., 5.], [2., 0.]]).topk(1, 0)
T(3.).topk(1)
T(3.).topk(0)
T(3.).sort()
T(3.).argsort()
T(3.).max(0)
T(3.).min(-1, keepdim=True)
T(3.).cumsum(0)
T(3.).argmax(0)
T(3.).gather(0, T(0))
T(3.).gather(0, T([0, 0]))
T([3., 4.]).gather(0, T(1))
T(3.).scatter(0, T(0), T(5.))
T(3.).scatter(0, T([0]), T([5.]))
T([3., 4.]).scatter(0, T(1), T(5.))
T([3., 4.]).scatter(0, T([0]), T([5., 6., 7.]))
T([[3., 4.]]).scatter_add(1, T([[0]]), T([[5., 6.], [7., 8.]]))
T(3.).scatter_add(0, T(0), T(2.))
T(3.).index_select(0, T(0))
T(3.).index_select(0, T([0]))
T([3., 4.]).index_select(0, T(1))
T(3.).index_add(0, T(0), T(2.))
T([3., 4.]).index_add(0, T([1, 1]), T([2., 1.]))
T([3., 4.], dtype=bfloat16).argmax()
T([[1., nan], [0., 2.]]).nonzero()
T([1., 0., 2.], dtype=bfloat16).nonzero()
T([1., 0., 2.], dtype=float16).nonzero()
T([True, False]).nonzero(as_tuple=True)
T(3.).nonzero()
T(0.).nonzero()
T(3.).nonzero(as_tuple=True)
T(0.).nonzero(as_tuple=True)
torch.cat([T([]), T([[1., 2.]])])
torch.cat([T([[1, 2]]), T([])])
torch.cat([T([]), T([[1., 2.]])], 1)
torch.cat([T([]), torch.zeros(0, 2)], 1)
torch.cat([T([]), T([])])
tuple(torch.broadcast_shapes(3, (2, 1)))
tuple(torch.broadcast_shapes())
tuple(torch.broadcast_shapes((0,), (1,), (4, 1)))
torch.broadcast_tensors(T([1.]), T([[1.], [2.]]))
torch.broadcast_tensors()
T([1., 2.]).masked_select(T([True, False]))
T([1., 2.]).masked_select(T([[True, False], [True, True]]))
T([1., 2.]).masked_select(T(True))
T(1.).masked_select(T(False))
torch.where(T([1, 0], dtype=uint8), 1., 0.)
torch.roll(T([[1, 2], [3, 4]]), 1)
torch.roll(T(1.), 1)
T([[1, 2], [3, 4]]).repeat(2, 0)
T([-1., 0., nan]).clamp(nan, 1)
T([-1., 0., nan]).clamp(T(nan), T(1.))
T([-1., 0., nan]).clamp(min=2, max=1)
T([-1, 0, 5]).clamp(min=0.5, max=3)
T([1e8]).lerp(T([1.]), 1.)
T([1e8, 1e8]).lerp(T([1., 1.]), T([1., 0.25]))
T([1., 2.], dtype=float64).add(T([1, 2]), alpha=0.1)
T([1, 2]).add(T([1.5]), alpha=0.1)
T([1., 2.], dtype=float64).sub(T([3, 7]), alpha=1e-3)
T([True]).add(T([True]), alpha=True)
T([7, -7, 2**60 + 1]).div(T([2, 2, 3]), rounding_mode='trunc')
T([7, -7], dtype=int8).div(2, rounding_mode='trunc')
torch.addmm(T([nan]), T([[1.]]), T([[1.]]), beta=0)
T([0, 1, 255], dtype=uint8).cosh()[:2]
T([0, 1, 3], dtype=uint8).sinh()
T([True]).cosh()
T([-3], dtype=int8).cosh()
T([1e-5, -1e-5, 2., 0.]).sinh()
(2. ** torch.arange(-126., 128.)).log2().floor()
(2. ** torch.arange(-14., 16.)).half().log2().floor()
(T([10.] * 5) ** torch.arange(5.)).log10().floor()
T([8, 0]).log2()
T([60000.], dtype=float16).norm()
T([300.] * 2, dtype=float16).norm(3)
T([60000.] * 2, dtype=float16).norm(0)
T([60000., 60000.], dtype=float16).std()
T([60000., 60000.], dtype=float16).mean()
(torch.arange(4096.) % 7).half().std()
(torch.arange(4096.) % 7).bfloat16().var(0)
torch.zeros(0, 3).norm(2, 0)
T([0., 1.]).norm(-1)
T([0., 1.]).norm(0.5)
T([2.]).var()
T(2.).var(correction=0)
F.cosine_similarity(T([[1e-10, 0.]]), T([[1e-10, 0.]]))
F.cosine_similarity(T([[1e-10, 0.]]), T([[1., 0.]]))
F.cosine_similarity(T([[1., 0.]]), T([1., 0.]), dim=-1)
F.cosine_similarity(T([[1e-10, 0.]], dtype=float64), T([[1., 0.]]))
F.logsigmoid(T([-50., -21., 0., 21., 50.], dtype=float64))
F.hardtanh(T([-2., -1., nan, 1., inf]))
F.relu6(T([-1., 6., 7., nan]))
torch.tensor(np.float64(2))
torch.tensor([np.float64(2)])
torch.tensor([[np.float32(2)]])
torch.tensor(np.int32(2))
torch.tensor(np.bool_(True))
torch.zeros(2, dtype=float)
T([1]).to(float)
torch.zeros(2, 0).logsumexp(1)
T([True, False]).max(0)
T([True, False]).min(0)
T([2, 0], dtype=uint8).any()
T([2, 0], dtype=uint8).all(0)
T([200, 100], dtype=uint8).sum(dtype=uint8)
T([1, 2]).prod(dtype=float64)
T([1., 2.]).cumsum(0, dtype=float64)
T([-5, 5, 0]).relu()
F.hardtanh(T([-5, 5, 0]))
F.relu6(T([-5, 7]))
torch.hstack([T(1.), T(2.)])
torch.vstack([T(1.), T(2.)])
torch.vstack([T([1., 2.]), T([[3., 4.]])])
torch.full((1,), 2**53 + 1)
T([2**53 + 1]) == 2**53 + 1
T([2**60 + 1]) + (2**60 + 1)
T([-1]) * (2**62 + 1)
T([2**53 + 3]).masked_fill(T([True]), -2**53 - 1)
T([2**53 + 3]).fill_(2**53 + 1)
T([2**62]).clamp(max=2**53 + 1)
torch.tensor(2**62 + 1)
torch.full((1,), -1, dtype=uint8)
torch.full((1,), 1.7, dtype=int64)
T([1., 2.]).masked_fill(T([True, False]), T(5))
T([1., 2.]) * np.ones(2)
T([1., 2.]) + np.ones(2, dtype=np.float32)
T([1, 2]) - np.array(1)
T([1., 2.]) == np.array([1., 3.])
T([1., 2.]) * np.float64(2)
F.conv1d(T([[[1., 2., 3.]]]), T([[[1., 2.]]]), padding='same')
F.conv1d(T([[[1., 2., 3., 4.]]]), T([[[1., 2., 3., 4.]]]), padding='same')
torch.nn.Conv1d(1, 1, 4, padding='same', dilation=3)(torch.ones(2, 1, 7)).shape[-1]
F.conv2d(torch.arange(12.).reshape(1, 1, 3, 4), torch.ones(1, 1, 2, 3), padding='same')
F.kl_div(T([[-1., -2.]]), T([[0., .5]]), reduction='sum')
F.kl_div(T([[-1., -2.]]), T([[-.5, .5]]), reduction='none')
F.binary_cross_entropy(T([0., 1., 0., 1., .5, 1e-9]), T([0., 1., 1., 0., 1., 0.]), reduction='none')
F.binary_cross_entropy(T([.2, .7]), T([0., 1.]), weight=T([.5, 2.]))
F.binary_cross_entropy_with_logits(T([100., -100., 0.]), T([0., 1., .5]), reduction='none')
F.scaled_dot_product_attention(EYE, EYE, T([[1., 2.], [3., 4.]]), attn_mask=T([[False, False], [True, False]]))
F.scaled_dot_product_attention(EYE, EYE, T([[1., 2.], [3., 4.]]), attn_mask=T([[-inf, -inf], [0., 1.]]))
F.scaled_dot_product_attention(EYE, EYE, EYE, attn_mask=T([[True], [False]]))
F.scaled_dot_product_attention(EYE, EYE, EYE, T([False, False]))
F.scaled_dot_product_attention(EYE, EYE, EYE, None, 0.0, True)
F.scaled_dot_product_attention(EYE, EYE, EYE, dropout_p=1.0)
T([1.5]).to(int)
"""

INDEXING = """
x[None]
x[None, None, 1]
x[..., None]
x[None, ..., None]
x[()]
x[...]
x[True]
x[False]
x[True, 1]
x[1, True]
x[:, True]
x[None, True, 1:, None]
x[T(True)]
x[T(False), 0]
x[T([True, False])]
x[T([1, 0], dtype=uint8)]
x[[]]
x[[True, False]]
x[[1, 0, 1]]
x[range(2)]
x[[0, 1], [1, 2]]
x[[[0, 1], [1, 2]]]
x[[0, slice(1, 3)]]
x[[None, 0]]
x[T([0, 1]), None, T([1, 2])]
x[None, T([0, 1]), None, 1]
x[..., T([-1, 0])]
x[T([0, -1]), T([-1, -3])]
x[np.array([1, 0])]
x[np.int64(1)]
x[np.array(True)]
x[T([[True, False, True], [False, False, True]])]
x[T(0):T(1)]
""".strip().splitlines()


@pytest.mark.parametrize("expression", VALUES.strip().splitlines())
def test_value_is_torchs(expression):
    check(*both(expression))


@pytest.mark.parametrize("index", INDEXING)
def test_indexing_is_torchs(index):
    results = []
    for m, f in ((sl, SF), (torch, TF)):
        x = m.arange(6.0).reshape(2, 3).clone().requires_grad_()
        y = of(m, f, f"lambda x: {index}")(x)
        (y * y).sum().backward()
        results.append([y, x.grad])
    check(*results)


@pytest.mark.parametrize("index", [i for i in INDEXING if "uint8" not in i])  # torch cannot write by those
def test_writing_by_index_is_torchs(index):
    results = []
    for m in (sl, torch):
        x = m.arange(6.0).reshape(2, 3).clone()
        exec(f"{index} = 7.", {"x": x, "T": m.tensor, "np": np})  # noqa: S102
        results.append(x)
    check(*results)


@pytest.mark.parametrize("value", ["T([9.])", "T([[9.]])", "T([[9., 8., 7.]])", "T([[[9., 8., 7.]]])", "T(9.)", "9", "True"])
@pytest.mark.parametrize("index", ["0, 0", "0", "1:", "[0, 1]", "..."])
def test_what_is_written_may_have_axes_of_one_in_front(index, value):
    results = []
    for m in (torch, sl):
        x, failed = m.zeros(2, 3), False
        try:
            exec(f"x[{index}] = {value}", {"x": x, "T": m.tensor})  # noqa: S102
        except (RuntimeError, ValueError):
            failed = True
        results.append((x, failed))
    assert results[0][1] == results[1][1]
    assert_same(results[1][0], results[0][0])


@pytest.mark.parametrize("expression", ["T([1]) / 2", "T([1]).exp()", "T([True]) * 2.5", "T(1.5)", "T([1.])", "torch.zeros(1)",
                                        "torch.where(T([True]), 1, 2.5)", "T([1]).atan2(T([2]))", "torch.arange(2.5)", "T([1]).cosh()",
                                        "T([1.], dtype=float32) * 2.5", "torch.full((1,), 1.5)", "torch.isclose(T([1]), T([2]))"])
def test_the_default_dtype_is_that_of_numbers_and_of_functions_of_integers(expression):
    try:
        for m in (sl, torch):
            m.set_default_dtype(m.float64)
        check(*both(expression))
    finally:
        for m in (sl, torch):
            m.set_default_dtype(m.float32)


def test_autograd_does_not_see_writes_to_data():
    grads = []
    for m in (sl, torch):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        y = x * x
        x.data.add_(1)
        assert x._version == 0
        y.sum().backward()
        grads.append(x.grad)
    assert_same(*grads)


@pytest.mark.parametrize("index", [i for i in INDEXING if "T([" not in i or "True" in i])
def test_indexing_in_a_graph_is_torchs(index):
    class Indexed(sl.nn.Graph):
        def build(self, x):
            return of(sl, SF, f"(lambda x: {index})")(x)

    x = torch.arange(6.0).reshape(2, 3)
    assert_same(Indexed()(sl.tensor(x.numpy())), of(torch, TF, f"(lambda x: {index})")(x))
