"""Boxes and regions of images, which OneFlow has at its top: nms, roi_align, deform_conv2d; torchvision.ops is of the same semantics."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import arange, numpy as lazy_numpy, tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices (k,) of the boxes (n, 4) as x1, y1, x2, y2 that stay, by falling score, when each takes away those it overlaps by more
    than iou_threshold of their union; oneflow.nms, torchvision.ops.nms. How many there are depends on values, so a graph has none."""
    if boxes.ndim != 2 or boxes._shape[1] != 4:
        raise RuntimeError(f"nms: boxes should be a 2d tensor of (n, 4), got {boxes._shape}")
    if scores._shape != boxes._shape[:1]:
        raise RuntimeError(f"nms: boxes and scores should have the same number of elements in dimension 0, got {boxes._shape} "
                           f"and {scores._shape}")
    if _C.touches_graph(boxes) or _C.touches_graph(scores):
        raise _C.NotImplementedError("nms: how many boxes stay depends on their values; call it outside of the graph, or in a "
                                     "host_function")
    np = lazy_numpy()
    order = fn.argsort(scores.detach(), stable=True, dim=0, descending=True).numpy()
    box = boxes.detach().double().numpy()[order]
    area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    gone, kept = np.zeros(len(order), bool), []
    for i in range(len(order)):
        if gone[i]:
            continue
        kept.append(order[i])
        low, high = np.maximum(box[i, :2], box[i + 1:, :2]), np.minimum(box[i, 2:], box[i + 1:, 2:])
        common = np.clip(high - low, 0, None).prod(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            gone[i + 1:] |= common / (area[i] + area[i + 1:] - common) > iou_threshold
    return tensor(np.array(kept, np.int64))


def _bins(start: Tensor, size: Tensor, bins: int, samples: int, extent: int, dtype: Any) -> Tensor:
    """(rois, bins, extent): how much each line of the image weighs in each bin, the mean of bilinear samples."""
    width = size / bins
    if samples > 0:
        counts, most = width * 0 + samples, samples
    else:
        counts = width.ceil()
        most = max(1, int(counts.max().item())) if counts.numel() else 1
    step = arange(most, dtype=dtype)
    at = (start.reshape(-1, 1, 1) + width.reshape(-1, 1, 1) * (arange(bins, dtype=dtype).reshape(-1, 1)
          + (step + 0.5) / counts.clamp(min=1).reshape(-1, 1, 1)))
    counted = (step < counts.reshape(-1, 1, 1)) & (at >= -1) & (at <= extent)
    lines = arange(extent, dtype=dtype)
    weight = (1 - (at.clamp(0, extent - 1).unsqueeze(-1) - lines).abs()).clamp(min=0)
    return fn.where(counted.unsqueeze(-1), weight, 0.0).sum(2) / counts.clamp(min=1).reshape(-1, 1, 1)


def roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_h: int, pooled_w: int, sampling_ratio: int = -1,
              aligned: bool = False) -> Tensor:
    """Regions (n, 5), as image, x1, y1, x2, y2, of images (N, C, H, W), each as (C, pooled_h, pooled_w): means of bilinear samples,
    sampling_ratio squared in each bin, or as many as it has pixels (not in a graph). oneflow.roi_align, torchvision.ops.roi_align."""
    if input.ndim != 4 or rois.ndim != 2 or rois._shape[1] != 5:
        raise RuntimeError(f"roi_align: got input of shape {input._shape} and rois of shape {rois._shape}; must be (N, C, H, "
                           "W) and (n, 5)")
    if sampling_ratio <= 0 and _C.touches_graph(rois):
        raise _C.NotImplementedError("roi_align: sampling_ratio <= 0 makes as many samples as regions have pixels; in a graph "
                                     "say how many")
    rois = rois.detach().to(input.dtype)
    x1, y1, x2, y2 = (rois[:, i] * spatial_scale - (0.5 if aligned else 0.0) for i in (1, 2, 3, 4))
    width, height = (x2 - x1, y2 - y1) if aligned else ((x2 - x1).clamp(min=1), (y2 - y1).clamp(min=1))
    rows = _bins(y1, height, pooled_h, sampling_ratio, input._shape[2], input.dtype)
    columns = _bins(x1, width, pooled_w, sampling_ratio, input._shape[3], input.dtype)
    images = fn.index_select(input, 0, rois[:, 0].to(_C.int64))
    return fn.matmul(fn.matmul(rows.unsqueeze(1), images), columns.mT.unsqueeze(1))


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, Integral) else tuple(value)


