"""How exactly float32 is multiplied: the defaults of the graphs that are compiled from now on."""

from __future__ import annotations

from sluice import _C

PRECISIONS = {"float32_matmul_precision": ("highest", "high", "medium"), "float32_conv_precision": ("highest", "high")}
_settings = dict.fromkeys(PRECISIONS, "highest")


def check_precision(name: str, precision: str) -> str:
    if precision not in PRECISIONS[name]:
        raise _C.ValueError(f"set_{name}: got {precision!r}; must be one of {', '.join(PRECISIONS[name])}")
    return precision


def set_precision(name: str, precision: str) -> None:
    _settings[name] = check_precision(name, precision)


def precisions() -> dict[str, str]:
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
