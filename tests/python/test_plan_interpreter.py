"""An independent reading of the plan format gives the engine's results bit for bit, and finds plans that are wrong."""

import copy
import importlib.util
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool

from exact_graphs import ExactGraph, inputs_of

SOURCE = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "plan_interpreter.py")
spec = importlib.util.spec_from_file_location("plan_interpreter", SOURCE)
interpreter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(interpreter)


def compiled(graph, steps, directory):
    """The graph compiled for the first step, and saved."""
    graph.compile(**{n: sl.from_numpy(v) for n, v in steps[0].items()})
    sl.save(graph, directory)
    return graph


def engine_outputs(graph, steps):
    """The outputs of each step in the plan's order."""
    results = [graph(**{n: sl.from_numpy(v) for n, v in step.items()}) for step in steps]
    return [[t.numpy() for t in (r if isinstance(r, (list, tuple)) else [r])] for r in results]


def assert_bitwise(ours, theirs):
    assert len(ours) == len(theirs)
    for step, (mine, engine) in enumerate(zip(ours, theirs)):
        for (name, a), b in zip(mine.items(), engine, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), f"step {step}, {name}:\n{a}\n{b}"


def check(graph, steps, directory, seed=None):
    """Runs both and compares outputs of every step, and the variables afterwards."""
    compiled(graph, steps, directory)
    machine = interpreter.open_bundle(directory)
    ours = machine.run(steps, seed)
    assert_bitwise(ours, engine_outputs(graph, steps))
    graph.synchronize()
    sl.save(graph, directory)
    after = interpreter.read_weights(os.path.join(directory, "weights.safetensors"))
    for name, content in machine.variables.items():
        assert content.tobytes() == after[name], name
    return machine


OPTIONS = {
    "default": lambda c: None,
    "op": lambda c: c.set_granularity("op"),
    "no_reuse": lambda c: (c.enable_reuse_mem(False), c.enable_inplace(False)),
    "quota_1": lambda c: c.set_outputs_buffer_size(1),
    "quota_4_op": lambda c: (c.set_outputs_buffer_size(4), c.set_granularity("op")),
    "unfused": lambda c: [c.disable_pass(name) for name in sl._C.pass_names()],
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("seed", range(7))
def test_random_graphs(seed, option, tmp_path):  # C-21: 42 plans
    graph = ExactGraph(seed, placed=seed % 2 == 1)
    OPTIONS[option](graph.config)
    check(graph, inputs_of(seed, 4), str(tmp_path / "bundle"), seed)


@pytest.mark.soak
def test_soak_random_graphs(repetitions, count, tmp_path):  # C-21
    plans = repetitions(10, 400)
    for seed in range(100, 100 + plans):
        graph = ExactGraph(seed, placed=seed % 3 != 0)
        OPTIONS[random.Random(seed).choice(list(OPTIONS))](graph.config)
        check(graph, inputs_of(seed, 3), str(tmp_path / "bundle"), seed)
        graph.close()
    count("plan interpreter", plans, "random plans, bitwise equal to the engine")


class Net(nn.Graph):
    """A net of whole numbers, with its loss, gradients and optimizer."""

    def __init__(self, model, optimizer=None, device=None):
        super().__init__(name="net")
        self.model = model
        draw = np.random.RandomState(5)
        with sl.no_grad():
            for p in model.parameters():
                p.copy_(sl.from_numpy(draw.randint(-2, 3, tuple(p.shape)).astype(np.float32)))
        if optimizer:
            self.add_optimizer(optimizer(model.parameters()))
        self._device = device

    def build(self, x):
        if self._device:
            with sl.device(self._device):
                y = self.model(x)
        else:
            y = self.model(x)
        if self._optimizers:
            y.sum().backward()
        return y


class PoolOfEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, x):
        return self.table(x).sum(1)


NETS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 6)),
    "conv": lambda: (nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2, groups=2),
                                   nn.Flatten(), nn.Linear(36, 2)), (2, 2, 8, 8)),
    "strided": lambda: (nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, dilation=2, padding=2), nn.MaxPool2d(3, 2, 1)), (2, 1, 9, 9)),
    "embedding": lambda: (PoolOfEmbeddings(), (3, 5)),
}
OPTIMIZERS = {
    "none": None,
    "sgd": lambda p: sl.optim.SGD(p, lr=0.5),
    "momentum": lambda p: sl.optim.SGD(p, lr=0.25, momentum=0.5, nesterov=True),
    "decay": lambda p: sl.optim.SGD(p, lr=0.5, momentum=0.5, weight_decay=0.5, maximize=True),
}


