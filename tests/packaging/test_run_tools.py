"""sluice-run and sluice-bench on bundles, with files of NumPy's, without Python in the programs."""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

import sluice as sl

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))


def call(program, *arguments, status=0):
    done = subprocess.run([BUILD / "tools" / program, *map(str, arguments)], capture_output=True, text=True, timeout=600)  # beside many processes, measuring is slow
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status != 1 else done.stderr


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A bundle with an input x and a scalar, and what Python computes."""

    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(8, 16), sl.nn.GELU(), sl.nn.Linear(16, 3))

        def build(self, x, scale):
            y = self.net(x) * scale
            return y, y.argmax(-1)

    sl.manual_seed(0)
    path = tmp_path_factory.mktemp("net")
    graph, x = Net(), sl.randn(4, 8)
    results = graph(x, sl.tensor(2.0))
    sl.save(graph, path / "net")
    np.save(path / "x.npy", x.numpy())
    for i, result in enumerate(results):
        np.save(path / f"expected{i}.npy", result.numpy())
    return path


def test_a_bundle_runs_on_numpys_files(net):
    """The results are Python's, bit by bit; exit status 2 says that they are not what was expected."""
    a, b = net / "a.npy", net / "b.npy"
    call("sluice-run", net / "net", f"--input=@{net / 'x.npy'}", "--input=2", f"--output=@{a}", f"--output=@{b}")
    np.testing.assert_array_equal(np.load(a), np.load(net / "expected0.npy"))
    np.testing.assert_array_equal(np.load(b), np.load(net / "expected1.npy"))
    same = [net / "net", "--input=scale=2", f"--input=x=@{net / 'x.npy'}", "--tolerance=0",
            f"--expect=@{net / 'expected0.npy'}"]
    call("sluice-run", *same)
    np.save(net / "wrong.npy", np.load(net / "expected0.npy") + 1)
    call("sluice-run", *same[:-1], f"--expect=@{net / 'wrong.npy'}", status=2)


def test_what_is_shown(net):
    told = call("sluice-run", net / "net", "--input=zeros", "--input=1")
    assert told.count("float32(4, 3)\n[[") == 1 and "int64(4,)\n[" in told
    info = call("sluice-run", net / "net", "--info")
    assert "x: float32(4, 8)" in info and "scale: float32()" in info and " actors, " in info


@pytest.mark.parametrize("arguments, told", [
    (["--input=zeros"], "input 'scale: float32()': it is not given"),
    (["--input=@{}/expected1.npy", "--fill=zeros"],
     "holds int64(4,); the plan takes x: float32(4, 8); save x.astype('float32')"),
    (["--input=1,2", "--fill=zeros"], "2 numbers; x: float32(4, 8) takes 32, or one for all of them"),
])
def test_errors_say_what_to_do(net, arguments, told):
    assert told in call("sluice-run", net / "net", *[a.format(net) for a in arguments], status=1)


def test_a_missing_bundle_is_named():
    assert "/no/bundle" in call("sluice-run", "/no/bundle", status=1)
    assert "/no/bundle" in call("sluice-bench", "/no/bundle", status=1)


def test_a_family_takes_the_size_that_is_given(tmp_path):
    class Net(sl.nn.Graph):
        def build(self, x):
            return x * 2

    graph = Net()
    graph.config.set_dims({"x": {0: sl.Dim("batch", max=8)}})
    graph(sl.ones(8, 2))
    sl.save(graph, tmp_path / "net")
    assert "float32(3, 2)" in call("sluice-run", tmp_path / "net", "--fill=random", "--dim=batch=3")
    assert "batch<=8" in call("sluice-run", tmp_path / "net", "--info")


def test_times_are_as_google_benchmark_writes_them(net):
    quick = ["--benchmark_min_time=0.001", f"--input=x=@{net / 'x.npy'}"]
    table = call("sluice-bench", net / "net", *quick).splitlines()
    assert [line.split()[0] for line in table[3:]] == ["net/load", "net/run", "net/in_flight:2"]
    assert table[1].split()[:4] == ["Benchmark", "Time", "CPU", "Iterations"]
    out = net / "times.json"
    told = call("sluice-bench", net / "net", *quick, "--benchmark_filter=run|flight", "--in-flight=1", "--in-flight=4",
                "--items=4", "--benchmark_repetitions=3", "--benchmark_format=csv", f"--benchmark_out={out}")
    assert told.startswith("name,iterations,real_time,cpu_time,time_unit,")
    rows = json.loads(out.read_text())["benchmarks"]
    assert [r["run_name"] for r in rows] == ["net/run"] * 7 + ["net/in_flight:1"] * 7 + ["net/in_flight:4"] * 7
    for row in rows:
        if row["run_type"] == "iteration":
            assert row["real_time"] > 0 and row["iterations"] >= 1
            assert row["items_per_second"] == pytest.approx(4e6 / row["real_time"], rel=1e-4)
    assert call("sluice-bench", net / "net", "--benchmark_list_tests", "--benchmark_filter=load") == "net/load\n"
    assert "matches none" in call("sluice-bench", net / "net", "--benchmark_filter=xyz", status=1)


