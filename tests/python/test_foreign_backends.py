"""Foreign backends: libraries outside of the tree that compute parts of graphs, by include/sluice/offload.h."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import sluice as sl
from sluice import nn

X = "sl.arange(2 * 3 * 5 * 5, dtype=sl.float32).reshape(2, 3, 5, 5) / 75 - 1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))


def built(source, target, *flags):
    """A library that is made as its author would: with a C compiler and the one header."""
    subprocess.run(["cc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT}/include", *flags, "-o", target,
                    source, "-lm"], check=True)
    return str(target)


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    return built(ROOT / "examples/backend/echo.c", tmp_path_factory.mktemp("echo") / "libsluice_echo.so")


def run_python(code, **environment):
    """Runs a process of its own, since a loaded library stays: standard output, standard error, status."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})
    return done.stdout, done.stderr, done.returncode


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x).relu()
        y = self.second(x).relu()
        return self.last((x + y).mean((2, 3)))


class Graph(nn.Graph):
    def __init__(self, net, backend=None, **options):
        super().__init__()
        self.net = net
        if backend is not None:
            self.config.enable_backend(backend, **options)

    def build(self, x):
        return self.net(x)


@pytest.fixture
def net():
    sl.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    return eval(X)


def test_supported_nodes_are_clusters_and_results_are_the_same(echo, net, x, capfd):
    graph = Graph(net, echo)
    with sl.no_grad():
        assert sl.allclose(graph(x), net(x), atol=1e-5)
    report = sl.backends.offloaded(graph)
    assert report["backend"] == "echo" and report["clusters"] == 1
    taken = [n["op"] for n in report["nodes"] if n["cluster"] is not None]
    assert sorted(taken) == ["conv", "conv", "relu", "relu"]
    assert {n["reason"] for n in report["nodes"] if n["cluster"] is None} == {"only conv and relu"}
    assert any(n["module"] == "net.first" and n["source"] for n in report["nodes"])
    assert report["line"].startswith(f"echo: 4 of {len(report['nodes'])} nodes, ") and "; not taken: " in report["line"]
    assert report["line"] in capfd.readouterr().err  # told once, without being asked for
    kernels = [k for k in graph.plan["kernels"] if k["op"] == "foreign"]
    assert len(kernels) == 1 and [c["op"] for c in kernels[0]["attrs"]["body"]["graph"]["calls"]] == ["conv", "relu", "conv", "relu"]


def test_the_backend_of_the_page_is_one(tmp_path):
    page = (ROOT / "docs/backends.md").read_text()
    source, flags = tmp_path / "tiny.c", "cc -shared -fPIC -I include -o libsluice_tiny.so tiny.c"
    source.write_text(page.split("```c\n")[1].split("```")[0])
    assert flags in source.read_text()
    library = built(source, tmp_path / "libsluice_tiny.so")

    class Two(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_backend(library)

        def build(self, x):
            return x.relu() + 1

    graph = Two()
    assert graph(sl.tensor([-1.0, 2.0])).tolist() == [1, 3]
    assert sl.backends.offloaded(graph)["line"] == "tiny: 1 of 2 nodes, 50 % of flops, 1 cluster; not taken: add (only relu)"


def test_gradients_pass_through_clusters(echo, net, x):
    """The pass comes after the gradients, so a training step has clusters, too."""
    class Train(nn.Graph):
        def __init__(self, backend):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            if backend:
                self.config.enable_backend(backend)

        def build(self, x):
            loss = self.net(x).square().mean()
            loss.backward()
            return loss

    start = {k: v.clone() for k, v in net.state_dict().items()}
    losses = []
    for backend in (None, echo):
        net.load_state_dict(start)
        step = Train(backend)
        losses.append([step(x).item() for _ in range(3)])
    assert sl.backends.offloaded(step)["clusters"] >= 1
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][2] < losses[0][0]


def test_one_bundle_runs_with_any_backend(echo, net, x, tmp_path):
    """Without a flag, with one, and with another than it was made for."""
    plain, clustered = Graph(net), Graph(net, echo)
    with sl.no_grad():
        wanted = plain(x)
        clustered(x)
    sl.save(plain, tmp_path / "plain")
    sl.save(clustered, tmp_path / "clustered")
    loaded = sl.load_graph(tmp_path / "plain", backend=echo)
    assert sl.backends.offloaded(loaded)["clusters"] == 1 and sl.allclose(loaded(x), wanted, atol=1e-5)
    assert sl.backends.offloaded(sl.load_graph(tmp_path / "plain"))["backend"] == ""
    other = built(ROOT / "tests/python/faulty_backend.c", tmp_path / "relu.so", '-DNAME="only_relu"')
    relus = sl.load_graph(tmp_path / "clustered", backend=other)
    assert sl.backends.offloaded(relus)["line"].startswith("only_relu: 2 of ") and sl.allclose(relus(x), wanted, atol=1e-5)


