"""How exactly floats are computed with: the defaults of the graphs that are compiled from now on."""

from __future__ import annotations

from typing import Any

from sluice import _C

PRECISIONS = {"float32_matmul_precision": ("highest", "high", "medium"), "float32_conv_precision": ("highest", "high")}
_settings: dict[str, Any] = {**dict.fromkeys(PRECISIONS, "highest"), "flush_denormals": False}


def check_precision(name: str, precision: str) -> str:
    if precision not in PRECISIONS[name]:
        raise _C.ValueError(f"set_{name}: got {precision!r}; must be one of {', '.join(PRECISIONS[name])}")
    return precision


def set_precision(name: str, precision: str) -> None:
    _settings[name] = check_precision(name, precision)


def precisions() -> dict[str, Any]:
    """The settings by name."""
    return dict(_settings)


def set_float32_matmul_precision(precision: str) -> None:
    """"highest": in float32. "high": operands may be rounded to TF32, "medium": to bfloat16, where a device is faster so.

    A graph takes it when it is compiled and keeps it in its plan; `graph.config.set_float32_matmul_precision` wins.
    As torch.set_float32_matmul_precision.
    """
    set_precision("float32_matmul_precision", precision)


def get_float32_matmul_precision() -> str:
    return _settings["float32_matmul_precision"]


def set_flush_denormal(mode: bool) -> bool:
    """Whether kernels of the CPU take denormal numbers (of float32, those below 1.2e-38) for zero, operands and results.

    Eager calls do from now on, on all threads of all their kernels. A graph and a compiled function take the setting when
    they are compiled and keep it in their plan; `graph.config.enable_flush_denormals` wins. Processors of Intel take up to
    200 times as long for a product over many denormals. Returns False, and does nothing, on a processor without such a mode.
    As torch.set_flush_denormal, which sets the mode of the calling thread alone.
    """
    if not _C.set_flush_denormals(bool(mode)):
        return False
    _settings["flush_denormals"] = bool(mode)
    return True
