"""Views one by one: they share memory, have torch's strides, cost no kernel in a plan, and give torch's values and gradients."""

import json
import subprocess

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

VIEWS = {
    "reshape": [lambda x: x.reshape(6, 4), lambda x: x.reshape(-1), lambda x: x.reshape(2, -1, 2)],  # OPS-02
    "view": [lambda x: x.view(4, 6), lambda x: x.view(-1, 2), lambda x: x.view((2, 1, 3, 4))],  # OPS-03
    "squeeze": [lambda x: x.view(2, 1, 12, 1).squeeze(-1), lambda x: x.view(2, 1, 12, 1).squeeze(),
                lambda x: x.view(2, 1, 12, 1).squeeze(-3), lambda x: x.view(2, 1, 12, 1).squeeze((1, -1)), lambda x: x.squeeze(0)],  # OPS-04
    "unsqueeze": [lambda x: x.unsqueeze(0), lambda x: x.unsqueeze(-1), lambda x: x.unsqueeze(-3), lambda x: x.unsqueeze(2)],  # OPS-05
    "transpose": [lambda x: x.transpose(0, 1), lambda x: x.transpose(-1, 0), lambda x: x.view(6, 4).t(), lambda x: x.swapaxes(1, 2)],  # OPS-06
    "permute": [lambda x: x.permute(2, 0, 1), lambda x: x.permute((-1, 1, 0)), lambda x: x.movedim(0, -1)],  # OPS-07
    "narrow": [lambda x: x.narrow(1, 1, 2), lambda x: x.narrow(-1, -3, 2), lambda x: x[:, :, 1::2], lambda x: x.select(1, 2)],  # OPS-08
    "expand": [lambda x: x.unsqueeze(1).expand(2, 5, 3, 4), lambda x: x.expand(3, -1, -1, -1), lambda x: x[:1].expand(7, 3, 4)],  # OPS-09
}
CASES = [pytest.param(f, id=f"{name}{i}") for name, fs in VIEWS.items() for i, f in enumerate(fs)]
STRIDED = [f for name in ("transpose", "permute", "narrow", "expand") for f in VIEWS[name]]


