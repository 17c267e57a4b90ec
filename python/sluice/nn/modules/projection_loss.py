"""LinearCrossEntropyLoss: a projection and its loss."""

from __future__ import annotations

import math
import re
from numbers import Integral
from dataclasses import dataclass
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.nn import functional as F
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.loss import _WeightedLoss

_POLICIES = ("accurate", "balanced", "compact", "auto")


@dataclass
class LinearCrossEntropyOptions:
    """How torch divides the batch of a linear_cross_entropy to save memory. They are checked and kept; nothing here depends on them."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and (not isinstance(size, Integral) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if method not in (None, "auto") and not re.fullmatch(r"aspect_ratio:\d+", str(method)):
            raise ValueError(f"invalid chunking_method: {method!r}; must be None, 'auto' or 'aspect_ratio:N'")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}; must be one of {_POLICIES}")
        if self.acc_dtype is not None and not self.acc_dtype.is_floating_point:
            raise ValueError(f"acc_dtype must be one of None, {_C.float16}, {_C.bfloat16}, {_C.float32}, {_C.float64}, got "
                             f"{self.acc_dtype}")


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross-entropy of linear(input): (N, in_features), of num_classes classes at each of out_features places. Its layer is `linear`."""

    def __init__(self, in_features: int, num_classes: int, *, out_features: Any = (), bias: bool = False, device: Any = None,
                 dtype: Any = None, reduction: str = "mean", weight: Any = None, ignore_index: int | None = None,
                 label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None) -> None:
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features, self.ignore_index = num_classes, tuple(out_features), ignore_index
        self.label_smoothing, self.options = label_smoothing, options
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias, device, dtype)

    def forward(self, input: Any, target: Any) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return F.linear_cross_entropy(input, self.linear.weight.reshape((*shape, -1)), target, linear_bias=bias,
                                      weight=self.weight,
                                      reduction=self.reduction, ignore_index=self.ignore_index,
                                      label_smoothing=self.label_smoothing,
                                      options=self.options)

    def extra_repr(self) -> str:
        return (f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
                f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
                f"label_smoothing={self.label_smoothing}, options={self.options}")
