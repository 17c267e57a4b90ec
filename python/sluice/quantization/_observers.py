"""Observers see a tensor during calibration, and give the range that follows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class MinMax:
    """The smallest and the largest value there were; nan, of which one was."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf

    def see(self, values: Any) -> None:
        if values.size:
            self.low, self.high = float(np.minimum(self.low, values.min())), float(np.maximum(self.high, values.max()))

    def range(self) -> tuple[float, float]:
        return self.low, self.high


class Percentile(MinMax):
    """The range that holds `percentile` percent of the values: as many are cut off at either end. Values are counted in bins,
    whose width doubles whenever they do not reach far enough."""

    BINS = 4096

    def __init__(self, percentile: float) -> None:
        super().__init__()
        self.percentile = percentile
        self._counts = np.zeros(self.BINS, np.int64)
        self._begin = self._width = 0.0

    def see(self, values: Any) -> None:
        super().see(values)
        if not (values.size and math.isfinite(self.low) and math.isfinite(self.high)):
            return
        if self._width == 0:
            if self.low == self.high:  # of which there is nothing to cut off, whatever their number
                self._counts[0] += values.size
                self._begin = self.low
                return
            self._width = (self.high - self.low) / (self.BINS // 2)
            self._counts[0], first = 0, self._counts[0]
            before, self._begin = self._begin, self.low
            self._counts[self._bin(before)] += first
        while self.low < self._begin:
            self._double(down=True)
        while self._bin(self.high) >= self.BINS:
            self._double(down=False)
        bins = ((np.asarray(values, np.float64).ravel() - self._begin) / self._width).astype(np.int64)
        self._counts += np.bincount(np.minimum(bins, self.BINS - 1), minlength=self.BINS)

    def _bin(self, value: float) -> int:
        return int((value - self._begin) / self._width)

    def _double(self, down: bool) -> None:
        pairs, half = self._counts.reshape(-1, 2).sum(1), self.BINS // 2
        if down:
            self._begin -= self._width * self.BINS
        self._counts = np.zeros_like(self._counts)
        self._counts[half if down else 0 : self.BINS if down else half] = pairs
        self._width *= 2

    def range(self) -> tuple[float, float]:
        if self._width == 0:
            return super().range()
        cut = (100 - self.percentile) / 200 * self._counts.sum()
        ends = np.cumsum(self._counts)
        first, last = int(np.searchsorted(ends, cut, "right")), int(np.searchsorted(ends, ends[-1] - cut, "left"))
        return (max(self.low, self._begin + first * self._width), min(self.high, self._begin + (last + 1) * self._width))


def observer(method: str, percentile: float) -> MinMax:
    return MinMax() if method == "min_max" else Percentile(percentile)
