"""Bundles: a compiled graph as a directory, for another process and for C++."""

from __future__ import annotations

import inspect
import json
import os
import warnings
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._tensor.host_function import Generated
from sluice._base.json_file import parse_json
from sluice._base.structure import Structure
from sluice._graph.call import GraphCall
from sluice._graph.families import FamilyCall
from sluice._graph.given import Given, taken_apart
from sluice._graph.graph import Graph
from sluice._graph.signature import read_signature

_SHAPES = "shapes.json"


def _path(where: str, directory: Any) -> str:
    """The path of a bundle as text, which has to be UTF-8 to be handed on."""
    path = os.fsdecode(directory)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _C.ValueError(f"{where}: {os.fsencode(path)!r}: this path is no UTF-8; the paths of bundles are") from None
    return path


def save_graph(graph: Any, directory: Any, fetch: Any = None, freeze: bool = False) -> None:
    """Writes plan.json, graph.txt, weights.safetensors and meta.json of a compiled nn.Graph (or a loaded one).

    If several ranks run the graph, all must call it; rank 0 writes, and all raise when it cannot. A graph with dims
    (GraphConfig.set_dims) writes all its plans: family.json, weights.safetensors, meta.json, and members/<n>/ with
    plan.json and graph.txt of each. So it does of a graph with a plan per shape (with_dynamic_input_shape), for the shapes
    that have one; loaded, it takes these.

    A list of graphs, compiled for different shapes of the same inputs, becomes one directory: a bundle each in `0`, `1`
    and so on, and shapes.json. Each has a copy of the variables, so this is for graphs that do not train.

    fetch: the results to keep, as numbers of the tensors in the order of graph.outputs, or names; a loaded call returns them
    as a tuple. The bundle has what they need and nothing else, and its calls change no variable: a training graph gives one
    for inference. This is for a graph of one plan, not of several.

    freeze: weights that no step changes become constants, and what depends on them alone is computed now, once. This, too,
    is for one plan only.
    """
    if isinstance(graph, (list, tuple)):
        if fetch is not None:
            raise TypeError("save_graph: fetch is for a graph with one plan; got a list of graphs")
        return _save_shapes(graph, _path("save", directory), freeze)
    if not isinstance(graph, (Graph, LoadedGraph)):
        raise TypeError(f"save_graph: expected an nn.Graph: got {type(graph).__name__}; save() writes everything else")
    if not graph.is_compiled:
        raise RuntimeError(f"save: graph '{graph.name}' is not compiled; call it once, or compile(*inputs)")
    graph.synchronize()
    if fetch is None and not freeze:
        graph._call.save(_path("save", directory))
    else:
        _export(graph, _path("save", directory), fetch, freeze)


def _export(graph: Any, directory: str, fetch: Any, freeze: bool) -> None:
    sessions = graph._call.sessions()
    if len(sessions) != 1:
        raise NotImplementedError(f"save_graph: fetch and freeze: graph '{graph.name}' has {len(sessions)} plans; save graphs of one "
                                  "plan, each by itself")
    signature, numbers = json.loads(sessions[0].meta().get("signature", "null")), None  # bundles made elsewhere have none
    if fetch is not None:
        names = [name for name, _, _ in graph.outputs]
        numbers = [names.index(f) if f in names else f for f in fetch]
        wrong = [f for f in numbers if not isinstance(f, Integral) or isinstance(f, bool) or not 0 <= f < len(names)]
        if wrong or not numbers:
            raise _C.ValueError(f"save_graph: fetch is {list(fetch)!r}; must be numbers below {len(names)}, or names: {names}")
        if signature is not None:
            signature["results"] = Structure("tuple", None, (Structure("tensor"),) * len(numbers)).to_json()
    sessions[0].save_exported(directory, numbers, "" if signature is None else json.dumps(signature), freeze)


def load_graph(directory: Any, functions: Any = None, **options: Any) -> Any:
    """A saved graph with its own variables; results are bitwise those of the graph that was saved.

    A plan of several ranks runs on those of the job, each of which must load it; without a job, in this process alone.

    functions: the Python functions of its host streams, by name; of sources also generator functions (see host_function).
    options: as GraphConfig sets them; `arenas` is a sluice.SharedArenas.
    """
    known = {"arenas", *(option["name"] for option in _C.option_table() if option["graphs"])}
    if unknown := sorted(options.keys() - known):
        raise TypeError(f"load_graph: option '{unknown[0]}': there is none of this name; must be one of {', '.join(sorted(known))}")
    source = _C.BundleSource(_path("load_graph", directory))
    if source.has(_SHAPES):
        return ShapedGraphs(source, functions or {}, options)
    return LoadedGraph(source, functions or {}, options)


def _save_shapes(graphs: Any, directory: str, freeze: bool) -> None:
    shapes = [[tuple(shape) for _, _, shape in graph.inputs] for graph in graphs]
    repeated = [i for i, s in enumerate(shapes) if s in shapes[:i]]
    if not graphs or repeated:
        raise _C.ValueError(f"save: got {len(graphs)} graphs with input shapes {shapes}; give at least one graph, and "
                            "no two with the same shapes")

    def write(folder: str) -> None:
        try:
            for i, graph in enumerate(graphs):
                save_graph(graph, os.path.join(folder, str(i)), freeze=freeze)
        except _C.OSError as error:  # about the place, not about what is filled before it takes it
            raise _C.OSError(str(error).replace(folder, directory)) from None
        with open(os.path.join(folder, _SHAPES), "w") as file:
            json.dump({"schema_version": 1, "bundles": len(graphs)}, file)

    _C.replace_bundle(directory, write)


