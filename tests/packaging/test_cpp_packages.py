"""Other programs are built on the installed library: find_package, pkg-config, add_subdirectory; C++ and C99."""

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
HERE = pathlib.Path(__file__).parent
LIBRARIES = ["sluice", "sluice_runtime"]


def run(*command, timeout=600, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", path, "--component", "cpp")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A bundle, the bytes of its input, and those of its output as Python computes them."""

    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(8, 16), sl.nn.ReLU(), sl.nn.Linear(16, 3))

        def build(self, x):
            return self.net(x).softmax(-1)

    sl.manual_seed(0)
    path = tmp_path_factory.mktemp("model")
    graph, x = Net(), sl.randn(4, 8)
    expected = graph(x).numpy()
    sl.save(graph, path / "bundle")
    (path / "in").write_bytes(x.numpy().tobytes())
    return path / "bundle", path / "in", expected


def check(program, model, tmp_path, libraries=None, arguments=()):
    """Runs the program on the bundle; its output must be Python's, bit by bit."""
    bundle, given, expected = model
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    if libraries:
        env["LD_LIBRARY_PATH"] = str(libraries)
    text = run(program, bundle, given, tmp_path / "out", *arguments, env=env, cwd=tmp_path)
    got = np.frombuffer((tmp_path / "out").read_bytes(), np.float32).reshape(expected.shape)
    np.testing.assert_array_equal(got, expected)
    return text


def pkg_config(prefix, *arguments):
    return run("pkg-config", *arguments, env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).split()


