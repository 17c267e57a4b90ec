"""A saved graph that runs one firing at a time: plan-viz debug, and sluice.debug.Debugger (docs/adr/0065)."""

import json
import math
import re
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import debug, nn
from sluice._base.tools import find_tool

class Ratios(nn.Graph):
    """Logarithms on a device, which has copies to and from it."""

    def build(self, x, y):
        with sl.device("sim:0"):
            logs = x.log()
        return (logs - y).exp(), logs.sum()


class Train(nn.Graph):
    """Four micro-batches a step."""

    def __init__(self):
        super().__init__(name="train")
        self.layer = nn.Linear(3, 1)
        self.add_optimizer(sl.optim.SGD(self.layer.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, x):
        loss = self.layer(x).square().mean()
        loss.backward()
        return loss


X, Y = [1.0, 2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    for name, graph, inputs in (("ratios", Ratios(), (sl.tensor(X), sl.tensor(Y))), ("train", Train(), (sl.ones(8, 3),))):
        sl.manual_seed(0)
        graph.config.set_cores(1)
        graph(*inputs)
        sl.save(graph, folder / name)
    return folder


def run(bundle, script, *options, status=0):
    inputs = ["--input=" + ",".join(map(str, v)) for v in (X, Y)] if bundle.name == "ratios" else ["--fill=random"]
    done = subprocess.run([find_tool("plan-viz"), "debug", bundle.name, *inputs, *options], input=script, capture_output=True, text=True,
                          cwd=bundle.parent)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def log_register(bundle):
    """The register in which the logarithms leave the device's stream."""
    told = [json.loads(line) for line in run(bundle, "break nan\ncontinue\nquit\n", "--json").splitlines()]
    return told[1]["register"]


GOLDEN = """\
(debug) break nan
breakpoint 1: when a register has got a NaN or an infinity
(debug) continue
breakpoint 1, after 3 firings: step 0: 'sim:0/compute0' has written -inf to register 'log', slot 0, element (2,); nobody has read it yet
next is 'sim:0/copy_out0', step 0
(debug) look log
register 'log' of 'sim:0/compute0': 1 slot of 16 B, 0 free
  slot 0: value 0, to be read by 'sim:0/copy_out0'
log, slot 0: float32(4,)
[0, 0.6931472, -inf, 1.3862944]
(debug) set log 0,0.5,0,1.5
log, slot 0: float32(4,)
[0, 0.5, 0, 1.5]
(debug) continue
step 0 is finished
the end, after 3 firings: all steps are finished
(debug) results
output0: float32(4,)
[1, 1.6487212, 1, 1.6487212]
output1: float32()
2
"""


def test_a_script_of_six_commands_is_golden(bundles, tmp_path):  # C-13
    commands = [line.removeprefix("(debug) ") for line in GOLDEN.splitlines() if line.startswith("(debug) ")]
    assert len(commands) == 6
    (tmp_path / "six.txt").write_text("\n".join(commands))
    text = run(bundles / "ratios", "", f"--script={tmp_path / 'six.txt'}")
    # Logarithms and exponentials may differ in their last bits from processor to processor.
    numbers = r"-?[0-9]+\.[0-9]+"
    assert re.sub(numbers, "#", text) == re.sub(numbers, "#", GOLDEN)
    np.testing.assert_allclose([float(n) for n in re.findall(numbers, text)], [float(n) for n in re.findall(numbers, GOLDEN)], rtol=1e-5)


def test_a_nan_stops_before_the_next_consumer_runs(bundles):  # C-13
    for options in ((), *((f"--shuffle={seed}",) for seed in range(6))):
        script = f"break nan\ncontinue\nactors\nset {log_register(bundles / 'ratios')} zeros\ncontinue\nquit\n"
        told = [json.loads(line) for line in run(bundles / "ratios", script, "--json", "--steps=3", *options).splitlines()]
        stop = told[1]
        assert stop["stopped"] == "nan" and stop["found"] == "-inf" and stop["element"] == 2
        firings = {actor["actor"]: actor["firings"] for actor in told[2]["actors"]}
        assert firings[stop["fired"]["actor"]] == stop["fired"]["step"] + 1
        assert firings[stop["next"]["actor"]] <= stop["next"]["step"]
        assert told[4]["stopped"] == "nan" and told[4]["fired"]["step"] > stop["fired"]["step"]  # that of the next step


def test_every_firing_is_a_step_and_results_are_those_of_a_run(bundles):  # C-13
    whole = json.loads(run(bundles / "ratios", "continue\nresults\n", "--json").splitlines()[-1])["results"]
    for seed in range(4):
        told = [json.loads(line) for line in run(bundles / "ratios", "step 1000\nactors\nresults\n", "--json", f"--shuffle={seed}").splitlines()]
        assert told[-1]["results"] == whole
        steps = told[0]["steps"]
        assert [s["firings"] for s in steps] == [1] * (len(steps) - 1) + [0] and steps[-1]["stopped"] == "end"
        assert sum(a["firings"] for a in told[1]["actors"]) == len(steps) - 1
    assert whole[1]["elements"] == ["-inf"]


def test_micro_batches_have_breakpoints(bundles):  # C-13
    names = [a["actor"] for a in json.loads(run(bundles / "train", "actors\nquit\n", "--json"))["actors"]]
    info = json.loads(run(bundles / "train", "actors\nquit\n", "--json"))["actors"]
    parts = [a["actor"] for a in info if a.get("of") == 4]
    assert parts and set(parts) <= set(names)
    told = [json.loads(line) for line in
            run(bundles / "train", f"break {parts[-1]} step 1 micro 2\ncontinue\ncontinue\n", "--json", "--steps=2").splitlines()]
    assert told[1]["next"] == {"actor": parts[-1], "step": 1, "micro_batch": 2, "of": 4}
    assert told[2]["stopped"] == "end" and told[2]["steps_left"] == 0


def test_the_terminal_shows_slots_and_waits(bundles):
    text = run(bundles / "ratios", "step 2\nactors\nregisters\nbreaks\nhelp\nquit\n")
    assert "has fired, and has written" in text and "next is '" in text
    assert "waits for data on '" in text and "fires next" in text
    assert "to be read by '" in text and "set REGISTER VALUE" in text


@pytest.mark.parametrize("script, wrong", [
    ("break nobody\n", "debug: standard input:1: there is no actor 'nobody'; the actors are "),
    ("\nbreak nan nothing\n", ":2: there is no register 'nothing'; the registers are "),
    ("look h\n", "standard input:1: there is no register"),
    ("break\n", "where? It must be: break ACTOR|nan [REGISTER] [step N] [micro K]"),
    ("break nan step two\n", "step 'two': it must be a number that is not negative"),
    ("delete 3\n", "there is no breakpoint 3"),
    ("jump\n", "'jump': there is no such command; `help` lists them"),
    ("look 'x\n", "a quote is not closed"),
    ("results\n", "no step is finished"),
    ("step\n", "the script ends, and a step is not finished; it must end with `continue` or `quit`"),
])
def test_a_script_that_is_wrong_names_its_line(bundles, script, wrong):
    told = run(bundles / "ratios", script, status=2)
    assert told.startswith("plan-viz: debug: standard input:") and wrong in told and told.count("\n") == 1, told


def test_a_value_of_another_shape_changes_nothing(bundles, tmp_path):
    log = log_register(bundles / "ratios")
    np.save(tmp_path / "three.npy", np.ones(3, np.float32))
    for value, wrong in (("1,2,3", "3 numbers; "), (f"@{tmp_path}/three.npy", "holds float32(3,)"), ("one", "it must be @FILE.npy, zeros")):
        told = run(bundles / "ratios", f"break nan\ncontinue\nset {log} {value}\n", status=2)
        assert "standard input:3: " in told and wrong in told


def test_a_bundle_that_is_none_is_an_error(bundles, tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        done = subprocess.run([find_tool("plan-viz"), "debug", path], input="", capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("plan-viz: ") and done.stderr.count("\n") == 1
    done = subprocess.run([find_tool("plan-viz"), "debug", bundles / "ratios", "--script", tmp_path / "none.txt"], capture_output=True, text=True)
    assert done.returncode == 2 and "none.txt: cannot be read" in done.stderr


def test_a_value_goes_to_a_file_and_back(bundles, tmp_path):
    log, file = log_register(bundles / "ratios"), tmp_path / "logs.npy"
    run(bundles / "ratios", f"break nan\ncontinue\nlook {log} @{file}\nquit\n")
    logs = np.load(file)
    np.testing.assert_array_equal(logs, np.log(np.array(X, np.float32), where=np.array(X) > 0, out=np.full(4, -np.inf, np.float32)))
    np.save(file, np.maximum(logs, -1))
    told = run(bundles / "ratios", f"break nan\ncontinue\nset {log} @{file}\ncontinue\nresults\n", "--json").splitlines()[-1]
    np.testing.assert_allclose(json.loads(told)["results"][1]["elements"], [math.log(8) - 1], rtol=1e-6)


def test_python_has_the_same(bundles):  # C-13
    x, y = sl.tensor(X), sl.tensor(Y)
    with debug.Debugger(bundles / "ratios", [x, y], steps=2) as d:
        number = d.break_at(nan=True)
        stop = d.run()
        assert (stop.reason, stop.breakpoint, stop.element, stop.value) == ("nan", number, 2, -math.inf)
        assert stop.firing.wrote == ((stop.register, stop.slot),) and stop.finished == ()
        value = d.look(stop.register)
        assert value.dtype is sl.float32 and value.tolist()[2] == -math.inf
        slot = d.slots(stop.register)[stop.slot]
        assert slot.state == "written" and slot.to_be_read_by and not slot.held_by
        readers = [actor for actor in d.actors() if actor.name in slot.to_be_read_by]
        assert readers and all(actor.firings == 0 for actor in readers)
        d.change(stop.register, sl.zeros(4))
        d.remove(number)
        d.break_at(step=1)
        stop = d.run()
        assert stop.reason == "breakpoint" and stop.firing.step == 1 and stop.finished == ((0, None),)
        assert d.results()[1].item() == 0 and d.steps_left() == 1
        stop = d.run()
        assert stop.reason == "end" and d.results()[1].item() == -math.inf
        assert [register.quota for register in d.registers() if register.name == "log"] == [1]
        d.submit({"x": x + 1, "y": y})
        d.remove(2)
        assert d.run().reason == "end"
        np.testing.assert_allclose(d.results()[1].item(), np.log(np.array(X) + 1).sum(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="it is closed"):
        d.run()


def test_python_refuses_what_is_wrong(bundles, tmp_path):
    x, y = sl.tensor(X), sl.tensor(Y)
    with pytest.raises(OSError):
        debug.Debugger(tmp_path / "nothing")
    with pytest.raises(ValueError, match="got 1 inputs; plan 'Ratios_?\\d*' takes 2"):
        debug.Debugger(bundles / "ratios", [x])
    with debug.Debugger(bundles / "ratios", [x, y]) as d:
        with pytest.raises(ValueError, match="there is no actor 'nobody'"):
            d.break_at("nobody")
        with pytest.raises(ValueError, match="where"):
            d.break_at()
        with pytest.raises(ValueError, match="without nan=True"):
            d.break_at(register="x")
        with pytest.raises(ValueError, match="inputs: got x; the plan takes x, y"):
            d.submit({"x": x})
        d.break_at(nan=True)
        stop = d.run()
        with pytest.raises(TypeError, match=r"got float32\(3,\); its value is float32\(4,\)"):
            d.change(stop.register, sl.ones(3))
        with pytest.raises(ValueError, match="slot 7 of register"):
            d.look(stop.register, slot=7)
        d.remove(1)
        assert d.run().reason == "end"
