"""A trace becomes a plan, and a session that runs it."""

from __future__ import annotations

import json
import os
from typing import Any

from sluice import _C
from sluice._graph import recording
from sluice._graph.call import GraphCall, order_of
from sluice._graph.costs import FirstSteps, use_cache
from sluice._graph.donation import donated_leaves
from sluice._graph.dry_run import write_and_exit
from sluice._graph.report import print_trials
from sluice._graph.tracing import Trace
from sluice.nn.modules._config import ModuleConfig


def compiled(graph: Any, trace: Trace, arenas: Any = None) -> GraphCall:
    """The plan of what a graph's build() has traced.

    arenas: the memory it shares with other plans of the graph, of which one at a time runs.
    """
    config = graph.config
    graph.__dict__["_captured"] = trace.captured
    structure, leaves, names = trace.given
    layouts = {i: order_of(leaves[i]) for i in trace.captured.ordered}
    signature = {"parameters": list(structure.value), "arguments": structure.to_json(), "results": trace.results.to_json()}
    if layouts:
        signature["strides"] = {names[i]: order for i, order in layouts.items()}
    dry_run = os.environ.get("SLUICE_DRY_RUN") == "1"
    options = {**session_options(graph, arenas), "dry_run": dry_run,
               "components": {n: t._global for n, t in zip(names, leaves) if t._global},
               "meta": {"name": graph.name, "signature": json.dumps(signature)},
               "donated": donated_leaves(graph.name, config.donated, names, leaves)}
    measures = use_cache(config.cost_cache, options)
    mark = _C.kernel_trials_used()
    with trace.refused:
        session = _C.GraphSession(trace.captured, options, trace.functions)
    config.freeze()
    trace.report.compiled(session)
    trials = _C.kernel_trials(mark) if options.get("kernel_trials") else []
    print_trials(graph.name, trials)
    config.compiled(session, trace.captured, len(trials))
    if dry_run:
        write_and_exit(graph.name, session)
    inputs = [(n, t.dtype, tuple(t.shape)) for n, t in zip(names, leaves)]
    call = GraphCall(graph.name, session, structure, inputs, trace.results, trace.functions, layouts)
    call.donated = frozenset(options["donated"])
    call.timeout_s = config.submit_timeout
    if measures and not recording.running() and not session.costs_known(options["cost_file"]):
        session.set_trace(True)
        call.first_steps = FirstSteps(session, options["cost_file"])
    return call


def session_options(graph: Any, arenas: Any) -> dict[str, Any]:
    """The options of a session of the graph's, by name. arenas: as in compiled()."""
    stages = {n: c.stage_id for n, m in graph._named_modules() if (c := ModuleConfig.of(m)).stage_id is not None}
    options = {**graph.config.for_session(), "name": graph.name, "stages": stages}
    arenas = arenas or graph.config.arenas
    return options if arenas is None else {**options, "arenas": arenas}