def build(source, where, *options, target="all", timeout=600):
    """Configures and builds a CMake project; returns the build folder."""
    run("cmake", "-S", source, "-B", where, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
    run("cmake", "--build", where, "--target", target, timeout=timeout)
    return where


def test_what_is_installed(prefix):
    files = {str(f.relative_to(prefix)) for f in prefix.rglob("*") if not f.is_dir()}
    assert "include/sluice/sluice.h" in files and "include/sluice/version.h" in files
    assert "share/doc/sluice/copyright" in files and "bin/plan-viz" in files
    assert not [f for f in files if f.endswith(".a") or "/sluice_tests" in f or f.endswith(".in")]
    for name in LIBRARIES:
        dynamic = run("readelf", "-d", prefix / f"lib/lib{name}.so")
        major_minor = ".".join(sl.__version__.split(".")[:2])
        assert f"soname: [lib{name}.so.{major_minor}]" in dynamic and "RUNPATH" not in dynamic
    # No graph and no compiler in the runtime.
    assert "libsluice" not in re.sub(r"soname: .*", "", run("readelf", "-d", prefix / "lib/libsluice.so"))
    sizes = {name: (prefix / f"lib/lib{name}.so").stat().st_size for name in LIBRARIES}
    assert sizes["sluice_runtime"] < sizes["sluice"]


def test_one_version_everywhere(prefix):
    project = re.search(r"project\(sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    header = re.search(r'SLUICE_VERSION "([\d.]+)"', (prefix / "include/sluice/version.h").read_text())[1]
    assert {project, header, sl.__version__, *(pkg_config(prefix, "--modversion", n)[0] for n in LIBRARIES)} == {project}


@pytest.mark.parametrize("name", LIBRARIES)
def test_exported_symbols_are_those_listed(name, prefix):
    """SLUICE_UPDATE=1 writes the list anew: review the difference, it is the interface."""
    symbols = exported(prefix / f"lib/lib{name}.so")
    listed = HERE / f"abi/{name}.txt"
    if os.environ.get("SLUICE_UPDATE"):
        listed.write_text("".join(f"{s}\n" for s in symbols))
    difference = compare(listed.read_text().splitlines(), symbols)
    assert not difference, "\n".join(difference) + "\nif this is meant: SLUICE_UPDATE=1, and raise the version when something went"
    assert all("sluice::api::" in s or s.startswith("sluice_") for s in symbols)


def exported(library):
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    return sorted({line.split(" ", 2)[2] for line in lines})


def compare(listed, found):
    return [f"gone: {s}" for s in listed if s not in found] + [f"new: {s}" for s in found if s not in listed]


def test_the_comparison_sees_changes():
    assert compare(["a()", "b(int)"], ["a()", "b(long)"]) == ["gone: b(int)", "new: b(long)"]


def test_runtime_is_a_subset():
    lists = [set((HERE / f"abi/{name}.txt").read_text().splitlines()) for name in LIBRARIES]
    assert lists[1] < lists[0]
    only = ("compile", "replan", "api::join(", "Eager", "DeviceTensor", "sluice_eager_", "sluice_device_tensor_")
    assert all(any(word in s for word in only) for s in lists[0] - lists[1])


def test_find_package_c(prefix, model, tmp_path):
    where = build(ROOT / "examples/c_runner", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    check(where / "c_runner", model, tmp_path)


def test_a_service_of_actors(prefix, tmp_path):
    """examples/caf_service: bundle, actor, bundle, against the same in Python."""
    class Net(sl.nn.Graph):
        def __init__(self, *sizes):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(*sizes), sl.nn.Tanh())

        def build(self, x):
            return self.net(x)

    sl.manual_seed(0)
    encoder, classifier = Net(6, 5), Net(5, 3)
    expected = []
    for i in range(40):
        x = (sl.arange(12) % 7 + i).to(sl.float32).reshape(2, 6)
        expected.append(classifier(encoder(x) / 2).numpy().astype(np.float64).sum())
    sl.save(encoder, tmp_path / "encoder")
    sl.save(classifier, tmp_path / "classifier")
    where = build(ROOT / "examples/caf_service", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    answers = run(where / "caf_service", tmp_path / "encoder", tmp_path / "classifier", 40).split()
    assert answers == [f"{value:.6g}" for value in expected]
    wrong = subprocess.run([where / "caf_service", tmp_path / "encoder", "/no/bundle", "1"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "bundle '/no/bundle': not a directory" in wrong.stderr


def test_find_package_refuses_another_version(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\nfind_package(sluice 0.2 REQUIRED)\n")
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and 'requested version "0.2"' in done.stderr


def test_custom_op_example(prefix, tmp_path):
    where = build(ROOT / "examples/custom_op", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    undefined = run("nm", "-DC", "--undefined-only", where / "example_ops.so")
    assert not [s for s in undefined.splitlines() if "sluice" in s and " W " not in s]
    assert "libsluice" not in run("readelf", "-d", where / "example_ops.so")
    script = f"import sluice as sl; sl.ops.load_library({str(where / 'example_ops.so')!r}); " \
             "print(sl.ops.scaled_softsign(sl.tensor([3.0]), slope=2.0).item())"
    assert run(sys.executable, "-c", script) == "1.5\n"


@pytest.mark.parametrize("library", LIBRARIES)
def test_pkg_config(library, prefix, model, tmp_path):
    flags = pkg_config(prefix, "--cflags", "--libs", library)
    run("g++", "-std=c++20", "-O1", HERE / "consumer.cpp", "-o", tmp_path / "consumer", *flags)
    assert check(tmp_path / "consumer", model, tmp_path, prefix / "lib").split() == [sl.__version__] * 2


def test_pkg_config_c99(prefix, model, tmp_path):
    flags = pkg_config(prefix, "--cflags", "--libs", "sluice_runtime")
    run("gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", ROOT / "examples/c_runner/main.c", "-o",
        tmp_path / "c_runner", *flags)
    check(tmp_path / "c_runner", model, tmp_path, prefix / "lib")
    wrong = subprocess.run([tmp_path / "c_runner", "/no/bundle", model[1], tmp_path / "out"], capture_output=True, text=True,
                           env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})
    assert wrong.returncode == 1 and wrong.stderr.startswith("c_runner: bundle '/no/bundle': not a directory")


SERVERS = {"serving.hpp", "sluice_server.h"}  # those of the component serving: test_serving_library.py
HEADERS = [p.name for p in sorted((ROOT / "include/sluice").glob("*.h*")) if p.suffix in {".h", ".hpp"} and p.name not in SERVERS]


@pytest.mark.parametrize("header", HEADERS)
def test_each_installed_header_compiles_alone(header, prefix):
    includes = f"#include <sluice/{header}>\n"
    run("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{prefix}/include", "-x", "c++", "-", input=includes)
    if header in ("sluice.h", "sluice_eager.h"):
        run("gcc", "-std=c99", "-pedantic", "-Wall", "-Werror", "-fsyntax-only", f"-I{prefix}/include", "-x", "c", "-", input=includes)


def test_a_device_backend_on_the_installed_headers(prefix, tmp_path):
    """examples/device, built of what the components cpp and backend install, and of nothing else."""
    shutil.copytree(prefix, tmp_path / "prefix", symlinks=True)
    run("cmake", "--install", BUILD, "--prefix", tmp_path / "prefix", "--component", "backend")
    shutil.copytree(ROOT / "examples/device", tmp_path / "source")
    where = build(tmp_path / "source", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    library = where / "libsluice_example.so"
    ours = [s.split(" ", 2)[2] for s in run("nm", "-DC", "--defined-only", library).splitlines() if " T " in s]
    assert ours == ["sluice_backend"]
    assert not re.search(rf"(?<![\w/]){re.escape(str(ROOT))}/", (where / "compile_commands.json").read_text())

    # Nothing is installed that it does not include.
    headers = tmp_path / "prefix/include/sluice/backend"
    installed = {str(h.relative_to(headers)) for h in headers.rglob("*.h")}
    words = run("g++", "-std=c++20", f"-I{headers}", "-MM", tmp_path / "source/example_device.cpp").split()
    included = {w.removeprefix(f"{headers}/") for w in words if w.endswith(".h")}
    assert included == installed
    assert "SLUICE_BACKEND_ABI" in (headers / "README.md").read_text()

    script = f"import sluice as sl; print(sl.backends.load({str(library)!r}), sl.ones(3).to('example:0').cpu().tolist())"
    assert run(sys.executable, "-c", script) == "example [1.0, 1.0, 1.0]\n"


def test_a_device_backend_wants_its_component(prefix, tmp_path):
    done = subprocess.run(["cmake", "-S", ROOT / "examples/device", "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "component 'backend' is not installed" in " ".join(done.stderr.split())


def test_add_subdirectory(model, tmp_path):
    """Leaves the parent's settings alone. It compiles the runtime anew, which takes minutes."""
    where = BUILD.parent / "subproject"  # beside the main build, from which the compiler cache knows most objects
    shutil.rmtree(where, ignore_errors=True)
    build(HERE / "subproject", where, f"-DSLUICE_SOURCE={ROOT}", f"-DCONSUMER={HERE / 'consumer.cpp'}", target="consumer",
          timeout=1800)
    check(where / "consumer", model, tmp_path)
    assert "libsluice" not in (where / "sluice/cmake_install.cmake").read_text()
    shutil.rmtree(where)
