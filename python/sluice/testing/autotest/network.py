"""torch's own forms of functions of nn.functional, whose reductions are numbers, and names that came with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.arrays import Array
from sluice.testing.autotest.draw import Draw
from sluice.testing.autotest.linear_algebra import square
from sluice.testing.autotest.spatial import batch_norm, ctc

NORMS = "norm=None|'backward'|'ortho'|'forward'"
POLYNOMIALS = [f"special.{n}" for n in (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w")]
_DROPPED = ("dropout", "feature_dropout", "dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_")

NETWORK_SIGNATURES = {
    **{n: f"{n}(Tensor input, float p, bool train) -> Tensor" for n in _DROPPED},
    "binary_cross_entropy_with_logits": "bce(Tensor input, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
                                        "int reduction=0) -> Tensor",
    "cosine_embedding_loss": "cel(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) -> Tensor",
    "margin_ranking_loss": "mrl(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) -> Tensor",
    "hinge_embedding_loss": "hel(Tensor input, Tensor target, float margin=1.0, int reduction=0) -> Tensor",
    "kl_div": "kl_div(Tensor input, Tensor target, int reduction=0, *, bool log_target=False) -> Tensor",
    "poisson_nll_loss": "pnl(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
    "triplet_margin_loss": "tml(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, "
                           "float eps=1e-06, bool swap=False, int reduction=0) -> Tensor",
    "embedding": "embedding(Tensor weight, Tensor indices, int padding_idx=-1) -> Tensor",
    "embedding_renorm_": "embedding_renorm_(Tensor input, Tensor indices, float max_norm, float norm_type) -> Tensor",
    "group_norm": "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    **{n: "conv_tbc(Tensor input, Tensor weight, Tensor bias, int pad=0) -> Tensor"
       for n in ("conv_tbc", "nn.functional.conv_tbc")},
    "nn.functional.linear_cross_entropy":
        "lce(Tensor input, Tensor linear_weight, Tensor target, *, Tensor? linear_bias=None, Tensor? weight=None, "
        "str reduction=\"mean\", float label_smoothing=0.0) -> Tensor",
    "histogramdd": "histogramdd(Tensor input, int[] bins, float[]? range=None, Tensor? weight=None, "
                   "bool density=False) -> Tensor",
    "kaiser_window":
        "kaiser_window(int window_length, bool periodic=True, float beta=12.0, *, ScalarType? dtype=None) -> Tensor",
    **{f"fft.{n}": f"{n}(int n, float d=1.0, *, ScalarType? dtype=None) -> Tensor" for n in ("fftfreq", "rfftfreq")},
    **{n: "polynomial(Tensor input, Operand n) -> Tensor" for n in POLYNOMIALS},
    "special.airy_ai": "airy_ai(Tensor x) -> Tensor",
    "slice_copy": "slice_copy(Tensor input, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    **{n: f"{n}(Tensor input) -> Tensor" for n in ("view_as_complex_copy", "view_as_real_copy")},
    "Tensor.to_dense": "to_dense(Tensor input, ScalarType? dtype=None) -> Tensor",
}


def _batch_norm(draw: Draw) -> Any:
    (x, mean, var, w, b, training), options, flags = batch_norm(draw)
    return [x, w, b, mean, var, training, options["momentum"], options["eps"], False], {}, flags


def _instance_norm(draw: Draw) -> Any:
    (x, mean, var, w, b, _), options, flags = batch_norm(draw)
    x = draw.array((*x.shape[:2], 2, 3), x.dtype)
    return [x, w, b, mean, var, mean is None or draw.chance(0.5), options["momentum"], options["eps"], False], {}, flags


def _ctc(draw: Draw) -> Any:
    args, options, flags = ctc(draw)
    return [*args, 0, draw.whole(0, 2), options["zero_infinity"]], {}, flags


def _geqrf(draw: Draw) -> Any:
    draw.layouts = False  # of equal rows only what rounding left would remain
    return [draw.array((draw.whole(1, 4), draw.whole(1, 4)), draw.dtype("wide"))], {}, "!grad !strict !forms"


def _ormqr(draw: Draw) -> Any:
    m, k, n = draw.whole(2, 4), draw.whole(1, 2), draw.whole(1, 3)
    a = draw.array((m, k), draw.dtype("wide"))
    left = draw.chance(0.5)
    other = draw.array((m, n) if left else (n, m), a.dtype)
    return [a, draw.array((k,), a.dtype, "small"), other], {"left": left, "transpose": draw.chance(0.5)}, "!double !strict"


def _segments(draw: Draw) -> Any:
    n, count = draw.whole(1, 6), draw.whole(1, 3)
    cuts = np.sort(draw.numbers.randint(0, n + 1, count - 1))
    offsets = np.concatenate([[0], cuts, [n]]).astype(np.int64)
    x = draw.array((n, *draw.shape((0, 1))), draw.dtype("wide"))
    how = {"lengths": Array(np.diff(offsets), "int64")} if draw.chance(0.5) else {"offsets": Array(offsets, "int64")}
    return [x, draw.pick(("sum", "mean", "max", "min", "prod"))], {**how, "axis": 0, "initial": 1.0}, "!double !graph !forms"


def _stft(draw: Draw) -> Any:
    n = draw.whole(2, 6)
    x = draw.array((*draw.shape((0, 1)), 12), draw.dtype("wide"))
    if x.layout == "expanded":  # whose gradient torch shares out among elements that lie in one place
        x = replace(x, layout="plain")
    options: dict[str, Any] = {"hop_length": draw.whole(1, 4), "center": draw.chance(0.6), "normalized": draw.chance(0.4),
                               "onesided": draw.chance(0.6), "return_complex": True}
    if draw.chance(0.6):
        options["window"] = draw.array((n,), x.dtype, "positive")
    if draw.chance(0.4):
        options["pad_mode"] = draw.pick(("reflect", "constant", "replicate"))
    return [x, n], options, "!strict"


def _istft(draw: Draw) -> Any:
    n, frames = draw.whole(2, 6), draw.whole(2, 4)
    onesided = draw.chance(0.6)
    dtype = draw.pick(("complex64", "complex128"))
    x = draw.array((n // 2 + 1 if onesided else n, frames), dtype)
    window = draw.array((n,), "float32" if dtype == "complex64" else "float64", "positive")
    return [x, n], {"hop_length": draw.whole(1, max(n // 2, 1)), "window": window, "onesided": onesided,
                    "normalized": draw.chance(0.4)}, "!strict"


def _transforms() -> dict[str, str]:
    """The rows of torch.fft: lengths from 1, which are shorter and longer than the input's."""
    rows: dict[str, str] = {}
    for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        rows[f"fft.{kind}"] = f"input=[N M] n=1..7|None dim=dim {NORMS} !edges;input=[M] n=- dim=- {NORMS} !edges"
        rows[f"fft.{kind}2"] = (f"input=[N M K] s=(3,4)|(2,1)|None dim=(0,2)|(-1,-2)|(-2,-1) {NORMS} !edges;"
                                "input=[N M] s=- dim=- norm=- !edges")
        rows[f"fft.{kind}n"] = (f"input=[N M K] s=(3,4)|(1,5) dim=(0,2)|(1,0) {NORMS} !edges;"
                                f"input=[N M K] s=None dim=None|(0,)|(2,0,1)|(1,2) {NORMS} !edges;"
                                "input=[N M] s=(2,)|(3,5) dim=- norm=- !edges")
    return {**rows, **{f"fft.{n}": "input=[N m K] dim=dim|(0,1)|(2,)|None" for n in ("fftshift", "ifftshift")},
            **{f"fft.{n}": "n=1..9 d=1.0|0.5|3.0 dtype=torch.float32|torch.float64|None" for n in ("fftfreq", "rfftfreq")}}


