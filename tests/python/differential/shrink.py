"""Makes a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

import copy
import time

import torch
from differential.executor import run
from differential.program import NAME, input_leaves, leaves, names_of, reads, source, targets


def defined_without_body(program):
    return {leaf["name"] for leaf in input_leaves(program)} | {n for kind in ("parameters", "buffers", "modules") for n in names_of(program, kind)}


def _pruned(nest, known):
    kind, value = nest
    if kind == "leaf":
        return nest if value in known else ["constant", None]
    if kind == "constant":
        return nest
    return [kind, {k: _pruned(v, known) for k, v in value.items()} if kind == "dict" else [_pruned(v, known) for v in value]]


def repaired(program):
    """The program without what reads names that are not there any more."""
    known, body = defined_without_body(program), []
    for statement in program["body"]:
        if all(name in known for name in reads(statement["code"])):
            body.append(statement)
            known.update(targets(statement["code"]))
    program["body"], program["outputs"] = body, _pruned(program["outputs"], known)
    for optimizer in program["optimizers"]:
        for group in optimizer["groups"]:
            group["params"] = [p for p in group["params"] if p.split(".")[1] in known]
        optimizer["groups"] = [g for g in optimizer["groups"] if g["params"]]
    program["optimizers"] = [o for o in program["optimizers"] if o["groups"]]
    return program


def types_of(program):
    """By name, (shape, dtype) of what the statements of a program define."""
    small = copy.deepcopy(program)
    names = [name for s in small["body"] for name in targets(s["code"])]
    small.update(outputs=["list", [["leaf", n] for n in names]], steps=1, micro_batches=1, optimizers=[])
    result = run(torch, source(small), small)
    if result.error:
        return {}
    return {n: (v[1].shape, v[0]) for n, v in zip(names, result.outputs[0]) if isinstance(v, tuple) and hasattr(v[1], "shape")}


def _with(program, **change):
    return {**copy.deepcopy(program), **copy.deepcopy(change)}


def _options(p):
    """Fewer steps, options, optimizers."""
    for steps in (1, 2, 3, 5, 10):
        if steps < p["steps"]:
            yield _with(p, steps=steps)
    if p["pipelined"]:
        yield _with(p, pipelined=False)
    if p["micro_batches"] > 1:
        yield _with(p, micro_batches=1)
    if p["micro_batches"] > 2:
        yield _with(p, micro_batches=2)
    for i in range(len(p["config"])):
        yield _with(p, config=p["config"][:i] + p["config"][i + 1:])
    if p["optimizers"]:
        yield _with(p, optimizers=[])
    for i, o in enumerate(p["optimizers"]):
        rest = p["optimizers"][:i], p["optimizers"][i + 1:]
        yield _with(p, optimizers=[*rest[0], *rest[1]])
        plain = [{"params": [name for g in o["groups"] for name in g["params"]]}]
        one = [{"params": plain[0]["params"][:1]}]
        for smaller in ({**o, "schedule": None}, {**o, "class": "SGD", "options": {"lr": 0.1}}, {**o, "groups": plain}, {**o, "groups": one}):
            if smaller != o:
                yield _with(p, optimizers=[*rest[0], smaller, *rest[1]])


def _statements(p):
    """Fewer statements: halves, quarters, ... and single ones, with what depends on them."""
    n = size = len(p["body"])
    while size >= 1:
        for start in range(n - size, -1, -size):
            yield repaired(_with(p, body=p["body"][:start] + p["body"][start + size:]))
        size //= 2


def _simpler_statements(p):
    """Plain values in the place of computed ones; no scopes."""
    types = types_of(p)
    for i, statement in enumerate(p["body"]):
        def replaced(new, i=i):
            return repaired(_with(p, body=[*p["body"][:i], new, *p["body"][i + 1:]]))

        for scope in statement.get("scopes", []):
            scopes = [s for s in statement["scopes"] if s != scope]
            yield replaced({"code": statement["code"], **({"scopes": scopes} if scopes else {})})
        names = targets(statement["code"])
        if len(names) != 1 or names[0] not in types or not reads(statement["code"]):
            continue
        shape, dtype = types[names[0]]
        for other in reads(statement["code"]):
            if types.get(other) == (shape, dtype) and statement["code"] != f"{names[0]} = {other}":
                body = [{**s, "code": NAME.sub(lambda m: other if m[0] == names[0] else m[0], s["code"])} for s in p["body"][i + 1:]]
                yield repaired(_with(p, body=p["body"][:i] + body))
        fill = {"bool": "True", "int64": "1", "int32": "1"}.get(dtype, "0.75")
        yield replaced({"code": f"{names[0]} = torch.full({tuple(shape)}, {fill}, dtype=torch.{dtype})"})


def _results(p):
    """Fewer outputs, arguments, parameters, buffers, modules."""
    names = [n for n in leaves(p["outputs"])]
    if p["outputs"] != ["constant", None]:
        yield _with(p, outputs=["constant", None])
    for name in dict.fromkeys(names):
        if p["outputs"] != ["leaf", name]:
            yield _with(p, outputs=["leaf", name])
    if len(names) > 1:
        for i in range(len(names)):
            yield _with(p, outputs=["list", [["leaf", n] for n in names[:i] + names[i + 1:]]])
    for i, nest in enumerate(p["inputs"]):
        rest = p["inputs"][:i], p["inputs"][i + 1:]
        yield repaired(_with(p, inputs=[*rest[0], *rest[1]]))
        if nest[0] != "leaf":
            yield _with(p, inputs=[*rest[0], *(["leaf", leaf] for leaf in leaves(nest)), *rest[1]])
        elif nest[1].get("strided"):
            yield _with(p, inputs=[*rest[0], ["leaf", {**nest[1], "strided": False}], *rest[1]])
    for kind in ("parameters", "buffers", "modules"):
        for i in range(len(p[kind])):
            if all(entry.get("tied") != p[kind][i]["name"] for entry in p[kind]):
                yield repaired(_with(p, **{kind: p[kind][:i] + p[kind][i + 1:]}))


def shrink(program, fails, seconds=120):
    """The smallest program found for which `fails` is true. REQUIRES: it is for `program`."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for candidates in (_options, _statements, _results, _simpler_statements):
            again = True
            while again and time.monotonic() < end:
                again = False
                for candidate in candidates(program):
                    if time.monotonic() >= end:
                        break
                    if candidate != program and fails(candidate):
                        program, changed, again = candidate, True, True
                        break
    return program