def instruction_sets(**env):
    told = subprocess.run([BUILD / "tools/sluice-info", "--json"], capture_output=True, text=True, check=True,
                          env={**os.environ, **env})
    return json.loads(told.stdout)["instructions"]


def test_the_machine_and_how_fast_it_moves_bytes():  # STP-06
    told = json.loads(call("sluice-info", "measure", "--json"))
    assert told["cores"] >= 1 and 1 <= told["cores_used"] <= told["cores"] and told["instructions"] == instruction_sets()
    assert all(cache["level"] >= 1 and cache["type"] and cache["size"] for cache in told["caches"])
    assert {node["name"] for node in told["nodes"]} == {p.name for p in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")}
    rates = told["gb_per_s"]
    assert rates.keys() == {"memcpy", "shared_memory", "tcp_loopback"} and all(rate > 0.001 for rate in rates.values()), rates
    text = call("sluice-info", "measure")
    for word in ("cores ", "instructions ", "memcpy ", "shared_memory ", "tcp_loopback ", " GB/s"):
        assert word in text


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A net of kernels of all kinds: convolution and product (oneDNN), softmax, norm and pooling (Highway), loops."""

    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Conv2d(3, 8, 3), sl.nn.ReLU(), sl.nn.MaxPool2d(2), sl.nn.Flatten(),
                                        sl.nn.Linear(72, 16), sl.nn.LayerNorm(16), sl.nn.Sigmoid(), sl.nn.Softmax(-1))

        def build(self, x):
            return self.net(x)

    sl.manual_seed(0)
    path = tmp_path_factory.mktemp("mixed")
    graph, x = Net(), sl.randn(2, 3, 8, 8)
    np.save(path / "y.npy", graph(x).numpy())
    np.save(path / "x.npy", x.numpy())
    sl.save(graph, path / "net")
    return path


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_one_bundle_takes_the_kernels_of_the_processor(level, mixed):
    """Dispatch when the program starts: the same files, the same results to the last bits, other instructions."""
    best = instruction_sets()
    limited = instruction_sets(SLUICE_MAX_ISA=level)
    expected = {"baseline": ("sse41", "SSE4"), "avx2": ("avx2", "AVX2"), "avx512": ("avx512_core", "AVX3")}[level]
    order = ["SSE4", "AVX2", "AVX3", "AVX3_DL", "AVX3_ZEN4", "AVX3_SPR"]
    if order.index(best["Highway"]) >= order.index(expected[1]):
        assert limited["Highway"] == expected[1] and limited["oneDNN"] == expected[0]
    else:
        assert limited["Highway"] == best["Highway"]  # no more than there is
    done = subprocess.run([BUILD / "tools/sluice-run", mixed / "net", f"--input=@{mixed / 'x.npy'}",
                           f"--expect=@{mixed / 'y.npy'}", "--quiet"], capture_output=True, text=True, env={**os.environ, "SLUICE_MAX_ISA": level})
    assert done.returncode == 0, done.stderr


def test_kernels_for_each_instruction_set_are_in_the_library():
    symbols = subprocess.run(["nm", "-C", BUILD / "tools/sluice-run"], capture_output=True, text=True, check=True).stdout
    sets = set(re.findall(r"sluice::cpu::N_(\w+)::", symbols))
    assert sets in ({"SCALAR", "AVX2", "AVX3"}, {"SSE2", "AVX2", "AVX3"})  # the baseline is Highway's choice
    assert ".arch_x86_64_v3" in symbols and ".arch_x86_64_v4" in symbols


def test_an_instruction_set_that_is_none_is_refused(net):
    done = subprocess.run([BUILD / "tools/sluice-run", net / "net", "--fill=zeros"], capture_output=True, text=True,
                          env={**os.environ, "SLUICE_MAX_ISA": "mmx"})
    assert done.returncode == 1 and "SLUICE_MAX_ISA: 'mmx'; must be baseline, avx2 or avx512" in done.stderr


@pytest.mark.parametrize("program", ["sluice-run", "sluice-bench"])
def test_they_have_of_sluice_what_services_have(program):
    """No graph and no compiler are linked, and no Python."""
    symbols = subprocess.run(["nm", "-C", BUILD / "tools" / program], capture_output=True, text=True, check=True).stdout
    assert "sluice::SessionCore::" in symbols
    assert "sluice::graph::parse" not in symbols and "sluice::EagerExecutor" not in symbols
    assert "python" not in subprocess.run(["ldd", BUILD / "tools" / program], capture_output=True, text=True, check=True).stdout


def test_help_has_an_example_of_each_use():
    for program in ("sluice-run", "sluice-bench"):
        told = call(program, "--help")
        assert told.count(f"  {program} ") >= 5
