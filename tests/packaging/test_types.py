"""Type stubs: what a type checker says of programs that use Sluice. The stubs come with the build and with the wheel."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import sluice as sl
from sluice._names.left_out import Absent

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(sl.__file__).parent

SMOKE = '''
import numpy
import sluice as sl
from sluice import nn
from sluice.testing import ActorHarness, assert_close
from typing_extensions import assert_type

x = sl.ones(2, 3, dtype=sl.float32)
assert_type(x, sl.Tensor)
assert_type(x + 1, sl.Tensor)
assert_type(1.0 - x, sl.Tensor)
assert_type(x @ x.T, sl.Tensor)
assert_type(x[0, ...], sl.Tensor)
assert_type(x.dtype, sl.dtype)
assert_type(x.shape.numel(), int)
assert_type(x.requires_grad, bool)
assert_type(x.grad, sl.Tensor | None)
assert_type(x.float().relu().sum(), sl.Tensor)
assert_type(sl.relu(x), sl.Tensor)
assert_type(sl.stack([x, x]), sl.Tensor)
assert_type(x.__dlpack_device__(), tuple[int, int])
assert_type(sl.float64, sl.dtype)
assert_type(sl.from_dlpack(x), sl.Tensor)
sl.ops.gelu(x, approximate="tanh")
x.to("sim:0"), x.to(sl.int64), x.requires_grad_(False).add_(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: sl.Tensor) -> sl.Tensor:
        return self.linear.forward(x).relu()


class Train(nn.Graph):
    def __init__(self) -> None:
        super().__init__(name="train")
        self.net = Net()
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))
        self.config.set_outputs_buffer_size(2)

    def build(self, x: sl.Tensor) -> sl.Tensor:
        loss = self.net.forward(x).sum()
        loss.backward()
        return loss


sl.save(Train().compile(x), "directory")
ActorHarness(sl.ops.relu).feed(x).expect(x, rtol=0.1)
assert_close(x, x)
with sl.no_grad(), sl.device("cpu"):
    sl.manual_seed(0)
try:
    pass
except sl.errors.TimeoutError as error:
    assert_type(error, sl.errors.TimeoutError)
'''

MISTAKES = {
    'sl.ones(2).reluu()': '"Tensor" has no attribute "reluu"',
    'sl.ones(2).softmax("first")': 'incompatible type "str"',
    'sl.ops.gelu(sl.ones(1), approximat="tanh")': 'Unexpected keyword argument "approximat"',
    'sl.ops.gelu("x")': 'incompatible type "str"; expected "Tensor"',
    'sl.nn.Linear("3", 2)': 'incompatible type "str"; expected "int"',
    'x: str = sl.ones(1).sum()': 'Incompatible types in assignment',
    'sl.no_such_name': 'has no attribute "no_such_name"',
}


def mypy(paths, tmp_path, cwd):
    env = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}/cache",
                           *map(str, paths)], capture_output=True, text=True, cwd=cwd, env=env)


def test_the_stubs_are_there_and_correct(tmp_path):
    stubs = [*PACKAGE.glob("_C/*.pyi"), PACKAGE / "__init__.pyi"]
    assert (PACKAGE / "py.typed").exists() and len(stubs) > 5
    done = mypy(stubs, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout


def test_examples_are_strictly_typed(tmp_path):
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert examples
    done = mypy([path.name for path in examples], tmp_path, ROOT / "examples")
    assert done.returncode == 0, done.stdout


def test_types_are_as_promised_and_mistakes_are_found(tmp_path):
    (tmp_path / "smoke.py").write_text(SMOKE)
    done = mypy(["smoke.py"], tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout
    for i, source in enumerate(MISTAKES):
        (tmp_path / f"mistake{i}.py").write_text(f"import sluice as sl\n{source}\n")
    done = mypy([f"mistake{i}.py" for i in range(len(MISTAKES))], tmp_path, tmp_path)
    found = {int(m[1]): m[2] for m in re.finditer(r"mistake(\d+)\.py:2: error: (.*)", done.stdout)}
    for i, (source, text) in enumerate(MISTAKES.items()):
        assert text in found.get(i, ""), (source, done.stdout)


def test_ops_stubs_are_the_definitions():
    text = (PACKAGE / "_C" / "ops.pyi").read_text()
    declared = dict(re.findall(r"^def (\w+)\((.*)\) -> Any", text, re.M))
    # Asked of a new process: extensions that other tests have loaded are in none of the stubs.
    defined = subprocess.run([sys.executable, "-c", "import sluice; print(*sluice.ops.__all__)"], capture_output=True,
                             text=True, check=True).stdout.split()
    assert list(declared) == defined
    for name, parameters in declared.items():
        names = re.findall(r"(\w+): ", parameters)
        assert names == re.findall(r"(\w+): ", getattr(sl.ops, name).signature), name


@pytest.mark.parametrize("name", ["Tensor", "GraphSession", "Generator", "Engine"])
def test_every_public_member_is_in_the_stubs(name):
    text = (PACKAGE / "_C" / "__init__.pyi").read_text()
    body = re.search(rf"^class {name}\b.*?\n((?:    .*\n)*)", text, re.M)[1]
    declared = set(re.findall(r"^    (?:def )?(\w+)", body, re.M))
    members = {m for m, value in vars(getattr(sl._C, name)).items()
               if not m.startswith("_") and not isinstance(value, Absent)}  # those only say what to use instead
    assert members <= declared, members - declared
