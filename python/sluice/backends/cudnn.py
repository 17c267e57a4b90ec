"""Settings of convolutions on CUDA devices: `sluice.backends.cudnn.allow_tf32`."""

from __future__ import annotations

import sys
import types

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


sys.modules[__name__].__class__ = _Cudnn
