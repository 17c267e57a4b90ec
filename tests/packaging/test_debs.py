"""Debian packages: what each holds and needs, manual pages, what lintian says, and that `make deb` builds them hardened."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest

import sluice as sl
from test_embedding import blocks
from test_cpp_packages import BUILD, ROOT, check, model, pkg_config, run  # noqa: F401

if shutil.which("dpkg-shlibdeps") is None:
    pytest.skip("dpkg-dev is not installed", allow_module_level=True)

sys.path.insert(0, str(ROOT / "tools/packages"))
import check as package_check  # noqa: E402
import man  # noqa: E402

SERVER = (BUILD / "libsluice_serving.so").exists()
PROGRAMS = {"sluice-tools": ["plan-viz", "sluice-bench", "sluice-compile", "sluice-info", "sluice-run"],
            **({"sluice-server": ["sluice-perf", "sluice-serve"]} if SERVER else {})}
NAMES = ["libsluice-dev", "libsluice0", "python3-sluice", *sorted(PROGRAMS, reverse=True)]
VERSION = f"{sl.__version__}-1"


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    path = tmp_path_factory.mktemp("debs")
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", path, cwd=path)
    return {deb.name.split("_")[0]: deb for deb in path.glob("*.deb")}


@pytest.fixture(scope="module")
def usr(debs, tmp_path_factory):
    """/usr of a system in which all of them are installed."""
    path = tmp_path_factory.mktemp("root")
    for deb in debs.values():
        run("dpkg-deb", "-x", deb, path)
    return path / "usr"


def field(deb, name):
    return run("dpkg-deb", "-f", deb, name).strip()


def files(deb):
    lines = run("dpkg-deb", "-c", deb).splitlines()
    return [line.split(" ./usr/", 1)[1].split(" -> ")[0] for line in lines if " ./usr/" in line and not line.startswith("d")]


def test_packages_are_split_as_debian_splits_them(debs):
    assert sorted(debs) == sorted(NAMES)
    listed = {name: files(deb) for name, deb in debs.items()}
    assert all(re.search(r"/libsluice(_runtime)?\.so\.[\d.]+$|^share/doc/", f) for f in listed["libsluice0"])
    assert sum(".so.0" in f for f in listed["libsluice0"]) == 4
    development = [f for f in listed["libsluice-dev"] if not f.startswith("share/doc/")]
    assert all(re.search(r"^include/sluice/|/cmake/sluice/|/pkgconfig/|/libsluice\w*\.so$", f) for f in development)
    assert {"include/sluice/sluice.h", "include/sluice/version.h"} < set(development)
    assert any(f.endswith("sluiceTargets.cmake") for f in development)
    assert all(f.startswith(("lib/python3/dist-packages/sluice", "share/doc/")) for f in listed["python3-sluice"])
    assert not any("__pycache__" in f or f.endswith(".a") for names in listed.values() for f in names)
    assert not SERVER or "share/sluice-server/sluice-serve.service" in listed["sluice-server"]
    for package, programs in PROGRAMS.items():
        assert sorted(f[4:] for f in listed[package] if f.startswith("bin/")) == programs
        assert sorted(f[15:] for f in listed[package] if f.startswith("share/man/man1/")) == [f"{p}.1.gz" for p in programs]


def test_what_they_need(debs):
    runtime = ("libc6", "libstdc++6", "libdnnl", "libcaf-core", "libboost-json", "libgomp1")
    needs = {"libsluice0": runtime, "libsluice-dev": (f"libsluice0 (= {VERSION})",), "sluice-tools": ("libc6", "libdnnl"),
             "python3-sluice": ("python3-numpy", f"python3 (>= 3.{sys.version_info[1]})", f"python3 (<< 3.{sys.version_info[1] + 1})", *runtime)}
    if SERVER:
        needs["sluice-server"] = (f"libsluice0 (= {VERSION})", "libgrpc++", "libprotobuf")
    for name, words in needs.items():
        depends = field(debs[name], "Depends")
        assert not [w for w in words if w not in depends], (name, depends)
        assert field(debs[name], "Version") == VERSION and len(field(debs[name], "Description").splitlines()) > 1
        assert int(field(debs[name], "Installed-Size")) * 1024 >= os.path.getsize(debs[name]) // 2


def test_each_has_its_changelog_and_licence(debs, usr):
    for name in debs:
        told = gzip.decompress((usr / f"share/doc/{name}/changelog.Debian.gz").read_bytes()).decode()
        assert told.startswith(f"{name} ({VERSION}) unstable") and re.search(r"^ -- .+ <.+@.+>  \w{3}, \d\d \w{3} \d{4} ", told, re.M)
        assert gzip.decompress((usr / f"share/doc/{name}/changelog.gz").read_bytes()) == (ROOT / "CHANGELOG.md").read_bytes()
        assert "License: Apache-2.0" in (usr / f"share/doc/{name}/copyright").read_text()


def test_programs_build_against_them(usr, model, tmp_path):  # noqa: F811
    flags = pkg_config(usr, "--cflags", "--libs", "sluice_runtime")
    run("gcc", "-std=c99", ROOT / "examples/c_runner/main.c", "-o", tmp_path / "c_runner", *flags)
    check(tmp_path / "c_runner", model, tmp_path, usr / "lib")


def test_python_finds_the_package_and_the_tools(usr, tmp_path):
    script = ("import sluice as sl; print(sl.__file__);"
              "print((sl.ones(2) + 1).tolist()); from sluice._base.tools import find_tool; print(find_tool('plan-viz'))")
    env = {"PYTHONPATH": str(usr / "lib/python3/dist-packages"), "PATH": f"{usr / 'bin'}:/usr/bin:/bin"}
    lines = run(sys.executable, "-c", script, env=env, cwd=tmp_path).splitlines()
    assert lines == [str(usr / "lib/python3/dist-packages/sluice/__init__.py"), "[2.0, 2.0]", str(usr / "bin/plan-viz")]


@pytest.mark.parametrize("program", [p for programs in PROGRAMS.values() for p in programs])
def test_programs_run_and_have_manual_pages(program, usr):
    env = {"LD_LIBRARY_PATH": str(usr / "lib"), "PATH": "/usr/bin:/bin"}
    told = run(usr / "bin" / program, "--help", env=env)
    page = gzip.decompress((usr / f"share/man/man1/{program}.1.gz").read_bytes()).decode()
    assert page.startswith(f".TH {program.upper()} 1") and f"\n.SH NAME\n{program.replace('-', chr(92) + '-')} \\- " in page
    for option in set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", told, re.M)):
        assert f"\\fB{option}".replace("-", "\\-") in page or f", {option}".replace("-", "\\-") in page.replace("\\:", ""), option
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings=w", "-l", usr / f"share/man/man1/{program}.1.gz"], capture_output=True, text=True,
                              env={**os.environ, "MANWIDTH": "120", "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0 and not [w for w in done.stderr.splitlines() if "adjust" not in w and "break" not in w], done.stderr


def test_subcommands_are_in_the_manual_page(usr):
    page = gzip.decompress((usr / "share/man/man1/sluice-info.1.gz").read_bytes()).decode()
    assert ".SH COMMANDS\n.SS explain\n" in page and "the code of the error" in page


def test_help_is_read_as_it_is_printed():
    text = ["Does it.", "", "Usage: it [OPTIONS] file", "", "Options:", "  -h,--help                   Print",
            "  --width INT:INT in [40 - 1000]", " " * 30 + "columns", "  --plain                     ", "", "Exit status: 0."]
    assert man.parse(text) == (["Does it.", ""], " it [OPTIONS] file"[1:],
                               [("Options", [("-h, --help", ["Print"]), ("--width INT in [40 - 1000]", ["columns"]), ("--plain", [])])],
                               ["Exit status: 0."])


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_finds_no_error(debs):
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *map(str, debs.values())], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# In a layer over this system, which is gone with the namespace: nothing here changes. The source tree is not there.
LAYER = """
set -e
mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && cd "$1" && mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
mount -t tmpfs tmpfs "root$2" && mount -t proc proc root/proc && mount --bind /dev root/dev
cp -r "$3" root/page
exec chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 bash -ec "$4" "$2"
"""
INSIDE = """
test ! -e "$0/CMakeLists.txt"
test -z "$(ls /usr/lib/*/libsluice* 2>/dev/null)"
dpkg -i $(ls /page/debs/*.deb | grep -v python3-sluice) >/dev/null
dpkg -i --force-depends /page/debs/python3-sluice_*.deb >/dev/null 2>&1  # NumPy may be another one than Debian's
test -z "$(dpkg -V libsluice0 libsluice-dev sluice-tools | grep -v share/)"
echo INFO $(sluice-info | grep -c '^sluice')
for project in page c_runner; do
  cmake -S /page/$project -B /page/$project/b >/dev/null
  cmake --build /page/$project/b >/dev/null
done
cd /page/page
for program in service service_c service_caf; do echo RUN $program $(b/$program /page/bundle 2>/dev/null); done
echo RUN planner $(cd b && ./planner /page/planned | head -1)
echo RUN tensors $(b/tensors cpu | wc -c)
cp b/my_ops.so . && echo RUN ops $(PYTHONPATH=/page/numpy /usr/bin/python3 own.py)
plan-viz verify /page/bundle >/dev/null && echo RUN plan-viz ok
sluice-run /page/bundle --fill=random >/dev/null && echo RUN sluice-run ok
dpkg -r $(dpkg -l | awk '/ (lib|python3-)?sluice/ {print $2}') >/dev/null 2>&1
test -z "$(ls -d /usr/lib/*/libsluice* /usr/bin/sluice-* /usr/lib/python3/dist-packages/sluice 2>/dev/null)"
echo REMOVED
"""


def test_they_install_and_the_pages_run_against_them(debs, tmp_path):
    """Runs docs/embedding.md and the pages that share its project: as written, but for the folder that a prefix would name."""
    if os.geteuid() or subprocess.run(["unshare", "-m", "bash", "-c", LAYER, "-", tmp_path, "/mnt", "/etc/hostname", "true"],
                                      capture_output=True).returncode:
        pytest.skip("no namespaces with a layer over / here")
    stage = tmp_path / "stage"
    for folder in ("debs", "page", "numpy"):
        (stage / folder).mkdir(parents=True)
    for deb in debs.values():
        shutil.copy(deb, stage / "debs")
    for part in pathlib.Path(numpy.__file__).parents[1].glob("numpy*"):
        shutil.copytree(part, stage / "numpy" / part.name, ignore=shutil.ignore_patterns("tests", "*.pyi", "*.a"))
    shutil.copytree(ROOT / "examples/c_runner", stage / "c_runner")
    (stage / "page/CMakeLists.txt").write_text(blocks("cmake")[0])
    for text in blocks("cpp") + blocks("c"):
        (stage / "page" / re.match(r"(?://|/\*) (\S+)", text)[1]).write_text(text)
    (stage / "page/own.py").write_text(blocks("py")[0])

    class Net(sl.nn.Graph):
        def build(self, x):
            return x.relu() * 2

    graph = Net()
    graph(sl.zeros(1, 4))
    sl.save(graph, stage / "bundle")
    layer = tmp_path / "layer"
    layer.mkdir()
    done = subprocess.run(["unshare", "-m", "bash", "-c", LAYER, "-", layer, ROOT, stage, INSIDE], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "INFO 1", "RUN service 2 0", "RUN service_c 2 0", "RUN service_caf 2 0", "RUN planner 0.5 2 2 -0.5 -1 0", "RUN tensors 24",
        "RUN ops [-2.0, 0.5, 2.0] [0.0, 1.0, 0.0]", "RUN plan-viz ok", "RUN sluice-run ok", "REMOVED"]


@pytest.fixture(scope="module")
def hardened(tmp_path_factory):
    """A build with the flags of `make deb`, of one program that needs nothing else of Sluice."""
    where = BUILD.parent / "hardened"  # beside the main build, where the compiler cache finds objects again
    shutil.rmtree(where, ignore_errors=True)
    preset = next(p for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"] if p["name"] == "deb")
    assert preset["cacheVariables"]["SLUICE_HARDENED"] == "ON"
    options = {**preset["cacheVariables"], "SLUICE_PYTHON": "OFF", "SLUICE_SERVING": "OFF", "CMAKE_BUILD_TYPE": "Release",
               "CMAKE_SKIP_RPATH": "ON"}
    run("cmake", "-S", ROOT, "-B", where, "-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items()))
    run("cmake", "--build", where, "--target", "sluice-perf", timeout=1200)
    folder = tmp_path_factory.mktemp("hardened")
    run("strip", where / "tools/sluice-perf", "-o", folder / "sluice-perf")
    yield where, folder
    shutil.rmtree(where)


def test_every_source_is_compiled_hardened(hardened):
    commands = [entry["command"] for entry in json.loads((hardened[0] / "compile_commands.json").read_text())]
    assert len(commands) > 50
    assert all("-fstack-protector-strong" in c and "-D_FORTIFY_SOURCE=2" in c and re.search(r" -O[123] ", c) for c in commands)


def test_readelf_sees_the_hardening_and_its_absence(hardened, tmp_path):
    assert package_check.problems(hardened[1]) == []
    run("strip", BUILD / "tools/sluice-perf", "-o", tmp_path / "sluice-perf")
    lacks, = package_check.problems(tmp_path)
    assert "now" in lacks and "stack protector" in lacks and "fortify" in lacks


def test_hardening_needs_optimisation(tmp_path):
    done = subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DSLUICE_HARDENED=ON", "-DCMAKE_BUILD_TYPE=Debug"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "it must be optimised" in done.stderr
