"""Floats of 8 bits: their numbers, and their dtypes (ADR 71)."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from sluice import _C


class Form(NamedTuple):
    """The meaning of 8 bits: a sign, an exponent and a fraction."""

    fraction: int  # bits
    bias: int
    finite: int  # codes of finite numbers that are not negative, from 0 on; what is beyond is infinite or no number
    infinite: int | None  # the code of infinity
    nan: int  # the code that casts give
    saturates: bool  # what is too large becomes the largest number, infinity too
    signed_zero: bool  # else -0 is no number, the only one, and there is no infinity

    def number(self, code: int) -> float:
        """The number of a code without its sign. The one after the last finite code is where rounding to it would end."""
        exponent, fraction = code >> self.fraction, code & ((1 << self.fraction) - 1)
        steps = fraction if exponent == 0 else fraction + (1 << self.fraction)
        return float(steps * 2.0 ** (max(exponent, 1) - self.bias - self.fraction))


FORMS = {"float8_e4m3fn": Form(3, 7, 0x7F, None, 0x7F, True, True), "float8_e5m2": Form(2, 15, 0x7C, 0x7C, 0x7F, False, True),
         "float8_e4m3fnuz": Form(3, 8, 0x80, None, 0x80, False, False), "float8_e5m2fnuz": Form(2, 16, 0x80, None, 0x80, False, False)}


class Float8Dtype:
    """A dtype of floats of 8 bits, which tensors are kept in. isinstance(d, sluice.dtype) holds, as in torch."""

    is_floating_point, is_complex, is_signed, itemsize = True, False, True, 1

    def __init__(self, name: str) -> None:
        self.name, self.form = name, FORMS[name]

    @property
    def __class__(self) -> Any:
        return _C.dtype

    def to_real(self) -> Float8Dtype:
        return self

    def to_complex(self) -> Any:
        return _C.complex64

    def __repr__(self) -> str:
        return f"sluice.{self.name}"

    def __reduce__(self) -> Any:
        return dtype_named, (self.name,)

    def __copy__(self) -> Float8Dtype:
        return self

    def __deepcopy__(self, memo: Any) -> Float8Dtype:
        return self


DTYPES = {name: Float8Dtype(name) for name in FORMS}
_dtypes: Any = DTYPES.values()  # to a checker of types they are dtypes like others
float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz = _dtypes


def dtype_named(name: str) -> Float8Dtype:
    return DTYPES[name]


def is_float8(dtype: Any) -> bool:
    return type(dtype) is Float8Dtype


def numbers(form: Form) -> list[float]:
    """The number of each of the 256 codes."""
    half = [form.number(code) if code < form.finite else float("inf") if code == form.infinite else float("nan") for code in range(128)]
    return half + [-n for n in half] if form.signed_zero else half + [float("nan"), *(-n for n in half[1:])]


def thresholds(form: Form) -> list[float]:
    """The least float32 that is rounded to each code from 1 on: halfway from the code before, itself where that is odd."""
    found = []
    for code in range(form.finite - form.saturates):
        halfway = (form.number(code) + form.number(code + 1)) / 2
        if code % 2 == 0:  # a tie goes to the even one
            halfway, = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", halfway))[0] + 1))
        found.append(halfway)
    return found
