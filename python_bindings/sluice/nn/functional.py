"""torch.nn.functional: functions of networks. All but those that draw random numbers are forms: graph/forms."""

from __future__ import annotations

import sluice
from sluice._C import Tensor
from sluice._C.functional import *  # noqa: F403


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if inplace:
        input._update(lambda old: dropout(old, p))
        return input
    return input * 0.0 if p == 1 else sluice.default_generator.dropout(input, p)