def test_a_plan_whose_backend_is_not_loaded_runs_and_says_so(echo, tmp_path):
    """Both processes are new, since a plan of a process that has loaded ops of others is made anew elsewhere."""
    make = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import sluice as sl
from test_foreign_backends import Graph, Net
sl.manual_seed(0)
with sl.no_grad():
    graph = Graph(Net().eval(), {echo!r})
    print(graph({X}).tolist())
sl.save(graph, {str(tmp_path / 'clustered')!r})
"""
    wanted, err, status = run_python(make)
    assert status == 0, err
    out, err, status = run_python(f"import sluice as sl\nprint(sl.load_graph({str(tmp_path / 'clustered')!r})({X}).tolist())")
    assert status == 0, err
    assert sl.allclose(sl.tensor(json.loads(out)), sl.tensor(json.loads(wanted)), atol=1e-5)
    assert err.count("backend 'echo': not loaded in this process; Sluice computes the clusters that the plan has for it") == 1


def test_a_plan_never_loads_a_library(echo, net, x, tmp_path):
    graph = Graph(net, echo)
    graph(x)
    sl.save(graph, tmp_path / "net")
    assert "libsluice_echo" not in (tmp_path / "net/plan.json").read_text()
    code = f"""
import sluice as sl
sl.load_graph({str(tmp_path / 'net')!r})(sl.zeros(2, 3, 5, 5))
print("libsluice_echo" in open("/proc/self/maps").read())
sl.backends.load("echo")
print("libsluice_echo" in open("/proc/self/maps").read())
"""
    out, err, status = run_python(code, SLUICE_BACKENDS=str(pathlib.Path(echo).parent))
    assert status == 0 and out.split() == ["False", "True"], err


def test_precision_and_calibration_reach_the_backend(echo, net, x, tmp_path):
    table = tmp_path / "table"
    table.write_text("1.0")
    exact = Graph(net, echo, precision="fp32")
    rounded = Graph(net, echo, precision="int8", calibration=table)
    with sl.no_grad():
        a, b = exact(x), rounded(x)
    assert not sl.equal(a, b) and sl.allclose(a, b, atol=0.1)
    kernel = next(k for k in rounded.plan["kernels"] if k["op"] == "foreign")
    assert kernel["attrs"]["options"] == {"strings": ["precision=int8", f"calibration={table}"]}


def test_a_cluster_that_is_not_compiled_is_computed_by_sluice_which_says_so(echo, net, x, capfd):
    graph = Graph(net, echo, precision="fp64")
    with sl.no_grad():
        assert sl.allclose(graph(x), net(x), atol=1e-5)
    assert ("backend 'echo': a cluster of 4 nodes is not compiled: precision must be fp32 or int8: fp64; Sluice computes it"
            in capfd.readouterr().err)


REFUSED = {
    1: (ValueError, "no function sluice_offload(); a backend must export it"),
    2: (ValueError, "made for version 7 of sluice/offload.h; must be 1: build it again"),
    3: (ValueError, "no function run; all of sluice_offload_backend must be there"),
    9: (ValueError, "its struct has 16 bytes; must have at least "),
    10: (ValueError, "sluice_offload() gives NULL; must be the backend"),
    11: (ValueError, "name ''; must be letters, digits, '_' and '-'"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_libraries_that_are_no_backends_are_refused(fault, tmp_path):
    library = built(ROOT / "tests/python/faulty_backend.c", tmp_path / "faulty.so", f"-DFAULT={fault}", "-Wno-unused-function")
    error, text = REFUSED[fault]
    with pytest.raises(error) as raised:
        nn.Graph().config.enable_backend(library)
    assert text in str(raised.value) and library in str(raised.value)


def test_files_that_are_no_libraries_are_refused(tmp_path):
    config = nn.Graph().config
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(OSError, match="cannot be loaded: .*; must be a shared library for this machine"):
        config.enable_backend(tmp_path / "text.so")
    with pytest.raises(OSError, match="no such file; must be a library for sluice/offload.h"):
        config.enable_backend(tmp_path / "absent.so")
    with pytest.raises(OSError, match="backend 'nobody': libsluice_nobody.so is in no folder of SLUICE_BACKENDS"):
        config.enable_backend("nobody")
    with pytest.raises(ValueError, match="backend: 'a b': no name"):
        config.enable_backend("a b")
    with pytest.raises(ValueError, match="for no backend"):
        config.enable_backend(None, precision="fp16")
    with pytest.raises(TypeError, match="precision: got list"):
        config.enable_backend("nobody", precision=[1])


RUNS = """
import sluice as sl
class Graph(sl.nn.Graph):
    def build(self, x):
        return (x + 1).relu()
