"""Where torch allows a result to be written, and what it refuses."""

import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same

import sluice as sl
import sluice.nn.functional as SF
from expressions import of

# What torch refuses, and a word of both messages.
REFUSED = """
T([1, 2]).add(T([1, 2]), alpha=0.1)  # alpha must not be a floating point number
T([1, 2]).sub(1, alpha=0.1)  # alpha must not be a floating point number
T([1]).add(T([True]), alpha=True)  # Boolean alpha
torch.isclose(T([1]), T([1.]))  # did not match
torch.isclose(T([1.]), T([1.]), rtol=-1)  # rtol must be greater than or equal to zero
torch.allclose(T([1.]), T([1.]), atol=-1)  # atol must be greater than or equal to zero
T(3.).topk(2)  # selected index k out of range
T([1., 2.]).topk(3)  # selected index k out of range
T([1., 2.]).topk(-1)  # selected index k out of range
torch.broadcast_shapes((2,), (3,))  # broadcast
torch.broadcast_shapes((0,), (3,))  # broadcast
torch.broadcast_shapes((-1,), (3,))  # negative
T([1., 2.]).masked_select(T([1, 0]))  # BoolTensor
torch.cat([])  # non-empty|no tensors
T([1., 2., 3.])[5]  # out of bounds
T([1., 2., 3.])[T([5])]  # out of (bounds|range)
T([[1., 2.], [3., 4.]])[T([0]), T([2])]  # out of (bounds|range)
T([[1., 2.], [3., 4.]])[T([1]), T([-3])]  # out of (bounds|range)
T([[1., 2.], [3., 4.]])[T([-1]), T([-1])][T([0]), T([0])]  # too many indices
T([1., 2., 3.])[1.0]  # only integers|must be ints
T([1., 2., 3.])[T([0., 1.])]  # must be
T([1., 2., 3.])[T([0, 1], dtype=int8)]  # must be
T([1., 2., 3.])[::-1]  # step
T([1., 2., 3.])[::0]  # step
F.cosine_similarity(T([[1]]), T([[1]]))  # floating point
T([True]) - T([True])  # bool tensor
1 - T([True])  # bool tensor
+T([True])  # bool tensor
T([2]) ** -1  # negative integer powers
T([1], dtype=uint8) ** -3  # negative integer powers
torch.full((1,), 300, dtype=uint8)  # without overflow
torch.full((1,), -129, dtype=int8)  # without overflow
torch.full((1,), nan, dtype=int64)  # without overflow
T([1], dtype=uint8).fill_(300)  # without overflow
T([1], dtype=uint8).masked_fill(T([True]), 300)  # without overflow
T([1], dtype=uint8).clamp(max=300)  # without overflow
T([1.]).fill_(T([1.]))  # 0-dimension
T([1., 2.]).masked_fill(T([True, False]), T([1.]))  # 0-dimension
T([1, 2]).div_(2)  # can't be cast
T([1, 2]).add_(1.5)  # can't be cast
T([1, 2]).add_(T([1.5, 1.]))  # can't be cast
T([1, 2]).exp_()  # can't be cast
T([1, 2]).clamp_(0.5)  # can't be cast
T([True]).add_(1)  # can't be cast
F.glu(T([1., 2., 3.]))  # must be even
F.one_hot(T([3]), 3)  # smaller than num_classes
F.one_hot(T([-1]), 3)  # non-negative
F.avg_pool2d(torch.ones(1, 1, 2, 2), 2, divisor_override=0)  # divisor must be not zero
F.binary_cross_entropy(T([.5, .5]), T([1.]))  # size
torch.ones(2.5)  # int
""".strip().splitlines()

WRITTEN = """
w / z
z / w
w * z
w ** 2.5
w ** 0.5
w ** -1
w ** -0.5
z ** w
w.exp()
w.log()
w.sqrt()
w.rsqrt()
w.reciprocal()
w.tanh()
w.sigmoid()
w.sin()
w.relu()
w.abs()
w.log2()
F.gelu(w)
F.softplus(w)
F.hardtanh(w)
w.softmax(0)
w.log_softmax(0)
w.amax(0, keepdim=True)
w.cumsum(0)
w.clamp(0.5, 1.)
w.maximum(z)
w.fmod(z)
w.atan2(z)
w.lerp(z, 0.5)
w.gather(0, T([2, 0, 1]))
torch.cat([w, z])
F.pad(w, (1, 1))
F.mse_loss(w, z, reduction='none')
F.layer_norm(w, (3,))
""".strip().splitlines()


@pytest.mark.parametrize("expression", WRITTEN)
def test_a_result_may_be_written_where_torch_allows_it(expression):
    """Its gradient needs the result, or not."""
    found = []
    for m, f in ((torch, TF), (sl, SF)):
        w, z = m.tensor([0.3, 0.5, 0.7], requires_grad=True), m.tensor([0.6, 0.4, 0.9])
        y = of(m, f, f"lambda w, z: {expression}")(w, z)
        y.add_(1)
        if found and isinstance(found[0], Exception):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
            return
        try:
            y.sum().backward()
            found.append(w.grad)
        except RuntimeError as error:
            if m is sl:
                raise
            found.append(error)
    assert_same(found[1], found[0], 1e-4)


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_is_torchs(case):
    expression, _, word = case.partition("  # ")
    with pytest.raises(Exception, match=word) as theirs:
        of(torch, TF, expression)
    with pytest.raises(theirs.type, match=word):
        of(sl, SF, expression)
