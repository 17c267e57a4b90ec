"""Options of the search for layouts over several devices, by OneFlow's names, and of collectives that become one."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C


def _weight(method: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or given < 0:
        raise _C.ValueError(f"{method}: got {given!r}; must be a finite number, and not negative")
    return float(given)


class AutoParallelOptions:
    """A part of GraphConfig."""

    _options: dict[str, Any]

    def _set(self, name: Any, value: Any) -> None:
        raise NotImplementedError("AutoParallelOptions: _set() must be defined by the class that has these options")

    def set_auto_parallel_computation_cost_ratio(self, ratio: float) -> None:
        """How many bytes that travel between devices a floating-point operation counts in the search of enable_auto_parallel(); 0.05
        by default. 0: only what travels counts, and the layouts found move no more bytes than those chosen node by node."""
        self._set("sbp_compute_ratio", _weight("set_auto_parallel_computation_cost_ratio", ratio))

    def set_auto_parallel_wait_time(self, cost: float) -> None:
        """How many bytes a conversion counts in the search of enable_auto_parallel() besides those that it moves, since devices wait
        for each other there; 16,500 by default."""
        self._set("sbp_wait_bytes", _weight("set_auto_parallel_wait_time", cost))

    def enable_auto_parallel_trunk_algo(self, mode: bool = True) -> None:
        """OneFlow's search may count less what can hide behind the longest chain of ops. Sluice's counts all that travels, so True is
        an error; see set_auto_parallel_wait_time()."""
        if mode:
            raise NotImplementedError("enable_auto_parallel_trunk_algo: the search does not look for a chain that hides what travels; "
                                      "weigh conversions by set_auto_parallel_wait_time()")

    def enable_auto_parallel_sbp_collector(self, mode: bool = True) -> None:
        """Readers of a value that want it in one layout share its conversion. In Sluice they always do, so False is an error."""
        if not mode:
            raise NotImplementedError("enable_auto_parallel_sbp_collector: readers that want one layout always share its conversion; "
                                      "leave the option out")

    def set_collective_fusion(self, threshold: Any = "16MiB", ops: int = 24) -> None:
        """Collectives of one kind between the same ranks that need not wait for each other become one, such as those of gradients:
        fewer messages, and a copy more. `plan-viz show` lists their sizes. Results are the same bits. OneFlow's
        boxing.nccl.set_fusion_threshold_mbytes() and set_fusion_max_ops_num().

        threshold: a number of bytes, or a text with a unit. A collective is begun anew where a rank would give one more than that; what is
        larger alone stays by itself. 0, the default of a graph: every collective is by itself.
        ops: how many become one, at most.
        """
        from sluice._graph.config import bytes_of

        if isinstance(ops, bool) or not isinstance(ops, int) or ops < 1:
            raise _C.ValueError(f"set_collective_fusion: ops: got {ops!r}; must be an int of at least 1")
        self._set("collective_bytes", bytes_of("set_collective_fusion", threshold))
        self._set("collective_ops", ops)
