"""Sums, maxima and products over every set of axes of tensors that lie in memory in every way, against NumPy in float64."""
import itertools

import numpy as np
import pytest

import sluice as sl

SHAPES = [(3, 1000), (70, 64), (70, 128), (70, 256), (70, 300), (40, 1500), (40, 5000), (6, 70, 16), (5, 9, 64), (300, 16),
          (301, 17), (7, 3), (30, 129), (9, 4500), (4, 5, 6, 7), (20, 30, 40)]


def close(ours, wanted, parts):
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-6, atol=2e-7 * parts)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_set_of_axes_of_every_order(shape):
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    for order in itertools.permutations(range(len(shape))) if len(shape) < 4 else [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]:
        ours, theirs = sl.from_numpy(x).permute(order), x.transpose(order).astype("float64")
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                parts = np.prod([theirs.shape[a] for a in axes])
                close(ours.sum(axes), theirs.sum(axes), parts ** 0.5)
                close(ours.amax(axes), theirs.max(axes), 0)
                close(sl.linalg.vector_norm(ours, dim=axes), np.sqrt(np.square(theirs).sum(axes)), 1)


@pytest.mark.parametrize("shape", SHAPES[:12], ids=str)
def test_parts_of_a_tensor(shape):
    x = np.random.default_rng(1).uniform(-1, 1, (shape[0] * 2, *shape[1:-1], shape[-1] * 2)).astype("float32")
    ours, theirs = sl.from_numpy(x)[::2, ..., : shape[-1]], x[::2, ..., : shape[-1]].astype("float64")
    for axis in range(len(shape)):
        close(ours.sum(axis), theirs.sum(axis), theirs.shape[axis] ** 0.5)
        close(ours.mean(axis), theirs.mean(axis), 1)
        close(ours.norm(dim=axis), np.sqrt(np.square(theirs).sum(axis)), 1)


def test_short_rows_keep_nans_and_infinities():
    x = np.random.default_rng(2).uniform(-1, 1, (1001, 19)).astype("float32")
    x[::5, 3], x[::7, 18], x[::11, 0] = np.nan, np.inf, -np.inf
    for ours, wanted in ((sl.from_numpy(x).amax(1), x.max(1)), (sl.from_numpy(x).amin(1), x.min(1))):
        np.testing.assert_array_equal(ours.numpy(), wanted)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(sl.from_numpy(x).sum(1).numpy(), x.astype("float64").sum(1), rtol=1e-5, atol=1e-5)
