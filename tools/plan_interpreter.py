#!/usr/bin/env python3
"""An independent reading of the plan format (docs/plan-format.md): executes a plan on real bytes with NumPy alone.

It shares no code with Sluice. Arenas are byte arrays and every tensor is read and written where the plan says it lies, so
a mistake in packing, rates or ordering shows as a wrong value or as an error. Kernels run one at a time, in any order that
the firing rule allows: the first possible one, or with a seed a random one, also in the middle of other streams' firings.
Arrays of in.npz are named after the plan's inputs and have a leading axis of steps; so have those of out.npz.
"""

import argparse
import json
import pathlib
import random
import struct
from collections import namedtuple
from fractions import Fraction

import numpy as np

SCHEMA_VERSION, ALIGNMENT = 1, 64
# How elements are stored. bfloat16 has no NumPy type: its bits are the upper half of a float32's.
STORED = {"bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
          "float16": np.float16, "bfloat16": np.uint16, "float32": np.float32, "float64": np.float64}


class PlanError(ValueError):
    """The plan is wrong, or cannot go on."""


def read_plan(path):  # of a plan.json or a bundle directory, as plain data
    plan = json.loads((pathlib.Path(path) / "plan.json" if pathlib.Path(path).is_dir() else pathlib.Path(path)).read_text())
    if plan.get("schema_version") != SCHEMA_VERSION:
        raise PlanError(f"{path}: schema version {plan.get('schema_version')}; this interpreter reads {SCHEMA_VERSION}")
    return plan