graph = Graph()
graph.config.enable_backend({library!r})
y = graph(sl.tensor([-3.0, 2.0]))
print(y.tolist())
"""
BROKEN = {
    5: (0, "backend 'faulty': a cluster of 1 nodes is not compiled: out of licences; Sluice computes it"),
    6: (1, "backend 'faulty': cluster of 1 nodes (relu): output 0: float32(7,); must be float32(2,)"),
    7: (1, "backend 'faulty': cluster of 1 nodes (relu): compile: a null handle; it must give a handle, or a reason"),
    8: (1, "backend 'faulty': cluster of 1 nodes (relu): run: the device is on fire; it must write all outputs"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_backends_that_break_their_word_are_named(fault, tmp_path):
    library = built(ROOT / "tests/python/faulty_backend.c", tmp_path / "faulty.so", f"-DFAULT={fault}", "-Wno-unused-function")
    out, err, status = run_python(RUNS.format(library=library))
    wanted, text = BROKEN[fault]
    assert status == wanted and text in err, err
    assert out == ("[0.0, 3.0]\n" if status == 0 else "")


def test_exceptions_of_cpp_are_caught_and_crashes_are_named_by_the_last_line_of_the_log(tmp_path):
    source = tmp_path / "throws.cpp"
    source.write_text((ROOT / "tests/python/faulty_backend.c").read_text().replace("abort();", 'throw std::runtime_error("no way");')
                      .replace("#include <stdlib.h>", "#include <stdexcept>").replace("const sluice_offload_backend* sluice_offload(void) {",
                                                                                     'extern "C" const sluice_offload_backend* sluice_offload() {'))
    library = str(tmp_path / "throws.so")
    subprocess.run(["c++", "-DFAULT=4", "-fpermissive", "-w", "-shared", "-fPIC", f"-I{ROOT}/include", "-o", library, source], check=True)
    _, err, status = run_python(RUNS.format(library=library))
    assert status == 1 and "backend 'faulty': add: supports has thrown: no way; a backend must return its errors" in err
    crashing = built(ROOT / "tests/python/faulty_backend.c", tmp_path / "faulty.so", "-DFAULT=4", "-Wno-unused-function")
    _, err, status = run_python(RUNS.format(library=crashing), SLUICE_LOG="plan=trace")
    assert status < 0 and "backend 'faulty': add: calls supports" in err.splitlines()[-1]


MISSING = {"enable_tensorrt": "TensorRT", "enable_xla_jit": "XLA"}
BUILT_WHERE_HEADERS_ARE = {"openvino": ("OpenVINO", "cmake -DSLUICE_OPENVINO=FOLDER"),
                           "onednn_graph": ("oneDNN Graph", "cmake -DSLUICE_ONEDNN_GRAPH=FOLDER")}


@pytest.mark.parametrize("method", MISSING)
def test_what_is_not_built_is_refused_by_its_name(method):
    config = nn.Graph().config
    with pytest.raises(NotImplementedError, match=f"not built with {MISSING[method]}: libsluice_.* is in no folder of SLUICE_BACKENDS.*"
                                                  "cmake -DSLUICE_FOREIGN_BACKENDS=NAME=SOURCE"):
        getattr(config, method)()
    getattr(config, method)(False)
    assert "backend" not in config.options


@pytest.mark.parametrize("name", BUILT_WHERE_HEADERS_ARE)
def test_an_adapter_that_is_not_there_is_refused_with_the_option_that_builds_it(name, net, x, tmp_path):
    """A program looks beside itself, so one that lies alone finds none."""
    graph = Graph(net)
    graph(x)
    sl.save(graph, tmp_path / "net")
    shutil.copy(BUILD / "tools/plan-viz", tmp_path / "plan-viz")
    done = subprocess.run([tmp_path / "plan-viz", "partition", tmp_path / "net", "--backend", name], capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if k != "SLUICE_BACKENDS"})
    library, option = BUILT_WHERE_HEADERS_ARE[name]
    assert done.returncode == 2 and f"backend '{name}': not built with {library}: " in done.stderr and option in done.stderr


BY_NAME = """
import sluice as sl
class Graph(sl.nn.Graph):
    def build(self, x):
        return sl.nn.functional.conv2d(x, sl.ones(2, 2, 3, 3)).relu().mean()