class Applied(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.config.disable_pass("fuse_elementwise")  # so that ops are kernels

    def build(self, x):
        return self.function(x)


def kernels(graph, tmp_path):
    """As `plan-viz stats` counts them."""
    graph.save_plan(tmp_path / "plan.json")
    text = subprocess.run([find_tool("plan-viz"), "stats", str(tmp_path / "plan.json"), "--json"], capture_output=True, text=True,
                          check=True).stdout
    return json.loads(text)["kernels"]


@pytest.mark.parametrize("view", CASES)
def test_a_view_is_torchs_and_shares_memory(view):  # OPS-02 to OPS-09
    theirs = torch.arange(24.0).reshape(2, 3, 4)
    ours = to_sl(theirs)
    got, expected = view(ours), view(theirs)
    assert got.stride() == expected.stride() and got.storage_offset() == expected.storage_offset()
    assert got.is_contiguous() == expected.is_contiguous() and got._is_view()
    assert got.data_ptr() - ours.data_ptr() == expected.data_ptr() - theirs.data_ptr()
    assert_same(got, expected, 0)
    # A write through the base is seen in the view, and the other way round where elements are distinct.
    for x in (ours, theirs):
        x.mul_(2)
    assert_same(got, expected, 0)
    if 0 not in got.stride():
        for y in (got, expected):
            y[..., :1] += 100
        assert_same(ours, theirs, 0)


@pytest.mark.parametrize("view", CASES)
def test_a_view_costs_no_kernel(view, tmp_path):  # OPS-02 to OPS-09
    # The view's base, and its reader, are kernels with and without it.
    without, graph = Applied(lambda x: x.exp().sum()), Applied(lambda x: view(x.exp()).sum())
    x = torch.rand(2, 3, 4)
    without(to_sl(x))
    assert_same(graph(to_sl(x)), view(x.exp()).sum(), 1e-6)
    assert kernels(graph, tmp_path) == kernels(without, tmp_path) == 2
    # An op that works element by element reads its elements where they are.
    graph = Applied(lambda x: (view(x.exp()) * 2).relu().sum())
    graph(to_sl(x))
    assert not [k["op"] for k in graph.plan["kernels"] if k["op"] in ("copy", "reorder")]


@pytest.mark.parametrize("view", CASES)
def test_gradients_and_ops_of_views(view):  # OPS-06 to OPS-09
    theirs = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    ours = to_sl(theirs)
    weight = torch.randn(view(theirs).shape, dtype=torch.float64)
    for x, w in ((ours, to_sl(weight)), (theirs, weight)):
        y = view(x)
        ((y * w).sin() + y.exp() * y.sum()).sum().backward()
    assert_same(ours.grad, theirs.grad, 1e-12)

    class Gradient(nn.Graph):
        def build(self, x, w):
            x = x.detach().requires_grad_()
            y = view(x)
            ((y * w).sin() + y.exp() * y.sum()).sum().backward()
            return x.grad

    assert_same(Gradient()(to_sl(theirs.detach()), to_sl(weight)), theirs.grad, 1e-12)


def test_sizes_that_do_not_fit_are_refused():  # OPS-03
    x = sl.zeros(2, 3, 4)
    with pytest.raises(RuntimeError, match=r"size \[24\] is not compatible .* at least one dimension spans .*two contiguous subspaces: use re"):
        x.transpose(0, 1).view(24)
    for call, text in [(lambda: x.view(5, 5), r"\(2, 3, 4\) has 24 elements, \(5, 5\) has 25"), (lambda: x.view(-1, 7), "cannot infer -1.*24 elements"),
                       (lambda: x.reshape(-1, -1), "only one can be inferred"), (lambda: x.view(2, -2), "negative dim"),
                       (lambda: x.unsqueeze(5), r"out of range: 5; must be in \[-4, 3\]"), (lambda: x.squeeze(3), r"out of range: 3"),
                       (lambda: x.narrow(1, 2, 2), "start 2, length 2; must lie in"), (lambda: x.narrow(1, 0, -1), "length -1"),
                       (lambda: x.expand(2, 3, 5), r"\(2, 3, 4\) does not expand to \(2, 3, 5\) at axis 2"), (lambda: x.expand(3, 4), "at least 3"),
                       (lambda: x.permute(0, 1), "2 axes given for rank 3"), (lambda: x.permute(0, 0, 1), "axis given twice"),
                       (lambda: x.transpose(0, 3), "out of range: 3")]:
        with pytest.raises((RuntimeError, IndexError, ValueError), match=text):
            call()
        assert x.shape == (2, 3, 4)


def test_products_and_sums_of_permuted_equal_numpys():  # OPS-07
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    ours = sl.from_numpy(x).permute(2, 0, 1)
    theirs = x.transpose(2, 0, 1)
    assert not ours.is_contiguous() and ours.data_ptr() == sl.from_numpy(x).data_ptr()
    np.testing.assert_allclose((ours @ ours.transpose(1, 2)).numpy(), theirs @ theirs.transpose(0, 2, 1), rtol=1e-12)
    for dim in range(3):
        np.testing.assert_allclose(ours.sum(dim).numpy(), theirs.sum(dim), rtol=1e-12)


def test_writes_through_narrow_change_the_base():  # OPS-08
    x = sl.zeros(3, 4)
    x.narrow(1, 1, 2).add_(1)
    x.narrow(0, 2, 1).mul_(5).sub_(1)
    assert x.tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [-1, 4, 4, -1]]

    def build(x):
        x = x.clone()
        x.narrow(1, 1, 2).add_(1)
        x.narrow(0, 2, 1).mul_(5).sub_(1)
        return x

    assert sl.equal(Applied(build)(sl.zeros(3, 4)), x)


def test_expanded_strides_are_0_and_gradients_sum():  # OPS-09
    x = sl.ones(3, 1, requires_grad=True)
    y = x.expand(3, 1000)
    assert y.stride() == (1, 0) and y.data_ptr() == x.data_ptr()
    (y * sl.arange(1000.0)).sum().backward()
    assert x.grad.tolist() == [[499500.0]] * 3
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"):
        y.detach().add_(1)


@pytest.mark.parametrize("view", [pytest.param(f, id=str(i)) for i, f in enumerate(STRIDED)])
def test_contiguous_is_exactly_one_copy(view):  # OPS-12
    x = torch.randn(2, 3, 4)
    ours, theirs = view(to_sl(x)), view(x)
    if theirs.is_contiguous():
        assert ours.contiguous() is ours or ours.contiguous().data_ptr() == ours.data_ptr()
        return
    whole = ours.contiguous()
    assert whole.is_contiguous() and whole.stride() == theirs.contiguous().stride() and whole.data_ptr() != ours.data_ptr()
    assert_same(whole, theirs, 0)
    graph = Applied(lambda x: view(x).contiguous())
    assert_same(graph(to_sl(x)), theirs, 0)
    assert [k["op"] for k in graph.plan["kernels"]] == ["copy"]
    assert whole.contiguous().data_ptr() == whole.data_ptr()


