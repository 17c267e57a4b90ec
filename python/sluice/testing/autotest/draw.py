"""Random sizes, values and layouts, all of one seed."""

from __future__ import annotations

import random
from typing import Any, Sequence

import numpy as np

from sluice.testing.autotest.arrays import COMPLEX, FLOATS, INTEGERS, Array

# How often which dtype is drawn, by what an op takes.
DTYPES = {"any": [("float32", 8), ("float64", 6), ("int64", 4), ("int32", 1), ("uint8", 1), ("int8", 1), ("int16", 1), ("bool", 2),
                  ("float16", 1), ("bfloat16", 1)],
          "numbers": [("float32", 8), ("float64", 6), ("int64", 3), ("int32", 1), ("uint8", 1), ("int8", 1), ("int16", 1),
                      ("float16", 1), ("bfloat16", 1)],
          "floats": [("float32", 8), ("float64", 6), ("float16", 1), ("bfloat16", 1)],
          "wide": [("float32", 1), ("float64", 1)],
          "integers": [("int64", 4), ("int32", 2), ("uint8", 1), ("int8", 1), ("int16", 1), ("bool", 1)],
          "complex": [("complex64", 1), ("complex128", 2)],
          "bool": [("bool", 1)]}
# Ranges from which floating numbers come; of integers those parts that are whole numbers.
DOMAINS = {"any": (-3.0, 3.0), "unit": (-0.95, 0.95), "positive": (0.2, 3.0), "prob": (0.05, 0.95), "above1": (1.1, 4.0),
           "small": (-1.0, 1.0), "large": (-20.0, 20.0), "shape": (2.1, 6.0)}
ONES = 0.2  # the share of cases of one sample
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 1e-30, 65000.0)


class Draw:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.ties = True  # whether elements may be equal
        self.layouts = True  # whether tensors may lie otherwise than contiguous, and at another place than the first
        self.complex = 0.0  # the share of complex numbers where floating ones may be
        self.complexity = random.Random(f"{seed} complex")  # of its own, so that it changes no case of real numbers
        self.loosening = random.Random(f"{seed} one")  # of its own, so that it changes no other case
        # In a share of the cases dims are often of one element, whose strides may be anything, and the first is.
        self.ones = self.loosening.random() < ONES
        self.numbers = np.random.RandomState(self.random.getrandbits(32))

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, values: Sequence[Any]) -> Any:
        return values[self.random.randrange(len(values))]

    def whole(self, low: int, high: int) -> int:
        """In [low, high]."""
        return self.random.randint(low, max(low, high))

    def dtype(self, kind: str) -> str:
        if kind not in DTYPES:
            return kind
        if kind not in ("integers", "bool", "complex") and self.complexity.random() < self.complex:
            return self.complexity.choice(("complex64", "complex128", "complex128"))
        names, weights = zip(*DTYPES[kind])
        return self.random.choices(names, weights)[0]

    def size(self) -> int:
        if self.ones and self.loosening.random() < 0.5:
            return 1
        return self.random.choices((0, 1, 2, 3, 4, 5), (1, 4, 8, 8, 5, 3))[0]

    def shape(self, ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3, 3, 4)) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.pick(ranks)))

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that is broadcast to `shape`, or `shape`."""
        if self.chance(0.6):
            return tuple(shape)
        made = [1 if self.chance(0.4) else n for n in shape]
        return tuple(made[self.whole(0, len(made)):]) if self.chance(0.4) else tuple(made)

    def layout(self) -> str:
        if not self.layouts:
            return "plain"
        if self.ones and self.loosening.random() < 0.6:
            return "loose"
        return self.random.choices(("plain", "transposed", "strided", "offset", "expanded", "channels_last"),
                                   (12, 2, 2, 1, int(self.ties), 1))[0]

    def batch(self, most: int) -> int:
        return 1 if self.ones else self.whole(1, most)

    def values(self, shape: Sequence[int], dtype: str, domain: str = "any", special: float = 0.0) -> np.ndarray:
        """special: the chance of values on which functions have their edges."""
        shape = tuple(shape)
        if domain.startswith("index<"):
            return self.numbers.randint(0, max(int(domain[6:]), 1), shape).astype(np.int64)
        if dtype == "bool":
            return self.numbers.randint(0, 2, shape).astype(bool)
        if domain == "sorted":
            return np.sort(self.values(shape, dtype), axis=-1)
        if domain == "signs":
            return (self.numbers.randint(0, 2, shape) * 2 - 1).astype(_kept(dtype))
        if domain == "mask":
            return self.numbers.randint(0, 2, shape).astype(bool)
        if domain == "counts":
            return self.numbers.randint(0, 5, shape).astype(np.int64)
        low, high = DOMAINS[domain]
        if dtype in INTEGERS:
            low, high = (-9, 10) if domain == "any" else (int(np.ceil(low)), int(np.floor(high)) + 1)
            low = max(low, 0) if dtype == "uint8" else low
            return self.numbers.randint(low, max(high, low + 1), shape).astype(dtype)
        drawn = self.numbers.uniform(low, high, shape)
        if dtype in COMPLEX:
            return (drawn + 1j * self.numbers.uniform(-2.0, 2.0, shape)).astype(dtype)
        if domain == "any" and self.chance(special):
            edges = self.numbers.choice(SPECIAL, shape)
            drawn = np.where(self.numbers.uniform(size=shape) < 0.3, edges, drawn)
        return drawn.astype(_kept(dtype))

    def array(self, shape: Sequence[int], dtype: str, domain: str = "any", special: float = 0.0, parameter: bool = True) -> Array:
        values = self.values(shape, dtype, domain, special)
        if domain.startswith("index<") or domain == "counts":
            dtype = "int64"
        if domain == "mask":
            dtype = "bool"
        return Array(values, dtype, self.layout(), parameter and dtype in FLOATS + COMPLEX).fitting()


def _kept(dtype: str) -> str:
    return {"bfloat16": "float32", "float16": "float16"}.get(dtype, dtype)
