"""torch's own forms of functions of nn.functional: other orders of arguments, and reductions as numbers, by default 0, as torch's
are when it is called (its signatures say mean)."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._tensor.creation import arange
from sluice._base.grad_mode import no_grad
from sluice.nn import functional

REDUCTIONS = ("none", "mean", "sum")  # at their numbers: at::Reduction


def _reduction(name: str, number: Any) -> str:
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise TypeError(f"{name}(): argument 'reduction' must be int, not {type(number).__name__}; "
                        f"sluice.nn.functional.{name} takes names")
    if not 0 <= number < len(REDUCTIONS):
        raise _C.ValueError(f"{name}: reduction is {number}; must be 0 (none), 1 (mean) or 2 (sum)")
    return REDUCTIONS[number]


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None,
                                     reduction: int = 0) -> Tensor:
    """F.binary_cross_entropy_with_logits, the reduction as a number; torch.binary_cross_entropy_with_logits."""
    if pos_weight is not None and input.shape != target.shape:  # torch multiplies by it before it broadcasts
        raise RuntimeError(f"binary_cross_entropy_with_logits: output with shape {list(input.shape)} doesn't match the broadcast "
                           f"shape {list(target.shape)}; with pos_weight they must be equal")
    return functional.binary_cross_entropy_with_logits(
        input.expand(target.shape), target, weight, pos_weight=pos_weight, reduction=_reduction("binary_cross_entropy_with_logits", reduction))


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """F.cosine_embedding_loss, the reduction as a number; torch.cosine_embedding_loss."""
    return functional.cosine_embedding_loss(input1, input2, target, margin,
                                            reduction=_reduction("cosine_embedding_loss", reduction))


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0,
             zero_infinity: bool = False) -> Tensor:
    """F.ctc_loss, the reduction as a number; torch.ctc_loss."""
    return functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _reduction("ctc_loss",
                                                                                                    reduction),
                               zero_infinity)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """F.hinge_embedding_loss, the reduction as a number; torch.hinge_embedding_loss."""
    return functional.hinge_embedding_loss(input, target, margin, reduction=_reduction("hinge_embedding_loss",
                                                                                       reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """F.kl_div, the reduction as a number, so without "batchmean"; torch.kl_div."""
    if not (input.dtype.is_floating_point and target.dtype.is_floating_point):
        raise RuntimeError(f"kl_div: Integral inputs not supported: got {input.dtype} and {target.dtype}")
    apart = functional.kl_div(input, target, reduction="none", log_target=log_target)
    name = _reduction("kl_div", reduction)
    return apart if name == "none" else getattr(apart, name)()


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0) -> Tensor:
    """F.margin_ranking_loss of tensors that broadcast, the reduction as a number; torch.margin_ranking_loss."""
    name = _reduction("margin_ranking_loss", reduction)
    apart = (margin - target * (input1 - input2)).clamp(min=0)
    return apart if name == "none" else getattr(apart, name)()


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """F.poisson_nll_loss, the reduction as a number; torch.poisson_nll_loss."""
    return functional.poisson_nll_loss(input, target, log_input, full, eps=eps,
                                       reduction=_reduction("poisson_nll_loss", reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6,
                        swap: bool = False, reduction: int = 0) -> Tensor:
    """F.triplet_margin_loss, the reduction as a number; torch.triplet_margin_loss."""
    return functional.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap,
                                          reduction=_reduction("triplet_margin_loss", reduction))


# Normalization; `cudnn_enabled` chooses nothing here.


def batch_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
               eps: float,
               cudnn_enabled: bool) -> Tensor:
    """F.batch_norm; cudnn_enabled means nothing here. torch.batch_norm."""
    return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
                  momentum: float,
                  eps: float, cudnn_enabled: bool) -> Tensor:
    """F.instance_norm; cudnn_enabled means nothing here. torch.instance_norm."""
    return functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
               cudnn_enabled: bool = True) -> Tensor:
    """F.group_norm; cudnn_enabled means nothing here. torch.group_norm."""
    return functional.group_norm(input, num_groups, weight, bias, eps)


# Dropout


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """F.dropout. torch.dropout."""
    _check_probability(p)
    return functional.dropout(input, p, train)


def _writing(name: str, function: str) -> Any:
    def write(input, p, train):
        _check_probability(p)
        return getattr(functional, function)(input, p, train, inplace=True)

    write.__name__ = write.__qualname__ = name
    write.__doc__ = f"F.{function}(inplace=True); torch.{name}."
    return write


dropout_, alpha_dropout_, feature_alpha_dropout_ = (_writing(name + "_", name) for name in (
    "dropout", "alpha_dropout", "feature_alpha_dropout"))


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels of (N, C, ...) zeroed with probability p; torch.feature_dropout."""
    _check_probability(p)
    return functional._feature_dropout(input, p, train, False)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """feature_dropout, written into its input; torch.feature_dropout_."""
    _check_probability(p)
    return functional._feature_dropout(input, p, train, True)


