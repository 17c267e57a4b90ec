"""Products of many matrices at once, the loss of a projection, and a convolution over time: F.grouped_mm, F.linear_cross_entropy,
F.conv_tbc."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._C import functional as forms
from sluice._tensor.creation import arange


def _check_grouped(mat_a: Tensor, mat_b: Tensor, offs: Any, bias: Any, out_dtype: Any) -> None:
    for name, mat in (("mat_a", mat_a), ("mat_b", mat_b)):
        if mat.ndim not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d; got {mat.ndim}")
        if not mat.dtype.is_floating_point or mat.dtype is _C.float64:
            raise RuntimeError(f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got {mat.dtype}")
    if (offs is not None) != (mat_a.ndim == 2 or mat_b.ndim == 2):
        raise RuntimeError("grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if mat_a._shape[-1] != mat_b._shape[-2]:
        raise RuntimeError(f"grouped_mm: contraction dimension of mat_a and mat_b must match: got {mat_a._shape[-1]} and "
                           f"{mat_b._shape[-2]}")
    if offs is not None and (offs.dtype is not _C.int32 or offs.ndim != 1):
        raise RuntimeError(f"grouped_mm: Offsets have to be int32 and 1d; got {offs.dtype} of {offs.ndim} dims")
    groups = [mat._shape[0] for mat in (mat_a, mat_b) if mat.ndim == 3] + ([] if offs is None else [offs._shape[0]])
    if len(set(groups)) > 1:
        raise RuntimeError(f"grouped_mm: matrix batch sizes have to match, and be the number of offsets: got {groups}")
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError(f"grouped_mm: Grouped gemm output dtype must match `mat_a` dtype: got {out_dtype} and {mat_a.dtype}")


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Products of groups of matrices, offs (G,) int32 saying where each group ends. F.grouped_mm.

    (M, K) by (G, K, N): groups of rows, (M, N), zero behind the last group. (G, M, K) by (K, N): groups of columns, (M, N).
    (M, K) by (K, N): groups of the inner dim, (G, M, N). (G, M, K) by (G, K, N): a product each, without offs. In a graph whose
    values decide the groups, each group's product is made of all rows or columns, masked.
    """
    _check_grouped(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return fn.bmm(mat_a, mat_b)
    rows, columns = mat_a.ndim == 2, mat_b.ndim == 2
    size = mat_b._shape[-1] if not rows else mat_a._shape[-1] if columns else mat_a._shape[0]
    if _C.touches_graph(offs):
        place = arange(size, dtype=_C.int32)
        begin = fn.cat([offs.new_zeros(1), offs[:-1]])
        mask = ((place >= begin.unsqueeze(1)) & (place < offs.unsqueeze(1))).to(mat_a.dtype)
        if rows and columns:
            return fn.matmul(mat_a * mask.unsqueeze(1), mat_b)
        if rows:
            return fn.matmul(mat_a * mask.unsqueeze(2), mat_b).sum(0)
        return fn.matmul(mat_a, mat_b * mask.unsqueeze(1)).sum(0)
    ends = offs.tolist()
    spans = list(zip([0, *ends[:-1]], ends))
    if any(not 0 <= a <= b <= size for a, b in spans):
        raise RuntimeError(f"grouped_mm: offs are {ends}; must not fall, nor be beyond the size of the dim they divide, {size}")
    if rows and columns:
        return fn.stack([fn.matmul(mat_a[:, a:b], mat_b[a:b]) for a, b in spans])
    if rows:
        parts = [fn.matmul(mat_a[a:b], mat_b[g]) for g, (a, b) in enumerate(spans)]
        return fn.cat([*parts, mat_a.new_zeros((size - (ends[-1] if ends else 0), mat_b._shape[-1]))], 0)
    parts = [fn.matmul(mat_a[g], mat_b[:, a:b]) for g, (a, b) in enumerate(spans)]
    return fn.cat([*parts, mat_a.new_zeros((mat_a._shape[1], size - (ends[-1] if ends else 0)))], 1)


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Any = None, weight: Any = None,
                         reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
                         options: Any = None) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target, ...). F.linear_cross_entropy.

    input: (in,) or (N, in); linear_weight: (C, in), or (C, d.., in) for targets (N, d..). `options` choose how torch divides the
    batch to save memory; here they change nothing.
    """
    if input._shape[-1] != linear_weight._shape[-1]:
        raise RuntimeError("linear_cross_entropy: expected equal input and linear_weight last dimensions (in_features), got "
                           f"{input._shape[-1]} and {linear_weight._shape[-1]}, respectively")
    inner = linear_weight._shape[1:-1]
    if inner and input.ndim != 2:
        raise RuntimeError(f"linear_cross_entropy: K-dimensional loss defined by linear_weight shape {linear_weight._shape} "
                           "requires "
                           f"batched input, (N, {input._shape[-1]}), got unbatched input with shape {input._shape}")
    if target.dtype.is_floating_point and ignore_index is not None:
        raise RuntimeError("linear_cross_entropy: ignore_index cannot be specified when target contains probabilities")
    if linear_bias is not None and tuple(linear_bias._shape) != tuple(linear_weight._shape[:-1]):
        raise RuntimeError(f"linear_cross_entropy: expected linear_bias shape {tuple(linear_weight._shape[:-1])}, got "
                           f"{tuple(linear_bias._shape)}")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = forms.linear(input, linear_weight.reshape(-1, linear_weight._shape[-1]), bias)
    logits = logits.reshape(logits._shape[:-1] + linear_weight._shape[:1] + inner)
    return forms.cross_entropy(logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index,
                               reduction=reduction,
                               label_smoothing=label_smoothing)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of (time, batch, in) by (width, in, out), plus a bias (out), to (time, batch, out); torch.conv_tbc."""
    if input.ndim != 3:
        raise RuntimeError(f"conv_tbc: Input must have 3 dims: time, batch, in_channel; got {input.ndim}")
    if weight.ndim != 3:
        raise RuntimeError("conv_tbc: Weight tensor must have 3 dims: kernel_width, in_channels, out_channels; got "
                           f"{weight.ndim}")
    if bias.ndim != 1:
        raise RuntimeError(f"conv_tbc: Bias must be 1-D; got {bias.ndim} dims")
    if input._shape[2] != weight._shape[1]:
        raise RuntimeError(f"conv_tbc: Input dim 2 (input channels) is {input._shape[2]}; must be weight's dim 1, "
                           f"{weight._shape[1]}")
    if bias._shape[0] != weight._shape[2]:
        raise RuntimeError(f"conv_tbc: Bias size is {bias._shape[0]}; must be weight's dim 2 (output channels), "
                           f"{weight._shape[2]}")
    return fn.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias.to(input.dtype), padding=pad).permute(2, 0, 1)
