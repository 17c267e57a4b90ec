"""Questions to a compiled graph: its plan, bytes, counters, traces and costs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator

from sluice._base.tools import find_tool
from sluice._graph.costs import add_costs


class Inspection:
    """The part of nn.Graph that answers questions."""

    def _compiled_call(self, what: Any) -> Any:
        """The plans' side; throws where there is none yet."""
        raise NotImplementedError(f"{type(self).__name__}: no _compiled_call(); a graph must define it")

    def synchronize(self) -> None:
        """Waits for the steps."""
        raise NotImplementedError(f"{type(self).__name__}: no synchronize(); a graph must define it")

    @property
    def inputs(self) -> Any:
        """(name, dtype, shape) of each input tensor."""
        return self._compiled_call("inputs").inputs

    @property
    def outputs(self) -> Any:
        return self._compiled_call("outputs").session.outputs()

    @property
    def plan(self) -> Any:
        """The plan as plain data (see docs/architecture.md)."""
        return json.loads(self._compiled_call("plan").session.plan_json())

    def kernel_sources(self) -> dict[str, str]:
        """The text of each kernel of the plan that is made at run time, by its name in the plan: CUDA C++ on GPUs, where no library has the
        kernel, and C++ of what `config.enable_generated_kernels()` is for."""
        return dict(self._compiled_call("kernel_sources").session.sources())

    def save_plan(self, path: Any) -> None:
        with open(path, "w") as file:
            file.write(self._compiled_call("save_plan").session.plan_json())

    def _drawn(self, view: str) -> str:
        """The plan as plan-viz shows it."""
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "plan.json")
            self.save_plan(path)
            return subprocess.run([find_tool("plan-viz"), view, path], capture_output=True, text=True, check=True).stdout

    def dot(self) -> str:
        """The plan as text for Graphviz: actors, registers and their quotas."""
        return self._drawn("dot")

    def memory(self) -> Any:
        """Bytes of the plan by purpose, known before the first step.

        For several plans it counts their arenas (those of the largest, where they share memory), the variables, which they
        share, and the constants of each; `plans` has the bytes of each by itself.
        """
        return self._compiled_call("memory").memory()

    @property
    def members(self) -> Any:
        """Tells what each of several plans was made for: the extents of the dims, or the shapes of the inputs.

        `plan`, `stats()`, `counters()` and traces are those of the plan that was called last.
        """
        return getattr(self._compiled_call("members"), "members", [{}])

    def stats(self) -> Any:
        """Steps submitted, finished, failed and in flight, firings by actor, and the bytes `spilled` to the disk and `fetched` from it."""
        return self._compiled_call("stats").session.stats()

    def counters(self) -> Any:
        """Counters of actors, streams and registers as a dict. To be read at any time, also while steps run.

        Counters of events never fall; at rest every number is exact. See docs/diagnostics.md.
        """
        return self._compiled_call("counters").session.counters()

    def counters_text(self) -> Any:
        """The same as tables for people."""
        return self._compiled_call("counters_text").session.counters_text()

    def set_quota(self, register: str, slots: int) -> None:
        """So many slots of a register circulate from now on, while steps run: a longer or shorter queue, with the same results, and nothing is
        compiled or loaded again. At most as many as the plan has memory for, which config.set_quota says before the first step, and no
        fewer than those with which the plan is proven to run for ever."""
        for session in self._compiled_call("set_quota").sessions():
            session.set_quota(register, slots)

    def set_trace(self, on: bool = True) -> None:
        """Records firings, kernels and waits from now on; every stream keeps its latest 32,768 events."""
        for session in self._compiled_call("set_trace").sessions():
            session.set_trace(on)

    def save_trace(self, path: Any) -> None:
        """Writes what was recorded since tracing began as JSON for Perfetto (ui.perfetto.dev)."""
        self.synchronize()
        with open(path, "w") as file:
            file.write(self._call.session.take_trace())

    def save_costs(self, path: Any) -> None:
        """Adds what kernels took since tracing began (config.enable_trace, set_trace) to the history in the file `path`, or begins
        one, for config.set_cost_file of graphs that are compiled later. `plan-viz cost` lists it."""
        self.synchronize()
        add_costs(self._compiled_call("save_costs").session, os.fspath(path))

    @contextmanager
    def record_trace(self, path: Any) -> Iterator[None]:
        """Writes all that runs inside of the `with` block to `path`, as it happens, however long it takes."""
        file = self._compiled_call("record_trace").session.record_trace(os.fspath(path))
        try:
            yield
            self.synchronize()
        finally:
            file.close()
