"""The installation described, the log, and counters read while steps run."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

import sluice as sl
from sluice import info
from sluice._base.tools import find_tool


def test_info_adds_python_and_numpy():
    facts = info.as_dict()
    assert facts["sluice"]["version"] == sl.__version__
    assert facts["libraries"]["NumPy"] == np.__version__
    assert facts["libraries"]["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["devices"]["cpu:0"].endswith("host memory, synchronous")


def test_info_as_a_program_says_what_sluice_info_says():
    run = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: E731
    ours = json.loads(run(sys.executable, "-m", "sluice.info", "--json"))
    theirs = json.loads(run(find_tool("sluice-info"), "--json"))
    assert set(ours) == set(theirs)
    for of_python in ("c:0", "meta:0"):  # what compiles to C, and what has no memory
        ours["devices"].pop(of_python)
    for section in ("sluice", "instructions", "devices"):
        assert ours[section] == theirs[section]
    assert set(ours["libraries"]) - set(theirs["libraries"]) == {"Python", "NumPy"}
    text = run(sys.executable, "-m", "sluice.info")
    assert text.startswith("sluice\n  version")
    assert f"  NumPy                {np.__version__}\n".split() == [line for line in text.splitlines() if "NumPy" in line][0].split()


NET = """
import sluice as sl

class Net(sl.nn.Graph):
    def build(self, x):
        return x.relu() + 1

print(Net()(sl.ones(3)).numpy().tolist())
"""


@pytest.fixture
def logged(run_script):
    """Lines of the log of a small program under SLUICE_LOG."""

    def run(spec):
        done = run_script(NET, SLUICE_LOG=spec)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "[2.0, 2.0, 2.0]\n"
        return done.stderr.splitlines()

    return run


def test_log_tells_of_compiling_and_loading(logged):
    lines = logged("info,json")
    events = [json.loads(line) for line in lines]
    assert {event["area"] for event in events} >= {"compiler", "runtime"}
    assert any("compiled in" in event["text"] for event in events)
    assert any("loaded in" in event["text"] for event in events)
    assert all(event["level"] == "info" for event in events)
    assert logged("warn") == []


def test_log_of_one_area(logged):
    lines = logged("off,plan=debug")
    assert lines and all(" plan: " in line for line in lines)
    assert any("verified" in line for line in lines)


def test_bad_grammar_gives_a_warning_and_no_error(logged):
    lines = logged("plam=debug")
    assert len(lines) == 1 and "SLUICE_LOG: ignored: 'plam=debug': no area 'plam'" in lines[0]


def test_set_log_refuses_bad_grammar():
    before = info.log_spec()
    with pytest.raises(ValueError, match="log: bad part 'loud'"):
        info.set_log("loud")
    assert info.log_spec() == before
    sl.set_log("error,plan=off")
    assert info.log_spec() == "error,plan=off"
    info.set_log(before)


class Chain(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.set_granularity("op")

    def build(self, x):
        for _ in range(4):
            x = (x * 2 - x).relu()
        return x


def test_counters_are_exact_at_rest():
    graph = Chain()
    x = sl.ones(1000)
    for _ in range(10):
        y = graph(x)
    y.numpy()
    graph.synchronize()
    while any(actor["firings"] < 10 for actor in graph.counters()["actors"]):
        pass  # a step is finished within its last actor's firing
    counters = graph.counters()
    assert counters["submitted"] == counters["finished"] == 10
    assert counters["in_flight"] == counters["failed"] == 0
    assert counters["bytes"] > 0
    names = {stream["name"] for stream in counters["streams"]}
    for actor in counters["actors"]:
        assert actor["firings"] == 10 and actor["stream"] in names
    assert sum(actor["busy_ns"] for actor in counters["actors"]) > 0
    for register, planned in zip(counters["registers"], graph.plan["registers"]):
        assert register["name"] == planned["name"] and register["quota"] == planned["quota"]
        assert register["tokens"] == 10
        assert register["used"] == register["ready"] == planned["initial_tokens"]  # feedback is there again
        assert 1 <= register["peak"] <= register["quota"]
    assert graph.counters_text().startswith("steps: 10 submitted, 10 finished")


def test_counters_are_read_while_steps_run():
    graph = Chain()
    x = sl.ones(2000)
    graph(x).numpy()
    done, problems, reads = threading.Event(), [], []

    def watch():
        last = graph.counters()
        while not done.is_set():
            now = graph.counters()
            for kind, fields in (("actors", ("firings", "waits", "busy_ns")), ("streams", ("busy_ns", "parks")),
                                 ("registers", ("tokens", "peak"))):
                for before, after in zip(last[kind], now[kind]):
                    problems.extend((before, after) for field in fields if after[field] < before[field])
            if not 0 <= now["in_flight"] <= now["max_in_flight"]:
                problems.append(now)
            last = now
            reads.append(now["finished"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    steps = 1
    while steps < 200 or len(reads) < 20:
        y = graph(x)
        steps += 1
    y.numpy()
    graph.synchronize()
    done.set()
    watcher.join()
    assert not problems
    assert graph.counters()["finished"] == steps
