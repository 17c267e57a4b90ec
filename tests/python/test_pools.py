"""Pooling against torch: 1, 2 and 3 spatial dims, padding, dilation, ceil_mode, indices, divisors, every kind of line."""
import numpy as np
import pytest
import torch

import sluice as sl

F, TF = sl.nn.functional, torch.nn.functional
SIZES = {1: [(9,), (40,), (300,)], 2: [(7, 6), (9, 33), (56, 56)], 3: [(4, 5, 6), (5, 6, 28)]}
MAX = [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=3, stride=1, padding=1),
       dict(kernel_size=2, stride=3, ceil_mode=True), dict(kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True),
       dict(kernel_size=2, stride=1, dilation=2)]
AVG = [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1, count_include_pad=False),
       dict(kernel_size=3, stride=1, padding=1), dict(kernel_size=2, stride=3, ceil_mode=True),
       dict(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)]


def pairs(shape, dtype="float32", nan=False):
    x = np.random.default_rng(0).integers(-20, 20, shape).astype(dtype)  # with many equal elements
    if nan:
        x.flat[::7] = np.nan
    return sl.from_numpy(x), torch.from_numpy(x)


@pytest.mark.parametrize("options", MAX, ids=str)
@pytest.mark.parametrize("dims,size", [(d, s) for d in SIZES for s in SIZES[d]], ids=str)
def test_max_pool_is_torchs(dims, size, options):
    name = f"max_pool{dims}d"
    for dtype, nan in (("float32", False), ("float64", False), ("float32", True)):
        x, y = pairs((2, 3, *size), dtype, nan)
        values, indices = getattr(F, name)(x, return_indices=True, **options)
        wanted, places = getattr(TF, name)(y, return_indices=True, **options)
        np.testing.assert_array_equal(values.numpy(), wanted.numpy())
        np.testing.assert_array_equal(indices.numpy(), places.numpy())
        np.testing.assert_array_equal(getattr(F, name)(x, **options).numpy(), wanted.numpy())
        grad, other = x.clone().requires_grad_(), y.clone().requires_grad_()
        getattr(F, name)(grad, **options).square().nansum().backward()
        getattr(TF, name)(other, **options).square().nansum().backward()
        np.testing.assert_allclose(grad.grad.numpy(), other.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("options", AVG, ids=str)
@pytest.mark.parametrize("dims,size", [(d, s) for d in SIZES for s in SIZES[d]], ids=str)
def test_avg_pool_is_torchs(dims, size, options):
    for dtype in ("float32", "float64"):
        x, y = pairs((2, 3, *size), dtype)
        more = [options] if dims == 1 else [options, options | {"divisor_override": 5}]
        for given in more:
            np.testing.assert_allclose(getattr(F, f"avg_pool{dims}d")(x, **given).numpy(),
                                       getattr(TF, f"avg_pool{dims}d")(y, **given).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("channels", [3, 8, 40, 300])
def test_channels_last_pools_are_torchs(channels):
    x, y = pairs((2, channels, 9, 11))
    x, y = x.to(memory_format=sl.channels_last), y.to(memory_format=torch.channels_last)
    for options in MAX:
        for a, b in zip(F.max_pool2d(x, return_indices=True, **options), TF.max_pool2d(y, return_indices=True, **options)):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    for options in AVG:
        np.testing.assert_allclose(F.avg_pool2d(x, **options).numpy(), TF.avg_pool2d(y, **options).numpy(), rtol=1e-6,
                                   atol=1e-6)


def test_a_window_without_elements_gives_the_least_number():
    options = dict(kernel_size=2, stride=1, padding=1, dilation=2)
    for dims in (1, 2):
        x, y = pairs((1, 1) + (1,) * dims)
        for a, b in zip(getattr(F, f"max_pool{dims}d")(x, return_indices=True, **options),
                        getattr(TF, f"max_pool{dims}d")(y, return_indices=True, **options)):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_values_without_indices_in_graphs():
    x = sl.randn(2, 3, 40)

    class Pool(sl.nn.Graph):
        def build(self, x):
            return F.max_pool1d(x, 3, 2, 1)

    np.testing.assert_array_equal(Pool()(x).numpy(), F.max_pool1d(x, 3, 2, 1, return_indices=True)[0].numpy())
