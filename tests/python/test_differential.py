"""Random programs on torch and on Sluice, eagerly and as graphs (see the package differential)."""

import ast
import os
import subprocess
import sys

import pytest
import torch

import sluice as sl
from differential import vocabulary
from differential.check import Verdict, check
from differential.executor import run
from differential.generator import Generator
from differential.program import source
from differential.report import reproducer
from differential.shrink import shrink
from differential.switches import Switches
from differential.workers import isolated

SEEDS = 300


@pytest.fixture(scope="module")
def program():
    """One that trains, of some length, can be a graph, and has nothing that is refused."""
    generator = Generator(Switches())
    return next(p for p in map(generator, range(1000))
                if p["optimizers"] and p["graph"] and len(p["body"]) > 15 and check(p, sl).kind == "same")


def test_random_programs_equal_torch():
    """Their first 300; `make test-long` goes on from there. In a process without an engine, since it forks."""
    done = subprocess.run([sys.executable, "-m", "differential", "--count", str(SEEDS), "--jobs", "2"], capture_output=True, text=True,
                          cwd=os.path.dirname(__file__))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\nsee it: python -m differential --seed SEED --shrink"
    kinds = ast.literal_eval(done.stdout.splitlines()[-1].partition("programs: ")[2])
    assert sum(kinds.values()) == SEEDS and kinds["same"] >= 0.85 * SEEDS, kinds


def test_a_seed_is_a_program():
    assert [Generator(Switches())(s) for s in (3, 4)] == [Generator(Switches())(s) for s in (3, 4)]


def test_every_feature_is_drawn():
    generator = Generator(Switches(["all"]))
    programs = [generator(seed) for seed in range(60)]
    code = "\n".join(s["code"] for p in programs for s in p["body"])
    assert set(vocabulary.WEIGHTS) == set(vocabulary.STATEMENTS)
    for feature, words in {"writes": "_(", "views": "permute", "modules": "m0(", "double_backward": "create_graph", "clipping": "clip_grad",
                           "two passes": "retain_graph=True)\n", "indexing": "torch.tensor(["}.items():
        assert words in code, feature
    for what in ("tied", "clip_grad_max_norm", "schedule", "place", "strided"):
        assert what in str(programs), what
    for key in ("buffers", "optimizers", "config", "pipelined"):
        assert any(p[key] for p in programs) and not all(p[key] for p in programs), key
    assert {p["micro_batches"] for p in programs} == {1, 2, 3, 4}
    assert max(len(p["body"]) for p in programs) > 40 and max(len(p["optimizers"]) for p in programs) == 3


class Wrong:
    """Sluice with one wrong function."""

    def __init__(self, name, function):
        self._name, self._function = name, function

    def __getattr__(self, name):
        return self._function if name == self._name else getattr(sl, name)


def with_statement(program, code):
    body = [*program["body"], {"code": code}]
    return {**program, "body": body, "outputs": ["list", [program["outputs"], ["leaf", code.split(" =")[0]]]]}


def test_a_planted_fault_is_found_and_made_small(program):
    planted = with_statement(program, "t999 = torch.tanh(w0.detach() + 1)")
    wrong = Wrong("tanh", lambda x: sl.tanh(x) * (1 + 1e-3))
    verdict = check(planted, wrong)
    assert verdict.kind == "eager differs"
    small = shrink(planted, lambda p: check(p, wrong, ["eager"]).signature == verdict.signature, seconds=60)
    assert len(small["body"]) <= 2 and small["steps"] == 1 and not small["optimizers"]
    assert check(small, sl).kind == "same"


def test_a_refusal_that_is_not_known_fails(program):
    def refuses(x):
        raise NotImplementedError("no such thing")

    verdict = check(with_statement(program, "t999 = torch.tanh(w0.detach() + 1)"), Wrong("tanh", refuses))
    assert verdict.failed and verdict.kind == "eager refused: NotImplementedError"


def test_crashes_and_hangs_are_verdicts():
    assert isolated(lambda: os._exit(3), 60) == Verdict("crash", "exit status 3")
    assert isolated(lambda: __import__("signal").pause(), 0.1).kind == "hang"
    assert isolated(lambda: 5, 60) == 5


def test_values_that_torch_itself_moves_are_no_failures():
    """cos of a large number: the last bits of the input are all of the output."""
    unstable = {"seed": 0, "dtype": "float64", "special": False, "parameters": [], "buffers": [], "modules": [],
                "inputs": [["leaf", {"name": "x0", "shape": [4], "dtype": "float64", "data": ["normal", 1]}]],
                "body": [{"code": "t0 = (x0 * 1e15).cos()"}], "outputs": ["leaf", "t0"], "optimizers": [], "steps": 1, "training": True,
                "micro_batches": 1, "config": [], "pipelined": False, "graph": False, "precision": "float64"}

    class Near(Wrong):
        def tensor(self, data, dtype):
            t = sl.tensor(data, dtype=dtype)
            return t * (1 + 2.0**-52)

    assert check(unstable, Near("", None)).kind == "unstable"
    stable = {**unstable, "body": [{"code": "t0 = (x0 * 2).cos()"}]}
    assert check(stable, Near("", None)).kind == "same"


def test_the_reproducer_stands_alone(program, run_script):
    done = run_script(reproducer(program, "what is wrong"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["torch: ran", "eager: same", "graph: same"]


def test_programs_are_what_they_say(program):
    """Every step gives outputs, and training moves parameters."""
    theirs = run(torch, source(program), program)
    assert theirs.error is None and len(theirs.outputs) == program["steps"] == 20
    before = run(torch, source(program), {**program, "steps": 1})
    assert any((theirs.variables[n][1] != before.variables[n][1]).any() for n in theirs.variables)
