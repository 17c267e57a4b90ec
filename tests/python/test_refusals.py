"""Every refusal of a program says what is wrong, the smallest change that fixes it, and how to look at it (C-29).

Each program below is wrong. The change its error suggests is made by one function that knows no program, and then it
compiles and runs."""

import ast
import copy
import importlib.util
import json
import os
import subprocess

import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool
from test_plan_interpreter import hand_plan

HEAD = """import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F


class Program(nn.Graph):
    def __init__(self):
        super().__init__(name="program")
        {setup}

    def build(self, x, y):
        {build}


x = {x}
y = {y}
"""


def program(build, setup="pass", x="sl.ones(4, 3)", y="sl.ones(5, 3)"):
    return HEAD.format(build=build.replace("\n", "\n        "), setup=setup.replace("\n", "\n        "), x=x, y=y)


def deadlocked(**change):
    """The sum's plan with a register of the cycle between its two actors changed."""
    plan = hand_plan()
    plan["certificate"] = []
    for name, fields in change.items():
        next(r for r in plan["registers"] if r["name"] == name).update(fields)
    return plan


def without_credit():
    """The first actor waits for a control token from the second, which waits for the first: one must be there before."""
    plan = deadlocked()
    plan["registers"].append({"name": "credit", "producer": 2, "quota": 1, "bytes": 0, "slots": [], "emit_every": 1,
                              "initial_tokens": 0, "in_place_of": -1})
    plan["edges"].append({"reg": 4, "consumer": 1, "take": 1, "hold": 1})
    plan["actors"][1]["program"].insert(0, ["release", 4])
    plan["actors"][2]["program"].append(["emit", 4])
    return plan


LINEAR = "self.model = nn.Linear(3, 2)\nself.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.1))\n"
PROGRAMS = {
    # Options
    "memory": program("return (x @ y.t()).relu()", "self.config.set_memory_budget(100)"),
    "memory of a training": program("self.model(x).sum().backward()", LINEAR + "self.config.set_memory_budget(8)"),
    "quota of nothing": program("return x + 1", "self.config.set_quota('imagse', 3)"),
    "quota of none": program("return x + 1", "self.config.set_quota('x', 0)"),
    "cores": program("return x + 1", "self.config.set_cores(-2)"),
    # Places
    "device": program("return x + 1", "self.config.set_device('cuda:3')"),
    "device of an op": program("with sl.device('cuda:1'):\n    z = x * 2\nreturn z + 1"),
    "host stream": program("with sl.stream('hots'):\n    z = x * 2\nreturn z + 1"),
    "compute stream": program("with sl.stream('gpu'):\n    z = x * 2\nreturn z + 1"),
    # Shapes
    "matmul": program("return x @ y"),
    "linear": program("return F.linear(x.t(), y)"),
    "broadcast": program("return x + y", y="sl.ones(4)"),
    "axis of a sum": program("return x.sum(5)"),
    "axis of a softmax": program("return F.softmax(x, 2)"),
    "reshape": program("return x.reshape(7)"),
    "concat": program("return sl.cat([x, y], 1)"),
    "channels last": program("return F.conv2d(x, y)", x="sl.ones(2, 8, 8, 3)", y="sl.ones(4, 3, 3, 3)"),
    # Dtypes
    "embedding": program("return F.embedding(x, y)", x="sl.ones(4)"),
    "gather": program("return x.gather(1, y)", y="sl.zeros(4, 2)"),
    "index": program("return x.index_select(0, y)", y="sl.zeros(2)"),
    "argmax": program("return (x > 0).argmax(1)"),
    # Python control flow on values that exist only when the graph runs
    "if": program("if x.sum() > 0:\n    z = x * 2\nelse:\n    z = x - 1\nreturn z"),
    "conditional": program("z = x * 2 if x.sum() > 0 else x - 1\nreturn z"),
    # Plans
    "no initial token": deadlocked(total={"initial_tokens": 0}),
    "no room": deadlocked(total={"quota": 1, "slots": [2]}),
    "no credit": without_credit(),
}


class Choices(ast.NodeTransformer):
    """`a if c else b`, and an `if` that sets one name both ways, as sluice.where."""

    def __init__(self, line):
        self.line = line

    def where(self, node, a, b):
        call = ast.parse("sl.where(0, 0, 0)", mode="eval").body
        call.args = [node.test, a, b]
        return call

    def visit_IfExp(self, node):
        return self.where(node, node.body, node.orelse) if node.lineno == self.line else node

    def visit_If(self, node):
        if node.lineno != self.line:
            return self.generic_visit(node)
        (then,), (other,) = node.body, node.orelse
        return ast.Assign(targets=then.targets, value=self.where(node, then.value, other.value))


