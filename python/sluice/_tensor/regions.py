"""Regions of feature maps as maps of one size, by torchvision's other names than roi_align: roi_pool, ps_roi_pool, ps_roi_align."""

from __future__ import annotations

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor import detection
from sluice._tensor.creation import arange


def _checked(name: str, input: Tensor, rois: Tensor, parts: int = 1) -> int:
    """How many channels a result has."""
    if input.ndim != 4 or rois.ndim != 2 or rois._shape[1] != 5:
        raise RuntimeError(f"{name}: got input of shape {input._shape} and rois of shape {rois._shape}; must be (N, C, H, W) and (n, 5)")
    if input._shape[1] % parts:
        raise RuntimeError(f"{name}: input channels must be a multiple of pooling height * pooling width: got {input._shape[1]} and {parts}")
    return int(input._shape[1]) // parts


def _nearest(places: Tensor) -> Tensor:
    """Halves go away from zero."""
    return fn.where(places < 0, (places - 0.5).ceil(), (places + 0.5).floor())


def _lines(start: Tensor, end: Tensor, bins: int, extent: int, last: int, more: int) -> Tensor:
    """(rois, bins, extent): whether each line of the image lies in each bin of the whole pixels from start to end, before line `last`."""
    start, end = _nearest(start).reshape(-1, 1), _nearest(end).reshape(-1, 1)
    size = (end - start + more).clamp(min=1) / bins
    step = arange(bins, dtype=start.dtype)
    low, high = (step * size).floor() + start, ((step + 1) * size).ceil() + start
    low, high = (place.clamp(0, last).unsqueeze(-1) for place in (low, high))
    line = arange(extent, dtype=start.dtype)
    return (line >= low) & (line < high)


def roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_h: int, pooled_w: int) -> tuple[Tensor, Tensor]:
    """The largest value in each bin of each region, 0 in an empty one, and where it is in the image, or -1. Girshick, 2015."""
    _checked("roi_pool", input, rois)
    height, width = input._shape[2:]
    rois = rois.detach().to(input.dtype)
    x1, y1, x2, y2 = (rois[:, i] * spatial_scale for i in (1, 2, 3, 4))
    rows, columns = _lines(y1, y2, pooled_h, height, height, 1), _lines(x1, x2, pooled_w, width, width, 1)
    images = fn.index_select(input, 0, rois[:, 0].to(_C.int64))
    least = float("-inf")
    across, column = fn.where(columns[:, None, None], images.unsqueeze(3), least).max(-1)  # (n, C, H, pooled_w)
    found, row = fn.where(rows[:, None, :, :, None], across.unsqueeze(2), least).max(3)
    place = row * width + fn.gather(column, 2, row)
    full = (rows.any(2).unsqueeze(2) & columns.any(2).unsqueeze(1)).unsqueeze(1).expand(found._shape)
    return fn.where(full, found, 0.0), fn.where(full, place, -1).to(_C.int32)


def _of_position(pooled: Tensor, channels: int) -> Tensor:
    """Of (n, channels * h * w, h, w), what each bin has in the channel that is its own."""
    n, _, height, width = pooled._shape
    each = pooled.reshape(n, channels, height, width, height, width)
    return each.diagonal(0, 2, 4).diagonal(0, 2, 3).contiguous()


def _mapping(rois: Tensor, channels: int, height: int, width: int) -> Tensor:
    """The channel that each bin of a result has its values from."""
    shape = (channels, height, width)
    return arange(channels * height * width, dtype=_C.int32).reshape(shape).expand((rois._shape[0], *shape))


def ps_roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_h: int, pooled_w: int,
                 sampling_ratio: int = -1) -> tuple[Tensor, Tensor]:
    """roi_align in which each bin has channels of its own, and the number of the channel. Li et al., 2018."""
    channels = _checked("ps_roi_align", input, rois, pooled_h * pooled_w)
    pooled = detection.roi_align(input, rois, spatial_scale, pooled_h, pooled_w, sampling_ratio, aligned=True)
    return _of_position(pooled, channels), _mapping(rois, channels, pooled_h, pooled_w)


def ps_roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_h: int, pooled_w: int) -> tuple[Tensor, Tensor]:
    """The mean of each bin of each region, 0 in an empty one, in channels of its own, and the number of the channel. Dai et al., 2016.

    As torchvision's, it leaves out the last row and column of the image. Its gradient is that of what it computes.
    """
    channels = _checked("ps_roi_pool", input, rois, pooled_h * pooled_w)
    height, width = input._shape[2:]
    rois = rois.detach().to(input.dtype)
    x1, y1, x2, y2 = (rois[:, i] * spatial_scale for i in (1, 2, 3, 4))
    rows = _lines(y1, y2, pooled_h, height, height - 1, 0).to(input.dtype)
    columns = _lines(x1, x2, pooled_w, width, width - 1, 0).to(input.dtype)
    rows, columns = (part / part.sum(2, keepdim=True).clamp(min=1) for part in (rows, columns))
    images = fn.index_select(input, 0, rois[:, 0].to(_C.int64))
    pooled = fn.matmul(fn.matmul(rows.unsqueeze(1), images), columns.mT.unsqueeze(1))
    return _of_position(pooled, channels), _mapping(rois, channels, pooled_h, pooled_w)
