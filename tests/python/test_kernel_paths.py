"""Kernels that choose a way by shape and layout: each way gives what NumPy or torch gives."""
import numpy as np
import pytest
import torch

import sluice


@pytest.mark.parametrize("kind", ["int64", "float32", "float64", "int8"])
@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
def test_rows_of_every_length_are_reduced(kind, name):
    random = np.random.default_rng(0)
    for n in range(1, 150):
        x = random.integers(-9, 10, (5, n)).astype(kind)
        want = getattr(x.astype("int64"), {"sum": "sum", "amax": "max", "amin": "min"}[name])
        for axis in (0, 1, (0, 1)):
            got = getattr(sluice.from_numpy(x), name)(axis).numpy()
            np.testing.assert_array_equal(got, want(axis), err_msg=f"{n} {axis}")


def test_any_axes_of_any_view_are_summed():
    random = np.random.default_rng(1)
    for k in range(300):
        x = random.integers(-9, 10, random.integers(1, [60, 30, 12] if k % 3 else [9, 300, 40])).astype("float32")
        order = tuple(int(v) for v in random.permutation(3))
        axes = tuple({int(d) for d in random.integers(0, 3, 2)})
        got = sluice.from_numpy(x).permute(*order).sum(axes).numpy()
        np.testing.assert_array_equal(got, x.transpose(order).sum(axes))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int64", "int32", "uint8"])
def test_selections_are_parts_of_the_stable_order(kind):
    random = np.random.default_rng(2)
    for _ in range(60):
        x = np.round(random.standard_normal(random.integers(1, 90, 2)) * 3 + 9).clip(0).astype(kind)
        if x.dtype.kind == "f":
            x.flat[random.integers(x.size)], x.flat[random.integers(x.size)] = np.nan, -0.0
        dim, descending = int(random.integers(2)), bool(random.integers(2))
        ours, theirs = sluice.from_numpy(x), torch.from_numpy(x)
        k = int(random.integers(1, x.shape[dim] + 1))
        values, order = theirs.sort(dim=dim, descending=descending, stable=True)
        got = ours.sort(dim=dim, descending=descending, stable=True)
        np.testing.assert_array_equal(got[0].numpy(), values.numpy())
        np.testing.assert_array_equal(got[1].numpy(), order.numpy())
        np.testing.assert_array_equal(ours.topk(k, dim, descending)[1].numpy(), order.narrow(dim, 0, k).numpy())
        np.testing.assert_array_equal(ours.kthvalue(k, dim)[0].numpy(), theirs.kthvalue(k, dim)[0].numpy())
        np.testing.assert_array_equal(ours.median(dim)[0].numpy(), theirs.median(dim)[0].numpy())


def test_running_results_of_outer_axes_are_those_of_inner_ones():
    x = np.random.default_rng(3).standard_normal((40, 700)).astype("float32")
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        across = getattr(sluice.from_numpy(x), name)(0).numpy()
        along = getattr(sluice.from_numpy(np.ascontiguousarray(x.T)), name)(1).numpy().T
        np.testing.assert_array_equal(across, along)


def test_grid_sample_has_the_bits_of_single_ops_and_torchs_values():
    random = np.random.default_rng(4)
    for k in range(120):
        x = random.standard_normal(random.integers(1, 6, 4)).astype("float32")
        grid = (random.standard_normal((len(x), 7, 9, 2)) * random.choice([0.5, 1, 3])).astype("float32")
        options = {"mode": ("bilinear", "nearest")[k % 2], "padding_mode": ("zeros", "border", "reflection")[k % 3],
                   "align_corners": k % 4 < 2}
        image, points = sluice.from_numpy(x), sluice.from_numpy(grid)
        op = sluice.nn.functional.grid_sample(image, points, **options).numpy()
        ops = sluice.nn.functional.grid_sample(image.requires_grad_(), points, **options).detach().numpy()
        np.testing.assert_array_equal(op, ops)
        theirs = torch.nn.functional.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), **options).numpy()
        np.testing.assert_allclose(op, theirs, rtol=1e-4, atol=1e-4)


def test_gather_names_a_bad_index_in_any_tile():
    x, index = sluice.ones(3, 2000), sluice.zeros(3, 2000, dtype=sluice.int64)
    index[2, 1999] = 2000
    with pytest.raises(IndexError, match="gather: index out of range: 2000 at axis 1 of size 2000"):
        x.gather(1, index)


def test_max_pools_gradient_is_torchs_in_both_layouts():
    x = torch.randn(2, 3, 9, 60, generator=torch.Generator().manual_seed(0))
    for layout in (torch.contiguous_format, torch.channels_last):
        theirs = x.clone(memory_format=layout).requires_grad_()
        torch.nn.functional.max_pool2d(theirs, 3, 2, 1).square().sum().backward()
        ours = sluice.from_numpy(x.numpy())
        if layout is torch.channels_last:
            ours = ours.contiguous(memory_format=sluice.channels_last)
        ours.requires_grad_()
        sluice.nn.functional.max_pool2d(ours, 3, 2, 1).square().sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)