def apply_fix(work, fix):
    """Makes one suggested change: to a file, or to what every further graph is compiled with."""
    if "register" in fix:
        register = next(r for r in work["plan"]["registers"] if r["name"] == fix["register"])
        register.update({k: v for k, v in fix.items() if k != "register"})
        arena = work["plan"]["arenas"][0]
        while register["bytes"] and len(register["slots"]) < register["quota"]:
            register["slots"].append(len(work["plan"]["buffers"]))
            work["plan"]["buffers"].append({"name": f"{register['name']}+", "arena": 0, "offset": arena["bytes"],
                                            "bytes": register["bytes"]})
            arena["bytes"] += -(-register["bytes"] // 64) * 64
    elif "rewrite" in fix:
        file, line = fix["line"].rsplit(":", 1)
        assert file == "program.py"
        tree = Choices(int(line)).visit(ast.parse(work["source"]))
        work["source"] = ast.unparse(ast.fix_missing_locations(tree))
    else:
        work["fixes"].append(fix)


def run(work, directory):
    if "plan" in work:
        os.makedirs(directory, exist_ok=True)
        for name, text in (("plan.json", json.dumps(work["plan"])), ("graph.txt", ""), ("meta.json", "{}")):
            (directory / name).write_text(text)
        (directory / "weights.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        engine = sl._C.Engine()
        return engine.load(str(directory)).run([sl.ones(4)])
    (directory / "program.py").write_text(work["source"])
    spec = importlib.util.spec_from_file_location("program", directory / "program.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph = module.Program()
    for fix in work["fixes"]:
        graph.config.apply_fix(fix)
    graph(module.x, module.y)
    graph.synchronize()
    return graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_suggested_change_fixes_it(name, tmp_path):  # C-29
    given = copy.deepcopy(PROGRAMS[name])
    work = {"plan": given} if isinstance(given, dict) else {"source": given, "fixes": []}
    with pytest.raises(sl.Error):
        run(work, tmp_path)
    for _ in range(2):  # one change at a time; the last attempt must succeed
        try:
            run(work, tmp_path)
            break
        except sl.Error as error:
            text = str(error)
            assert error.fix, text
            assert "; " in text.split("\n  fix: ")[0] or "(" in text  # the cause, and what must hold
            assert "\n  fix: " in text
            if "plan" not in work:
                assert "plan-viz " in text.split("\n  look: ")[1]
            apply_fix(work, error.fix)
    else:
        pytest.fail(f"not fixed: {work}")


def test_errors_without_a_known_fix_have_none():
    class Undefined(nn.Graph):
        def build(self, x):
            return x.reshape(3, 3) @ sl.ones(17, 19)

    with pytest.raises(ValueError) as caught:
        Undefined()(sl.ones(9))
    assert isinstance(caught.value, sl.Error) and caught.value.fix is None and "fix:" not in str(caught.value)
    with pytest.raises(ValueError, match="changes the program or a plan file"):
        Undefined().config.apply_fix({"register": "x", "quota": 2})


@pytest.mark.parametrize("build, view", [("return x @ y", "ir"), ("return x @ y.t()", "mem")])
def test_the_command_shows_what_was_refused(build, view, tmp_path, monkeypatch):  # C-29
    monkeypatch.setenv("SLUICE_DUMP_IR", str(tmp_path / "dump"))
    source = program("z = x * 2\n" + build, "self.config.set_memory_budget(1)")
    with pytest.raises(sl.Error) as caught:
        run({"source": source, "fixes": []}, tmp_path)
    command = str(caught.value).split("\n  look: ")[1].split()
    assert command[:2] == ["plan-viz", view]
    shown = subprocess.run([find_tool("plan-viz"), *command[1:]], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert ("mul" if view == "ir" else "arena") in shown.stdout


def test_options_may_be_set_after_a_refusal():
    class Small(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Small()
    graph.config.set_memory_budget(1)
    with pytest.raises(MemoryError):
        graph(sl.ones(2))
    graph.config.set_memory_budget(100000)
    assert graph(sl.ones(2)).tolist() == [2, 2]
