"""How exactly float32 matrices are multiplied: the default of the graphs that are compiled from now on."""

from __future__ import annotations

PRECISIONS = ("highest", "high", "medium")
_precision = PRECISIONS[0]


def check_precision(where: str, precision: str) -> str:
    if precision not in PRECISIONS:
        raise ValueError(f"{where}: got {precision!r}; must be one of {', '.join(PRECISIONS)}")
    return precision


def set_float32_matmul_precision(precision: str) -> None:
    """"highest": in float32. "high": operands may be rounded to TF32, "medium": to bfloat16, where a device is faster so.

    A graph takes it when it is compiled and keeps it in its plan; `graph.config.set_float32_matmul_precision` wins.
    As torch.set_float32_matmul_precision.
    """
    global _precision
    _precision = check_precision("set_float32_matmul_precision", precision)


def get_float32_matmul_precision() -> str:
    return _precision
