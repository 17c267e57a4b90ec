"""The plans of a compiled graph as data, for a graph of the same program in another process: OneFlow's runtime_state_dict."""

from __future__ import annotations

import time
import warnings
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import default_generator, zeros
from sluice._tensor.global_tensors import fill
from sluice._base.grad_mode import no_grad
from sluice._graph import state as states
from sluice._graph.call import GraphCall
from sluice._graph.compiling import session_options
from sluice._graph.report import Report
from sluice._graph.setters import OF_RUNS
from sluice._graph.shape_cache import LayoutCache, ShapeCache
from sluice._graph.signature import read_signature

_FORMAT = 2
# Options that say what is done with a plan, and not which one it is.
_FREE = {"device", "cost_file", "cost_cache", "dump_dir", *OF_RUNS}
_TEXTS, _TENSORS = {str: str}, {str: Tensor}
# The form of a state. {str: form}: a dict of any names; [form]: a list of these; a tuple: a list of that length.
_FORM: dict[Any, Any] = {
    "format": int, "kind": str, "graph_name": str, "device": str, "options": _TEXTS, "updates": _TEXTS,
    "watched": {"autocast": str, "classes": [(str, str)], "reads": [(str, str, str)], "others": [(str, str)], "modes": [(str, bool)]},
    "plans": [{"files": _TEXTS, "donated": [str], "random": [str], "inputs": [(str, str, [int])], "tensors": _TENSORS}]}
_KINDS: dict[type, str] = {GraphCall: "one", ShapeCache: "shapes", LayoutCache: "layouts"}


def saved(graph: Any, destination: Any, with_eager: bool) -> dict[str, Any]:
    """As Graph.runtime_state_dict."""
    call = graph._compiled_call("runtime_state_dict")
    if not graph._saves_runtime_state:
        raise RuntimeError(f"runtime_state_dict: graph '{graph.name}': enable_save_runtime_state_dict(False) was called; leave it out")
    kind, bundle = _KINDS.get(type(call)), f"use sluice.save(graph, path) and sluice.load_graph(path) for graph '{graph.name}'"
    if kind is None:
        raise _C.NotImplementedError(f"runtime_state_dict: a graph with named dims (set_dims) has a family of plans; {bundle}")
    if call.functions():
        raise _C.NotImplementedError(f"runtime_state_dict: host functions ({', '.join(call.functions())}) are known once build() is "
                                     f"traced; {bundle}, which takes them by name")
    change = graph._watch.changed(graph)
    if change is not None:
        raise RuntimeError(f"runtime_state_dict: graph '{graph.name}': the plan is of before a change of {change}; call the graph first")
    # Steps under way may still write the variables that are saved.
    graph.synchronize()
    own = dict(graph._variables())
    options = {name: repr(value) for name, value in graph.config.options.items() if name not in _FREE}
    state = {} if destination is None else destination
    state.update(format=_FORMAT, kind=kind, graph_name=graph.name, device=str(graph.config.options.get("device", "cpu:0")),
                 options=options, watched=graph._watch.saved(list(graph._named_modules())), updates=graph._updates.saved(),
                 plans=[_plan(one, own) for one in (call.calls() if kind != "one" else [call])],
                 eager={name: tensor.detach().cpu() for name, tensor in own.items()} if with_eager else None)
    return state


def _plan(call: GraphCall, own: dict[str, Any]) -> dict[str, Any]:
    texts, variables = call.session.saved_plan()
    random = {name for name, tensor in variables.items() if tensor._impl == default_generator.state._impl}
    return {"files": texts, "donated": sorted(call.donated), "random": sorted(random),
            "inputs": [[name, dtype.name, list(shape)] for name, dtype, shape in call.inputs],
            "tensors": {name: tensor.detach().cpu() for name, tensor in variables.items() if name not in own and name not in random}}


def load(graph: Any, state: Any, warmup: bool) -> None:
    """As Graph.load_runtime_state_dict."""
    if graph.is_compiled:
        raise RuntimeError(f"load_runtime_state_dict: graph '{graph.name}' is compiled; load before its first call")
    _check_form(f"load_runtime_state_dict: graph '{graph.name}'", state)
    graph._compile_once(None, compile=lambda tracing: _load(graph, state))
    if warmup:
        for call in _calls(graph._call):
            _run_zeros(graph, call)


def _check_form(where: str, state: Any) -> None:
    if not hasattr(state, "keys") or not {*_FORM, "eager"} <= {*state.keys()}:
        raise TypeError(f"{where}: got {states._described(state)}; must be what runtime_state_dict() gave")
    if type(state["format"]) is int and state["format"] != _FORMAT:
        raise _C.ValueError(f"{where}: got a state of format {state['format']}; this version reads format {_FORMAT}")
    wrong = _misshapen(state, _FORM, "") or (state["eager"] is not None and _misshapen(state["eager"], _TENSORS, "eager"))
    wrong = wrong or (state["kind"] not in _KINDS.values() and f"kind {state['kind']!r}") or (not state["plans"] and "no plans")
    if wrong:
        raise TypeError(f"{where}: got a state with {wrong}; must be what runtime_state_dict() gave")


def _misshapen(value: Any, form: Any, where: str) -> str:
    """The first part of value that is not of its form, in words; "": all are."""
    if isinstance(form, type):
        return "" if isinstance(value, form) else f"{where} of type {type(value).__name__}"
    kind: Any = dict if isinstance(form, dict) else (list, tuple)
    if not isinstance(value, kind) or (isinstance(form, tuple) and len(value) != len(form)):
        return f"{where} of type {type(value).__name__}" if not isinstance(value, kind) else f"{len(value)} items as {where}"
    if isinstance(form, dict) and str not in form:
        parts = [(value.get(name), of_part, f"{where}.{name}".lstrip(".")) for name, of_part in form.items()]
    elif isinstance(form, dict):
        parts = [(part, of_part, f"{where}[{name!r}]") for name, part in value.items() for of_part in form.values()]
    else:
        forms = form if isinstance(form, tuple) else form * len(value)
        parts = [(part, of_part, f"{where}[{i}]") for i, (part, of_part) in enumerate(zip(value, forms))]
    return next((found for part in parts if (found := _misshapen(*part))), "")


