"""Modules: small configurations of each, and what they are called with, in the language of rows.py.

    Linear   3 5 bias=True|False -> [N 3]; 3 2 -> [*d 3]

Before the arrow stand the arguments of the constructor, after it the inputs; `;` parts alternatives.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

from sluice.testing.autotest.arrays import Array, Case
from sluice.testing.autotest.draw import Draw
from sluice.testing.autotest.execute import dtype_name, resolve
from sluice.testing.autotest.language import Row, Sizes, parse, value_of

_IMAGE = {1: "[N 4 7]", 2: "[N 4 6 5]", 3: "[N 4 4 5 4]"}
_PLAIN = {1: "[N 4 n]", 2: "[N 4 n m]", 3: "[N 4 n 2 m]"}
_REDUCTION = "reduction='mean'|'sum'|'none'"
_TEXT: dict[str, str] = {
    "Linear": "3 5 bias=True|False -> [N 3];3 2 -> [3];3 2 -> [*d 3]", "Bilinear": "3 2 4 bias=True|False -> [N 3] [N 2]",
    "Identity": "-> [*d 3]",
    **{f"Conv{d}d":
        f"4 6 3|1|2 stride=1|2 padding=0|1 dilation=1|2 groups=1|2 bias=True|False -> {_IMAGE[d]};"
        f"4 2 2 padding='same' -> {_IMAGE[d]};"
                    f"4 2 3 padding=1 padding_mode='reflect'|'replicate'|'circular' -> {_IMAGE[d]}" for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d":
        f"4 6 2|3 stride=1|2 padding=0|1 groups=1|2 bias=True|False -> {_IMAGE[d]};"
        f"4 2 3 stride=2 output_padding=1 -> {_IMAGE[d]}" for d in (1, 2, 3)},
    **{f"MaxPool{d}d": f"2|3 stride=None|1|2 padding=0|1 ceil_mode=True|False -> {_IMAGE[d]}" for d in (1, 2, 3)},
    **{f"AvgPool{d}d":
        f"2|3 stride=None|1|2 padding=0|1 ceil_mode=True|False count_include_pad=True|False -> {_IMAGE[d]}" for d in (1, 2, 3)},
    **{f"LPPool{d}d": f"2.0|3.0 2 ceil_mode=True|False -> {_IMAGE[d]}:positive" for d in (1, 2, 3)},
    **{f"Adaptive{k}Pool{d}d": f"1|2|3 -> {_IMAGE[d]}" for d in (1, 2, 3) for k in ("Avg", "Max")},
    "MaxUnpool1d": "2 -> [1 1 2] [1 1 2]:index<1", "MaxUnpool2d": "2 -> [1 1 1 1] [1 1 1 1]:index<4",
    "MaxUnpool3d": "2 -> [1 1 1 1 1] [1 1 1 1 1]:index<8",
    **{f"ConstantPad{d}d": f"1|2 0.5 -> {_PLAIN[d]}" for d in (1, 2, 3)},
    **{f"BatchNorm{d}d":
        f"4 affine=True|False track_running_stats=True|False momentum=0.1|None -> {_IMAGE[d]}" for d in (1, 2, 3)},
    **{f"InstanceNorm{d}d": f"4 affine=True|False track_running_stats=True|False -> {_IMAGE[d]}" for d in (1, 2, 3)},
    "LayerNorm": "3 elementwise_affine=True|False -> [N 3];(2,3) bias=True|False -> [n 2 3]",
    "RMSNorm": "3 elementwise_affine=True|False eps=None|0.1 -> [N 3]", "GroupNorm": "2 4 affine=True|False -> [N 4 *d]",
    "LocalResponseNorm": "2|3 -> [N 4 n]",
    "CrossEntropyLoss":
        f"{_REDUCTION} label_smoothing=0.0|0.2 ignore_index=-100|0 -> [N C] [N]:index<C;-> [N C 2] [N 2]:index<C",
    "NLLLoss": f"{_REDUCTION} ignore_index=-100|0 -> [N C] [N]:index<C",
    "NLLLoss2d": f"{_REDUCTION} -> [N C 2 3] [N 2 3]:index<C", "CrossMapLRN2d": "2|3 -> [N 4 3 2]",
    "LinearCrossEntropyLoss": f"3 4 bias=True|False {_REDUCTION} -> [N 3] [N]:index<4",
    **{n: f"{_REDUCTION} -> [N C] [N C]" for n in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")},
    "BCELoss": f"{_REDUCTION} -> [N C]:prob [N C]:prob", "BCEWithLogitsLoss": f"{_REDUCTION} -> [N C] [N C]:prob",
    "KLDivLoss":
        "reduction='batchmean'|'sum'|'none' log_target=False -> [N C] [N C]:prob;log_target=True reduction='sum' -> [N C] [N C]",
    "PoissonNLLLoss": f"full=True|False log_input=True|False {_REDUCTION} -> [N C]:positive [N C]:positive",
    "GaussianNLLLoss": f"full=True|False {_REDUCTION} -> [N C] [N C] [N C]:positive",
    "HingeEmbeddingLoss": f"margin=1.0|0.5 {_REDUCTION} -> [N C] [N C]:signs",
    "SoftMarginLoss": f"{_REDUCTION} -> [N C] [N C]:signs",
    "MarginRankingLoss": f"margin=0.0|0.5 {_REDUCTION} -> [N] [N] [N]:signs",
    "CosineEmbeddingLoss": f"margin=0.0|0.5 {_REDUCTION} -> [N C] [N C] [N]:signs",
    "MultiMarginLoss": f"p=1|2 {_REDUCTION} -> [N C] [N]:index<C",
    "MultiLabelSoftMarginLoss": f"{_REDUCTION} -> [N C] [N C]:prob",
    "MultiLabelMarginLoss": f"{_REDUCTION} -> [N 1] [N 1]:index<1",
    "TripletMarginLoss": f"margin=1.0|0.3 swap=True|False {_REDUCTION} -> [N C] [N C] [N C]",
    "TripletMarginWithDistanceLoss": f"margin=1.0|0.3 swap=True|False {_REDUCTION} -> [N C] [N C] [N C]",
    "CTCLoss": "reduction='mean'|'sum' -> [5 2 3] [2 1]:index<1 [2]:index<1 [2]:index<1",
    **{n: "-> [*d 3]" for n in ("Sigmoid", "Tanh", "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Softsign", "Tanhshrink", "LogSigmoid", "Hardsigmoid", "Hardswish")},
    "ELU": "alpha=1.0|0.5 -> [*d 3]", "CELU": "alpha=1.0|0.5 -> [*d 3]", "LeakyReLU": "0.1|0.3 -> [*d 3]",
    "PReLU": "num_parameters=1|3 -> [N 3 *d] !double", "GELU": "approximate='none'|'tanh' -> [*d 3]", "GLU": "dim=-1|1 -> [N 4]",
    "Hardtanh": "-0.5|-1.0 1.0|2.0 -> [*d 3]", "Hardshrink": "0.5|0.2 -> [*d 3]", "Softshrink": "0.5|0.2 -> [*d 3]",
    "Threshold": "0.5|-0.2 2.0 -> [*d 3]", "Softplus": "beta=1.0|2.0 threshold=20.0|1.0 -> [*d 3]",
    "Softmax": "dim=0|-1 -> [N 3]", "LogSoftmax": "dim=0|-1 -> [N 3]", "Softmin": "dim=0|-1 -> [N 3]",
    "Softmax2d": "-> [N 3 2 2]", "RReLU": "0.3 0.3 -> [*d 3]",
    **{n: "0.0 -> [N 3 2 2]" for n in ("Dropout", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout")},
    "Dropout1d": "0.0 -> [N 3 2]", "Dropout3d": "0.0 -> [N 3 2 2 2]",
    "Embedding": "5 3 padding_idx=None|0|-1 -> [*d 2]:index<5", "EmbeddingBag": "5 3 mode='sum'|'mean'|'max' -> [N 2]:index<5",
    "Flatten": "-> [N 3 2];0 -1 -> [N 2]", "Unflatten": "1 (2,3) -> [N 6]", "Fold": "(4,4) 2 stride=2 -> [N 4 4]",
    "Unfold": "2 stride=1|2 padding=0|1 -> [N 2 4 5]", "PixelShuffle": "2 -> [N 4 2 3]", "PixelUnshuffle": "2 -> [N 1 4 2]",
    "ChannelShuffle": "2 -> [N 4 2 3]",
    "Upsample":
        "scale_factor=2|1.5 mode='nearest'|'bilinear'|'bicubic' -> [N 2 3 4];"
        "size=5 mode='linear' align_corners=True|False -> [N 2 3]",
    "UpsamplingNearest2d": "scale_factor=2 -> [N 2 3 4]", "UpsamplingBilinear2d": "scale_factor=2 -> [N 2 3 4]",
    "CosineSimilarity": "dim=1|0 -> [N 3] [N 3]", "PairwiseDistance": "p=1.0|2.0 keepdim=True|False -> [N 3] [N 3]",
    **{n: "3 4 num_layers=1|2 bidirectional=True|False batch_first=True|False bias=True|False -> [2 3 3]" for n in ("RNN", "LSTM", "GRU")},
    "RNNCell": "3 4 nonlinearity='tanh'|'relu' -> [N 3]",
    **{n: "3 4 bias=True|False -> [N 3]" for n in ("LSTMCell", "GRUCell")},
    "MultiheadAttention": "4 2 dropout=0.0 bias=True|False batch_first=True|False -> [3 2 4] [3 2 4] [3 2 4]",
    "TransformerEncoderLayer":
        "4 2 8 dropout=0.0 activation='relu'|'gelu' norm_first=True|False batch_first=True|False -> [3 2 4]",
    "TransformerDecoderLayer": "4 2 8 dropout=0.0 norm_first=True|False batch_first=True|False -> [3 2 4] [3 2 4]",
    "Transformer": "4 2 1 1 8 dropout=0.0 batch_first=True|False -> [3 2 4] [3 2 4]",
    "AdaptiveLogSoftmaxWithLoss": "4 6 (2,4) -> [N 4] [N]:index<6",
}
for _d, _kinds in (1, "(1,2)"), (2, "(1,0,2,1)"), (3, "(1,0,2,1,0,1)"):
    for _k in ("Reflection", "Replication", "Circular", "Zero"):
        _TEXT[f"{_k}Pad{_d}d"] = f"1|2|{_kinds} -> {_IMAGE[_d]}"
MODULES: dict[str, str] = {f"nn.{name}": text for name, text in _TEXT.items()}


def module_case(op: str, draw: Draw, library: Any) -> tuple[Case, Row]:
    """A call of a module with parameters that are drawn, too. library: torch, whose module says what they are."""
    before, _, after = draw.pick(MODULES[op].split(";")).partition("->")
    sizes, dtype = Sizes(draw), draw.dtype("wide")
    args, keywords = [], {}
    for token in before.split():
        name, equals, value = token.partition("=")
        if equals:
            keywords[name] = value_of(value, sizes, dtype, "any", 0)
        else:
            args.append(value_of(token, sizes, dtype, "any", 0))
    inputs = [value_of(text, sizes, dtype, "any", 0) for text in re.findall(r"\[[^\]]*\](?::\S+)?", after)]
    case = Case(op, args, keywords, inputs, {}, draw.chance(0.6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = resolve(library, op)(*args, **keywords)
    case.state = {name: _state(name, value, dtype, draw) for name, value in made.state_dict().items()}
    return case, parse(" ".join(["!strict", *re.findall(r"!\w+", after)]))[0]


def _state(name: str, value: Any, dtype: str, draw: Draw) -> Array:
    if "float" not in dtype_name(value.dtype):
        return Array(value.numpy().copy(), dtype_name(value.dtype), parameter=False)
    values = draw.values(tuple(value.shape), dtype, "positive" if "var" in name else "small")
    return Array(np.array(values), dtype, parameter=False)
