"""Regions of feature maps, by torchvision's names under mock_torch: each bin by its definition, gradients by differences."""

import math

import numpy as np
import pytest

import sluice as sl
from sluice._tensor import regions

SCALE, BINS = 0.8, (3, 2)
ROIS = np.array([[0, 1.5, 2, 8, 7.5], [1, -3, 0, 30, 3], [0, 5, 5, 5, 5], [1, 20, 20, 30, 30], [1, 0.625, 1.875, 4, 3]])


def nearest(value):
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


def bins_of(roi, shape, last, more):
    """Slices of the image for each bin."""
    starts, ends = [nearest(roi[i] * SCALE) for i in (2, 1)], [nearest(roi[i] * SCALE) for i in (4, 3)]
    for at in np.ndindex(BINS):
        slices = []
        for axis in (0, 1):
            size = max(ends[axis] - starts[axis] + more, 1) / BINS[axis]
            low, high = math.floor(at[axis] * size) + starts[axis], math.ceil((at[axis] + 1) * size) + starts[axis]
            most = shape[axis] - last
            slices.append(slice(min(max(low, 0), most), min(max(high, 0), most)))
        yield at, tuple(slices)


def roi_pool(x):
    out, places = np.zeros((len(ROIS), x.shape[1], *BINS)), np.full((len(ROIS), x.shape[1], *BINS), -1)
    for n, roi in enumerate(ROIS):
        for at, seen in bins_of(roi, x.shape[2:], 0, 1):
            for c in range(x.shape[1]):
                part = x[int(roi[0]), c][seen]
                if part.size:
                    out[n, c][at] = part.max()
                    row, column = np.unravel_index(part.argmax(), part.shape)
                    places[n, c][at] = (row + seen[0].start) * x.shape[3] + column + seen[1].start
    return out, places


def ps_roi_pool(x):
    channels = x.shape[1] // (BINS[0] * BINS[1])
    out = np.zeros((len(ROIS), channels, *BINS))
    for n, roi in enumerate(ROIS):
        for at, seen in bins_of(roi, x.shape[2:], 1, 0):
            for c in range(channels):
                part = x[int(roi[0]), (c * BINS[0] + at[0]) * BINS[1] + at[1]][seen]
                out[n, c][at] = part.mean() if part.size else 0
    return out


def ps_roi_align(x, samples):
    channels, (height, width) = x.shape[1] // (BINS[0] * BINS[1]), x.shape[2:]
    out = np.zeros((len(ROIS), channels, *BINS))

    def at(image, y, x):
        if not (-1 <= y <= height and -1 <= x <= width):
            return 0.0
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
        top, left = min(int(y), height - 2), min(int(x), width - 2)
        rows, columns = np.array([1 - (y - top), y - top]), np.array([1 - (x - left), x - left])
        return float(rows @ image[top:top + 2, left:left + 2] @ columns)

    for n, roi in enumerate(ROIS):
        starts, ends = [roi[i] * SCALE - 0.5 for i in (2, 1)], [roi[i] * SCALE - 0.5 for i in (4, 3)]
        sizes = [(ends[a] - starts[a]) / BINS[a] for a in (0, 1)]
        counts = [samples if samples > 0 else math.ceil(size) for size in sizes]
        for (i, j) in np.ndindex(BINS):
            for c in range(channels):
                image = x[int(roi[0]), (c * BINS[0] + i) * BINS[1] + j]
                values = [at(image, starts[0] + sizes[0] * (i + (p + 0.5) / counts[0]), starts[1] + sizes[1] * (j + (q + 0.5) / counts[1]))
                          for p in range(counts[0]) for q in range(counts[1])]
                out[n, c, i, j] = np.mean(values) if values else 0
    return out


@pytest.fixture
def image():
    return np.random.default_rng(4).normal(size=(2, 12, 9, 11))


def tensors(image):
    return sl.tensor(image, requires_grad=True), sl.tensor(ROIS)


def test_the_largest_of_each_bin_and_where_it_is(image):
    x, rois = tensors(image)
    out, places = regions.roi_pool(x, rois, SCALE, *BINS)
    expected, where = roi_pool(image)
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-12)
    assert places.dtype is sl.int32 and np.array_equal(places.numpy(), where) and (where == -1).any()
    weights = np.random.default_rng(5).normal(size=expected.shape)
    (out * sl.tensor(weights)).sum().backward()
    gradient = np.zeros_like(image)
    for (n, c, i, j), place in np.ndenumerate(where):
        if place >= 0:
            gradient[int(ROIS[n, 0]), c, place // 11, place % 11] += weights[n, c, i, j]
    np.testing.assert_allclose(x.grad.numpy(), gradient, atol=1e-12)


@pytest.mark.parametrize("ours,expected", [
    (lambda x, r: regions.ps_roi_pool(x, r, SCALE, *BINS), ps_roi_pool),
    (lambda x, r: regions.ps_roi_align(x, r, SCALE, *BINS, 2), lambda x: ps_roi_align(x, 2)),
    (lambda x, r: regions.ps_roi_align(x, r, SCALE, *BINS), lambda x: ps_roi_align(x, -1))], ids=["pool", "align", "align by pixels"])
def test_bins_have_channels_of_their_own(image, ours, expected):
    x, rois = tensors(image)
    out, mapping = ours(x, rois)
    np.testing.assert_allclose(out.detach().numpy(), expected(image), atol=1e-12)
    assert np.array_equal(mapping.numpy()[0], np.arange(12).reshape(2, *BINS)) and mapping.shape == out.shape
    weights, step = np.random.default_rng(5).normal(size=tuple(out.shape)), np.random.default_rng(6).normal(size=image.shape)
    (out * sl.tensor(weights)).sum().backward()
    along = float((expected(image + step) * weights).sum() - (expected(image) * weights).sum())  # it is linear in the image
    assert float((x.grad.numpy() * step).sum()) == pytest.approx(along, rel=1e-9)


def test_a_graph_has_the_same_regions(image):
    x, rois = tensors(image)
    for of, options in ((regions.roi_pool, ()), (regions.ps_roi_pool, ()), (regions.ps_roi_align, (2,))):
        def first(x, r, of=of, options=options):
            return of(x, r, SCALE, *BINS, *options)[0]

        with sl.no_grad():
            traced = sl.nn.Graph.trace(lambda x, r: first(x, r))
            np.testing.assert_allclose(traced(x.detach(), rois).numpy(), first(x.detach(), rois).numpy(), atol=1e-12)


def test_packages_find_them(image):
    with sl.mock_torch():
        import torch

        for name in ("roi_pool", "ps_roi_pool"):
            found = getattr(torch.ops.torchvision, name)(*tensors(image), SCALE, *BINS)
            assert np.array_equal(found[0].detach().numpy(), getattr(regions, name)(*tensors(image), SCALE, *BINS)[0].detach().numpy())


@pytest.mark.parametrize("image_shape,rois_shape,said", [((2, 12, 9), (3, 5), "must be (N, C, H, W) and (n, 5)"),
                                                         ((2, 12, 9, 9), (3, 4), "must be (N, C, H, W) and (n, 5)"),
                                                         ((2, 7, 9, 9), (3, 5), "multiple of pooling height * pooling width")])
def test_other_shapes_are_told(image_shape, rois_shape, said):
    with pytest.raises(RuntimeError) as error:
        regions.ps_roi_pool(sl.zeros(*image_shape), sl.zeros(*rois_shape), 1.0, 2, 2)
    assert said in str(error.value)
