"""sluice-compile --to c: a saved graph as one C file, which runs without Sluice, in memory that is known beforehand."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "examples"))

from digits_net import DigitsNet  # noqa: E402

STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
# Reads the inputs of steps and writes what each gives, both as bytes.
RUNNER = """#include <stdio.h>
#include "net.h"
int main(void) {{
  for (;;) {{
{reads}    const int error = net_run();
    if (error != 0) {{
      fputs(net_error(error), stderr);
      return 2;
    }}
{writes}  }}
}}
"""


def run(*command, status=0, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, timeout=300, **options)
    assert done.returncode == status, f"{' '.join(map(str, command))}\n{done.stderr.decode()}"
    return done.stdout


class Graph(sl.nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, *inputs):
        return self.net(*inputs)


def translated(graph, where):
    """The C file of a graph that has been called, and its header."""
    sl.save(graph, where / "bundle")
    run(BUILD / "tools/sluice-compile", where / "bundle", "--to", "c", "--name", "net", "-o", where / "net.c")
    return where / "net.c", (where / "net.h").read_text()


def runner(source, header, *options):
    """The program that runs it, of the functions that the header declares."""
    where = source.parent
    inputs = re.findall(r"^(\w+)\* (net_input_\w+)\(void\); /\* \w+\((.*)\) \*/", header, re.M)
    outputs = re.findall(r"^const (\w+)\* (net_output_\w+)\(void\); /\* \w+\((.*)\) \*/", header, re.M)

    def size(shape):
        return int(np.prod([int(d) for d in shape.split(",") if d.strip()], dtype=int))

    reads = "".join(f"    if (fread({name}(), sizeof({t}), {size(s)}, stdin) != {size(s)}) return 0;\n" for t, name, s in inputs)
    writes = "".join(f"    fwrite({name}(), sizeof({t}), {size(s)}, stdout);\n" for t, name, s in outputs)
    (where / "main.c").write_text(RUNNER.format(reads=reads, writes=writes))
    run("cc", *STRICT, "-O2", *options, where / "main.c", source, "-o", where / "runner", "-lm")
    return where / "runner"


def steps_of(program, steps, dtype=np.float32):
    given = b"".join(np.ascontiguousarray(x).tobytes() for step in steps for x in step)
    return np.frombuffer(run(program, input=given), dtype)


class DigitsGraph(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = DigitsNet().eval()

    def build(self, images):
        return self.net(images)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The net of the digits example, whose statistics are those of some data, as C; four images, and their logits."""
    sl.manual_seed(0)
    net = DigitsNet()
    for _ in range(4):
        net(sl.randn(16, 1, 8, 8))
    graph, x = Graph(net.eval()), sl.randn(4, 1, 8, 8)
    expected = graph(x).numpy()
    return *translated(graph, tmp_path_factory.mktemp("digits")), x.numpy(), expected


def test_digits_as_the_engine_computes_them(digits, count):
    source, header, x, expected = digits
    program = runner(source, header)
    got = steps_of(program, [[x], [2 * x], [x]]).reshape(3, 4, 10)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[0], got[2])  # a step leaves nothing behind
    assert np.abs(got[1] - expected).max() > 1e-2
    count("largest difference of the digits in C", float(np.abs(got[0] - expected).max()), "from the engine's logits")


def test_the_whole_program_is_small(digits, count):
    """Linked statically, with the weights, all memory and C's library: at most 1.5 MB."""
    source, header, x, _ = digits
    program = runner(source, header, "-static")
    steps_of(program, [[x]])
    text, data, bss = (int(n) for n in run("size", program).split()[6:9])
    count("the digits in C, linked statically", text + data + bss, f"bytes: {text} of code, {data} of data, {bss} of memory")
    assert text + data + bss <= 1_500_000
    assert bss >= int(re.search(r"(\d+) bytes of memory beside its weights", header)[1])


def test_it_needs_nothing_but_mathematics(digits):
    """Nothing of C's library is called that a machine without an operating system lacks: no memory is allocated."""
    out = digits[0].with_suffix(".o")
    run("cc", *STRICT, "-O2", "-ffreestanding", "-fno-pic", "-c", digits[0], "-o", out)
    assert set(re.findall(r" U (\w+)", run("nm", out).decode())) <= {"sqrtf", "memcpy", "memset"}


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs gcc-arm-none-eabi and libnewlib-arm-none-eabi")
def test_it_compiles_for_a_microcontroller(digits, count):
    source = digits[0]
    out = source.with_suffix(".arm.o")
    run("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", *STRICT, "-Os", "-ffreestanding",
        "-c", source, "-o", out)
    text, data, bss = (int(n) for n in run("arm-none-eabi-size", out).split()[6:9])
    count("the digits for a Cortex-M4", text + data + bss, f"bytes: {text} of code and weights, {bss} of memory")


class Text(sl.nn.Module):
    """Embedding, attention, layer norm: what a small transformer has."""

    def __init__(self):
        super().__init__()
        self.embedding = sl.nn.Embedding(11, 16)
        self.layer = sl.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = sl.nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)).mean(1)).log_softmax(-1)


