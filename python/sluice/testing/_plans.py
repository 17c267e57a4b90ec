"""Plans made of plans: one actor alone, and a plan whose registers can be watched. Plans are plain data (plan/plan.h)."""

from __future__ import annotations

import copy
import json
import pathlib
import shutil
from typing import Any

Plan = dict[str, Any]
_ALIGNMENT = 64


def read_plan(bundle: str | pathlib.Path) -> Plan:
    with open(pathlib.Path(bundle) / "plan.json") as file:
        plan: Plan = json.load(file)
    return plan


def write_bundle(source: str | pathlib.Path, plan: Plan, target: pathlib.Path) -> None:
    """The bundle `source` with another plan."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("graph.txt", "weights.safetensors"):
        shutil.copyfile(pathlib.Path(source) / name, target / name)
    (target / "plan.json").write_text(json.dumps(plan))
    (target / "meta.json").write_text("{}\n")


def actor_index(plan: Plan, name: str) -> int:
    """The actor `name`, or the only one whose name or whose kernels' modules contain it."""
    normal = [i for i, a in enumerate(plan["actors"]) if a["role"] == "normal"]
    exact = [i for i in normal if plan["actors"][i]["name"] == name]

    def runs(i: int) -> bool:
        kernels = [plan["kernels"][k] for kind, k in plan["actors"][i]["program"] if kind == "run"]
        return name in plan["actors"][i]["name"] or any(name in (k["name"], k["module"].split(".")[0]) for k in kernels)

    found = exact or [i for i in normal if runs(i)]
    if len(found) != 1:
        names = [plan["actors"][i]["name"] for i in (found or normal)]
        what = "is the name of several actors" if found else "is no actor"
        raise ValueError(f"plan '{plan['name']}': '{name}' {what}; actors are {names}")
    return found[0]


def data_registers(plan: Plan, actor: int) -> tuple[list[int], list[int]]:
    """The registers with bytes that the actor consumes, and those that it produces."""
    registers, edges = plan["registers"], plan["edges"]
    consumed = [e["reg"] for e in edges if e["consumer"] == actor and registers[e["reg"]]["bytes"]]
    return consumed, [i for i, r in enumerate(registers) if r["producer"] == actor and r["bytes"]]


def view_of(plan: Plan, register: int) -> dict[str, Any]:
    """How the whole of a register is seen: as its producer writes it."""
    for given in plan["inputs"]:
        if given["reg"] == register:
            return {"base": "register", "index": register, "token": 0, "offset": 0,
                    **{k: given[k] for k in ("dtype", "shape", "strides")}}
    views = [v for k in plan["kernels"] for v in k["outputs"] if v["base"] == "register" and v["index"] == register]
    distinct = [v for i, v in enumerate(views) if v not in views[:i]]
    name = plan["registers"][register]["name"]
    if len(distinct) != 1:
        raise NotImplementedError(f"register '{name}': {len(distinct)} kernels write parts of it; only registers that one kernel "
                                  "writes can be recorded")
    return {**distinct[0], "token": 0}


def check_rates(plan: Plan, actor: int) -> None:
    rates = [(plan["registers"][e["reg"]]["name"], e["take"], e["hold"]) for e in plan["edges"] if e["consumer"] == actor]
    rates += [(r["name"], r["emit_every"], 1) for r in plan["registers"] if r["producer"] == actor]
    for name, *rate in rates:
        if rate != [1, 1]:
            raise NotImplementedError(f"register '{name}': moves {rate[0]} tokens in {rate[1]} firings; only actors with a token per "
                                      "firing can be run alone")


