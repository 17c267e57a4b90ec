"""Elementwise ops with reductions of rows among them as one kernel: norms and softmaxes that are written out. Results keep the bits
that they have one by one."""

import ctypes
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import assert_same
from fusing import Compute, layer_norm, ops, rms_norm, softmax

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


def bits(t):
    return t.detach().to(sl.float64).numpy().tobytes()


def all_bits(results):
    return [bits(t) for t in (results if isinstance(results, (tuple, list)) else [results])]


def random(*shape, dtype="float32", seed=0):
    return sl.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(getattr(sl, dtype))


def theirs(t):
    return torch.from_numpy(t.to(sl.float64).numpy()).to(getattr(torch, str(t.dtype).rsplit(".", 1)[-1]))


def check(function, *xs, kernels=("fused_rows",), tolerance=None):
    """One kernel, the bits of its steps, and torch's numbers."""
    graph, plain = Compute(lambda *xs: function(sl, *xs)), Compute(lambda *xs: function(sl, *xs), "fuse_rows", "fuse_elementwise")
    got = graph(*xs)
    assert all_bits(got) == all_bits(plain(*xs)) == all_bits(function(sl, *xs))
    assert ops(graph) == list(kernels), ops(graph)
    assert "fused_rows" not in ops(plain)
    if tolerance is not None:
        expected = function(torch, *[theirs(x) for x in xs])
        for ours, other in zip(got if isinstance(got, tuple) else [got], expected if isinstance(expected, tuple) else [expected]):
            assert_same(ours.to(sl.float64), other.to(torch.float64), tolerance)
    return graph


SHAPES = [(7, 3), (9, 7), (64, 1000), (3, 5, 129), (1, 50), (40,), (5, 193), (3, 1023), (3, 1025), (2, 4096), (3, 4500)]
TOLERANCES = {"float32": 2e-6, "float64": 1e-14, "bfloat16": 3e-2, "float16": 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_softmax_that_is_written_out_is_one_kernel(dtype, shape):
    check(softmax, random(*shape, dtype=dtype), tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_norm_that_is_written_out_is_one_kernel(dtype, shape):
    x = random(*shape, dtype=dtype), random(shape[-1], dtype=dtype, seed=1), random(shape[-1], dtype=dtype, seed=2)
    check(layer_norm, *x, tolerance=TOLERANCES[dtype] * 10)
    check(rms_norm, *x[:2], tolerance=TOLERANCES[dtype] * 10)


@pytest.mark.parametrize("shape", [(1, 1 << 20), (2, 150_000), (20, 5000)])
def test_rows_longer_than_the_cache_keep_their_bits_however_many_threads(shape):
    x = random(*shape)
    graph = check(softmax, x)
    assert_same(graph(x), torch.softmax(theirs(x), -1), 1e-6)
    check(layer_norm, x, random(shape[-1], seed=1), random(shape[-1], seed=2))
    expected, threads = bits(graph(x)), sl.get_num_threads()
    try:
        sl.set_num_threads(1)
        assert bits(Compute(lambda x: softmax(sl, x))(x)) == expected
    finally:
        sl.set_num_threads(threads)


def test_rows_of_more_than_stays_near_keep_their_bits():
    x, w, b = random(1700, 1024), random(1024, seed=1), random(1024, seed=2)
    graph = check(layer_norm, x, w, b)
    assert_same(graph(x, w, b), layer_norm(torch, *[theirs(t) for t in (x, w, b)]), 1e-5)


def test_sums_of_squares_are_those_of_products():
    def f(lib, x, y):
        d = x - y
        s = d * d
        return s.sum(-1, keepdim=True), (d * d).mean(-1, keepdim=True) + s, (s * s).sum(-1, keepdim=True)

    for n in (7, 300, 1025, 5000):
        check(f, random(5, n), random(5, n, seed=1), tolerance=1e-4 * n)
        check(lambda lib, x: x / (x * x).sum(-1, keepdim=True).sqrt(), random(5, n), tolerance=1e-5)


def test_rows_of_one_element_are_steps():
    x = random(6, 1)
    graph = Compute(lambda x: softmax(sl, x) + layer_norm(sl, x, x, x))
    assert bits(graph(x)) == bits(softmax(sl, x) + layer_norm(sl, x, x, x))


def test_steps_before_and_behind_are_in_it_and_several_results_leave_it():
    def attend(lib, x, mask, scale):
        scores = x * scale + mask
        top = scores.amax(-1, keepdim=True)
        e = lib.exp(scores - top)
        total = e.sum(-1, keepdim=True)
        return lib.nn.functional.relu(e / total - 0.01), total.log() + top, scores

    check(attend, random(2, 3, 9, 40), random(9, 40, seed=1), random(1, seed=2).reshape(()), tolerance=1e-5)
    check(attend, random(2, 3, 9, 40), random(2, 1, 1, 40, seed=1), random(2, 1, 9, 1, seed=2), tolerance=1e-5)


def test_norms_with_a_residual_give_both():
    def block(lib, x, y, w, b):
        x = x + y
        return x, layer_norm(lib, x, w, b)

    check(block, random(6, 10, 48), random(6, 10, 48, seed=1), random(48, seed=2), random(48, seed=3), tolerance=1e-5)


@pytest.mark.parametrize("function", [
    lambda lib, x: x / x.sum(-1).unsqueeze(-1),
    lambda lib, x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
    lambda lib, x: (x - x.mean(-1, keepdim=True)) / lib.sqrt(x.var(-1, unbiased=False).unsqueeze(-1) + 1e-3),
    lambda lib, x: x.var(-1),
    lambda lib, x: lib.logsumexp(x, -1),
    lambda lib, x: x - lib.logsumexp(x, -1, keepdim=True),
    lambda lib, x: (x * x).sum(-1).sqrt(),
    lambda lib, x: (x.amax(-1) - x.amin(-1), x.exp().prod(-1)),
    lambda lib, x: (x.abs() / x.abs().amax((-2, -1), keepdim=True)).mean((-2, -1)),
    lambda lib, x: (x.sum((0, 1, 2), keepdim=True) + x).tanh(),
])
def test_reductions_may_drop_their_axes(function):
    x = random(3, 4, 9)
    graph, plain = Compute(lambda x: function(sl, x)), Compute(lambda x: function(sl, x), "fuse_rows")
    got = graph(x)
    assert all_bits(got) == all_bits(plain(x)) == all_bits(function(sl, x))
    assert graph.config.report()["fuse_rows"] >= 1 and "fused_rows" in ops(graph), ops(graph)
    expected = function(torch, theirs(x))
    for ours, other in zip(got if isinstance(got, tuple) else [got], expected if isinstance(expected, tuple) else [expected]):
        assert_same(ours, other, 1e-5)


def test_what_is_not_a_number_stays_so():
    x = random(6, 70).numpy()
    x[0, 3], x[1, 5], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    got = Compute(lambda x: softmax(sl, x))(sl.from_numpy(x)).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(torch.softmax(torch.from_numpy(x), -1).numpy()))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(softmax(sl, sl.from_numpy(x)).numpy()))