def _sampled(flat: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Bilinear samples (N, C, points) of images (N, C, height * width) at (N, points); outside they are 0."""
    top, left = y.detach().floor(), x.detach().floor()
    total = None
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).to(_C.int64)
            weight = (y - top if down else 1 - (y - top)) * (x - left if right else 1 - (x - left))
            weight = fn.where(inside, weight, 0.0).unsqueeze(1)
            part = fn.gather(flat, 2, place.unsqueeze(1).expand(flat._shape[:2] + place._shape[1:])) * weight
            total = part if total is None else total + part
    return total


def deform_conv2d(input: Tensor, offset: Tensor, weight: Tensor, bias: Any = None, stride: Any = (1, 1), padding: Any = (0, 0),
                  dilation: Any = (1, 1), mask: Any = None) -> Tensor:
    """Convolution of (N, C, H, W) whose kernel looks `offset` beside its places, each times `mask`. Dai et al., 2017; Zhu et al., 2018.

    offset: (N, groups * kh * kw * 2, Ho, Wo), y and x in turn; mask: (N, groups * kh * kw, Ho, Wo); weight: (out, C / g, kh, kw).
    oneflow.deform_conv2d, torchvision.ops.deform_conv2d.
    """
    if input.ndim != 4 or offset.ndim != 4 or weight.ndim != 4:
        raise RuntimeError(f"deform_conv2d: input, offset and weight have {input.ndim}, {offset.ndim} and {weight.ndim} dims; "
                           "must have 4 each")
    n, channels, height, width = input._shape
    out, per_group, kh, kw = weight._shape
    (sy, sx), (py, px), (dy, dx) = _pair(stride), _pair(padding), _pair(dilation)
    rows, columns = (height + 2 * py - dy * (kh - 1) - 1) // sy + 1, (width + 2 * px - dx * (kw - 1) - 1) // sx + 1
    taps = kh * kw
    groups = offset._shape[1] // (2 * taps)
    if groups == 0 or offset._shape != (n, groups * 2 * taps, rows, columns) or channels % groups:
        raise RuntimeError("deform_conv2d: the shape of the offset tensor at dimension 1 is not valid, or its size: got "
                           f"{offset._shape}; must be "
                           f"(N, groups * {2 * taps}, {rows}, {columns}) with groups that divide {channels} channels")
    if channels % per_group or out % (channels // per_group):
        raise RuntimeError(f"deform_conv2d: weight of shape {weight._shape} does not fit {channels} channels")
    if mask is not None and mask._shape != (n, groups * taps, rows, columns):
        raise RuntimeError(f"deform_conv2d: mask has shape {mask._shape}; must be {(n, groups * taps, rows, columns)}")
    points, dtype = rows * columns, input.dtype
    shifts = offset.reshape(n, groups, taps, 2, points)
    base_y = (arange(rows, dtype=dtype) * sy - py).reshape(rows, 1).expand(rows, columns).reshape(points)
    base_x = (arange(columns, dtype=dtype) * sx - px).expand(rows, columns).reshape(points)
    tap_y = (arange(kh, dtype=dtype) * dy).reshape(kh, 1).expand(kh, kw).reshape(taps, 1)
    tap_x = (arange(kw, dtype=dtype) * dx).expand(kh, kw).reshape(taps, 1)
    y, x = shifts[:, :, :, 0] + (tap_y + base_y), shifts[:, :, :, 1] + (tap_x + base_x)
    size = channels // groups
    flat = input.reshape(n * groups, size, height * width)
    at = (n * groups, taps * points)
    looked = _sampled(flat, y.reshape(at), x.reshape(at), height, width).reshape(n, groups, size, taps, points)
    if mask is not None:
        looked = looked * mask.reshape(n, groups, 1, taps, points)
    blocks = channels // per_group
    looked = looked.reshape(n, blocks, per_group * taps, points)
    made = fn.matmul(weight.reshape(1, blocks, out // blocks, per_group * taps), looked).reshape(n, out, rows, columns)
    return made if bias is None else made + bias.reshape(1, out, 1, 1)
