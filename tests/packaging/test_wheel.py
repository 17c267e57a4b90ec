"""The wheel: built, installed in a clean environment away from the source tree, and used there.

The environment has no Sluice but the wheel's. Packages that Sluice does not bring (NumPy, and scikit-learn, matplotlib and
tqdm for the example) come from the tests' own environment, which has no Sluice, through a .pth file: no network is needed.
SLUICE_WHEEL names a wheel that is built already.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from sluice._base.tools import find_tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(sluice VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
# The C and C++ runtimes are all that a wheel may use of the system.
SYSTEM = re.compile(r"(ld-linux[\w.-]*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|util))\.so|linux-vdso")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if "SLUICE_WHEEL" in os.environ:
        return pathlib.Path(os.environ["SLUICE_WHEEL"])
    directory = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, ROOT / "tools/packages/wheels.py", "--out", directory], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return next(directory.glob("sluice-*.whl"))


@pytest.fixture(scope="module")
def cuda_wheel(wheel):
    for built in wheel.parent.glob("sluice_cuda-*.whl"):
        return built
    pytest.skip("built without the CUDA backend")


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """Runs a command with the Python of a clean environment that has the wheel, in an empty directory."""
    home = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", str(wheel)], check=True)
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    (site / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n")
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SLUICE_BUILD", "LD_LIBRARY_PATH")}

    def run(*arguments, path="/usr/bin:/bin", program=python, **options):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=home,
                              env={**env, "PATH": str(path)}, **options)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run.home, run.site = home, site
    return run


def test_wheel_holds_what_it_should(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    source = {"sluice/" + str(p.relative_to(ROOT / "python" / "sluice")) for p in (ROOT / "python" / "sluice").rglob("*.py")}
    modules = ("__init__", "fft", "fn", "functional", "linalg", "ops", "return_types", "setters", "special")
    stubs = {f"sluice/{n}" for n in ("py.typed", "__init__.pyi", *(f"_C/{m}.pyi" for m in modules))}
    assert source | stubs | {"sluice/bin/plan-viz"} <= names
    assert any(re.fullmatch(r"sluice/_C\.cpython.*\.so", n) for n in names)
    libraries = {n for n in names if n.startswith("sluice/lib/") and ".so" in n}
    assert "sluice/lib/libsluice_cuda.so" not in libraries
    assert {"libcaf_core", "libdnnl", "libfmt", "libspdlog", "libboost_json", "libhwy", "libgomp"} <= {
        pathlib.Path(n).name.split(".so")[0] for n in libraries}
    assert not any(SYSTEM.match(pathlib.Path(n).name) for n in libraries)
    assert len([n for n in names if n.startswith("sluice/lib/licenses/")]) >= 7
    assert "sluice/lib/licenses/libeigen3-dev.txt" in names  # whose headers the module is compiled with
    assert any(n.endswith("licenses/LICENSE") for n in names)
    other = {n for n in names - source - stubs - libraries if not n.startswith(("sluice/lib/licenses/", f"sluice-{VERSION}.dist-info/"))}
    other = {n for n in other if not re.fullmatch(r"sluice/_C\.cpython.*\.so", n)}
    assert other == {"sluice/bin/plan-viz", "sluice/troubles.txt"}
    assert f"Version: {VERSION}\n" in metadata and "License-Expression: Apache-2.0" in metadata
    assert re.findall(r"Requires-Dist: (\w+)", metadata) == ["numpy"]


def test_tags_and_sizes(wheel, count):
    """The tag is that of the systems on which it runs, as auditwheel tells; most of it is oneDNN, whose version 3 has 11 MB."""
    assert re.fullmatch(rf"sluice-{re.escape(VERSION)}-cp3\d+-cp3\d+-manylinux_2_\d+_\w+\.whl", wheel.name)
    tag = wheel.stem.rpartition("-")[2]
    told = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
    assert f'"{tag}"' in told
    with zipfile.ZipFile(wheel) as archive:
        packed = {info.filename: info.compress_size for info in archive.infolist()}
        assert f"Tag: {wheel.stem.split('-', 2)[2]}\n" in archive.read(f"sluice-{VERSION}.dist-info/WHEEL").decode()
    ours = sum(size for name, size in packed.items() if not name.startswith("sluice/lib/"))
    count("the wheel without libraries of others, packed", ours, "bytes")
    count("the wheel, packed", wheel.stat().st_size, "bytes")
    assert ours < 17_000_000  # twice the engine: in the module, and in plan-viz, which runs bundles and asks foreign backends
    assert wheel.stat().st_size < 38_000_000


def test_the_cuda_backend_is_a_wheel_of_its_own(wheel, cuda_wheel, clean):
    """Installed beside the other one it is found; what it then lacks here is the driver."""
    assert cuda_wheel.name.startswith(f"sluice_cuda-{VERSION}-py3-none-manylinux_2_")
    with zipfile.ZipFile(cuda_wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"sluice_cuda-{VERSION}.dist-info/METADATA").decode()
    assert [n for n in names if ".dist-info/" not in n] == ["sluice/lib/libsluice_cuda.so"]
    assert f"Requires-Dist: sluice=={VERSION}\n" in metadata
    ask = ("import sluice\ntry:\n    sluice.zeros(1, device='cuda:0')\n"
           "except Exception as error:\n    print('TOLD', error)\nelse:\n    print('TOLD ran')")
    python = clean.home / "venv/bin/python"
    assert "the backend of cuda could not be loaded" in clean("-c", ask)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", cuda_wheel], check=True)
    assert "backend of cuda" not in clean("-c", ask).partition("TOLD")[2]
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "sluice-cuda"], check=True)
    assert "the backend of cuda could not be loaded" in clean("-c", ask)


IMPORT_ALL = """
import importlib, pkgutil, sys, sluice
names = [m.name for m in pkgutil.walk_packages(sluice.__path__, "sluice.")
         if "__main__" not in m.name and m.name != "sluice.onnx.backend"]  # which needs a package of its own
