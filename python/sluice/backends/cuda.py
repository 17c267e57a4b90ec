"""Settings of CUDA devices: `sluice.backends.cuda.matmul.allow_tf32`."""

from __future__ import annotations

from sluice._base.precision import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["matmul"]


class _Matmul:
    __slots__ = ()

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 operands may be rounded to TF32: another word for `set_float32_matmul_precision("high")`."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


matmul = _Matmul()
