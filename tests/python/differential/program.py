"""A program as plain data, and its Python source.

A program is a dict that JSON can hold:

    seed, dtype         where it came from; the type of its parameters
    parameters          [{"name": "w0", "shape": [3, 4], "data": DATA}], or {"name": "w1", "tied": "w0"}
    buffers             [{"name": "b0", "shape": [4], "dtype": "float64", "data": DATA}]
    modules             [{"name": "m0", "code": "torch.nn.Linear(3, 4, dtype=torch.float64)"}]
    inputs              nests, one for each argument; a leaf is {"name", "shape", "dtype", "data", "strided"}
    body                [{"code": "t0 = x0 + w0", "scopes": ["torch.no_grad()"]}]
    outputs             a nest of names
    optimizers          [{"class", "groups": [{"params": ["net.w0"], ...options}], "options": {...}, "schedule": code or None}]
    steps, training     how often it is called; whether its modules are in training mode
    micro_batches       equal parts of the inputs, along axis 0
    config              [["set_granularity", "op"], ...]: of the graph
    pipelined           the graph's results are read after the last step only
    graph               whether it can be a graph

DATA is [kind, seed, ...] (see `numbers` in executor.py). A nest is a list ["dict", {...}], ["list", [...]],
["tuple", [...]], ["constant", value], ["leaf", ...].
"""

from __future__ import annotations

import ast
import re

NAME = re.compile(r"\b[xwbmt]\d+\b")


def leaves(nest):
    """The leaves of a nest, in order."""
    kind, value = nest
    if kind == "leaf":
        return [value]
    if kind == "constant":
        return []
    return [leaf for child in (value.values() if kind == "dict" else value) for leaf in leaves(child)]


def render(nest, leaf):
    """A nest as Python source; `leaf` gives that of a leaf."""
    kind, value = nest
    if kind == "leaf":
        return leaf(value)
    if kind == "constant":
        return repr(value)
    if kind == "dict":
        return "{" + ", ".join(f"{k!r}: {render(v, leaf)}" for k, v in value.items()) + "}"
    items = ", ".join(render(v, leaf) for v in value)
    return f"[{items}]" if kind == "list" else f"({items},)"


def paths(nest, path):
    """(leaf, Python source that reaches it from `path`)."""
    kind, value = nest
    if kind == "leaf":
        return [(value, path)]
    if kind == "constant":
        return []
    children = value.items() if kind == "dict" else enumerate(value)
    return [found for key, child in children for found in paths(child, f"{path}[{key!r}]")]


def targets(code):
    """The names that a statement defines."""
    node = ast.parse(code).body[0]
    if not isinstance(node, ast.Assign) or isinstance(node.targets[0], ast.Subscript):
        return []
    found = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return [name for name in found if NAME.fullmatch(name)]


def reads(code):
    """The names that a statement needs; tensors that it writes to are among them."""
    defined = set(targets(code))
    return [name for name in dict.fromkeys(NAME.findall(code)) if name not in defined]


def names_of(program, kind):
    return [entry["name"] for entry in program[kind]]


def input_leaves(program):
    return [leaf for nest in program["inputs"] for leaf in leaves(nest)]


def _made(leaf, micro_batches, seed):
    shape = list(leaf["shape"])
    if shape:
        shape[0] *= micro_batches
    kind, _, *more = leaf["data"]
    data = ", ".join([repr(kind), seed, *map(repr, more)])
    strided = ", strided=True" if leaf.get("strided") else ""
    return f"numbers({tuple(shape)}, {leaf['dtype']!r}, [{data}]{strided})"


def source(program):
    """Python source of the class Net and of the functions `arguments` and `optimizers`; the executor gives it its names."""
    dtype = program["dtype"]
    lines = ["class Net(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for p in program["parameters"]:
        made = f"self.{p['tied']}" if "tied" in p else f"torch.nn.Parameter(numbers({tuple(p['shape'])}, {dtype!r}, {p['data']!r}))"
        lines.append(f"        self.{p['name']} = {made}")
    lines += [f"        self.register_buffer({b['name']!r}, numbers({tuple(b['shape'])}, {b['dtype']!r}, {b['data']!r}))"
              for b in program["buffers"]]
    lines += [f"        self.{m['name']} = {m['code']}" for m in program["modules"]]
    arguments = [f"a{i}" for i in range(len(program["inputs"]))]
    lines += ["", f"    def forward({', '.join(['self', *arguments])}):"]
    found = [pair for name, nest in zip(arguments, program["inputs"]) for pair in paths(nest, name)]
    lines += [f"        {leaf['name']} = {path}" for leaf, path in found]
    own = [*names_of(program, "parameters"), *names_of(program, "buffers"), *names_of(program, "modules")]
    lines += [f"        {name} = self.{name}" for name in own]
    for statement in program["body"]:
        scopes = statement.get("scopes", [])
        lines += [f"        with {', '.join(scopes)}:"] if scopes else []
        lines.append(("            " if scopes else "        ") + statement["code"])
    lines += [f"        return {render(program['outputs'], str)}", "", "", "def arguments(step):"]
    n = program["micro_batches"]
    nests = [render(nest, lambda leaf: _made(leaf, n, f"{leaf['data'][1]} + step")) for nest in program["inputs"]]
    lines += [f"    return [{', '.join(nests)}]", "", ""]
    lines += ["def optimizers(net):", "    made = []"]
    for o in program["optimizers"]:
        groups = []
        for group in o["groups"]:
            options = "".join(f", {k!r}: {v!r}" for k, v in group.items() if k != "params")
            groups.append(f"{{'params': [{', '.join(group['params'])}]{options}}}")
        options = "".join(f", {k}={v!r}" for k, v in o["options"].items())
        lines.append(f"    made.append([torch.optim.{o['class']}([{', '.join(groups)}]{options}), None])")
        if o["schedule"]:
            lines.append(f"    made[-1][1] = torch.optim.lr_scheduler.{o['schedule'].replace('(', '(made[-1][0], ', 1)}")
    return "\n".join([*lines, "    return made", ""])
