"""How the parameters of a model lie on a mesh, by a plan of words as the models of transformers carry one."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterable, Mapping

from sluice import sbp as _sbp
from sluice._graph.zero import Zero
from sluice._tensor.global_tensors import place, placement
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter
from sluice.parallel._experts import MoE
from sluice.parallel._pipeline import Pipeline, plan_of
from sluice.parallel._vocabulary import check_rows, split_rows, split_sequence

#: transformers' words, and what becomes of a weight: split along the features that come out, or along those that go in. Where
#: inputs and outputs lie follows from the weights, so words that differ in nothing else are the same.
COLUMNS = {"colwise", "colwise_rep", "colwise_gather_output", "local_colwise", "packed_colwise", "local_packed_colwise"}
ROWS = {"rowwise", "rowwise_rep", "rowwise_split_input", "local_rowwise", "packed_rowwise", "local_packed_rowwise",
        "embedding_rowwise"}
SEQUENCE = "sequence_parallel"  # nothing is split of the weight, and the sequence of what the module is given
WHOLE = {"replicate", "replicated", SEQUENCE, "local", "gather", "replicated_with_grad_allreduce"}
VOCABULARY = "vocabulary"  # ours: the rows of an embedding
EXPERTS = "experts"  # ours: the experts of a MoE


class Strategy:
    """How each parameter and buffer of a model lies: what parallelize() has done, as a table and as a file."""

    def __init__(self, mesh: placement, lies: Mapping[str, tuple[Any, ...]], shapes: Mapping[str, tuple[int, ...]],
                 stages: Mapping[str, int] | None = None) -> None:
        self.mesh, self.lies, self.shapes = mesh, dict(lies), dict(shapes)
        self.stages = None if stages is None else dict(stages)  # of a pipeline, whose first one is `mesh`

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self.lies[name]

    def __str__(self) -> str:
        rows = [(name, str(tuple(self.shapes[name])), _sbp.text(sbp, len(self.shapes[name]))) for name, sbp in self.lies.items()]
        rows.insert(0, ("name", "shape", f"on {self.mesh}"))
        if self.stages is not None:
            rows = [(*row, "stage" if i == 0 else str(self.stages[row[0]])) for i, row in enumerate(rows)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)

    def save(self, path: Any) -> None:
        """Writes it as JSON, in place of what was there once all of it is written."""
        text = {"axes": [[name or "", n] for name, n in zip(self.mesh.names, self.mesh.shape)],
                "parameters": {name: _sbp.text(sbp, len(self.shapes[name])) for name, sbp in self.lies.items()}}
        beside = f"{os.fspath(path)}.new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(text, file, indent=1)
            file.write("\n")
        os.replace(beside, path)


def _read(path: Any, mesh: placement) -> dict[str, tuple[Any, ...]]:
    """The layouts in a file that Strategy.save() wrote, for a mesh with the same axes."""
    where = os.fspath(path)
    with open(path, encoding="utf-8") as file:
        try:
            text = json.load(file)
            axes = [(str(name), int(n)) for name, n in text["axes"]]
            lies = {str(name): _parse(one) for name, one in text["parameters"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{where}: no strategy: {type(error).__name__}: {error}; Strategy.save() writes one") from None
    here = [(name or "", n) for name, n in zip(mesh.names, mesh.shape)]
    if [name for name, _ in axes] != [name for name, _ in here]:
        raise ValueError(f"{where}: is for the axes {[name for name, _ in axes]}; the mesh has {[name for name, _ in here]}")
    for name, one in lies.items():
        if len(one) != len(axes):
            raise ValueError(f"{where}: '{name}' has {len(one)} sbp; must have {len(axes)}, one for each axis")
    return lies


def _parse(text: Any) -> tuple[Any, ...]:
    if not isinstance(text, str) or not re.fullmatch(r"(B|S\(\d+\))(,(B|S\(\d+\)))*", text):
        raise ValueError(f"an sbp is {text!r}; must be of S(dim) and B")
    return _sbp.parse(text)


def _pattern(key: str) -> re.Pattern[str]:
    """'layers.*.mlp.up_proj' as what it says of the names of modules, in whichever module the model is; '*' is a number."""
    return re.compile(r"(.*\.)?" + re.escape(key).replace(r"\*", r"\d+"))


def _plan_of(model: Any) -> dict[str, str]:
    """The plan that the model carries, as those of transformers do."""
    plan = dict(getattr(model, "_tp_plan", None) or {})
    return plan or dict(getattr(getattr(model, "config", None), "base_model_tp_plan", None) or {})


def _transposed(module: Any) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")  # transformers', whose weight is (in, out)


def _split(module: Any, word: str, key: str) -> dict[str, int]:
    """By the names of the module's own parameters: the dim that is split."""
    if word in WHOLE:
        return {}
    if word == VOCABULARY:
        return {"weight": 0}
    if word == EXPERTS:
        if not isinstance(module, MoE) or module.ranks is not None:
            raise ValueError(f"parallelize: '{key}' is to be 'experts', and is a {type(module).__name__}; must be a sluice.parallel.MoE with "
                             "ep_size=1")
        return {name: 0 for name, p in module.named_parameters(recurse=False)}
    if word not in COLUMNS | ROWS:
        known = ", ".join(sorted(COLUMNS | ROWS | WHOLE | {VOCABULARY, EXPERTS}))
        raise ValueError(f"parallelize: '{key}' is to be {word!r}; must be one of {known}")
    own = dict(module.named_parameters(recurse=False))
    weight = own.get("weight")
    if weight is None or weight.ndim != 2:
        raise ValueError(f"parallelize: '{key}' is to be {word!r}, and is a {type(module).__name__}; must have a weight of 2 dims")
    # A table's columns are what a row of it has. Its rows in parts need another lookup, which is a word of its own.
    out, into = (1, 1) if hasattr(module, "num_embeddings") else (1, 0) if _transposed(module) else (0, 1)
    return {"weight": into} if word in ROWS else {"weight": out, **({"bias": 0} if own.get("bias") is not None and out != into else {})}


