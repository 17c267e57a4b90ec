"""Settings of convolutions on CUDA devices: `sluice.backends.cudnn.allow_tf32`."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Iterator

from sluice._base.precision import precisions, set_precision


class _Cudnn(types.ModuleType):
    @property
    def allow_tf32(self) -> bool:
        """Whether float32 operands of convolutions may be rounded to TF32; not so by default, unlike in torch.

        A graph takes it when it is compiled and keeps it in its plan; `graph.config.set_float32_conv_precision` wins.
        """
        return precisions()["float32_conv_precision"] != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_precision("float32_conv_precision", "high" if allowed else "highest")

    @staticmethod
    @contextlib.contextmanager
    def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
              allow_tf32: bool = True, fp32_precision: str = "none", depthwise_kernel: str = "auto") -> Iterator[None]:
        """A block with another precision of convolutions: TF32 where the library is enabled and allowed to, float32 where it is not.

        Kernels are chosen by what they cost, and results do not depend on the choice, so the other settings change nothing.
        """
        if fp32_precision not in ("none", "ieee", "tf32"):
            raise ValueError(f"cudnn.flags: fp32_precision: {fp32_precision!r}; must be 'none', 'ieee' or 'tf32'")
        before = precisions()["float32_conv_precision"]
        rounds = enabled and (allow_tf32 if fp32_precision == "none" else fp32_precision == "tf32")
        set_precision("float32_conv_precision", "high" if rounds else "highest")
        try:
            yield
        finally:
            set_precision("float32_conv_precision", before)


sys.modules[__name__].__class__ = _Cudnn