def exact_steps(net, optimizer):
    """After one update the numbers of three layers no longer fit into a float32."""
    return 1 if net == "conv" and optimizer != "none" else 2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("granularity", ["program", "op"])
def test_nets_and_optimizers(net, optimizer, granularity, tmp_path):  # C-21: 32 plans
    model, shape = NETS[net]()
    graph = Net(model, OPTIMIZERS[optimizer])
    graph.config.set_granularity(granularity)
    draw = np.random.RandomState(1)
    kind = np.int64 if net == "embedding" else np.float32
    low = 0 if net == "embedding" else -2
    check(graph, [{"x": draw.randint(low, 3, shape).astype(kind)} for _ in range(exact_steps(net, optimizer))], str(tmp_path / "b"), 3)


@pytest.mark.parametrize("net", ["mlp", "embedding"])
@pytest.mark.parametrize("granularity", ["program", "op"])
@pytest.mark.parametrize("device", [None, "sim:0"])
def test_steps_of_micro_batches(net, granularity, device, tmp_path):  # C-21: rates, a slot that several firings fill
    draw = np.random.RandomState(1)
    kind, low = (np.int64, 0) if net == "embedding" else (np.float32, -2)
    for seed in range(4):
        model, shape = NETS[net]()
        graph = Net(model, OPTIMIZERS["momentum"], device)
        graph.config.set_granularity(granularity)
        graph.config.set_gradient_accumulation_steps(4)
        steps = [{"x": draw.randint(low, 3, (4 * shape[0], *shape[1:])).astype(kind)} for _ in range(2)]
        check(graph, steps, str(tmp_path / "b"), seed)


@pytest.mark.parametrize("granularity", ["program", "op"])
@pytest.mark.parametrize("staged", [True, False])
def test_stages_of_a_pipeline(granularity, staged, tmp_path):  # C-21: micro-batches overtake the backward pass
    class Stages(nn.Graph):
        def __init__(self):
            super().__init__(name="stages")
            self.model = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(3))
            self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.25))
            self.config.set_gradient_accumulation_steps(4)
            self.config.set_granularity(granularity)
            for i, stage in enumerate(self.model):
                with sl.no_grad():
                    stage.weight.copy_(sl.from_numpy(np.random.RandomState(i).randint(-1, 2, (4, 4)).astype(np.float32)))
                stage.config.stage_id = i if staged else None

        def build(self, x):
            for i, stage in enumerate(self.model):
                with sl.device(f"sim:{i}"):
                    x = stage(x).relu()
            loss = x.sum()
            loss.backward()
            return loss

    draw = np.random.RandomState(1)
    steps = [{"x": draw.randint(-2, 3, (8, 4)).astype(np.float32)}]
    for seed in range(4):
        check(Stages(), steps, str(tmp_path / "b"), seed)


@pytest.mark.parametrize("net", ["mlp", "conv"])
def test_nets_on_the_simulated_device(net, tmp_path):  # C-21: copies, events, memory of another space
    model, shape = NETS[net]()
    graph = Net(model, OPTIMIZERS["momentum"], "sim:0")
    draw = np.random.RandomState(1)
    steps = [{"x": draw.randint(-2, 3, shape).astype(np.float32)} for _ in range(exact_steps(net, "momentum"))]
    machine = check(graph, steps, str(tmp_path / "b"), 3)
    assert len(machine.plan["spaces"]) > 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool"])
def test_dtypes(dtype, tmp_path):  # C-21
    class Mixed(nn.Graph):
        def build(self, x):
            y = x.to(getattr(sl, dtype))
            return (y + y).to(sl.float32), (y * y).to(sl.float32), sl.where(x > 1, y, y).to(sl.float32), y.sum().to(sl.float32)

    check(Mixed(), [{"x": np.arange(12, dtype=np.float32).reshape(3, 4)}], str(tmp_path / "b"))


# Plans written by hand: what no compiler makes.


