"""mode="max-autotune": several plans of one graph are timed on the example inputs, and the fastest is kept."""

from __future__ import annotations

import os
import time
from typing import Any

from sluice import _C
from sluice._C import Tensor

_ROUNDS, _SECONDS = 7, 0.5  # of each candidate: calls, and when it is enough
_BETTER = 0.97  # of the default's time; what is not faster than that is noise


def candidates() -> list[tuple[str, dict[str, Any]]]:
    """(name, options of the graph), the default first."""
    cores = len(os.sched_getaffinity(0))
    found: list[tuple[str, dict[str, Any]]] = [("default", {}), ("weights as they lie", {"pack_weights": False}),
                                               ("no kernel overwrites its input", {"in_place": False})]
    return found + [(f"{n} core{'s' * (n > 1)}", {"cores": n}) for n in sorted({1, cores // 2}) if 0 < n < cores]


def fastest(graph: Any, trace: Any, tensors: list[Tensor], state: Any) -> tuple[Any, list[str]]:
    """(the plan's call, a line for each candidate). state: puts back what calls write."""
    before, tried = dict(graph.config._options), []
    for name, options in candidates():
        graph.config._options = {**before, **options}
        try:
            call = graph.planned(trace, [])
            tried.append((_seconds(call, tensors, state), name, call))
        except _C.Error as error:
            tried.append((float("inf"), f"{name}: {str(error).splitlines()[0]}", None))
    default = tried[0][0]
    best = min(tried, key=lambda entry: entry[0])
    if best[2] is None or best[0] > default * _BETTER:
        best = tried[0]
    for _, _, call in tried:
        if call is not None and call is not best[2]:
            call.session.close()
    graph.config._options = before
    graph.__dict__["_call"] = best[2]
    return best[2], [f"tried: {name}: " + (f"{seconds * 1e6:.1f} us" if call else "refused") + (", taken" if call is best[2] else "")
                     for seconds, name, call in tried]


def _seconds(call: Any, tensors: list[Tensor], state: Any) -> float:
    """The seconds of a call: the least of some."""
    begin, best = time.perf_counter(), float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        call.submit(tensors)
        call.synchronize()
        best = min(best, time.perf_counter() - start)
        state.put_back()
        if time.perf_counter() - begin > _SECONDS:
            break
    return best
