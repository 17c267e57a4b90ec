"""Cases of what works on images, of networks' functions and of losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.arrays import Array
from sluice.testing.autotest.draw import Draw

FLAGS = "@floats"


def _some(draw: Draw, dims: int, low: int, high: int) -> Any:
    """A number, or one for each dim."""
    return draw.whole(low, high) if draw.chance(0.5) else tuple(draw.whole(low, high) for _ in range(dims))


def image(draw: Draw, dims: int, channels: int, least: int = 4, most: int = 7, dtype: str = "", domain: str = "any") -> Array:
    shape = (draw.batch(2), channels, *(draw.whole(least, most if dims < 3 else least + 1) for _ in range(dims)))
    return draw.array(shape if draw.chance(0.85) else shape[1:], dtype or draw.random.choices(("float32", "float64", "bfloat16", "float16"), (8, 5, 1, 1))[0], domain)


def conv(dims: int) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        groups, i, o = draw.whole(1, 2), draw.whole(1, 2), draw.whole(1, 3)
        x = image(draw, dims, groups * i)
        w = draw.array((groups * o, i, *(draw.whole(1, 3) for _ in range(dims))), x.dtype)
        b = draw.array((groups * o,), x.dtype) if draw.chance(0.6) else None
        options: dict[str, Any] = {"groups": groups}
        if draw.chance(0.5):
            options["stride"] = _some(draw, dims, 1, 2)
        if draw.chance(0.6):
            options["padding"] = _some(draw, dims, 0, 2)
        elif draw.chance(0.4):
            options["padding"] = draw.pick(("same", "valid"))
        if draw.chance(0.3):
            options["dilation"] = _some(draw, dims, 1, 2)
        return [x, w, b], options, FLAGS

    return made


def transposed(dims: int) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        groups, i, o = draw.whole(1, 2), draw.whole(1, 2), draw.whole(1, 2)
        x = image(draw, dims, groups * i, 2, 4)
        w = draw.array((groups * i, o, *(draw.whole(1, 3) for _ in range(dims))), x.dtype)
        b = draw.array((groups * o,), x.dtype) if draw.chance(0.6) else None
        options: dict[str, Any] = {"groups": groups, "stride": _some(draw, dims, 1, 3), "padding": _some(draw, dims, 0, 1)}
        if draw.chance(0.4):
            options["output_padding"] = _some(draw, dims, 0, 1)
        if draw.chance(0.3):
            options["dilation"] = _some(draw, dims, 1, 2)
        return [x, w, b], options, FLAGS

    return made


def pool(dims: int, kind: str) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        x = image(draw, dims, draw.whole(1, 3))
        kernel = _some(draw, dims, 1, 3)
        options: dict[str, Any] = {}
        if draw.chance(0.6):
            options["stride"] = _some(draw, dims, 1, 3)
        if draw.chance(0.4) and kind != "lp":
            options["padding"] = _some(draw, dims, 0, 1)
        if draw.chance(0.4):
            options["ceil_mode"] = True
        if kind == "avg":
            options["count_include_pad"] = draw.chance(0.5)
            if dims > 1 and draw.chance(0.2):
                options["divisor_override"] = 3
        if kind == "max":
            if draw.chance(0.3):
                options["dilation"] = _some(draw, dims, 1, 2)
            if draw.chance(0.4):
                options["return_indices"] = True
        if kind == "lp":
            return [x, draw.pick((1.0, 2.0, 3.0)), kernel], options, FLAGS + " !strict"
        return [x, kernel], options, FLAGS

    return made


def adaptive(dims: int, kind: str) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        x = image(draw, dims, draw.whole(1, 3))
        size = _some(draw, dims, 1, 5) if draw.chance(0.8) else (None,) * (dims - 1) + (2,)
        return [x, size], {"return_indices": True} if kind == "max" and draw.chance(0.4) else {}, FLAGS

    return made


def unpool(dims: int) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        shape = (draw.batch(2), 2, *(draw.whole(1, 3) for _ in range(dims)))
        x = draw.array(shape, draw.dtype("wide"))
        n = int(np.prod(shape[2:]))
        index = np.stack([draw.numbers.permutation(n * 2**dims)[:n] for _ in range(shape[0] * 2)]).reshape(shape)
        return [x, Array(index.astype(np.int64), "int64"), 2], {}, FLAGS

    return made


def fold(draw: Draw) -> Any:
    kernel, stride, pad = draw.whole(1, 3), draw.whole(1, 2), draw.whole(0, 1)
    size = (draw.whole(3, 5), draw.whole(3, 5))
    blocks = int(np.prod([(n + 2 * pad - kernel) // stride + 1 for n in size]))
    x = draw.array((draw.batch(2), 2 * kernel * kernel, blocks), draw.dtype("floats"))
    return [x, size, kernel], {"stride": stride, "padding": pad}, FLAGS


def unfold(draw: Draw) -> Any:
    return [image(draw, 2, 2), _some(draw, 2, 1, 3)], {"stride": _some(draw, 2, 1, 2), "padding": _some(draw, 2, 0, 1)}, FLAGS


def interpolate(draw: Draw) -> Any:
    dims = draw.whole(1, 3)
    modes = [("nearest", "linear", "area", "nearest-exact"), ("nearest", "bilinear", "bicubic", "area", "nearest-exact"), ("nearest", "trilinear", "area")]
    x = image(draw, dims, 2, 2, 5, draw.dtype("wide"))
    mode = draw.pick(modes[dims - 1])
    options: dict[str, Any] = {"mode": mode}
    if draw.chance(0.5):
        options["size"] = _some(draw, dims, 1, 7)
    else:
        options["scale_factor"] = draw.pick((0.5, 1.5, 2, 2.7, 0.6))
        if draw.chance(0.2):
            options["recompute_scale_factor"] = True
    if mode.endswith(("linear", "cubic")) and draw.chance(0.6):
        options["align_corners"] = draw.chance(0.5)
    if mode in ("bilinear", "bicubic") and draw.chance(0.2):
        options["antialias"] = True
    if len(x.shape) != dims + 2:
        x = replace(x, values=x.values[None], layout="plain")
    return [x], options, FLAGS


def grid_sample(draw: Draw) -> Any:
    dims = draw.whole(2, 3)
    x = draw.array((2, 2, *(draw.whole(2, 4) for _ in range(dims))), draw.dtype("wide"))
    grid = draw.array((2, *(draw.whole(1, 3) for _ in range(dims)), dims), x.dtype, draw.pick(("unit", "any")))
    modes = ("bilinear", "nearest", "bicubic") if dims == 2 else ("bilinear", "nearest")
    return [x, grid], {"mode": draw.pick(modes), "padding_mode": draw.pick(("zeros", "border", "reflection")), "align_corners": draw.chance(0.5)}, FLAGS


def affine_grid(draw: Draw) -> Any:
    dims = draw.whole(2, 3)
    theta = draw.array((2, dims, dims + 1), draw.dtype("wide"))
    return [theta, (2, 3, *(draw.whole(1, 4) for _ in range(dims)))], {"align_corners": draw.chance(0.5)}, FLAGS


def pad(draw: Draw) -> Any:
    mode = draw.pick(("constant", "constant", "reflect", "replicate", "circular"))
    if mode == "constant":
        x = draw.array(draw.shape((1, 2, 3, 4)), draw.dtype("any"))
        n = draw.whole(1, len(x.shape))
        return [x, tuple(draw.whole(-1, 2) for _ in range(2 * n))], {"value": 1.5} if draw.chance(0.4) else {}, ""
    dims = draw.whole(1, 3)
    return [image(draw, dims, 2), tuple(draw.whole(-1 if mode != "circular" else 0, 2) for _ in range(2 * dims))], {"mode": mode}, FLAGS


def batch_norm(draw: Draw) -> Any:
    c = draw.whole(1, 4)
    n, places = (1, (1, 2)) if draw.ones else (draw.whole(2, 3), (0, 1, 2))
    x = draw.array((n, c, *draw.shape(places)), draw.dtype("wide"))
    # Memory of their own: torch writes to what is expanded, and its gradient reads what lies behind expanded weights.
    mean, var = (replace(draw.array((c,), x.dtype, domain, parameter=False), layout="plain") for domain in ("any", "positive"))
    w, b = (replace(draw.array((c,), x.dtype), layout="plain") if draw.chance(0.7) else None for _ in range(2))
    training = draw.chance(0.6)
    given = not training or draw.chance(0.5)
    return [x, mean if given else None, var if given else None, w, b, training], {"momentum": draw.pick((0.1, 0.9)), "eps": draw.pick((1e-5, 0.1))}, FLAGS + " !strict"


def instance_norm(draw: Draw) -> Any:
    c = draw.whole(1, 4)
    x = draw.array((draw.batch(3), c, *(draw.whole(2, 4) for _ in range(draw.whole(1, 2)))), draw.dtype("wide"))
    w, b = (draw.array((c,), x.dtype) if draw.chance(0.7) else None for _ in range(2))
    return [x], {"weight": w, "bias": b}, FLAGS + " !strict"


def ctc(draw: Draw) -> Any:
    t, n, c, s = draw.whole(4, 7), draw.whole(1, 3), draw.whole(2, 4), draw.whole(1, 2)
    logits = draw.values((t, n, c), "float64")
    logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    dtype = draw.dtype("wide")
    x = Array(logits.astype(dtype), dtype)
    targets = Array(draw.numbers.randint(1, c, (n, s)), "int64")
    lengths = Array(draw.numbers.randint(3, t + 1, n), "int64"), Array(draw.numbers.randint(1, s + 1, n), "int64")
    return [x, targets, *lengths], {"reduction": draw.pick(("mean", "sum", "none")), "zero_infinity": draw.chance(0.3)}, FLAGS + " !double !strict"


def embedding_bag(draw: Draw) -> Any:
    n, length = draw.whole(1, 5), draw.whole(1, 3)
    w, mode = draw.array((n, draw.whole(1, 3)), draw.dtype("wide")), draw.pick(("sum", "mean", "max"))
    index = Array(draw.numbers.randint(0, n, (2, length)), "int64")
    options: dict[str, Any] = {"mode": mode}
    if mode == "sum" and draw.chance(0.4):
        options["per_sample_weights"] = draw.array((2, length), w.dtype)
    if draw.chance(0.2):
        options["padding_idx"] = 0
    return [index, w], options, FLAGS + " !double"


def multilabel_margin(draw: Draw) -> Any:
    n, c = draw.whole(1, 3), draw.whole(1, 4)
    target = np.stack([draw.numbers.permutation(c) for _ in range(n)])
    target[np.arange(c) >= draw.numbers.randint(0, c + 1, (n, 1))] = -1
    return [draw.array((n, c), draw.dtype("wide")), Array(target.astype(np.int64), "int64")], {"reduction": draw.pick(("mean", "sum", "none"))}, FLAGS


def index_put(draw: Draw) -> Any:
    n, m = draw.whole(1, 4), draw.whole(1, 4)
    x = draw.array((n, m), draw.dtype("any"))
    accumulate = draw.chance(0.5)
    count = draw.whole(1, 3) if accumulate else 1
    index = tuple(Array(draw.numbers.randint(-k, k, count), "int64") for k in (n, m)[:draw.whole(1, 2)])
    return [x, index, draw.array((count,) if len(index) == 2 else (count, m), x.dtype)], {"accumulate": accumulate} if accumulate else {}, ""


def attention(draw: Draw) -> Any:
    b, h, s, t, e, v = (draw.whole(1, 3) for _ in range(6))
    dtype = draw.dtype("wide")
    q, k, values = draw.array((b, h, s, e), dtype), draw.array((b, h, t, e), dtype), draw.array((b, h, t, v), dtype)
    options: dict[str, Any] = {}
    if draw.chance(0.3):
        options["is_causal"] = True
    elif draw.chance(0.5):
        options["attn_mask"] = draw.array(draw.broadcast((b, h, s, t)), dtype)
    if draw.chance(0.3):
        options["scale"] = 0.7
    return [q, k, values], options, FLAGS


# At 0, where there is a corner, torch's second gradient is of the other side than its first.
_PRELU = ";".join(f"{sizes} @floats {flag}" for sizes in ("input=[n M k] weight=[M]", "weight=[1]") for flag in ("!double", "!edges"))
_LOSS = "input=[N C] target=[N C] @wide;input=[] target=[] @wide"
SPATIAL: dict[str, Any] = {
    **{f"{m}conv{d}d": conv(d) for d in (1, 2, 3) for m in ("", "nn.functional.")},
    **{f"{m}conv_transpose{d}d": transposed(d) for d in (1, 2, 3) for m in ("", "nn.functional.")},
    **{f"nn.functional.{k}_pool{d}d": pool(d, k) for d in (1, 2, 3) for k in ("avg", "max", "lp")},
    "avg_pool1d": pool(1, "avg"),
    **{f"nn.functional.adaptive_{k}_pool{d}d": adaptive(d, k) for d in (1, 2, 3) for k in ("avg", "max")},
    **{f"nn.functional.max_unpool{d}d": unpool(d) for d in (1, 2, 3)},
    **{f"nn.functional.max_pool{d}d_with_indices": pool(d, "plain") for d in (1, 2, 3)},
    **{f"nn.functional.adaptive_max_pool{d}d_with_indices": adaptive(d, "plain") for d in (1, 2, 3)},
    "nn.functional.gelu": lambda d: ([d.array(d.shape(), d.dtype("floats"))], {"approximate": d.pick(("none", "tanh"))}),
    "nn.functional.logsigmoid": FLAGS, "nn.functional.fold": fold, "nn.functional.unfold": unfold, "nn.functional.interpolate": interpolate,
    "nn.functional.grid_sample": grid_sample,
    "nn.functional.affine_grid": affine_grid, "nn.functional.pad": pad, "nn.functional.batch_norm": batch_norm,
    "nn.functional.instance_norm": instance_norm,
    "nn.functional.ctc_loss": ctc, "nn.functional.embedding_bag": embedding_bag,
    "nn.functional.multilabel_margin_loss": multilabel_margin, "index_put": index_put,
    "nn.functional.scaled_dot_product_attention": attention,
    "nn.functional.group_norm": "input=[n (2*C) *d] num_groups=1|2 weight?=[(2*C)] bias?=[(2*C)] @wide !strict",
    "nn.functional.layer_norm":
        "input=[n m C] normalized_shape=(C,)|(m,C) weight=- bias=- @floats;"
        "input=[n C] normalized_shape=(C,) weight?=[C] bias?=[C] @floats",
    "nn.functional.rms_norm": "input=[n m C] normalized_shape=(C,) weight?=[C] eps=None|0.1 @floats",
    "nn.functional.local_response_norm": "input=[n C m] size=1..4 @wide;input=[n C m k] size=1..4 @wide",
    "nn.functional.linear":
        "input=[... n k] weight=[m k] bias?=[m] @floats;input=[k] weight=[m k] bias?=[m] @floats;"
        "input=[n k] weight=[k] bias=- @floats",
    "nn.functional.bilinear": "input1=[n A] input2=[n B] weight=[m A B] bias?=[m] @wide",
    "nn.functional.embedding": "input=[n m]:index<N weight=[N k]:floats padding_idx=0|-1|None max_norm=- norm_type=-",
    "nn.functional.one_hot": "input=[n m]:index<C num_classes=C|-1|C+2 !grad",
    "nn.functional.channel_shuffle": "input=[n (2*M) a b] groups=2",
    "nn.functional.pixel_shuffle": "input=[n (4*M) a b] upscale_factor=2",
    "nn.functional.pixel_unshuffle": "input=[n m (2*A) (2*B)] downscale_factor=2",
    "nn.functional.normalize": "input=[n M k] p=1.0|2.0|3.0 dim=dim @floats",
    "nn.functional.prelu": _PRELU,
    "prelu": _PRELU, "nn.functional.glu": "input=[n (2*m)] dim=-1|1 @floats",
    "nn.functional.threshold": "threshold=0.5|-1 value=2.0|0", "nn.functional.celu": "alpha=0.5|1.0|2.0",
    "nn.functional.softplus": "beta=1.0|2.0 threshold=20.0|1.0", "nn.functional.hardtanh": "min_val=-1.0|-2.0 max_val=1.0|0.5",
    "nn.functional.cosine_similarity": "x1=[n m] x2=[n m] dim=dim @floats",
    "nn.functional.pairwise_distance": "x1=[n m] x2=[n m] p=1.0|2.0|3.0 @floats",
    "nn.functional.pdist": "input=[(n+2) M] p=0.0|1.0|2.0|3.0 @wide !wrong",
    # losses
    **{f"nn.functional.{n}": _LOSS for n in ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss")},
    "nn.functional.soft_margin_loss": "input=[N C] target=[N C]:signs @wide",
    "nn.functional.cross_entropy":
        "input=[N C] target=[N]:index<C weight?=[C]:positive ignore_index=-100|0 @floats;"
        "input=[N C] target=[N C]:prob weight=- ignore_index=- @wide;"
        "input=[N C 2 3] target=[N 2 3]:index<C weight=- ignore_index=- @wide;"
        "input=[C] target=[]:index<C weight=- ignore_index=- @wide",
    "nn.functional.nll_loss":
        "input=[N C] target=[N]:index<C weight?=[C]:positive ignore_index=-100|0 @wide;"
        "input=[N C 2] target=[N 2]:index<C weight=- ignore_index=- @wide;"
        "input=[C] target=[]:index<C weight=- ignore_index=- @wide",
    "nn.functional.binary_cross_entropy": "input=[N C]:prob target=[N C]:prob weight?=[C]:positive @wide",
    "nn.functional.binary_cross_entropy_with_logits":
        "input=[N C] target=[N C]:prob weight?=[C]:positive pos_weight?=[C]:positive @wide",
    "nn.functional.kl_div":
        "input=[N C] target=[N C]:prob log_target=- reduction='mean'|'sum'|'none'|'batchmean' @wide;"
        "input=[N C] target=[N C] log_target=True @wide",
    "nn.functional.poisson_nll_loss": "input=[N C]:positive target=[N C]:positive @wide",
    "nn.functional.gaussian_nll_loss":
        "input=[N C] target=[N C] var=[N C]:positive @wide;input=[N C] target=[N C] var=[N 1]:positive @wide",
    "nn.functional.hinge_embedding_loss": "input=[N C] target=[N C]:signs @wide",
    "nn.functional.margin_ranking_loss": "input1=[N] input2=[N] target=[N]:signs @wide",
    "nn.functional.cosine_embedding_loss": "input1=[N C] input2=[N C] target=[N]:signs @wide",
    "nn.functional.triplet_margin_loss": "anchor=[N C] positive=[N C] negative=[N C] p=1.0|2.0 eps=- @wide",
    "nn.functional.triplet_margin_with_distance_loss": "anchor=[N C] positive=[N C] negative=[N C] @wide",
    "nn.functional.multi_margin_loss": "input=[N C] target=[N]:index<C p=1|2 weight?=[C]:positive @wide",
    "nn.functional.multilabel_soft_margin_loss": "input=[N C] target=[N C]:prob weight?=[C]:positive @wide",
}
