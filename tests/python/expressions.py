"""What the tests of numerics share: an expression in both libraries."""

import numpy as np


inf, nan = float("inf"), float("nan")


def of(module, functional, expression):
    names = {name: getattr(module, name) for name in "uint8 int8 int32 int64 float16 bfloat16 float32 float64".split()}
    return eval(expression, {"torch": module, "F": functional, "EYE": module.eye(2), "T": module.tensor, "np": np, "inf": inf, "nan": nan, **names})  # noqa: S307
