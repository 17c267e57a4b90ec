"""Measures the public headers and calls: how much a compiler reads, what a library of ops exports, copies and allocations.

Times are printed (pytest -s) and not asserted, since the machine may be busy; counts are.
"""

import os

import pytest

import sluice as sl
from test_cpp_packages import HERE, ROOT, build, pkg_config, prefix, run  # noqa: F401


def seconds_of(source, include):
    """The processor's time that g++ takes to read it, and how many lines it reads."""
    times = []
    for _ in range(3):
        before = os.times()
        run("g++", "-std=c++20", "-fsyntax-only", f"-I{include}", "-x", "c++", "-", input=source)
        after = os.times()
        times.append(after.children_user - before.children_user)
    return min(times), run("g++", "-std=c++20", "-E", f"-I{include}", "-x", "c++", "-", input=source).count("\n")


def test_the_header_is_read_quickly(prefix):  # noqa: F811
    base, base_lines = seconds_of("#include <memory>\n#include <string>\n#include <vector>\n", prefix / "include")
    all_of_it, lines = seconds_of("#include <sluice/sluice.hpp>\n", prefix / "include")
    print(f"\nsluice.hpp: {all_of_it:.2f} s, {lines} lines; <memory>, <string> and <vector> alone: {base:.2f} s, {base_lines} lines")
    assert lines < 66_000  # nearly all of it is <memory>, <string> and <vector>
    there = run("g++", "-std=c++20", "-M", f"-I{prefix / 'include'}", "-x", "c++", "-", input="#include <sluice/sluice.hpp>\n")
    heavies = "iostream complex regex map mutex thread format filesystem chrono functional caf boost"
    for heavy in heavies.split():
        assert f"/12/{heavy} " not in there and f"/{heavy}.hpp" not in there, heavy


def test_a_library_of_ops_exports_its_two_functions(prefix, tmp_path):  # noqa: F811
    where = build(ROOT / "examples/custom_op", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    symbols = [line.split(" ", 2)[2] for line in run("nm", "-DC", "--defined-only", where / "example_ops.so").splitlines()]
    print(f"\nexample_ops.so: {len(symbols)} exported symbols")
    assert sorted(symbols) == ["sluice_extension", "sluice_extension_abi"]


@pytest.fixture(scope="module")
def figures(prefix, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("costs")

    class Mlp(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(8, 16), sl.nn.ReLU(), sl.nn.Linear(16, 3))

        def build(self, x):
            return self.net(x)

    class Identity(sl.nn.Graph):
        def build(self, x):
            return x

    for graph, shape, name in ((Mlp(), (1, 8), "mlp"), (Identity(), (64 << 18,), "identity")):
        graph(sl.zeros(*shape))
        sl.save(graph, path / name)
    flags = pkg_config(prefix, "--cflags", "--libs", "sluice_runtime")
    run("g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", HERE / "api_costs.cpp", "-o", path / "costs", *flags)
    lines = run(path / "costs", path / "mlp", path / "identity", env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})
    print("\n" + lines)
    return {name: float(value) for name, value in map(str.split, lines.splitlines())}


def test_a_call_allocates_what_its_results_need(figures):
    for call in ("run", "run_into"):
        us, all_, ours = (figures[f"{call}_{what}"] for what in ("us", "allocations", "ours"))
        print(f"{call}() of a small MLP: {us:.1f} us, {ours:.0f} allocations of ours, {all_ - ours:.0f} of oneDNN")
    assert 0 < figures["run_ours"] <= 10  # tensors, their shapes, the step's handle
    assert figures["run_into_ours"] == 0


def test_large_tensors_go_in_and_out(figures):
    """The plan itself copies its input to its output; what is exchanged costs that alone."""
    for call in ("copied", "into"):
        told = (figures[f"{call}_us"] - figures["exchanged_us"]) / figures["two_memcpys_us"]
        print(f"64 MiB in and out, {call}, beside the plan's own copy: {told:.2f} x two memcpys")
    assert figures["mib"] == 64