_REDUCED = "reduction=0|1|2"
NETWORK: dict[str, str | Callable[[Draw], Any]] = {
    **_transforms(),
    **{n: "p=0.0 train=True @floats;p=0.3 train=False @floats" for n in ("dropout",)},
    "feature_dropout": "input=[N 3 2] p=0.0 train=True @floats;input=[N 3 2] p=0.3 train=False @floats",
    **{n: "input=[N 3 2] p=0.0 train=True @floats !grad;input=[N 3 2] p=0.3 train=False @floats !grad"
       for n in _DROPPED if n[-1] == "_"},
    "binary_cross_entropy_with_logits":
        f"input=[N C] target=[N C]:prob weight?=[C]:positive pos_weight?=[C]:positive {_REDUCED} @wide",
    "cosine_embedding_loss": f"input1=[N C] input2=[N C] target=[N]:signs {_REDUCED} @wide",
    "margin_ranking_loss": f"input1=[N] input2=[N] target=[N]:signs {_REDUCED} @wide",
    "hinge_embedding_loss": f"input=[N C] target=[N C]:signs {_REDUCED} @wide",
    "kl_div": f"input=[N C] target=[N C]:prob log_target=- {_REDUCED} @wide;"
              f"input=[N C] target=[N C] log_target=True {_REDUCED} @wide",
    "poisson_nll_loss": f"input=[N C]:positive target=[N C]:positive eps=1e-8 {_REDUCED} @wide",
    "triplet_margin_loss": f"anchor=[N C] positive=[N C] negative=[N C] p=1.0|2.0 eps=- {_REDUCED} @wide",
    "embedding": "weight=[N k] indices=[n m]:index<N padding_idx=0|-1 @floats",
    "embedding_renorm_": "input=[N K] indices=[M]:index<N max_norm=0.5|1.0 norm_type=1.0|2.0 @wide !grad !graph !edges",
    "group_norm": "input=[n (2*C) *d] num_groups=1|2 weight?=[(2*C)] bias?=[(2*C)] @wide !strict !edges",
    **{n: "input=[(T+4) N I] weight=[K I O] bias=[O] pad=0..2 @wide" for n in ("conv_tbc", "nn.functional.conv_tbc")},
    "nn.functional.linear_cross_entropy":
        "input=[N D] linear_weight=[C D] target=[N]:index<C linear_bias?=[C] weight?=[C]:positive "
        "label_smoothing=0.0|0.2 @wide !double !strict !edges",
    "histogramdd": "input=[N 2] bins=(2,3)|(1,4) range=(-2.0,2.0,-1.0,3.0) weight?=[N] @wide !graph !grad !forms !edges",
    "kaiser_window": "window_length=0..7 beta=12.0|3.0 dtype=torch.float32|torch.float64",
    **{n: "n=0..6 @floats !edges;input=[n m] n=[m]:index<6 @wide !edges;@integers n=0..4"
       for n in POLYNOMIALS},
    "special.airy_ai": "@wide",
    "slice_copy": "input=[(N+2) m] dim=0 start=0|1|-2|None end=2|-1|None step=1|2;input=[n M] dim=-1 start=0 end=M step=1",
    "polar": "abs=[n m]:positive angle=[n m] @wide;abs=[m]:positive angle=[n m] @wide",
    "view_as_real": "@complex", "view_as_real_copy": "@complex !double",
    "view_as_complex": "input=[*d n 2] @wide", "view_as_complex_copy": "input=[*d n 2] @wide !grad",
    "Tensor.to_dense": "dtype=torch.float32|torch.float64",
    "lu": lambda d: ([square(d)], {"get_infos": d.chance(0.4)}, "!double !strict !forms"),
    "batch_norm": _batch_norm, "instance_norm": _instance_norm, "ctc_loss": _ctc, "geqrf": _geqrf, "ormqr": _ormqr,
    "segment_reduce": _segments, "stft": _stft, "istft": _istft,
}
