"""Adds op "loop" to plan_interpreter.py: the program of a body, turn by turn, every value in memory of its own."""
import numpy as np
import plan_interpreter as machine


def run(a, x):
    """a: attributes, x: input arrays. Returns the last states, then what is stacked."""
    graph, states, count = a["program"], list(x[:a["states"]]), a["states"]
    rows, fixed = x[count:count + a["rows"]], x[count + a["rows"]:]
    stacked, turn = [{} for _ in graph["outputs"][count:]], 0
    while turn < a["length"] if a["length"] >= 0 else bool(states[0]):
        row = a["length"] - 1 - turn if a["reverse"] else turn
        given = _turn(graph, [*states, *(r[row] for r in rows), *fixed], a["dtypes"])
        states, turn = given[:count], turn + 1
        for made, value in zip(stacked, given[count:]):
            made[row] = value
    return states + [[made[i] for i in range(turn)] for made in stacked]


def _turn(graph, values, dtypes):
    dtypes = list(dtypes)
    memory = [None] * len(values)  # of what calls have made: bytes, as they lie
    for call in graph["calls"]:
        specs = call["results"]
        attrs = {"op": call["op"]} | {name: machine.attribute(value) for name, value in call["attrs"].items()}
        operands = [None if i < 0 else values[i] for i in call["operands"]]
        attrs["dtypes"] = [None if i < 0 else dtypes[i] for i in call["operands"]]
        if call["op"] == "window":
            stored = memory[call["operands"][0]]
            if stored is None:
                stored = np.ascontiguousarray(machine.encode(operands[0], specs[0]["dtype"])).tobytes()
            made = [_view(stored, specs[0], attrs["offset"])]
        elif call["op"] == "loop":
            made = run(attrs, operands)
        elif call["op"] not in machine.OPS:
            raise machine.PlanError(f"op '{call['op']}' in a loop is not read by this interpreter: NumPy's may differ")
        else:
            made = machine.OPS[call["op"]](attrs, operands, specs)
        for value, spec in zip(made, specs, strict=True):
            stored = machine.encode(np.array(value), spec["dtype"]).reshape(spec["shape"])
            values.append(machine.load(stored, spec["dtype"]))
            dtypes.append(spec["dtype"])
            memory.append(_lay(stored, spec) if call["op"] != "window" else None)
    return [values[i] for i in graph["outputs"]]


def _strides(spec, item):
    return tuple(s * item for s in spec["strides"])


def _lay(stored, spec):  # the bytes of values that lie as the spec says
    extent = 1 + sum((n - 1) * s for n, s in zip(spec["shape"], spec["strides"])) if stored.size else 0
    memory = np.zeros(extent, stored.dtype)
    np.lib.stride_tricks.as_strided(memory, spec["shape"], _strides(spec, stored.itemsize))[...] = stored
    return memory.tobytes()


def _view(stored, spec, offset):
    dtype = machine.STORED[spec["dtype"]]
    memory = np.frombuffer(stored, np.uint8)[offset:]
    memory = memory[:memory.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
    shown = np.lib.stride_tricks.as_strided(memory, spec["shape"], _strides(spec, memory.itemsize))
    return machine.load(shown.copy(), spec["dtype"])


machine.OPS["loop"] = lambda a, x, out: run(a, x)
