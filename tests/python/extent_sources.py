"""What the tests of extents share: sources of batches that are shorter than there is room for."""

import numpy as np

import sluice as sl
import sluice.nn as nn

ROWS = sl.Dim("rows", max=8)


def made_of(fn):
    """A graph of build(): fn()."""

    class Made(nn.Graph):
        def build(self):
            return fn()

    return Made(name="made")


def source(sizes, width=3):
    """A source of as many rows as `sizes` says, step by step; a row is its number, from 1."""
    steps = iter(sizes)

    def rows():
        n = next(steps)
        return np.arange(1, n + 1, dtype=np.float32).reshape(n, 1).repeat(width, 1)

    return rows


def rows_of(sizes, width=3, dim=ROWS):
    return sl.host_function(source(sizes, width), out=((dim, width), sl.float32))