def parallelize(model: Module, mesh: placement, tp_plan: Mapping[str, str] | None = None, *, dp: str = "dp", tp: str = "tp",
                ep: str | None = None, pp: str = "pp", pp_plan: Iterable[str] | None = None, pp_stages: Iterable[int] | None = None,
                pp_chunks: int = 1, strategy: Any = None, checkpoint: str | Iterable[str] = (), zero: int | None = None,
                zero_axis: str | None = None) -> Strategy:
    """Lays the parameters and buffers of `model` over `mesh`, and returns how each lies.

    `tp_plan`: words by names of modules, such as {"layers.*.mlp.up_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"}; left
    out, the one that the model carries, as those of transformers do. What it names is split along the axis `tp`; all the rest
    is everywhere, and along the axis `dp` everything is. Experts ("experts" of a MoE) lie along the axis `ep`, by default `tp`; it may
    be `dp`. `strategy`: a file that Strategy.save() wrote, or a dict of sbp by parameter, which go before the plan.

    A mesh with the axis `pp` is a pipeline. `pp_plan`: names of modules in the order in which they work, of which lists are lists of
    layers, such as ["layers"]; left out, the one that the model carries. Layers are dealt out evenly, or as `pp_stages` says, with the
    stage of each. With `pp_chunks` each mesh has so many stages, in turns: an interleaved schedule. The modules ahead of the layers are on
    the first stage (parallel.stages(mesh)[0]) and so are inputs; those behind them are on the last one, and so are targets.

    `checkpoint`: names of modules, such as "layers.*", of which graphs keep no more than results for the backward pass
    (activation_checkpointing). `zero`: the stage 1, 2 or 3 with which graphs that have the model keep the state of optimizers, and
    of 3 the parameters, in parts along the axis `zero_axis`, by default `dp` (GraphConfig.enable_zero).

    It changes no value: losses and gradients are those of one device but for the order of sums. Batches are split by the
    caller: x.to_global(mesh, {"dp": sbp.split(0)}).
    """
    if not isinstance(mesh, placement):
        raise TypeError(f"parallelize: mesh is {mesh!r}; must be a sluice.placement or sluice.parallel.mesh(...)")
    pipeline = None
    if pp in mesh.names:
        pipeline = Pipeline(model, mesh, pp, plan_of(model) if pp_plan is None else pp_plan, pp_stages, pp_chunks, _pattern)
        mesh = pipeline.meshes[0]
    elif pp_plan is not None or pp_stages is not None or pp_chunks != 1:
        mesh.axis(pp)  # says which there are
    ep = tp if ep is None else ep
    named = _planned(model, mesh, tp_plan, dp, tp, ep, pipeline is not None)
    splits = {f"{name}.{own}" if name else own: (ep if word == EXPERTS else tp, dim) for name, (module, word) in named.items()
              for own, dim in _split(module, word, name).items()}
    for name, (module, word) in named.items():
        if word == VOCABULARY:
            check_rows(module, name, mesh, tp)
        elif word == EXPERTS:
            module.check_along(f"parallelize: '{name}'", mesh, ep)
    checkpointed = _named(model, dict.fromkeys([checkpoint] if isinstance(checkpoint, str) else checkpoint, ""), "checkpoint names")
    parts = None if zero is None else Zero(stage=zero, axis=dp if zero_axis is None else zero_axis)
    if parts is not None:
        mesh.axis(parts.axis)
    chosen = _chosen(model, mesh, strategy)
    lies: dict[str, tuple[Any, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, t in _tensors(model):
        way = chosen.get(name) or _sbp.each({splits[name][0]: _sbp.split(splits[name][1])} if name in splits else {}, mesh.names, mesh)
        lies[name], shapes[name] = way, tuple(t.shape)
        _check(name, t, way, mesh)
    on = {name: mesh if pipeline is None else pipeline.mesh(name) for name in lies}
    _check_tied(model, lies, on)
    for name, (module, word) in named.items():
        here = mesh if pipeline is None else pipeline.mesh(name)
        if word == VOCABULARY:
            split_rows(module, here, tp)
        elif word == EXPERTS:
            module.along(here, ep, dp)
        elif word == SEQUENCE:
            split_sequence(module, here, dp, tp)
    for module, _ in checkpointed.values():
        ModuleConfig.of(module).activation_checkpointing = True
    ModuleConfig.of(model).zero = parts
    if pipeline is not None:
        pipeline.connect(model, dp, any(mesh.size(axis) > 1 for axis, _ in splits.values()))
    _move(model, lies, on)
    return Strategy(mesh, lies, shapes, None if pipeline is None else {name: pipeline.number(name) for name in lies})


def _planned(model: Module, mesh: placement, tp_plan: Mapping[str, str] | None, dp: str, tp: str, ep: str,
             staged: bool) -> dict[str, tuple[Module, str]]:
    """Finds the word of the plan for each module. The mesh, a stage of a pipeline or all, must have the axes that it needs, and no others."""
    if tp_plan is not None:
        for axis in {ep if word == EXPERTS else tp for word in tp_plan.values()} or (set() if staged else {tp}):
            mesh.axis(axis)  # says which there are
    for name in mesh.names:
        if name not in (dp, tp, ep) and not (staged and mesh.names == (None,)):
            raise ValueError(f"parallelize: axis {name!r} of {mesh} is neither dp={dp!r} nor tp={tp!r}; must be one of them, or pp of a "
                             "pipeline's stages")
    return _named(model, _plan_of(model) if tp_plan is None and tp in mesh.names else dict(tp_plan or {}), "the plan names")


def _tensors(model: Module) -> list[tuple[str, Any]]:
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _check_tied(model: Module, lies: Mapping[str, Any], on: Mapping[str, placement]) -> None:
    done: dict[int, Any] = {}
    for name, t in _tensors(model):
        if done.setdefault(id(t), (lies[name], on[name])) != (lies[name], on[name]):
            raise ValueError(f"parallelize: '{name}' is tied to a parameter that lies otherwise; name both alike in the plan, and have both on "
                             "one stage")


def _move(model: Module, lies: Mapping[str, Any], on: Mapping[str, placement]) -> None:
    done: set[int] = set()
    for name, module in model.named_modules():
        for table in (module._parameters, module._buffers):
            for own, t in table.items():
                if t is not None and id(t) not in done:
                    whole = f"{name}.{own}" if name else own
                    _lay(table, own, t, on[whole], lies[whole])
                    done |= {id(t), id(table[own])}


def _lay(table: Any, own: str, t: Any, mesh: placement, way: tuple[Any, ...]) -> None:
    if isinstance(t, Parameter):
        t.data = place(t.data, mesh, way)
    else:
        table[own] = place(t, mesh, way)


def _named(model: Module, words: Mapping[str, str], who: str) -> dict[str, tuple[Module, str]]:
    """By its name, each module of which a key speaks, and its word; the last key that does so counts."""
    found: dict[str, tuple[Module, str]] = {}
    unused = []
    for key, word in words.items():
        pattern = _pattern(key)
        those = {name: (module, word) for name, module in model.named_modules() if pattern.fullmatch(name)}
        found.update(those)
        unused += [] if those else [repr(key)]
    if unused:
        raise ValueError(f"parallelize: {who} {', '.join(unused)}; the model has no such module")
    return found


def _chosen(model: Module, mesh: placement, strategy: Any) -> dict[str, tuple[Any, ...]]:
    if strategy is None:
        return {}
    given: Iterable[tuple[str, Any]] = (strategy.lies if isinstance(strategy, Strategy) else strategy).items() \
        if isinstance(strategy, (dict, Strategy)) else _read(strategy, mesh).items()
    chosen = {name: _sbp.each(way, mesh.names, mesh) for name, way in given}
    known = {name for name, _ in _tensors(model)}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"parallelize: the strategy names {', '.join(map(repr, unknown))}; the model has no such parameter or buffer")
    return chosen


def _check(name: str, t: Any, way: tuple[Any, ...], mesh: placement) -> None:
    """Before anything is moved: a device must get at least one element of what is split."""
    for one, n, axis in zip(way, mesh.shape, mesh.names):
        if one == _sbp.partial_sum:
            raise ValueError(f"parallelize: '{name}' is to lie as partial_sum along {axis!r}; must be split or broadcast")
        if one.kind == "split" and (not one.dim < t.ndim or t.shape[one.dim] < n):
            raise ValueError(f"parallelize: '{name}' is {tuple(t.shape)}; cannot be split along dim {one.dim} over the {n} devices of axis "
                             f"{axis!r}: each must get at least one element")