def test_in_place_ops_keep_memory_and_count():  # OPS-19, OPS-21
    for write, expected in [(lambda t: t.div_(2), 3.0), (lambda t: t.sub_(1), 5.0), (lambda t: t.zero_(), 0.0), (lambda t: t.sub_(2, alpha=2), 2.0),
                            (lambda t: t.div_(4, rounding_mode="floor"), 1.0), (lambda t: t.__isub__(3), 3.0), (lambda t: t.__itruediv__(3), 2.0)]:
        x = sl.full((2, 3), 6.0)
        memory, version = x.data_ptr(), x._version
        assert write(x) is x and x.data_ptr() == memory and x._version == version + 1
        assert x.tolist() == [[expected] * 3] * 2
        y = sl.full((4, 2), 6.0)
        assert write(y.t()[:, 1:3]).tolist() == [[expected] * 2] * 2 and y[0, 0].item() == 6.0 and y[1, 0].item() == expected
    assert sl.zeros(2, 3).zero_().sum().item() == 0


@pytest.mark.parametrize("write", [lambda t: t.div_(2), lambda t: t.sub_(1), lambda t: t.zero_()])
def test_writes_to_what_is_saved_are_found(write):  # OPS-19, OPS-21
    for library in (torch, sl):
        w = library.ones(3, requires_grad=True)
        y = w.exp()  # exp saves its result
        write(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            write(w)
        x = library.ones(3, requires_grad=True) * 2  # neither op needs its result
        y = x + 1
        write(y)
        y.sum().backward()


# The same bytes as elements of another dtype


KINDS = ("bool", "uint8", "int16", "float16", "bfloat16", "float32", "int64", "float64", "complex64", "complex128")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_bytes_as_another_dtype(kind, other):
    for view in (lambda x: x, lambda x: x[1:], lambda x: x[:, :16], lambda x: x[:, 16:], lambda x: x[:, :0]):
        a, b = (view(m.arange(96).reshape(3, 32).to(getattr(m, kind))) for m in (torch, sl))
        theirs = a.view(getattr(torch, other))
        ours = b.view(getattr(sl, other))
        assert (tuple(ours.shape), tuple(ours.stride())) == (tuple(theirs.shape), theirs.stride())
        assert ours.dtype.name == other and ours.storage_offset() == theirs.storage_offset()
        if other == "bool":  # copies of bytes that are neither 0 nor 1 may differ
            assert ours.tolist() == theirs.tolist()
        else:
            assert ours.contiguous().view(sl.uint8).tolist() == theirs.contiguous().view(torch.uint8).tolist()
        assert ours.data_ptr() == b.data_ptr()


def test_writes_through_a_view_of_bytes():
    for m in (sl, torch):
        x = m.tensor([1.0, -2.0])
        x.view(m.int32)[0] = 0x40400000
        x.view(m.uint8)[7] = 0x40
        assert x.tolist() == [3.0, 2.0] and x._version == 2
        assert not m.ones(2, requires_grad=True).view(m.int32).requires_grad


def test_bytes_of_a_traced_tensor():
    class Bits(nn.Graph):
        def build(self, x):
            return x.view(sl.int32) >> 23, (x * 2)[:, 1:].contiguous().view(sl.uint8)

    x = torch.randn(3, 5)
    exponents, parts = Bits()(to_sl(x))
    assert exponents.tolist() == (x.view(torch.int32) >> 23).tolist()
    assert parts.tolist() == (x * 2)[:, 1:].contiguous().view(torch.uint8).tolist()


BAD_BYTES = {
    "last size": lambda m: m.zeros(3, 7, dtype=m.int8).view(m.int16), "no dims": lambda m: m.tensor(1, dtype=m.int8).view(m.int16),
    "no dims, smaller": lambda m: m.tensor(1.0).view(m.int8), "last stride": lambda m: m.zeros(3, 8, dtype=m.int16).t().view(m.int8),
    "last stride, larger": lambda m: m.zeros(4, 8)[:, ::2].view(m.float64), "a stride": lambda m: m.zeros(4, 5)[:, :4].view(m.float64),
    "offset": lambda m: m.zeros(8)[1:7].view(m.float64),
}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_bytes_that_do_not_fit(name):
    messages = []
    for m in (torch, sl):
        with pytest.raises(RuntimeError) as error:
            BAD_BYTES[name](m)
        messages.append(str(error.value))
    assert messages[0].split(" to view")[0].split(" (")[0] in messages[1]
