"""out=: results are computed where they are to lie, and as if they were not where out shares memory with what is read."""

import gc

import numpy as np
import pytest
import torch

import sluice as sl

RANDOM = np.random.default_rng(0)
N = 1 << 16
CALLS = {
    "add": lambda m, x, y, **o: m.add(x, y, **o),
    "add scaled": lambda m, x, y, **o: m.add(x, y, alpha=2, **o),
    "sqrt": lambda m, x, y, **o: m.sqrt(x, **o),
    "clamp": lambda m, x, y, **o: m.clamp(x, 0.2, 0.7, **o),
    "clamp by tensors": lambda m, x, y, **o: m.clamp(x, y * 0.5, y, **o),
    "pow 3": lambda m, x, y, **o: m.pow(x, 3, **o),
    "lerp": lambda m, x, y, **o: m.lerp(x, y, 0.3, **o),
    "addcmul": lambda m, x, y, **o: m.addcmul(x, x, y, value=3, **o),
    "matmul": lambda m, x, y, **o: m.matmul(x, y, **o),
    "cumsum": lambda m, x, y, **o: m.cumsum(x, 1, **o),
    "cat": lambda m, x, y, **o: m.cat([x[:128], y[128:]], 0, **o),
    "logit": lambda m, x, y, **o: m.logit(x, 1e-3, **o),
    "gather": lambda m, x, y, **o: m.gather(x, 1, m.arange(256).flip(0).expand(256, 256), **o),
}


def pair(seed):
    x = np.random.default_rng(seed).uniform(0.1, 0.9, (256, 256)).astype("float32")
    return sl.tensor(x), torch.tensor(x)


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_computed_in_out(name):
    call, (x, a), (y, b) = CALLS[name], pair(0), pair(1)
    ours, theirs = sl.full((256, 256), 7.0), torch.full((256, 256), 7.0)
    address, version = ours.data_ptr(), ours._version
    assert call(sl, x, y, out=ours) is ours
    call(torch, a, b, out=theirs)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(ours.numpy(), call(sl, x, y).numpy())
    assert ours.data_ptr() == address and ours._version > version


@pytest.mark.parametrize("name", ["add", "sqrt", "matmul", "gather", "cat", "clamp", "pow 3"])
def test_a_call_of_one_op_takes_no_memory_for_its_result(name):
    call, (x, _), (y, _), out = CALLS[name], pair(0), pair(1), sl.empty(256, 256)
    call(sl, x, y, out=out)
    gc.collect()
    parts = [x[:128], y[128:]]  # noqa: F841
    sl.memory.reset_peak()
    before = sl.memory.active()
    call(sl, x, y, out=out)
    assert sl.memory.peak() < before + out.numel() * 4


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("which", [0, 1])
def test_out_is_what_is_read(name, which):
    call, (x, a), (y, b) = CALLS[name], pair(0), pair(1)
    expected = call(torch, a, b).numpy()
    call(sl, x, y, out=(x, y)[which])
    np.testing.assert_allclose((x, y)[which].numpy(), expected, rtol=2e-5, atol=1e-6)


def test_out_overlaps_what_is_read():
    for a, b in (((0, 100), (1, 101)), ((1, 101), (0, 100)), ((0, 100), (64, 164))):
        x = sl.arange(200.0)
        expected = np.cumsum(x.numpy()[slice(*a)])
        sl.cumsum(x[slice(*a)], 0, out=x[slice(*b)])
        np.testing.assert_array_equal(x.numpy()[slice(*b)], expected)


def test_out_shares_an_array_with_what_is_read():
    memory = np.arange(4096, dtype="float32")
    expected = np.cumsum(memory[:1024])
    sl.cumsum(sl.from_numpy(memory[:1024]), 0, out=sl.from_numpy(memory[16:1040]))
    np.testing.assert_array_equal(memory[16:1040], expected)


def test_outs_that_lie_otherwise():
    (x, a), (y, b) = pair(0), pair(1)
    expected = torch.matmul(a, b).numpy()
    for make in (lambda: sl.zeros(256, 256).t(), lambda: sl.zeros(256, 512)[:, ::2],
                 lambda: sl.zeros(256 * 256 + 1)[1:].view(256, 256)):
        out = make()
        sl.matmul(x, y, out=out)
        np.testing.assert_allclose(out.numpy(), expected, rtol=2e-5)
    wide = sl.zeros(256, 256, dtype=sl.float64)
    sl.add(x, y, out=wide)
    np.testing.assert_array_equal(wide.numpy(), (a + b).double().numpy())
    with pytest.raises(RuntimeError, match="can't be cast"):
        sl.add(x, y, out=sl.zeros(256, 256, dtype=sl.int64))


def test_views_see_what_was_written_and_saved_values_are_refused():
    (x, a), (y, _) = pair(0), pair(1)
    out = sl.zeros(256, 256)
    row = out[3]
    sl.sqrt(x, out=out)
    np.testing.assert_array_equal(row.numpy(), out.numpy()[3])
    w = sl.ones(256, 256, requires_grad=True)
    loss = (w * out).sum()
    sl.sqrt(y, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_more_than_the_caches_hold(offset):
    n = (6 << 20) + 3
    x, y = (RANDOM.random(n + offset, dtype="float32") for _ in range(2))
    a, b = sl.tensor(x)[offset:], sl.tensor(y)[offset:]
    np.testing.assert_array_equal((a + b).numpy(), x[offset:] + y[offset:])
    out = sl.full((n + 2 * offset,), -1.0)
    sl.add(a, b, out=out[offset:n + offset])
    np.testing.assert_array_equal(out.numpy()[offset:n + offset], x[offset:] + y[offset:])
    assert (out[:offset] == -1).all() and (out[n + offset:] == -1).all()
    np.testing.assert_array_equal((a < b).numpy(), x[offset:] < y[offset:])
    np.testing.assert_array_equal(a.add_(b).numpy(), x[offset:] + y[offset:])