class LoadedGraph:
    """A graph from a bundle: callable, with `inputs` and `outputs` as (name, dtype, shape), the largest of a family."""

    is_compiled = True

    def __init__(self, source: Any, functions: Any, options: Any) -> None:
        functions = {n: Generated(f) if inspect.isgeneratorfunction(f) else f for n, f in functions.items()}
        family, sessions = None, []
        if source.has("family.json"):
            family, sessions, meta = _C.load_family(source, options, functions)
        else:
            sessions = [_C.GraphSession.load(source, options, functions)]
            meta = sessions[0].meta()
        for session in sessions:
            if session.replanned:
                warnings.warn(session.replanned, stacklevel=3)
        self._serve(source.name, family, sessions, meta, functions)

    def _serve(self, name: str, family: Any, sessions: list[Any], meta: dict[str, str], functions: Any) -> None:
        """Calls go to these sessions, one for each plan, whose arguments and results `meta` describes."""
        self.name = name
        self.inputs, self.outputs = sessions[-1].inputs(), sessions[-1].outputs()
        layouts: dict[int, Any] = {}
        text = meta.get("signature")
        if text is None:
            # A bundle that was not made here says nothing of nests: tensors by name in, a tuple of tensors out.
            self._parameters = [name for name, _, _ in self.inputs]
            arguments = Structure("dict", tuple(self._parameters), (Structure("tensor"),) * len(self.inputs))
            results = Structure("tuple", None, (Structure("tensor"),) * len(self.outputs))
        else:
            self._parameters, arguments, results, strides = read_signature(f"{name}/meta.json: signature", text,
                                                                        len(self.inputs), len(self.outputs))
            layouts = {i: strides[name] for i, (name, _, _) in enumerate(self.inputs) if name in strides}
        # Arguments that hold no tensor may be left out.
        self._defaults = {p: c.value for p, c in zip(self._parameters, arguments.children) if c.kind == "constant"}
        calls = [GraphCall(self.name, session, arguments, session.inputs(), results, functions, layouts) for session in sessions]
        self._call = calls[0] if family is None else FamilyCall(family, calls)
        self.inputs = self._call.inputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._given(args, kwargs))

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
        """The arguments of a call, by the parameters that build() had."""
        kwargs = {**{p: v for p, v in self._defaults.items() if p in self._parameters[len(args):]}, **kwargs}
        missing = [p for p in self._parameters[len(args):] if p not in kwargs]
        unknown = [k for k in kwargs if k not in self._parameters]
        if missing or unknown or len(args) > len(self._parameters):
            raise TypeError(f"graph '{self.name}': got {len(args)} arguments and {list(kwargs)}; expected {self._parameters}")
        return taken_apart(dict(zip(self._parameters, [*args, *(kwargs[p] for p in self._parameters[len(args):])])))

    def synchronize(self) -> None:
        self._call.synchronize()

    def reset(self) -> None:
        """As Graph.reset: begins anew after sluice.EndOfData, or at any time."""
        self._call.reset()

    def memory(self) -> Any:
        """As nn.Graph.memory(), and as `mapped` those bytes of the variables that are pages of the bundle's file: all processes
        that have loaded it have them once. Writing to such a variable copies its pages, and never changes the file."""
        mapped = max(sum(space["mapped"] for space in session.session_memory()) for session in self._call.sessions())
        return {**self._call.memory(), "mapped": mapped}

    @property
    def members(self) -> Any:
        """As nn.Graph.members."""
        return getattr(self._call, "members", [{}])

    def __repr__(self) -> str:
        def lines(ports):
            return "".join(f"\n    {name}: {dtype.name}{tuple(shape)}" for name, dtype, shape in ports)

        return f"LoadedGraph({self.name!r},\n  inputs:{lines(self.inputs)}\n  outputs:{lines(self.outputs)}\n)"


class ShapedGraphs:
    """Plans for several shapes of the same inputs: a call runs the one that was made for its shapes."""

    is_compiled = True

    def __init__(self, source: Any, functions: Any, options: Any) -> None:
        path = os.path.join(source.name, _SHAPES)
        index = parse_json(path, source.text(_SHAPES))
        n = index.get("bundles") if isinstance(index, dict) and index.get("schema_version") == 1 else None
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 10000:
            raise _C.ValueError(f"{path}: bundles: {index!r:.100}; must be 1 to 10000 with schema_version 1")
        self.name = source.name
        self.graphs = [LoadedGraph(source.inner(str(i)), functions, options) for i in range(n)]

    @property
    def shapes(self) -> list[dict[str, tuple[int, ...]]]:
        """The shapes of each plan's inputs, by name."""
        return [{name: tuple(shape) for name, _, shape in graph.inputs} for graph in self.graphs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        got: list[tuple[int, ...]] = []
        for graph, shapes in zip(self.graphs, self.shapes):
            given = graph._given(args, kwargs)
            got = [tuple(leaf.shape) for leaf in given.leaves]
            if got == list(shapes.values()):
                return graph._call(given)
        raise _C.ValueError(f"graph '{self.name}': inputs have shapes {got}; there are plans for {self.shapes}")

    def __repr__(self) -> str:
        return f"ShapedGraphs({self.name!r}, {self.shapes})"
