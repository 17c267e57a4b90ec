"""Bundles: a compiled graph as a directory, for another process and for C++."""

from __future__ import annotations

import json
from typing import Any

from sluice import _C
from sluice._structure import Structure
from sluice.nn.graph.call import GraphCall


def save(graph: Any, directory: Any) -> None:
    """Writes plan.json, graph.txt, weights.safetensors and meta.json of a compiled nn.Graph (or a loaded one)."""
    from sluice.nn.graph import Graph

    if not isinstance(graph, (Graph, LoadedGraph)):
        raise TypeError(f"save: expected an nn.Graph: got {type(graph).__name__}; tensors are saved with numpy")
    if not graph.is_compiled:
        raise RuntimeError(f"save: graph '{graph.name}' is not compiled; call it once, or compile(*inputs)")
    graph.synchronize()
    graph._call.session.save(str(directory))


def load_graph(directory: Any, functions: Any = None, **options: Any) -> Any:
    """A saved graph with its own variables; results are bitwise those of the graph that was saved.

    functions: the Python functions of its host streams, by name.
    """
    return LoadedGraph(str(directory), functions or {}, options)


class LoadedGraph:
    """A graph from a bundle: callable, with `inputs` and `outputs` as (name, dtype, shape)."""

    is_compiled = True

    def __init__(self, directory: Any, functions: Any, options: Any) -> None:
        self.name = directory
        session = _C.GraphSession.load(directory, options, functions)
        with open(f"{directory}/meta.json") as file:
            meta = json.load(file)
        self.inputs, self.outputs = session.inputs(), session.outputs()
        # A bundle that was not made here says nothing of nests: tensors by name in, a tuple of tensors out.
        signature = json.loads(meta["signature"]) if "signature" in meta else {
            "parameters": [name for name, _, _ in self.inputs],
            "arguments": _plain("dict", [name for name, _, _ in self.inputs], len(self.inputs)),
            "results": _plain("tuple", None, len(self.outputs))}
        self._parameters = signature["parameters"]
        arguments, results = Structure.from_json(signature["arguments"]), Structure.from_json(signature["results"])
        # Arguments that hold no tensor may be left out.
        self._defaults = {p: c.value for p, c in zip(self._parameters, arguments.children) if c.kind == "constant"}
        self._call = GraphCall(self.name, session, arguments, self.inputs, results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = {**{p: v for p, v in self._defaults.items() if p in self._parameters[len(args):]}, **kwargs}
        missing = [p for p in self._parameters[len(args):] if p not in kwargs]
        unknown = [k for k in kwargs if k not in self._parameters]
        if missing or unknown or len(args) > len(self._parameters):
            raise TypeError(f"graph '{self.name}': got {len(args)} arguments and {list(kwargs)}; expected {self._parameters}")
        return self._call(dict(zip(self._parameters, [*args, *(kwargs[p] for p in self._parameters[len(args):])])))

    def synchronize(self) -> None:
        self._call.session.synchronize()

    def __repr__(self) -> str:
        def lines(ports):
            return "".join(f"\n    {name}: {dtype.name}{tuple(shape)}" for name, dtype, shape in ports)

        return f"LoadedGraph({self.name!r},\n  inputs:{lines(self.inputs)}\n  outputs:{lines(self.outputs)}\n)"


def _plain(kind: Any, keys: Any, n: int) -> Any:
    return {"kind": kind, "value": keys, "children": [{"kind": "tensor", "children": []}] * n}