def _load(graph: Any, state: Any) -> None:
    start = time.perf_counter()
    _check_same(graph, state)
    # The state of optimizers is made before variables are looked up by name, as it was before build() was traced.
    graph._updates.prepare(None)
    own = dict(graph._variables())
    if state["eager"] is not None:
        _fill(graph, own, state["eager"])
    graph._updates.resume(graph.name, state["updates"])
    graph._watch.resume(graph, list(graph._named_modules()), list(own.items()), state["watched"])
    cache = {"one": lambda: None, "layouts": lambda: LayoutCache(graph),
             "shapes": lambda: ShapeCache(graph, *graph._several_shapes)}[state["kind"]]()
    call = None
    # Each plan gets the graph's own variables by their names; other tensors that build() captured come from the state.
    for plan in state["plans"]:
        call = _resumed(graph, plan, own, state["device"], cache and cache.arenas)
        if cache is not None:
            cache.take(call)
    graph.__dict__["_captured"] = call.session.captured()
    graph.config.freeze()
    Report(graph).stage(f"plan taken from a runtime state in {time.perf_counter() - start:.3f} s")
    graph.__dict__["_call"] = cache or call  # all at once: other threads may look


def _check_same(graph: Any, state: Any) -> None:
    """Checks that the plans were made for this graph, as far as it says so before it is traced."""
    options, then = graph.config, state["options"]
    options.for_session()
    now = {name: repr(value) for name, value in options.options.items() if name not in _FREE}
    for name in (*then, *now):
        if then.get(name) != now.get(name):
            raise _C.ValueError(f"graph '{graph.name}': option '{name}' of graph.config was {then.get(name, 'the default')} when its plan "
                                f"was made, and it is {now.get(name, 'the default')}; set the same, or compile the graph anew")
    if (graph._several_shapes is not None) != (state["kind"] == "shapes"):
        raise _C.ValueError(f"graph '{graph.name}': with_dynamic_input_shape() must be used where the plan was made and where it is "
                            "loaded, or nowhere")


def _fill(graph: Any, own: dict[str, Any], contents: dict[str, Any]) -> None:
    if own.keys() != contents.keys():
        raise _C.ValueError(f"graph '{graph.name}': variables {sorted(own.keys() ^ contents.keys())[:5]} are in one of the graph and the "
                            "state, and not in the other; both must have the same")
    wrong = [name for name, tensor in own.items() if tensor._shape != contents[name]._shape or tensor.dtype != contents[name].dtype]
    if wrong:
        here, there = own[wrong[0]], contents[wrong[0]]
        raise _C.ValueError(f"graph '{graph.name}': variable '{wrong[0]}' is {here.dtype.name}{here._shape}; the state has "
                            f"{there.dtype.name}{there._shape}")
    with no_grad():
        for name, tensor in own.items():
            fill(tensor, contents[name])


def _resumed(graph: Any, plan: dict[str, Any], own: dict[str, Any], device: str, arenas: Any) -> GraphCall:
    variables = {**own, **plan["tensors"], **{name: default_generator.state for name in plan["random"]}}
    options = {**session_options(graph, arenas), "device": _C.parse_device(device), "donated": list(plan["donated"])}
    where = f"runtime state of graph '{graph.name}'"
    session = _C.GraphSession.resume(plan["files"], variables, where, options)
    if session.replanned:
        warnings.warn(session.replanned, stacklevel=6)
    inputs = [(name, _dtype(where, dtype), tuple(shape)) for name, dtype, shape in plan["inputs"]]
    signature = session.meta().get("signature", "null")
    _, arguments, results, strides = read_signature(where, signature, len(inputs), len(session.outputs()))
    layouts = {i: strides[name] for i, (name, _, _) in enumerate(inputs) if name in strides}
    call = GraphCall(graph.name, session, arguments, inputs, results, {}, layouts)
    call.donated = frozenset(plan["donated"])
    call.timeout_s = graph.config.submit_timeout
    return call


def _dtype(where: str, name: str) -> Any:
    found = getattr(_C, name, None)
    if not isinstance(found, _C.dtype):
        raise _C.ValueError(f"{where}: an input has dtype {name!r}; must be a dtype's name")
    return found


def _calls(call: Any) -> list[GraphCall]:
    return [call] if isinstance(call, GraphCall) else call.calls()


def _run_zeros(graph: Any, call: GraphCall) -> None:
    if call.session.writes_variables:
        raise _C.NotImplementedError(f"load_runtime_state_dict: warmup_with_run: a step of graph '{graph.name}' changes variables; leave "
                                     "it out")
    call.submit([zeros(shape, dtype=dtype) for _, dtype, shape in call.inputs])
    call.synchronize()


def moved(state: Any, device: Any) -> dict[str, Any]:
    """As Graph.runtime_state_dict_to."""
    _check_form("runtime_state_dict_to", state)
    to = _C.parse_device(str(device))
    where = f"runtime state of graph '{state['graph_name']}'"
    # The tensors are copied, because each lives on the device of the graphs that use it.
    plans = [{**plan, "files": _C.moved_plan(plan["files"], where, to),
              "tensors": {name: tensor.cpu().clone() for name, tensor in plan["tensors"].items()}} for plan in state["plans"]]
    return {**state, "device": str(to), "plans": plans}
