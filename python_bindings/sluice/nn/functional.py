"""torch.nn.functional: functions of networks."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
import sluice
from sluice._C import fn

gelu, softplus, logsigmoid = fn.gelu, fn.softplus, fn.logsigmoid
linear = fn.linear


def _activation(f: Any) -> Any:
    def activation(input, *args, inplace=False, **kwargs):
        if not inplace:
            return f(input, *args, **kwargs)
        input._update(lambda old: f(old, *args, **kwargs))
        return input

    activation.__name__ = f.__name__
    return activation


relu, relu6, silu, mish, leaky_relu, elu, hardtanh, hardsigmoid, hardswish = map(
    _activation, (fn.relu, fn.relu6, fn.silu, fn.mish, fn.leaky_relu, fn.elu, fn.hardtanh, fn.hardsigmoid, fn.hardswish))


def sigmoid(input: Tensor) -> Tensor:
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    return input.tanh()


def softsign(input: Tensor) -> Tensor:
    return input / (1 + input.abs())


def glu(input: Tensor, dim: Any = -1) -> Tensor:
    if input.shape[dim] % 2:
        raise RuntimeError(f"glu: Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}")
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def _default_dim(ndim: Any) -> Any:
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    return fn.softmax(input, _default_dim(input.ndim) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    return fn.log_softmax(input, _default_dim(input.ndim) if dim is None else dim, dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if inplace:
        input._update(lambda old: dropout(old, p))
        return input
    return input * 0.0 if p == 1 else sluice.default_generator.dropout(input, p)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Any = None) -> Tensor:
    """softmax(query key^T scale + attn_mask) value; a row whose mask leaves nothing gives zeros.

    query: (..., L, E), key: (..., S, E), value: (..., S, Ev); attn_mask: bool (True takes part) or added to the scores,
    broadcastable to (..., L, S); scale: 1 / sqrt(E) by default.
    """
    return fn.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, sluice.default_generator)


# Convolution and pooling


def named_padding(name: Any, kernel: Any, stride: Any, dilation: Any) -> Tensor:
    """Padding per side for 'valid' and 'same', which may need one more at the end."""
    if name == "valid":
        return (0,) * len(kernel)
    if name != "same":
        raise ValueError(f"padding is {name!r}; must be ints, 'valid' or 'same'")
    if any(s != 1 for s in stride):
        raise ValueError("padding='same' is not supported for strided convolutions")
    return tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation))


def _tuple(value: Any, n: int) -> Any:
    from sluice.nn.modules.conv import tuple_of

    return tuple_of(value, n)


def _batched(dims: Any, input: Tensor, name: Any) -> Any:
    """`input` with a batch dim, and whether one was added."""
    if input.ndim == dims + 1:
        return input.unsqueeze(0), True
    if input.ndim != dims + 2:
        raise ValueError(f"{name}: expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input: got shape {tuple(input.shape)}")
    return input, False


def convolution(dims: Any, input: Tensor, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
                groups: int) -> Tensor:
    name = f"conv{dims}d"
    x, added = _batched(dims, input, name)
    stride, dilation = _tuple(stride, dims), _tuple(dilation, dims)
    if isinstance(padding, str):
        uneven = [d * (k - 1) % 2 for k, d in zip(weight.shape[2:], dilation)] if padding == "same" else []
        padding = named_padding(padding, weight.shape[2:], stride, dilation)
        if any(uneven):
            x = pad(x, [p for more in reversed(uneven) for p in (0, more)])
    y = fn.conv(x, weight, bias, stride, _tuple(padding, dims), dilation, groups)
    return y.squeeze(0) if added else y


def transposed_convolution(dims: Any, input: Tensor, weight: Any, bias: Any, stride: Any, padding: Any,
                           output_padding: Any, groups: int, dilation: Any) -> Tensor:
    x, added = _batched(dims, input, f"conv_transpose{dims}d")
    y = fn.conv_transpose(x, weight, bias, *(_tuple(v, dims) for v in (stride, padding, output_padding)), groups,
                          _tuple(dilation, dims))
    return y.squeeze(0) if added else y


def max_pool(dims: Any, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    x, added = _batched(dims, input, f"max_pool{dims}d")
    kernel = _tuple(kernel_size, dims)
    pair = fn.max_pool(x, kernel, kernel if stride is None else _tuple(stride, dims), _tuple(padding, dims),
                       _tuple(dilation, dims), ceil_mode)
    pair = tuple(p.squeeze(0) for p in pair) if added else pair
    return tuple(pair) if return_indices else pair[0]


def avg_pool(dims: Any, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> Tensor:
    x, added = _batched(dims, input, f"avg_pool{dims}d")
    kernel = _tuple(kernel_size, dims)
    if divisor_override == 0:
        raise RuntimeError(f"avg_pool{dims}d: divisor must be not zero")
    y = fn.avg_pool(x, kernel, kernel if stride is None else _tuple(stride, dims), _tuple(padding, dims), ceil_mode,
                    count_include_pad, divisor_override or 0)
    return y.squeeze(0) if added else y


def _adaptive(dims: Any, pool: Any, input: Tensor, output_size: Any) -> Any:
    size = (output_size,) * dims if isinstance(output_size, int) or output_size is None else tuple(output_size)
    x, added = _batched(dims, input, f"adaptive_pool{dims}d")
    y = pool(x, tuple(-1 if s is None else s for s in size))
    return y.squeeze(0) if added else y


def adaptive_avg_pool(dims: Any, input: Tensor, output_size: Any) -> Tensor:
    return _adaptive(dims, fn.adaptive_avg_pool, input, output_size)


def adaptive_max_pool(dims: Any, input: Tensor, output_size: Any) -> Tensor:
    return _adaptive(dims, fn.adaptive_max_pool, input, output_size)


def _per_rank(name: Any, dims: Any, f: Any) -> Any:
    def ranked(input, *args, **kwargs):
        return f(dims, input, *args, **kwargs)

    ranked.__name__ = f"{name}{dims}d"
    ranked.__doc__ = f"torch.nn.functional.{ranked.__name__}"
    return ranked


def _conv(dims: Any, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
          groups: int = 1) -> Any:
    return convolution(dims, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(dims: Any, input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                    output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:
    return transposed_convolution(dims, input, weight, bias, stride, padding, output_padding, groups, dilation)


for _name, _f in (("conv", _conv), ("conv_transpose", _conv_transpose), ("max_pool", max_pool), ("avg_pool", avg_pool),
                  ("adaptive_avg_pool", adaptive_avg_pool), ("adaptive_max_pool", adaptive_max_pool)):
    for _dims in (1, 2, 3):
        globals()[f"{_name}{_dims}d"] = _per_rank(_name, _dims, _f)


# Normalisation


def batch_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    if not training and (running_mean is None or running_var is None):
        raise ValueError("batch_norm: running_mean and running_var are needed when training is False")
    y, mean, var = fn.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and mean is not None:
        with sluice.no_grad():
            running_mean.copy_(mean)
            running_var.copy_(var)
    return y


def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    return fn.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    if eps is None:  # as torch: the machine epsilon of the dtype that is computed in
        eps = 2.0**-52 if input.dtype is sluice.float64 else 2.0**-23
    return fn.rms_norm(input, normalized_shape, weight, eps)


def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    return fn.group_norm(input, num_groups, weight, bias, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


# Tables


def embedding(input: Tensor, weight: Any, padding_idx: Any = None) -> Tensor:
    return fn.embedding(input, weight, padding_idx)


def one_hot(input: Tensor, num_classes: Any = -1) -> Tensor:
    if num_classes == -1:
        num_classes = int(input.max()) + 1
    if not input._traced and input.numel():
        least, most = int(input.min()), int(input.max())
        if least < 0:
            raise RuntimeError(f"one_hot: Class values must be non-negative: got {least}")
        if most >= num_classes:
            raise RuntimeError(f"one_hot: Class values must be smaller than num_classes: got {most} for {num_classes} classes")
    return fn.one_hot(input, num_classes)


def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """`pad` lists (low, high) pairs from the last dim backwards; negative amounts crop."""
    if mode != "constant":
        raise NotImplementedError(f"pad: mode {mode!r} is not supported; use 'constant'")
    if len(pad) % 2 or len(pad) // 2 > input.ndim:
        raise ValueError(f"pad: got {len(pad)} amounts for a tensor of {input.ndim} dims; give a pair for each dim, last first")
    low, high = [0] * input.ndim, [0] * input.ndim
    for i in range(len(pad) // 2):
        low[-1 - i], high[-1 - i] = pad[2 * i], pad[2 * i + 1]
    for d in range(input.ndim):
        start, stop = max(0, -low[d]), input.shape[d] - max(0, -high[d])
        if (start, stop) != (0, input.shape[d]):
            input = input.narrow(d, start, stop - start)
    return fn._pad(input, [max(0, v) for v in low], [max(0, v) for v in high], float(value or 0))


# Losses


def check_reduction(reduction: Any) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}; must be 'mean', 'sum' or 'none'")


def _reduced(loss: Any, reduction: Any) -> Any:
    check_reduction(reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def mse_loss(input: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    return fn.mse_loss(input, target, reduction)


def l1_loss(input: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    return fn.l1_loss(input, target, reduction)


def smooth_l1_loss(input: Tensor, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    return fn.smooth_l1_loss(input, target, beta, reduction)


def huber_loss(input: Tensor, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    return fn.huber_loss(input, target, delta, reduction)


def cross_entropy(input: Tensor, target: Any, weight: Any = None, ignore_index: Any = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    return fn.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(input: Tensor, target: Any, weight: Any = None, ignore_index: Any = -100, reduction: str = "mean") -> Tensor:
    return fn.nll_loss(input, target, weight, ignore_index, reduction)


def binary_cross_entropy(input: Tensor, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    return fn.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(input: Tensor, target: Any, weight: Any = None, reduction: str = "mean",
                                     pos_weight: Any = None) -> Tensor:
    return fn.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def kl_div(input: Tensor, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target * (sluice.where(target == 0, 1.0, target).log() - input)
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.ndim else loss
    return _reduced(loss, reduction)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    dtype = sluice.promote_types(x1.dtype, x2.dtype)
    if not dtype.is_floating_point:
        raise RuntimeError(f"cosine_similarity: expected common dtype to be floating point, yet common dtype is {dtype}")
    x1, x2 = sluice.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    norms = [x.norm(2.0, dim, keepdim=True).clone() for x in (x1, x2)]
    with sluice.no_grad():  # as torch: eps bounds the values, the gradients are those of the norms
        for norm in norms:
            norm.clamp_min_(eps)
    return (x1 / norms[0] * (x2 / norms[1])).sum(dim)