# Tables and sequences


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> Tensor:
    """Rows of `weight`; F.embedding with the table first, and any padding_idx outside of it for none. torch.embedding."""
    return functional.embedding(indices, weight, padding_idx if 0 <= padding_idx < weight._shape[0] else None,
                                scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scales those rows of a table whose norm is greater than max_norm down to it, in place; torch.embedding_renorm_."""
    with no_grad():
        functional.embedding(indices, input, None, max_norm, norm_type)
    return input


@typed(input="Tensor", weight="Tensor", bias="Tensor", pad="int")
def segment_reduce(data: Tensor, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0,
                   unsafe: bool = False, initial: Any = None) -> Tensor:
    """Sums, means, maxima, minima or products over consecutive segments of a dim; torch.segment_reduce.

    lengths (B.., n): of the segments, B.. being data's dims before `axis`; or offsets (B.., n + 1): where they begin and end.
    An empty segment gives `initial`, or 0, NaN, -inf, inf or 1. Segments are read when it is called, so graphs take them as constants.
    """
    if reduce not in _EMPTY:
        raise RuntimeError(f"segment_reduce: reduce argument must be either sum, prod, mean, max or min, got {reduce}")
    if not data.dtype.is_floating_point:
        raise NotImplementedError(f"segment_reduce: not implemented for {data.dtype}; cast it to floats")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported; index data first")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    given = offsets if offsets is not None else lengths
    axis = axis + data.ndim if axis < 0 else axis
    if given.dtype not in (_C.int32, _C.int64):
        raise NotImplementedError(f"segment_reduce: lengths and offsets must be int64 or int32; got {given.dtype}")
    if axis != given.ndim - 1:
        raise RuntimeError("segment_reduce(): Expected axis to be the last dimension of "
                           f"{'lengths' if offsets is None else 'offsets'} "
                           f"but got {axis}.")
    if data.ndim < given.ndim:
        raise RuntimeError(f"segment_reduce: data has {data.ndim} dims; must have at least those of the segments, {given.ndim}")
    if given._shape[:-1] != data._shape[:axis]:
        raise RuntimeError(f"segment_reduce(): segments of shape {given._shape} do not fit data of shape {data._shape} along "
                           f"axis {axis}")
    size = data._shape[axis]
    begin, length = _segments(given, offsets is not None, size, unsafe)
    # Segments are reduced over the elements of one matrix, which is data with `axis` behind its batch dims.
    batch, rest, count = math.prod(data._shape[:axis]), math.prod(data._shape[axis + 1:]), length._shape[-1]
    flat = data.reshape(batch, size, rest)
    # Padded with places that take no part, each segment is as long as the longest.
    most = max(1, int(length.max().item())) if length.numel() else 1
    place = arange(most)
    inside = place < length.reshape(batch, count, 1)
    index = fn.where(inside, begin.reshape(batch, count, 1) + place, 0)
    places = index.reshape(batch, count * most, 1).expand(batch, count * most, rest)
    rows = fn.gather(flat, 1, places) if size else flat.sum(1, keepdim=True).expand(places._shape)
    rows, inside = rows.reshape(batch, count, most, rest), inside.unsqueeze(-1)
    empty = _EMPTY[reduce] if initial is None else initial
    made = _reduced(reduce, rows, inside, empty, length.reshape(batch, count, 1), initial)
    return made.to(data.dtype).reshape(data._shape[:axis] + (count,) + data._shape[axis + 1:])


_EMPTY = {"sum": 0.0, "mean": float("nan"), "max": float("-inf"), "min": float("inf"), "prod": 1.0}


def _segments(given: Tensor, are_offsets: bool, size: int, unsafe: bool) -> tuple:
    """The starts of segments, and their lengths."""
    given = given.to(_C.int64)
    if are_offsets:
        begin, length = given.narrow(-1, 0, given._shape[-1] - 1), given.diff()
    else:
        begin, length = given.cumsum(-1) - given, given
    if not unsafe and length.numel():
        if bool((length < 0).any()):
            raise RuntimeError("segment_reduce(): lengths contains negative value!")
        if not are_offsets and bool((length.sum(-1) != size).any()):
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to "
                               "data.size(lengths.dim()-1) when "
                               f"!unsafe: data has {size}")
    return begin, length


def _reduced(reduce: str, rows: Tensor, inside: Tensor, empty: float, length: Tensor, initial: Any) -> Tensor:
    """Reduces the rows inside, of rows (batch, segments, elements, rest), over the elements."""
    start = {"mean": 0.0}.get(reduce, empty) if initial is None else initial
    neutral = 0.0 if reduce == "mean" else _EMPTY[reduce]
    rows = fn.where(inside, rows, neutral)
    if reduce == "prod":
        return rows.prod(2) * start
    if reduce in ("sum", "mean"):
        total = rows.sum(2) + start
        return total if reduce == "sum" else fn.where(length > 0, total / length.clamp(min=1), empty)
    best = rows.amax(2) if reduce == "max" else rows.amin(2)
    if initial is None:
        return best
    return fn.where(best < start if reduce == "max" else best > start, start, best)