def hand_plan():
    """A source of numbers is summed over 3 firings and fed back: rates, holds, initial tokens, a control register."""
    def view(base, index, shape=(4,), token=0):
        return {"base": base, "index": index, "token": token, "offset": 0, "dtype": "float32", "shape": list(shape),
                "strides": [1] * len(shape)}

    def kernel(name, op, inputs, outputs, **attrs):
        return {"name": name, "op": op, "attrs": attrs, "inputs": inputs, "outputs": outputs, "workspace": -1, "file": "",
                "line": 0, "module": "", "cost_ns": 0, "collective": -1}

    def register(name, producer, quota, slots, bytes=16, **rates):
        return {"name": name, "producer": producer, "quota": quota, "bytes": bytes, "slots": slots, "emit_every": 1,
                "initial_tokens": 0, "in_place_of": -1, **rates}

    buffers = [{"name": f"b{i}", "arena": 0, "offset": 64 * i, "bytes": 16} for i in range(7)]
    return {
        "schema_version": 1, "name": "hand", "options": {}, "target": "test", "spaces": [{"kind": "host", "device": "cpu:0"}],
        "streams": [{"name": f"cpu:0/host{i}", "device": "cpu:0", "kind": "host", "index": i, "cores": 1} for i in range(2)],
        "arenas": [{"name": "all", "space": 0, "stream": -1, "bytes": 64 * 7, "lower_bound": 64 * 7}], "buffers": buffers,
        "variables": [],
        "kernels": [kernel("add", "add", [view("register", 0), view("register", 1)], [view("register", 2)]),
                    kernel("double", "add", [view("register", 2), view("register", 2)], [view("register", 3)]),
                    kernel("keep", "copy", [view("register", 2)], [view("register", 1)])],
        "actors": [{"name": "feed", "stream": 0, "role": "feed", "program": [["emit", 0]]},
                   {"name": "sum", "stream": 1, "role": "normal",
                    "program": [["run", 0], ["release", 0], ["release", 1], ["run", 2], ["emit", 1], ["emit", 2]]},
                   {"name": "double", "stream": 0, "role": "normal", "program": [["run", 1], ["release", 2], ["emit", 3]]},
                   {"name": "sink", "stream": 0, "role": "sink", "program": [["release", 3]]}],
        "registers": [register("x", 0, 2, [0, 1]), register("total", 1, 2, [2, 3], initial_tokens=1),
                      register("sums", 1, 2, [4, 5]), register("out", 2, 1, [6])],
        "edges": [{"reg": r, "consumer": c, "take": 1, "hold": 1} for r, c in ((0, 1), (1, 1), (2, 2), (3, 3))],
        "inputs": [{"name": "x", "reg": 0, "dtype": "float32", "shape": [4], "strides": [1]}],
        "outputs": [{"name": "y", "view": view("register", 3)}],
        "certificate": [0, 1, 2, 3],
    }


def ran(plan, steps, seed):
    return [step["y"].tolist() for step in interpreter.Interpreter(plan, {}).run(steps, seed)]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_feedback_through_an_initial_token(seed):
    steps = [{"x": np.full(4, i, np.float32)} for i in range(1, 6)]
    assert ran(hand_plan(), steps, seed) == [[2.0 * total] * 4 for total in (1, 3, 6, 10, 15)]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_rates(seed):
    plan = hand_plan()  # the second actor's sums leave once per 2 firings, the last ones
    plan["registers"][2]["emit_every"] = 2
    steps = [{"x": np.full(4, i, np.float32)} for i in range(1, 5)]
    machine = interpreter.Interpreter({**plan, "outputs": []}, {})
    assert len(machine.run(steps, seed)) == 2 and machine._firings == [4, 4, 2, 2]


