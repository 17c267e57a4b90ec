"""The pages about C++ and C: their commands, projects, programs and libraries, as they stand there."""

import json
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
NAMES = ("embedding.md", "compiling-in-cpp.md", "custom-ops.md", "sessions-as-actors.md")
PAGES = [(ROOT / "docs" / page).read_text() for page in NAMES]


def blocks(language):
    return [text for page in PAGES for text in re.findall(rf"^```{re.escape(language)}\n(.*?)^```", page, re.S | re.M)]


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The page's commands, with this build and a folder of the test's own in place of the ones named there."""
    path = tmp_path_factory.mktemp("embedding")
    for line in blocks("bash")[0].splitlines():
        words = [w.replace("/tmp/", f"{path}/").replace("build/release", str(BUILD)) for w in line.split()]
        run(*words, cwd=ROOT)
    assert (path / "c_runner/c_runner").exists()
    return path


@pytest.fixture(scope="module")
def project(installed):
    """The page's project: each program is in the file that its first line names."""
    path = installed / "project"
    path.mkdir()
    (path / "CMakeLists.txt").write_text(blocks("cmake")[0])
    for text in blocks("cpp") + blocks("c"):
        name = re.match(r"(?://|/\*) (\S+)", text)[1]
        (path / name).write_text(text)
    run("cmake", "-S", path, "-B", path / "b", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", "-DCMAKE_C_FLAGS=-std=c99 -pedantic -Wall -Wextra -Werror",
        f"-DCMAKE_PREFIX_PATH={installed / 'sluice'}")
    run("cmake", "--build", path / "b")
    return path / "b"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    class Net(sl.nn.Graph):
        def build(self, x):
            return x.relu() * 2

    graph = Net()
    graph(sl.zeros(1, 4))
    path = tmp_path_factory.mktemp("service") / "bundle"
    sl.save(graph, path)
    return path


@pytest.mark.parametrize("program", ["service", "service_c", "service_caf"])
def test_services_run(program, project, bundle):
    assert run(project / program, bundle) == "2 0\n"


def test_values_stay_on_their_device(project, bundle, tmp_path):
    for device, port in (("sim:0", "sim:0"), ("cpu", "cpu:0")):
        own = shutil.copytree(bundle, tmp_path / port)
        assert run(project / "resident", own, device) == f"{port} 8 24\n"
        plan = json.loads((own / "plan.json").read_text())
        assert [k["op"] for k in plan["kernels"]] == ["fused"], "nothing is copied"


def test_own_op_in_python(project):
    source = blocks("py")[0].replace("my_ops.so", str(project / "my_ops.so"))
    assert run(sys.executable, "-c", source) == "[-2.0, 0.5, 2.0] [0.0, 1.0, 0.0]\n"


def test_own_op_is_short_and_one_kernel_on_cuda(project):
    """On a driver without a GPU, which runs the generated source."""
    text = next(text for text in blocks("cpp") if "ClampKernel" in text)
    assert len(text.splitlines()) <= 60
    fakes = BUILD / "tests/cuda"
    if not (fakes / "libfake_cuda.so").exists():
        pytest.skip("built without the CUDA backend or its tests")
    source = f"""
import sluice as sl
sl.ops.load_library({str(project / "my_ops.so")!r})
class Net(sl.nn.Graph):
    def build(self, x):
        return sl.ops.symmetric_clamp(x * 2, limit=2.0) + 1
net = Net()
net.config.set_device("cuda:0")
print(net(sl.tensor([-3.0, 0.5, 3.0])).tolist(), [kernel["op"] for kernel in net.plan["kernels"]])
"""
    env = {"SLUICE_CUDA_LIBRARY": BUILD / "libsluice_cuda.so", "SLUICE_CUDA_DRIVER": fakes / "libfake_cuda.so",
           "SLUICE_NVRTC": fakes / "libfake_nvrtc.so", "SLUICE_CUBLASLT": "off", "SLUICE_CUDNN": "off"}
    told = run(sys.executable, "-c", source, env={**os.environ, **{name: str(path) for name, path in env.items()}})
    assert told == "[-1.0, 2.0, 3.0] ['copy', 'fused', 'copy']\n"


def test_own_op_passes_the_generated_tests_and_a_wrong_one_does_not(project):
    words = blocks("bash")[1].replace("build/release", str(BUILD)).split()
    command = [w.replace("my_ops.so", str(project / "my_ops.so")) for w in words]
    assert "Gradient" in run(*command)
    right = next(text for text in blocks("cpp") if "ClampKernel" in text)
    wrong = right.replace("{same, r.grad_outputs[0], ops", "{same, r.inputs[0], ops")
    assert wrong != right
    (project / "wrong.cpp").write_text(wrong)
    run("g++", "-std=c++20", "-shared", "-fPIC", f"-I{ROOT / 'include'}", project / "wrong.cpp", "-o", project / "wrong.so")
    command[1] = f"SLUICE_TEST_EXTENSION={project / 'wrong.so'}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "Gradient" in done.stdout.partition("listed below")[2], done.stdout[-3000:]


def test_compiles_without_python(project, tmp_path):
    lines = run(project / "planner", tmp_path / "bundle", cwd=project).splitlines()
    assert lines[0].split() == ["0.5", "2", "2", "-0.5", "-1", "0"]
    assert int(lines[1].split()[0]) >= 4
    sl.ops.load_library(project / "my_ops.so")
    y, = sl.load_graph(tmp_path / "bundle")(sl.ones(2, 3))
    assert y.tolist() == [[1, 2, 2]] * 2


def test_tensors_equal_numpys(project):  # SRV-06
    a, b = np.float32([[1, -2, 3], [-4, 5, -6]]), np.float32([[1, -2], [3, -4], [5, -6]])
    expected = np.maximum(a @ b, 0)
    for device in ("cpu", "sim:0"):
        told = subprocess.run([project / "tensors", device], capture_output=True, timeout=300, check=True).stdout
        got = np.frombuffer(told, np.float32)
        np.testing.assert_array_equal(got[:4].reshape(2, 2), expected)
        np.testing.assert_array_equal(got[4:], expected.sum(1))


EXCERPTS = [*blocks("c++"), *re.findall(r"^```c\+\+\n(.*?)^```", (ROOT / "docs/serving-embedded.md").read_text(), re.S | re.M)]


@pytest.mark.parametrize("text", EXCERPTS, ids=lambda text: text.split("\n")[0][:40])
def test_excerpts_compile(text, installed):
    """Each with what comes before it on the page, in general: an engine, a session, some tensors."""
    headers = ["sluice/sluice.hpp", "sluice/nested.h", "chrono", "cstdio"]
    include = installed / "sluice/include"
    if "serving::" in text:
        headers.append("sluice/serving.hpp")
        include = ROOT / "include"
    source = "".join(f"#include <{h}>\n" for h in headers) + f"""
    namespace api = sluice::api;
    [[maybe_unused]] void page(api::Engine& engine, api::Session& session, std::shared_ptr<void> pixels, std::string token,
        std::shared_ptr<const void> bytes_of_a_file, size_t archive_size, api::Tensor images, api::Tensor x0, api::Tensor x1) {{
      {{ {text} }}
    }}
    """
    source = source.replace("from(\"INPUT_0\", pixels)", "from(\"INPUT_0\", images)")
    folders = [f"-I{include}", f"-I{installed / 'sluice/include'}"]
    run("g++", "-std=c++20", "-fsyntax-only", *folders, "-x", "c++", "-", input=source)
