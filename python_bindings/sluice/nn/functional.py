"""torch.nn.functional: functions of networks."""

import sluice
from sluice._C import fn

gelu, softplus, logsigmoid = fn.gelu, fn.softplus, fn.logsigmoid
linear, scaled_dot_product_attention = fn.linear, fn.scaled_dot_product_attention


def _activation(f):
    def activation(input, *args, inplace=False, **kwargs):
        return f(input, *args, **kwargs)

    activation.__name__ = f.__name__
    return activation


relu, relu6, silu, mish, leaky_relu, elu, hardtanh, hardsigmoid, hardswish = map(
    _activation, (fn.relu, fn.relu6, fn.silu, fn.mish, fn.leaky_relu, fn.elu, fn.hardtanh, fn.hardsigmoid, fn.hardswish))


def sigmoid(input):
    return input.sigmoid()


def tanh(input):
    return input.tanh()


def softsign(input):
    return input / (1 + input.abs())


def glu(input, dim=-1):
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def _default_dim(ndim):
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input, dim=None, dtype=None):
    return fn.softmax(input, _default_dim(input.ndim) if dim is None else dim, dtype)


def log_softmax(input, dim=None, dtype=None):
    return fn.log_softmax(input, _default_dim(input.ndim) if dim is None else dim, dtype)


def dropout(input, p=0.5, training=True, inplace=False):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    return input * 0.0 if p == 1 else sluice.default_generator.dropout(input, p)


# Convolution and pooling


def named_padding(name, kernel, stride, dilation):
    """Padding per side for 'valid' and 'same'."""
    if name == "valid":
        return (0,) * len(kernel)
    if name != "same":
        raise ValueError(f"padding is {name!r}; must be ints, 'valid' or 'same'")
    if any(s != 1 for s in stride):
        raise ValueError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    if any(t % 2 for t in total):
        raise NotImplementedError(f"padding='same' with an even kernel {tuple(kernel)} is not supported; pad the input first")
    return tuple(t // 2 for t in total)


def _tuple(value, n):
    from sluice.nn.modules.conv import tuple_of

    return tuple_of(value, n)


def _batched(dims, input, name):
    """`input` with a batch dim, and whether one was added."""
    if input.ndim == dims + 1:
        return input.unsqueeze(0), True
    if input.ndim != dims + 2:
        raise ValueError(f"{name}: expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input: got shape {tuple(input.shape)}")
    return input, False


def convolution(dims, input, weight, bias, stride, padding, dilation, groups):
    name = f"conv{dims}d"
    x, added = _batched(dims, input, name)
    stride, dilation = _tuple(stride, dims), _tuple(dilation, dims)
    if isinstance(padding, str):
        padding = named_padding(padding, weight.shape[2:], stride, dilation)
    y = fn.conv(x, weight, bias, stride, _tuple(padding, dims), dilation, groups)
    return y.squeeze(0) if added else y


def transposed_convolution(dims, input, weight, bias, stride, padding, output_padding, groups, dilation):
    x, added = _batched(dims, input, f"conv_transpose{dims}d")
    y = fn.conv_transpose(x, weight, bias, *(_tuple(v, dims) for v in (stride, padding, output_padding)), groups,
                          _tuple(dilation, dims))
    return y.squeeze(0) if added else y


def max_pool(dims, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    x, added = _batched(dims, input, f"max_pool{dims}d")
    kernel = _tuple(kernel_size, dims)
    pair = fn.max_pool(x, kernel, kernel if stride is None else _tuple(stride, dims), _tuple(padding, dims),
                       _tuple(dilation, dims), ceil_mode)
    pair = tuple(p.squeeze(0) for p in pair) if added else pair
    return tuple(pair) if return_indices else pair[0]


def avg_pool(dims, input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    x, added = _batched(dims, input, f"avg_pool{dims}d")
    kernel = _tuple(kernel_size, dims)
    y = fn.avg_pool(x, kernel, kernel if stride is None else _tuple(stride, dims), _tuple(padding, dims), ceil_mode,
                    count_include_pad, divisor_override or 0)
    return y.squeeze(0) if added else y


def _adaptive(dims, pool, input, output_size):
    size = (output_size,) * dims if isinstance(output_size, int) or output_size is None else tuple(output_size)
    x, added = _batched(dims, input, f"adaptive_pool{dims}d")
    y = pool(x, tuple(-1 if s is None else s for s in size))
    return y.squeeze(0) if added else y


def adaptive_avg_pool(dims, input, output_size):
    return _adaptive(dims, fn.adaptive_avg_pool, input, output_size)


def adaptive_max_pool(dims, input, output_size):
    return _adaptive(dims, fn.adaptive_max_pool, input, output_size)


def _per_rank(name, dims, f):
    def ranked(input, *args, **kwargs):
        return f(dims, input, *args, **kwargs)

    ranked.__name__ = f"{name}{dims}d"
    ranked.__doc__ = f"torch.nn.functional.{ranked.__name__}"
    return ranked


def _conv(dims, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return convolution(dims, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(dims, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return transposed_convolution(dims, input, weight, bias, stride, padding, output_padding, groups, dilation)


for _name, _f in (("conv", _conv), ("conv_transpose", _conv_transpose), ("max_pool", max_pool), ("avg_pool", avg_pool),
                  ("adaptive_avg_pool", adaptive_avg_pool), ("adaptive_max_pool", adaptive_max_pool)):
    for _dims in (1, 2, 3):
        globals()[f"{_name}{_dims}d"] = _per_rank(_name, _dims, _f)


# Normalisation


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    if not training and (running_mean is None or running_var is None):
        raise ValueError("batch_norm: running_mean and running_var are needed when training is False")
    y, mean, var = fn.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and mean is not None:
        with sluice.no_grad():
            running_mean.copy_(mean)
            running_var.copy_(var)
    return y


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return fn.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    return fn.rms_norm(input, normalized_shape, weight, 1.1920928955078125e-07 if eps is None else eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    return fn.group_norm(input, num_groups, weight, bias, eps)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


# Tables


def embedding(input, weight, padding_idx=None):
    return fn.embedding(input, weight, padding_idx)


def one_hot(input, num_classes=-1):
    if num_classes == -1:
        num_classes = int(input.max()) + 1
    return fn.one_hot(input, num_classes)


def pad(input, pad, mode="constant", value=None):
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


def check_reduction(reduction):
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}; must be 'mean', 'sum' or 'none'")


def _reduced(loss, reduction):
    check_reduction(reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def mse_loss(input, target, reduction="mean"):
    return fn.mse_loss(input, target, reduction)


def l1_loss(input, target, reduction="mean"):
    return fn.l1_loss(input, target, reduction)


def smooth_l1_loss(input, target, reduction="mean", beta=1.0):
    return fn.smooth_l1_loss(input, target, beta, reduction)


def huber_loss(input, target, reduction="mean", delta=1.0):
    return fn.huber_loss(input, target, delta, reduction)


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    return fn.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    return fn.nll_loss(input, target, weight, ignore_index, reduction)


def binary_cross_entropy(input, target, weight=None, reduction="mean"):
    return fn.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    return fn.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def kl_div(input, target, reduction="mean", log_target=False):
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = sluice.where(target > 0, target * (target.clamp_min(1e-38).log() - input), target * 0.0)
    return loss.sum() / input.shape[0] if reduction == "batchmean" else _reduced(loss, reduction)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    norms = (x1.norm(2.0, dim) * x2.norm(2.0, dim)).clamp_min(eps)
    return (x1 * x2).sum(dim) / norms
