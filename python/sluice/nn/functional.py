"""torch.nn.functional: functions of networks. All but those that draw random numbers are forms: graph/forms."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice.nn._attention import multi_head_attention_forward as multi_head_attention_forward
from sluice.nn._projections import conv_tbc as conv_tbc, grouped_mm as grouped_mm, linear_cross_entropy as linear_cross_entropy
from sluice import _C
from sluice._C import fn, Tensor
from sluice._C.functional import *  # noqa: F403
from sluice._tensor.creation import _memory_order, arange, chances, default_generator, masks_are_counted, zeros_like
from sluice._tensor.distributions import exponential
from sluice._C.functional import celu, elu, hardtanh, interpolate, leaky_relu, relu, selu, softmax
from sluice._tensor.detection import deform_conv2d


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise _C.ValueError(f"dropout: dropout probability has to be between 0 and 1, but got {p}")


def _written(input: Tensor, inplace: bool, f: Any) -> Tensor:
    """f(input), written into input where that is asked for."""
    if not inplace:
        return f(input)
    input._update(f)
    return input


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes with probability p, the rest scaled by 1 / (1 - p). F.dropout."""
    _check_probability(p)
    if not training or p == 0:
        return input
    return _written(input, inplace, lambda x: _dropped(x, p))


def _kept(x: Tensor, shape: Any, p: float) -> Tensor:
    """1 / (1 - p) with probability 1 - p, else 0; torch divides numbers of 16 bits as float32."""
    wide = _C.float32 if x.dtype in (_C.float16, _C.bfloat16) else x.dtype
    return (chances(x, shape, 1 - p, dtype=wide) / (1 - p)).to(x.dtype)


def _dropped(x: Tensor, p: float) -> Tensor:
    """In a graph by numbers that are counted, on every device the same; eagerly by torch's, in the order of x's memory."""
    if p == 1:
        return x * 0.0
    if masks_are_counted():
        return default_generator.dropout(x, p)
    order = _memory_order(x)
    kept = _kept(x, x._shape if order is None else [x._shape[d] for d in order], p)
    return x * (kept if order is None else kept.permute([order.index(d) for d in range(len(order))]))


def _one_per_channel(input: Tensor) -> list[int]:
    """The shape of a number for each sample and channel of (N, C, ...)."""
    return [*input.shape[:2], *(1 for _ in input.shape[2:])]


def _feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    _check_probability(p)
    if not training or p == 0:
        return input

    def f(x):
        if p == 1:
            return x * 0.0
        return x * _kept(x, _one_per_channel(x), p)

    return _written(input, inplace, f)


