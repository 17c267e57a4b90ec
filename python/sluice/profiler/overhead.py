"""How much of the time of eager code is not spent in kernels."""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

from sluice import _C


class Overhead(NamedTuple):
    """Seconds of one call, of which `kernels` in `calls` kernels; printed as a table."""

    total: float
    kernels: float
    calls: float

    @property
    def overhead(self) -> float:
        """Seconds of one call outside of kernels: Python, arguments, allocation, the tape."""
        return self.total - self.kernels

    @property
    def percent(self) -> float:
        """The overhead's share of the total."""
        return 100 * self.overhead / self.total

    @property
    def per_kernel(self) -> float:
        """Seconds of overhead for each kernel; NaN where there were none."""
        return self.overhead / self.calls if self.calls else float("nan")

    def __str__(self) -> str:
        rows = [("total", self.total, 100.0), ("kernels", self.kernels, 100 - self.percent),
                ("overhead", self.overhead, self.percent)]
        lines = [f"{name:<9} {seconds * 1e6:>12.2f} us {share:>6.1f} %" for name, seconds, share in rows]
        return "\n".join([*lines, f"{self.calls:g} kernels, {self.per_kernel * 1e6:.2f} us of overhead each"])


def overhead(fn: Callable[[], Any], *, repeat: int = 10, warmup: int = 3, show: bool = True) -> Overhead:
    """Calls `fn` repeatedly on this thread and says how much of its time kernels of eager ops took, and prints that.

    Total, kernels and overhead add up: they are means over the same calls. Kernels that other threads run eagerly
    meanwhile count, too; a step of an nn.Graph is no eager op, so that its time is overhead here. Reading the clock around
    each kernel is part of the overhead, some 50 ns.
    """
    if repeat < 1 or warmup < 0:
        raise ValueError(f"overhead: repeat is {repeat}, warmup {warmup}; repeat must be positive, warmup not negative")
    for _ in range(warmup):
        fn()
    _C.time_kernels(True)
    try:
        ns, calls = _C.kernel_time()
        begin = time.perf_counter()
        for _ in range(repeat):
            fn()
        total = time.perf_counter() - begin
        last_ns, last_calls = _C.kernel_time()
    finally:
        _C.time_kernels(False)
    result = Overhead(total / repeat, (last_ns - ns) / 1e9 / repeat, (last_calls - calls) / repeat)
    if show:
        print(result)
    return result