def self_loops(seed):
    """hand_plan() with an actor that feeds registers back to itself: any kernel may read any token, and write any slot."""
    draw, plan, loops, scratch = random.Random(seed), hand_plan(), 1 + seed % 3, 2
    names = ["x", *[f"l{i}" for i in range(loops)], "y"]
    hold = draw.choice([1, 2])  # tokens of a loop are taken in pairs, or one by one
    plan["registers"], plan["edges"], plan["buffers"], plan["kernels"] = [], [], [], []

    def buffer():
        plan["buffers"].append({"name": f"b{len(plan['buffers'])}", "arena": 0, "offset": 64 * len(plan["buffers"]), "bytes": 16})
        return len(plan["buffers"]) - 1

    def view(base, index, token=0):
        return {"base": base, "index": index, "token": token, "offset": 0, "dtype": "float32", "shape": [4], "strides": [1]}

    for r, name in enumerate(names):
        loop = 0 < r < len(names) - 1
        quota, initial = (2 * hold, hold) if loop else (2, 0)
        plan["registers"].append({"name": name, "producer": min(r, 1), "quota": quota, "bytes": 16, "emit_every": 1,
                                  "slots": [buffer() for _ in range(quota)], "initial_tokens": initial, "in_place_of": -1})
        plan["edges"].append({"reg": r, "consumer": 1 if r < len(names) - 1 else 2, "take": hold if loop else 1,
                              "hold": hold if loop else 1})
    readable = [("register", 0), *[("register", r) for r in range(1, loops + 1)]]
    writable = [("register", r) for r in range(1, loops + 2)] + [("buffer", buffer()) for _ in range(scratch)]
    first = draw.sample(writable, len(writable))  # everything is written once, then some again
    for to in first + [draw.choice(writable) for _ in range(3)]:
        known = readable + [w for w in first[:len(plan["kernels"])] if w[0] == "buffer" or w[1] == loops + 1]
        operands = [view(*of, draw.randrange(hold) if of[0] == "register" and 0 < of[1] <= loops else 0)
                    for of in (draw.choice(known) for _ in range(2)) if of != to or of in readable]
        operands = (operands * 2)[:2] or [view("register", 0)] * 2
        name = draw.choice(["add", "sub", "maximum", "minimum"])
        plan["kernels"].append({"name": f"k{len(plan['kernels'])}", "op": name, "attrs": {}, "inputs": operands,
                                "outputs": [view(*to)], "workspace": -1, "file": "", "line": 0, "module": "", "cost_ns": 0,
                                "collective": -1})
    program = [["run", k] for k in range(len(plan["kernels"]))]
    ends = [["emit", r] for r in range(1, loops + 2)] + [["release", e] for e in range(loops + 1)]
    plan["actors"] = [plan["actors"][0], {**plan["actors"][1], "program": program + draw.sample(ends, len(ends))},
                      {**plan["actors"][3], "program": [["release", loops + 1]]}]
    plan["arenas"][0].update(bytes=64 * len(plan["buffers"]), lower_bound=64 * len(plan["buffers"]))
    plan["outputs"], plan["certificate"] = [{"name": "y", "view": view("register", loops + 1)}], []
    return plan


