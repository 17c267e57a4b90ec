"""SLUICE_LOGS: what compiling says on stderr, by topic."""

from __future__ import annotations

import os
import sys
import warnings

TOPICS = {"graph": "the text of each graph that is compiled", "guards": "what each compiled call depends on",
          "recompiles": "which guard failed when something is compiled again, and breaks",
          "fusion": "the passes that changed a graph, with the ops before and after", "perf": "seconds that tracing and compiling took"}


class _Wanted:
    text: str | None = None
    topics: frozenset[str] = frozenset()


def topics() -> frozenset[str]:
    """Those that SLUICE_LOGS names now."""
    text = os.environ.get("SLUICE_LOGS", "")
    if text != _Wanted.text:
        names = [t.strip() for t in text.split(",") if t.strip()]
        unknown = [n for n in names if n not in TOPICS and n != "all"]
        if unknown:
            warnings.warn(f"SLUICE_LOGS: {unknown[0]!r} is no topic; topics are {', '.join(TOPICS)}, and all", RuntimeWarning, stacklevel=2)
        _Wanted.topics = frozenset(TOPICS) if "all" in names else frozenset(names) & TOPICS.keys()
        _Wanted.text = text
    return _Wanted.topics


def say(topic: str, text: str) -> None:
    if topic in topics():
        print(f"[sluice {topic}] {text}", file=sys.stderr)
