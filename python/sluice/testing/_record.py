"""Recording: the tokens of chosen actors' registers during a real run, as files."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sluice import _C
from sluice._C import Tensor
from sluice._graph.bundle import load_graph
from sluice.serialization import save
from sluice.testing import _plans


def load_exact(bundle: pathlib.Path, plan: _plans.Plan, functions: Mapping[str, Callable[..., Any]] | None) -> Any:
    """Loads a bundle whose plan must run as it is."""
    graph = load_graph(bundle, functions=dict(functions or {}))
    running = json.loads(graph._call.session.plan_json())
    if [a["name"] for a in running["actors"]] != [a["name"] for a in plan["actors"]]:
        raise RuntimeError(f"plan '{plan['name']}': was made for {plan['target']!r}, which this machine is not; record it here")
    return graph


def record(graph: Any, directory: str | pathlib.Path, actors: Sequence[str], inputs: Iterable[Any],
           functions: Mapping[str, Callable[..., Any]] | None = None) -> list[dict[str, Tensor]]:
    """Runs a graph on `inputs` (a tensor or a tuple of them per step) and records what goes in and out of `actors`.

    graph: a compiled nn.Graph, or a bundle's directory. The run has variables of its own, which start as the graph's
    are now. Writes `directory`/bundle, and `directory`/<step>.npz with the token of each register by name (bfloat16 as
    float32, which is exact). Returns the tokens of each step.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        bundle: str | pathlib.Path = graph if isinstance(graph, (str, pathlib.Path)) else pathlib.Path(scratch) / "bundle"
        if not isinstance(graph, (str, pathlib.Path)):
            save(graph, bundle)
        plan = _plans.read_plan(bundle)
        indices = [_plans.actor_index(plan, name) for name in actors]
        registers: list[int] = []
        for index in indices:
            _plans.check_rates(plan, index)
            consumed, produced = _plans.data_registers(plan, index)
            registers += [r for r in [*consumed, *produced] if r not in registers]
        _plans.write_bundle(bundle, plan, directory / "bundle")
        watched = _plans.tapped(plan, registers)
        _plans.write_bundle(bundle, watched, pathlib.Path(scratch) / "tapped")
        running = load_exact(pathlib.Path(scratch) / "tapped", watched, functions)
        steps = []
        for step, given in enumerate(inputs):
            outputs = running(*(given if isinstance(given, tuple) else (given,)))
            names = [name for name, *_ in running.outputs]
            tokens = {n.removeprefix("tap:"): t for n, t in zip(names, outputs) if n.startswith("tap:")}
            np.savez(directory / f"{step}.npz", **{n: (t.float() if t.dtype is _C.bfloat16 else t).numpy() for n, t in tokens.items()})
            steps.append(tokens)
        running._call.session.close()
    return steps
