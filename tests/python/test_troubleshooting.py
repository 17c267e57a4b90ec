"""docs/troubleshooting.md: each error text of its table is one that a program meets."""

import os
import pathlib
import re
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import sluice as sl
from sluice import nn

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/troubleshooting.md").read_text()
TEXTS = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## By error text")[2], re.M)
x = sl.ones(2, 3)


class Net(nn.Graph):
    def __init__(self, function, configure=lambda config: None):
        super().__init__()
        self.function = function
        configure(self.config)

    def build(self, *args):
        return self.function(*args)


def in_graph(function, *args, configure=lambda config: None):
    return Net(function, configure)(*(args or (x,)))


def host(function, x):
    return sl.host_function(function, x, out=((2, 3), sl.float32))


def outside(source, **env):
    """What Python prints to stderr."""
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env={**os.environ, **env}).stderr


def raised_outside(source, **env):
    raise RuntimeError(outside(source, **env))


def another_shape():
    graph = Net(lambda x: x + 1)
    graph(x)
    graph(sl.ones(4, 3))


def changes_often():
    class Scaled(nn.Graph):
        def build(self, x):
            return x * self.factor

    graph = Scaled()
    for graph.factor in range(7):
        graph(x)


def changes_mode():
    class Evaluated(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = nn.Dropout()

        def build(self, x):
            return self.net(x)

    graph = Evaluated()
    graph(x)
    graph.net.eval()
    graph(x)


def without_super():
    class Hasty(nn.Graph):
        def __init__(self):
            self.net = nn.Linear(1, 1)

    Hasty()


def optimizer_too_late():
    graph = Net(lambda x: x + 1)
    graph(x)
    graph.add_optimizer(sl.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1))


def stuck():
    over = threading.Event()
    graph = Net(lambda x: host(lambda a: a if over.wait(30) else a, x), lambda c: c.set_wait_timeout(0.2))
    try:
        graph(x).tolist()
    finally:
        over.set()
        graph.close()


def ended():
    def batches():
        yield np.zeros((2, 3), np.float32)

    graph = Net(lambda: sl.host_function(batches, out=((2, 3), sl.float32)))
    for _ in range(2):
        graph().tolist()


def raises(array):
    raise KeyError("missing")


def custom():
    op = sl.library.custom_op("troubles::f", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    in_graph(op)


def read_only():
    array = np.ones(3, np.float32)
    array.setflags(write=False)
    sl.from_numpy(array).add_(1)


def saved(tmp_path):
    graph = Net(lambda x: host(lambda a: a, x))
    graph(x)
    sl.save(graph, tmp_path / "bundle")
    sl.load_graph(tmp_path / "bundle")


FORKED = """
import os, sys
import sluice as sl

class Net(sl.nn.Graph):
    def build(self, x):
        return x + 1

graph = Net()
graph(sl.ones(2)).tolist()
child = os.fork()
if child == 0:
    try:
        graph(sl.ones(2))
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""

CASES = {
    "No module named 'sluice'": lambda t: raised_outside("import sluice", PYTHONPATH=""),
    "has no value while a graph is built": lambda t: in_graph(lambda x: x if x.sum() > 0 else -x),
    "its result has no shape while a graph is built": lambda t: in_graph(lambda x: x.nonzero()),
    "its content exists only when the graph runs": lambda t: in_graph(lambda x: x[x > 0]),
    "is not one graph": lambda t: sl.compile(lambda x: x.sum().item(), fullgraph=True)(x),
    "as when the graph was compiled": lambda t: another_shape(),
    "compiled for the 6th time": lambda t: changes_often(),
    "keeps the mode of its first call": lambda t: changes_mode(),
    "call super().__init__() before assigning": lambda t: without_super(),
    "build() must be defined": lambda t: nn.Graph()(x),
    "is compiled; add optimizers before the first call": lambda t: optimizer_too_late(),
    "over its memory budget": lambda t: in_graph(lambda x: x @ x.t(), configure=lambda c: c.set_memory_budget(8)),
    "out of memory in host": lambda t: sl.ones(10**13),
    "is not finite": lambda t: in_graph(lambda x: (x - x) / (x - x), configure=lambda c: c.enable_check_numerics()).tolist(),
    "is not finished after": lambda t: stuck(),
    "the data of a source has ended": lambda t: ended(),
    "raised KeyError": lambda t: in_graph(lambda x: host(raises, x)).tolist(),
    "declared was": lambda t: host(lambda a: a[:1], x),
    "no fake impl registered": lambda t: custom(),
    "has no numpy dtype": lambda t: x.bfloat16().numpy(),
    "the memory is read-only": lambda t: read_only(),
    "must equal b.shape[-2]": lambda t: x @ x,
    "feature counts differ": lambda t: nn.Linear(4, 2)(x),
    "shapes do not broadcast": lambda t: x + sl.ones(4),
    "operands must have one dtype": lambda t: nn.Linear(3, 2)(x.double()),
    "target is not a class": lambda t: nn.functional.cross_entropy(x, sl.tensor([0, 5])),
    "index is out of range": lambda t: nn.functional.embedding(sl.tensor([7]), x),
    "Expected all tensors to be on the same device": lambda t: x.to("sim:0") + x,
    "could not be loaded": lambda t: raised_outside("import sluice as sl; sl.ones(1, device='cuda')", SLUICE_CUDA_DRIVER="/nosuch.so",
                                                    SLUICE_CUDA_LIBRARY=""),
    "loaded before fork()": lambda t: raised_outside(FORKED),
    "not a directory; a bundle holds": lambda t: sl.load_graph(t / "nosuch"),
    "runs host function": saved,
    "bad number of cores": lambda t: raised_outside("import sluice as sl; sl.ones(1)", SLUICE_CORES="many"),
    "Missing key(s) in state_dict": lambda t: nn.Linear(3, 2).load_state_dict({}),
    "does not require grad": lambda t: x.sum().backward(),
    "a leaf Variable that requires grad": lambda t: sl.ones(2, requires_grad=True).add_(1),
    "are left out": lambda t: sl.sparse_coo_tensor,
}


def test_the_table_and_the_programs_are_the_same():
    assert TEXTS == list(CASES)


@pytest.mark.parametrize("text", TEXTS)
def test_a_program_meets_this_text(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # check_numerics writes a file
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception, match=re.escape(text)):
            CASES[text](tmp_path)
