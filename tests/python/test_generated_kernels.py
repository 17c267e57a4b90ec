"""Fused rows as C++ that is made for them: the same bits, a source to be read, and what happens without a compiler."""

import os
import subprocess
import sys

import numpy as np
import pytest
from fusing import Compute, layer_norm, ops, softmax

import sluice as sl
from sluice import _C, nn

pytestmark = pytest.mark.skipif(not _C.host_compiler(), reason="no g++")


def generated(function, mode=True):
    graph = Compute(function)
    graph.config.enable_generated_kernels(mode)
    return graph


class OfOneTensor(nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.enable_generated_kernels()

    def build(self, x):
        return softmax(sl, x)


def masked(x, mask):
    return softmax(sl, sl.where(mask, x * 0.125, float("-inf")))


def random(*shape):
    return sl.from_numpy(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


CASES = {
    "softmax": (lambda x: softmax(sl, x), lambda: (random(64, 1024),)),
    "layer_norm": (lambda *xs: layer_norm(sl, *xs), lambda: (random(40, 3, 200), random(200), random(200))),
    "masked": (masked, lambda: (random(2, 3, 40, 160), random(2, 1, 1, 160) > 0)),
    "statistics": (lambda x: ((x * x).sum(-1).sqrt(), x.amin(-1), x / x.abs().amax(-1, keepdim=True)), lambda: (random(33, 129),)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_those_of_the_usual_kernels(case):
    function, make = CASES[case]
    xs = make()
    graph, usual = generated(function), generated(function, False)
    results, expected = graph(*xs), usual(*xs)
    for got, want in zip(*[r if isinstance(r, tuple) else (r,) for r in (results, expected)]):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert ops(graph) == ops(usual) and "fused_rows" in ops(graph)
    kernels = [k for k in graph.plan["kernels"] if k["op"] == "fused_rows"]
    assert all(k["attrs"]["implementation"] == "generated" for k in kernels)
    assert list(graph.kernel_sources()) == [k["name"] for k in kernels] and usual.kernel_sources() == {}
    assert graph.config.report()["enable_generated_kernels"] == len(kernels)


def test_the_source_is_what_is_computed():
    graph = generated(lambda x: softmax(sl, x))
    graph(random(8, 512))
    [text] = graph.kernel_sources().values()
    lines = [line.strip() for line in text.splitlines()]
    assert "constexpr int64_t kLength = 512;" in lines
    for step in ("sub_step(v0, v1)", "exp_step(v2)", "div_step(v3, v4)", "fold_row<ReductionKind::kMax>(x0", "fold_row<ReductionKind::kSum>("):
        assert step in text, text


@pytest.mark.parametrize("shape", [(64, 100), (4, 5000)])  # 128 elements or less, and more than 4,096
def test_other_rows_keep_their_usual_kernel(shape):
    graph = generated(lambda x: softmax(sl, x))
    got = graph(random(*shape))
    assert got.numpy().tobytes() == softmax(sl, random(*shape)).numpy().tobytes()
    assert graph.kernel_sources() == {}
    with pytest.warns(UserWarning, match=r"enable_generated_kernels\(\) has changed nothing: no kernel of the graph is one of rows"):
        assert graph.config.report()["enable_generated_kernels"] == 0


SAVE = """
import test_generated_kernels as t
from test_generated_kernels import sl

graph = t.OfOneTensor()
print(graph(sl.arange(1024, dtype=sl.float32).reshape(4, 256) / 100).numpy().tobytes().hex())
assert graph.kernel_sources()
sl.save(graph, {path!r})
"""
LOAD = """
import sluice as sl
from sluice import nn

print(sl.load_graph({path!r})(sl.arange(1024, dtype=sl.float32).reshape(4, 256) / 100).numpy().tobytes().hex())
try:
    nn.Graph().config.enable_generated_kernels()
except RuntimeError as error:
    print(error)
"""


def run(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd=os.path.dirname(__file__),
                          env={**os.environ, **environment})


def test_a_saved_plan_runs_without_a_compiler(tmp_path):
    saved = run(SAVE.format(path=str(tmp_path / "bundle")))
    assert saved.returncode == 0, saved.stderr
    loaded = run(LOAD.format(path=str(tmp_path / "bundle")), CXX="/there/is/none")
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.splitlines() == [
        *saved.stdout.splitlines(), "enable_generated_kernels: no g++; install it, or name it with the variable CXX"]
    assert "fused_rows: a generated kernel is asked for, and there is no g++ here; its usual one serves" in loaded.stderr


def test_a_compiler_that_refuses_is_named_with_its_messages(tmp_path):
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\ntest \"$1\" = --version && echo g++ 0 && exit\necho it is broken\nexit 3\n")
    compiler.chmod(0o755)
    done = run("import test_generated_kernels as t; t.OfOneTensor()(t.random(8, 300))", CXX=str(compiler))
    assert done.returncode != 0 and f"generated kernels: {compiler} ended with 3; its messages:\nit is broken" in done.stderr


def test_what_was_compiled_is_kept_in_files(tmp_path):
    kept = []
    for _ in range(2):
        done = run("import test_generated_kernels as t; t.OfOneTensor()(t.random(8, 777))", SLUICE_CACHE="on", SLUICE_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        kept.append(sorted((path.name, path.stat().st_ino) for path in (tmp_path / "generated").iterdir()))
    assert kept[0] and kept[0] == kept[1]