def test_rows_may_be_none_or_empty():
    assert check(softmax, random(0, 7))(random(0, 7)).shape == (0, 7)
    y, total = Compute(lambda x: (x / x.sum(-1, keepdim=True), x.sum(-1, keepdim=True) + 1))(random(3, 0))
    assert y.shape == (3, 0) and total.numpy().tolist() == [[1.0]] * 3


@pytest.mark.parametrize("shape", [(17, 3, 0), (17, 0, 3), (2, 0), (0, 4, 5), (0, 0)])
@pytest.mark.parametrize("other", [lambda s: s, lambda s: (1,) * len(s), lambda s: (*s[:-1], 1), lambda s: (1, *s[1:])])
def test_rows_of_several_axes_may_be_empty(shape, other):
    def function(lib, x, w):
        y = lib.exp(x * w)
        return y / y.sum((-1, -2), keepdim=True), y.sum((-1, -2)), y.mean((-1, -2), keepdim=True)

    x, w = random(*shape), random(*other(shape))
    for ours, theirs_ in zip(Compute(lambda *xs: function(sl, *xs))(x, w), function(torch, theirs(x), theirs(w))):
        assert_same(ours, theirs_, 1e-5)


def test_operands_lie_as_they_come():
    w, b = random(30, seed=1), random(30, seed=2)
    for x in (random(30, 40).t(), random(40, 60)[:, ::2], random(8, 2, 5, 30).transpose(1, 2), random(40, 90)[:, 30:60],
              random(1, 30).expand(8, 30)):
        for function, more in ((softmax, ()), (layer_norm, (w, b))):
            assert_same(Compute(lambda *xs: function(sl, *xs))(x, *more), function(torch, theirs(x), *[theirs(t) for t in more]), 1e-5)

    def turned(lib, x, w, b):  # a view inside of the graph, whose rows lie apart
        x = lib.tanh(x)
        return layer_norm(lib, x.transpose(1, 2), w, b), softmax(lib, x.permute(0, 2, 3, 1))

    x = random(4, 5, 6, 30)
    graph = Compute(lambda *xs: turned(sl, *xs))
    for ours, other in zip(graph(x, w, b), turned(torch, *[theirs(t) for t in (x, w, b)])):
        assert_same(ours, other, 1e-5)
    assert ops(graph).count("fused_rows") == 2