def read_weights(path):
    """name -> bytes, from a safetensors file: 8 bytes length of a JSON header, the header, the data."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, start = json.loads(data[8:8 + length]), 8 + length
    tensors = {name: t["data_offsets"] for name, t in header.items() if name != "__metadata__"}
    return {name: data[start + begin:start + end] for name, (begin, end) in tensors.items()}


def attribute(value):
    kind, held = next(iter(value.items())) if isinstance(value, dict) else ("", value)
    return float(held) if kind == "double" else [float(v) for v in held] if kind == "doubles" else held


def attributes(call):
    return {"op": call["op"], **{name: attribute(value) for name, value in call["attrs"].items()}}


def load(stored, dtype):  # values to compute with: 16-bit floats are computed with in float32
    as_float = (stored.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else stored
    return stored.astype(np.float32) if dtype == "float16" else as_float


def encode(values, dtype):  # as they are stored: rounded to nearest even, integers wrapped, floats to integers cut
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).reshape(np.shape(values))
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(STORED[dtype])


def wide(x):  # floats in float64, so that sums of values that float32 holds exactly are exact
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


# --- Ops: functions of (attributes, input arrays, output specs) -> arrays. None stands for an absent input. ---
OPS = {}


def op(*names):
    return lambda function: OPS.update(dict.fromkeys(names, function)) or function


ELEMENTWISE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "clamp_min": lambda a, b: np.where((a < b) | (b != b), b, a), "clamp_max": lambda a, b: np.where((a > b) | (b != b), b, a),
    "maximum": lambda a, b: np.where((a > b) | (a != a), a, b), "minimum": lambda a, b: np.where((a < b) | (a != a), a, b),
    "fmod": np.fmod, "remainder": np.mod, "floor_divide": np.floor_divide, "neg": np.negative, "abs": np.abs,
    "sign": lambda x: ((x > 0).astype(np.int8) - (x < 0)).astype(x.dtype), "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "logical_not": np.logical_not, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "isnan": np.isnan, "isinf": np.isinf, "where": np.where, "cast": lambda x: x,
    "copy": lambda x: x, "relu": lambda x: np.where(x < 0, x.dtype.type(0), x),
    "relu_backward": lambda grad, result: np.where(result > 0, grad, grad.dtype.type(0)),
}
REDUCTIONS = {  # a sum starts from +0, so that of negative zeros is +0
    "sum": lambda x, **k: np.sum(x, **k) + 0, "prod": np.prod, "amax": np.max, "amin": np.min, "any": np.any, "all": np.all,
    "mean": lambda x, **k: (np.sum(x, **k) + 0) / np.float64(x.size / max(np.sum(x, **k).size, 1)),
}
CREATION_AND_MOVEMENT = {
    "full": lambda a, x, out: np.full(a["shape"], a["value"]),
    "iota": lambda a, x, out: a["start"] + np.arange(a["n"]) * a["step"],
    "reshape": lambda a, x, out: np.ascontiguousarray(x[0]).reshape(out[0]["shape"]),
    "permute": lambda a, x, out: np.transpose(x[0], a["dims"]), "expand": lambda a, x, out: np.broadcast_to(x[0], out[0]["shape"]),
    "sum_parts": lambda a, x, out: np.add.accumulate(x[0].reshape(a["parts"], -1))[-1],
    "slice": lambda a, x, out: x[0][tuple(map(slice, a["starts"], a["stops"], a["steps"]))],
    "concat": lambda a, x, out: np.concatenate(x, axis=a["dim"]),
    "accumulate": lambda a, x, out: x[1] + x[0] if len(x) > 1 else x[0],  # x[1]: what the slot holds already
    "flip": lambda a, x, out: np.flip(x[0], a["dims"]),
    "gather": lambda a, x, out: x[0][along(x[1], a["dim"], x[0])],
    "index_select": lambda a, x, out: np.take(x[0], checked(x[1], x[0].shape[a["dim"]]), axis=a["dim"]),
    "embedding": lambda a, x, out: x[0][checked(x[1], x[0].shape[0])],
    "host_function": lambda a, x, out: a["call"](*x),
    "esac": lambda a, x, out: x[1 + int(x[0])],
    "argmax": lambda a, x, out: np.argmax(x[0], *(axes_of(a) or (None,))[:1]).reshape(out[0]["shape"]),  # along one axis, or of all
    "argmin": lambda a, x, out: np.argmin(x[0], *(axes_of(a) or (None,))[:1]).reshape(out[0]["shape"]),
    "matmul": lambda a, x, out: np.matmul(*(wide(np.swapaxes(v, -1, -2) if a["transpose_" + t] else v) for v, t in zip(x, "ab"))) + 0,
    "cumsum": lambda a, x, out: np.cumsum(wide(x[0]), axis=a["dim"]) + 0 if x[0].ndim else x[0],
}
IN_PLACE = {*ELEMENTWISE, "fused", "scatter", "scatter_add", "index_add", "sgd_update", "sgd_momentum_update", "multi_update"}
OPS.update({name: lambda a, x, out, f=f: [f(*x)] for name, f in ELEMENTWISE.items()})
OPS.update({name: lambda a, x, out, f=f: [f(wide(x[0]), axis=axes_of(a), keepdims=a["keepdim"])] for name, f in REDUCTIONS.items()})
OPS.update({name: lambda a, x, out, f=f: [f(a, x, out)] for name, f in CREATION_AND_MOVEMENT.items()})
OPS["case"] = lambda a, x, out: [x[1]] * len(out)  # which of them are void, the machine knows


def axes_of(a):  # None or no axes: all
    return tuple(np.atleast_1d(a["dim"]).tolist()) if a["dim"] not in (None, []) else None


@op("pad")
def _pad(a, x, out):
    interior = a["interior"] or [0] * x[0].ndim
    result = np.full(out[0]["shape"], a["value"]).astype(x[0].dtype)
    result[tuple(slice(low, low + (n - 1) * (gap + 1) + 1 if n else low, gap + 1)
                 for low, n, gap in zip(a["low"], x[0].shape, interior))] = x[0]
    return [result]
def checked(index, size):
    if index.size and (index.min() < 0 or index.max() >= size):
        raise PlanError(f"index {index.min()} or {index.max()} lies outside [0, {size})")
    return index.astype(np.int64)
def along(index, dim, x):  # arrays that address `index` along `dim` of x and every other axis at its own position
    grid = list(np.indices(index.shape, sparse=True))
    grid[dim] = checked(index, x.shape[dim])
    return tuple(grid)
@op("scatter", "scatter_add", "index_add")
def _scatter(a, x, out):
    result, dim = wide(x[0]).copy(), a["dim"] % x[0].ndim
    flat = (slice(None),) * dim + (checked(x[1], x[0].shape[dim]),)
    where = flat if a["op"] == "index_add" else along(x[1], dim, x[0])
    (np.ndarray.__setitem__ if a["op"] == "scatter" else np.add.at)(result, where, x[2])
    return [result]
@op("embedding_backward")
def _embedding_backward(a, x, out):
    result, keep = np.zeros(out[0]["shape"]), x[1] != a["padding_idx"]
    np.add.at(result, checked(x[1], len(result))[keep], wide(x[0])[keep])
    return [result]
@op("linear")
def _linear(a, x, out):
    if a["activation"] not in ("none", "relu"):
        raise PlanError(f"linear: activation '{a['activation']}' is not read by this interpreter: NumPy's may differ")
    y = np.matmul(wide(x[0]), wide(x[1]).T) + 0 + (0 if x[2] is None else x[2])
    return [np.where(y < 0, 0, y) if a["activation"] == "relu" else y]

OPS["fused_matmul"] = lambda a, x, out: [OPS["matmul"](a, x[:2], out)[0] + x[2] + (0 if len(x) < 4 or x[3] is None else x[3])]
def taps(a, kernel, positions):  # of each position of the kernel: where it lies in the padded input, for all windows
    dilation = a.get("dilation") or [1] * len(kernel)
    for k in np.ndindex(*kernel):
        starts = [i * d for i, d in zip(k, dilation)]
        yield k, (..., *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, positions, a["stride"])))
def padded(a, x, kernel, positions, value=0):  # x with its padding, and behind it what windows that begin inside reach
    dilation = a.get("dilation") or [1] * len(kernel)
    need = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(positions, a["stride"], kernel, dilation)]
    high = [max(p, r - p - size) for p, r, size in zip(a["padding"], need, x.shape[2:])]
    return np.pad(wide(x), [(0, 0), (0, 0), *zip(a["padding"], high)], constant_values=value)
def grouped(x, axis, groups):  # axis `axis` as (groups, rest), and everything behind it flat
    shape = x.shape[:axis] + (groups, x.shape[axis] // groups)
    return x.reshape(*shape, -1) if axis + 1 < x.ndim else x.reshape(*shape)
@op("conv", "fused_conv")
def _conv(a, x, out):
    shape, weight, g = out[0]["shape"], wide(x[1]), a["groups"]
    source = padded(a, x[0], weight.shape[2:], shape[2:])
    y = np.zeros((shape[0], g, shape[1] // g, int(np.prod(shape[2:]))))
    for k, where in taps(a, weight.shape[2:], shape[2:]):
        y += np.einsum("ngcp,goc->ngop", grouped(source[where], 1, g), grouped(weight[(..., *k)], 0, g))
    bias, norm, residual = (x[i] if i < len(x) else None for i in (2, 3, 7))
    if norm is not None:
        raise PlanError("fused_conv: has batch norm, which is not interpreted")
    y = y.reshape(shape) + (0 if bias is None else bias.reshape(-1, *[1] * (len(shape) - 2))) + (0 if residual is None else residual)
    return [np.where(y < 0, 0, y) if a.get("activation") == "relu" else y]
@op("conv_input_grad")
def _conv_input_grad(a, x, out):
    weight, shape, g, grad = wide(x[1]), a["input_shape"], a["groups"], wide(x[0])
    result = padded(a, np.zeros(shape), weight.shape[2:], grad.shape[2:])
    for k, where in taps(a, weight.shape[2:], grad.shape[2:]):
        part = np.einsum("ngop,goc->ngcp", grouped(grad, 1, g), grouped(weight[(..., *k)], 0, g))
        result[where] += part.reshape(result[where].shape)
    return [result[(..., *(slice(p, p + n) for p, n in zip(a["padding"], shape[2:])))]]
@op("conv_weight_grad")
def _conv_weight_grad(a, x, out):
    shape, g, grad = a["weight_shape"], a["groups"], wide(x[0])
    source, result = padded(a, x[1], shape[2:], grad.shape[2:]), np.zeros(shape)
    for k, where in taps(a, shape[2:], grad.shape[2:]):
        result[(..., *k)] = np.einsum("ngop,ngcp->goc", grouped(grad, 1, g), grouped(source[where], 1, g)).reshape(shape[:2])
    return [result]
@op("fold_weight", "fold_bias")  # in float32, unless something is of float64
def _fold(a, x, out):
    kind = np.float64 if "float64" in (out[0]["dtype"], *(str(v.dtype) for v in x if v is not None)) else np.float32
    x = [v if v is None else v.astype(kind) for v in x]
    weight, (bias, mean, var, scale, shift) = (x[0], [None, None, *x[1:], None]) if a["op"] == "fold_weight" else (x[5], x[:5])
    s = kind(a["factor"]) if var is None else (1 if scale is None else scale) / np.sqrt(var + kind(a["eps"])) * kind(a["factor"])
    bias, shift = (0 if v is None else v for v in (bias, shift))
    if weight is None:
        return [(bias - (0 if mean is None else mean)) * s + shift * kind(a["factor"])]
    by = s if a["op"] == "fold_weight" else shift - mean * s
    rows = weight.reshape(a["groups"], weight.shape[0] // a["groups"], weight.shape[1], -1)
    made = rows * (by.reshape(*rows.shape[:2], 1, 1) if a["axis"] == 0 and np.ndim(by) else by.reshape(a["groups"] if np.ndim(by) else 1, 1, -1, 1))
    return [made.reshape(weight.shape) if a["op"] == "fold_weight" else bias + kind(wide(made).sum((2, 3)).reshape(-1))]
@op("max_pool", "max_pool_values")
def _max_pool(a, x, out):
    shape, kernel = out[0]["shape"], a["kernel_size"]
    source = padded(a, x[0].astype(np.float64), kernel, shape[2:], -np.inf)
    flat = padded(a, np.arange(np.prod(x[0].shape[2:])).reshape(1, 1, *x[0].shape[2:]), kernel, shape[2:], -1)
    best, index = np.full(shape, -np.inf), np.full(shape, -1)
    for _, where in taps(a, kernel, shape[2:]):
        takes = (flat[where] >= 0) & ((source[where] > best) | (index < 0))
        best, index = np.where(takes, source[where], best), np.where(takes, flat[where], index)
    return [best, index][:len(out)]
@op("max_pool_backward")
def _max_pool_backward(a, x, out):
    shape = a["input_shape"]
    result = np.zeros((shape[0] * shape[1], int(np.prod(shape[2:]))))
    n = len(result)
    np.add.at(result, (np.arange(n)[:, None], checked(x[1], result.shape[1]).reshape(n, -1)), wide(x[0]).reshape(n, -1))
    return [result.reshape(shape)]
@op("sgd_update", "sgd_momentum_update")
def _sgd(a, x, out):
    param, grad, lr = wide(x[0]), wide(x[1]), wide(x[2] if a["op"] == "sgd_update" else x[3])
    grad = (-grad if a["maximize"] else grad) + a["weight_decay"] * param
    if a["op"] == "sgd_update":
        return [param - lr * grad]
    first = len(x) > 4 and x[4] is not None and x[4] == 1
    buffer = grad if first else a["momentum"] * wide(x[2]) + (1 - a["dampening"]) * grad
    return [param - lr * (grad + a["momentum"] * buffer if a["nesterov"] else buffer), buffer]
def steps(calls, x, dtypes):  # all values of a nested graph, each rounded as if it were stored
    x, dtypes = list(x), list(dtypes)
    for call in calls:
        y = np.array(OPS[call["op"]](a := attributes(call), [x[i] for i in call["operands"]], None)[0])
        dtypes.append(a["dtype"] if "dtype" in a else "bool" if y.dtype == bool else dtypes[call["operands"][-1]])
        x.append(load(encode(y, dtypes[-1]), dtypes[-1]))
    return x
@op("fused", "fused_reduce", "fused_rows")
def _fused(a, x, out):
    y = steps(a["body"]["calls"], x, a["dtypes"])
    return [REDUCTIONS[a["reduction"]](wide(y[-1])) if a["op"] == "fused_reduce" else y[i] for i in a["body"]["outputs"]]
@op("multi_update")  # of each call first what is replaced, then of each the others
def _multi_update(a, x, out):
    n, copy, (*calls, last), made = a["count"], bool(a.get("copy")), a["body"]["calls"], []
    r, more = (len(out) - copy) // n, (len(x) - len(out) + copy) // n
    for c in range(n):
        own = [*range(c * r, c * r + r), *range(n * r + c * more, n * r + c * more + more)]
        y = steps(calls, [x[i] for i in own], [a["dtypes"][i] for i in own])
        made += OPS[last["op"]](attributes(last), [y[i] for i in last["operands"]], None)
    return made + made[:1] * copy


# --- The machine ---
# What one firing has: `tokens` edge -> numbers taken; `slots` register -> number to write; in `fresh`, begun by it.
Firing = namedtuple("Firing", "tokens slots fresh emitted released")


class Interpreter:
    def __init__(self, plan, weights, functions=None):
        self.plan, self._ended = plan, False  # `functions`: by name, of one result; those of sources may raise StopIteration
        self._kernels = [{**k, "attrs": {"call": (functions or {}).get(k["attrs"].get("name")), **attributes(k),
                                         "dtypes": [v["dtype"] for v in k["inputs"]]}} for k in plan["kernels"]]
        self._arenas = [np.full(a["bytes"], 0xA5, np.uint8) for a in plan["arenas"]]
        self._buffers = [self._place(b) for b in plan["buffers"]]
        self.variables, self._void = {}, set()  # the latter: buffers, of what is made in a branch not taken
        for v in plan["variables"]:
            size = int(np.prod(v["shape"])) * np.dtype(STORED[v["dtype"]]).itemsize
            if len(weights.get(v["name"], b"")) != size:
                raise PlanError(f"variable '{v['name']}': {len(weights.get(v['name'], b''))} bytes given; must be {size}")
            self.variables[v["name"]] = np.frombuffer(bytearray(weights[v["name"]]), np.uint8)
        self._derived = {p: c for p, c in enumerate(plan.get("packed", [])) if "derived" in c}  # of variables that no kernel writes
        for c, d in [(c, c["derived"]) for c in self._derived.values()]:
            inputs = [None if v < 0 else load(self.variable(plan["variables"][v]["name"]), plan["variables"][v]["dtype"]) for v in d["inputs"]]
            self.variables[c["name"]] = encode(OPS[d["op"]](attributes(d), inputs, [d])[0], d["dtype"]).reshape(-1).view(np.uint8)
        registers, edges, actors = plan["registers"], plan["edges"], plan["actors"]
        self._inputs_of = [[e for e, edge in enumerate(edges) if edge["consumer"] == a] for a in range(len(actors))]
        self._outputs_of = [[r for r, reg in enumerate(registers) if reg["producer"] == a] for a in range(len(actors))]
        self._edges_of = [[e for e, edge in enumerate(edges) if edge["reg"] == r] for r in range(len(registers))]
        self._overwriter = {reg["in_place_of"]: r for r, reg in enumerate(registers) if reg["in_place_of"] >= 0}
        # The whole state: how many tokens have passed each point since the beginning.
        self._acquired, self._emitted = ([r["initial_tokens"] for r in registers] for _ in range(2))
        self._taken, self._released, self._firings, self._credits = ([0] * len(x) for x in (edges, edges, actors, actors))
        self._held = [{} for _ in actors]  # edge or ("slot", register) -> numbers, within a hold or a period
        for slot in (s for r in registers for s in r["slots"][:r["initial_tokens"]]):
            self._buffers[slot][:] = 0

    def _place(self, buffer):
        arena, begin, end = self._arenas[buffer["arena"]], buffer["offset"], buffer["offset"] + buffer["bytes"]
        if begin % ALIGNMENT or end > len(arena):
            raise PlanError(f"buffer '{buffer['name']}': bytes {begin} to {end} do not lie aligned in {len(arena)} bytes")
        return arena[begin:end]

    def _freed(self, r):  # tokens of register r whose slots have come back: all consumers have returned them
        return min((self._returned(e) for e in self._edges_of[r]), default=self._emitted[r])

    def _returned(self, e):  # a token overwritten in place comes back once its successor's slot has, too
        over = self._overwriter.get(e)
        return self._released[e] if over is None else min(self._released[e], self._freed(over))

    def waits(self, a):  # what actor a waits for before its next firing; empty: it can fire
        plan, n, waits = self.plan, self._firings[a], []
        if plan["actors"][a]["role"] in ("source", "feed") and self._credits[a] == 0:
            waits.append("a start credit")
        for e in self._inputs_of[a]:
            edge = plan["edges"][e]
            if n % edge["hold"] == 0 and self._emitted[edge["reg"]] - self._taken[e] < edge["take"]:
                waits.append(f"data on '{plan['registers'][edge['reg']]['name']}'")
        for r in self._outputs_of[a]:
            reg = plan["registers"][r]
            if n % reg["emit_every"] == 0 and self._acquired[r] - self._freed(r) >= reg["quota"]:
                waits.append(f"a free slot of '{reg['name']}'")
        return waits

    def _begin(self, a):
        plan, n, held = self.plan, self._firings[a], self._held[a]
        for e in self._inputs_of[a]:
            if n % plan["edges"][e]["hold"] == 0:
                held[e] = range(self._taken[e], self._taken[e] + plan["edges"][e]["take"])
                self._taken[e] = held[e].stop
        fresh = {r for r in self._outputs_of[a] if n % plan["registers"][r]["emit_every"] == 0}
        for r in fresh:
            held["slot", r] = self._acquired[r]
            self._acquired[r] += 1
        self._credits[a] -= plan["actors"][a]["role"] in ("source", "feed")
        return Firing({e: held[e] for e in self._inputs_of[a]}, {r: held["slot", r] for r in self._outputs_of[a]}, fresh,
                      set(), set())

    def _fire(self, a, feed, collect):
        """One firing, as a generator that pauses after each instruction."""
        plan, actor, firing = self.plan, self.plan["actors"][a], self._begin(a)
        for given in plan["inputs"] if actor["role"] == "feed" else ():
            self._store(a, firing, {**given, "base": "register", "index": given["reg"], "offset": 0}, np.asarray(feed[given["name"]]))
        if actor["role"] == "sink":
            if void := [o["name"] for o in plan["outputs"] if self._base(a, firing, o["view"], False) in self._void]:
                raise PlanError(f"output '{void[0]}' is void: it is made in a branch that was not taken")
            collect({o["name"]: self._stored(a, firing, o["view"], False).copy() for o in plan["outputs"]})
        for kind, index in actor["program"]:
            if kind == "run":
                try:
                    self._run(a, firing, self._kernels[index])
                except StopIteration:
                    return self._abandon(a, firing)
            elif kind == "emit":
                if index not in firing.slots or index in firing.emitted:
                    raise PlanError(f"actor '{actor['name']}': emits register {index}, which is not its to emit now")
                firing.emitted.add(index)
                self._emitted[index] += (self._firings[a] + 1) % plan["registers"][index]["emit_every"] == 0
            else:
                if index not in firing.tokens or index in firing.released:
                    raise PlanError(f"actor '{actor['name']}': releases edge {index}, which is not its to release now")
                firing.released.add(index)
                edge = plan["edges"][index]
                self._released[index] += edge["take"] if (self._firings[a] + 1) % edge["hold"] == 0 else 0
            yield
        if len(firing.emitted) < len(firing.slots) or len(firing.released) < len(firing.tokens):
            raise PlanError(f"actor '{actor['name']}': did not emit or release everything; each must be, once per firing")
        self._firings[a] += 1

    def _abandon(self, a, firing):  # a source's data has ended: this firing has not happened, and none comes after it
        if self.plan["actors"][a]["role"] != "source" or firing.emitted or firing.released:
            raise PlanError(f"actor '{self.plan['actors'][a]['name']}': only a source may end, before it emits or releases")
        for e in firing.tokens:
            self._taken[e] -= self.plan["edges"][e]["take"] if self._firings[a] % self.plan["edges"][e]["hold"] == 0 else 0
        for r in firing.fresh:
            self._acquired[r] -= 1
        self._credits[a], self._ended = 0, True

    def _base(self, a, firing, view, writing):  # where it lies: a buffer's number, or a variable's name
        index = view["index"]
        if view["base"] != "register":
            return index if view["base"] == "buffer" else self._derived.get(view.get("packed"), self.plan["variables"][index])["name"]
        reg = self.plan["registers"][index]
        edge = next((e for e in firing.tokens if self.plan["edges"][e]["reg"] == index), None)
        if index in firing.slots and (writing or edge is None):
            if writing and index in firing.emitted:
                raise PlanError(f"register '{reg['name']}': written after its emit")
            number = firing.slots[index]
        elif edge is None or writing or edge in firing.released:
            raise PlanError(f"register '{reg['name']}': '{self.plan['actors'][a]['name']}' has no token or slot of it now")
        else:
            number = firing.tokens[edge][view["token"]]
        return reg["slots"][number % reg["quota"]]

    def _stored(self, a, firing, view, writing):  # the elements of a view
        where, kind = self._base(a, firing, view, writing), np.dtype(STORED[view["dtype"]])
        base = self.variables[where] if isinstance(where, str) else self._buffers[where]
        if 0 in view["shape"]:
            return np.empty(view["shape"], kind)
        try:
            return np.ndarray(view["shape"], kind, base, view["offset"], [s * kind.itemsize for s in view["strides"]])
        except (ValueError, TypeError) as error:
            raise PlanError(f"a view of {view['shape']} at {view['offset']} does not lie in {len(base)} bytes: {error}") from None

    def _store(self, a, firing, view, values):
        self._stored(a, firing, view, True)[...] = encode(values, view["dtype"]).reshape(view["shape"])
        self._void.discard(self._base(a, firing, view, True))

    def _voids(self, a, firing, kernel):  # per output: whether it is void, of a branch that is not taken
        void = [self._base(a, firing, v, False) in self._void for v in kernel["inputs"]]
        if kernel["op"] not in ("case", "esac"):
            return [any(void)] * len(kernel["outputs"])
        n = len(kernel["outputs"]) if kernel["op"] == "case" else len(void) - 1
        index = -1 if void[0] else int(checked(self._stored(a, firing, kernel["inputs"][0], False), n))
        return [void[1] or i != index for i in range(n)] if kernel["op"] == "case" else [void[0] or void[1 + index]]

    def _run(self, a, firing, kernel):
        if kernel["op"] not in OPS:
            raise PlanError(f"kernel '{kernel['name']}': op '{kernel['op']}' is not read by this interpreter: NumPy's may differ")
        inputs = [None if v["base"] == "buffer" and v["index"] == -1 else self._stored(a, firing, v, False)
                  for v in kernel["inputs"]]
        voids = self._voids(a, firing, kernel)  # of a token that several write, those count that are not
        old = [v["base"] == "register" and v["index"] not in firing.fresh for v in kernel["outputs"]]
        self._void |= {self._base(a, firing, v, True) for v, void, o in zip(kernel["outputs"], voids, old) if void and not o}
        if all(voids):
            return
        before = [load(self._stored(a, firing, v, True).copy(), v["dtype"]) for v, o in zip(kernel["outputs"], old)
                  if kernel["op"] == "accumulate" and o and self._base(a, firing, v, True) not in self._void]
        places = {(i.ctypes.data, i.strides, i.shape) for i in inputs if i is not None and kernel["op"] in IN_PLACE}
        # Memory that a kernel does not promise to keep is spoiled: its scratch memory, and outputs that are not in place.
        scratch = self._buffers[kernel["workspace"]] if kernel["workspace"] >= 0 else np.empty(0, np.uint8)
        scratch[:] = 0x5A
        for view in kernel["outputs"]:
            output = self._stored(a, firing, view, True)
            if (output.ctypes.data, output.strides, output.shape) not in places:
                output[...] = np.frombuffer(b"\xA5" * output.itemsize, output.dtype)[0] if output.dtype != bool else True
        values = [None if i is None else load(i, v["dtype"]) for i, v in zip(inputs, kernel["inputs"])]
        with np.errstate(all="ignore"):
            results = [np.array(r) for r in OPS[kernel["op"]](kernel["attrs"], values + before, kernel["outputs"])]
        for view, result, void in zip(kernel["outputs"], results, voids, strict=True):
            void or self._store(a, firing, view, result)
        scratch[:] = 0x5A

    def run(self, steps, seed=None):
        """Outputs of each step by name (bfloat16 as its bits). `steps`: a dict of inputs for each. An even seed chooses
        at random each time, an odd one gives actors random priorities, so that some fall behind as far as they can."""
        plan, actors, chance, outputs, busy = self.plan, self.plan["actors"], random.Random(seed), [], {}
        starts = [actor.get("starts", plan.get("micro_batches", 1)) for actor in actors]  # the latter in older files
        parts = lambda n: ({k: v if np.ndim(v) == 0 else np.split(v, n)[i] for k, v in s.items()} for s in steps for i in range(n))
        feeds = [parts(n) for n in starts]
        self._credits = [c + len(steps) * n * (x["role"] in ("source", "feed")) for c, n, x in zip(self._credits, starts, actors)]
        rank = {choice: chance.random() for choice in range(-len(actors), len(plan["streams"]))}
        while True:  # busy: stream -> the firing in progress, as a stream does one thing at a time
            able = [a for a, actor in enumerate(actors) if actor["stream"] not in busy and not self.waits(a)]
            if not (choices := [*busy, *(~a for a in able)]):
                break
            choice = choices[0] if seed is None else max(choices, key=rank.get) if seed % 2 else chance.choice(choices)
            if choice < 0:
                a, choice = ~choice, actors[~choice]["stream"]
                feed = next(feeds[a]) if actors[a]["role"] == "feed" else None
                busy[choice] = self._fire(a, feed, outputs.append)
            if next(busy[choice], busy) is busy:
                del busy[choice]
        if not self._ended and (any(self._credits) or (plan["outputs"] and len(outputs) < len(steps))):
            stuck = [f"'{actor['name']}' waits for {', '.join(self.waits(a))}" for a, actor in enumerate(actors)]
            raise PlanError(f"nothing can fire after {len(outputs)} of {len(steps)} steps: " + "; ".join(stuck))
        pace = {a: Fraction(n) for a, n in enumerate(starts) if actors[a]["role"] in ("source", "feed")}  # firings per step
        for edge in plan["edges"] * (len(actors) if self._ended else 0):
            if (reg := plan["registers"][edge["reg"]])["producer"] in pace:
                pace.setdefault(edge["consumer"], pace[reg["producer"]] / reg["emit_every"] / edge["take"] * edge["hold"])
        n = max([len(outputs) // len(steps), *(int(p) for a, p in pace.items() if actors[a]["role"] == "sink")])
        # A sink that fires several times for a step gives it the rows of each in turn.
        return outputs if n < 2 else [{k: np.concatenate([o[k] for o in outputs[i:i + n]]) for k in outputs[i]}
                                      for i in range(0, len(outputs) - n + 1, n)]

    def variable(self, name):  # its present content (bfloat16 as its bits)
        v = next(v for v in self.plan["variables"] if v["name"] == name)
        return self.variables[name].view(STORED[v["dtype"]]).reshape(v["shape"])


def open_bundle(directory):
    return Interpreter(read_plan(directory), read_weights(pathlib.Path(directory) / "weights.safetensors"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--inputs", required=True, help=".npz by input name, with a leading axis of steps")
    parser.add_argument("--outputs", required=True, help=".npz to write")
    parser.add_argument("--seed", type=int, help="fire in a random order")
    args = parser.parse_args()
    given = dict(np.load(args.inputs))
    outputs = open_bundle(args.bundle).run([dict(zip(given, values)) for values in zip(*given.values())], args.seed)
    np.savez(args.outputs, **{n: np.stack([o[n] for o in outputs]) for n in outputs[0]})
    print(f"{len(outputs)} steps: {', '.join(outputs[0])}")


if __name__ == "__main__":
    main()
