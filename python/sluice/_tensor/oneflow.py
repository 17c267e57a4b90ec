"""Functions that OneFlow has and torch has not."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import zeros


def cast(input: Tensor, dtype: Any) -> Tensor:
    """The values as `dtype`; oneflow.cast."""
    return input.to(dtype)


def batch_gather(in_: Tensor, indices: Tensor) -> Tensor:
    """Takes from each batch the slices at its indices: (B.., N, rest..) at (B.., M) gives (B.., M, rest..);
    oneflow.batch_gather."""
    axis = indices.ndim - 1
    if axis < 0 or in_.ndim <= axis or in_._shape[:axis] != indices._shape[:axis]:
        raise RuntimeError(f"batch_gather: indices of shape {indices._shape} do not fit the input of shape {in_._shape}; all dims but "
                           "their last must be equal")
    rest = in_._shape[axis + 1:]
    index = indices.to(_C.int64).reshape(indices._shape + (1,) * len(rest)).expand(indices._shape + rest)
    return fn.gather(in_, axis, index)


def unsorted_batch_segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """Sums in each batch the slices of equal id: the gradient of batch_gather; oneflow._C.unsorted_batch_segment_sum."""
    axis = segment_ids.ndim - 1
    if axis < 0 or data._shape[:axis + 1] != segment_ids._shape:
        raise RuntimeError(f"unsorted_batch_segment_sum: ids of shape {segment_ids._shape} do not fit data of shape {data._shape}; they "
                           "must be its first dims")
    rest = data._shape[axis + 1:]
    index = segment_ids.to(_C.int64).reshape(segment_ids._shape + (1,) * len(rest)).expand(data._shape)
    sums = zeros(data._shape[:axis] + (num_segments,) + rest, dtype=data.dtype, device=data._device)
    return fn.scatter_add(sums, axis, index, data)


def _columns(name: str, index: Tensor, rank: int) -> list:
    if index.ndim < 1 or index._shape[-1] > rank:
        raise RuntimeError(f"{name}: the last dim of the index has {index._shape[-1:]} entries; must be at most {rank}, one per dim")
    return list(index.unbind(-1))


def gather_nd(input: Tensor, index: Tensor) -> Tensor:
    """Slices of the input at index[..., :], an index per leading dim; oneflow.gather_nd."""
    return input[tuple(_columns("gather_nd", index, input.ndim))]


def scatter_nd(index: Tensor, update: Tensor, shape: Any) -> Tensor:
    """Zeros of that shape with update added at index[..., :]; oneflow.scatter_nd."""
    target = zeros(tuple(shape), dtype=update.dtype, device=update._device)
    return fn.index_put(target, _columns("scatter_nd", index, target.ndim), update, True)


def tensor_scatter_nd_update(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """The tensor with updates at indices[..., :]; oneflow.tensor_scatter_nd_update."""
    return fn.index_put(tensor, _columns("tensor_scatter_nd_update", indices, tensor.ndim), updates)


def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether each row's target is among its k largest predictions, bool; oneflow.in_top_k."""
    if targets.ndim != 1 or predictions.ndim != 2 or targets._shape[0] != predictions._shape[0]:
        raise RuntimeError(f"in_top_k: got targets of shape {targets._shape} and predictions of shape {predictions._shape}; must be (n,) "
                           "and (n, classes)")
    own = fn.gather(predictions, 1, targets.to(_C.int64).unsqueeze(1))
    return ((predictions > own).sum(1) < k) & fn.isfinite(own.squeeze(1))


def broadcast_like(x: Tensor, like_tensor: Tensor, broadcast_axes: Any = None) -> Tensor:
    """Broadcast to another's shape, of new dims those at `broadcast_axes`; oneflow.broadcast_like."""
    for axis in sorted(a % like_tensor.ndim for a in broadcast_axes or ()):
        if x.ndim < like_tensor.ndim:
            x = x.unsqueeze(axis)
    return x.expand(like_tensor._shape)


def _slices(name: str, x: Tensor, parts: Any) -> tuple:
    if len(parts) > x.ndim:
        raise _C.ValueError(f"{name}: got {len(parts)} slices for a tensor of {x.ndim} dims; must be at most one each")
    return tuple(slice(*part) for part in parts)


def slice_(x: Tensor, slice_tup_list: Any) -> Tensor:
    """x[start:stop:step, ...], of one (start, stop, step) per dim; oneflow.slice."""
    return x[_slices("slice", x, slice_tup_list)]


def slice_update(x: Tensor, update: Tensor, slice_tup_list: Any) -> Tensor:
    """Writes `update` to x[start:stop:step, ...]; oneflow.slice_update."""
    x[_slices("slice_update", x, slice_tup_list)] = update
    return x


def square_relu(input: Tensor) -> Tensor:
    """relu(input) squared; oneflow.square_relu."""
    return fn.square(fn.relu(input))


def quick_gelu(input: Tensor) -> Tensor:
    """input * sigmoid(1.702 * input); oneflow.quick_gelu."""
    return input * fn.sigmoid(input * 1.702)


def roc_auc_score(label: Tensor, pred: Tensor) -> Tensor:
    """Area under the ROC curve of predictions for labels 0 and 1; oneflow.roc_auc_score."""
    label, pred = label.reshape(-1), pred.reshape(-1)
    positive = (label != 0).to(_C.float64)
    ordered = pred.sort().values
    below = (fn.searchsorted(ordered, pred) + fn.searchsorted(ordered, pred, right=True) + 1).to(_C.float64) / 2
    ones, total = positive.sum(), positive.numel()
    return (((below * positive).sum() - ones * (ones + 1) / 2) / (ones * (total - ones))).to(_C.float32)


def convert_oneflow_dtype_to_numpy_dtype(dtype: Any) -> Any:
    """NumPy's dtype of the same name; oneflow.convert_oneflow_dtype_to_numpy_dtype."""
    from sluice._tensor.creation import numpy

    if dtype is _C.bfloat16:
        raise NotImplementedError("convert_oneflow_dtype_to_numpy_dtype: NumPy has no bfloat16; convert to float32 first")
    return getattr(numpy(), "bool_" if dtype is _C.bool else dtype.name)


def _new(name: str) -> Any:
    def new(x, *args, **options):
        return getattr(x, name)(*args, **options)

    new.__name__ = new.__qualname__ = name
    new.__doc__ = f"x.{name}(...); oneflow.{name}."
    return new


new_empty, new_full, new_ones, new_zeros = (_new("new_" + n) for n in ("empty", "full", "ones", "zeros"))


def repeat(input: Tensor, *sizes: Any) -> Tensor:
    """input.repeat(*sizes); oneflow.repeat."""
    return input.repeat(*sizes)


def in_top_k_of(self: Tensor, predictions: Tensor, k: int) -> Tensor:
    """in_top_k of this tensor, of targets; oneflow.Tensor.in_top_k."""
    return in_top_k(self, predictions, k)


Tensor.in_top_k = in_top_k_of