graph = Graph()
graph.config.{method}()
y = graph(sl.ones(1, 2, 5, 5))
assert y.item() == 18, y
print(sl.backends.offloaded(graph)["line"])
sl.save(graph, "{folder}")
"""


@pytest.mark.parametrize("method", [*MISSING, *(f"enable_{name}" for name in BUILT_WHERE_HEADERS_ARE)])
def test_a_library_of_that_name_takes_the_place(method, tmp_path):
    """The same clusters by any name: what a switch finds is a library called so. plan-viz shows them without running anything."""
    name = method.removeprefix("enable_").removesuffix("_jit")
    source = tmp_path / "named.c"
    source.write_text((ROOT / "examples/backend/echo.c").read_text().replace('"echo",', f'"{name}",'))
    built(source, tmp_path / f"libsluice_{name}.so")
    folders = f"/nowhere:{tmp_path}"
    out, err, status = run_python(BY_NAME.format(method=method, folder=tmp_path / "net"), SLUICE_BACKENDS=folders)
    assert status == 0 and out.startswith(f"{name}: 2 of "), err
    shown = subprocess.run([BUILD / "tools/plan-viz", "partition", tmp_path / "net", "--backend", name], capture_output=True, text=True,
                           env={**os.environ, "SLUICE_BACKENDS": folders})
    assert shown.returncode == 0 and shown.stdout.splitlines()[0] == out.strip() and shown.stdout.splitlines()[2].endswith("conv, relu"), shown.stderr


def test_a_build_makes_backends_of_others(tmp_path):
    """The option of CMake that the errors name, in a project that has nothing else."""
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(Backends C)\n"
                                             f"include({ROOT}/cmake/SluiceForeignBackends.cmake)\n")

    def configured(value):
        return subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DSLUICE_FOREIGN_BACKENDS={value}"], capture_output=True,
                              text=True)

    for value, said in (("openvino", "must be NAME=SOURCE or NAME=FOLDER"), ("openvino=/no/such.c", "no such file"),
                        (f"openvino={tmp_path.parent}", "CMakeLists.txt")):
        done = configured(value)
        assert done.returncode != 0 and said in " ".join(done.stderr.split()), done.stderr
    assert configured(f"openvino={ROOT}/examples/backend/echo.c").returncode == 0
    subprocess.run(["cmake", "--build", tmp_path / "build"], capture_output=True, check=True)
    code = "import sluice as sl; sl.nn.Graph().config.enable_openvino()"
    assert run_python(code, SLUICE_BACKENDS=str(tmp_path / "build"))[2] == 0


def tool(name, *arguments):
    return subprocess.run([BUILD / "tools" / name, *arguments], capture_output=True, text=True)


def test_bundles_for_a_backend_run_without_python(echo, net, x, tmp_path):
    graph = Graph(net)
    graph(x)
    sl.save(graph, tmp_path / "plain")
    made = tool("sluice-compile", tmp_path / "plain", "--backend", echo, "--to", "bundle", "-o", tmp_path / "clustered")
    assert made.returncode == 0 and ": echo: 4 of " in made.stderr
    file = tmp_path / "y.npy"
    assert tool("sluice-run", tmp_path / "plain", "--fill=random", f"--output=@{file}").returncode == 0
    for backend, told in (([], True), ([f"--backend={echo}"], False)):
        done = tool("sluice-run", tmp_path / "clustered", "--fill=random", f"--expect=@{file}", "--tolerance=1e-4", *backend)
        assert done.returncode == 0, done.stderr
        assert ("backend 'echo': not loaded in this process" in done.stderr) == told


def plan_viz(*arguments):
    return subprocess.run([BUILD / "tools/plan-viz", *arguments], capture_output=True, text=True)


def test_plan_viz_shows_clusters_and_why_the_rest_is_not_taken(echo, net, x, tmp_path):
    graph = Graph(net)
    graph(x)
    sl.save(graph, tmp_path / "net")
    shown = plan_viz("partition", tmp_path / "net", "--backend", echo, "--why")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("echo: 4 of ") and lines[2].split()[:2] == ["0", "4"] and "2 x conv, 2 x relu" in lines[2]
    assert any(line.split()[:1] == ["mean"] and "only conv and relu" in line and "test_foreign_backends.py:" in line for line in lines)
    report = json.loads(plan_viz("partition", tmp_path / "net", "--backend", echo, "--json").stdout)
    assert report["clusters"] == 1 and {n["op"] for n in report["nodes"] if n["cluster"] == 0} == {"conv", "relu"}
    assert report["line"] == lines[0]
    dot = plan_viz("partition", tmp_path / "net", "--backend", echo, "--dot").stdout
    coloured = [line for line in dot.splitlines() if "fillcolor=\"" in line]
    assert len(coloured) == 4 and len({line.split("fillcolor=")[1].split("]")[0] for line in coloured}) == 1
    refused = plan_viz("partition", tmp_path / "net", "--backend", "xla")
    assert refused.returncode == 2 and "backend 'xla': not built with XLA" in refused.stderr
