"""docs/troubleshooting.md and `sluice.info explain`: each error text of the table is one that a program meets."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import sluice as sl
from sluice import info, nn
from sluice._base import troubles
from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
TEXTS = [trouble.text for trouble in troubles.TABLE]
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
    """The text that Python prints to stderr."""
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env={**os.environ, **env}).stderr


def raised_outside(source, **env):
    raise RuntimeError(outside(source, **env))


def bundle_at(path):
    """A bundle there; each has other weights."""
    class Own(nn.Graph):
        def __init__(self):
            super().__init__()
            self.weight = sl.nn.Parameter(sl.rand(3))

        def build(self, x):
            return x * self.weight

    graph = Own()
    graph(x)
    sl.save(graph, path)
    return path


def change(path, function):
    path.write_bytes(function(path.read_bytes()))
    return path


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

def option_too_late():
    graph = Net(lambda x: x + 1)
    graph(x)
    graph.config.set_cores(1)


def closed():
    graph = Net(lambda x: x + 1)
    graph(x)
    graph.close()
    graph(x).tolist()


class One(nn.Graph):
    def build(self, state):
        return state + 1


def donated():
    graph, state = One(), sl.ones(64, 64)
    graph.config.donate_inputs("state")
    graph(state)
    state.sum().item()


def rows():
    return sl.host_function(lambda: np.ones((2, 4), np.float32), out=((sl.Dim("rows", max=4), 4), sl.float32))


def without_gradient():
    op = sl.library.custom_op("troubles::g", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    op(weight()).sum().backward()


def weight():
    return sl.ones(2, requires_grad=True)


def twice():
    loss = (weight() * weight()).sum()
    loss.backward()
    loss.backward()


def overwritten():
    y = weight().exp()
    y.add_(1)
    y.sum().backward()


class HastyModule(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(1, 1)


def over_the_limit():
    sl.memory.set_limit(sl.memory.active())
    try:
        sl.ones(10_000)
    finally:
        sl.memory.set_limit(None)


class Config:
    pass


def load_a_class(folder):
    sl.save({"config": Config()}, folder / "x.pt")
    sl.load(folder / "x.pt")


def spread(ranks):
    return sl.ones(4).to_global(sl.placement("sim", ranks), sl.sbp.split(0))


CASES = {  # a program, or the test that has several processes meet it
    "No module named 'sluice'": lambda t: raised_outside("import sluice", PYTHONPATH=""),
    "could not be loaded": lambda t: raised_outside("import sluice as sl; sl.ones(1, device='cuda')", SLUICE_CUDA_DRIVER="/nosuch.so",
                                                    SLUICE_CUDA_LIBRARY=""),
    "no such device": "tests/cuda/load_test.cpp",
    "bad number of cores": lambda t: raised_outside("import sluice as sl; sl.ones(1)", SLUICE_CORES="many"),
    "before fork()": lambda t: raised_outside(FORKED),
    "Sluice leaves out": lambda t: sl.quantize_per_tensor,
    "got an unexpected keyword argument": lambda t: sl.ones(2, colour=1),
    "must be Tensor or Number, not": lambda t: x.add("a"),
    "log: bad part": lambda t: sl.set_log("loud"),
    "cannot be loaded": lambda t: sl.ops.load_library("nosuch.so"),
    "Expected all tensors to be on the same device": lambda t: x.to("sim:0") + x,
    "use tensor.cpu().numpy()": lambda t: x.to("sim:0").numpy(),
    "has no value while a graph is built": lambda t: in_graph(lambda x: x if x.sum() > 0 else -x),
    "its result has no shape while a graph is built": lambda t: in_graph(lambda x: x.long().flatten().bincount()),
    "its content exists only when the graph runs": lambda t: in_graph(lambda x: x.tolist()),
    "as when the graph was compiled": lambda t: another_shape(),
    "compiled for the 6th time": lambda t: changes_often(),
    "keeps the mode of its first call": lambda t: changes_mode(),
    "call super().__init__() before assigning": lambda t: without_super(),
    "build() must be defined": lambda t: nn.Graph()(x),
    "is compiled; add optimizers before the first call": lambda t: optimizer_too_late(),
    "cannot be set after the graph was compiled": lambda t: option_too_late(),
    "graph.config has no option": lambda t: in_graph(lambda x: x, configure=lambda c: c.set_devise("cpu")),
    "is not compiled; call it once": lambda t: sl.save(Net(lambda x: x), t / "bundle"),
    "it was closed": lambda t: closed(),
    "there is no such register": lambda t: in_graph(lambda x: x + 1, configure=lambda c: c.set_quota("nosuch", 2)),
    "disable_pass: got": lambda t: in_graph(lambda x: x, configure=lambda c: c.disable_pass("nosuch")),
    "was donated to graph": lambda t: donated(),
    "too many positional arguments": lambda t: One()(x, x),
    "must be a multiple of": lambda t: in_graph(lambda x: x, sl.ones(3, 2), configure=lambda c: c.set_gradient_accumulation_steps(2)),
    "is not finished after": lambda t: stuck(),
    "the predicate is": lambda t: sl.cond(x, lambda: x, lambda: x),
    "is not one graph": lambda t: sl.compile(lambda x: x.sum().item(), fullgraph=True)(x),
    "the data of a source has ended": lambda t: ended(),
    "raised KeyError": lambda t: in_graph(lambda x: host(raises, x)).tolist(),
    "declared was": lambda t: host(lambda a: a[:1], x),
    "assignment destination is read-only": lambda t: in_graph(lambda x: host(lambda a: a.fill(0), x)).tolist(),
    "mixes rows of dim": lambda t: Net(lambda: rows().sum(0))(),
    "no fake impl registered": lambda t: custom(),
    "no autograd formula was registered": lambda t: without_gradient(),
    "stack expects each tensor to be equal size": lambda t: list(sl.utils.data.DataLoader([sl.ones(1), sl.ones(2)], batch_size=2)),
    "batch_size should be a positive integer": lambda t: sl.utils.data.DataLoader([1], batch_size=0),
    "has no numpy dtype": lambda t: x.bfloat16().numpy(),
    "an array of dtype": lambda t: sl.from_numpy(np.ones(2, np.uint16)),
    "the memory is read-only": lambda t: read_only(),
    "nested sequences of unequal length": lambda t: sl.tensor([[1, 2], [3]]),
    "tensor: got": lambda t: sl.tensor("a"),
    "must equal b.shape[-2]": lambda t: x @ x,
    "feature counts differ": lambda t: nn.Linear(4, 2)(x),
    "shapes do not broadcast": lambda t: x + sl.ones(4),
    "operands must have one dtype": lambda t: nn.Linear(3, 2)(x.double()),
    "operands must have 3 and 3 dims": lambda t: sl.bmm(x, x),
    "channels differ": lambda t: nn.Conv2d(3, 4, 3)(sl.ones(1, 1, 8, 8)),
    "expected 3D (unbatched) or 4D (batched) input": lambda t: nn.Conv2d(3, 4, 3)(x),
    "is larger than the padded input": lambda t: nn.Conv2d(1, 4, 5)(sl.ones(1, 1, 3, 3)),
    "normalized_shape does not fit": lambda t: nn.LayerNorm(4)(x),
    "asks for float32(": lambda t: nn.BatchNorm1d(4)(x),
    "training needs more than one": lambda t: nn.BatchNorm1d(3)(sl.ones(1, 3)),
    "sizes differ:": lambda t: x.reshape(4, 2),
    "differ outside axis": lambda t: sl.cat([x, sl.ones(2, 4)]),
    "use reshape": lambda t: x.t().view(6),
    "axis out of range": lambda t: x.sum(5),
    "is out of bounds for dimension": lambda t: x[5],
    "too many indices": lambda t: x[0, 0, 0],
    "slice step is": lambda t: x[::-1],
    "index is out of range": lambda t: nn.functional.embedding(sl.tensor([7]), x),
    "index out of range:": lambda t: x.gather(0, sl.tensor([[7]])),
    "index dtype is": lambda t: nn.Embedding(4, 2)(x),
    "target is not a class": lambda t: nn.functional.cross_entropy(x, sl.tensor([0, 5])),
    "target does not fit": lambda t: nn.functional.cross_entropy(x, sl.tensor([0, 1, 2])),
    "must be the same as input size": lambda t: nn.functional.binary_cross_entropy_with_logits(x, sl.ones(2)),
    "condition: dtype is": lambda t: sl.where(x, x, x),
    "dtype is int64; must be floating": lambda t: sl.tensor([1, 2]).mean(),
    "can't be cast to the desired output type": lambda t: sl.tensor([1, 2]).add_(1.5),
    "is ambiguous": lambda t: bool(x),
    "cannot be converted to Scalar": lambda t: x.item(),
    "is singular": lambda t: sl.linalg.inv(sl.zeros(2, 2)),
    "is not positive-definite": lambda t: sl.linalg.cholesky(-sl.eye(2)),
    "does not require grad": lambda t: x.sum().backward(),
    "backward through the graph a second time": lambda t: twice(),
    "modified by an inplace operation": lambda t: overwritten(),
    "grad can be implicitly created only for scalar outputs": lambda t: (weight() * 2).backward(),
    "appears to not have been used": lambda t: sl.autograd.grad(weight().sum(), [weight()]),
    "only Tensors of floating point dtype can require gradients": lambda t: sl.tensor([1]).requires_grad_(),
    "requires grad; use tensor.detach()": lambda t: weight().numpy(),
    "a leaf Variable that requires grad": lambda t: sl.ones(2, requires_grad=True).add_(1),
    "can't optimize a non-leaf Tensor": lambda t: sl.optim.SGD([weight() * 2], lr=0.1),
    "optimizer got an empty parameter list": lambda t: sl.optim.SGD([], lr=0.1),
    "should be an iterable of Tensors or dicts": lambda t: sl.optim.SGD(weight(), lr=0.1),
    "is not finite": lambda t: in_graph(lambda x: (x - x) / (x - x), configure=lambda c: c.enable_check_numerics()).tolist(),
    "cannot assign module before Module.__init__() call": lambda t: HastyModule(),
    'is missing the required "forward" function': lambda t: nn.Module()(x),
    "over its memory budget": lambda t: in_graph(lambda x: x @ x.t(), configure=lambda c: c.set_memory_budget(8)),
    "out of memory in host": lambda t: sl.ones(10**13),
    "the limit that was set": lambda t: over_the_limit(),
    "not a directory; a bundle holds": lambda t: sl.load_graph(t / "nosuch"),
    "not a zip file": lambda t: (t / "x.pt").write_bytes(b"nonsense") and sl.load(t / "x.pt"),
    "runs host function": saved,
    "Missing key(s) in state_dict": lambda t: nn.Linear(3, 2).load_state_dict({}),
    "Unexpected key(s) in state_dict": lambda t: nn.Linear(3, 2).load_state_dict({**nn.Linear(3, 2).state_dict(), "more": x}),
    "size mismatch for": lambda t: nn.Linear(3, 2).load_state_dict(nn.Linear(4, 2).state_dict()),
    "not on the allow-list": lambda t: load_a_class(t),
    "cannot be saved there: it is": lambda t: (t / "notes").touch() or bundle_at(t),
    "not of one save": lambda t: change(bundle_at(t / "a") / "graph.txt", lambda text: text + b"\n") and sl.load_graph(t / "a"),
    "of another save than the rest": lambda t: shutil.copy(bundle_at(t / "b") / "weights.safetensors", bundle_at(t / "a")) and sl.load_graph(t / "a"),
    "eager ops do not run on several devices": lambda t: spread([0, 1]) + 1,
    "operands lie on different placements": lambda t: in_graph(lambda a, b: a + b, spread([0, 1]), spread([0, 2])),
    "the ranks have not met": lambda t: sl.distributed.all_reduce(x),
    "did not come": "tests/distributed/test_failures.py",
    "is gone: its connection closed": "tests/distributed/test_failures.py",
    "does not answer": "tests/distributed/test_failures.py",
    "which is alive": "tests/distributed/test_failures.py",
    "has left while": "tests/distributed/test_failures.py",
    "takes no part": "tests/distributed/test_data_parallel.py",
}


def test_every_entry_has_a_program():
    assert TEXTS == list(CASES)
    assert len(TEXTS) >= 100 and len(set(TEXTS)) == len(TEXTS)


@pytest.mark.parametrize("text", TEXTS)
def test_a_program_meets_this_text(text, tmp_path, monkeypatch):
    if isinstance(CASES[text], str):
        assert text in (ROOT / CASES[text]).read_text()
        return
    monkeypatch.chdir(tmp_path)  # check_numerics writes a file
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception, match=re.escape(text)) as caught:
            CASES[text](tmp_path)
    assert troubles.find(str(caught.value)).text == text


def test_the_page_is_made_of_the_table():
    assert PAGE.partition("## By error text")[2].endswith(troubles.page()), "run: python -m sluice._base.troubles, and paste it"


def test_errors_have_their_code_and_say_where_more_is():
    with pytest.raises(sl.Error) as caught:
        x @ x
    assert caught.value.code == "E401"
    assert caught.value.__notes__ == ["  more: python -m sluice.info explain E401"]
    caught.value.__notes__.append("mine")
    assert caught.value.__notes__[1:] == ["mine"]
    assert sl.errors.RuntimeError("nothing that is known").code is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks have notes since Python 3.11")
def test_tracebacks_name_the_code():
    assert outside("import sluice as sl; sl.ones(2, 3) @ sl.ones(2, 3)").endswith("  more: python -m sluice.info explain E401\n")


@pytest.mark.parametrize("words, code", [("E401", "E401"), ("e201", "E201"), ("matmul: a.shape[-1] must equal b.shape[-2]", "E401"),
                                         ("RuntimeError: MISSING KEY(S) in state_dict: \"a\"", "E704"), ("padded input", "E408")])
def test_explain(words, code, capsys):
    info.main(["explain", *words.split(" ")])
    told = capsys.readouterr().out
    assert told.startswith(code) and "because" in told and "do this" in told and "`" not in told


def test_what_explain_does_not_know(capsys):
    with pytest.raises(SystemExit) as ended:
        info.main(["explain", "shape", "does", "not", "brodcast"])
    assert ended.value.code == 1 and "The nearest: shapes do not broadcast" in capsys.readouterr().err


ASKED = [*(t.code for t in troubles.TABLE), *TEXTS, "e201", " E401 ", "RuntimeError: MISSING KEY(S) in state_dict: \"a\"",
         "padded input", "x: use reshape: it is singular", "shape does not brodcast", "E999", "nothing like it", "'", "q" * 300]


def test_the_program_and_this_module_say_the_same(capsys):
    """sluice-info is C++; the table that it holds is this module's, and it looks things up in the same way."""
    program = find_tool("sluice-info")
    unknown = []
    for words in ASKED:
        done = subprocess.run([program, "explain", *words.split(" ")], capture_output=True, text=True, timeout=120)
        try:
            expected = (0, info.explain(words), "")
        except LookupError as error:
            expected = (1, "", f"sluice-info: {error.args[0]}\n")
            unknown.append(words)
        assert (done.returncode, done.stdout, done.stderr) == expected
    assert unknown == ASKED[-5:]


def test_the_program_wants_words():
    done = subprocess.run([find_tool("sluice-info"), "explain"], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "words is required" in done.stderr
