"""A plan of any number of actors, as a plan.json: a chain that goes round eight streams."""

import json
import sys

OPS = ["linear", "add", "norm", "gelu", "mul"]
STREAMS = 8


def view(register):
    return {"base": "register", "index": register, "token": 0, "offset": 0, "dtype": "float32", "shape": [16], "strides": [1]}


def synthetic_plan(actors, name=None):
    registers = [{"name": f"r{i}", "producer": i, "quota": 2, "bytes": 64, "slots": [2 * i, 2 * i + 1], "emit_every": 1, "initial_tokens": 0,
                  "in_place_of": -1} for i in range(actors - 1)]
    modules = [f"layer{i // 100}.block{i // 10 % 10}" for i in range(actors)]
    kernels = [{"name": f"{modules[i]}.op{i}", "op": OPS[i % len(OPS)], "attrs": {}, "inputs": [view(i - 1)], "outputs": [view(i)], "workspace": -1,
                "file": "net.py", "line": i % 200 + 1, "module": modules[i], "cost_ns": str(500 + 37 * (i % 50)), "collective": -1}
               for i in range(1, actors - 1)]
    nodes = [{"name": f"actor{i}", "stream": i % STREAMS, "role": "normal", "program": [["run", i - 1], ["release", i - 1], ["emit", i]]} for i in range(actors)]
    nodes[0] = {"name": "feed", "stream": 0, "role": "feed", "starts": 1, "program": [["emit", 0]]}
    nodes[-1].update(name="sink", role="sink", program=[["release", actors - 2]])
    tensor = {"dtype": "float32", "shape": [16], "strides": [1]}
    return {
        "schema_version": 1, "name": name or f"synthetic{actors}", "options": {}, "target": "", "spaces": [{"kind": "host", "device": "cpu:0"}],
        "streams": [{"name": f"cpu:0/compute{s}", "device": "cpu:0", "kind": "compute", "index": s, "cores": 1} for s in range(STREAMS)],
        "arenas": [{"name": "registers", "space": 0, "stream": -1, "bytes": 128 * (actors - 1), "lower_bound": 128 * (actors - 1)}],
        "buffers": [{"name": f"r{b // 2}[{b % 2}]", "arena": 0, "offset": 64 * b, "bytes": 64} for b in range(2 * (actors - 1))],
        "variables": [], "kernels": kernels, "actors": nodes, "registers": registers,
        "edges": [{"reg": i, "consumer": i + 1, "take": 1, "hold": 1} for i in range(actors - 1)],
        "inputs": [{"name": "x", "reg": 0, **tensor}], "outputs": [{"name": "y", "view": view(actors - 2)}], "certificate": list(range(actors))}


if __name__ == "__main__":
    print(json.dumps(synthetic_plan(int(sys.argv[1]))))
