"""sluice.data.augment against definitions in NumPy, and colorsys."""

import colorsys

import numpy as np
import pytest

import sluice as sl
from sluice import data
from sluice.data import augment

RNG = np.random.default_rng(8)
N = 48
KEYS = np.stack([np.full(N, 5), np.arange(N)], 1)


def images(n=N, height=12, width=10):
    return RNG.integers(0, 256, (n, 3, height, width)).astype(np.uint8)


def applied(function, x, keys=KEYS, y=None):
    x, keys = sl.from_numpy(x), sl.from_numpy(keys)
    if y is not None:
        return tuple(v.numpy() for v in function(x, sl.from_numpy(y), keys=keys))
    got, = function(x, keys=keys)
    return got.numpy()


ALL = {
    "flip": augment.flip(), "vertical flip": augment.flip(vertical=True), "grayscale": augment.grayscale(0.5),
    "colours": augment.colour_jitter(0.4, 0.4, 0.4, 0.1), "blur": augment.gaussian_blur(5), "noise": augment.gaussian_noise(0.1),
    "erasing": augment.random_erasing(0.7), "crop": augment.random_crop((8, 6), padding=2), "pad": augment.pad(3, 7),
}


@pytest.mark.parametrize("name", ALL)
def test_what_is_done_to_an_image_comes_from_its_key_alone(name):
    x = images()
    whole = applied(ALL[name], x)
    order = RNG.permutation(N)
    np.testing.assert_array_equal(applied(ALL[name], x[order], KEYS[order]), whole[order])
    np.testing.assert_array_equal(applied(ALL[name], x[3:4], KEYS[3:4]), whole[3:4])
    if name != "pad":
        same = np.repeat(x[:1], N, 0)
        assert len({image.tobytes() for image in applied(ALL[name], same)}) > 1
        assert not np.array_equal(applied(ALL[name], x, KEYS + [1, 0]), whole)


@pytest.mark.parametrize("name", ALL)
def test_plans_compute_what_eager_calls_do(name):
    x = images()
    pipeline = data.arrays(x).batch(16).map(ALL[name])
    keys = np.stack([np.full(N, pipeline._order.key(0)), np.arange(N)], 1)
    got = np.concatenate([batch.numpy() for batch in pipeline])
    want = applied(ALL[name], x, keys)
    if got.dtype == np.uint8:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_flips_and_erasing_happen_as_often_as_asked():
    n = 600
    x, keys = images(n), np.stack([np.zeros(n, np.int64), np.arange(n)], 1)
    for p in (0.0, 0.3, 1.0):
        for function, one in ((augment.flip(p), x[..., ::-1]), (augment.flip(p, vertical=True), x[:, :, ::-1])):
            got = applied(function, x, keys)
            done = (got == one).all((1, 2, 3))
            assert (done | (got == x).all((1, 2, 3))).all() and abs(done.mean() - p) < 0.08
        erased = (applied(augment.random_erasing(p, value=1), x // 2 * 2, keys) == 1).any((1, 2, 3))
        assert abs(erased.mean() - p) < 0.08


def test_erased_parts_are_rectangles_of_the_areas_asked_for():
    n = 300
    keys = np.stack([np.zeros(n, np.int64), np.arange(n)], 1)
    got = applied(augment.random_erasing(1.0, (0.1, 0.4), (0.5, 2.0)), np.ones((n, 3, 40, 40), np.float32), keys)
    areas = []
    for image in got:
        assert (image == image[0]).all()
        rows, columns = (np.flatnonzero((image[0] == 0).any(axis)) for axis in (1, 0))
        assert (image[0][rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1] == 0).all()
        areas.append((image[0] == 0).mean())
        assert 0.4 < len(rows) / len(columns) < 2.5
    assert 0.08 < min(areas) < 0.15 and 0.35 < max(areas) < 0.43


def test_hues_are_those_of_colorsys():
    x = images(20, 3, 3).astype(np.float32) / 255
    x[0] = 0.5
    for by in (0.0, 0.25, -0.4, 0.5):
        got = augment._shifted_hue(sl.from_numpy(x), by).numpy()
        for image, out in zip(x.reshape(20, 3, -1), got.reshape(20, 3, -1)):
            for pixel, shifted in zip(image.T, out.T):
                h, s, v = colorsys.rgb_to_hsv(*pixel)
                np.testing.assert_allclose(shifted, colorsys.hsv_to_rgb((h + by) % 1, s, v), atol=2e-5)


def test_colours_change_within_their_factors():
    x = images() // 2 + 30
    f = x / 255.0
    bright = applied(augment.colour_jitter(brightness=0.5), x)
    factors = (bright / f).reshape(N, -1)
    inside = bright.reshape(N, -1).max(1) < 1
    assert np.ptp(factors[inside], axis=1).max() < 1e-4 and factors.min() > 0.5 - 1e-4 and factors[inside].max() < 1.5
    gray = (f * np.array([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)).sum(1, keepdims=True)
    np.testing.assert_allclose(applied(augment.grayscale(1.0), x), np.repeat(gray, 3, 1), atol=1e-5)
    contrast = applied(augment.colour_jitter(contrast=(0.3)), x)
    mean = gray.mean((1, 2, 3), keepdims=True)
    inside = (contrast > 0) & (contrast < 1) & (np.abs(f - mean) > 0.05)
    factors = np.where(inside, (contrast - mean) / (f - mean), np.nan)
    assert np.nanmin(factors) > 0.69 and np.nanmax(factors) < 1.31
    np.testing.assert_array_equal(applied(augment.colour_jitter(), x), x.astype(np.float32) / np.float32(255))


def test_a_blur_keeps_means_and_takes_edges():
    x = np.zeros((4, 3, 21, 21), np.float32)
    x[:, :, 10, 10] = 1
    got = applied(augment.gaussian_blur(9, (1.0, 1.0)), x, KEYS[:4])
    at = np.arange(9) - 4.0
    one = np.exp(-at**2 / 2)
    one /= one.sum()
    np.testing.assert_allclose(got[0, 0, 6:15, 6:15], np.outer(one, one), atol=1e-6)
    np.testing.assert_allclose(got.sum((2, 3)), 1, atol=1e-5)


def test_noise_is_normal():
    x = np.full((N, 3, 20, 20), 0.5, np.float32)
    noise = (applied(augment.gaussian_noise(0.1), x) - 0.5) / 0.1
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02 and abs((noise**4).mean() - 3) < 0.15


def test_random_crops_are_parts():
    x = images()
    got = applied(augment.random_crop((8, 6), padding=2), x)
    whole, places = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))), set()
    for image, one in zip(got, whole):
        found = [(r, c) for r in range(9) for c in range(9) if (one[:, r:r + 8, c:c + 6] == image).all()]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > 20 and {r for r, _ in places} >= {0, 8}
    np.testing.assert_array_equal(applied(augment.pad(3, 7), x), np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), constant_values=7))


