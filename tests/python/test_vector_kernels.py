"""Kernels that convert or move many elements at once: every number of elements around their vectors, as torch."""

import numpy as np
import pytest
import torch

import sluice as sl

SIZES = [0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 511, 513, 1025]
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def both(array, dtype=None):
    ours, theirs = sl.tensor(array), torch.tensor(array)
    return (ours, theirs) if dtype is None else (ours.to(getattr(sl, dtype)), theirs.to(getattr(torch, dtype)))


def bits(tensor):
    of_size = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
    lib = sl if isinstance(tensor, sl.Tensor) else torch
    tensor = lib.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.contiguous().view(getattr(lib, of_size[tensor.element_size()])).numpy()


def equal(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_array_equal(bits(ours), bits(theirs))


def test_every_float16_becomes_float32_and_comes_back():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    ours, theirs = sl.tensor(every).float(), torch.tensor(every).float()
    nan = np.isnan(every)
    np.testing.assert_array_equal(bits(ours)[~nan], bits(theirs)[~nan])
    assert np.isnan(ours.numpy()[nan]).all()
    np.testing.assert_array_equal(bits(ours.half())[~nan], every.view(np.int16)[~nan])


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_floats_are_rounded_to_the_nearest_of_16_bits(narrow):
    rng = np.random.RandomState(0)
    exact = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(getattr(torch, narrow)).float().numpy()
    exact = exact[np.isfinite(exact)]
    halfway = ((exact[:-1].astype("f8") + exact[1:]) / 2).astype("f4")  # ties, among others
    values = np.concatenate([halfway, np.nextafter(halfway, np.float32(9)), np.nextafter(halfway, np.float32(-9)),
                             (rng.randn(5000) * 10.0 ** rng.uniform(-9, 9, 5000)).astype("f4"),
                             np.float32([0, -0.0, np.inf, -np.inf, 65519.996, 65520, 1e30])])
    equal(*both(values, narrow))
    for n in SIZES:
        equal(*both(values[:n], narrow))
    assert sl.tensor([float("nan")] * 9).to(getattr(sl, narrow)).isnan().all()


@pytest.mark.parametrize("source", ["bool", "uint8", "int32", "int64", "float16", "bfloat16"])
@pytest.mark.parametrize("target", ["bool", "int8", "int64", "bfloat16", "float32", "float64"])
def test_casts(source, target):
    rng = np.random.RandomState(1)
    for n in SIZES:
        ours, theirs = both(rng.randint(0, 100, (n, 3)), source)
        equal(ours.to(getattr(sl, target)), theirs.to(getattr(torch, target)))
        equal(ours[:, 1].to(getattr(sl, target)), theirs[:, 1].to(getattr(torch, target)))
        equal(ours[:, :1].expand(n, 40).to(getattr(sl, target)), theirs[:, :1].expand(n, 40).to(getattr(torch, target)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fills_flips_and_transposes(dtype):
    rng = np.random.RandomState(2)
    for n in SIZES:
        equal(sl.full((n,), 1, dtype=getattr(sl, dtype)), torch.full((n,), 1, dtype=getattr(torch, dtype)))
        ours, theirs = both(rng.randint(0, 100, (3, n)), dtype)
        equal(ours.flip(1), theirs.flip(1))
        equal(ours.flip(0, 1), theirs.flip(0, 1))
        equal(ours[:, :1].expand(3, 70).contiguous() if n else ours, theirs[:, :1].expand(3, 70).contiguous() if n else theirs)
    for rows in (1, 4, 5, 16, 31, 32, 33, 64, 70):
        for columns in (8, 12, 16, 30, 32, 36, 64, 65, 100):
            ours, theirs = both(rng.randint(0, 100, (2, rows, columns)), dtype)
            equal(ours.transpose(1, 2).contiguous(), theirs.transpose(1, 2).contiguous())


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_sums_by_index(dtype):
    """Integers wrap; 16-bit floats are small, so that sums are exact. Indices of the last axis and of the first."""
    rng = np.random.RandomState(3)
    most = 4 if dtype in ("float16", "bfloat16") else 100
    for rows, n in ((1, 1), (3, 40), (5, 600), (2, 1025)):
        ours, theirs = both(rng.randint(0, most, (rows, n)), dtype)
        of_columns, of_rows = both(rng.randint(0, n, 2 * n)), both(rng.randint(0, rows, 9))
        added = both(rng.randint(0, most, (rows, 2 * n)), dtype)
        equal(ours.index_add(1, of_columns[0], added[0]), theirs.index_add(1, of_columns[1], added[1]))
        added = both(rng.randint(0, most, (9, n)), dtype)
        equal(ours.index_add(0, of_rows[0], added[0]), theirs.index_add(0, of_rows[1], added[1]))
        index = both(rng.randint(0, n, (rows, n)))
        equal(ours.scatter_add(1, index[0], ours), theirs.scatter_add(1, index[1], theirs))
        equal(ours.index_select(1, of_columns[0]), theirs.index_select(1, of_columns[1]))


def test_bincount():
    ours, theirs = both(np.random.RandomState(4).randint(0, 50, 5000))
    equal(ours.bincount(), theirs.bincount())
    equal(ours.bincount(minlength=70), theirs.bincount(minlength=70))


@pytest.mark.parametrize("lines", range(1, 11))
def test_running_sums_of_lines(lines):
    for n in (1, 5, 512, 700):
        ours, theirs = both(np.random.RandomState(lines).randint(-9, 9, (lines, n)).astype("f4"))
        equal(ours.cumsum(1), theirs.cumsum(1))
        equal(ours.t().cumsum(0), theirs.t().cumsum(0))


@pytest.mark.parametrize("width", [1, 100, 255, 257, 600, 1100, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bfloat16"])
def test_rows_with_one_element_each(width, dtype):
    rng = np.random.RandomState(5)
    (ours, theirs), (one, its) = (both(rng.randint(1, 9, shape), dtype) for shape in ((7, width), (7, 1)))
    for op in (lambda a, b: a - b, lambda a, b: b - a, lambda a, b: a * b, lambda a, b: a > b):
        equal(op(ours, one), op(theirs, its))
        equal(op(ours[:, ::2], one), op(theirs[:, ::2], its))
        equal(op(ours, ours[0, 0]), op(theirs, theirs[0, 0]))
    equal(sl.outer(ours[0], ours[1]), torch.outer(theirs[0], theirs[1]))


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_wide_columns_pass_nan_on(name):
    array = np.random.RandomState(6).randn(50, 2100).astype("f4")
    array[np.random.RandomState(7).randint(0, 50, 300), np.random.RandomState(8).randint(0, 2100, 300)] = np.nan
    for dtype in ("float32", "float64"):
        ours, theirs = both(array, dtype)
        np.testing.assert_array_equal(getattr(ours, name)(0).numpy(), getattr(theirs, name)(0).numpy())


MODES = ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("rows", [3, 30])
def test_distances_and_their_gradients(mode, rows):
    """Rows may be equal, too, where the gradient is 0."""
    rng = np.random.RandomState(9)
    x, y = rng.randn(2, rows, 5), rng.randn(2, rows + 1, 5)
    y[:, 2] = x[:, 1]
    x[:, :, 4] = y[:, :, 4] = 0
    found = []
    for lib in (sl, torch):
        a, b = (lib.tensor(array, requires_grad=True) for array in (x, y))
        distances = lib.cdist(a, b, **({"compute_mode": mode} if mode else {}))
        (distances * lib.tensor(np.arange(distances.numel(), dtype="f8").reshape(distances.shape))).sum().backward()
        found.append((distances.detach().numpy(), a.grad.numpy(), b.grad.numpy()))
    for ours, theirs in zip(*found):
        # Products of rows that are equal are as exact as their squares.
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-6)


def test_distances_of_no_numbers_are_none():
    x = np.random.RandomState(12).randn(30, 4).astype("f4")
    x[3, 1], x[5, 2] = np.nan, np.inf
    ours, theirs = sl.cdist(sl.tensor(x), sl.tensor(x)), torch.cdist(torch.tensor(x), torch.tensor(x))
    np.testing.assert_array_equal(ours.isnan().numpy(), theirs.isnan().numpy())


def test_distances_refuse_other_modes():
    with pytest.raises(ValueError, match="cdist: compute_mode: got mm; must be use_mm_for_euclid_dist_if_necessary"):
        sl.cdist(sl.ones(2, 2), sl.ones(2, 2), compute_mode="mm")


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 2), (48, 64, 128), (49, 65, 129), (3, 300, 70), (2, 4, 0)])
def test_products_of_doubles(shape):
    """A row has the same bits in any number of rows, and transposed operands are read where they lie."""
    rows, columns, depth = shape
    rng = np.random.RandomState(10)
    a, b, c = rng.randn(2, rows, depth), rng.randn(2, depth, columns), rng.randn(columns)
    ours, theirs = sl.tensor(a) @ sl.tensor(b), torch.tensor(a) @ torch.tensor(b)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12)
    for i in (0, rows - 1):
        equal((sl.tensor(a[:, i:i + 1]) @ sl.tensor(b)), ours[:, i:i + 1])
    turned = sl.tensor(a.swapaxes(1, 2).copy()).transpose(1, 2) @ sl.tensor(b.swapaxes(1, 2).copy()).transpose(1, 2)
    equal(turned, ours)
    linear = sl.nn.functional.linear(sl.tensor(a[0]), sl.tensor(b[0].T.copy()), sl.tensor(c))
    np.testing.assert_allclose(linear.numpy(), a[0] @ b[0] + c, rtol=1e-12, atol=1e-12)


def test_bools_of_any_true_byte():
    rng = np.random.RandomState(11)
    raw = [rng.choice(np.uint8([0, 1, 2, 255]), 300) for _ in range(2)]
    a, b = (sl.frombuffer(bytes(r), dtype=sl.bool) for r in raw)
    x, y = (torch.tensor(r != 0) for r in raw)
    for op in (lambda p, q: p & q, lambda p, q: p | q, lambda p, q: p ^ q, lambda p, q: ~p, lambda p, q: p == q, lambda p, q: p != q,
               lambda p, q: p < q, lambda p, q: p >= q):
        equal(op(a, b), op(x, y))
        equal(op(a[::3], b[:1]), op(x[::3], y[:1]))
    for name in ("logical_and", "logical_or", "logical_xor"):
        equal(getattr(sl, name)(a, b), getattr(torch, name)(x, y))
    equal(a.logical_not(), x.logical_not())


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "float32", "complex64"])
def test_identities(dtype):
    for n, m in ((0, 0), (0, 3), (1, 1), (3, 3), (2, 5), (5, 2), (70, 70)):
        equal(sl.eye(n, m, dtype=getattr(sl, dtype)), torch.eye(n, m, dtype=getattr(torch, dtype)))
