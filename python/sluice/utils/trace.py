"""Traces of several ranks, as one."""

from __future__ import annotations

import json
import os
from typing import Iterable


def merge_traces(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Writes what `Graph.save_trace` of each rank has written as one file for Perfetto: a process per rank, on one clock.

    Times are put in line by the clocks of the machines: on one host to microseconds, across hosts as well as those agree.
    """
    traces = []
    for path in paths:
        with open(path) as file:
            trace = json.load(file)
        if not isinstance(trace, dict) or not isinstance(trace.get("beginUnixNs"), int):
            raise ValueError(f"merge_traces: {path} is no trace of Sluice: it has no beginUnixNs; pass files that save_trace wrote")
        traces.append(trace)
    if not traces:
        raise ValueError("merge_traces: no files; pass those of all ranks")
    begin = min(trace["beginUnixNs"] for trace in traces)
    events = []
    for trace in traces:
        late_us = (trace["beginUnixNs"] - begin) / 1e3
        events += [{**e, "ts": e["ts"] + late_us} if "ts" in e else e for e in trace["traceEvents"]]
    with open(out, "w") as file:
        json.dump({"displayTimeUnit": "ns", "beginUnixNs": begin, "traceEvents": events}, file)
