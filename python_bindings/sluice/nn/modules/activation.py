"""Activations without parameters, and dropout: one line of forward each."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.nn import functional as F
from sluice.nn.modules.module import Module


def _activation(name: Any, fn: Any, params: Any, doc: Any) -> Any:
    """A Module class whose constructor takes `params` (name -> default) and whose forward is fn(input, **params)."""

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        if len(args) > len(params):
            raise TypeError(f"{name}: takes {len(params)} arguments: got {len(args)}")
        values = {**params, **dict(zip(params, args))}
        for key in kwargs:
            if key not in params:
                raise TypeError(f"{name}: unexpected argument '{key}'; takes {list(params)}")
        self.__dict__.update({**values, **kwargs})

    def forward(self, input):
        return fn(input, **{key: getattr(self, key) for key in params})

    def extra_repr(self):
        shown = [(k, getattr(self, k)) for k in params if k != "inplace" or self.inplace]
        return ", ".join(f"{k}={v!r}" for k, v in shown if v is not None)

    return type(name, (Module,), {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": doc,
                                  "__module__": __name__})


ReLU = _activation("ReLU", F.relu, {"inplace": False}, "max(x, 0)")
ReLU6 = _activation("ReLU6", F.relu6, {"inplace": False}, "min(max(x, 0), 6)")
GELU = _activation("GELU", F.gelu, {"approximate": "none"}, "x Phi(x)")
SiLU = _activation("SiLU", F.silu, {"inplace": False}, "x sigmoid(x)")
Mish = _activation("Mish", F.mish, {"inplace": False}, "x tanh(softplus(x))")
Tanh = _activation("Tanh", F.tanh, {}, "tanh(x)")
Sigmoid = _activation("Sigmoid", F.sigmoid, {}, "1 / (1 + exp(-x))")
LogSigmoid = _activation("LogSigmoid", F.logsigmoid, {}, "log(sigmoid(x))")
Softplus = _activation("Softplus", F.softplus, {"beta": 1.0, "threshold": 20.0}, "log(1 + exp(beta x)) / beta")
Softsign = _activation("Softsign", F.softsign, {}, "x / (1 + |x|)")
ELU = _activation("ELU", F.elu, {"alpha": 1.0, "inplace": False}, "x if x > 0 else alpha (exp(x) - 1)")
LeakyReLU = _activation("LeakyReLU", F.leaky_relu, {"negative_slope": 0.01, "inplace": False}, "x if x > 0 else slope x")
Hardtanh = _activation("Hardtanh", F.hardtanh, {"min_val": -1.0, "max_val": 1.0, "inplace": False}, "clamp(x)")
Hardsigmoid = _activation("Hardsigmoid", F.hardsigmoid, {"inplace": False}, "clamp(x / 6 + 1 / 2, 0, 1)")
Hardswish = _activation("Hardswish", F.hardswish, {"inplace": False}, "x hardsigmoid(x)")
Softmax = _activation("Softmax", F.softmax, {"dim": None}, "exp(x) normalised along dim")
LogSoftmax = _activation("LogSoftmax", F.log_softmax, {"dim": None}, "log(softmax(x))")


class Dropout(Module):
    """Zeroes elements with probability p while training and scales the rest by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: probability must be between 0 and 1: got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Any) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