def _own_slots(plan: Plan, register: int) -> None:
    """Gives a register slots that it shares with nothing."""
    r = plan["registers"][register]
    if "own" not in plan:
        plan["own"] = len(plan["arenas"])
        space = plan["arenas"][plan["buffers"][r["slots"][0]]["arena"]]["space"]
        plan["arenas"].append({"name": "testing", "space": space, "stream": -1, "bytes": 0, "lower_bound": 0})
    arena = plan["arenas"][plan["own"]]
    spaces = {plan["arenas"][plan["buffers"][s]["arena"]]["space"] for s in r["slots"]}
    if spaces != {arena["space"]}:
        raise NotImplementedError(f"register '{r['name']}': lies in another memory space than the others; record one device at a time")
    r["in_place_of"] = -1
    slots = []
    for i in range(r["quota"]):
        slots.append(len(plan["buffers"]))
        plan["buffers"].append({"name": f"testing/{r['name']}[{i}]", "arena": plan["own"], "offset": arena["bytes"], "bytes": r["bytes"]})
        arena["bytes"] += -(-r["bytes"] // _ALIGNMENT) * _ALIGNMENT
    arena["lower_bound"] = arena["bytes"]
    r["slots"] = slots


def tapped(plan: Plan, registers: list[int]) -> Plan:
    """The plan with `registers` among its outputs, as "tap:<name>"."""
    plan = copy.deepcopy(plan)
    sink = next(i for i, a in enumerate(plan["actors"]) if a["role"] == "sink")
    for register in registers:
        name = plan["registers"][register]["name"]
        view = view_of(plan, register)
        consumers = [e["consumer"] for e in plan["edges"] if e["reg"] == register]
        if sink not in consumers:
            plan["actors"][sink]["program"].append(["release", len(plan["edges"])])
            plan["edges"].append({"reg": register, "consumer": sink, "take": 1, "hold": 1})
            _own_slots(plan, register)
            for other in plan["registers"]:  # nothing may overwrite it before it is read
                at = other["in_place_of"]
                if at >= 0 and plan["edges"][at]["reg"] == register:
                    _own_slots(plan, plan["registers"].index(other))
        plan["outputs"].append({"name": f"tap:{name}", "view": view})
    plan.pop("own", None)
    return plan


def alone(plan: Plan, actor: int) -> Plan:
    """A plan of one actor of `plan`: callers feed the registers it consumes, and get those it produces."""
    check_rates(plan, actor)
    source = plan
    consumed, produced = data_registers(source, actor)
    _check_variables(source, actor)
    plan = copy.deepcopy(source)
    kept = [*consumed, *[i for i, r in enumerate(source["registers"]) if r["producer"] == actor]]
    register_at = {old: new for new, old in enumerate(kept)}
    program = source["actors"][actor]["program"]
    kernel_at = {k: n for n, k in enumerate(k for kind, k in program if kind == "run")}

    plan["registers"] = [{**copy.deepcopy(source["registers"][old]), "initial_tokens": 0, "in_place_of": -1,
                          "producer": 0 if old in consumed else 1} for old in kept]
    edge_at = {}
    plan["edges"] = []
    for i, edge in enumerate(source["edges"]):
        if edge["consumer"] == actor and edge["reg"] in consumed:
            edge_at[i] = len(plan["edges"])
            plan["edges"].append({**edge, "reg": register_at[edge["reg"]], "consumer": 1})
    to_sink = []
    for old in kept[len(consumed):]:
        to_sink.append(["release", len(plan["edges"])])
        plan["edges"].append({"reg": register_at[old], "consumer": 2, "take": 1, "hold": 1})

    plan["kernels"] = [copy.deepcopy(source["kernels"][k]) for k in kernel_at]
    for kernel in plan["kernels"]:
        for view in [*kernel["inputs"], *kernel["outputs"]]:
            if view["base"] == "register":
                view["index"] = register_at[view["index"]]
    own = []
    for kind, index in program:
        if kind == "run":
            own.append([kind, kernel_at[index]])
        elif kind == "emit":
            own.append([kind, register_at[index]])
        elif index in edge_at:
            own.append([kind, edge_at[index]])
    stream = source["actors"][actor]["stream"]
    host = next(i for i, a in enumerate(source["actors"]) if a["role"] == "feed")
    plan["actors"] = [
        {"name": "inputs", "stream": source["actors"][host]["stream"], "role": "feed",
         "program": [["emit", i] for i in range(len(consumed))]},
        {**source["actors"][actor], "program": own, "stream": stream},
        {"name": "outputs", "stream": stream, "role": "sink", "program": to_sink}]
    plan["inputs"] = [{"name": source["registers"][old]["name"], "reg": register_at[old],
                       **{k: view_of(source, old)[k] for k in ("dtype", "shape", "strides")}} for old in consumed]
    plan["outputs"] = [{"name": source["registers"][old]["name"], "view": {**view_of(source, old), "index": register_at[old]}}
                       for old in produced]
    for i, r in enumerate(plan["registers"]):
        if r["bytes"]:
            _own_slots(plan, i)
    plan.pop("own", None)
    plan["certificate"] = [0, 1, 2]
    plan["name"] = f"{source['name']}/{source['actors'][actor]['name']}"
    return plan


def _check_variables(plan: Plan, actor: int) -> None:
    """The actor alone must write the variables that it reads: else it would see other values here."""
    def views(own: bool, side: str) -> set[int]:
        return {v["index"] for i, a in enumerate(plan["actors"]) for kind, k in a["program"] if kind == "run" and (i == actor) is own
                for v in plan["kernels"][k][side] if v["base"] == "variable"}

    shared = views(True, "inputs") & views(False, "outputs")
    if shared:
        names = [plan["variables"][i]["name"] for i in sorted(shared)]
        raise NotImplementedError(f"actor '{plan['actors'][actor]['name']}': reads variables that other actors write: {names}; it "
                                  "cannot be run alone")