class Pictures(sl.nn.Module):
    """Groups, dilation, both poolings, a transposed convolution, parts joined and padded."""

    def __init__(self):
        super().__init__()
        self.a = sl.nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2)
        self.b = sl.nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.pool, self.mean = sl.nn.MaxPool2d(3, 2, 1), sl.nn.AvgPool2d(2, ceil_mode=True)
        self.norm = sl.nn.GroupNorm(2, 8)

    def forward(self, x):
        y = self.norm(self.a(x)).sigmoid()
        joined = sl.cat([self.pool(y), self.mean(y)], 1).flip([2])
        return sl.nn.functional.pad(self.b(joined[:, :8]).transpose(2, 3), (1, 0), value=0.5).softmax(1)


class Series(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = sl.nn.Conv1d(2, 6, 3, stride=2, padding=1)
        self.weight = sl.nn.Parameter(sl.randn(6, 5))

    def forward(self, x, scale):
        y = sl.nn.functional.gelu(self.conv(x)) * scale
        best = y.argmax(1)
        return sl.tanh(y.transpose(1, 2) @ self.weight).amax(1), y.std(2), best.to(sl.float32), y.cos().prod(1)


@pytest.mark.parametrize("make, inputs", [
    (Text, lambda: [sl.randint(0, 11, (2, 5))]),
    (Pictures, lambda: [sl.randn(2, 4, 9, 8)]),
    (Series, lambda: [sl.randn(3, 2, 12), sl.tensor(1.5)]),
])
def test_modules_as_the_engine_computes_them(make, inputs, tmp_path):
    for seed in range(2):
        sl.manual_seed(seed)
        net, given = make().eval(), inputs()
        graph = Graph(net)
        results = graph(*given)
        results = results if isinstance(results, tuple) else (results,)
        where = tmp_path / str(seed)
        where.mkdir()
        program = runner(*translated(graph, where))
        got = steps_of(program, [[x.numpy() for x in given]])
        expected = np.concatenate([r.numpy().ravel() for r in results])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_wrong_index_is_an_error_that_names_the_op(tmp_path):
    graph = Graph(sl.nn.Embedding(4, 2))
    graph(sl.tensor([0, 3]))
    program = runner(*translated(graph, tmp_path))
    done = subprocess.run([program], input=np.array([0, 4]).tobytes(), capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.decode() == "index_select: an index is out of range; it must be in [0, 4)"


def test_training_steps(tmp_path):
    """A plan with a backward pass and an optimizer: its weights change from step to step, in C as in Python."""
    sl.manual_seed(0)
    net = sl.nn.Sequential(sl.nn.Linear(6, 8), sl.nn.Tanh(), sl.nn.Linear(8, 3))
    optimizer = sl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(optimizer)

        def build(self, x, target):
            loss = sl.nn.functional.cross_entropy(self.net(x), target)
            loss.backward()
            return loss

    graph, x, target = Train(), sl.randn(5, 6), sl.randint(0, 3, (5,))
    graph(x, target)  # which compiles, and is a step
    program = runner(*translated(graph, tmp_path))
    expected = [graph(x, target).item() for _ in range(6)]
    got = steps_of(program, [[x.numpy(), target.numpy()]] * 6)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert got[-1] < 0.8 * got[0]


def test_the_page(tmp_path):
    """docs/small-machines.md: its program and its commands, on the digits."""
    page = (ROOT / "docs/small-machines.md").read_text()
    program, = re.findall(r"^```c\n(.*?)^```", page, re.S | re.M)
    commands = re.findall(r"^```(?:bash|sh)\n(.*?)^```", page, re.S | re.M)
    graph = DigitsGraph()
    logits = graph((sl.arange(64) % 16).to(sl.float32).reshape(1, 1, 8, 8).repeat(4, 1, 1, 1))
    sl.save(graph, tmp_path / "out/digits/bundle")
    (tmp_path / "main.c").write_text(program)
    tools = {**os.environ, "PATH": f"{BUILD / 'tools'}:{os.environ['PATH']}"}
    for lines in commands[1:]:  # the first ones build Sluice, as test_reduced.py does
        told = run("bash", "-ec", lines, cwd=tmp_path, env=tools)
    assert commands[0].startswith("cmake -S . -B")
    np.testing.assert_allclose([float(word) for word in told.split()], logits.numpy()[0], atol=2e-3)


@pytest.mark.parametrize("graph, inputs, told", [
    (lambda: Graph(lambda x: x.argsort(0)), lambda: [sl.ones(3)], "op argsort: no kernel on device c:0"),
    (lambda: Graph(lambda x: x * 2), lambda: [sl.ones(3, dtype=sl.bfloat16)], "bfloat16: no form in C; cast it to float32 first"),
])
def test_what_has_no_form_in_c_is_refused_by_name(graph, inputs, told, tmp_path):
    made = graph()
    made(*inputs())
    sl.save(made, tmp_path / "bundle")
    done = subprocess.run([BUILD / "tools/sluice-compile", tmp_path / "bundle", "--to", "c"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 2 and told in done.stderr and done.stdout == ""