def test_dropout_is_a_step_of_a_row():
    drop = nn.Dropout(0.4)
    x, results = random(2, 3, 8, 70), []
    for off in ((), ("fuse_rows",), ("fuse_rows", "fuse_elementwise")):
        sl.manual_seed(3)
        graph = Compute(lambda x: drop(softmax(sl, x)) * 2.0, *off)
        results.append(bits(graph(x)))
    assert results[0] == results[1] == results[2]
    graph = Compute(lambda x: drop(softmax(sl, x)) * 2.0)
    graph(x)
    assert ops(graph) == ["fused_rows", "add"]  # the second counts the calls of dropout


def test_training_keeps_the_bits_of_every_gradient():
    def step(x, w, b):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        y = softmax(sl, layer_norm(sl, x, w, b))
        loss = (y * y.log()).sum(-1).mean()
        return loss, *sl.autograd.grad(loss, (x, w, b))

    xs = random(50, 33), random(33, seed=1), random(33, seed=2)
    graph, plain = Compute(step), Compute(step, "fuse_rows", "fuse_elementwise")
    assert all_bits(graph(*xs)) == all_bits(plain(*xs)) == all_bits(step(*xs))
    assert ops(graph).count("fused_rows") >= 2, ops(graph)


def test_what_all_rows_come_to_goes_with_ops_that_broadcast_nothing():
    def f(x, scale):
        x = x.detach().requires_grad_()
        return sl.autograd.grad(nn.functional.silu(x.exp().sum((0, 1))) * scale, x)[0]

    xs = random(3, 4), random(1).reshape(())
    assert bits(Compute(f)(*xs)) == bits(Compute(f, "fuse_rows")(*xs)) == bits(f(*xs))


def test_a_reader_in_between_and_other_axes_end_a_cluster():
    def f(x, w):
        d = x - x.mean(-1, keepdim=True)
        z = d @ w  # reads d, so what follows is another kernel
        return z, d / (d * d).sum(-1, keepdim=True), d / d.sum(0, keepdim=True)

    xs = random(9, 9), random(9, 9, seed=1)
    graph, plain = Compute(f), Compute(f, "fuse_rows", "fuse_elementwise")
    assert all_bits(graph(*xs)) == all_bits(plain(*xs))
    assert ops(graph).count("fused_rows") == 2 and "sum" in ops(graph), ops(graph)


def test_additions_stay_apart_where_they_are_asked_to():
    x, w, b = random(5, 40), random(40, seed=1), random(40, seed=2)
    graph = Compute(lambda *xs: layer_norm(sl, *xs))
    graph.config.allow_fuse_add_to_output(False)
    assert bits(graph(x, w, b)) == bits(layer_norm(sl, x, w, b))
    assert "add" in ops(graph)


def test_the_source_can_be_read(tmp_path):
    x, w, b = random(4, 40), random(40, seed=1), random(40, seed=2)
    graph = Compute(lambda *xs: softmax(sl, layer_norm(sl, *xs)))
    graph(x, w, b)
    sl.save(graph, tmp_path / "bundle")
    subprocess.run([find_tool("sluice-compile"), tmp_path / "bundle", "--to", "c", "--name", "rows", "-o", tmp_path / "rows.c"], check=True)
    source = (tmp_path / "rows.c").read_text()
    body = source[source.index("fused_rows"):]
    assert body.count("for (ptrdiff_t i1 = 0; i1 < 40; ++i1)") == 5 and "maximum_float(a, v)" in body and "exp_float(" in source
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", tmp_path / "rows.so", tmp_path / "rows.c", "-lm"],
                   check=True)
    library = ctypes.CDLL(str(tmp_path / "rows.so"))
    ports = {name: name for name in re.findall(r"rows_(?:input|output)_\w+", (tmp_path / "rows.h").read_text())}
    for name in ports:
        getattr(library, name).restype = ctypes.POINTER(ctypes.c_float)
    for name, value in zip([n for n in ports if "_input_" in n], (x, w, b)):
        ctypes.memmove(getattr(library, name)(), value.numpy().tobytes(), value.numel() * 4)
    assert library.rows_run() == 0
    [output] = [n for n in ports if "_output_" in n]
    got = np.ctypeslib.as_array(getattr(library, output)(), (4, 40))
    np.testing.assert_allclose(got, softmax(torch, layer_norm(torch, *[theirs(t) for t in (x, w, b)])).numpy(), atol=1e-6)


def test_compiled_functions_have_it(tmp_path):
    x = random(12, 300)
    code = ("import sluice as sl, numpy as np; x = sl.from_numpy(np.ones((12, 300), np.float32))\n"
            "f = sl.compile(lambda x: (x.exp() / x.exp().sum(-1, keepdim=True)))\nf(x)")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "SLUICE_DUMP_IR": str(tmp_path), "SLUICE_CACHE": "off"})
    assert any("fused_rows(" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert bits(sl.compile(lambda x: softmax(sl, x))(x)) == bits(softmax(sl, x))