def _unbatched(input: Tensor, rank: int, f: Any) -> Tensor:
    """f of (N, C, ...), given (C, ...) of `rank` dims as well."""
    return f(input) if input.dim() != rank else f(input.unsqueeze(0)).squeeze(0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability p. F.dropout1d."""
    _check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d "
                           "exists to provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an "
                           "optional batch dimension.")
    return _unbatched(input, 2, lambda x: _feature_dropout(x, p, training, inplace))


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, H, W) with probability p. F.dropout2d."""
    return _feature_dropout(input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability p. F.dropout3d."""
    return _unbatched(input, 4, lambda x: _feature_dropout(x, p, training, inplace))


def _alpha_dropout(input: Tensor, p: float, training: bool, inplace: bool, shape: Any) -> Tensor:
    _check_probability(p)
    if not training or p == 0:
        return input
    lowest = 1.7580993408473766  # minus what selu tends to
    scale = ((lowest**2 * p + 1) * (1 - p)) ** -0.5 if p < 1 else 0.0

    def f(x):
        if p == 1:
            return x * 0.0
        kept = chances(x, shape, 1 - p)
        return x * (kept * scale) + ((kept - 1) * (lowest * scale) + lowest * scale * p)

    return _written(input, inplace, f)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps the mean and variance of what selu gives. F.alpha_dropout."""
    return _alpha_dropout(input, p, training, inplace, input.shape)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels. F.feature_alpha_dropout."""
    return _alpha_dropout(input, p, training, inplace, _one_per_channel(input))


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """leaky_relu with a slope drawn from [lower, upper) for each element while training, else their mean. F.rrelu."""
    if lower > upper:
        raise RuntimeError(f"rrelu: Lower bound should be less than or equal to the upper bound: got {lower} and {upper}")

    def f(x):
        if not training or lower == upper:
            return leaky_relu(x, (lower + upper) / 2)
        slopes = default_generator.draw_uniform(x.shape, lower, upper, x.dtype, x._device)
        return fn.where(x <= 0, x * slopes, x)

    return _written(input, inplace, f)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax of logits and Gumbel noise, over tau; hard: one-hot, with the gradient of the soft one. F.gumbel_softmax."""
    noise = -exponential(logits).log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    chosen = soft.detach().argmax(dim, keepdim=True)
    return zeros_like(soft).scatter(dim, chosen, 1.0) - soft.detach() + soft


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Tensor:
    """softmax(query key^T scale + attn_mask) value; a row whose mask leaves nothing gives zeros.

    query: (..., L, E), key: (..., S, E), value: (..., S, Ev); attn_mask: bool (True takes part) or added to the scores,
    broadcastable to (..., L, S); scale: 1 / sqrt(E) by default. enable_gqa: each head (dim -3) of key and value serves as many
    of query's as there are more.
    """
    query, key, value = _C.autocast_lower([query, key, value])
    return default_generator.attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Tensor:
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative)). F.triplet_margin_with_distance_loss."""
    if reduction not in ("mean", "sum", "none"):
        raise _C.ValueError(f"triplet_margin_with_distance_loss: {reduction} is not a valid value for reduction")
    if margin <= 0:
        raise _C.ValueError(f"triplet_margin_with_distance_loss: margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, "
                           f"but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs")
    distance = fn.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = fn.minimum(far, distance(positive, negative))
    loss = (margin + near - far).clamp_min(0)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _fractional_max_pool(dims: int) -> Any:
    def pool(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        name = f"fractional_max_pool{dims}d"
        if output_size is None and output_ratio is None:
            raise _C.ValueError(f"{name}: requires specifying either an output_size or an output_ratio")
        given = (kernel_size, output_size, output_ratio)
        kernel, size, ratio = ([v] * dims if isinstance(v, (Integral, float)) else v for v in given)
        if size is None:
            size = [int(s * r) for s, r in zip(input.shape[-dims:], ratio)]

        def batched(x):
            return default_generator.fractional_max_pool(x, [*kernel], [*size], _random_samples)

        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
        if input.dim() == dims + 2:
            values, indices = batched(input)
        else:
            values, indices = (y.squeeze(0) for y in batched(input.unsqueeze(0)))
        return (values, indices) if return_indices else values

    pool.__name__ = pool.__qualname__ = f"fractional_max_pool{dims}d"
    pool.__doc__ = f"Maxima over windows whose places are random; F.fractional_max_pool{dims}d."
    return pool


fractional_max_pool2d, fractional_max_pool3d = _fractional_max_pool(2), _fractional_max_pool(3)


def _with_indices(name: str) -> Any:
    pool = globals()[name]

    def both(*args, **kwargs):
        return pool(*args, **{**kwargs, "return_indices": True})

    both.__name__ = both.__qualname__ = name + "_with_indices"
    both.__doc__ = f"{name}(return_indices=True)."
    return both


for _kind, _dims in (("max_pool", (1, 2, 3)), ("adaptive_max_pool", (1, 2, 3)), ("fractional_max_pool", (2, 3))):
    for _d in _dims:
        globals()[f"{_kind}{_d}d_with_indices"] = _with_indices(f"{_kind}{_d}d")


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: Any = None) -> Tensor:
    """interpolate, by its older name. F.upsample."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="nearest"). F.upsample_nearest."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="bilinear", align_corners=True). F.upsample_bilinear."""
    return interpolate(input, size, scale_factor, "bilinear", True)


# OneFlow's.


def quick_gelu(input: Tensor) -> Tensor:
    """input * sigmoid(1.702 * input): nearly gelu."""
    return input * fn.sigmoid(input * 1.702)


def square_relu(input: Tensor) -> Tensor:
    """relu(input)^2."""
    return relu(input) * relu(input)


def interpolate_like(input: Tensor, like: Tensor, mode: str = "nearest", align_corners: Any = None) -> Tensor:
    """interpolate to the spatial size of `like`."""
    return interpolate(input, list(like.shape[2:]), None, mode, align_corners)


def sparse_softmax_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropies of logits (..., C) at classes labels (...), one each."""
    loss = _C.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="none")
    return loss.reshape(labels.shape)


def depend(input: Tensor, depend: Any) -> Tensor:
    """`input`; kernels run when what they read is there, so that another value comes first has no meaning. oneflow's F.depend."""
    return input


def ctc_greedy_decoder(log_probs: Tensor, input_lengths: Tensor, merge_repeated: bool = True) -> tuple[Tensor, Tensor]:
    """Decodes (T, N, C): the likeliest class of each step, without the blank, C - 1, and repetitions: (N, T), zeros behind;
    and less the sums of their logits, (N, 1). oneflow's F.ctc_greedy_decoder."""
    if log_probs.dim() != 3 or tuple(input_lengths.shape) != (log_probs.shape[1],):
        raise RuntimeError(f"ctc_greedy_decoder: got log_probs of shape {tuple(log_probs.shape)} and input_lengths of shape "
                           f"{tuple(input_lengths.shape)}; must be (T, N, C) and (N,)")
    steps, batch, classes = log_probs.shape
    best, chosen = (r.t() for r in fn.max(log_probs, 2))
    inside = arange(steps) < input_lengths.reshape(batch, 1)
    kept = inside & (chosen != classes - 1)
    if merge_repeated:
        before = fn.cat([chosen.new_full((batch, 1), -1), chosen[:, :-1]], 1)
        kept = kept & (chosen != before)
    # Those that are left out are written behind the end.
    place = fn.where(kept, kept.to(_C.int64).cumsum(1) - 1, steps)
    decoded = chosen.new_zeros((batch, steps + 1)).scatter(1, place, chosen)[:, :steps]
    return decoded, -fn.where(inside, best, 0.0).sum(1, keepdim=True)


# Activations that write their input.


def relu_(input: Tensor) -> Tensor:
    return relu(input, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    return celu(input, alpha, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:
    return selu(input, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    return leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    return _C.functional.threshold(input, threshold, value, inplace=True)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    return rrelu(input, lower, upper, training, inplace=True)


def __getattr__(name: str) -> Any:
    if name == "deform_conv2d":
        return deform_conv2d
    from sluice._names.left_out import missing

    raise missing("sluice.nn.functional", name)