def test_mixed_images_have_the_labels_of_their_parts():
    n = 400
    x = np.tile(np.arange(n, dtype=np.float32).reshape(n, 1, 1, 1) / n, (1, 3, 16, 16))
    y, keys = np.arange(n) % 7, np.stack([np.zeros(n, np.int64), np.arange(n)], 1)
    for alpha in (0.2, 1.0):
        got, labels = applied(augment.mixup(7, alpha), x, keys, y)
        np.testing.assert_allclose(labels.sum(1), 1, atol=1e-5)
        share = (got[:, 0, 0, 0] - x[::-1][:, 0, 0, 0]) / (x - x[::-1])[:, 0, 0, 0]
        assert -1e-3 < share.min() and share.max() < 1.001
        # The mean and variance of a Beta distribution of alpha and alpha.
        assert abs(share.mean() - 0.5) < 0.06 and abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 0.03
        want = np.eye(7)[y] * share[:, None] + np.eye(7)[y[::-1]] * (1 - share[:, None])
        np.testing.assert_allclose(labels, want, atol=2e-3)
    got, labels = applied(augment.cutmix(7), x, keys, y)
    own = (got == x).all(1).mean((1, 2))
    other = (got == x[::-1]).all(1).mean((1, 2))
    np.testing.assert_allclose(own + other, 1, atol=1e-6)
    want = np.eye(7)[y] * own[:, None] + np.eye(7)[y[::-1]] * (1 - own[:, None])
    np.testing.assert_allclose(labels, want, atol=1e-5)


def test_stages_come_one_after_the_other_in_a_plan():
    pipeline = (data.arrays(images(40), np.arange(40) % 4).shuffle().batch(8).map(augment.flip()).map(augment.colour_jitter(0.2, 0.2))
                .normalize([0.5] * 3, [0.2] * 3).map(augment.mixup(4)))
    for x, y in pipeline:
        assert x.shape == (8, 3, 12, 10) and y.shape == (8, 4) and np.isfinite(x.numpy()).all()
    host = [k for k in pipeline._plan.graph.plan["kernels"] if k["op"] == "host_function"]
    assert len(host) == 1  # the source; all else are kernels


@pytest.mark.parametrize(("make", "text"), [
    (lambda: augment.flip(1.5), "flip: p: 1.5; must be a probability"),
    (lambda: augment.colour_jitter(hue=0.6), "hue: 0.6; must be in \\[0, 0.5\\]"),
    (lambda: augment.gaussian_blur(4), "gaussian_blur: size 4"),
    (lambda: augment.mixup(3, 2.0), "mixup: alpha: 2.0; must be in \\[0.05, 1\\]"),
    (lambda: augment.pad(-1), "pad: -1 pixels"),
    (lambda: augment.gaussian_noise(-1), "std: -1"),
    (lambda: applied(augment.random_crop(99), images()), "random_crop: 99 x 99 of images of 12 x 10"),
])
def test_misuse_is_told(make, text):
    with pytest.raises(ValueError, match=text):
        make()
