"""benchmarks/zoo: models of three styles train alike eagerly, compiled and in PyTorch; the benchmark counts and times them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import sluice
from sluice._base.tools import find_tool
from test_tiny import STRICT

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/zoo"
STYLES = ("timm", "torchbench", "transformers")

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not here")

WRONG_MODELS = """
import torch

made = 0


def chance():
    global made
    made += 1
    number = made
    return torch.nn.Linear(2, 1), (torch.ones(3, 2),), (), lambda answer: answer.square().mean() + number


def data_decides():
    class Net(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum().item() > 0 else x
    return Net(2, 1), (torch.ones(3, 2),), (), lambda answer: answer.square().mean()


def refused():
    raise ValueError("no such model")
"""


@pytest.fixture
def zoo(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.syspath_prepend(str(FOLDER))
    import zoo

    sys.path[:0] = [path for path in zoo.PATHS if path not in sys.path]
    return zoo


@pytest.mark.filterwarnings("ignore:compile:RuntimeWarning")
@pytest.mark.parametrize("style", STYLES)
def test_losses_are_equal_eagerly_compiled_and_in_torch(zoo, style):  # PT-19, PT-27
    names = [name for of, name in zoo.models([style])]
    assert len(set(names)) == len(names) >= 10
    found = {name: zoo.verdict(style, name, steps=2) for name in names}
    assert {name: why for name, (why, _) in found.items() if why} == {}
    # The layers that OPT leaves out are drawn anew in each step.
    assert [name for name, (_, eager_calls) in found.items() if eager_calls] == (["opt"] if style == "transformers" else [])


@pytest.mark.parametrize("style", STYLES)
def test_steps_of_training_become_c_without_a_warning(zoo, style, tmp_path, count):
    """But for OPT's, which a value decides about, so that it is no graph."""
    printed, no_graphs = 0, []
    for _, name in zoo.models([style]):
        training, bundle = zoo.Training("graph", style, name), tmp_path / name
        try:
            training._step.compile(*training._given)
        except RuntimeError:
            no_graphs.append(name)
            continue
        sluice.save(training._step, bundle)
        for command in ([find_tool("sluice-compile"), bundle, "--to", "c", "--name", "net", "-o", tmp_path / "net.c"],
                        ["gcc", *STRICT.split(), "-O0", "-c", "net.c"]):
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
            assert done.returncode == 0, f"{name}: {done.stderr}"
        printed += 1
    count("steps of training of the zoo as C without a warning", printed, style)
    assert no_graphs == (["opt"] if style == "transformers" else []) and printed >= 10


@pytest.mark.filterwarnings("ignore:compile:RuntimeWarning")
def test_what_does_not_work_is_told(zoo, tmp_path, monkeypatch):
    (tmp_path / "wrong_models.py").write_text(WRONG_MODELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert zoo.verdict("wrong", "chance")[0].startswith("losses are [")
    assert zoo.verdict("wrong", "data_decides") == ("", 3)
    assert zoo.verdict("wrong", "refused") == ("ValueError: no such model", 0)
    assert not zoo.is_graph("wrong", "data_decides") and zoo.is_graph("wrong", "chance")


def test_one_table_says_how_many_work_and_the_geometric_mean(zoo):  # PT-19
    def times(compiled, **more):
        return {"PyTorch eager": 4.0, "Sluice eager": 3.0, "compiled": compiled, **more}
    results = [("timm.a", times(1.0, graph=1.0), "yes"), ("timm.b", times(0.25), "in pieces"),
               ("timm.c", None, "why not"), ("timm.d", None, "nor this")]
    lines = "\n".join(zoo.table(results)).splitlines()
    assert "4 models" in lines[0]
    assert lines[-5] == "| timm.a | 4.00 | 3.00 | 1.00 | 1.00 | yes | 4.00 | 4.00 |" and "no: why not" in lines[-3]
    assert lines[-4] == "| timm.b | 4.00 | 3.00 | 0.25 |  | in pieces | 16.00 |  |"
    assert lines[-1] == "| geometric mean | | | | | 50% | 8.00 | 4.00 |"
    assert zoo.mean_factor(results, "compiled", "Sluice eager") == pytest.approx((3 * 12) ** 0.5)


def test_the_benchmark_prints_a_line_and_the_table(tmp_path):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sluice.__file__)), *sys.path])
    command = [sys.executable, FOLDER / "zoo.py", "zoo.torchbench.soft", "--rounds", "2", "--seconds", "0.01", "--out",
               tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["name"] == "zoo.torchbench.soft_actor_critic" and line["peer_name"] == "PyTorch eager" and line["ratio"] > 0
    assert line["also"].pop("eager calls") == 0
    assert set(line["also"]) == {"PyTorch eager", "Sluice eager", "compiled", "graph"} and min(line["also"].values()) > 0
    assert "| geometric mean | | | | | 100% |" in (tmp_path / "zoo.md").read_text()