@pytest.mark.parametrize("seed", range(40))
def test_an_actor_reads_the_token_it_has_taken_of_what_it_feeds_back(seed, tmp_path):
    plan, steps = self_loops(seed), [{"x": np.random.RandomState(i).randint(-9, 9, 4).astype(np.float32)} for i in range(6)]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "graph.txt").write_text("")
    (tmp_path / "meta.json").write_text("{}")
    (tmp_path / "weights.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    session = sl._C.Engine().load(str(tmp_path))
    results = [session.run([sl.from_numpy(step["x"])]) for step in steps]
    assert_bitwise(interpreter.Interpreter(plan, {}).run(steps, seed), [[t.numpy() for t in r] for r in results])


# Planted bugs.


def planted(plan, change):
    plan = copy.deepcopy(plan)
    change(plan)
    return plan


def remove_release(plan):
    actor = next(a for a in plan["actors"] if a["role"] == "normal" and any(i[0] == "release" for i in a["program"]))
    actor["program"].remove(next(i for i in actor["program"] if i[0] == "release"))


def early_emit(plan):
    program = plan["actors"][1]["program"]
    program.remove(["emit", 2])
    program.insert(0, ["emit", 2])


def swap_slots(plan):
    plan["buffers"][2]["offset"], plan["buffers"][6]["offset"] = plan["buffers"][6]["offset"], plan["buffers"][4]["offset"]


PLANTED = {
    "overlap": lambda p: p["buffers"][4].update(offset=p["buffers"][2]["offset"]),
    "overlap_of_slots": lambda p: p["buffers"][5].update(offset=p["buffers"][4]["offset"]),
    "outside": lambda p: p["buffers"][6].update(offset=64 * 7),
    "unaligned": lambda p: p["buffers"][6].update(offset=32),
    "swapped": swap_slots,
    "no_release": remove_release,
    "early_emit": early_emit,
    "no_initial_token": lambda p: p["registers"][1].update(initial_tokens=0),
    "wrong_stride": lambda p: p["outputs"][0]["view"].update(strides=[2]),
    "wrong_order": lambda p: p["actors"][1]["program"].reverse(),
    "release_before_use": lambda p: p["actors"][2].update(program=[["release", 2], ["run", 1], ["emit", 3]]),
    "other_register": lambda p: p["kernels"][2]["inputs"][0].update(index=0),
    "take_too_many": lambda p: p["edges"][2].update(take=2),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_give_an_error_or_other_results(bug):  # C-21
    steps = [{"x": np.full(4, i, np.float32)} for i in range(1, 6)]
    good = ran(hand_plan(), steps, None)
    found = 0
    for seed in range(8):
        try:
            found += ran(planted(hand_plan(), PLANTED[bug]), steps, seed) != good
        except (interpreter.PlanError, IndexError):
            found += 1
    assert found > 0


def test_any_overlap_of_live_buffers_in_a_compiled_plan_is_found(tmp_path):  # C-21
    """Every pair of buffers of a net is laid on each other; the pairs that plan-viz refuses must give something else."""
    model, shape = NETS["conv"]()
    graph = Net(model, OPTIMIZERS["momentum"])
    graph.config.set_granularity("op")
    steps = [{"x": np.random.RandomState(i).randint(-2, 3, shape).astype(np.float32)} for i in range(3)]
    compiled(graph, steps, str(tmp_path / "b"))
    plan = interpreter.read_plan(tmp_path / "b")
    weights = interpreter.read_weights(tmp_path / "b" / "weights.safetensors")

    def results(p, seed=1):
        machine = interpreter.Interpreter(p, weights)
        outputs = machine.run(steps, seed)
        return [o.tobytes() for step in outputs for o in step.values()] + [v.tobytes() for v in machine.variables.values()]

    def unchanged(p, seed):
        try:
            return results(p, seed) == good
        except interpreter.PlanError:
            return False

    good, refused, missed = results(plan), 0, []
    tool = find_tool("plan-viz")
    for i, first in enumerate(plan["buffers"]):
        for second in plan["buffers"][i + 1:i + 4]:
            if first["arena"] != second["arena"] or first["offset"] == second["offset"] or second["bytes"] > first["bytes"]:
                continue
            wrong = planted(plan, lambda p: p["buffers"][plan["buffers"].index(second)].update(offset=first["offset"]))
            (tmp_path / "wrong.json").write_text(json.dumps(wrong))
            if subprocess.run([tool, "verify", tmp_path / "wrong.json"], capture_output=True).returncode == 0:
                assert results(wrong) == good  # legal after all
                continue
            refused += 1
            if all(unchanged(wrong, seed) for seed in range(80)):
                missed.append((first["name"], second["name"]))
    assert refused > 5 and not missed, (refused, missed)


def test_unknown_ops_are_named(tmp_path):
    class Tanh(nn.Graph):
        def build(self, x):
            return x.tanh()

    graph = compiled(Tanh(), [{"x": np.ones(3, np.float32)}], str(tmp_path / "b"))
    with pytest.raises(interpreter.PlanError, match="kernel 'tanh': op 'tanh' is not read by this interpreter"):
        interpreter.open_bundle(tmp_path / "b").run([{"x": np.ones(3, np.float32)}])
    graph.close()


def test_it_is_a_program_of_500_lines_without_sluice(tmp_path):  # C-21
    text = open(SOURCE).read()
    assert text.count("\n") <= 500 and "import sluice" not in text and "from sluice" not in text
    graph = compiled(ExactGraph(1), inputs_of(1, 3), str(tmp_path / "b"))
    steps = inputs_of(1, 3)
    np.savez(tmp_path / "in.npz", **{n: np.stack([s[n] for s in steps]) for n in steps[0]})
    process = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path += {[p for p in sys.path if 'site-packages' in p]!r}\n"
                              f"sys.argv = ['x', {str(tmp_path / 'b')!r}, '--inputs', {str(tmp_path / 'in.npz')!r}, '--outputs', "
                              f"{str(tmp_path / 'out.npz')!r}, '--seed', '3']\nexec(open({SOURCE!r}).read())\nassert 'sluice' not in "
                              "sys.modules"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    out = np.load(tmp_path / "out.npz")
    for step, engine in enumerate(engine_outputs(graph, steps)):
        for name, value in zip(out, engine):
            assert out[name][step].tobytes() == value.tobytes()
