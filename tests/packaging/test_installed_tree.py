"""An installed tree runs wherever it is moved to, with nothing in the environment; and in a Debian without build tools."""

import os
import re
import shutil
import subprocess

import pytest

import sluice as sl
from test_cpp_packages import BUILD, ROOT, run

SERVER = (BUILD / "libsluice_serving.so").exists()
COMPONENTS = ["cpp", "serving"] if SERVER else ["cpp"]
IN_DEBIAN = ROOT / "tools/in_debian.sh"


def install(to, **env):
    for component in COMPONENTS:
        run("cmake", "--install", BUILD, "--prefix", to, "--component", component, env={**os.environ, **env})


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    path = tmp_path_factory.mktemp("installed")
    install(path / "first")
    shutil.move(path / "first", path / "elsewhere")
    return path / "elsewhere"


def binaries(folder):
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink() and p.open("rb").read(4) == b"\x7fELF"]


def search_folders(binary):
    return [folder for line in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", run("readelf", "-d", binary)) for folder in line.split(":")]


def test_every_program_starts(moved, count):
    programs = sorted((moved / "bin").iterdir())
    assert {p.name for p in programs} >= {"plan-viz", "sluice-info", "sluice-run"} | ({"sluice-serve", "sluice-perf"} if SERVER else set())
    for program in programs:
        done = subprocess.run([program, "--version"], env={}, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0 and sl.__version__ in done.stdout, (program, done)
    count("programs of a tree that was moved", len(programs), "programs started")


def test_every_library_is_found(moved, count):
    found = binaries(moved)
    for binary in found:
        text = run("ldd", binary, env={"PATH": os.environ["PATH"]})
        assert "not found" not in text, (binary, text)
        ours = dict(re.findall(r"(libsluice\S*) => (\S+)", text))
        assert all(os.path.realpath(path).startswith(str(moved)) for path in ours.values()), (binary, ours)
        assert set(search_folders(binary)) <= {"$ORIGIN", "$ORIGIN/../lib"}, binary
    count("binaries of a tree that was moved", len(found), "binaries whose libraries are found")


def test_in_the_system_s_folders_nothing_names_folders(tmp_path):
    install("/usr", DESTDIR=str(tmp_path))
    found = binaries(tmp_path / "usr")
    assert len(found) >= 7 and not any(search_folders(binary) for binary in found)


def told_by(*arguments):
    return subprocess.run([IN_DEBIAN, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(os.geteuid() != 0, reason="tools/in_debian.sh takes root")
@pytest.mark.parametrize("arguments, why", [
    (["11", "true"], "unknown version: '11'; must be 12 or 13"), ([], "unknown version: ''"), (["12", "echo", "a"], "the command must be one word"),
    (["--other", "12"], "unknown option: --other"), (["--clean", "--with", "/no/such", "12"], "--with: no such file or folder: /no/such"),
    (["--with", "/etc", "12", "true"], "--with is for --clean")])
def test_what_in_debian_cannot_do(arguments, why):
    done = told_by(*arguments)
    assert done.returncode == 125 and why in done.stderr, done


DEPENDS = "$(dpkg-deb -f ./debs/{deb}_*.deb Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g' | tr ' ' '\\n' | grep -v sluice)"


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="takes root and debootstrap")
def test_soak_in_a_system_without_build_tools(moved, tmp_path):
    """Debian's packages of this build, and the installed tree, which needs what the packages say that they need."""
    if os.environ.get("SLUICE_LONG", "0") in ("", "0"):
        pytest.skip("takes minutes and the network; make test-long runs it")
    with open("/etc/os-release") as file:
        version = re.search(r'^VERSION_ID="?(\d+)', file.read(), re.M)[1]
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", tmp_path / "debs", cwd=tmp_path)
    shutil.rmtree(tmp_path / "debs/_CPack_Packages")
    shutil.copytree(moved, tmp_path / "tree", symlinks=True)
    with_these = ["--clean", "--with", tmp_path / "debs", "--with", tmp_path / "tree"]
    each = "for p in {bin}/plan-viz {bin}/sluice-*; do env -i $p --version || exit 9; done; ! command -v g++ cmake"
    packages = ["libsluice0", "sluice-server"] if SERVER else ["libsluice0"]
    needed = " ".join(DEPENDS.format(deb=deb) for deb in packages)
    for command in (f"apt-get install -qy --no-install-recommends {needed} >/dev/null && " + each.format(bin="tree/bin"),
                    "apt-get install -qy --no-install-recommends ./debs/*.deb >/dev/null && " + each.format(bin="/usr/bin") +
                    " && python3 -c 'import sluice as sl; assert (sl.ones(2) + 1).tolist() == [2, 2]'"):
        done = told_by(*with_these, version, command)
        assert done.returncode == 0 and done.stdout.count(sl.__version__) >= 5, done
