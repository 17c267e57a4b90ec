"""The choice of the kernel of scaled_dot_product_attention: torch.nn.attention. There is one kernel, which every choice allows."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from sluice.nn.attention import bias, flex_attention

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "bias", "flex_attention", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """Names of torch's ways to compute attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict]:
    """A context or decorator in which torch takes one of `backends`, an SDPBackend or a list of them.

    The kernel here stays the same: its results and gradients are those of all of them. Graphs on GPUs may take cuDNN's, by
    `graph.config.enable_cudnn_attention()`.
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, list) or not all(isinstance(one, SDPBackend) for one in chosen):
        raise AssertionError(f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    yield {}