for name in names:
    importlib.import_module(name)
for name in dir(sluice):
    getattr(sluice, name)
print(len(names), sluice.__version__, sluice.__file__)
class Net(sluice.nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = sluice.nn.Sequential(sluice.nn.Conv2d(1, 4, 3), sluice.nn.ReLU(), sluice.nn.Flatten(), sluice.nn.Linear(144, 2))
        self.add_optimizer(sluice.optim.Adam(self.net.parameters()))
    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss
graph, x = Net(), sluice.rand(3, 1, 8, 8)
losses = [graph(x).item() for _ in range(20)]
assert losses[-1] < losses[0], losses
"""


def test_everything_imports_and_a_net_trains_in_a_clean_environment(clean):
    number, version, file = clean("-c", IMPORT_ALL).split()
    assert int(number) > 30 and version == VERSION and file.startswith(str(clean.site))


# Debian's Gloo needs MPI and so UCX, whose library in the wheel loads this module of its own where a system has UCX installed.
UCX_MODULE = re.compile(r"lib(ucs_fuse|fuse3)\.so")
# Libraries of the system that Python's own modules need.
PYTHONS = "import bz2, ctypes, hashlib, lzma, numpy, sqlite3, ssl, uuid, zlib, xml.parsers.expat"


def mapped(clean, source):
    code = source + "\nprint('MAPS', *sorted({l.split()[-1] for l in open('/proc/self/maps') if '.so' in l}))"
    return next(line for line in clean("-c", code).splitlines() if line.startswith("MAPS")).split()[1:]


def mapped_outside(clean, source):
    """The shared libraries that a process of the clean environment maps from elsewhere, the system's runtimes and Python's apart."""
    pythons, base = mapped(clean, PYTHONS), (str(clean.home), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    return [m for m in mapped(clean, source) if m not in pythons and not m.startswith(base)
            and not SYSTEM.match(pathlib.Path(m).name) and not UCX_MODULE.match(pathlib.Path(m).name)]


def test_the_wheel_brings_its_own_libraries(clean):
    assert mapped_outside(clean, "import sluice\nsluice.ones(2, 2) @ sluice.ones(2, 2)") == []
    # The check sees a library of the system that comes in.
    system = "import ctypes.util\nctypes.CDLL(ctypes.util.find_library('fmt'))"
    assert any("libfmt" in m for m in mapped_outside(clean, system))
    text = subprocess.run(["ldd", clean.site / "sluice" / "bin" / "plan-viz"], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"(\S+) => (\S+)", text):
        assert SYSTEM.match(name) or path.startswith(str(clean.site)) or "/sluice/lib/" in path, text


def test_console_scripts_and_help(clean):
    assert f"Sluice {VERSION}" in clean("-m", "sluice") and "python -m sluice.info" in clean("-m", "sluice")
    clean("-c", "import sluice as sl\nclass G(sl.nn.Graph):\n  def build(self, x): return x.relu()\ng = G()\ng(sl.ones(2))\nsl.save(g, 'bundle')")
    script = clean.home / "venv" / "bin" / "plan-viz"
    assert "compute0" in clean("show", "bundle", program=script)


def test_the_ten_minute_page_runs_as_written(clean):
    """docs/getting-started.md up to where it asks for the C++ library, with nothing but the wheel."""
    page = (ROOT / "docs/getting-started.md").read_text().partition("## 5. Run it in C++")[0]
    venv, told = clean.home / "venv/bin", {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page, re.S | re.M):
        if language == "python":
            (clean.home / re.match(r"# (\S+)", text)[1]).write_text(text)
        else:
            assert language == "bash"
            for command in text.splitlines():
                told[command] = clean("-c", command, program="/bin/bash", path=f"{venv}:/usr/bin:/bin", timeout=600)
    assert list(told)[0] == "python tensors.py" and told["python tensors.py"].startswith("52.0\n")
    assert int(re.search(r"correct (\d+)%", told["python train.py"])[1]) > 90
    assert "compute0" in told["plan-viz show spirals"] and (clean.home / "plan.html").stat().st_size > 10_000
    assert len(re.findall(r"[\d.e-]+", told["python predict.py"])) == 2


def test_types_of_the_installed_package(clean):
    """A type checker finds py.typed and the stubs where pip has put them."""
    (clean.home / "typed.py").write_text("import sluice as sl\nx: sl.Tensor = sl.ones(2).relu()\ny: int = sl.nn.Linear(2, 3).in_features\n")
    clean("-m", "mypy", "--strict", f"--cache-dir={clean.home}/cache", "typed.py")


def test_digits_example_runs_from_the_wheel(clean, count):
    """The example unchanged, with the C++ program of this build for its C++ part: it reads what the wheel has written."""
    programs = clean.home / "programs"
    programs.mkdir()
    (programs / "cpp_runner").symlink_to(find_tool("cpp_runner"))
    for name in ("digits_net.py", "train_digits.py"):
        shutil.copy(ROOT / "examples" / name, clean.home)
    out = clean("train_digits.py", "--epochs", "8", "--out", "out", path=f"{programs}:/usr/bin:/bin", timeout=300)
    assert '"cpp_classes_equal": true' in out and '"sim_losses_equal": true' in out
    accuracy = float(re.search(r'"accuracy": ([\d.]+)', out)[1])
    assert accuracy >= 0.97
    count("accuracy of the digits example from the wheel", round(accuracy, 4), "of 1")


@pytest.mark.parametrize("version", ["3.4", "three", "3.12; true"])
def test_a_python_that_is_not_there_is_refused_by_name(version, tmp_path):
    done = subprocess.run([sys.executable, ROOT / "tools/packages/wheels.py", "--out", tmp_path / "dist", "--python", version],
                          capture_output=True, text=True)
    assert done.returncode == 1 and not list(tmp_path.glob("dist/*"))
    assert done.stderr == (f"wheels: --python: '{version}': there is no python{version} that works; must be the version of one that is "
                           "installed, such as 3.12\n")
